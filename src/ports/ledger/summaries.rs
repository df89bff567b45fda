//! Summaries of a dialogue.

use async_trait::async_trait;

use super::new_job::JobFence;
use crate::StoreResult;
use colloquy_core::{
    ids::{DialogueId, SummaryId},
    scope::TenantScope,
};
use colloquy_memory::{summary::Summary, trace::TaskUsage};

/// A new summary and the changes of older summaries, in one transaction with the end of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryCommit {
    pub fence: JobFence,
    /// The model usage of the job.
    pub calls: Vec<TaskUsage>,
    pub summary: Summary,
    /// The summary evicted from the kept five.
    pub evict: Option<SummaryId>,
    /// The summary whose importance falls by 1.
    pub fade: Option<SummaryId>,
}

/// Summaries that stand.
#[async_trait]
pub trait SummaryStore: Send + Sync {
    /// Returns the kept summaries of a dialogue, in time order.
    async fn load_summaries(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Vec<Summary>>;
    /// Returns summaries by their ids, kept or not and whether they stand or not, in time order. Unknown ids are left out.
    async fn load_summaries_by_id(&self, scope: &TenantScope, ids: &[SummaryId]) -> StoreResult<Vec<Summary>>;
    /// Stores a summary and ends the job. Returns `false` if the fence is closed, or if a standing summary (kept or
    /// evicted) already covers a turn of the new summary. The job then ends without another write.
    async fn commit_summary(&self, scope: &TenantScope, commit: &SummaryCommit) -> StoreResult<bool>;
}
