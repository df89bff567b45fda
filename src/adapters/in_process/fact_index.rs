//! The in-process index.
