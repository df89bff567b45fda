//! The traits for every outside service of the server.
//!
//! One file per port. A port names values of `memory` and the tenant scope, but no engine. Adapters live in `adapters`.
//! Every adapter of a port passes the same contract suite (`tests/it/contracts`). `Ok(None)` means "not found"; an
//! error means that the store could not answer.

pub mod buffer;
pub mod clock;
pub mod disabled_tenants;
pub mod embedder;
pub mod ledger;
pub mod llm;
pub mod owners;
pub mod peers;
pub mod redaction;
pub mod vectors;
pub mod webhook_sender;

/// The reason why a store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The store is unreachable or overloaded, or timed out. A retry may succeed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The write collided with another, and so did each repetition. A retry may succeed.
    #[error("the store is unavailable: two writers were in each other's way: {0}")]
    Collided(String),
    /// The connection was lost during the call. A write may have succeeded.
    #[error("the store is unavailable: the connection to the database was lost: {0}")]
    Disconnected(String),
    /// Writes are impossible: the disk is full, or the database is read-only. An operator must act first, and the text
    /// is for the operator.
    #[error("nothing can be written to the store: {0}")]
    NotWritable(String),
    /// This version cannot read the contents of a row.
    #[error("a stored row cannot be read: {0}")]
    Corrupt(String),
    /// The write would exceed a budget of the tenant. Nothing was written.
    #[error("the tenant has used up its budget: {}", .0.as_str())]
    OverBudget(ledger::usage::Budgeted),
    /// The store refused the statement. A defect of this server.
    #[error("the store refused the operation: {0}")]
    Rejected(String),
}

impl StoreError {
    #[must_use]
    pub fn ledger_closed() -> Self {
        Self::Unavailable("the ledger is closed".to_owned())
    }

    /// True if the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::Corrupt(_) | Self::Rejected(_) | Self::OverBudget(_))
    }
}

/// The result of a store call.
pub type StoreResult<T> = Result<T, StoreError>;

/// One page of a list. `next` is the cursor to pass as `after`, `None` on the last page.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}

/// Selects a page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// From 1 to 200.
    pub limit: u32,
    /// The `next` of the page before.
    pub after: Option<String>,
}
