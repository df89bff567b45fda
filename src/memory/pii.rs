//! pii
