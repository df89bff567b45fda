//! `colloquy serve`.

use super::{banner, block_on, descriptors};
use crate::{app::Application, config::Config, telemetry};

pub(super) fn run(config: &Config) -> anyhow::Result<()> {
    #[cfg(feature = "failpoints")]
    crate::failpoint::arm()?;
    let settings = &config.telemetry;
    let _exporting = telemetry::start(&settings.log, settings.format, settings.traces().as_ref())?;
    descriptors::raise(config.socket.max_open);
    block_on(async {
        let application = Application::build(config).await?;
        banner::print(config, &application);
        application.run_until_stopped().await
    })
}
