//! curator
