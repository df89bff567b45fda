#!/usr/bin/env bash
# Runs all checks for a change: formatting, lints, licences, known advisories and all tests. Needs a Rust toolchain
# (rust-version in Cargo.toml), a C compiler, redis-server, haproxy, nginx and the Postgres server. As root on Debian,
# the script installs missing programs of the last five. The conformance suite of the Model Context Protocol needs npm,
# and is left out without it, except with COLLOQUY_REQUIRE_SUITES=1. With QDRANT_URL (a gRPC address), the index is also tested on
# that Qdrant. With COLLOQUY_TEST_REDIS_SERVER=valkey-server, buffers are on Valkey. Build products go to
# $CARGO_TARGET_DIR, by default outside the repository, and tools go to the same cache.
set -euo pipefail
cd "$(dirname "$0")/.."

home="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6 || true)}"
export HOME="${home:-/tmp}"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/colloquy"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cache/target}"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
# A snapshot mismatch fails the test. Tests write nothing into the repository.
export INSTA_UPDATE="${INSTA_UPDATE:-no}"
tools="$cache/tools"
export PATH="$tools/bin:$PATH"
# rustup adds its path to files that only login shells read.
if ! command -v cargo >/dev/null && [ -f "$HOME/.cargo/env" ]; then
  # shellcheck disable=SC1091
  . "$HOME/.cargo/env"
fi

# Named points of death, traces, and what the conformance suite of MCP calls.
features=failpoints,otel,mcp-fixtures

say() { printf '\n== %s\n' "$*"; }

say "tools"
if ! command -v cargo >/dev/null; then
  echo "cargo is missing: install Rust from https://rustup.rs" >&2
  exit 1
fi
missing=()
command -v cc >/dev/null || missing+=(build-essential pkg-config)
command -v redis-server >/dev/null || missing+=(redis-server)
command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ] || missing+=(haproxy)
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light)
if [ -z "${COLLOQUY_TEST_POSTGRES:-}" ] && ! compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null &&
  ! [ -x "$(pg_config --bindir 2>/dev/null)/initdb" ]; then
  missing+=(postgresql)
fi
if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
  else
    echo "missing: install ${missing[*]} (Debian) or their like" >&2
    exit 1
  fi
fi
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
  if ! command -v rustup >/dev/null; then
    echo "rustfmt or clippy is missing: install them with your Rust toolchain" >&2
    exit 1
  fi
  rustup component add rustfmt clippy
fi
cargo --version

say "formatting"
cargo fmt --all --check

say "names"
if command -v python3 >/dev/null; then
  scripts/names.py
else
  echo "names: NOT CHECKED: python3 is missing" >&2
fi

say "lints"
# Checks the embedded stores alone, then everything with all features.
cargo clippy --locked --lib --bins --no-default-features -- -D warnings
cargo clippy --locked --workspace --all-targets --features "$features" -- -D warnings

say "licences"
deny_version=0.20.2
if [ "$(cargo-deny --version 2>/dev/null)" != "cargo-deny $deny_version" ]; then
  # Two short runs do not need the tool's own profile, which optimises at link time and takes minutes.
  CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    cargo install --quiet --locked --root "$tools" --target-dir "$cache/tools-target" "cargo-deny@$deny_version"
  rm -rf "$cache/tools-target"
fi
cargo deny --locked check --hide-inclusion-graph licenses bans sources

say "advisories"
scripts/advisories.sh

say "build of the tests"
# One build for all that follows: the tests' build has the binary, too.
if cargo nextest --version >/dev/null 2>&1; then
  cargo nextest run --no-run --locked --workspace --features "$features"
else
  cargo test --no-run --locked --workspace --features "$features" --lib --bins --tests
fi
binary="$CARGO_TARGET_DIR/debug/colloquy"

say "conformance to the Model Context Protocol"
# Needs npm, and says so if it is missing. With COLLOQUY_REQUIRE_SUITES=1, a missing npm fails.
COLLOQUY_BIN="$binary" tests/mcp-conformance.sh

say "clients of the OpenAI API"
# Needs Python, npm and their registries, and says so if one is missing.
COLLOQUY_BIN="$binary" tests/chat-clients.sh

say "guides"
# Needs curl, jq and Python, and says so if one is missing.
COLLOQUY_BIN="$binary" tests/guides.sh

say "libraries of Standard Webhooks"
# Needs Python, npm and their registries, and says so if one is missing.
tests/webhook-libraries.sh "$cache/webhook-libraries"
export COLLOQUY_WEBHOOK_LIBRARIES="$cache/webhook-libraries"

say "tests"
# The test runner's summary comes last.
if cargo nextest --version >/dev/null 2>&1; then
  if [ -n "${QDRANT_URL:-}" ]; then
    cargo nextest run --locked --features "$features" --run-ignored only -E 'test(::real_qdrant::)'
  fi
  exec scripts/with-postgres.sh cargo nextest run --locked --workspace --features "$features" --no-fail-fast --status-level fail "$@"
fi
if [ -n "${QDRANT_URL:-}" ]; then
  cargo test --locked --features "$features" --test it -- --ignored ::real_qdrant::
fi
# Prints one summary for all binaries. The documentation has no runnable examples. A planted leak is in the whole process,
# so these tests need cargo-nextest.
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
status=0
scripts/with-postgres.sh cargo test --locked --workspace --features "$features" --no-fail-fast --lib --bins --tests "$@" -- --skip planted_leak_of 2>&1 | tee "$log" || status=$?
awk '/^test result:/ { passed += $4; failed += $6 } END { printf "\n%d passed, %d failed\n", passed, failed }' "$log"
exit "$status"
