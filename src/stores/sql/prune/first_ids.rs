//! The first ids of a time.

use chrono::{DateTime, Utc};
use ulid::Ulid;

use colloquy_core::ids::GeneratedId;

/// Returns the first id that can have been created at `at` or later.
pub(super) fn first_id<I: GeneratedId + ToString>(at: DateTime<Utc>) -> String {
    I::from_ulid(first_ulid(at)).to_string()
}

pub(super) fn first_ulid(at: DateTime<Utc>) -> Ulid {
    Ulid::from_parts(u64::try_from(at.timestamp_millis()).unwrap_or_default(), 0)
}
