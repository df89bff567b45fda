#!/usr/bin/env bash
# Runs the slow tests, every night: long replay equivalence, twin worlds, and deaths at every point also on Postgres
# (COLLOQUY_DEATHS=all). The replays are 50,000 random histories on SQLite and a tenth on Postgres, with a new seed each
# day. COLLOQUY_REPLAYS and COLLOQUY_REPLAY_SEED change number and seed. A failing history is shrunk and saved under
# tests/it/replay/regressions. The twin worlds are 10,000 random histories; COLLOQUY_TWINS and COLLOQUY_TWIN_SEED change
# number and seed. The optimised build still takes hours on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
export COLLOQUY_REPLAYS="${COLLOQUY_REPLAYS:-50000}"
export COLLOQUY_REPLAY_SEED="${COLLOQUY_REPLAY_SEED:-$(date -u +%Y%m%d)}"
export COLLOQUY_TWINS="${COLLOQUY_TWINS:-10000}"
export COLLOQUY_TWIN_SEED="${COLLOQUY_TWIN_SEED:-$COLLOQUY_REPLAY_SEED}"
export COLLOQUY_DEATHS="${COLLOQUY_DEATHS:-all}"
echo "$COLLOQUY_REPLAYS histories from seed $COLLOQUY_REPLAY_SEED, $COLLOQUY_TWINS twin worlds from $COLLOQUY_TWIN_SEED"
# The optimised build checks the invariants too.
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true
exec scripts/with-postgres.sh cargo nextest run --release --locked --features failpoints --no-fail-fast \
  -E 'test(/^replay::(replay_)/) | test(/^twin_worlds::twins_/) | test(/^e2e::on_postgres::deaths/)' "$@"
