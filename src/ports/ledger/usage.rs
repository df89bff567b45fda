//! What was used: model calls and tokens per tenant, day, task and model.

use async_trait::async_trait;
use chrono::NaiveDate;
use serde::Serialize;

use crate::{memory::turn::Usage, ports::StoreResult, tenancy::TenantScope};

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

/// Usage counters.
#[async_trait]
pub trait UsageStore: Send + Sync {
    async fn add(&self, scope: &TenantScope, deltas: &[UsageDelta]) -> StoreResult<()>;
    async fn between(&self, scope: &TenantScope, from: NaiveDate, to: NaiveDate) -> StoreResult<Vec<UsageRow>>;
}
