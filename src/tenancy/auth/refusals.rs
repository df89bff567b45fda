//! Disabled tenants and revoked tokens, as this node knows them. Every request checks this state, so it is in memory.
//! The ledger is the truth; `http::refusals` keeps this state up to date.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
};

use chrono::{DateTime, Utc};
use parking_lot::RwLock;

use super::AuthError;
use colloquy_core::{
    ids::{PlayerId, TenantId},
    scope::{Principal, Role},
};
use colloquy_ports::{
    disabled_tenants::DisabledTenants,
    ledger::revocations::{Revocation, Revoked},
};

#[derive(Default)]
pub(super) struct Refusals {
    pub(super) disabled: DisabledTenants,
    revoked: RwLock<HashMap<TenantId, TenantRefusals>>,
}

/// The refusals of a tenant, each with the time after which it no longer matters.
#[derive(Default)]
struct TenantRefusals {
    tokens: HashMap<String, RevokedBefore>,
    subjects: HashMap<String, RevokedBefore>,
    players: HashMap<PlayerId, RevokedBefore>,
}

/// Refuses all tokens issued until a moment.
#[derive(Clone, Copy)]
struct RevokedBefore {
    issued_until: DateTime<Utc>,
    matters_until: DateTime<Utc>,
}

impl RevokedBefore {
    /// A token without an issue time counts as older than any moment.
    fn covers_token(&self, issued_at: Option<DateTime<Utc>>) -> bool {
        issued_at.is_none_or(|issued_at| issued_at <= self.issued_until)
    }
    /// Keeps the later moments. Returns true if more tokens are refused now.
    fn merge_later(&mut self, other: Self) -> bool {
        let is_extended = other.issued_until > self.issued_until;
        self.issued_until = self.issued_until.max(other.issued_until);
        self.matters_until = self.matters_until.max(other.matters_until);
        is_extended
    }
}

fn add_or_merge<K: Clone + Eq + Hash>(
    revocations: &mut HashMap<K, RevokedBefore>,
    key: &K,
    revocation: RevokedBefore,
) -> bool {
    match revocations.entry(key.clone()) {
        Entry::Vacant(free) => {
            free.insert(revocation);
            true
        }
        Entry::Occupied(mut entry) => entry.get_mut().merge_later(revocation),
    }
}

impl TenantRefusals {
    fn has_revoked(&self, principal: &Principal) -> bool {
        let issued = &principal.issued;
        issued.id.as_ref().is_some_and(|id| self.tokens.contains_key(id))
            || self
                .subjects
                .get(&principal.subject)
                .is_some_and(|before| before.covers_token(issued.issued_at))
            || principal
                .player
                .as_ref()
                .and_then(|player| self.players.get(player))
                .is_some_and(|before| before.covers_token(issued.issued_at))
    }
    fn len(&self) -> usize {
        self.tokens.len() + self.subjects.len() + self.players.len()
    }
}

impl Refusals {
    /// Checks a caller again who was admitted before.
    pub(super) fn check_principal(&self, principal: &Principal) -> Result<(), AuthError> {
        if self.disabled.contains(&principal.tenant) {
            return Err(AuthError::NoTenant);
        }
        // An admin of the tenant that an operator's token names has no say over operators.
        if principal.role == Role::Operator {
            return Ok(());
        }
        if self
            .revoked
            .read()
            .get(&principal.tenant)
            .is_some_and(|refusals| refusals.has_revoked(principal))
        {
            return Err(AuthError::Revoked);
        }
        Ok(())
    }

    /// Number of a tenant's revocations.
    pub(super) fn revocation_count(&self, tenant: &TenantId) -> usize {
        self.revoked.read().get(tenant).map_or(0, TenantRefusals::len)
    }

    /// Returns true if the revocation is new.
    pub(super) fn add_revocation(&self, revocation: &Revocation) -> bool {
        let mut refusals_by_tenant = self.revoked.write();
        let refusals = refusals_by_tenant.entry(revocation.tenant.clone()).or_default();
        let matters_until = revocation.matters_until;
        let before = |issued_until| RevokedBefore {
            issued_until,
            matters_until,
        };
        match &revocation.revoked {
            // A token is refused whenever it was issued.
            Revoked::Token(id) => add_or_merge(&mut refusals.tokens, id, before(DateTime::<Utc>::MAX_UTC)),
            Revoked::Subject(subject, until) => add_or_merge(&mut refusals.subjects, subject, before(*until)),
            Revoked::Player(player, until) => add_or_merge(&mut refusals.players, player, before(*until)),
        }
    }

    /// Drops revocations that no longer matter.
    pub(super) fn drop_expired(&self, now: DateTime<Utc>) {
        self.revoked.write().retain(|_, refusals| {
            refusals.tokens.retain(|_, before| before.matters_until > now);
            refusals.subjects.retain(|_, before| before.matters_until > now);
            refusals.players.retain(|_, before| before.matters_until > now);
            refusals.len() > 0
        });
    }
}
