//! The contract of the embedder port.
