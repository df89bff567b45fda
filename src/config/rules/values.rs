//! Rules of single values.

use reqwest::Url;

/// The shortest HS256 key, in bytes. RFC 7518 §3.2: the key has at least as many bits as the hash.
pub(super) const MIN_SECRET_BYTES: usize = 32;

pub(super) fn is_http(url: &str) -> bool {
    url.strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))
        .is_some_and(|rest| !rest.starts_with('/'))
        && Url::parse(url).is_ok()
}
