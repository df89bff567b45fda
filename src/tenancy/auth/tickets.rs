//! Single-use tickets for clients that cannot set headers on a socket (browsers, WebGL).

use std::time::Duration;

use chrono::{DateTime, Utc};

use colloquy_core::scope::Principal;

/// Open tickets of this node, bounded in number and time.
pub struct Tickets {
    open: moka::sync::Cache<String, (Principal, DateTime<Utc>)>,
    ttl: Duration,
}

impl Tickets {
    /// Creates a store for at most `max` tickets, each valid for `ttl`.
    #[must_use]
    pub fn new(max: u64, ttl: Duration) -> Self {
        Self {
            open: moka::sync::Cache::builder().max_capacity(max).time_to_live(ttl).build(),
            ttl,
        }
    }
    /// The life of a ticket.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }
    /// Issues a new ticket: 256 random bits.
    pub fn issue_ticket(&self, principal: Principal, expires: DateTime<Utc>) -> String {
        debug_assert!(expires <= principal.expires_at, "a ticket does not outlive its token");
        let ticket = format!("tkt_{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
        self.open.insert(ticket.clone(), (principal, expires));
        ticket
    }
    /// Redeems a ticket. Of two concurrent attempts, only the first succeeds.
    pub fn redeem_ticket(&self, ticket: &str, now: DateTime<Utc>) -> Option<Principal> {
        let (principal, expires) = self.open.remove(ticket)?;
        (now < expires).then_some(principal)
    }
}
