#!/usr/bin/env bash
# Fuzzes what strangers send, each target for SECONDS_EACH seconds (60): tests/fuzz/run.sh [TARGET…]
# Wants a nightly toolchain (`rustup toolchain install nightly`) and cargo-fuzz (`cargo install cargo-fuzz`). What is found on the
# way is kept in tests/fuzz/work, which Git does not track; with KEEP=1 the least of it that covers as much goes to
# tests/fuzz/corpus, which every run of the tests reads (src/dev/fuzzing). An input that fails is in tests/fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/../.."

export PATH="${XDG_CACHE_HOME:-$HOME/.cache}/colloquy/tools/bin:$PATH"
if ! rustc +nightly --version >/dev/null 2>&1; then
  echo "no nightly toolchain: rustup toolchain install nightly" >&2
  exit 2
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "no cargo-fuzz: cargo install cargo-fuzz" >&2
  exit 2
fi

# The versions that the server has.
cp Cargo.lock tests/fuzz/Cargo.lock
each="${SECONDS_EACH:-60}"
fuzz() { cargo +nightly fuzz "$1" --fuzz-dir tests/fuzz "${@:2}"; }
targets=("$@")
if [ "${#targets[@]}" = 0 ]; then
  mapfile -t targets < <(fuzz list)
fi

failed=()
for target in "${targets[@]}"; do
  echo "== $target, $each s"
  found="tests/fuzz/work/$target"
  kept="tests/fuzz/corpus/$target"
  mkdir -p "$found"
  # Longer than most that is taken: a message of a socket may have 64 KiB.
  if ! fuzz run "$target" "$found" "$kept" -- -max_total_time="$each" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1; then
    failed+=("$target")
    continue
  fi
  if [ -n "${KEEP:-}" ]; then
    fuzz cmin "$target" "$found"
    # The small ones: a corpus is read in every run of the tests.
    find "$found" -type f -size -1025c -printf '%s %p\n' | sort -n | sed -n "1,${KEEP_MOST:-100}p" | cut -d' ' -f2 | xargs -r cp -t "$kept"
  fi
done
if [ "${#failed[@]}" -gt 0 ]; then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
echo "${#targets[@]} passed, 0 failed"
