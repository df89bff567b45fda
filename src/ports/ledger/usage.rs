//! What was used: model calls and tokens per tenant, day, task and model; what may be used; and how much is stored.

use std::time::Duration;

use async_trait::async_trait;
use chrono::NaiveDate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    ids::{PlayerId, TenantId},
    memory::turn::Usage,
    ports::StoreResult,
    tenancy::TenantScope,
};

/// Sums of one day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UsageRow {
    pub day: NaiveDate,
    /// A model task, or `embedding`.
    pub task: String,
    pub model: String,
    pub calls: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub completion_tokens: u64,
}

/// An increment.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageDelta {
    pub day: NaiveDate,
    pub task: &'static str,
    pub model: String,
    pub calls: u32,
    pub usage: Usage,
}

/// What a budget is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Budgeted {
    /// Tokens of prompts and answers, and of what was embedded, of one day (UTC).
    TokensPerDay,
    /// What the calls of one day (UTC) cost by `llm.prices`.
    CostPerDay,
    /// Sessions and NPC conversations that are stored.
    Dialogues,
    /// Turns that are stored, those that were taken back included.
    Turns,
}

impl Budgeted {
    pub const ALL: [Self; 4] = [Self::TokensPerDay, Self::CostPerDay, Self::Dialogues, Self::Turns];
    /// Whether it begins anew each day.
    #[must_use]
    pub const fn is_daily(self) -> bool {
        matches!(self, Self::TokensPerDay | Self::CostPerDay)
    }
    /// As in settings, metrics and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokensPerDay => "tokens_per_day",
            Self::CostPerDay => "cost_per_day",
            Self::Dialogues => "dialogues",
            Self::Turns => "turns",
        }
    }
}

/// A tenant has used up a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this {whose} has used up its budget: {}", .of.as_str())]
pub struct OverBudget {
    /// `tenant`; or `player`, which has its part of its tenant's.
    pub whose: &'static str,
    pub of: Budgeted,
    /// Until the next day begins; of what is stored an hour, since it only goes when the operator gives more.
    pub retry_after: Duration,
}

/// What a tenant may use, where it differs from what every tenant may (`[budgets]`). `None`: as every tenant; 0: any amount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantBudget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_day: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialogues: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
}

/// How much of a tenant is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredAmounts {
    pub dialogues: u64,
    /// With those that were taken back.
    pub turns: u64,
}

/// What a tenant used of one model on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DailyModelUsage {
    pub tenant: TenantId,
    pub model: String,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub completion_tokens: u64,
}

/// Usage counters.
#[async_trait]
pub trait UsageStore: Send + Sync {
    async fn add_usage(&self, scope: &TenantScope, deltas: &[UsageDelta]) -> StoreResult<()>;
    async fn list_usage_between(
        &self,
        scope: &TenantScope,
        from: NaiveDate,
        to: NaiveDate,
    ) -> StoreResult<Vec<UsageRow>>;
    /// What every tenant used on `day`, by model.
    async fn list_usage_of_day(&self, day: NaiveDate) -> StoreResult<Vec<DailyModelUsage>>;
    /// Counts what is stored of a tenant. Counting ends at `at_most`.
    async fn count_stored(&self, scope: &TenantScope, at_most: StoredAmounts) -> StoreResult<StoredAmounts>;
    /// Counts the stored sessions of a player. Counting ends at `at_most`.
    async fn count_sessions_of(&self, scope: &TenantScope, player: &PlayerId, at_most: u64) -> StoreResult<u64>;
}
