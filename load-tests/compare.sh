#!/usr/bin/env bash
# Compares two builds: runs the same load tests on both, alternately, and prints the medians and their ratios.
#   load-tests/compare.sh OTHER_BINARY [steady|peak|soak|first-word|where|…]…
# By default: steady, peak, soak and first-word, and with STACK=full also where. COLLOQUY_BIN names this build's binary;
# without it, the build is made. ROUNDS (3), and the variables of run.sh; RESULTS is written anew. Both builds get the mock model of this build.
# The two orders of a round alternate, so that a slow hour of the host meets both.
source "$(dirname "$0")/lib.sh"

[ $# -ge 1 ] && [ -x "$1" ] || { echo "load-tests/compare.sh OTHER_BINARY [test]…" >&2; exit 2; }
other="$(realpath "$1")"
shift
this="$(realpath "$(binary)")"
tests=("$@")
if [ "${#tests[@]}" = 0 ]; then
  tests=(steady peak soak first-word)
  [ "$stack" != full ] || tests+=(where)
fi
export MOCK_BIN="$this" DURATION="${DURATION:-20}" SOAK="${SOAK:-20}"
results="${RESULTS:-$work/results.jsonl}"
# Only the lines of this run count.
: >"$results"
mkdir -p "$work/this" "$work/other"

# run NAME BINARY: the bars of run.sh judge neither build here.
run() {
  local name="$1"
  for each in "${tests[@]}"; do
    echo "round $round, $name, $each"
    COLLOQUY_BIN="$2" RESULTS="$work/$name/each.jsonl" "$here/run.sh" "$each" >"$work/$name/out.txt" 2>&1 || true
    if [ -s "$work/$name/each.jsonl" ]; then
      python3 "$here/report/compare.py" --label "$name" "$round" <"$work/$name/each.jsonl" >>"$results"
    else
      echo "  $each did not run:" >&2
      tail -n 5 "$work/$name/out.txt" >&2
    fi
    rm -f "$work/$name/each.jsonl"
  done
}

machine
for round in $(seq "${ROUNDS:-3}"); do
  if [ $((round % 2)) = 1 ]; then
    run this "$this"
    run other "$other"
  else
    run other "$other"
    run this "$this"
  fi
done
python3 "$here/report/compare.py" <"$results"
