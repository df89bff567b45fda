#!/usr/bin/env bash
# Installs the Python and JavaScript libraries of Standard Webhooks into a folder, beside the example receivers that use
# them: tests/webhook-libraries.sh FOLDER. A library whose registry cannot be reached is left out with a message, except
# with COLLOQUY_REQUIRE_SUITES=1. The tests of webhooks find the folder in COLLOQUY_WEBHOOK_LIBRARIES.
set -euo pipefail
folder="$1"
examples="$(cd "$(dirname "$0")/.." && pwd)/examples/webhooks"
mkdir -p "$folder"
cp "$examples"/receiver.* "$folder"

missing() { # library
  echo "webhooks: NOT TESTED with the library of $1, which cannot be installed" >&2
  [ "${COLLOQUY_REQUIRE_SUITES:-}" != 1 ] || exit 1
}
if ! [ -d "$folder/standardwebhooks" ]; then
  python3 -m pip install --quiet --target "$folder" standardwebhooks==1.1.0 || missing Python
fi
if ! [ -d "$folder/node_modules/standardwebhooks" ]; then
  npm install --silent --no-fund --no-audit --prefix "$folder" standardwebhooks@1.1.1 || missing JavaScript
fi
