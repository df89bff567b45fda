//! The offline embedder.
