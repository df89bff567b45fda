//! Extraction of JSON from a model's answer.

use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;

use colloquy_ports::redaction;

/// Parses the first JSON object in `text` that fits `T`.
///
/// Models wrap JSON in code fences, or write sentences before and after. The parser skips such text. It does not
/// repair the object itself.
///
/// # Errors
/// Text for a trace: there is no object, or the reason why the first object does not fit.
pub fn parse_json_answer<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut first_error = None;
    let mut start = 0;
    while let Some(open) = text[start..].find('{').map(|offset| start + offset) {
        let mut objects = serde_json::Deserializer::from_str(&text[open..]).into_iter::<Value>();
        let (parsed, consumed) = match objects.next() {
            Some(Ok(object)) => (T::deserialize(object), objects.byte_offset()),
            Some(Err(error)) => (Err(error), 1),
            None => (Err(serde_json::Error::custom("no object")), 1),
        };
        match parsed {
            Ok(answer) => return Ok(answer),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
        // A complete object that does not fit is skipped whole, because its parts are not the answer.
        start = open + consumed;
    }
    Err(first_error.map_or_else(
        || "the answer holds no JSON object".to_owned(),
        |error| {
            format!(
                "the answer's JSON does not fit: {}",
                redaction::describe_json_error(&error)
            )
        },
    ))
}

/// Returns the complete objects and texts of the array under `key`, in order, from a truncated or broken answer.
/// Stops at the first incomplete item. Empty without an array under `key`.
pub fn salvage_list(text: &str, key: &str) -> Vec<Value> {
    let name = format!("\"{key}\"");
    let array = text.match_indices(&name).find_map(|(offset, _)| {
        let rest = text[offset + name.len()..].trim_start().strip_prefix(':')?;
        rest.trim_start().strip_prefix('[')
    });
    let mut items = Vec::new();
    let mut rest = array.unwrap_or_default();
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if !rest.starts_with(['{', '"']) {
            return items;
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let Some(Ok(item)) = values.next() else {
            return items;
        };
        rest = &rest[values.byte_offset()..];
        items.push(item);
    }
}

/// Returns the text under `key` from a truncated answer: the whole text if closed, else its complete sentences.
/// `None` without such a text, or without a complete sentence.
pub fn salvage_sentences(text: &str, key: &str) -> Option<String> {
    let name = format!("\"{key}\"");
    let beginning = text.match_indices(&name).find_map(|(offset, _)| {
        let rest = text[offset + name.len()..].trim_start().strip_prefix(':')?;
        rest.trim_start().strip_prefix('"')
    })?;
    let mut escaped = false;
    let end = beginning.find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    let is_closed = end.is_some();
    let mut raw = beginning[..end.unwrap_or(beginning.len())].to_owned();
    // A truncated escape at the end is removed character by character.
    let decoded = loop {
        match serde_json::from_str::<String>(&format!("\"{raw}\"")) {
            Ok(decoded) => break decoded,
            Err(_) if raw.len() > 6 && !is_closed => drop(raw.pop()),
            Err(_) => return None,
        }
    };
    if is_closed {
        return Some(decoded);
    }
    let last = decoded.rfind(['.', '!', '?', '\u{3002}', '\u{2026}'])?;
    let end = decoded[last..].chars().next().map_or(0, char::len_utf8);
    Some(decoded[..last + end].trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct VerdictAnswer {
        verdict: String,
    }

    fn verdict(word: &str) -> VerdictAnswer {
        VerdictAnswer { verdict: word.into() }
    }

    #[test]
    fn truncated_summary_keeps_its_whole_sentences() {
        for (text, kept) in [
            (
                r#"{"summary": "They met. They spoke.", "import"#,
                Some("They met. They spoke."),
            ),
            (r#"{"summary": "They met. They spo"#, Some("They met.")),
            (
                r#"{"summary": "둘이 만났다. 서연은 꿀을 약속했다. 그리고 에르"#,
                Some("둘이 만났다. 서연은 꿀을 약속했다."),
            ),
            (r#"{"summary": "She said \"no\". Then \u00"#, Some("She said \"no\".")),
            (r#"{"summary": "They me"#, None),
            (r#"{"importance": 3"#, None),
            ("no JSON at all.", None),
        ] {
            assert_eq!(salvage_sentences(text, "summary").as_deref(), kept, "{text}");
        }
    }

    #[test]
    fn json_object_is_found_in_surrounding_text() {
        for text in [
            r#"{"verdict":"same"}"#,
            "```json\n{\"verdict\": \"same\"}\n```",
            "Sure! Here you go:\n```\n{\"verdict\":\"same\"}\n```\nAnything else?",
            r#"Comparing {A} with {B}: {"verdict":"same"}"#,
            r#"{"thought":{"verdict":"contradicts"}} {"verdict":"same"}"#,
            r#"판정: {"verdict":"same"} 입니다."#,
        ] {
            assert_eq!(parse_json_answer::<VerdictAnswer>(text), Ok(verdict("same")), "{text}");
        }
    }

    #[test]
    fn answer_mismatch_is_explained() {
        let none = parse_json_answer::<VerdictAnswer>("I would rather not.").unwrap_err();
        assert!(none.contains("no JSON object"), "{none}");
        let cut = parse_json_answer::<VerdictAnswer>(r#"{"verdict":"sa"#).unwrap_err();
        assert!(cut.contains("does not fit"), "{cut}");
        let other = parse_json_answer::<VerdictAnswer>(r#"{"answer":1}"#).unwrap_err();
        assert!(other.contains("verdict"), "{other}");
    }

    #[test]
    fn truncated_answer_yields_its_whole_entries() {
        let whole = r#"{ "facts": [{"a": "x, ]"}, {"b": {"c": []}}, {"d": 1}], "forget": []}"#;
        for (end, left) in [
            (whole.len(), 3),
            (whole.len() - 18, 2),
            (20, 0),
            (30, 1),
            (12, 0),
            (3, 0),
        ] {
            assert_eq!(salvage_list(&whole[..end], "facts").len(), left, "{}", &whole[..end]);
        }
        assert_eq!(salvage_list(whole, "facts")[1], serde_json::json!({"b": {"c": []}}));
        assert!(salvage_list("the \"facts\" are none", "facts").is_empty());
        // One list is broken; the other is intact.
        let broken = r#"{"facts": [{"a": 1}, {"b": ], "forget": ["the \"forget\": [x]", "y"]"#;
        assert_eq!(salvage_list(broken, "facts").len(), 1);
        assert_eq!(salvage_list(broken, "forget").len(), 2);
    }

    proptest! {
        #[test]
        fn answer_parser_finds_an_object_after_any_text_without_panic(before in "[^{]{0,40}", word in "[a-z\\\\\" 가-힣]{0,12}") {
            let json = serde_json::json!({ "verdict": word }).to_string();
            prop_assert_eq!(parse_json_answer::<VerdictAnswer>(&format!("{before}{json}")), Ok(verdict(&word)));
        }

        #[test]
        fn answer_parser_survives_any_text(text in "\\PC{0,200}") {
            let _ = parse_json_answer::<VerdictAnswer>(&text);
            let _ = salvage_list(&format!("\"facts\":[{text}"), "facts");
        }
    }
}
