//! Optimistic edits: an object's `version` is its strong `ETag`; `If-Match` makes a write conditional.

use actix_web::{HttpRequest, HttpResponse, http::header};
use serde::Serialize;

use super::errors::{Code, Problem};
use crate::ports::ledger::authored::PutOutcome;

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
        // A weak tag is a tag, and never matches here (RFC 9110, 13.1.1).
        let (weak, tag) = text.strip_prefix("W/").map_or((false, text), |tag| (true, tag));
        let opaque = tag
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .filter(|opaque| !opaque.contains('"'))
            .ok_or_else(|| refused(Code::MalformedRequest))?;
        match opaque.parse() {
            Ok(version) if !weak => Ok(Self::Version(version)),
            _ => Err(refused(Code::VersionMismatch)),
        }
    }
    /// The version to demand, for stores.
    #[must_use]
    pub const fn version(self) -> Option<u32> {
        match self {
            Self::Version(version) => Some(version),
            Self::Whatever | Self::Exists => None,
        }
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
pub fn is_new(outcome: PutOutcome, parent: &str) -> Result<bool, Problem> {
    match outcome {
        PutOutcome::Created => Ok(true),
        PutOutcome::Updated { .. } => Ok(false),
        PutOutcome::VersionMismatch { stored } => Err(mismatch(stored)),
        PutOutcome::NoParent => Err(Problem::not_found(parent)),
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
