//! `colloquy health`: checks whether a server accepts new work, for containers without other tools.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use anyhow::{Context, bail};

use super::process::block_on;
use crate::config::{Config, ListenAddress};
use colloquy_models::openai::install_crypto;

#[derive(Debug, clap::Args)]
pub(super) struct HealthArgs {
    /// The server's URL. The default is the address in this configuration.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Only check that the process is alive, not that it accepts new work.
    #[arg(long)]
    live: bool,
    /// The time limit of the check, in seconds.
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
}

/// Succeeds if the server is healthy; otherwise fails with the server's answer.
pub(super) fn run(args: &HealthArgs, config: &Config) -> anyhow::Result<()> {
    let base = match &args.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => local_base_url(&config.server.listen)?,
    };
    let url = format!("{base}{}", if args.live { "/healthz" } else { "/readyz" });
    install_crypto();
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(args.timeout))
        .build()?;
    block_on(async {
        let answer = client
            .get(&url)
            .send()
            .await
            .with_context(|| format!("{url} does not answer"))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let body = answer.text().await.unwrap_or_default();
        bail!("{url} answers {status}: {}", body.chars().take(300).collect::<String>());
    })
}

/// Returns the server's URL as seen from this machine. A server that listens on all addresses is reachable on
/// loopback.
fn local_base_url(listen: &str) -> anyhow::Result<String> {
    let ListenAddress(mut address) = listen.parse().map_err(anyhow::Error::msg)?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Ok(format!("http://{address}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::local_base_url;

    #[test]
    fn server_on_all_interfaces_is_probed_on_loopback() {
        for (listen, url) in [
            ("0.0.0.0:8080", "http://127.0.0.1:8080"),
            ("[::]:8080", "http://[::1]:8080"),
            ("10.1.2.3:80", "http://10.1.2.3:80"),
            ("localhost:81", "http://127.0.0.1:81"),
        ] {
            assert_eq!(local_base_url(listen).unwrap(), url);
        }
        assert!(local_base_url("nowhere").is_err());
    }
}
