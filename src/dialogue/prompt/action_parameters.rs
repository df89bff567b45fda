//! The arguments of an action as a list of parameters, for a line of a prompt.

use minijinja::{Value, context};
use serde_json::{Map, Value as Json};

use super::untrusted::escape_untrusted;

/// What a simple parameter may have in its schema. Other keywords restrict it in ways that a list does not say.
const SIMPLE_KEYWORDS: [&str; 7] = ["type", "enum", "const", "minimum", "maximum", "description", "title"];

/// Describes a schema whose parameters are texts, numbers, flags and listed values. `None`: the schema says more.
pub(crate) fn describe_parameters(schema: &Json) -> Option<Vec<Value>> {
    let schema = schema.as_object()?;
    let known_keywords = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "description",
        "title",
    ];
    if !schema.keys().all(|key| known_keywords.contains(&key.as_str())) {
        return None;
    }
    let required: Vec<&str> = match schema.get("required") {
        Some(names) => names.as_array()?.iter().filter_map(Json::as_str).collect(),
        None => Vec::new(),
    };
    let properties = schema.get("properties")?.as_object()?;
    if properties.is_empty() || !required.iter().all(|name| properties.contains_key(*name)) {
        return None;
    }
    let describe =
        |(name, schema): (&String, &Json)| describe_parameter(name, schema, !required.contains(&name.as_str()));
    properties.iter().map(describe).collect()
}

fn describe_parameter(name: &str, schema: &Json, optional: bool) -> Option<Value> {
    let schema = schema.as_object()?;
    if !schema.keys().all(|key| SIMPLE_KEYWORDS.contains(&key.as_str())) {
        return None;
    }
    let values: Vec<&Json> = match (schema.get("enum"), schema.get("const")) {
        (Some(listed), _) => listed.as_array()?.iter().collect(),
        (None, Some(only)) => vec![only],
        (None, None) => Vec::new(),
    };
    let values = values
        .into_iter()
        .map(describe_scalar)
        .collect::<Option<Vec<String>>>()?;
    let value_type = match schema.get("type").map(Json::as_str) {
        Some(Some("string")) => "text",
        Some(Some("number" | "integer")) => "number",
        Some(Some("boolean")) => "flag",
        None if !values.is_empty() => "text",
        _ => return None,
    };
    let bound = |key: &str| schema.get(key).map(ToString::to_string);
    let description = schema.get("description").and_then(Json::as_str).unwrap_or_default();
    Some(context! {
        name => escape_untrusted(name), optional, type => value_type, values, min => bound("minimum"), max => bound("maximum"),
        description => escape_untrusted(description),
    })
}

/// Returns a text, number or flag without quotes.
fn describe_scalar(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(escape_untrusted(text)),
        Json::Number(_) | Json::Bool(_) => Some(value.to_string()),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

/// Describes the arguments that an NPC chose: `room: west; count: 2`, or JSON if one of them is a list or an object.
pub(crate) fn describe_arguments(arguments: &Map<String, Json>) -> String {
    let scalars = arguments.iter().map(|(name, value)| {
        let value = describe_scalar(value)?;
        Some(format!("{}: {value}", escape_untrusted(name)))
    });
    match scalars.collect::<Option<Vec<String>>>() {
        Some(all) => all.join("; "),
        None => escape_untrusted(&Json::Object(arguments.clone()).to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn chosen_arguments_are_words_and_no_json() {
        let chosen = json!({"room": "west", "count": 2, "loud": true});
        assert_eq!(
            describe_arguments(chosen.as_object().unwrap()),
            "count: 2; loud: true; room: west"
        );
        let listed = json!({"rooms": ["west"]});
        assert_eq!(describe_arguments(listed.as_object().unwrap()), r#"{"rooms":("west")}"#);
    }
}
