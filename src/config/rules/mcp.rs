//! Rules of `[mcp]`.

use super::values::is_http;
use crate::config::sections::Config;

/// Checks that each allowed origin is one: an origin without a scheme would never match.
pub(super) fn check_mcp(config: &Config, fault: &mut impl FnMut(&str, String)) {
    for origin in &config.mcp.allowed_origins {
        // `:*` stands for every port.
        let site = origin.strip_suffix(":*").unwrap_or(origin);
        if origin != "null" && !is_http(site) {
            let demand = format!("`{origin}` must be an origin such as https://studio.example.com:443, or null");
            fault("mcp.allowed_origins", demand);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_of_pages_have_a_scheme() {
        let mut config = Config::embedded_defaults();
        let mut named = Vec::new();
        check_mcp(&config, &mut |key, what| named.push(format!("{key}: {what}")));
        assert!(named.is_empty(), "{named:?}");
        config.mcp.allowed_origins = vec!["null".into(), "studio.example.com".into()];
        check_mcp(&config, &mut |key, what| named.push(format!("{key}: {what}")));
        assert!(
            named.len() == 1 && named[0].starts_with("mcp.allowed_origins: `studio"),
            "{named:?}"
        );
    }
}
