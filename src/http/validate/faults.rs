//! Faults of a body.

use std::fmt::Write as _;

use crate::errors::{FieldError, Problem};

/// Maximum number of reported faults; a body can have as many faults as bytes.
const MAX_REPORTED_FAULTS: usize = 32;
/// Reported characters of a field's name.
const MAX_FIELD_NAME_CHARS: usize = 64;

/// The first [`MAX_REPORTED_FAULTS`] faults, and the number of further faults.
#[derive(Debug, Default)]
pub struct ValidationFaults {
    pub first_faults: Vec<FieldError>,
    pub further_count: usize,
}

impl ValidationFaults {
    pub(super) fn into_problem(self) -> Problem {
        let mut problem = Problem::invalid_fields(self.first_faults);
        if self.further_count > 0 {
            // Writing to a string cannot fail.
            let _ = write!(problem.detail, "; and {} more", self.further_count);
        }
        problem
    }
    pub(super) fn push(&mut self, param: &str, detail: impl FnOnce() -> String) {
        if self.first_faults.len() < MAX_REPORTED_FAULTS {
            self.first_faults.push(FieldError {
                param: if param.is_empty() { "body" } else { param }.to_owned(),
                detail: detail(),
            });
        } else {
            self.further_count += 1;
        }
    }
    pub(super) fn append(&mut self, other: Self) {
        for fault in other.first_faults {
            let FieldError { param, detail } = fault;
            self.push(&param, || detail);
        }
        self.further_count += other.further_count;
    }
}

/// Clients choose unknown names freely, and at any length.
pub(super) fn truncate_name(name: &str) -> &str {
    name.char_indices()
        .nth(MAX_FIELD_NAME_CHARS)
        .map_or(name, |(end, _)| &name[..end])
}
