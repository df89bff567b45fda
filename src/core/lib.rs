//! Ids, tenant scopes, shares of a node, failpoints and planted leaks: the names that every crate of the server uses.

pub mod failpoint;
pub mod ids;
pub mod planted_leak;
pub mod scope;
pub mod shares;
#[cfg(feature = "sql")]
mod sql;
