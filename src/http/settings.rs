//! Settings of the HTTP surface. Defaults are in `config/default.toml`, section `[http]`.

use ipnet::IpNet;
use serde::Deserialize;

/// Limits of requests, lists and sockets.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    /// Connections open at once on this node, sockets included; 0: twice `socket.max_open`, as far as there are descriptors.
    pub max_connections: usize,
    /// How long a request's head may take from its first byte, and a new connection without one, in ms; 5,000.
    pub head_timeout_ms: u64,
    /// How long a request's body may take, in ms; 10,000.
    pub body_timeout_ms: u64,
    /// How long a client may take none of an answer, in ms; 30,000.
    pub write_timeout_ms: u64,
    /// Addresses and networks of the proxies in front, whose `X-Forwarded-For` is believed; none.
    pub trusted_proxies: Vec<IpNet>,
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
