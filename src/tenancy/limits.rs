//! Rate limits per tenant, player and socket.
//!
//! Each is a `governor` bucket. The keyed maps are bounded: keys that are full again are dropped
//! whenever a map outgrows `max_keys`.

use std::{
    collections::HashMap,
    hash::Hash,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use governor::{
    DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::ids::{PlayerId, TenantId};

/// Limits; 0 switches one off. Defaults are in `config/default.toml`, section `[limits]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// REST requests and socket messages of one tenant, per second; 1,000.
    pub tenant_requests_per_s: u32,
    /// REST requests and socket messages of one player, per second; 50. Counted before the
    /// tenant's, so that one player's token cannot use up what all players share.
    pub player_requests_per_s: u32,
    /// Sockets one player may have open at once; 8.
    pub player_sockets: usize,
    /// Lines of one player, per minute; 20.
    pub player_turns_per_min: u32,
    /// Messages on one socket, per second; 32.
    pub socket_messages_per_s: u32,
    /// Refused messages in a row after which a socket is closed with 4429; 64.
    pub socket_strikes: u32,
    /// Keys a limiter may remember before it drops those that are idle; 100,000.
    pub max_keys: usize,
}

/// A limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests for this {what}")]
pub struct RateLimited {
    /// `tenant`, `player` or `socket`.
    pub what: &'static str,
    /// When the next one would be let through.
    pub retry_after: Duration,
}

/// A player has as many sockets open as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a player may have {max} sockets open at once")]
pub struct TooManySockets {
    pub max: usize,
}

type Player = (TenantId, PlayerId);

/// The limiters of this node.
pub struct Limits {
    tenants: Option<Keyed<TenantId>>,
    requests: Option<Keyed<Player>>,
    lines: Option<Keyed<Player>>,
    /// Open sockets of each player that has any.
    sockets: Mutex<HashMap<Player, usize>>,
    settings: LimitSettings,
}

impl Limits {
    /// Limiters as configured.
    #[must_use]
    pub fn new(settings: LimitSettings) -> Arc<Self> {
        Arc::new(Self {
            tenants: NonZeroU32::new(settings.tenant_requests_per_s)
                .map(|n| Keyed::new("tenant", Quota::per_second(n), settings.max_keys)),
            requests: NonZeroU32::new(settings.player_requests_per_s)
                .map(|n| Keyed::new("player", Quota::per_second(n), settings.max_keys)),
            lines: NonZeroU32::new(settings.player_turns_per_min)
                .map(|n| Keyed::new("player", Quota::per_minute(n), settings.max_keys)),
            sockets: Mutex::default(),
            settings,
        })
    }
    /// Counts a request or message of a caller. `player` is whom a player's token is for; other
    /// roles have none and count for their tenant only.
    ///
    /// # Errors
    /// [`RateLimited`] when the player or the tenant is over its limit. What a player sends beyond
    /// its own limit does not count for the tenant.
    pub fn request(&self, tenant: &TenantId, player: Option<&PlayerId>) -> Result<(), RateLimited> {
        if let (Some(keyed), Some(player)) = (&self.requests, player) {
            keyed.check(&(tenant.clone(), player.clone()))?;
        }
        self.tenants.as_ref().map_or(Ok(()), |keyed| keyed.check(tenant))
    }
    /// Takes one of a player's sockets, until the seat is dropped.
    ///
    /// # Errors
    /// [`TooManySockets`] when all of them are open.
    pub fn open_socket(self: &Arc<Self>, tenant: &TenantId, player: &PlayerId) -> Result<SocketSeat, TooManySockets> {
        let max = self.settings.player_sockets;
        let player = (tenant.clone(), player.clone());
        let mut sockets = self.sockets.lock();
        let open = sockets.entry(player.clone()).or_default();
        if max > 0 && *open >= max {
            return Err(TooManySockets { max });
        }
        *open += 1;
        drop(sockets);
        Ok(SocketSeat {
            limits: Arc::clone(self),
            player,
        })
    }
    /// Counts a line of a player.
    ///
    /// # Errors
    /// [`RateLimited`] when the player is over its limit.
    pub fn player(&self, tenant: &TenantId, player: &PlayerId) -> Result<(), RateLimited> {
        self.lines
            .as_ref()
            .map_or(Ok(()), |keyed| keyed.check(&(tenant.clone(), player.clone())))
    }
    /// A limiter for one new socket.
    #[must_use]
    pub fn socket(&self) -> SocketLimit {
        SocketLimit {
            limiter: NonZeroU32::new(self.settings.socket_messages_per_s)
                .map(|n| RateLimiter::direct(Quota::per_second(n))),
            strikes: 0,
            max_strikes: self.settings.socket_strikes,
        }
    }
}

/// One of a player's open sockets; given back when dropped.
pub struct SocketSeat {
    limits: Arc<Limits>,
    player: Player,
}

impl Drop for SocketSeat {
    fn drop(&mut self) {
        let mut sockets = self.limits.sockets.lock();
        if let Some(open) = sockets.get_mut(&self.player) {
            *open -= 1;
            if *open == 0 {
                sockets.remove(&self.player);
            }
        }
    }
}

/// The limiter of one socket.
pub struct SocketLimit {
    limiter: Option<DefaultDirectRateLimiter>,
    strikes: u32,
    max_strikes: u32,
}

/// Why a socket's message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketRefusal {
    /// Told so; the socket stays open.
    Slow(RateLimited),
    /// It kept sending: close it with 4429.
    Abuse,
}

impl SocketLimit {
    /// Counts a message.
    ///
    /// # Errors
    /// [`SocketRefusal`] when it is over the limit.
    pub fn check(&mut self) -> Result<(), SocketRefusal> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        match limiter.check() {
            Ok(()) => {
                self.strikes = 0;
                Ok(())
            }
            Err(not_until) => {
                self.strikes += 1;
                if self.strikes > self.max_strikes {
                    return Err(SocketRefusal::Abuse);
                }
                Err(SocketRefusal::Slow(RateLimited {
                    what: "socket",
                    retry_after: not_until.wait_time_from(DefaultClock::default().now()),
                }))
            }
        }
    }
}

/// Checks between two looks at a map's size.
const SWEEP_EVERY: usize = 1_024;

/// A limiter per key whose memory is bounded.
struct Keyed<K: Hash + Eq + Clone> {
    what: &'static str,
    limiter: DefaultKeyedRateLimiter<K>,
    max_keys: usize,
    checks: AtomicUsize,
}

impl<K: Hash + Eq + Clone> Keyed<K> {
    fn new(what: &'static str, quota: Quota, max_keys: usize) -> Self {
        Self {
            what,
            limiter: RateLimiter::keyed(quota),
            max_keys,
            checks: AtomicUsize::new(0),
        }
    }
    fn check(&self, key: &K) -> Result<(), RateLimited> {
        let outcome = self.limiter.check_key(key).map_err(|not_until| RateLimited {
            what: self.what,
            retry_after: not_until.wait_time_from(DefaultClock::default().now()),
        });
        // A key whose bucket is full again behaves like an unknown one, so dropping it changes
        // nothing. Counting the keys locks every shard, so it is not done on each check.
        if self.checks.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1
            && self.limiter.len() > self.max_keys
        {
            self.limiter.retain_recent();
            self.limiter.shrink_to_fit();
        }
        outcome
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn settings() -> LimitSettings {
        LimitSettings {
            tenant_requests_per_s: 5,
            player_requests_per_s: 3,
            player_sockets: 2,
            player_turns_per_min: 2,
            socket_messages_per_s: 3,
            socket_strikes: 2,
            max_keys: 10,
        }
    }

    #[test]
    fn one_players_limit_is_not_anothers() {
        let limits = Limits::new(settings());
        let tenant: TenantId = "t".parse().unwrap();
        let (a, b): (PlayerId, PlayerId) = ("a".parse().unwrap(), "b".parse().unwrap());
        assert!(limits.player(&tenant, &a).is_ok());
        assert!(limits.player(&tenant, &a).is_ok());
        let refused = limits.player(&tenant, &a).unwrap_err();
        assert_eq!(refused.what, "player");
        assert!(refused.retry_after > Duration::from_secs(20) && refused.retry_after <= Duration::from_secs(30));
        assert!(limits.player(&tenant, &b).is_ok());
        assert!(limits.player(&"u".parse().unwrap(), &a).is_ok());
    }

    #[test]
    fn one_player_cannot_use_up_what_its_tenant_has() {
        let limits = Limits::new(settings());
        let tenant: TenantId = "t".parse().unwrap();
        let (a, b): (PlayerId, PlayerId) = ("a".parse().unwrap(), "b".parse().unwrap());
        for _ in 0..3 {
            limits.request(&tenant, Some(&a)).unwrap();
        }
        for _ in 0..100 {
            assert_eq!(limits.request(&tenant, Some(&a)).unwrap_err().what, "player");
        }
        // Two of the tenant's five are left for the others.
        limits.request(&tenant, Some(&b)).unwrap();
        limits.request(&tenant, None).unwrap();
        assert_eq!(limits.request(&tenant, None).unwrap_err().what, "tenant");
    }

    #[test]
    fn a_players_sockets_are_counted_until_they_close() {
        let limits = Limits::new(settings());
        let tenant: TenantId = "t".parse().unwrap();
        let (a, b): (PlayerId, PlayerId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let first = limits.open_socket(&tenant, &a).unwrap();
        let second = limits.open_socket(&tenant, &a).unwrap();
        assert_eq!(limits.open_socket(&tenant, &a).err(), Some(TooManySockets { max: 2 }));
        assert!(limits.open_socket(&tenant, &b).is_ok());
        drop(first);
        let third = limits.open_socket(&tenant, &a).unwrap();
        assert!(limits.open_socket(&tenant, &a).is_err());
        drop((second, third));
        assert!(limits.sockets.lock().is_empty());
    }

    #[test]
    fn zero_switches_a_limit_off() {
        let limits = Limits::new(LimitSettings {
            tenant_requests_per_s: 0,
            player_requests_per_s: 0,
            player_sockets: 0,
            player_turns_per_min: 0,
            socket_messages_per_s: 0,
            ..settings()
        });
        let tenant: TenantId = "t".parse().unwrap();
        let mut socket = limits.socket();
        let mut seats = Vec::new();
        for _ in 0..1_000 {
            let player = "p".parse().unwrap();
            assert!(limits.request(&tenant, Some(&player)).is_ok());
            assert!(limits.player(&tenant, &player).is_ok());
            seats.push(limits.open_socket(&tenant, &player).unwrap());
            assert!(socket.check().is_ok());
        }
    }

    #[test]
    fn a_socket_that_goes_on_is_closed() {
        let mut socket = Limits::new(settings()).socket();
        for _ in 0..3 {
            assert!(socket.check().is_ok());
        }
        assert!(matches!(socket.check(), Err(SocketRefusal::Slow(_))));
        assert!(matches!(socket.check(), Err(SocketRefusal::Slow(_))));
        assert_eq!(socket.check(), Err(SocketRefusal::Abuse));
    }

    #[test]
    fn idle_keys_are_forgotten() {
        let keyed = Keyed::new("player", Quota::with_period(Duration::from_nanos(1)).unwrap(), 10);
        for n in 0..10_240u32 {
            keyed.check(&n).unwrap();
        }
        assert!(keyed.limiter.len() <= 10, "{} keys are kept", keyed.limiter.len());
    }
}
