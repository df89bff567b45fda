//! Ids, tenant scopes, shares of a node, and failpoints: the names that every crate of the server uses.

pub mod failpoint;
pub mod ids;
pub mod scope;
pub mod shares;
#[cfg(feature = "sql")]
mod sql;
