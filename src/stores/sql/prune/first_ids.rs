//! The first ids of a time.

use chrono::{DateTime, Utc};
use ulid::Ulid;

use colloquy_core::ids::GeneratedId;

/// Returns the first id that can have been created at `at` or later.
pub(super) fn first_id<I: GeneratedId + ToString>(moment: DateTime<Utc>) -> String {
    I::from_ulid(first_ulid(moment)).to_string()
}

pub(super) fn first_ulid(moment: DateTime<Utc>) -> Ulid {
    Ulid::from_parts(u64::try_from(moment.timestamp_millis()).unwrap_or_default(), 0)
}
