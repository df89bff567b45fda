//! The in-process buffer.
