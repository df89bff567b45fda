//! Authentication, tenants and limits.
//!
//! Owns the tenant scope, authentication, roles, rate limits and quotas. Does not own any stored object: stored objects
//! are behind `ports`.

pub mod auth;
pub mod limits;

pub use colloquy_core::scope::{Principal, Role, TenantScope, TokenIdentity};
