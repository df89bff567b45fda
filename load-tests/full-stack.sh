#!/usr/bin/env bash
# Runs all load tests on both stacks, and writes a report with plots.
#   load-tests/full-stack.sh [FOLDER]      (./load-report by default)
# Every test starts a temporary Postgres and Redis. Both stacks use the embedded search index, unless QDRANT_URL names a
# Qdrant (its gRPC port) for the full stack. The run takes about forty minutes, or about eight with QUICK=1. LONG=300
# sets the seconds of the steady test. COLLOQUY_BIN names an existing binary.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(dirname "$here")"
folder="${1:-load-report}"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
# Deletes only files of an earlier run, because the folder may have other files.
rm -f "$folder"/{results.jsonl,where.md,report.md} "$folder"/{embedded,full}.txt "$folder"/{embedded,full}-*.samples \
  "$folder"/{cpu,latency,soak,memory}.svg

if [ -z "${COLLOQUY_BIN:-}" ]; then
  (cd "$root" && cargo build --release --locked)
  export COLLOQUY_BIN="${CARGO_TARGET_DIR:-$root/target}/release/colloquy"
fi
export RESULTS="$folder/results.jsonl"
if [ "${QUICK:-}" = 1 ]; then
  export DURATION="${DURATION:-10}" SOAK="${SOAK:-20}" FLOOD_S="${FLOOD_S:-10}" SOCKETS="${SOCKETS:-1000}" TALK="${TALK:-20}" STEP="${STEP:-5}" DIALOGUES="${DIALOGUES:-2000}" IDLE_S="${IDLE_S:-5}" CONVERSATIONS="${CONVERSATIONS:-50}" BARGE_S="${BARGE_S:-20}" BARGING="${BARGING:-50}"
fi
failures=0
for stack in embedded full; do
  : >"$folder/$stack.txt"
  STACK="$stack" DURATION="${LONG:-${DURATION:-30}}" "$here/run.sh" steady 2>&1 | tee -a "$folder/$stack.txt" || failures=$((failures + 1))
  STACK="$stack" "$here/run.sh" highest peak rest conversations barge-in idle touched flood soak where 2>&1 | tee -a "$folder/$stack.txt" || failures=$((failures + 1))
done
python3 "$here/report/report.py" "$folder" "$("$COLLOQUY_BIN" --version)"
echo
echo "report: $folder/report.md"
[ "$failures" = 0 ]
