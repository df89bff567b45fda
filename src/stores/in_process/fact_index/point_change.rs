//! A change of a partition's points.

use std::sync::Arc;

use colloquy_core::ids::FactId;
use colloquy_ports::vectors::IndexPoint;

pub(super) enum PointChange {
    Put(Arc<IndexPoint>),
    Drop(FactId),
}
