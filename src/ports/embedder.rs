//! The embedding port.

use async_trait::async_trait;

use super::llm::LlmError;
use colloquy_memory::calibration::Calibration;

/// The purpose of a text. Asymmetric models embed a question and a statement differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EmbedAs {
    Query,
    Passage,
}

/// The properties of an embedder on which the rest of the server depends.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedderInfo {
    /// The name of the vector space. Vectors of different models are never compared.
    pub model: String,
    /// The length of every vector.
    pub dimensions: usize,
    /// The meaning of this model's cosines.
    pub calibration: Calibration,
    /// True for the offline, lexical default.
    pub offline: bool,
}

/// Turns texts into unit vectors.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// Returns one unit vector (L2 norm 1 ± 1e-3) of `info().dimensions` per text, in order.
    ///
    /// # Errors
    /// The errors of a model call. A wrong number or length of vectors is [`LlmError::Broken`].
    async fn embed_texts(&self, kind: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError>;
    /// Returns the properties of the model.
    fn info(&self) -> &EmbedderInfo;
}
