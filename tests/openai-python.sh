#!/usr/bin/env bash
# Runs the tests that the official OpenAI client for Python carries in its source distribution, against a running
# server: chat completions, models and, on request, responses; strict and loose, sync and async.
#   BASE_URL=http://127.0.0.1:8080/v1 TOKEN=... tests/openai-python.sh
#   ... tests/openai-python.sh responses         also the tests of POST /responses
#   ... tests/openai-python.sh -- -x --tb=long   further options for pytest
# The tests name the model of MODEL below, so the server needs an alias of that name for one of its NPCs.
# The tests have a fixed API key; a small pytest plugin replaces that key with TOKEN.
# OPENAI_SDIST names a downloaded archive. Wants Python 3.10 or later, and PyPI the first time. Without PyPI, the script
# says so and ends with status 77 (skipped).
set -euo pipefail

version=3.57.0
MODEL=gpt-6-astra
: "${BASE_URL:?the address of the API, such as http://127.0.0.1:8080/v1}"
: "${TOKEN:?a bearer token that may talk to the NPC}"

suites=(chat models)
while [ $# -gt 0 ]; do
  case "$1" in
    responses) suites+=(responses) ;;
    --)
      shift
      break
      ;;
    *)
      echo "unknown suite: $1 (known: responses)" >&2
      exit 2
      ;;
  esac
  shift
done

cache="${XDG_CACHE_HOME:-$HOME/.cache}/colloquy/openai-python-$version"
skip() {
  echo "openai-python: skipped: $*" >&2
  exit 77
}
if [ ! -f "$cache/ready" ]; then
  rm -rf "$cache"
  mkdir -p "$cache"
  python3 -m venv "$cache/venv" || skip "Python has no venv (Debian: apt-get install python3-venv)"
  sdist="${OPENAI_SDIST:-}"
  if [ -z "$sdist" ]; then
    # The tests are only in the source distribution.
    "$cache/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary openai \
      --dest "$cache" "openai==$version" || skip "PyPI has no openai $version for this machine"
    sdist="$cache/openai-$version.tar.gz"
  fi
  tar -xzf "$sdist" -C "$cache"
  "$cache/venv/bin/pip" install --quiet --disable-pip-version-check "$sdist" \
    "aiohttp>=3.14.4" "multidict>=6.9.1" "yarl>=1.25.1" "pytest==9.2.0" "pytest-asyncio==1.5.0" "rich==15.0.0" ||
    skip "PyPI lacks a package of the tests"
  touch "$cache/ready"
fi

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
# The fixtures read the module's key when a session starts, so a changed key holds for all clients.
cat >"$folder/colloquy_key.py" <<'PLUGIN'
import os
import sys


def pytest_collection_finish(session):
    conftest = sys.modules.get("tests.conftest")
    if conftest is None or not hasattr(conftest, "api_key"):
        raise RuntimeError("the tests keep their API key elsewhere in this version")
    conftest.api_key = os.environ["TOKEN"]
PLUGIN

cd "$cache/openai-$version"
export TEST_API_BASE_URL="${BASE_URL%/}" TOKEN PYTHONPATH="$folder" PYTHONDONTWRITEBYTECODE=1
export NO_PROXY="${NO_PROXY:-127.0.0.1,localhost}"
pytest() {
  "$cache/venv/bin/python" -m pytest -o addopts= -p no:cacheprovider -p colloquy_key -q --tb=short "$@"
}

# A server without the alias fails each test with the same message, so one request tells first.
if ! "$cache/venv/bin/python" - "$MODEL" <<'PROBE'; then
import os
import sys

import openai

client = openai.OpenAI(base_url=os.environ["TEST_API_BASE_URL"], api_key=os.environ["TOKEN"], max_retries=0)
try:
    client.models.retrieve(sys.argv[1])
except openai.OpenAIError as error:
    sys.exit(f"openai-python: the server does not know the model {sys.argv[1]}: {error}")
PROBE
  exit 1
fi

status=0
for suite in "${suites[@]}"; do
  case "$suite" in
    chat) pytest tests/api_resources/chat/test_completions.py -k create "$@" || status=1 ;;
    models) pytest tests/api_resources/test_models.py -k "retrieve or list" "$@" || status=1 ;;
    # The tests with all parameters send `background`, and a conversation beside an earlier response that does not exist.
    responses) pytest tests/api_resources/test_responses.py -k "create and not all_params" "$@" || status=1 ;;
  esac
done
if [ "$status" = 0 ]; then echo "openai-python: passed"; else echo "openai-python: failed" >&2; fi
exit "$status"
