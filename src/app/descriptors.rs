//! The limit on open descriptors, and how many connections it has room for.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{config::Config, transport::ConnectionLimits};

/// Listeners, files, timers, log and what a library may open: a few dozen, and some to spare.
const OTHERS: u64 = 128;
/// Connections are never given more than this, whatever the limit is.
const MOST: u64 = 1_000_000;
/// For probes and operators, where all others are taken.
const RESERVE: usize = 16;

/// Raises the soft limit to the hard one, and warns if not all connections and sockets can be open even so.
pub fn raise(config: &Config) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let wanted = Rlimit {
            current: maximum,
            maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, wanted) {
            tracing::warn!(%error, "the limit on open descriptors cannot be raised");
        }
    }
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return;
    };
    let wanted = config.http.max_connections.max(config.socket.max_open);
    if room(limit, kept_back(config)) < wanted as u64 {
        tracing::warn!(
            limit,
            max_open = config.socket.max_open,
            max_connections = config.http.max_connections,
            "fewer descriptors than these settings need, beside those of stores and models: raise the hard limit \
             (ulimit -Hn), or lower them"
        );
    }
}

/// How many connections there may be and how long they may take.
#[must_use]
pub fn connection_limits(config: &Config) -> ConnectionLimits {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MOST);
    let room = usize::try_from(room(limit, kept_back(config))).unwrap_or(usize::MAX);
    let ms = Duration::from_millis;
    ConnectionLimits {
        max_open: match config.http.max_connections {
            // As many again for requests. Where the limit on descriptors is high, memory is what ends first.
            0 => room.min(config.socket.max_open.saturating_mul(2)),
            most => most.min(room),
        },
        reserve: RESERVE,
        head: ms(config.http.head_timeout_ms),
        write: ms(config.http.write_timeout_ms),
    }
}

/// What stores, models and other nodes may need.
fn kept_back(config: &Config) -> u64 {
    let endpoints = config.llm.endpoints.values().map(|endpoint| endpoint.concurrency);
    let models: usize = config.llm.concurrency + endpoints.sum::<usize>();
    let stores = u64::from(config.ledger.connections.max(config.ledger.readers * 3));
    // A call of a model may be a connection, and so may one of the embedder.
    stores + 2 * models as u64 + RESERVE as u64 + OTHERS
}

/// What is left for connections: at least half of the limit. Some that were just cut are still open while others come.
fn room(limit: u64, kept_back: u64) -> u64 {
    let left = limit.saturating_sub(kept_back).max(limit / 2).min(MOST);
    left - left / 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    #[test]
    fn stores_and_models_keep_theirs_and_connections_have_half_at_least() {
        assert_eq!(room(1_024, 400), 585);
        assert_eq!(room(256, 800), 120);
        assert_eq!(room(u64::MAX, 800), 937_500);
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise(&Config::load(&Sources::default()).expect("the defaults are valid"));
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
