//! Ids, tenant scopes, shares of a node, and failpoints: what every crate of the server names.

pub mod failpoint;
pub mod ids;
pub mod scope;
pub mod shares;
#[cfg(feature = "sql")]
mod sql;
