//! The rules of `memory::text` for client input: for every string of a body or a query, and stricter rules for some
//! fields.

use serde_json::Value;

use super::faults::{ValidationFaults, truncate_name};
use colloquy_memory::text::{self, TextError};

/// For `#[garde(custom(one_line_label))]`: one visible line.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
pub fn one_line_label<T: AsRef<str> + ?Sized>(text: &T, (): &()) -> garde::Result {
    to_garde_result(text::check_label(text.as_ref()))
}

/// For `#[garde(custom(display_name))]`: a label without invisible characters.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
pub fn display_name<T: AsRef<str> + ?Sized>(text: &T, (): &()) -> garde::Result {
    to_garde_result(text::check_name(text.as_ref()))
}

/// For `#[garde(custom(display_name_with_emoji))]`: as `display_name`, but emoji sequences are allowed.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
pub fn display_name_with_emoji<T: AsRef<str> + ?Sized>(text: &T, (): &()) -> garde::Result {
    to_garde_result(text::check_name_with_emoji(text.as_ref()))
}

/// For `#[garde(custom(visible_text))]`: not blank.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
pub fn visible_text<T: AsRef<str> + ?Sized>(text: &T, (): &()) -> garde::Result {
    to_garde_result(text::check_visible(text.as_ref()))
}

fn to_garde_result(checked: Result<(), TextError>) -> garde::Result {
    checked.map_err(|fault| garde::Error::new(fault.to_string()))
}

/// Finds every string of a JSON text with control characters, by the path of its field.
pub(super) fn control_characters(raw: &[u8]) -> ValidationFaults {
    let mut faults = ValidationFaults::default();
    if may_have_controls(raw)
        && let Ok(value) = serde_json::from_slice::<Value>(raw)
    {
        walk_strings(&value, "", &mut faults);
    }
    faults
}

/// True if a second parse is needed. JSON escapes most control characters; characters beyond ASCII need no escape.
fn may_have_controls(raw: &[u8]) -> bool {
    raw.iter().enumerate().any(|(index, byte)| {
        let rest = &raw[index + 1..];
        match byte {
            b'\\' => matches!(rest, [b'b' | b'f' | b'r', ..] | [b'u', b'0', b'0', ..]),
            0x7f => true,
            0xc2 => matches!(rest, [0x80..=0x9f, ..]),
            _ => false,
        }
    })
}

fn walk_strings(value: &Value, path: &str, faults: &mut ValidationFaults) {
    match value {
        Value::String(text) => {
            if let Err(fault) = text::check_prose(text) {
                faults.push(path, || fault.to_string());
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk_strings(item, &format!("{path}[{index}]"), faults);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = truncate_name(name);
                if path.is_empty() {
                    walk_strings(field, name, faults);
                } else {
                    walk_strings(field, &format!("{path}.{name}"), faults);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use garde::Validate;
    use serde::Deserialize;
    use utoipa::ToSchema;

    use crate::validate::{self, one_line_label};

    #[derive(Debug, Deserialize, Validate, ToSchema)]
    #[garde(allow_unvalidated)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct SampleText {
        #[garde(length(chars, max = 5), custom(one_line_label))]
        name: String,
        #[serde(default)]
        #[garde(inner(custom(one_line_label)))]
        tags: Vec<String>,
        #[serde(default)]
        text: String,
    }

    fn told(text: &str) -> Vec<String> {
        let problem = validate::read_json::<SampleText>(text.as_bytes()).unwrap_err();
        let fault = |one: crate::errors::FieldError| format!("{}: {}", one.param, one.detail);
        problem.errors.into_iter().map(fault).collect()
    }

    #[test]
    fn control_characters_are_named_once_with_their_field() {
        for (escaped, code) in [
            (r"\u0000", "U+0000"),
            (r"\b", "U+0008"),
            (r"\f", "U+000C"),
            (r"\r", "U+000D"),
            (r"\u001B", "U+001B"),
            (r"\u007f", "U+007F"),
            ("\u{7f}", "U+007F"),
            (r"\u0085", "U+0085"),
            ("\u{9b}", "U+009B"),
        ] {
            let body = format!(r#"{{"name":"a","text":"x{escaped}"}}"#);
            assert_eq!(told(&body), [format!("text: has the control character {code}")]);
        }
        assert_eq!(
            told(r#"{"name":"a\u0000","tags":["ok","b\nc","\u200b"]}"#),
            [
                "name: has the control character U+0000",
                "tags[1]: must be one line",
                "tags[2]: has nothing that can be seen"
            ]
        );
        assert_eq!(told(r#"{"name":" "}"#), ["name: has nothing that can be seen"]);
    }

    #[test]
    fn lines_tabs_and_all_scripts_are_accepted() {
        let body = r#"{"name":"\uc5d0르","text":"one\ntwo\r\n\tthree \ud83d\ude00 \\u0000"}"#;
        let sample = validate::read_json::<SampleText>(body.as_bytes()).unwrap();
        assert_eq!(sample.text, "one\ntwo\r\n\tthree 😀 \\u0000");
    }
}
