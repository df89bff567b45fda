#!/bin/sh
# Run once by the image of Postgres, on an empty data folder: a role of the server's own, which owns its database
# and is no superuser, so that row-level security binds it.
set -eu
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "${POSTGRES_DB:-$POSTGRES_USER}" \
  -v password="$LEDGER_PASSWORD" <<'SQL'
CREATE ROLE colloquy LOGIN PASSWORD :'password' NOSUPERUSER NOBYPASSRLS NOCREATEROLE;
CREATE DATABASE colloquy OWNER colloquy;
SQL
