//! Any OpenAI-compatible endpoint, through async-openai.
//!
//! One attempt per call and nothing shared but the connection pool: retries, fall-backs and
//! breakers belong to the caller. async-openai retries by itself and drops `Retry-After`, so its
//! transport is replaced by [`http`]'s; its own request and answer types are replaced by the few
//! fields of [`wire`] that are used (its `byot` methods), which local servers choke on less.

mod embedder;
mod http;
mod llm;
mod wire;

pub use self::{
    embedder::{ConnectError, InputType, OpenAiEmbedder, OpenAiEmbedderOptions},
    http::{Endpoint, HttpClient, InvalidEndpoint, install_crypto, redact_url},
    llm::{OpenAiLlm, OpenAiLlmOptions},
};
