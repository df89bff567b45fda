#!/usr/bin/env bash
# What takes long, for every night: replay equivalence at length, and deaths at every point on Postgres too
# (COLLOQUY_DEATHS=all). The replays: 50,000 random histories on SQLite and a tenth as many on Postgres, from
# another seed each day. COLLOQUY_REPLAYS and COLLOQUY_REPLAY_SEED change both. A history that fails is made as short as it
# can be and kept under tests/it/replay/regressions. Optimised; still more than an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
export COLLOQUY_REPLAYS="${COLLOQUY_REPLAYS:-50000}"
export COLLOQUY_REPLAY_SEED="${COLLOQUY_REPLAY_SEED:-$(date -u +%Y%m%d)}"
export COLLOQUY_DEATHS="${COLLOQUY_DEATHS:-all}"
echo "$COLLOQUY_REPLAYS histories from seed $COLLOQUY_REPLAY_SEED"
exec scripts/with-postgres.sh cargo nextest run --release --locked --features failpoints --no-fail-fast \
  -E 'test(/^replay::(replay_)/) | test(/^e2e::on_postgres::deaths/)' "$@"
