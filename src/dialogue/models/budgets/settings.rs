//! What is configured of budgets.

use serde::Deserialize;

use crate::ports::ledger::usage::{Budgeted, TenantBudget};

/// What every tenant may use that has no budget of its own. 0: any amount. Defaults are in `config/default.toml`, section
/// `[budgets]`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetSettings {
    /// Tokens of all model calls and embeddings of a day (UTC), those of prompts that a provider had cached included; 0.
    pub tokens_per_day: u64,
    /// What the calls of a day may cost by `llm.prices`, in its currency; 0.
    pub cost_per_day: f64,
    /// Sessions and NPC conversations that may be stored; 0.
    pub dialogues: u64,
    /// Turns that may be stored, those that were taken back included; 0.
    pub turns: u64,
    /// The share of a budget from which on `GET /v1/usage` and the log warn, from 0 to 1; 0.8.
    pub warn_at: f64,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self {
            tokens_per_day: 0,
            cost_per_day: 0.0,
            dialogues: 0,
            turns: 0,
            warn_at: 0.8,
        }
    }
}

impl BudgetSettings {
    /// The limit of a tenant with this budget of its own, if it has one.
    pub(super) fn limit_for(&self, own: Option<&TenantBudget>, of: Budgeted) -> Option<f64> {
        let own = own.copied().unwrap_or_default();
        let limit = match of {
            Budgeted::TokensPerDay => as_f64(own.tokens_per_day.unwrap_or(self.tokens_per_day)),
            Budgeted::CostPerDay => own.cost_per_day.unwrap_or(self.cost_per_day),
            Budgeted::Dialogues => as_f64(own.dialogues.unwrap_or(self.dialogues)),
            Budgeted::Turns => as_f64(own.turns.unwrap_or(self.turns)),
        };
        (limit > 0.0).then_some(limit)
    }
}

/// Exact up to 2^53, which no budget needs.
#[expect(clippy::cast_precision_loss, reason = "a comparison with a limit")]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}

/// A limit of stored rows: a whole number far below 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole and positive"
)]
pub(super) fn whole_limit(limit: f64) -> u64 {
    limit as u64
}
