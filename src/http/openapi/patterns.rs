//! Patterns of texts.

/// Control characters but tabs and line breaks, for the inside of a character class.
pub(super) const CONTROLS: &str = r"\u0000-\u0008\u000B-\u001F\u007F-\u009F";

/// The pattern of a text that may be blank: no control characters but tabs and line breaks.
pub fn prose_pattern() -> String {
    format!(r"^([^{CONTROLS}]|\r\n)*$")
}
