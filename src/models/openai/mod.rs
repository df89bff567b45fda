//! Any OpenAI-compatible endpoint, through async-openai.
//!
//! A call makes one attempt and shares only the connection pool. The caller does retries, fall-backs and breakers. The
//! library async-openai retries by itself and drops `Retry-After`, so [`http`] replaces its transport. [`wire`]
//! replaces the request and answer types by the few required fields (through the `byot` methods), which fewer local
//! servers reject. [`thoughts`] cuts the thoughts of reasoning models, so that nobody hears or learns them.

mod embedder;
mod http;
mod llm;
mod thoughts;
mod wire;

pub use self::{
    embedder::{ConnectError, InputType, OpenAiEmbedder, OpenAiEmbedderOptions},
    http::{Endpoint, HttpClient, InvalidEndpoint, install_crypto, redact_url},
    llm::{ObservedThoughts, OpenAiLlm, OpenAiLlmOptions, RESERVED_FIELDS},
};
