#!/usr/bin/env bash
# Checks Cargo.lock against known advisories, without a network: `scripts/advisories.sh`. The advisories are an extract
# of the RustSec database in .ci/advisories, with its date. With a network, `scripts/advisories.sh update` recreates the
# extract. Waivers are in deny.toml (`ignore`), with their expiry dates. `scripts/advisories.sh waivers` checks only
# these dates. TODAY=YYYY-MM-DD replaces the clock.
set -euo pipefail
cd "$(dirname "$0")/.."

extract=.ci/advisories
# An older extract gives a warning.
warn_after_days=90
# cargo-deny 0.20 stores a database under the last word of its URL and a hash of the URL.
folder=advisory-db-3157b0e258782691
upstream=https://github.com/RustSec/advisory-db
today="${TODAY:-$(date -u +%F)}"

crates() { sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.lock | sort -u; }

# Every line of `ignore` in deny.toml has an id and `until YYYY-MM-DD`. A past date is a failure.
waivers() {
  local failed=0 line id until
  while IFS= read -r line; do
    id="$(grep -o 'RUSTSEC-[0-9]*-[0-9]*' <<<"$line" | head -n 1)"
    until="$(sed -n 's/.*until \([0-9]\{4\}-[0-9][0-9]-[0-9][0-9]\).*/\1/p' <<<"$line")"
    if [ -z "$until" ]; then
      echo "waiver without a date: $id (deny.toml wants \`until YYYY-MM-DD\` in its reason)" >&2
      failed=1
    elif [[ "$today" > "$until" ]]; then
      echo "waiver expired on $until: $id (look again: upgrade, or say anew why it does no harm)" >&2
      failed=1
    else
      echo "waived until $until: $id"
    fi
  done < <(grep '^ *{ *id = "RUSTSEC-' deny.toml)
  return "$failed"
}

# Writes the advisories into a folder, one file each. A line `@ PATH` begins a file.
write_files() {
  sed -n 's/^@ \(.*\)\/.*/\1/p' "$extract/advisories.txt" | (cd "$1" && xargs mkdir -p)
  awk -v to="$1/" '/^@ / { close(file); file = to $2; next } { print >file }' "$extract/advisories.txt"
}

check() {
  local as_of age missing database
  as_of="$(cat "$extract/as-of")"
  age=$((($(date -u -d "$today" +%s) - $(date -u -d "$as_of" +%s)) / 86400))
  echo "advisories as of $as_of ($age days ago)"
  if [ "$age" -gt "$warn_after_days" ]; then
    echo "warning: the advisories are older than $warn_after_days days: scripts/advisories.sh update, where there is a network" >&2
  fi
  missing="$(comm -13 "$extract/crates.txt" <(crates) | tr '\n' ' ')"
  if [ -n "$missing" ]; then
    echo "warning: came into Cargo.lock since, so nothing is known of them: $missing" >&2
  fi
  waivers

  # cargo-deny requires a Git repository.
  database="$(mktemp -d)"
  # shellcheck disable=SC2064
  trap "rm -rf '$database'" EXIT
  mkdir "$database/$folder"
  write_files "$database/$folder"
  git -C "$database/$folder" init --quiet
  git -C "$database/$folder" add .
  git -C "$database/$folder" -c user.name=advisories -c user.email=advisories@localhost -c commit.gpgsign=false \
    commit --quiet --message "as of $as_of"
  # Fetches crates of all platforms, because `cargo deny` cannot fetch offline.
  cargo fetch --locked --quiet
  ADVISORY_DATABASES="$database" cargo deny --locked --offline check --hide-inclusion-graph advisories
}

update() {
  local database name file
  database="$(mktemp -d)"
  # shellcheck disable=SC2064
  trap "rm -rf '$database'" EXIT
  git clone --quiet --depth 1 "$upstream" "$database/db"
  crates >"$extract/crates.txt"
  while IFS= read -r name; do
    for file in "$database/db/crates/$name"/RUSTSEC-*.md; do
      [ -f "$file" ] || continue
      grep -q '^withdrawn = ' "$file" && continue
      echo "@ crates/$name/${file##*/}"
      # Copies the facts and the title. The description remains available under `url` and the id.
      awk '{ print } /^# / && closed { exit } /^```$/ { closed = 1 }' "$file"
    done
  done <"$extract/crates.txt" >"$extract/advisories.txt"
  git -C "$database/db" log -1 --format=%cs >"$extract/as-of"
  echo "advisories as of $(cat "$extract/as-of"): $(grep -c '^@ ' "$extract/advisories.txt")"
}

case "${1:-check}" in
  check) check ;;
  waivers) waivers ;;
  update) update ;;
  *)
    echo "usage: scripts/advisories.sh [check | waivers | update]" >&2
    exit 2
    ;;
esac
