//! The used amounts of tenants and players, as known to this node.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chrono::NaiveDate;

use super::settings::as_f64;
use colloquy_core::ids::{PlayerId, TenantId};
use colloquy_ports::ledger::usage::{Budgeted, StoredAmounts, TenantBudget};

/// The maximum age of a count of stored rows while rows are added or refused. Meanwhile this node adds its own rows.
pub(super) const STORED_COUNT_MAX_AGE: Duration = Duration::from_mins(1);

/// The accounts of a day.
pub(super) struct BudgetAccounts {
    pub day: NaiveDate,
    pub by_tenant: HashMap<TenantId, BudgetAccount>,
}

/// What a tenant has used.
#[derive(Default)]
pub(super) struct BudgetAccount {
    pub own_budget: Option<TenantBudget>,
    pub tokens: f64,
    pub cost: f64,
    pub stored: Option<StoredCount>,
    /// The players of the day whose share is limited.
    pub players: HashMap<PlayerId, PlayerAccount>,
}

/// What the sessions of a player have used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PlayerAccount {
    pub tokens: f64,
    pub cost: f64,
    /// Stored turns, and turns that are to be stored.
    pub turns: u64,
    /// The turns of the day that this node has begun, except those that were not stored.
    pub begun_turns: u64,
    /// When this node read the usage of all nodes; `None`: not yet.
    pub read_at: Option<Instant>,
}

impl PlayerAccount {
    pub fn used_amount(&self, budget: Budgeted) -> f64 {
        match budget {
            Budgeted::TokensPerDay => self.tokens,
            Budgeted::CostPerDay => self.cost,
            Budgeted::Turns => as_f64(self.turns),
            // The ledger counts the sessions of a player. A player writes nothing else.
            Budgeted::Dialogues | Budgeted::Worlds | Budgeted::AuthoredBytes => 0.0,
        }
    }
}

/// A count of a tenant's stored rows.
#[derive(Clone, Copy)]
pub(super) struct StoredCount {
    pub stored: StoredAmounts,
    pub counted_at: Instant,
    /// True if rows were added or refused since the count.
    pub touched: bool,
}

impl StoredCount {
    pub fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.counted_at) >= STORED_COUNT_MAX_AGE
    }
}

impl BudgetAccount {
    /// Returns the stored count of this budget; `None` if not counted.
    pub fn stored_count_mut(&mut self, budget: Budgeted) -> Option<&mut u64> {
        let counted = self.stored.as_mut()?;
        counted.touched = true;
        match budget {
            Budgeted::Dialogues => Some(&mut counted.stored.dialogues),
            Budgeted::Turns => Some(&mut counted.stored.turns),
            _ => None,
        }
    }
    pub fn used_amount(&self, budget: Budgeted) -> f64 {
        let stored = self.stored.map(|counted| counted.stored).unwrap_or_default();
        match budget {
            Budgeted::TokensPerDay => self.tokens,
            Budgeted::CostPerDay => self.cost,
            Budgeted::Dialogues => as_f64(stored.dialogues),
            Budgeted::Turns => as_f64(stored.turns),
            // The ledger counts these itself.
            Budgeted::Worlds | Budgeted::AuthoredBytes => 0.0,
        }
    }
}

impl BudgetAccounts {
    /// Returns the accounts of `day`. A new day resets the daily usage.
    pub fn accounts_on_day(&mut self, day: NaiveDate) -> &mut HashMap<TenantId, BudgetAccount> {
        if day > self.day {
            self.day = day;
            for account in self.by_tenant.values_mut() {
                (account.tokens, account.cost) = (0.0, 0.0);
                account.players.clear();
            }
        }
        &mut self.by_tenant
    }
}
