# The settings of a server on the three stores beside the container: `. .devcontainer/stores.sh && cargo run`.
export COLLOQUY__LEDGER__URL="postgres://colloquy:$LEDGER_PASSWORD@postgres:5432/colloquy"
export COLLOQUY__BUFFER__URL=redis://redis:6379
export COLLOQUY__VECTORS__URL=http://qdrant:6334
