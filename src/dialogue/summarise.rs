//! summarise
