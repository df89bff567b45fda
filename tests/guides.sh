#!/usr/bin/env bash
# Runs the `sh` blocks of docs/guides, each guide in one shell beside a new demo server. A guide fails with a command that
# fails, an error answer whose code the block does not name, and a text of `<!-- prints: A; B -->` after a block that the
# block does not print, in this order. `<!-- not run: needs … -->` before a block skips the block. COLLOQUY_BIN names
# the binary; arguments name single guides. Needs curl, jq and python3, and says so if one is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

for program in curl jq python3; do
  command -v "$program" >/dev/null || {
    echo "guides: NOT RUN: $program is missing" >&2
    [ "${COLLOQUY_REQUIRE_SUITES:-}" != 1 ] || exit 1
    exit 0
  }
done
binary="$(realpath "${COLLOQUY_BIN:?names the binary}")"
folder="$(mktemp -d)"
server=
stop() {
  [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
  server=
}
trap 'stop; rm -rf "$folder"' EXIT

# The guides write files: they run in a folder with links to the files that they read.
mkdir -p "$folder/work/target/demo" "$folder/bin"
ln -s "$binary" "$folder/work/target/demo/colloquy"
ln -s "$PWD/docs" "$PWD/src" "$PWD/config" "$folder/work"
# A curl that records the block and the code of an error answer. Its exit code 23 is a pipe that was closed early.
cat >"$folder/bin/curl" <<END
#!/usr/bin/env bash
answer="\$(mktemp "$folder/answer.XXXXXX")" code=0
$(command -v curl) -D "\$answer.head" "\$@" | tee "\$answer" || code="\${PIPESTATUS[0]}"
if [ "\$code" != 0 ] && [ "\$code" != 23 ]; then
  echo "\$(cat "$folder/at") curl_\$code" >>"$folder/refusals"
elif grep -q '^HTTP/[0-9.]* [45]' "\$answer.head"; then
  refusal="\$(grep -o '"code": *"[a-z_]*"' "\$answer" | head -1 | cut -d'"' -f4)"
  echo "\$(cat "$folder/at") \${refusal:-\$(head -1 "\$answer.head")}" >>"$folder/refusals"
fi
END
chmod +x "$folder/bin/curl"

start_server() {
  local port
  port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
  rm -rf "$folder/data"
  export BASE="http://127.0.0.1:$port" COLLOQUY__SERVER__LISTEN="127.0.0.1:$port" COLLOQUY__DATA_DIR="$folder/data"
  export COLLOQUY__DEMO__WORDS_PER_S="${COLLOQUY__DEMO__WORDS_PER_S:-0}" COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN=0
  export COLLOQUY__WEBHOOKS__ALLOWED_HOSTS=127.0.0.1
  (cd "$folder/work" && exec "$binary" serve) >"$folder/log" 2>&1 &
  server=$!
  for _ in $(seq 100); do
    "$binary" health >/dev/null 2>&1 && return
    sleep 0.1
  done
  cat "$folder/log" >&2
  exit 1
}

# Writes the script of a guide, and for each block the text and the texts that it must print.
write_blocks() {
  rm -rf "$folder/blocks" "$folder/refusals"
  mkdir "$folder/blocks"
  : >"$folder/refusals"
  awk -v to="$folder/blocks/" -v folder="$folder" '
    /^<!-- not run: / { skipped = 1 }
    /^<!-- prints: / { gsub(/^<!-- prints: | -->$/, ""); gsub(/; /, "\n"); print > (block ".prints") }
    /^```/ && inside { inside = 0; close(block); next }
    /^```sh$/ {
      inside = !skipped; skipped = 0
      if (inside) {
        block = sprintf("%s%02d", to, ++count)
        printf "echo %02d >%s/at\nexec >%s.output 2>&1\n", count, folder, block > (folder "/script")
      }
      next
    }
    inside { print > block; print > (folder "/script") }' "$1"
}

# Prints the faults of the blocks: error answers, and texts that are missing or not in their order.
find_faults() {
  local number code expected printed block text
  while read -r number code; do
    grep -q "$code" "$folder/blocks/$number" || echo "block $number: error answer $code"
  done <"$folder/refusals"
  for expected in "$folder"/blocks/*.prints; do
    block="${expected%.prints}"
    # A guide may have no such file, and a failed guide has blocks without output.
    [ -f "$block.output" ] || continue
    printed="$(cat "$block.output")"
    while IFS= read -r text; do
      [[ "$printed" == *"$text"* ]] || echo "block ${block##*/}: does not print \`$text\` in its place"
      printed="${printed#*"$text"}"
    done <"$expected"
  done
}

failed=0
[ $# -gt 0 ] || set -- docs/guides/*.md
for guide in "$@"; do
  write_blocks "$guide"
  [ -f "$folder/blocks/01" ] || continue
  start_server
  code=0
  (cd "$folder/work" && PATH="$folder/bin:$PATH" timeout 120 sh -e "$folder/script") </dev/null >"$folder/rest" 2>&1 || code=$?
  stop
  faults="$(find_faults)"
  [ "$code" = 0 ] || faults+=$'\n'"block $(cat "$folder/at"): exit code $code"
  if [ -n "$faults" ]; then
    failed=1
    printf '%s: FAILED\n%s\n' "$guide" "$faults" >&2
    tail -n 20 "$folder"/blocks/*.output >&2
  else
    echo "$guide: $(find "$folder/blocks" -name '??' | wc -l) blocks"
  fi
done
exit "$failed"
