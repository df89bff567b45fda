#!/usr/bin/env bash
# Runs independent clients against a running server: a streamed talk, an answer in one piece, the list of models and an
# unknown model, each with the official Node client, the AI SDK's generic provider and LiteLLM; and a talk of the Realtime
# API with the official clients for Node and Python.
#   BASE_URL=http://127.0.0.1:8080/v1 TOKEN=... MODEL=npc-mira tests/doors/run.sh \
#     [node|ai-sdk|litellm|realtime|realtime-python|tools ...]
# `tools` runs only if it is named: it wants a server whose model is `colloquy mock-llm --tool-calls 2 --tool-words
# "Let me look."`, and the token of a backend.
# The clients come from npm and PyPI and go to a cache outside the repository. Wants Node 18 and Python 3.10 or later.
# A client whose registry or runtime is missing is skipped with a message. The last line counts passed and failed checks.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
: "${BASE_URL:?the address of the API, such as http://127.0.0.1:8080/v1}"
: "${TOKEN:?a bearer token that may talk to the NPC}"
: "${MODEL:?the id of a model that GET /models lists}"
export BASE_URL="${BASE_URL%/}" TOKEN MODEL
export NO_PROXY="${NO_PROXY:-127.0.0.1,localhost}"

openai=7.59.0
ai=7.0.173
compatible=3.0.92
litellm=1.110.2
ws=8.23.0
openai_python=3.57.0
cache="${XDG_CACHE_HOME:-$HOME/.cache}/colloquy/doors"

skip() { echo "SKIP $*"; }

node_packages() {
  command -v npm >/dev/null || return 1
  local folder="$cache/node-$openai-$ai-$compatible-$ws"
  if [ ! -f "$folder/ready" ]; then
    mkdir -p "$folder"
    (cd "$folder" && echo '{"private":true}' >package.json &&
      npm install --silent --no-audit --no-fund --ignore-scripts \
        "openai@$openai" "ai@$ai" "@ai-sdk/openai-compatible@$compatible" "ws@$ws") || return 1
    touch "$folder/ready"
  fi
  # Imports are resolved from the script's own folder.
  cp "$here"/*.mjs "$folder/"
  node_folder="$folder"
}

# Installs a Python package into a folder of its own.
python_package() {
  command -v python3 >/dev/null || return 1
  local folder="$cache/python-$1"
  if [ ! -f "$folder/ready" ]; then
    python3 -m venv "$folder" &&
      "$folder/bin/pip" install --quiet --disable-pip-version-check "$2" || return 1
    touch "$folder/ready"
  fi
  python="$folder/bin/python"
}

output="$(mktemp)"
trap 'rm -f "$output"' EXIT
clients=("$@")
[ "${#clients[@]}" -gt 0 ] || clients=(node ai-sdk litellm realtime realtime-python)
for client in "${clients[@]}"; do
  case "$client" in
    node | ai-sdk | realtime | tools)
      if node_packages; then
        (cd "$node_folder" && timeout 180 node "$client.mjs") | tee -a "$output" || echo "FAIL $client ended early" | tee -a "$output"
      else
        skip "$client: npm or its registry is missing"
      fi
      ;;
    litellm)
      if python_package "$litellm" "litellm==$litellm"; then
        timeout 180 "$python" "$here/litellm_client.py" | tee -a "$output" || echo "FAIL $client ended early" | tee -a "$output"
      else
        skip "$client: Python or PyPI is missing"
      fi
      ;;
    realtime-python)
      if python_package "realtime-$openai_python" "openai[realtime]==$openai_python"; then
        timeout 180 "$python" "$here/realtime_client.py" | tee -a "$output" || echo "FAIL $client ended early" | tee -a "$output"
      else
        skip "$client: Python or PyPI is missing"
      fi
      ;;
    *)
      echo "unknown client: $client (known: node, ai-sdk, litellm, realtime, realtime-python, tools)" >&2
      exit 2
      ;;
  esac
done
passed="$(grep -c '^PASS' "$output" || true)"
failed="$(grep -c '^FAIL' "$output" || true)"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
