//! Optimistic edits: an object's `version` is its strong `ETag`; `If-Match` makes a write conditional.

use actix_web::{HttpRequest, HttpResponse, http::header};
use serde::Serialize;

use super::errors::{Code, Problem};
use crate::ports::ledger::authored::{DeleteOutcome, PutOutcome};

/// The entity tag of a version.
#[must_use]
pub fn of(version: u32) -> String {
    format!("\"{version}\"")
}

/// What a write demands of the stored version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMatch {
    /// Nothing: no header.
    Whatever,
    /// `*`: it must exist.
    Exists,
    /// It must be this version.
    Version(u32),
    /// `If-None-Match: *`: it must not exist. Only of a put.
    Missing,
}

impl IfMatch {
    /// Reads `If-Match`.
    ///
    /// # Errors
    /// A tag that is none of ours cannot match, so it is `version_mismatch` at once. What is no
    /// entity tag at all is `malformed_request`.
    pub fn of(request: &HttpRequest) -> Result<Self, Problem> {
        let Some(value) = request.headers().get(header::IF_MATCH) else {
            return Ok(Self::Whatever);
        };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Self::Exists);
        }
        let refused = |code| Problem::new(code, "If-Match must be one ETag of this object, or *").param("If-Match");
        if request.headers().get_all(header::IF_MATCH).nth(1).is_some() {
            return Err(refused(Code::MalformedRequest));
        }
        // A weak tag is a tag, and never matches here (RFC 9110, 13.1.1).
        let (weak, tag) = text.strip_prefix("W/").map_or((false, text), |tag| (true, tag));
        let opaque = tag
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .filter(|opaque| !opaque.contains('"'))
            .ok_or_else(|| refused(Code::MalformedRequest))?;
        match opaque.parse() {
            // Nothing is ever stored as version 0.
            Ok(version @ 1..) if !weak => Ok(Self::Version(version)),
            _ => Err(refused(Code::VersionMismatch)),
        }
    }
    /// Reads `If-Match`, or `If-None-Match: *`, of a put.
    ///
    /// # Errors
    /// As [`Self::of`]; and both of them, or an `If-None-Match` that names versions.
    pub fn of_put(request: &HttpRequest) -> Result<Self, Problem> {
        let if_match = Self::of(request)?;
        let Some(value) = request.headers().get(header::IF_NONE_MATCH) else {
            return Ok(if_match);
        };
        let refused = |detail| Problem::new(Code::MalformedRequest, detail).param("If-None-Match");
        if value.to_str().unwrap_or_default().trim() != "*" {
            return Err(refused("If-None-Match of a put must be *"));
        }
        if if_match != Self::Whatever {
            return Err(refused("If-None-Match does not go together with If-Match"));
        }
        Ok(Self::Missing)
    }
    /// The version to demand, for stores; 0: that there is none.
    #[must_use]
    pub const fn version(self) -> Option<u32> {
        match self {
            Self::Version(version) => Some(version),
            Self::Missing => Some(0),
            Self::Whatever | Self::Exists => None,
        }
    }
    /// The refusal of a write where `stored` is not what was demanded.
    #[must_use]
    pub fn mismatch(self, stored: u32) -> Problem {
        if self == Self::Missing {
            let detail = format!("it exists already, as version {stored}");
            return Problem::new(Code::VersionMismatch, detail).param("If-None-Match");
        }
        mismatch(stored)
    }
}

/// An object with its tag, or 304 to who has this version already.
pub fn found(request: &HttpRequest, version: u32, view: &impl Serialize) -> HttpResponse {
    if is_known(request, version) {
        return HttpResponse::NotModified().finish();
    }
    HttpResponse::Ok().insert_header((header::ETAG, of(version))).json(view)
}

/// The answer to a put: the object as it is now, and where it is if it was just made.
pub fn stored(created: bool, location: &str, version: u32, view: &impl Serialize) -> HttpResponse {
    let mut response = if created {
        HttpResponse::Created()
    } else {
        HttpResponse::Ok()
    };
    if created {
        response.insert_header((header::LOCATION, location));
    }
    response.insert_header((header::ETAG, of(version))).json(view)
}

/// Whether a put made the object.
///
/// # Errors
/// It wrote nothing: another version is stored, or `parent` is missing.
pub fn is_new(outcome: PutOutcome, wanted: IfMatch, parent: &str) -> Result<bool, Problem> {
    match outcome {
        PutOutcome::Created => Ok(true),
        PutOutcome::Updated { .. } => Ok(false),
        PutOutcome::VersionMismatch { stored } => Err(wanted.mismatch(stored)),
        PutOutcome::NoParent => Err(Problem::not_found(parent)),
        PutOutcome::Full { most } => Err(Problem::new(
            Code::TooManyScenarios,
            format!("an {parent} may have {most} scenarios; delete one that nobody needs"),
        )),
    }
}

/// The answer to a deletion of `what`.
///
/// # Errors
/// There is none, or another version is stored.
pub fn deleted(outcome: DeleteOutcome, what: &str) -> Result<HttpResponse, Problem> {
    match outcome {
        DeleteOutcome::Deleted => Ok(HttpResponse::NoContent().finish()),
        DeleteOutcome::NotFound => Err(Problem::not_found(what)),
        DeleteOutcome::VersionMismatch { stored } => Err(mismatch(stored)),
    }
}

/// Whether the caller has this version already (`If-None-Match`).
fn is_known(request: &HttpRequest, version: u32) -> bool {
    let Some(value) = request.headers().get(header::IF_NONE_MATCH) else {
        return false;
    };
    let tag = of(version);
    value
        .to_str()
        .unwrap_or_default()
        .split(',')
        .map(|part| part.trim().trim_start_matches("W/"))
        .any(|part| part == tag || part == "*")
}

/// The refusal of a write on another version than the stored one.
#[must_use]
pub fn mismatch(stored: u32) -> Problem {
    Problem::new(
        Code::VersionMismatch,
        format!("the stored version is {stored}; read it again and repeat the change on it"),
    )
    .param("If-Match")
}
