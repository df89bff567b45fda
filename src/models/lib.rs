//! Models: OpenAI-compatible endpoints, the offline embedder, and the measurement of an embedder's cosines.

pub mod calibration;
pub mod offline_embedder;
pub mod openai;
