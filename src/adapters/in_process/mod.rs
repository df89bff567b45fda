//! Embedded adapters that keep everything in this process.

pub mod buffers;
pub mod counted_index;
pub mod fact_index;
pub mod shared_index;
