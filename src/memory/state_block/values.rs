//! Readers of single values in a state block.

use super::flow::BlockValue;
use crate::text::is_ignorable;

pub(super) fn field_text(map: &[(String, BlockValue)], names: &[&str]) -> Option<String> {
    map.iter()
        .find(|(key, _)| names.contains(&key.as_str()))
        .and_then(|(_, value)| match value {
            BlockValue::Text(text) => Some(text.clone()),
            BlockValue::List(_) | BlockValue::Map(_) => None,
        })
}

/// One line, without control characters and invisible characters.
pub(super) fn clean_line(text: &str) -> String {
    let visible: String = text.chars().filter(|c| !is_ignorable(*c)).collect();
    visible
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

pub(super) fn clip_chars(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// True for a model's words for an empty value.
pub(super) fn is_nothing(text: &str) -> bool {
    matches!(
        text.trim().to_lowercase().as_str(),
        "" | "none" | "null" | "n/a" | "nothing" | "-" | "~" | "없음" | "없다" | "unchanged" | "변화 없음"
    )
}

pub(super) fn parse_flag(value: &BlockValue) -> Option<bool> {
    let BlockValue::Text(text) = value else { return None };
    match text.trim().to_lowercase().as_str() {
        "true" | "yes" | "1" | "예" | "네" => Some(true),
        "false" | "no" | "0" | "아니오" | "아니요" => Some(false),
        text if is_nothing(text) => Some(false),
        _ => None,
    }
}

/// `-15`, `+3`, `−2`, `-15 HP`, `2.6` (rounded). The number must come first.
#[expect(clippy::cast_possible_truncation, reason = "clamped to the range of i32 first")]
pub(super) fn whole_number(text: &str) -> Option<i32> {
    let number = exact_number(text)?;
    Some(number.round().clamp(f64::from(i32::MIN), f64::from(i32::MAX)) as i32)
}

/// As [`whole_number`], not rounded.
pub(super) fn exact_number(text: &str) -> Option<f64> {
    let text = text.trim().replace('−', "-");
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.')))
        .unwrap_or(text.len());
    let number: f64 = text[..end].trim_start_matches('+').parse().ok()?;
    number.is_finite().then_some(number)
}

/// `potion x2`, `potion (2)`, `물약 2개`; `2 potions` stays a name.
pub(super) fn parse_counted(text: &str) -> (String, i32) {
    let text = text.trim();
    if let Some((name, last)) = text.rsplit_once(' ') {
        let bare = last.trim_matches(['(', ')']);
        let digits = bare
            .trim_start_matches(['x', 'X', '×'])
            .trim_end_matches(['개', '병', '장', '자', '루']);
        let marked = digits.len() < last.len();
        if marked && !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()) {
            return (name.trim().to_owned(), digits.parse().unwrap_or(i32::MAX));
        }
    }
    (text.to_owned(), 1)
}
