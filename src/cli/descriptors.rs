//! The limit on open descriptors: each socket needs two, and the usual soft limit is 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A connection's own descriptor, and the duplicate by which a jammed one is cut.
const PER_SOCKET: u64 = 2;

/// Raises the soft limit to the hard one, and warns if `sockets` cannot all be open even so.
pub(super) fn raise(sockets: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let soft = if current == maximum {
        current
    } else {
        let wanted = Rlimit {
            current: maximum,
            maximum,
        };
        match setrlimit(Resource::Nofile, wanted) {
            Ok(()) => maximum,
            Err(error) => {
                tracing::warn!(%error, "the limit on open descriptors cannot be raised");
                current
            }
        }
    };
    if let Some(limit) = soft.filter(|limit| !enough(*limit, sockets)) {
        tracing::warn!(
            limit,
            max_open = sockets,
            "fewer descriptors than socket.max_open needs (two each): raise the hard limit (ulimit -Hn) or lower the setting"
        );
    }
}

fn enough(limit: u64, sockets: usize) -> bool {
    u64::try_from(sockets).is_ok_and(|sockets| sockets.saturating_mul(PER_SOCKET) <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_needs_two() {
        assert!(enough(1_024, 512));
        assert!(!enough(1_024, 513));
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise(1);
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
