#!/usr/bin/env bash
# Runs Schemathesis (PyPI) against a server of its own: sends what the OpenAPI document allows and what it forbids, with
# an admin's token, and compares every answer with the document: statuses, content types, headers, bodies, and no error
# of the server.
#   tests/schemathesis.sh                      a short run
#   CASES=30000 tests/schemathesis.sh          a long one: about so many requests in all
# COLLOQUY_BIN names a binary; without it one is built. SCHEMATHESIS names an installed tool of the right version. SEED
# makes a run the same again; what else is given goes to `schemathesis run`. Wants Python 3.10 or later and, the first
# time, PyPI. The server listens on 127.0.0.1 and goes with the script, as its data do.
set -euo pipefail
cd "$(dirname "$0")/.."
config="$PWD/tests/schemathesis.toml"
export SCHEMATHESIS_HOOKS="$PWD/tests/schemathesis_rules.py"

version=4.32.5
cases="${CASES:-2000}"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/colloquy"
tool="${SCHEMATHESIS:-$cache/schemathesis/bin/schemathesis}"
if [ "$("$tool" --version 2>/dev/null)" != "schemathesis, version $version" ]; then
  python3 -m venv "$cache/schemathesis"
  "$cache/schemathesis/bin/pip" install --quiet "schemathesis==$version"
  tool="$cache/schemathesis/bin/schemathesis"
fi

if [ -z "${COLLOQUY_BIN:-}" ]; then
  target="${CARGO_TARGET_DIR:-$cache/target}"
  CARGO_TARGET_DIR="$target" cargo build --quiet --locked
  COLLOQUY_BIN="$target/debug/colloquy"
fi
COLLOQUY_BIN="$(realpath "$COLLOQUY_BIN")"

folder="$(mktemp -d)"
server=""
finish() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$folder"
}
trap finish EXIT

port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
base="http://127.0.0.1:$port"
export COLLOQUY__DATA_DIR="$folder/data" COLLOQUY__SERVER__LISTEN="127.0.0.1:$port"
export COLLOQUY__AUTH__HS256_SECRET="schemathesis-schemathesis-schemathesis"
# Limits are tested elsewhere; here they would answer in place of everything else.
export COLLOQUY__BUDGETS__WORLDS=0 COLLOQUY__BUDGETS__AUTHORED_BYTES=0 COLLOQUY__DEMO__WORDS_PER_S=0
export COLLOQUY__LIMITS__TENANT_REQUESTS_PER_S=100000 COLLOQUY__TELEMETRY__LOG="${COLLOQUY__TELEMETRY__LOG:-error}"
"$COLLOQUY_BIN" serve >"$folder/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do
  "$COLLOQUY_BIN" health >/dev/null 2>&1 && break
  sleep 0.2
done
"$COLLOQUY_BIN" health >/dev/null || {
  cat "$folder/server.log" >&2
  exit 1
}
token="$("$COLLOQUY_BIN" token --tenant demo --role admin --ttl 24h)"
curl --silent --fail "$base/openapi.json" >"$folder/openapi.json"

# Examples and the edges of each parameter are a fixed number of cases; the rest is shared out among the operations.
operations="$(python3 -c '
import json, sys
paths = json.load(open(sys.argv[1]))["paths"].values()
print(sum(method in ("get", "put", "post", "patch", "delete") for path in paths for method in path))' "$folder/openapi.json")"
each=$(((cases + operations - 1) / operations))

status=0
(
  # Reports and caches of the tool stay out of the repository.
  cd "$folder"
  "$tool" --no-color --config-file "$config" run openapi.json --url "$base" \
    --header "Authorization: Bearer $token" \
    --checks all \
    --phases examples,coverage,fuzzing --max-examples "$each" --continue-on-failure --workers 1 --request-timeout 30 \
    --suppress-health-check all --warnings off ${SEED:+--seed "$SEED"} "$@"
) || status=$?

if ! kill -0 "$server" 2>/dev/null; then
  echo "the server ended:" >&2
  tail -n 50 "$folder/server.log" >&2
  status=1
fi
# A panic is caught where it happens, and would show as a status alone.
if grep -n "panicked at" "$folder/server.log" >&2; then
  status=1
fi
if [ "$status" = 0 ]; then echo "schemathesis: passed"; else echo "schemathesis: failed" >&2; fi
exit "$status"
