//! Settings of `/mcp`. Defaults are in `config/default.toml`, section `[mcp]`.

use serde::Deserialize;

/// Who may reach the endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpSettings {
    /// Serve `/mcp`; default true. Otherwise the path answers 404.
    pub enabled: bool,
    /// Names in the header `Host` that are accepted, with or without a port: protection against DNS rebinding. Default:
    /// the names of the machine itself. Empty: every name.
    pub allowed_hosts: Vec<String>,
    /// Values of the header `Origin` that are accepted, such as `https://studio.example:443`; `:*` stands for every
    /// port. A request without the header comes from no page of a browser, and is accepted. Default: pages of the
    /// machine itself. Empty: no page.
    pub allowed_origins: Vec<String>,
}
