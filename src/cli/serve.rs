//! `colloquy serve`.

use super::{banner, block_on};
use crate::{
    app::{Application, descriptors},
    config::Config,
    telemetry,
};

pub(super) fn run(config: &Config) -> anyhow::Result<()> {
    #[cfg(feature = "failpoints")]
    crate::failpoint::arm()?;
    let settings = &config.telemetry;
    let _exporting = telemetry::start(&settings.log, settings.format, settings.traces().as_ref())?;
    descriptors::raise(config);
    block_on(async {
        let application = Application::build(config).await?;
        banner::print(config, &application);
        application.run_until_stopped().await
    })
}
