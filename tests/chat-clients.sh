#!/usr/bin/env bash
# Runs clients of the OpenAI API that others wrote against servers of its own: the tests of the official Python client,
# the official Node client, the AI SDK and LiteLLM, and talks of the Realtime API. A client whose registry cannot be reached
# is left out with a message, except with COLLOQUY_REQUIRE_SUITES=1. COLLOQUY_BIN names the binary; without it the binary is
# built. The servers listen on 127.0.0.1 and go with the script, as their data do.
set -euo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/colloquy/target}"
command -v python3 >/dev/null || {
  echo "chat clients: NOT RUN: python3 is missing" >&2
  [ "${COLLOQUY_REQUIRE_SUITES:-}" != 1 ] || exit 1
  exit 0
}
if [ -z "${COLLOQUY_BIN:-}" ]; then
  CARGO_TARGET_DIR="$target" cargo build --quiet --locked --features failpoints,otel,mcp-fixtures
  COLLOQUY_BIN="$target/debug/colloquy"
fi
COLLOQUY_BIN="$(realpath "$COLLOQUY_BIN")"

folder="$(mktemp -d)"
processes=()
finish() {
  for process in "${processes[@]}"; do
    kill "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  rm -rf "$folder"
}
trap finish EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# start NAME [MORE]: starts a server with a configuration of its own, and sets TOKEN and BASE_URL.
start() {
  local name="$1" port
  port="$(free_port)"
  cat >"$folder/$name.toml" <<END
data_dir = "$folder/$name"
[server]
listen = "127.0.0.1:$port"
[limits]
player_turns_per_min = 0
player_sessions_per_min = 0
[demo]
words_per_s = 0
[telemetry]
log = "error"
[chat]
default_model = "vale/mira"
# The model that the tests of the Python client name.
[[chat.models]]
name = "gpt-6-astra"
world = "vale"
npc = "mira"
${2:-}
END
  "$COLLOQUY_BIN" serve --config "$folder/$name.toml" >"$folder/$name.log" 2>&1 &
  processes+=($!)
  local ready="$COLLOQUY_BIN health --config $folder/$name.toml"
  for _ in $(seq 100); do
    $ready >/dev/null 2>&1 && break
    sleep 0.2
  done
  $ready >/dev/null 2>&1 || {
    cat "$folder/$name.log" >&2
    exit 1
  }
  TOKEN="$("$COLLOQUY_BIN" token --config "$folder/$name.toml" --tenant demo --role backend --ttl 2h)"
  export TOKEN BASE_URL="http://127.0.0.1:$port/v1" MODEL=vale/mira
}

failed=0
run() {
  local name="$1" code=0
  shift
  "$@" >"$folder/output" 2>&1 || code=$?
  if [ "$code" = 77 ] || { [ "$code" != 0 ] && grep -q '^SKIP' "$folder/output" && ! grep -q '^FAIL' "$folder/output"; }; then
    echo "$name: NOT RUN: $(tail -1 "$folder/output")" >&2
    [ "${COLLOQUY_REQUIRE_SUITES:-}" != 1 ] || failed=1
  elif [ "$code" != 0 ]; then
    cat "$folder/output" >&2
    failed=1
  else
    echo "$name: $(tail -1 "$folder/output")"
  fi
}
start scripted
run "Python client" tests/openai-python.sh responses
run "Node client, AI SDK, LiteLLM, Realtime" tests/doors/run.sh
mock_port="$(free_port)"
"$COLLOQUY_BIN" mock-llm --listen "127.0.0.1:$mock_port" --tool-calls 2 --tool-words "Let me look." >"$folder/mock.log" 2>&1 &
processes+=($!)
start tools "[llm]
model = \"mock\"
base_url = \"http://127.0.0.1:$mock_port/v1\""
run "tools of the Node client and the AI SDK" tests/doors/run.sh tools
if grep -n "panicked at" "$folder"/*.log >&2; then
  failed=1
fi
exit "$failed"
