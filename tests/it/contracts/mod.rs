//! One suite per port. To add an adapter, add a line to the suite's `adapters!` list.

mod buffer;
mod embedder;
mod ledger;
mod llm;
mod llm_tools;
mod owners;
mod qdrant;
mod vectors;
