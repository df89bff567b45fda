//! `colloquy serve`.

use super::{banner, process::block_on};
use crate::{
    app::{Application, descriptors},
    config::Config,
};
use colloquy_telemetry as telemetry;

pub(super) fn run(config: &Config) -> anyhow::Result<()> {
    #[cfg(feature = "failpoints")]
    colloquy_core::failpoint::arm_from_env()?;
    let settings = &config.telemetry;
    let _exporting = telemetry::start_telemetry(&settings.log, settings.format, settings.trace_export().as_ref())?;
    descriptors::raise_limit(config);
    block_on(async {
        let application = Application::build(config).await?;
        banner::print_banner(config, &application);
        application.run_until_stopped().await
    })
}
