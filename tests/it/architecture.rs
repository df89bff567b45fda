//! The rule of who may import whom.
