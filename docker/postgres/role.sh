#!/bin/sh
# Run once by the Postgres image, on an empty data folder. Creates the server's role, which owns its database. The role
# is not a superuser, so row-level security applies.
set -eu
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "${POSTGRES_DB:-$POSTGRES_USER}" \
  -v password="$LEDGER_PASSWORD" <<'SQL'
CREATE ROLE colloquy LOGIN PASSWORD :'password' NOSUPERUSER NOBYPASSRLS NOCREATEROLE;
CREATE DATABASE colloquy OWNER colloquy;
SQL
