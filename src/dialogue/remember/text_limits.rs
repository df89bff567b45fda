//! Limits of the texts that a model answers, and the reading of its numbers.

use serde_json::Value;

use colloquy_memory::text::is_ignorable;

/// Limits in characters. A longer text is a paragraph and not a fact.
pub(super) const MAX_CONTENT_CHARS: usize = 500;
pub(super) const MAX_PART_CHARS: usize = 120;
pub(super) const MAX_KEYWORD_CHARS: usize = 40;
pub(super) const MAX_KEYWORDS: usize = 16;

/// Parses a number, or a text with a number.
pub(crate) fn parse_number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Returns the text trimmed, on one line, without invisible characters. `None`: empty, or longer than `max` characters.
pub(super) fn bounded_text(text: Option<&str>, max: usize) -> Option<String> {
    let visible: String = text?.chars().filter(|c| !is_ignorable(*c)).collect();
    let text = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty() && text.chars().count() <= max).then_some(text)
}

pub(super) fn distinct_keywords(keywords: Vec<String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for keyword in keywords {
        if distinct.len() < MAX_KEYWORDS && !distinct.iter().any(|other| other.eq_ignore_ascii_case(&keyword)) {
            distinct.push(keyword);
        }
    }
    distinct
}
