//! Who is asking, for which studio, and how much they may ask.
//!
//! Owns the tenant scope, authentication, roles, rate limits and quotas. Does not own any stored
//! object: those live behind `ports`.

pub mod auth;
pub mod limits;
mod scope;

pub use scope::{Principal, Role, TenantScope, TokenIdentity};
