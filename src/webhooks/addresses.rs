//! The addresses that the server may connect to for a tenant. A tenant must not reach the server's own network through
//! the server: not by an address, not by a name that leads there, and not by a redirect.
//!
//! A URL is checked when a person writes it, and every connection is checked again: a name may lead elsewhere by then.

use std::{
    error::Error,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, LazyLock},
    time::Duration,
};

use ipnet::IpNet;
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use tokio::{net::lookup_host, time::timeout};

use super::settings::WebhookSettings;

/// The time for the look-up of a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest URL, in bytes.
pub const MAX_URL_BYTES: usize = 2_048;

/// Networks that are not part of the public internet, by the registries of special addresses of IANA.
const SPECIAL_NETWORKS: [&str; 31] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    // Carriers, and some metadata services.
    "100.64.0.0/10",
    "127.0.0.0/8",
    // Link-local, with the metadata service of most clouds.
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    // Multicast, reserved, broadcast.
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/96",
    "64:ff9b:1::/48",
    "100::/64",
    // Teredo, benchmarks, ORCHID.
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:db8::/32",
    "3fff::/20",
    "5f00::/16",
    // Unique local, with metadata services.
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    // IPv4 in IPv6, unless the IPv4 address is read.
    "::ffff:0:0:0/96",
    "2002::/16",
];

static SPECIAL: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    // A test compares the number with the list.
    SPECIAL_NETWORKS
        .iter()
        .filter_map(|network| network.parse().ok())
        .collect()
});

/// Why an address is refused. The text is for the tenant's administrator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedUrl {
    #[error("is longer than {MAX_URL_BYTES} bytes")]
    TooLong,
    #[error("is no URL such as https://game.example/webhooks")]
    NoUrl,
    #[error("must not have a user, a password or a fragment")]
    Decorated,
    #[error("must begin with https://")]
    NotEncrypted,
    #[error("names a host that is not found")]
    UnknownHost,
    #[error("leads to an address that is not public")]
    NotPublic,
}

/// The addresses that may be called.
#[derive(Debug, Clone, Default)]
pub struct AddressPolicy {
    hosts: Arc<[String]>,
    networks: Arc<[IpNet]>,
}

impl AddressPolicy {
    #[must_use]
    pub fn new(settings: &WebhookSettings) -> Self {
        Self {
            hosts: (settings.allowed_hosts.iter())
                .map(|host| host.trim_matches(['[', ']']).to_ascii_lowercase())
                .collect(),
            networks: settings.allowed_networks.iter().copied().collect(),
        }
    }

    /// Checks a URL that a person wrote, with the addresses of its host.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub async fn check_new_url(&self, text: &str) -> Result<(), RefusedUrl> {
        let url = self.check_url(text)?;
        let host = host_of(&url).ok_or(RefusedUrl::NoUrl)?;
        if self.is_allowed_host(&host) || host.parse::<IpAddr>().is_ok() {
            return Ok(());
        }
        let lookup = timeout(LOOKUP_TIMEOUT, lookup_host((host.as_str(), 443))).await;
        let Ok(Ok(resolved)) = lookup else {
            return Err(RefusedUrl::UnknownHost);
        };
        let addresses: Vec<SocketAddr> = resolved.collect();
        match addresses.iter().all(|address| self.is_allowed_address(address.ip())) {
            _ if addresses.is_empty() => Err(RefusedUrl::UnknownHost),
            true => Ok(()),
            false => Err(RefusedUrl::NotPublic),
        }
    }

    /// Checks a URL without a look-up of its host. The connection checks the addresses of a name.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn check_url(&self, text: &str) -> Result<Url, RefusedUrl> {
        if text.len() > MAX_URL_BYTES {
            return Err(RefusedUrl::TooLong);
        }
        let url = Url::parse(text).map_err(|_| RefusedUrl::NoUrl)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(RefusedUrl::NoUrl);
        }
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(RefusedUrl::Decorated);
        }
        let host = host_of(&url).ok_or(RefusedUrl::NoUrl)?;
        if self.is_allowed_host(&host) {
            return Ok(url);
        }
        let address = host.parse::<IpAddr>().ok();
        let is_in_network = address.is_some_and(|address| self.is_in_allowed_network(address));
        if url.scheme() != "https" && !is_in_network {
            return Err(RefusedUrl::NotEncrypted);
        }
        match address {
            Some(address) if !self.is_allowed_address(address) => Err(RefusedUrl::NotPublic),
            _ => Ok(url),
        }
    }

    fn is_allowed_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|allowed| allowed == host)
    }

    fn is_in_allowed_network(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    fn is_allowed_address(&self, address: IpAddr) -> bool {
        self.is_in_allowed_network(address) || is_public(address)
    }
}

/// The host of a URL in lower case, without the brackets of an IPv6 address and without a final dot.
fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?.trim_matches(['[', ']']).trim_end_matches('.');
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

/// True for an address of the public internet. If an IPv6 address carries an IPv4 address, the latter decides.
fn is_public(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_special = |address: IpAddr| SPECIAL.iter().any(|network| network.contains(&address));
    match address {
        IpAddr::V4(_) => !is_special(address),
        IpAddr::V6(v6) => match carried_v4(v6) {
            Some(v4) => !is_special(IpAddr::V4(v4)),
            None => !is_special(address),
        },
    }
}

/// The IPv4 address that a gateway of NAT64 or 6to4 would call.
fn carried_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match parts {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Resolves names to permitted addresses alone. Connections have no other source of addresses, so a name cannot lead
/// elsewhere between the check and the connection.
#[derive(Debug, Clone)]
pub(crate) struct PermittedResolver(pub(crate) AddressPolicy);

impl Resolve for PermittedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.0.clone();
        Box::pin(async move {
            let host = name.as_str().trim_end_matches('.').to_ascii_lowercase();
            let addresses = lookup_host((host.as_str(), 0)).await?;
            let allows_all = policy.is_allowed_host(&host);
            let permitted: Vec<SocketAddr> = addresses
                .filter(|address| allows_all || policy.is_allowed_address(address.ip()))
                .collect();
            if permitted.is_empty() {
                return Err(Box::new(RefusedUrl::NotPublic) as Box<dyn Error + Send + Sync>);
            }
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn policy(hosts: &[&str], networks: &[&str]) -> AddressPolicy {
        AddressPolicy::new(&WebhookSettings {
            allowed_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            allowed_networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
            ..WebhookSettings::for_tests()
        })
    }

    #[test]
    fn special_networks_are_all_read() {
        assert_eq!(SPECIAL.len(), SPECIAL_NETWORKS.len());
    }

    #[test]
    fn addresses_of_private_networks_are_refused() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "93.184.215.14",
            "2606:4700::1111",
            "64:ff9b::101:101",
            "2002:101:101::",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn urls_are_checked_before_any_look_up() {
        let policy = policy(&[], &[]);
        let refused = |url: &str| policy.check_url(url).unwrap_err();
        assert!(policy.check_url("https://game.example/webhooks?a=1").is_ok());
        assert!(policy.check_url("https://1.1.1.1:8443/").is_ok());
        assert_eq!(refused("http://game.example/"), RefusedUrl::NotEncrypted);
        assert_eq!(refused("ftp://game.example/"), RefusedUrl::NoUrl);
        assert_eq!(refused("game.example"), RefusedUrl::NoUrl);
        assert_eq!(refused("https://user@game.example/"), RefusedUrl::Decorated);
        assert_eq!(refused("https://game.example/#part"), RefusedUrl::Decorated);
        assert_eq!(
            refused(&format!("https://game.example/{}", "a".repeat(2_048))),
            RefusedUrl::TooLong
        );
        // Other spellings of addresses.
        for url in [
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f.0.0.1/",
            "https://0177.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://169.254.169.254/latest/meta-data",
        ] {
            assert_eq!(refused(url), RefusedUrl::NotPublic, "{url}");
        }
    }

    #[test]
    fn listed_hosts_and_networks_are_permitted() {
        let policy = policy(&["Hooks.internal", "[::1]"], &["10.1.0.0/16"]);
        for url in [
            "http://hooks.internal:9000/a",
            "http://HOOKS.internal./a",
            "http://[::1]:80/",
            "http://10.1.2.3/",
            "https://[::ffff:10.1.2.3]/",
        ] {
            assert!(policy.check_url(url).is_ok(), "{url}");
        }
        assert_eq!(policy.check_url("https://10.2.0.1/"), Err(RefusedUrl::NotPublic));
        assert_eq!(
            policy.check_url("http://other.internal/"),
            Err(RefusedUrl::NotEncrypted)
        );
    }

    #[tokio::test]
    async fn names_that_lead_to_this_machine_are_refused() {
        let refused = policy(&[], &[]).check_new_url("https://localhost/hook").await;
        assert_eq!(refused, Err(RefusedUrl::NotPublic));
        assert_eq!(
            policy(&["localhost"], &[]).check_new_url("http://localhost/hook").await,
            Ok(())
        );
        let resolver = PermittedResolver(policy(&[], &[]));
        assert!(resolver.resolve("localhost".parse().unwrap()).await.is_err());
        let resolver = PermittedResolver(policy(&[], &["127.0.0.0/8", "::1/128"]));
        let found = resolver.resolve("localhost".parse().unwrap()).await.unwrap();
        assert!(found.into_iter().all(|address| address.ip().is_loopback()));
    }
}
