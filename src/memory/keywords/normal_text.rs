//! Texts in the form in which they are compared.

use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfkc_quick};

/// The form for comparing texts: NFKC, lower case.
#[must_use]
pub fn normalise_text(text: &str) -> String {
    if is_nfkc_quick(text.chars()) == IsNormalized::Yes {
        text.to_lowercase()
    } else {
        text.nfkc().collect::<String>().to_lowercase()
    }
}
