//! Dry runs of a PUT: the checks of the write, without the write.

use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    errors::Problem,
    etag::{self, IfMatch},
};

/// The query of a PUT that can be tried.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PutQuery {
    /// `true`: a dry run, which stores nothing. The answer is the object as it would be stored, with its next version.
    /// All rules, the condition and the number of objects are checked; budgets of bytes are not.
    dry_run: Option<bool>,
}

impl PutQuery {
    /// True for a dry run.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }
}

/// The version that a PUT would write.
///
/// # Errors
/// `version_mismatch`: the condition does not hold.
pub fn next_version(stored_version: Option<u32>, if_match: IfMatch) -> Result<u32, Problem> {
    let stored_version = stored_version.unwrap_or(0);
    let is_other = if_match
        .expected_version()
        .is_some_and(|version| version != stored_version);
    if is_other || (if_match == IfMatch::MustExist && stored_version == 0) {
        return Err(if_match.mismatch_error(stored_version));
    }
    Ok(stored_version + 1)
}

/// The version that a PUT into a limited list would write: `refusal` is what the store says of it.
///
/// # Errors
/// As [`next_version`]; also without a parent, and if the list is full.
pub fn next_version_unless(
    refusal: Option<etag::PutOutcome>,
    stored_version: Option<u32>,
    if_match: IfMatch,
    parent: &str,
) -> Result<u32, Problem> {
    if let Some(refusal) = refusal {
        etag::created_by_put(refusal, if_match, parent)?;
    }
    next_version(stored_version, if_match)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::errors::Code;

    #[test]
    fn condition_of_a_dry_run_is_that_of_the_write() {
        for (stored, if_match, next) in [
            (None, IfMatch::Unconditional, Some(1)),
            (Some(3), IfMatch::Unconditional, Some(4)),
            (Some(3), IfMatch::Version(3), Some(4)),
            (Some(3), IfMatch::Version(2), None),
            (None, IfMatch::Version(2), None),
            (Some(3), IfMatch::MustExist, Some(4)),
            (None, IfMatch::MustExist, None),
            (None, IfMatch::MustNotExist, Some(1)),
            (Some(3), IfMatch::MustNotExist, None),
        ] {
            match (next_version(stored, if_match), next) {
                (Ok(version), Some(next)) => assert_eq!(version, next, "{stored:?} {if_match:?}"),
                (Err(problem), None) => assert_eq!(problem.code, Code::VersionMismatch),
                (result, _) => panic!("{stored:?} {if_match:?}: {result:?}"),
            }
        }
    }
}
