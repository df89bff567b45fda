//! Settings of the HTTP surface. Defaults are in `config/default.toml`, section `[http]`.

use ipnet::IpNet;
use serde::Deserialize;

/// Events that the client of a stream may lag behind before the stream is cut: four times the events that a dialogue
/// retains.
pub const STREAM_QUEUE: usize = 1_024;

/// Limits of requests, lists and sockets.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    /// Connections open at once on this node, sockets included. 0: twice `socket.max_open`, limited by the file
    /// descriptors.
    pub max_connections: usize,
    /// Time limit for a request's body, in ms; default 10,000.
    pub body_timeout_ms: u64,
    /// Addresses and networks of the trusted proxies in front, whose `X-Forwarded-For` counts; default none.
    pub trusted_proxies: Vec<IpNet>,
    /// Largest request body, in bytes; default 262,144.
    pub max_body_bytes: usize,
    /// Largest file of an import, in bytes; default 8,388,608.
    pub max_import_bytes: usize,
    /// Serve `/docs`, `/openapi.json` and `/asyncapi.json`; default true.
    pub docs: bool,
    /// Sessions that one socket may have open at once; default 64.
    pub max_sessions_per_socket: usize,
}
