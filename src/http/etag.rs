//! Optimistic edits: an object's `version` is its strong `ETag`; `If-Match` makes a write conditional.

use actix_web::{HttpRequest, http::header};

use super::errors::{Code, Problem};

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
    /// A tag that is none of ours cannot match, so it is `version_mismatch` at once.
    pub fn of(request: &HttpRequest) -> Result<Self, Problem> {
        let Some(value) = request.headers().get(header::IF_MATCH) else {
            return Ok(Self::Whatever);
        };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Self::Exists);
        }
        text.strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .and_then(|version| version.parse().ok())
            .map(Self::Version)
            .ok_or_else(|| {
                Problem::new(Code::VersionMismatch, "If-Match must be one ETag of this object, or *").param("If-Match")
            })
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

/// Whether the caller has this version already (`If-None-Match`).
#[must_use]
pub fn is_known(request: &HttpRequest, version: u32) -> bool {
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
