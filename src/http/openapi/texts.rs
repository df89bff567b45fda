//! The rules of texts in request bodies, as patterns. They are as strict as the server, except for characters that
//! nobody sees: no pattern that every program reads can name them all.

use serde_json::{Value, json};

use super::{
    parameters::is_free_text,
    patterns::{CONTROLS, prose_pattern},
};

/// Control characters and line breaks.
const CONTROLS_AND_BREAKS: &str = r"\u0000-\u001F\u007F-\u009F\u2028\u2029";
/// A kind of relationship.
const RELATIONSHIP_KIND: &str = "^[A-Za-z0-9_ -]*[A-Za-z0-9_-][A-Za-z0-9_ -]*$";

/// Texts of one line.
const LINES: [&str; 10] = [
    "group",
    "model",
    "name",
    "object",
    "place",
    "predicate",
    "reason",
    "subject",
    "title",
    "year_label",
];
/// Lists of texts of one line, with the most characters of a text.
const LISTS: [(&str, u32); 16] = [
    ("aliases", 64),
    ("boundaries", 200),
    ("characters", 64),
    ("cues", 32),
    ("fails_if", 100),
    ("instructions", 100),
    ("items", 64),
    ("keywords", 64),
    ("moods", 32),
    ("places", 64),
    ("relationship_kinds", 32),
    ("rules", 200),
    ("statuses", 32),
    ("synonyms", 64),
    ("values", 32),
    ("weekdays", 32),
];
/// Texts that may be blank, although they have a least length.
const KEYS: [&str; 2] = ["jti", "key"];

/// The pattern of a text that is not blank.
fn text_pattern() -> String {
    format!(r"^([^\S{CONTROLS}]|\r\n)*[^\s{CONTROLS}]([^{CONTROLS}]|\r\n)*$")
}

/// The pattern of a text of one line that is not blank.
fn line_pattern() -> String {
    format!("^[^{CONTROLS_AND_BREAKS}]*[^\\s{CONTROLS_AND_BREAKS}][^{CONTROLS_AND_BREAKS}]*$")
}

/// Adds the rules of texts to a schema and its parts. `name` is the name of the field with the schema.
pub fn complete_texts(name: &str, schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        complete_list(name, property);
        complete_map(name, property);
        complete_texts(name, property);
    }
    for part in ["items", "additionalProperties"] {
        if let Some(part) = fields.get_mut(part) {
            complete_texts(name, part);
        }
    }
    for part in ["oneOf", "allOf"] {
        let choices = fields.get_mut(part).and_then(Value::as_array_mut);
        for choice in choices.into_iter().flatten() {
            complete_texts(name, choice);
        }
    }
    if is_free_text(schema) {
        let may_be_blank = schema.get("minLength").is_none() || KEYS.contains(&name);
        let pattern = match (may_be_blank, LINES.contains(&name)) {
            (true, _) => prose_pattern(),
            (false, true) => line_pattern(),
            (false, false) => text_pattern(),
        };
        schema["pattern"] = json!(pattern);
    }
}

/// Adds the rules of the texts in a list.
fn complete_list(name: &str, property: &mut Value) {
    let Some((_, longest)) = LISTS.iter().find(|(list, _)| *list == name) else {
        return;
    };
    let Some(items) = property.get_mut("items").filter(|items| is_free_text(items)) else {
        return;
    };
    *items = line_schema(*longest);
    if name == "relationship_kinds" {
        items["pattern"] = json!(RELATIONSHIP_KIND);
    }
}

/// Adds the rules of the names in a map, and of its values.
fn complete_map(name: &str, property: &mut Value) {
    // A list elsewhere has the same name.
    if property.get("additionalProperties").is_none() {
        return;
    }
    let (max_entries, longest) = match name {
        "adjacent" | "changed_by" => (500, 64),
        "synonyms" => (200, 32),
        "facts_d" => {
            property["propertyNames"] = json!({"$ref": "#/components/schemas/FactKind"});
            property["additionalProperties"]["maximum"] = json!(36_500);
            return;
        }
        _ => return,
    };
    let text = line_schema(longest);
    match name {
        "adjacent" => property["additionalProperties"] = json!({"type": "array", "maxItems": 50, "items": text}),
        "synonyms" => property["additionalProperties"] = text.clone(),
        _ => {}
    }
    property["maxProperties"] = json!(max_entries);
    property["propertyNames"] = text;
}

/// The schema of a text of one line.
fn line_schema(longest: u32) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": longest, "pattern": line_pattern()})
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use regex::Regex;

    use super::{
        super::{bodies::collect_properties, document},
        *,
    };
    use colloquy_memory::text::{TextError, check_label, check_prose, check_visible};

    #[test]
    fn patterns_of_texts_agree_with_the_checks() {
        let [prose, text, line] =
            [prose_pattern(), text_pattern(), line_pattern()].map(|pattern| Regex::new(&pattern).unwrap());
        for c in '\0'..='\u{2fff}' {
            let among = format!("a{c}b");
            let is_prose = check_prose(&among).is_ok();
            assert_eq!(
                (prose.is_match(&among), text.is_match(&among)),
                (is_prose, is_prose),
                "{c:?}"
            );
            let is_line = !matches!(check_label(&among), Err(TextError::Lines | TextError::Control(_)));
            assert_eq!(line.is_match(&among), is_line, "{c:?}");
            let alone = c.to_string();
            if is_prose && check_visible(&alone).is_ok() {
                assert!(text.is_match(&alone) && line.is_match(&alone), "{c:?}");
            }
        }
        assert!(prose.is_match("") && prose.is_match("one\ntwo\r\n\tthree") && text.is_match(" \r\n\ta \r\n "));
        for blank in ["", " ", "\t\r\n", "\u{a0}\u{3000}"] {
            assert!(!text.is_match(blank) && !line.is_match(blank), "{blank:?}");
        }
    }

    #[test]
    fn fields_with_rules_exist() {
        let mut names = BTreeSet::new();
        collect_properties(&document()["components"]["schemas"], &mut names);
        let lists = LISTS.iter().map(|(list, _)| list);
        for name in LINES.iter().chain(lists).chain(&KEYS) {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn bodies_state_the_rules_of_their_texts() {
        let schemas = &document()["components"]["schemas"];
        for (body, field, pattern) in [
            ("SaveBody", "/properties/name", line_pattern()),
            ("FactBody", "/properties/content", text_pattern()),
            ("FactBody", "/properties/keywords/items", line_pattern()),
            ("WorldBody", "/properties/premise", prose_pattern()),
            ("RevokeRequest", "/properties/jti", prose_pattern()),
            ("Condition", "/oneOf/0/properties/item", text_pattern()),
        ] {
            let stated = &schemas[body].pointer(field).unwrap()["pattern"];
            assert_eq!(stated, &pattern, "{body}{field}");
        }
        assert!(schemas["LoreView"]["properties"]["name"].get("pattern").is_none());
        let settings = &schemas["WorldBody"]["properties"]["settings"]["properties"];
        assert_eq!(settings["relationship_kinds"]["items"]["pattern"], RELATIONSHIP_KIND);
        assert_eq!(settings["adjacent"]["propertyNames"], line_schema(64));
        assert_eq!(settings["adjacent"]["additionalProperties"]["items"], line_schema(64));
        assert_eq!(settings["synonyms"]["additionalProperties"], line_schema(32));
        let scenario = &schemas["ScenarioBody"]["properties"];
        assert_eq!(scenario["synonyms"]["items"], line_schema(64));
    }
}
