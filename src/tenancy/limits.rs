//! Rate limits per tenant, player and socket.
//!
//! Each limit is a `governor` bucket. The keyed maps are bounded: if a map outgrows `MAX_KEYS`, keys with full buckets
//! are dropped.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
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

use colloquy_core::{
    ids::{PlayerId, TenantId},
    shares::{NoCapacity, ShareGuard, Shares},
};

/// Limits; 0 switches a limit off. Defaults are in `config/default.toml`, section `[limits]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// REST requests and socket messages of one tenant, per second; default 1,000.
    pub tenant_requests_per_s: u32,
    /// REST requests and socket messages of one player, per second; default 50. Counted before the tenant's limit: one
    /// player's token cannot use up the share of all players.
    pub player_requests_per_s: u32,
    /// Sockets that one player may have open at once; default 8.
    pub player_sockets: usize,
    /// Lines of one player, per minute; default 20.
    pub player_turns_per_min: u32,
    /// Resumed replies of one player, and interrupts that name a turn or have a key, per minute; default 40.
    pub player_cuts_per_min: u32,
    /// Sessions that one player's token may open, by a join too, per minute; default 10.
    pub player_sessions_per_min: u32,
    /// Messages on one socket, per second; default 32.
    pub socket_messages_per_s: u32,
    /// Refused messages in a row after which a socket is closed with 4429; default 64.
    pub socket_strikes: u32,
    /// Concurrent requests of one player; default 32.
    pub player_in_flight: usize,
    /// Concurrent requests of all players of one address; default 1,024. For IPv6, the address is the /64 network.
    pub address_in_flight: usize,
    /// Imports that are read and written at once, of all tenants; default 3. A tenant has one at a time.
    pub imports: usize,
}

/// The error of a reached rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests for this {resource}")]
pub struct RateLimited {
    /// `tenant`, `player` or `socket`.
    pub resource: &'static str,
    /// When the next request would be accepted.
    pub retry_after: Duration,
}

/// The error of a reached concurrency limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{owner} may have {max} {resource} at once")]
pub struct TooManyAtOnce {
    pub owner: &'static str,
    pub resource: &'static str,
    pub max: usize,
}

pub type PlayerKey = (TenantId, PlayerId);

/// The limiters of this node.
pub struct RateLimits {
    tenants: Option<KeyedLimiter<TenantId>>,
    requests: Option<KeyedLimiter<PlayerKey>>,
    lines: Option<KeyedLimiter<PlayerKey>>,
    cuts: Option<KeyedLimiter<PlayerKey>>,
    new_sessions: Option<KeyedLimiter<PlayerKey>>,
    /// Open sockets of each player.
    sockets: Arc<ConcurrencyLimit<PlayerKey>>,
    /// Concurrent requests.
    of_player: Arc<ConcurrencyLimit<PlayerKey>>,
    of_address: Arc<ConcurrencyLimit<IpAddr>>,
    of_tenant: Arc<Shares<TenantId>>,
    /// Running imports of each tenant.
    tenant_imports: Arc<ConcurrencyLimit<TenantId>>,
    /// Running imports of all tenants.
    all_imports: Arc<ConcurrencyLimit<()>>,
    settings: LimitSettings,
}

/// A running request. Ends on drop.
pub struct RequestInFlight {
    _tenant: ShareGuard<TenantId>,
    _player: Option<ConcurrencySlot<PlayerKey>>,
    _address: Option<ConcurrencySlot<IpAddr>>,
}

/// A running import. Ends on drop.
pub struct ImportInFlight {
    _tenant: ConcurrencySlot<TenantId>,
    _node: ConcurrencySlot<()>,
}

/// Why a request is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitExceeded {
    #[error(transparent)]
    TooMany(#[from] TooManyAtOnce),
    #[error(transparent)]
    NoPlace(#[from] NoCapacity),
}

impl RateLimits {
    /// Creates the limiters for a node that accepts `requests` concurrent requests.
    #[must_use]
    pub fn new(settings: LimitSettings, requests: usize) -> Arc<Self> {
        Arc::new(Self {
            tenants: NonZeroU32::new(settings.tenant_requests_per_s)
                .map(|n| KeyedLimiter::new("tenant", Quota::per_second(n))),
            requests: NonZeroU32::new(settings.player_requests_per_s)
                .map(|n| KeyedLimiter::new("player", Quota::per_second(n))),
            lines: NonZeroU32::new(settings.player_turns_per_min)
                .map(|n| KeyedLimiter::new("player", Quota::per_minute(n))),
            cuts: NonZeroU32::new(settings.player_cuts_per_min)
                .map(|n| KeyedLimiter::new("player", Quota::per_minute(n))),
            new_sessions: NonZeroU32::new(settings.player_sessions_per_min)
                .map(|n| KeyedLimiter::new("player", Quota::per_minute(n))),
            sockets: ConcurrencyLimit::new("a player", "sockets open", settings.player_sockets),
            of_player: ConcurrencyLimit::new("a player", "requests under way", settings.player_in_flight),
            of_address: ConcurrencyLimit::new(
                "an address",
                "requests of players under way",
                settings.address_in_flight,
            ),
            of_tenant: Shares::new("requests", requests),
            tenant_imports: ConcurrencyLimit::new("a tenant", "import under way", 1),
            all_imports: ConcurrencyLimit::new("the server", "imports under way", settings.imports),
            settings,
        })
    }
    /// Counts a request or message of a caller. `player` is the player of a player's token. Other roles have no player
    /// and count for their tenant only.
    ///
    /// # Errors
    /// [`RateLimited`] if the player or the tenant is over its limit. Requests over a player's own limit do not count
    /// for the tenant.
    pub fn check_request(&self, tenant: &TenantId, player: Option<&PlayerId>) -> Result<(), RateLimited> {
        self.check_forwarded_request(tenant, player)?;
        self.tenants.as_ref().map_or(Ok(()), |keyed| keyed.check_key(tenant))
    }
    /// As [`Self::check_request`], for a request that another node has counted for the tenant. The player's own limit
    /// applies here as well.
    ///
    /// # Errors
    /// [`RateLimited`] if the player is over its limit.
    pub fn check_forwarded_request(&self, tenant: &TenantId, player: Option<&PlayerId>) -> Result<(), RateLimited> {
        player.map_or(Ok(()), |player| check_player(self.requests.as_ref(), tenant, player))
    }
    /// Takes a socket seat of a player, until the seat is dropped.
    ///
    /// # Errors
    /// [`TooManyAtOnce`] if all the player's seats are taken.
    pub fn acquire_socket_seat(&self, tenant: &TenantId, player: &PlayerId) -> Result<SocketSeat, TooManyAtOnce> {
        self.sockets.acquire_slot((tenant.clone(), player.clone()))
    }
    /// Starts a request of a caller, until the value is dropped. `address` is the client address of a player.
    ///
    /// # Errors
    /// [`LimitExceeded`] if the player, its address or its tenant has reached its limit.
    pub fn begin_request(
        &self,
        tenant: &TenantId,
        player: Option<&PlayerId>,
        address: Option<IpAddr>,
    ) -> Result<RequestInFlight, LimitExceeded> {
        let of_player = player.map(|player| self.of_player.acquire_slot((tenant.clone(), player.clone())));
        let of_address = player.and(address).map(|address| self.of_address.acquire_slot(address));
        Ok(RequestInFlight {
            _player: of_player.transpose()?,
            _address: of_address.transpose()?,
            _tenant: self.of_tenant.acquire_share(tenant)?,
        })
    }
    /// Starts an import, until the value is dropped. An import takes much more memory than other requests.
    ///
    /// # Errors
    /// [`TooManyAtOnce`] if the tenant has an import under way, or the node has as many as it may.
    pub fn begin_import(&self, tenant: &TenantId) -> Result<ImportInFlight, TooManyAtOnce> {
        Ok(ImportInFlight {
            _tenant: self.tenant_imports.acquire_slot(tenant.clone())?,
            _node: self.all_imports.acquire_slot(())?,
        })
    }
    /// Number of requests refused because their tenant had reached its share.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.of_tenant.refused_count()
    }
    /// Counts a line of a player.
    ///
    /// # Errors
    /// [`RateLimited`] if the player is over its limit.
    pub fn check_player_turn(&self, tenant: &TenantId, player: &PlayerId) -> Result<(), RateLimited> {
        check_player(self.lines.as_ref(), tenant, player)
    }
    /// Counts a resume of a player, or an interrupt that may take an earlier turn back.
    ///
    /// # Errors
    /// [`RateLimited`] if the player is over its limit.
    pub fn check_player_cut(&self, tenant: &TenantId, player: &PlayerId) -> Result<(), RateLimited> {
        check_player(self.cuts.as_ref(), tenant, player)
    }
    /// Counts a session that a player's token opens. `player` is the player of a player's token, as in
    /// [`Self::check_request`]: other roles may open any number.
    ///
    /// # Errors
    /// [`RateLimited`] if the player is over its limit.
    pub fn check_new_session(&self, tenant: &TenantId, player: Option<&PlayerId>) -> Result<(), RateLimited> {
        player.map_or(Ok(()), |player| {
            check_player(self.new_sessions.as_ref(), tenant, player)
        })
    }
    /// Creates a limiter for a new socket.
    #[must_use]
    pub fn new_socket_limit(&self) -> SocketLimit {
        SocketLimit {
            limiter: NonZeroU32::new(self.settings.socket_messages_per_s)
                .map(|n| RateLimiter::direct(Quota::per_second(n))),
            strikes: 0,
            max_strikes: self.settings.socket_strikes,
        }
    }
}

/// Counts for a player under a limit; `None`: the limit is off.
fn check_player(
    limit: Option<&KeyedLimiter<PlayerKey>>,
    tenant: &TenantId,
    player: &PlayerId,
) -> Result<(), RateLimited> {
    limit.map_or(Ok(()), |keyed| keyed.check_key(&(tenant.clone(), player.clone())))
}

/// An open socket of a player; freed on drop.
pub type SocketSeat = ConcurrencySlot<PlayerKey>;

/// Counts the concurrent uses of each holder.
struct ConcurrencyLimit<K: Hash + Eq> {
    owner: &'static str,
    resource: &'static str,
    /// 0: no limit.
    max: usize,
    counts: Mutex<HashMap<K, usize>>,
}

/// One use; freed on drop.
pub struct ConcurrencySlot<K: Hash + Eq> {
    limit: Arc<ConcurrencyLimit<K>>,
    holder: K,
}

impl<K: Hash + Eq + Clone> ConcurrencyLimit<K> {
    fn new(owner: &'static str, resource: &'static str, max: usize) -> Arc<Self> {
        Arc::new(Self {
            owner,
            resource,
            max,
            counts: Mutex::default(),
        })
    }
    fn acquire_slot(self: &Arc<Self>, holder: K) -> Result<ConcurrencySlot<K>, TooManyAtOnce> {
        let mut counts = self.counts.lock();
        let Self {
            owner, resource, max, ..
        } = **self;
        let count = counts.get(&holder).copied().unwrap_or_default();
        if max > 0 && count >= max {
            return Err(TooManyAtOnce { owner, resource, max });
        }
        counts.insert(holder.clone(), count + 1);
        drop(counts);
        Ok(ConcurrencySlot {
            limit: Arc::clone(self),
            holder,
        })
    }
}

impl<K: Hash + Eq> Drop for ConcurrencySlot<K> {
    fn drop(&mut self) {
        let mut counts = self.limit.counts.lock();
        debug_assert!(counts.contains_key(&self.holder), "a use that ends was counted");
        if let Some(count) = counts.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.holder);
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
    /// The client gets an error; the socket stays open.
    Slow(RateLimited),
    /// The client kept sending: close the socket with 4429.
    Abuse,
}

impl SocketLimit {
    /// Counts a message.
    ///
    /// # Errors
    /// [`SocketRefusal`] if the socket is over its limit.
    pub fn check_message(&mut self) -> Result<(), SocketRefusal> {
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
                    resource: "socket",
                    retry_after: not_until.wait_time_from(DefaultClock::default().now()),
                }))
            }
        }
    }
}

/// Keys that a limiter may remember before idle keys are dropped: five times the 20,000 sockets that a node has by
/// default.
const MAX_KEYS: usize = 100_000;
/// Number of checks between two size checks of a map.
const SWEEP_EVERY: usize = 1_024;

/// A limiter per key, with bounded memory.
struct KeyedLimiter<K: Hash + Eq + Clone> {
    resource: &'static str,
    limiter: DefaultKeyedRateLimiter<K>,
    checks: AtomicUsize,
}

impl<K: Hash + Eq + Clone> KeyedLimiter<K> {
    fn new(resource: &'static str, quota: Quota) -> Self {
        Self {
            resource,
            limiter: RateLimiter::keyed(quota),
            checks: AtomicUsize::new(0),
        }
    }
    fn check_key(&self, key: &K) -> Result<(), RateLimited> {
        let outcome = self.limiter.check_key(key).map_err(|not_until| RateLimited {
            resource: self.resource,
            retry_after: not_until.wait_time_from(DefaultClock::default().now()),
        });
        // A key with a full bucket behaves like an unknown key, so dropping the key changes no result. Counting the
        // keys locks every shard, so most checks skip the count.
        if self.checks.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 && self.limiter.len() > MAX_KEYS
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
            player_cuts_per_min: 4,
            player_sessions_per_min: 2,
            socket_messages_per_s: 3,
            socket_strikes: 2,
            player_in_flight: 2,
            address_in_flight: 3,
            imports: 2,
        }
    }

    #[test]
    fn player_limits_are_independent() {
        let limits = RateLimits::new(settings(), 10);
        let tenant: TenantId = "t".parse().unwrap();
        let (a, b): (PlayerId, PlayerId) = ("a".parse().unwrap(), "b".parse().unwrap());
        assert!(limits.check_player_turn(&tenant, &a).is_ok());
        assert!(limits.check_player_turn(&tenant, &a).is_ok());
        let refused = limits.check_player_turn(&tenant, &a).unwrap_err();
        assert_eq!(refused.resource, "player");
        assert!(refused.retry_after > Duration::from_secs(20) && refused.retry_after <= Duration::from_secs(30));
        assert!(limits.check_player_turn(&tenant, &b).is_ok());
        assert!(limits.check_player_turn(&"u".parse().unwrap(), &a).is_ok());
    }

    #[test]
    fn cuts_of_a_player_have_a_limit_beside_its_lines() {
        let limits = RateLimits::new(settings(), 10);
        let tenant: TenantId = "t".parse().unwrap();
        let (a, b): (PlayerId, PlayerId) = ("a".parse().unwrap(), "b".parse().unwrap());
        for _ in 0..4 {
            limits.check_player_cut(&tenant, &a).unwrap();
        }
        let refused = limits.check_player_cut(&tenant, &a).unwrap_err();
        assert!(refused.retry_after > Duration::from_secs(10) && refused.retry_after <= Duration::from_secs(15));
        limits.check_player_cut(&tenant, &b).unwrap();
        limits.check_player_turn(&tenant, &a).unwrap();
    }

    #[test]
    fn player_cannot_use_up_its_tenant_limit() {
        let limits = RateLimits::new(settings(), 10);
        let tenant: TenantId = "t".parse().unwrap();
        let (a, b): (PlayerId, PlayerId) = ("a".parse().unwrap(), "b".parse().unwrap());
        for _ in 0..3 {
            limits.check_request(&tenant, Some(&a)).unwrap();
        }
        for _ in 0..100 {
            assert_eq!(limits.check_request(&tenant, Some(&a)).unwrap_err().resource, "player");
        }
        // Two of the tenant's five requests are left for other callers.
        limits.check_request(&tenant, Some(&b)).unwrap();
        limits.check_request(&tenant, None).unwrap();
        assert_eq!(limits.check_request(&tenant, None).unwrap_err().resource, "tenant");
    }

    #[test]
    fn player_sockets_are_counted_until_they_close() {
        let limits = RateLimits::new(settings(), 10);
        let tenant: TenantId = "t".parse().unwrap();
        let (a, b): (PlayerId, PlayerId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let first = limits.acquire_socket_seat(&tenant, &a).unwrap();
        let second = limits.acquire_socket_seat(&tenant, &a).unwrap();
        let refused = limits.acquire_socket_seat(&tenant, &a).err().unwrap();
        assert_eq!(refused.to_string(), "a player may have 2 sockets open at once");
        assert!(limits.acquire_socket_seat(&tenant, &b).is_ok());
        drop(first);
        let third = limits.acquire_socket_seat(&tenant, &a).unwrap();
        assert!(limits.acquire_socket_seat(&tenant, &a).is_err());
        drop((second, third));
        assert!(limits.sockets.counts.lock().is_empty());
    }

    #[test]
    fn requests_in_flight_are_counted_by_player_address_and_tenant() {
        let limits = RateLimits::new(settings(), 10);
        let tenant: TenantId = "t".parse().unwrap();
        let players: [PlayerId; 3] = ["a", "b", "c"].map(|name| name.parse().unwrap());
        let here = Some(IpAddr::from([192, 0, 2, 1]));
        let mut held = vec![
            limits.begin_request(&tenant, Some(&players[0]), here).unwrap(),
            limits.begin_request(&tenant, Some(&players[0]), here).unwrap(),
        ];
        let refused = |player, address| {
            limits
                .begin_request(&tenant, player, address)
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(
            refused(Some(&players[0]), None).unwrap(),
            "a player may have 2 requests under way at once"
        );
        held.push(limits.begin_request(&tenant, Some(&players[1]), here).unwrap());
        assert_eq!(
            refused(Some(&players[2]), here).unwrap(),
            "an address may have 3 requests of players under way at once"
        );
        // A backend counts only for its tenant, whose limit leaves room for others.
        while let Ok(more) = limits.begin_request(&tenant, None, here) {
            held.push(more);
        }
        assert_eq!(held.len(), 8);
        assert_eq!(
            refused(None, None).unwrap(),
            "this tenant uses its share of the server's requests"
        );
        let other: TenantId = "u".parse().unwrap();
        let theirs = limits.begin_request(&other, Some(&players[0]), here).map(drop);
        assert!(theirs.is_err(), "the address is full");
        limits.begin_request(&other, Some(&players[0]), None).unwrap();
        held.clear();
        assert_eq!(limits.of_tenant.in_use(), 0);
        assert!(limits.of_player.counts.lock().is_empty() && limits.of_address.counts.lock().is_empty());
    }

    #[test]
    fn tenant_has_one_import_and_a_node_a_few() {
        let limits = RateLimits::new(settings(), 10);
        let [a, b, c]: [TenantId; 3] = ["a", "b", "c"].map(|id| id.parse().unwrap());
        let first = limits.begin_import(&a).unwrap();
        assert_eq!(limits.begin_import(&a).err().unwrap().owner, "a tenant");
        let second = limits.begin_import(&b).unwrap();
        assert_eq!(limits.begin_import(&c).err().unwrap().owner, "the server");
        drop(first);
        // A refused import holds nothing.
        drop(limits.begin_import(&c).unwrap());
        drop(limits.begin_import(&a).unwrap());
        drop(second);
        assert!(limits.tenant_imports.counts.lock().is_empty() && limits.all_imports.counts.lock().is_empty());
    }

    #[test]
    fn new_sessions_are_limited_for_tokens_of_players_only() {
        let limits = RateLimits::new(settings(), 10);
        let tenant: TenantId = "t".parse().unwrap();
        let (a, b): (PlayerId, PlayerId) = ("a".parse().unwrap(), "b".parse().unwrap());
        for _ in 0..2 {
            limits.check_new_session(&tenant, Some(&a)).unwrap();
        }
        let refused = limits.check_new_session(&tenant, Some(&a)).unwrap_err();
        assert!(refused.retry_after > Duration::from_secs(20), "{refused:?}");
        limits.check_new_session(&tenant, Some(&b)).unwrap();
        for _ in 0..10 {
            limits.check_new_session(&tenant, None).unwrap();
        }
    }

    #[test]
    fn zero_disables_a_limit() {
        let limits = RateLimits::new(
            LimitSettings {
                tenant_requests_per_s: 0,
                player_requests_per_s: 0,
                player_sockets: 0,
                player_turns_per_min: 0,
                player_sessions_per_min: 0,
                socket_messages_per_s: 0,
                player_in_flight: 0,
                address_in_flight: 0,
                imports: 0,
                ..settings()
            },
            100_000,
        );
        let tenant: TenantId = "t".parse().unwrap();
        let mut socket = limits.new_socket_limit();
        let mut seats = Vec::new();
        for _ in 0..1_000 {
            let player = "p".parse().unwrap();
            assert!(limits.check_request(&tenant, Some(&player)).is_ok());
            assert!(limits.check_player_turn(&tenant, &player).is_ok());
            assert!(limits.check_new_session(&tenant, Some(&player)).is_ok());
            seats.push(limits.acquire_socket_seat(&tenant, &player).unwrap());
            assert!(socket.check_message().is_ok());
        }
    }

    #[test]
    fn socket_that_keeps_exceeding_its_limit_is_closed() {
        let mut socket = RateLimits::new(settings(), 10).new_socket_limit();
        for _ in 0..3 {
            assert!(socket.check_message().is_ok());
        }
        assert!(matches!(socket.check_message(), Err(SocketRefusal::Slow(_))));
        assert!(matches!(socket.check_message(), Err(SocketRefusal::Slow(_))));
        assert_eq!(socket.check_message(), Err(SocketRefusal::Abuse));
    }

    #[test]
    fn idle_keys_are_forgotten() {
        let keyed = KeyedLimiter::new("player", Quota::with_period(Duration::from_nanos(1)).unwrap());
        // The first multiple of SWEEP_EVERY above MAX_KEYS.
        for n in 0..100_352u32 {
            keyed.check_key(&n).unwrap();
        }
        assert!(keyed.limiter.len() <= 10, "{} keys are kept", keyed.limiter.len());
    }
}
