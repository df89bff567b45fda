//! The limit on open descriptors, and the number of connections within this limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;
use colloquy_transport::ConnectionLimits;

/// Descriptors for listeners, files, timers, the log and libraries: a few dozen, plus a reserve.
const OTHER_DESCRIPTORS: u64 = 128;
/// The maximum number of connections under any limit.
const MAX_CONNECTIONS: u64 = 1_000_000;
/// Connections reserved for probes and operators when all others are in use.
const RESERVED_CONNECTIONS: usize = 16;

/// Raises the soft limit to the hard limit. Warns if the hard limit is too low for all connections and sockets.
pub fn raise_limit(config: &Config) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised_limit = Rlimit {
            current: maximum,
            maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised_limit) {
            tracing::warn!(%error, "the limit on open descriptors cannot be raised");
        }
    }
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return;
    };
    let needed_connections = config.http.max_connections.max(config.socket.max_open);
    if room_for_connections(limit, reserved_descriptors(config)) < needed_connections as u64 {
        tracing::warn!(
            limit,
            max_open = config.socket.max_open,
            max_connections = config.http.max_connections,
            "fewer descriptors than these settings need, beside those of stores and models: raise the hard limit \
             (ulimit -Hn), or lower them"
        );
    }
}

/// The descriptors that a server may open, and the connections that its settings allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorRoom {
    /// The hard limit of the process, to which a server raises its limit.
    pub limit: u64,
    /// The connections for which the limit leaves room beside stores and models.
    pub room: u64,
    /// The connections that the settings allow.
    pub allowed_connections: u64,
}

/// Returns the room for connections; `None` without a limit.
#[must_use]
pub fn descriptor_room(config: &Config) -> Option<DescriptorRoom> {
    let limit = getrlimit(Resource::Nofile).maximum?;
    Some(DescriptorRoom {
        limit,
        room: room_for_connections(limit, reserved_descriptors(config)),
        allowed_connections: config.http.max_connections.max(config.socket.max_open) as u64,
    })
}

/// Returns the maximum number of connections and their time limits.
#[must_use]
pub fn connection_limits(config: &Config) -> ConnectionLimits {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MAX_CONNECTIONS);
    let room = usize::try_from(room_for_connections(limit, reserved_descriptors(config))).unwrap_or(usize::MAX);
    ConnectionLimits {
        max_open: match config.http.max_connections {
            // The other half is for requests. With a high limit on descriptors, memory is the real limit.
            0 => room.min(config.socket.max_open.saturating_mul(2)),
            most => most.min(room),
        },
        reserve: RESERVED_CONNECTIONS,
        ..ConnectionLimits::default()
    }
}

/// Descriptors that stores, models and other nodes may need.
fn reserved_descriptors(config: &Config) -> u64 {
    let endpoints = config.llm.endpoints.values().map(|endpoint| endpoint.concurrency);
    let models: usize = config.llm.concurrency + endpoints.sum::<usize>();
    let stores = u64::from(config.ledger.connections.max(config.ledger.readers * 3));
    // A call of a model may need a connection, and a call of the embedder may need another.
    stores + 2 * models as u64 + RESERVED_CONNECTIONS as u64 + OTHER_DESCRIPTORS
}

/// Returns the descriptors left for connections: at least half of the limit. A sixteenth is subtracted because
/// connections that were just cut are still open while new connections arrive.
fn room_for_connections(limit: u64, kept_back: u64) -> u64 {
    let room = limit.saturating_sub(kept_back).max(limit / 2).min(MAX_CONNECTIONS);
    room - room / 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigSources;

    #[test]
    fn descriptor_reserve_leaves_at_least_half_to_connections() {
        assert_eq!(room_for_connections(1_024, 400), 585);
        assert_eq!(room_for_connections(256, 800), 120);
        assert_eq!(room_for_connections(u64::MAX, 800), 937_500);
    }

    #[test]
    fn descriptor_soft_limit_is_raised_to_the_hard_limit() {
        raise_limit(&Config::load(&ConfigSources::default()).expect("the defaults are valid"));
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
