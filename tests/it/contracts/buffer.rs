//! The contract of the buffer port.
