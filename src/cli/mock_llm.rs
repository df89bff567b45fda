//! `colloquy mock-llm`.

use super::process::block_on;
use colloquy_mock_llm::MockOptions;
use colloquy_telemetry as telemetry;
use colloquy_telemetry::LogFormat;

pub(super) fn run(options: MockOptions) -> anyhow::Result<()> {
    telemetry::start_logging("info", LogFormat::Text)?;
    block_on(colloquy_mock_llm::run(options))
}
