//! Usage: model calls and tokens per tenant, day, task and model; budgets; and stored amounts.

use std::time::Duration;

use async_trait::async_trait;
use chrono::NaiveDate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::StoreResult;
use colloquy_core::{
    ids::{NpcId, PlayerId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::turn::Usage;

/// The sums of one day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UsageRow {
    pub day: NaiveDate,
    /// A model task, or `embedding`.
    pub task: String,
    pub model: String,
    pub calls: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    /// Prompt tokens of replies that the NPC's previous prompt in the dialogue shares.
    pub unchanged_tokens: u64,
    pub completion_tokens: u64,
}

/// The NPC for whose dialogues models are called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageOwner {
    pub world: WorldId,
    pub npc: NpcId,
}

/// An increment.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageDelta {
    pub day: NaiveDate,
    /// `None`: the calls were for no single NPC.
    pub owner: Option<UsageOwner>,
    /// The player for whose sessions models were called, if the player's share of a daily budget is limited.
    pub player: Option<PlayerId>,
    pub task: &'static str,
    pub model: String,
    pub calls: u32,
    pub usage: Usage,
    /// As in [`UsageRow::unchanged_tokens`].
    pub unchanged_tokens: u64,
}

/// The sums of several days for a world, or for an NPC.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnerUsageRow {
    /// A [`WorldId`], or an [`NpcId`].
    pub owner: String,
    pub task: String,
    pub model: String,
    pub calls: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub unchanged_tokens: u64,
    pub completion_tokens: u64,
}

/// The quantity that a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Budgeted {
    /// Tokens of prompts, answers and embeddings per day (UTC).
    TokensPerDay,
    /// The cost of a day's calls (UTC), by `llm.prices`.
    CostPerDay,
    /// Stored sessions and NPC conversations.
    Dialogues,
    /// Stored turns, including unsaid turns.
    Turns,
    /// Worlds that are not deleted.
    Worlds,
    /// The bytes of what people wrote: worlds, NPCs, lore, scenarios, directives, facts and their edits, and saves.
    AuthoredBytes,
}

impl Budgeted {
    pub const ALL: [Self; 6] = [
        Self::TokensPerDay,
        Self::CostPerDay,
        Self::Dialogues,
        Self::Turns,
        Self::Worlds,
        Self::AuthoredBytes,
    ];
    /// True if the budget is renewed each day.
    #[must_use]
    pub const fn is_daily(self) -> bool {
        matches!(self, Self::TokensPerDay | Self::CostPerDay)
    }
    /// True for what people write.
    #[must_use]
    pub const fn is_authored(self) -> bool {
        matches!(self, Self::Worlds | Self::AuthoredBytes)
    }
    /// The name in settings, metrics and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokensPerDay => "tokens_per_day",
            Self::CostPerDay => "cost_per_day",
            Self::Dialogues => "dialogues",
            Self::Turns => "turns",
            Self::Worlds => "worlds",
            Self::AuthoredBytes => "authored_bytes",
        }
    }
}

/// A tenant or a player has used up a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this {owner} has used up its budget: {}", .budget.as_str())]
pub struct OverBudget {
    /// `tenant`, or `player` for a player's share of the tenant's budget.
    pub owner: &'static str,
    pub budget: Budgeted,
    /// The time until the next day; for stored amounts an hour, since only the operator can raise the budget.
    pub retry_after: Duration,
}

impl OverBudget {
    /// True if the player's share is used up, and the tenant's budget may not be.
    #[must_use]
    pub fn of_player(&self) -> bool {
        self.owner == "player"
    }
}

/// A tenant's own limits. `None`: the limit of every tenant (`[budgets]`); 0: no limit.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worlds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authored_bytes: Option<u64>,
}

/// What people wrote of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuthoredSize {
    /// Worlds that are not deleted.
    pub worlds: u64,
    /// An object counts 1,024 bytes and its texts; a save 200 for each dialogue.
    pub bytes: u64,
}

/// How far what people write of a tenant may grow. `None`: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuthoredLimits {
    pub worlds: Option<u64>,
    pub bytes: Option<u64>,
}

impl AuthoredLimits {
    /// The limit that a change exceeds. A tenant over a limit may still change and delete what it has.
    #[must_use]
    pub fn exceeded_by(self, before: AuthoredSize, after: AuthoredSize) -> Option<Budgeted> {
        let is_over = |limit: Option<u64>, before, after| after > before && limit.is_some_and(|limit| after > limit);
        if is_over(self.worlds, before.worlds, after.worlds) {
            return Some(Budgeted::Worlds);
        }
        is_over(self.bytes, before.bytes, after.bytes).then_some(Budgeted::AuthoredBytes)
    }
}

/// The stored amounts of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredAmounts {
    pub dialogues: u64,
    /// Including unsaid turns.
    pub turns: u64,
}

/// A tenant's usage of one model on one day.
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
    /// Returns the usage of the tenant's worlds from `from` to `to`, by world, task and model.
    async fn sum_usage_of_worlds(
        &self,
        scope: &TenantScope,
        from: NaiveDate,
        to: NaiveDate,
    ) -> StoreResult<Vec<OwnerUsageRow>>;
    /// Returns the usage of `limit` NPCs of a world from `from` to `to`, by NPC, task and model: the NPCs with the first
    /// ids after `after`.
    async fn sum_usage_of_npcs(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        (from, to): (NaiveDate, NaiveDate),
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Vec<OwnerUsageRow>>;
    /// Returns every tenant's usage on `day`, by model.
    async fn list_usage_of_day(&self, day: NaiveDate) -> StoreResult<Vec<DailyModelUsage>>;
    /// Counts the stored dialogues and turns of a tenant. A count stops at its value in `at_most`.
    async fn count_stored(&self, scope: &TenantScope, at_most: StoredAmounts) -> StoreResult<StoredAmounts>;
    /// Returns the size of what people wrote of a tenant. One row is read.
    async fn load_authored_size(&self, scope: &TenantScope) -> StoreResult<AuthoredSize>;
    /// Returns the usage on `day` that [`UsageDelta::player`] counted for a player, by model.
    async fn list_player_usage(
        &self,
        scope: &TenantScope,
        player: &PlayerId,
        day: NaiveDate,
    ) -> StoreResult<Vec<DailyModelUsage>>;
    /// Counts the stored turns of a player's sessions. The count stops at `at_most`.
    async fn count_turns_of(&self, scope: &TenantScope, player: &PlayerId, at_most: u64) -> StoreResult<u64>;
    /// Counts the stored sessions of a player. The count stops at `at_most`.
    async fn count_sessions_of(&self, scope: &TenantScope, player: &PlayerId, at_most: u64) -> StoreResult<u64>;
}
