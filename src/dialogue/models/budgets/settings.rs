//! Settings of budgets.

use serde::Deserialize;

use colloquy_ports::ledger::usage::{Budgeted, TenantBudget};

/// The budget of a tenant without its own budget. 0: unlimited. Defaults are in `config/default.toml`, section
/// `[budgets]`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetSettings {
    /// Tokens of all model calls and embeddings per day (UTC), including cached prompt tokens; 0.
    pub tokens_per_day: u64,
    /// The cost of all calls per day by `llm.prices`, in its currency; 0.
    pub cost_per_day: f64,
    /// Stored sessions and NPC conversations; 0.
    pub dialogues: u64,
    /// Stored turns, including unsaid turns; 0.
    pub turns: u64,
    /// Worlds that are not deleted; 100.
    pub worlds: u64,
    /// Bytes of what people write: worlds, NPCs, lore, scenarios, directives, facts, and saves; 8 MiB.
    pub authored_bytes: u64,
    /// The share of one player in the budgets of tokens, cost, dialogues and turns, above 0; 1: no limit for a player;
    /// 0.1. A player may always store ten sessions and ten turns.
    pub player_share: f64,
    /// The share of a budget at which `GET /v1/usage` and the log begin to warn, from 0 to 1; 0.8.
    pub warn_at: f64,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self {
            tokens_per_day: 0,
            cost_per_day: 0.0,
            dialogues: 0,
            turns: 0,
            worlds: 0,
            authored_bytes: 0,
            player_share: 0.1,
            warn_at: 0.8,
        }
    }
}

impl BudgetSettings {
    /// Returns the limit for a tenant with the budget `own_budget`; `None` if unlimited.
    pub(super) fn limit_for(&self, own_budget: Option<&TenantBudget>, budget: Budgeted) -> Option<f64> {
        let own_budget = own_budget.copied().unwrap_or_default();
        let limit = match budget {
            Budgeted::TokensPerDay => as_f64(own_budget.tokens_per_day.unwrap_or(self.tokens_per_day)),
            Budgeted::CostPerDay => own_budget.cost_per_day.unwrap_or(self.cost_per_day),
            Budgeted::Dialogues => as_f64(own_budget.dialogues.unwrap_or(self.dialogues)),
            Budgeted::Turns => as_f64(own_budget.turns.unwrap_or(self.turns)),
            Budgeted::Worlds => as_f64(own_budget.worlds.unwrap_or(self.worlds)),
            Budgeted::AuthoredBytes => as_f64(own_budget.authored_bytes.unwrap_or(self.authored_bytes)),
        };
        (limit > 0.0).then_some(limit)
    }
}

/// Converts a count. Exact up to 2^53, far above any budget.
#[expect(clippy::cast_precision_loss, reason = "a comparison with a limit")]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Converts a limit of stored rows: a whole number far below 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole and positive"
)]
pub(super) fn whole_limit(limit: f64) -> u64 {
    limit as u64
}
