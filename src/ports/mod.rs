//! What the server needs from the outside, as traits.
//!
//! One file per port. A port names values of `memory` and the tenant scope and nothing of any
//! engine; adapters live in `adapters` and every adapter of a port passes the same contract suite
//! (`tests/it/contracts`). "Not found" is `Ok(None)`; errors are for stores that could not answer.

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

/// Why a store could not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, is overloaded or timed out. Trying again may work.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Nothing can be written: the disk is full, or the database is read-only. Holds until an operator does something.
    /// The text is for that operator.
    #[error("nothing can be written to the store: {0}")]
    NotWritable(String),
    /// A row holds something this version cannot read.
    #[error("a stored row cannot be read: {0}")]
    Corrupt(String),
    /// The store refused the statement. A defect of this server.
    #[error("the store refused the operation: {0}")]
    Rejected(String),
}

impl StoreError {
    /// Whether the same may work later, without any change to what was asked.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::NotWritable(_))
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

/// Which page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// 1–200.
    pub limit: u32,
    /// The `next` of the page before.
    pub after: Option<String>,
}
