//! `colloquy mock-llm`.

use super::block_on;
use crate::{
    mock_llm::MockOptions,
    telemetry::{self, LogFormat},
};

pub(super) fn run(options: MockOptions) -> anyhow::Result<()> {
    telemetry::start_logging("info", LogFormat::Text)?;
    block_on(crate::mock_llm::run(options))
}
