//! Embedded adapters with their whole state in the process's memory.

pub mod buffers;
pub mod counted_index;
pub mod fact_index;
pub mod shared_index;
