//! Summaries of a dialogue.

use async_trait::async_trait;

use super::jobs::JobFence;
use crate::{
    ids::{DialogueId, SummaryId},
    memory::{summary::Summary, trace::TaskUsage},
    ports::StoreResult,
    tenancy::TenantScope,
};

/// A landed summary and what its landing does to the others, in one transaction with its job's end.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryCommit {
    pub fence: JobFence,
    /// What the job used.
    pub calls: Vec<TaskUsage>,
    pub summary: Summary,
    /// Pushed out of the kept five.
    pub evict: Option<SummaryId>,
    /// Its importance goes down by 1.
    pub fade: Option<SummaryId>,
}

/// Summaries that stand.
#[async_trait]
pub trait SummaryStore: Send + Sync {
    /// Kept summaries of a dialogue, in time order.
    async fn load_summaries(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Vec<Summary>>;
    /// `false`: fenced, or a summary that stands (kept or evicted) covers one of its turns already;
    /// then the job has ended and nothing else was written.
    async fn commit_summary(&self, scope: &TenantScope, commit: &SummaryCommit) -> StoreResult<bool>;
}
