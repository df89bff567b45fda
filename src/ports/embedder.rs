//! The embedding port.

use async_trait::async_trait;

use super::llm::LlmError;
use crate::memory::calibration::Calibration;

/// Asymmetric models embed a question and a statement differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EmbedAs {
    Query,
    Passage,
}

/// What the rest of the server needs to know of an embedder.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedderInfo {
    /// Names the vector space: vectors of different models are never compared.
    pub model: String,
    /// Length of every vector.
    pub dimensions: usize,
    /// What this model's cosines mean.
    pub calibration: Calibration,
    /// The offline, lexical default.
    pub offline: bool,
}

/// Turns texts into unit vectors.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// One unit vector (L2 norm 1 ± 1e-3) of `info().dimensions` per text, in order.
    ///
    /// # Errors
    /// As for a model call; a wrong number or length of vectors is [`LlmError::Broken`].
    async fn embed_texts(&self, kind: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError>;
    /// The model behind it.
    fn info(&self) -> &EmbedderInfo;
}
