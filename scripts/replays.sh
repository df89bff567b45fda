#!/usr/bin/env bash
# Runs the slow tests, every night: long replay equivalence, and deaths at every point also on Postgres
# (COLLOQUY_DEATHS=all). The replays are 50,000 random histories on SQLite and a tenth on Postgres, with a new seed each
# day. COLLOQUY_REPLAYS and COLLOQUY_REPLAY_SEED change number and seed. A failing history is shrunk and saved under
# tests/it/replay/regressions. The optimised build still takes more than an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
export COLLOQUY_REPLAYS="${COLLOQUY_REPLAYS:-50000}"
export COLLOQUY_REPLAY_SEED="${COLLOQUY_REPLAY_SEED:-$(date -u +%Y%m%d)}"
export COLLOQUY_DEATHS="${COLLOQUY_DEATHS:-all}"
echo "$COLLOQUY_REPLAYS histories from seed $COLLOQUY_REPLAY_SEED"
# The optimised build checks the invariants too.
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true
exec scripts/with-postgres.sh cargo nextest run --release --locked --features failpoints --no-fail-fast \
  -E 'test(/^replay::(replay_)/) | test(/^e2e::on_postgres::deaths/)' "$@"
