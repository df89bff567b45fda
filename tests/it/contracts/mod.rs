//! One suite per port. An adapter joins with one line in the suite's `adapters!` list.

mod buffer;
mod embedder;
mod ledger;
mod llm;
mod owners;
mod qdrant;
mod vectors;
