//! Optimistic edits: an object's `version` is its strong `ETag`, and `If-Match` makes a write conditional.

use actix_web::{HttpRequest, HttpResponse, http::header};
use serde::Serialize;

use super::errors::{Code, Problem};
use colloquy_ports::ledger::authored::DeleteOutcome;
pub use colloquy_ports::ledger::authored::PutOutcome;

/// The entity tag of a version.
#[must_use]
pub fn etag_of(version: u32) -> String {
    format!("\"{version}\"")
}

/// The condition of a write on the stored version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMatch {
    /// No header: no condition.
    Unconditional,
    /// `*`: the object must exist.
    MustExist,
    /// The stored version must equal this version.
    Version(u32),
    /// `If-None-Match: *`: the object must not exist. Only for a PUT.
    MustNotExist,
}

impl IfMatch {
    /// Reads `If-Match`.
    ///
    /// # Errors
    /// `version_mismatch` for an entity tag in another form, which can never match. `malformed_request` for a value
    /// that is no entity tag.
    pub fn from_request(request: &HttpRequest) -> Result<Self, Problem> {
        let Some(if_match) = request.headers().get(header::IF_MATCH) else {
            return Ok(Self::Unconditional);
        };
        let text = if_match.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Self::MustExist);
        }
        let refusal =
            |code| Problem::new(code, "If-Match must be one ETag of this object, or *").with_param("If-Match");
        if request.headers().get_all(header::IF_MATCH).nth(1).is_some() {
            return Err(refusal(Code::MalformedRequest));
        }
        // A weak tag is a valid tag, but never matches here (RFC 9110, 13.1.1).
        let (weak, tag) = text.strip_prefix("W/").map_or((false, text), |tag| (true, tag));
        let opaque = tag
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .filter(|opaque| !opaque.contains('"'))
            .ok_or_else(|| refusal(Code::MalformedRequest))?;
        match opaque.parse() {
            // No object is ever stored as version 0.
            Ok(version @ 1..) if !weak => Ok(Self::Version(version)),
            _ => Err(refusal(Code::VersionMismatch)),
        }
    }
    /// Reads `If-Match`, or `If-None-Match: *`, of a PUT.
    ///
    /// # Errors
    /// As [`Self::from_request`]. Also if both headers are present, or `If-None-Match` names versions.
    pub fn from_put_request(request: &HttpRequest) -> Result<Self, Problem> {
        let if_match = Self::from_request(request)?;
        let Some(if_none_match) = request.headers().get(header::IF_NONE_MATCH) else {
            return Ok(if_match);
        };
        let refusal = |detail| Problem::new(Code::MalformedRequest, detail).with_param("If-None-Match");
        if if_none_match.to_str().unwrap_or_default().trim() != "*" {
            return Err(refusal("If-None-Match of a put must be *"));
        }
        if if_match != Self::Unconditional {
            return Err(refusal("If-None-Match does not go together with If-Match"));
        }
        Ok(Self::MustNotExist)
    }
    /// The required version, for stores; 0: the object must not exist.
    #[must_use]
    pub const fn expected_version(self) -> Option<u32> {
        match self {
            Self::Version(version) => Some(version),
            Self::MustNotExist => Some(0),
            Self::Unconditional | Self::MustExist => None,
        }
    }
    /// The error for a write on another version than `stored_version`.
    #[must_use]
    pub fn mismatch_error(self, stored_version: u32) -> Problem {
        if self == Self::MustNotExist {
            let detail = format!("it exists already, as version {stored_version}");
            return Problem::new(Code::VersionMismatch, detail).with_param("If-None-Match");
        }
        version_mismatch_error(stored_version)
    }
}

/// Answers with an object and its tag, or 304 if the client already has this version.
pub fn respond_found(request: &HttpRequest, version: u32, view: &impl Serialize) -> HttpResponse {
    if is_known_version(request, version) {
        return HttpResponse::NotModified().finish();
    }
    HttpResponse::Ok()
        .insert_header((header::ETAG, etag_of(version)))
        .json(view)
}

/// Answers a PUT with the current object, and its location if the object was created.
pub fn respond_stored(created: bool, location: &str, version: u32, view: &impl Serialize) -> HttpResponse {
    let mut response = if created {
        HttpResponse::Created()
    } else {
        HttpResponse::Ok()
    };
    if created {
        response.insert_header((header::LOCATION, location));
    }
    response.insert_header((header::ETAG, etag_of(version))).json(view)
}

/// True if a PUT created the object.
///
/// # Errors
/// The PUT wrote nothing: another version is stored, or `parent` is missing.
pub fn created_by_put(outcome: PutOutcome, if_match: IfMatch, parent: &str) -> Result<bool, Problem> {
    match outcome {
        PutOutcome::Created => Ok(true),
        PutOutcome::Updated { .. } => Ok(false),
        PutOutcome::VersionMismatch { stored } => Err(if_match.mismatch_error(stored)),
        PutOutcome::NoParent => Err(Problem::not_found(parent)),
        PutOutcome::Full { most: max } => Err(match parent {
            "NPC" => Problem::new(
                Code::TooManyScenarios,
                format!("an NPC may have {max} scenarios; delete one that nobody needs"),
            ),
            _ => too_much_lore_error(max),
        }),
    }
}

/// The error for a world that has as many lore entries as it may.
pub fn too_much_lore_error(max: u32) -> Problem {
    let detail = format!("a world may have {max} lore entries; delete some that nobody needs");
    Problem::new(Code::TooManyLoreEntries, detail)
}

/// Answers a deletion of an object of the kind `object_kind`.
///
/// # Errors
/// The object does not exist, or another version is stored.
pub fn respond_deleted(outcome: DeleteOutcome, object_kind: &str) -> Result<HttpResponse, Problem> {
    match outcome {
        DeleteOutcome::Deleted => Ok(HttpResponse::NoContent().finish()),
        DeleteOutcome::NotFound => Err(Problem::not_found(object_kind)),
        DeleteOutcome::VersionMismatch { stored } => Err(version_mismatch_error(stored)),
    }
}

/// True if the client already has this version (`If-None-Match`).
fn is_known_version(request: &HttpRequest, version: u32) -> bool {
    let Some(if_none_match) = request.headers().get(header::IF_NONE_MATCH) else {
        return false;
    };
    let tag = etag_of(version);
    if_none_match
        .to_str()
        .unwrap_or_default()
        .split(',')
        .map(|part| part.trim().trim_start_matches("W/"))
        .any(|part| part == tag || part == "*")
}

/// The error for a write on another version than the stored version.
#[must_use]
pub fn version_mismatch_error(stored_version: u32) -> Problem {
    Problem::new(
        Code::VersionMismatch,
        format!("the stored version is {stored_version}; read it again and repeat the change on it"),
    )
    .with_param("If-Match")
}
