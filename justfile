# What a change goes through, shortest first. Needs bash and cargo, and uses cargo-nextest where it is installed.

# Checks and tests share the build products of scripts/test.sh.
products := env("CARGO_TARGET_DIR", env("XDG_CACHE_HOME", env("HOME") / ".cache") / "colloquy/target")
features := "failpoints,otel,mcp-fixtures"

_list:
    @just --list --unsorted

# formatting and lints, as scripts/test.sh has them
check:
    cargo fmt --all --check
    scripts/names.py
    CARGO_TARGET_DIR={{ quote(products) }} cargo clippy --locked --lib --bins --no-default-features -- -D warnings
    CARGO_TARGET_DIR={{ quote(products) }} cargo clippy --locked --workspace --all-targets --features {{ features }} -- -D warnings

# the unit tests of a crate in src/ (`just test memory`); without a filter, all that a change must pass
test filter="":
    #!/usr/bin/env bash
    set -euo pipefail
    if [ -z {{ quote(filter) }} ]; then
      exec scripts/test.sh
    fi
    export CARGO_TARGET_DIR={{ quote(products) }}
    if cargo nextest --version >/dev/null 2>&1; then
      exec cargo nextest run --locked -p {{ quote("colloquy-" + filter) }}
    fi
    exec cargo test --locked -p {{ quote("colloquy-" + filter) }}

# unit tests, and the short tests of tests/it that need no other program
test-fast:
    #!/usr/bin/env bash
    set -euo pipefail
    export CARGO_TARGET_DIR={{ quote(products) }}
    # Parts of names: of services, and of what takes long.
    left_out=(e2e:: replay:: twin_worlds:: eval_figures eval_compares canaries postgres redis buffer_written owner_is_cached rewind_contention ::statistics::)
    if cargo nextest --version >/dev/null 2>&1; then
      exec cargo nextest run --locked --workspace --features {{ features }} --lib --test it --status-level fail \
        -E "not test(/$(IFS='|'; echo "${left_out[*]}")/)"
    fi
    exec cargo test --locked --workspace --features {{ features }} --lib --test it -- "${left_out[@]/#/--skip=}"

# a server to try: no key, no service
demo *arguments:
    cargo demo {{ arguments }}

# docs/openapi.json and docs/asyncapi.json anew, from the code
docs:
    UPDATE_DOCS=1 CARGO_TARGET_DIR={{ quote(products) }} cargo test --locked --features {{ features }} --test it -- http::docs::

# what takes hours, for the night, with cargo-nextest and Postgres: random histories, and deaths at every point
replays:
    scripts/replays.sh
