//! Single-use tickets for clients that cannot set headers on a socket (browsers, WebGL).

use std::time::Duration;

use chrono::{DateTime, Utc};

use colloquy_core::scope::Principal;

/// The life of a ticket. A client opens its socket at once, so that half a minute is enough for a slow network.
pub const TICKET_TTL: Duration = Duration::from_secs(30);
/// Tickets that may be open at once: five for each of the 20,000 sockets that a node has by default.
const MAX_TICKETS: u64 = 100_000;

/// Open tickets of this node, bounded in number and time.
pub struct Tickets {
    open: moka::sync::Cache<String, (Principal, DateTime<Utc>)>,
}

impl Default for Tickets {
    fn default() -> Self {
        let open = moka::sync::Cache::builder().max_capacity(MAX_TICKETS);
        Self {
            open: open.time_to_live(TICKET_TTL).build(),
        }
    }
}

impl Tickets {
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
