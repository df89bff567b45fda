#!/usr/bin/env bash
# Runs a command with a Postgres server of its own: `scripts/with-postgres.sh cargo nextest run`.
# COLLOQUY_TEST_POSTGRES names it to the command. It keeps nothing: its folder goes with the command.
# Does nothing but run the command if COLLOQUY_TEST_POSTGRES is set already.
set -euo pipefail

if [ -n "${COLLOQUY_TEST_POSTGRES:-}" ]; then
  exec "$@"
fi
bin="$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1 || true)"
[ -n "$bin" ] || bin="$(pg_config --bindir 2>/dev/null || true)"
if [ ! -x "$bin/initdb" ]; then
  echo "the Postgres server's programs are missing: install postgresql (Debian) or its like" >&2
  exit 1
fi

folder="$(mktemp -d)"
# The server refuses to run as root.
as=()
if [ "$(id -u)" = 0 ]; then
  chown postgres "$folder"
  as=(runuser -u postgres --)
fi
stop() {
  "${as[@]}" "$bin/pg_ctl" -D "$folder/data" -m immediate stop >/dev/null 2>&1 || true
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT TERM

cd "$folder"
"${as[@]}" "$bin/initdb" -D data -U postgres --auth=trust --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null
started=
for _ in 1 2 3 4 5; do
  # A port that was free a moment ago; another process may still be faster.
  port=$((20000 + RANDOM % 20000))
  # Durability across power cuts is not what is tested: nothing waits for the disk.
  if "${as[@]}" "$bin/pg_ctl" -D data -w -l log start >/dev/null \
    -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$folder -c fsync=off -c full_page_writes=off -c synchronous_commit=off -c max_connections=500"; then
    started=yes
    break
  fi
done
if [ -z "$started" ]; then
  cat log >&2
  exit 1
fi
# Not a superuser, whom row-level security would not bind. It makes other roles to see what one may do that owns nothing.
"$bin/psql" -q -h 127.0.0.1 -p "$port" -U postgres -d postgres -c "CREATE ROLE colloquy LOGIN CREATEDB CREATEROLE"
cd "$OLDPWD"
export COLLOQUY_TEST_POSTGRES="postgres://colloquy@127.0.0.1:$port/postgres"
"$@"
