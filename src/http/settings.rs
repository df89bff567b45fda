//! Settings of the HTTP surface. Defaults are in `config/default.toml`, section `[http]`.

use serde::Deserialize;

/// Limits of requests, lists and sockets.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    /// Largest request body, in bytes; 262,144.
    pub max_body_bytes: usize,
    /// Items of a list whose caller names no `limit`; 50. At most 200.
    pub default_page: u32,
    /// Serve `/docs`, `/openapi.json` and `/asyncapi.json`; true.
    pub docs: bool,
    /// Sessions one socket may have open at once; 64.
    pub max_sessions_per_socket: usize,
    /// Events an SSE client may lag behind before it is cut off; 1,024.
    pub sse_queue: usize,
}
