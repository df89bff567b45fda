//! `colloquy mock-llm`.

use super::block_on;
use crate::mock_llm::MockOptions;

pub(super) fn run(options: MockOptions) -> anyhow::Result<()> {
    block_on(crate::mock_llm::run(options))
}
