//! The failure of a person's edit.

use colloquy_ports::{StoreError, llm::LlmError};

/// The reason why a manual fact was not stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ManualEditError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Without an embedding, recall could not find the fact.
    #[error("the embedder failed: {0}")]
    Embedder(#[from] LlmError),
}
