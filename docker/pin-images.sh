#!/bin/sh
# Pins all pulled images to the current digests of their tags: `docker/pin-images.sh`. Asks the registries for the
# digests, and writes them to docker/.env for Compose. Needs Docker with buildx and a network. Run the script again to
# update. Without pins, the tags in the files apply.
set -eu
cd "$(dirname "$0")"
umask 077

pinned="$(mktemp .env.XXXXXX)"
trap 'rm -f "$pinned"' EXIT
# `${POSTGRES_IMAGE:-postgres:15}`: a name and a tag.
sed -n 's/.*\${\([A-Z]*_IMAGE\):-\([^}]*\)}.*/\1 \2/p' ./*.yaml | sort -u | while read -r name image; do
  digest="$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}')"
  case "$digest" in
    sha256:*) echo "$name=$image@$digest" ;;
    *)
      echo "no digest for $image" >&2
      exit 1
      ;;
  esac
done >"$pinned"
cat "$pinned"
if [ -f .env ]; then
  grep -v '^[A-Z]*_IMAGE=' .env >>"$pinned" || true
fi
mv "$pinned" .env
trap - EXIT
