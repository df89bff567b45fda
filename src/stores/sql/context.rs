//! The parts of the engine for which this folder is compiled. They have the same names in both engines.

pub(super) use super::super::{
    engine::{Arguments, Connection, Db, Engine, Row, acquire_lock, count_grown_tables},
    errors::store_error,
    joined_queries::{fetch_joined, join_queries},
};
