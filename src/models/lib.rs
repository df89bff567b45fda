//! Models: OpenAI-compatible endpoints, the scripted model, and a mock server of models.

pub mod mock_llm;
pub mod offline_embedder;
pub mod openai;
pub mod scripted;
