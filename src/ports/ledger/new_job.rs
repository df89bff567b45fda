//! A job before its lease: its kind, its row, and the fence of its writes.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use colloquy_core::ids::{DialogueId, JobId, NodeId, TurnId};

/// The work of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Extracts facts from a turn and reconciles them with memory.
    ExtractFacts,
    /// Extracts state changes from a turn with an unparsable state block.
    ExtractState,
    /// Summarises the oldest unsummarised turns.
    Summarise,
    /// Reads the turns since the last curation pass: contradictions, foreshadowing, the narrative memory, and insights.
    Curate,
    /// Makes conclusions of older facts: those of the week and the audiences of the turn's facts.
    Consolidate,
}

impl JobKind {
    pub const ALL: [Self; 5] = [
        Self::ExtractFacts,
        Self::ExtractState,
        Self::Summarise,
        Self::Curate,
        Self::Consolidate,
    ];

    /// The name in the ledger and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExtractFacts => "extract_facts",
            Self::ExtractState => "extract_state",
            Self::Summarise => "summarise",
            Self::Curate => "curate",
            Self::Consolidate => "consolidate",
        }
    }
    /// Returns the kind with this name: the inverse of [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A new job, written together with its turn. The committing node has the lease from the start, so that the usual case
/// needs no second write before the job runs.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub id: JobId,
    pub kind: JobKind,
    pub dialogue: DialogueId,
    pub turn: TurnId,
    pub text_version: u32,
    pub created_at: DateTime<Utc>,
    pub leased_to: NodeId,
    pub leased_until: DateTime<Utc>,
    /// If set, the job has no lease and is due at this time, or earlier after
    /// [`JobStore::make_due`](super::jobs::JobStore::make_due).
    pub held_until: Option<DateTime<Utc>>,
}

/// The condition for a job's write: its turn still stands with this text version, and the job is not finished. The
/// writing transaction checks the condition and finishes the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobFence {
    pub job: JobId,
    pub turn: TurnId,
    pub text_version: u32,
}
