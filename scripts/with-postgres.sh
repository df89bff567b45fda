#!/usr/bin/env bash
# Runs a command with a temporary Postgres server: `scripts/with-postgres.sh cargo nextest run`. The command finds the
# server in COLLOQUY_TEST_POSTGRES. The server's folder is deleted after the command. If COLLOQUY_TEST_POSTGRES is
# already set, the script only runs the command.
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
# Postgres refuses to run as root.
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
  # The port was free a moment ago, but another process may take the port first.
  port=$((20000 + RANDOM % 20000))
  # The tests do not cover power cuts, so no write waits for the disk.
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
# Not a superuser, to whom row-level security would not apply. It creates roles for tests of roles that own nothing.
"$bin/psql" -q -h 127.0.0.1 -p "$port" -U postgres -d postgres -c "CREATE ROLE colloquy LOGIN CREATEDB CREATEROLE"
cd "$OLDPWD"
export COLLOQUY_TEST_POSTGRES="postgres://colloquy@127.0.0.1:$port/postgres"
"$@"
