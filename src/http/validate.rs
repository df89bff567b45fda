//! Reads bodies and queries, and explains all faults of invalid input. The explanations come from the schemas of the
//! OpenAPI document. Serde's messages are written for programmers, so they are the last resort.

mod action_rules;
mod faults;
mod query;
mod state_rules;
mod text;

use garde::Validate;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use self::faults::{ValidationFaults, truncate_name};
pub use self::{
    action_rules::action_rules,
    query::parse_query,
    state_rules::{attribute_rules, changed_names, clock_settings, place_links},
    text::{display_name, display_name_with_emoji, one_line_label, visible_text},
};
use super::errors::{Code, FieldError, Problem};

/// Reads a JSON object, without unknown fields and valid.
///
/// # Errors
/// Every fault, with the name of its field.
pub fn read_json<T>(raw: &[u8]) -> Result<T, Problem>
where
    T: DeserializeOwned + Validate + ToSchema,
    T::Context: Default,
{
    let value: T = serde_json::from_slice(raw).map_err(|error| explain_refusal::<T>(raw, &error))?;
    // Serde's derived readers also accept an array with the fields in order.
    if raw.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Problem::invalid_field("body", "must be object, not array"));
    }
    // Control characters first: no field may contain them, regardless of its own rules.
    let mut faults = text::control_characters(raw);
    collect_rule_faults(&value, &mut faults);
    if faults.first_faults.is_empty() {
        Ok(value)
    } else {
        Err(faults.into_problem())
    }
}

/// Checks the rules of a value.
///
/// # Errors
/// Every broken rule, with the name of its field.
pub fn check_rules<T>(value: &T) -> Result<(), Problem>
where
    T: Validate,
    T::Context: Default,
{
    let mut faults = ValidationFaults::default();
    collect_rule_faults(value, &mut faults);
    if faults.first_faults.is_empty() {
        Ok(())
    } else {
        Err(faults.into_problem())
    }
}

/// Collects the broken rules of a value, except the rules already reported.
fn collect_rule_faults<T>(value: &T, faults: &mut ValidationFaults)
where
    T: Validate,
    T::Context: Default,
{
    let Err(report) = value.validate() else { return };
    for (path, error) in report.iter() {
        let path = path.to_string();
        let message = error.message();
        if !faults
            .first_faults
            .iter()
            .any(|fault| fault.param == path && fault.detail == message)
        {
            faults.push(&path, || message.to_string());
        }
    }
}

/// Explains why serde refused a body with `error`.
fn explain_refusal<T>(raw: &[u8], error: &serde_json::Error) -> Problem
where
    T: DeserializeOwned + Validate + ToSchema,
    T::Context: Default,
{
    let Ok(body) = serde_json::from_slice::<Value>(raw) else {
        return Problem::new(Code::MalformedJson, format!("the body is not JSON: {error}"));
    };
    let mut schemas = Vec::new();
    T::schemas(&mut schemas);
    let components: Map<String, Value> = schemas
        .into_iter()
        .filter_map(|(name, schema)| Some((name, serde_json::to_value(schema).ok()?)))
        .collect();
    let schema = serde_json::to_value(T::schema()).unwrap_or_default();
    let mut faults = schema_faults(&schema, &components, &body);
    if faults.first_faults.is_empty() {
        return beyond_schema::<T>(&body);
    }
    faults.append(text::control_characters(raw));
    check_remaining_fields::<T>(&body, &mut faults);
    faults.into_problem()
}

/// Checks the fields without schema faults, read without the faulty fields. If a required field is missing then, the
/// schema's faults are the final result.
fn check_remaining_fields<T>(body: &Value, faults: &mut ValidationFaults)
where
    T: DeserializeOwned + Validate,
    T::Context: Default,
{
    if faults.further_count > 0 {
        // Some faulty fields are not known by name.
        return;
    }
    let mut remaining_body = body.clone();
    let Some(fields) = remaining_body.as_object_mut() else {
        return;
    };
    let guilty = |name: &str| {
        let name = truncate_name(name);
        faults.first_faults.iter().any(|fault| {
            let suffix = fault.param.strip_prefix(name);
            suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with(['.', '[']))
        })
    };
    fields.retain(|name, _| !guilty(name));
    match serde_json::from_value::<T>(remaining_body.clone()) {
        Ok(value) => collect_rule_faults(&value, faults),
        Err(error) if error.to_string().starts_with("missing field") => {}
        Err(_) => {
            for fault in beyond_schema::<T>(&remaining_body).errors {
                let FieldError { param, detail } = fault;
                faults.push(&param, || detail);
            }
        }
    }
}

/// Explains a fault that the schema cannot express, such as an invalid id. The field at fault is the field without
/// which the reader accepts the body or reports another fault.
fn beyond_schema<T: DeserializeOwned>(body: &Value) -> Problem {
    let refusal = |body: Value| serde_json::from_value::<T>(body).err().map(|error| error.to_string());
    let Some(text) = refusal(body.clone()) else {
        // Only repeated fields are lost in the conversion to a value.
        return Problem::invalid_field("body", "has a field more than once");
    };
    let mut fields = body.as_object().into_iter().flat_map(Map::keys);
    let guilty = fields.find(|name| {
        let mut shortened_body = body.clone();
        shortened_body
            .as_object_mut()
            .map(|fields| fields.remove(name.as_str()));
        refusal(shortened_body).is_none_or(|text_of_rest| text_of_rest != text)
    });
    match guilty {
        Some(name) => Problem::invalid_field(truncate_name(name), text),
        None => Problem::invalid_field("body", text),
    }
}

/// Collects all parts of `value` that `schema` does not allow. Supports the schema features of these documents:
/// - references, types, required and unknown fields, enumerations, constants;
/// - patterns, ranges, lengths, items and choices.
pub fn schema_faults(schema: &Value, components: &Map<String, Value>, value: &Value) -> ValidationFaults {
    let mut faults = ValidationFaults::default();
    walk_schema(schema, value, "", components, &mut faults);
    faults
}

/// The first name between backticks, as serde writes field names.
fn first_quoted_name(text: &str) -> Option<String> {
    let name = text.split('`').nth(1)?;
    (!name.is_empty()).then(|| name.to_owned())
}

fn walk_schema(
    schema: &Value,
    value: &Value,
    path: &str,
    components: &Map<String, Value>,
    faults: &mut ValidationFaults,
) {
    if let Some(name) = schema["$ref"].as_str().and_then(|text| text.rsplit('/').next()) {
        if let Some(target) = components.get(name) {
            walk_schema(target, value, path, components, faults);
        }
        return;
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        walk_schema(part, value, path, components, faults);
    }
    if let Some(choices) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
        walk_choice(choices, value, path, components, faults);
        return;
    }
    let mut report = |detail: String| faults.push(path, || detail);
    if let Some(expected_type) = wrong_type(&schema["type"], value) {
        report(format!("must be {expected_type}, not {}", json_type_name(value)));
        return;
    }
    if let Some(allowed_values) = schema["enum"].as_array()
        && !value.is_null()
        && !allowed_values.contains(value)
    {
        let names: Vec<_> = allowed_values.iter().map(ToString::to_string).collect();
        report(format!("must be one of {}", names.join(", ")));
        return;
    }
    if !schema["const"].is_null() && schema["const"] != *value {
        report(format!("must be {}", schema["const"]));
        return;
    }
    let outside =
        |number: f64, low: &str, high: &str| outside_bounds(number, schema[low].as_f64(), schema[high].as_f64());
    match value {
        Value::String(text) => {
            if let Some(excess) = outside(count_items(text.chars()), "minLength", "maxLength") {
                report(format!("length is {excess}"));
            }
            if let Some(pattern) = schema["pattern"].as_str()
                && regex::Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text))
            {
                report(format!("must match {pattern}"));
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if let Some(excess) = outside(number, "minimum", "maximum") {
                report(excess);
            }
        }
        Value::Object(fields) => walk_object(schema, fields, path, components, faults),
        Value::Array(items) => {
            if let Some(excess) = outside(count_items(items.iter()), "minItems", "maxItems") {
                report(format!("length is {excess}"));
            }
            // A list that is too long may have as many items as the body has bytes.
            let max_items = schema["maxItems"]
                .as_u64()
                .and_then(|count| usize::try_from(count).ok());
            let checked_items = items.iter().take(max_items.unwrap_or(usize::MAX));
            for (index, item) in checked_items.enumerate().filter(|_| schema["items"].is_object()) {
                walk_schema(&schema["items"], item, &format!("{path}[{index}]"), components, faults);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Explains a number out of bounds, in the words of the rules for readable bodies.
fn outside_bounds(number: f64, low: Option<f64>, high: Option<f64>) -> Option<String> {
    match (low, high) {
        (Some(low), _) if number < low => Some(format!("lower than {low}")),
        (_, Some(high)) if number > high => Some(format!("greater than {high}")),
        _ => None,
    }
}

/// Counts items; a body has far fewer items than a double can count.
fn count_items(items: impl Iterator) -> f64 {
    u32::try_from(items.count()).map_or(f64::INFINITY, f64::from)
}

/// Checks a choice between shapes: valid if one shape fits. Explained only if the intended shape is clear.
fn walk_choice(
    choices: &[Value],
    value: &Value,
    path: &str,
    components: &Map<String, Value>,
    faults: &mut ValidationFaults,
) {
    let mut reasons = Vec::new();
    for choice in choices {
        let mut choice_faults = ValidationFaults::default();
        walk_schema(choice, value, path, components, &mut choice_faults);
        if choice_faults.first_faults.is_empty() {
            return;
        }
        if choice["type"] != "null" {
            reasons.push(choice_faults);
        }
    }
    match reasons.len() {
        1 => faults.append(reasons.remove(0)),
        _ => faults.push(path, || "fits none of the documented shapes".to_owned()),
    }
}

fn walk_object(
    schema: &Value,
    fields: &Map<String, Value>,
    path: &str,
    components: &Map<String, Value>,
    faults: &mut ValidationFaults,
) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    let join = |name: &str| {
        let name = truncate_name(name);
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !fields.contains_key(name) {
            faults.push(&join(name), || "is missing".to_owned());
        }
    }
    for (name, value) in fields {
        match properties.get(name) {
            Some(property) => walk_schema(property, value, &join(name), components, faults),
            None if schema["additionalProperties"] == Value::Bool(false) => {
                faults.push(&join(name), || "unknown field".to_owned());
            }
            None => {}
        }
    }
}

/// Names the expected types if `value` has the wrong type.
fn wrong_type(types: &Value, value: &Value) -> Option<String> {
    let type_names: Vec<&str> = match types {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let fits = type_names.iter().any(|kind| match *kind {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => other == json_type_name(value),
    });
    (!fits).then(|| type_names.join(" or "))
}

fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use colloquy_actors::OnBusy;
    use colloquy_core::ids::{DialogueId, WorldId};

    #[derive(Debug, Deserialize, Validate, ToSchema)]
    #[garde(allow_unvalidated)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct SampleBody {
        #[schema(value_type = String, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
        world_id: WorldId,
        count: u32,
        #[serde(default)]
        on_busy: OnBusy,
        inner: Option<NestedSample>,
        /// The schema does not describe the form of the id.
        #[schema(value_type = Option<String>)]
        session_id: Option<DialogueId>,
        #[garde(range(min = 1, max = 10))]
        #[schema(minimum = 1, maximum = 10)]
        level: Option<u8>,
        #[serde(default)]
        #[garde(inner(length(max = 1)))]
        #[schema(max_items = 2)]
        tags: Vec<String>,
    }
    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct NestedSample {
        names: Vec<String>,
    }

    fn explain_sample(text: &str) -> Vec<(String, String)> {
        read_json::<SampleBody>(text.as_bytes())
            .unwrap_err()
            .errors
            .into_iter()
            .map(|error| (error.param, error.detail))
            .collect()
    }

    #[test]
    fn invalid_fields_are_all_named() {
        let faults = explain_sample(
            r#"{"world_id":"Vale!","on_busy":"shout","inner":{"names":["a",5],"extra":1},"colour":"red"}"#,
        );
        let params: Vec<_> = faults.iter().map(|(param, _)| param.as_str()).collect();
        for expected in [
            "world_id",
            "count",
            "on_busy",
            "inner.names[1]",
            "inner.extra",
            "colour",
        ] {
            assert!(params.contains(&expected), "{expected} is not in {faults:?}");
        }
        assert_eq!(faults.len(), 6, "{faults:?}");
    }

    #[test]
    fn rules_are_checked_beside_the_shape() {
        let details = |text: &str| {
            let faults = explain_sample(text);
            faults
                .into_iter()
                .map(|(param, detail)| format!("{param}: {detail}"))
                .collect::<Vec<_>>()
        };
        let long = r#""tags":["too long"]"#;
        let all = details(&format!(
            r#"{{"world_id":"vale","count":1,"level":99,"bogus":1,{long}}}"#
        ));
        assert_eq!(
            all,
            [
                "bogus: unknown field",
                "level: greater than 10",
                "tags[0]: length is greater than 1"
            ]
        );
        // The message equals the message for a body of the right shape.
        let rules = details(&format!(r#"{{"world_id":"vale","count":1,"level":99,{long}}}"#));
        assert_eq!(rules, all[1..]);
        // Without a required field, only the schema can find faults.
        let missing = details(&format!(r#"{{"world_id":"vale","level":0,{long}}}"#));
        assert_eq!(missing, ["count: is missing", "level: lower than 1"]);
        let details_of_id = details(r#"{"world_id":"vale","count":1,"session_id":"nobody","bogus":1}"#);
        assert!(
            details_of_id.len() == 2 && details_of_id[1].starts_with("session_id: "),
            "{details_of_id:?}"
        );
        let control = details(r#"{"world_id":"vale","count":1,"bogus":1,"tags":["\u0007"]}"#);
        assert!(control.len() == 2 && control[1].starts_with("tags[0]: "), "{control:?}");
    }

    #[test]
    fn error_list_is_capped_for_a_body_full_of_faults() {
        let names = vec!["5"; 1_000].join(",");
        let long = "x".repeat(5_000);
        let text = format!(r#"{{"world_id":"vale","count":1,"{long}":1,"inner":{{"names":[{names}]}}}}"#);
        let problem = read_json::<SampleBody>(text.as_bytes()).unwrap_err();
        assert_eq!(problem.errors.len(), 32);
        assert!(problem.detail.ends_with("; and 969 more"), "{}", problem.detail);
        assert!(problem.detail.len() < 4_000, "{}", problem.detail.len());
    }

    #[test]
    fn items_beyond_the_maximum_are_not_checked() {
        let many = vec!["[]"; 1_000].join(",");
        let faults = explain_sample(&format!(r#"{{"world_id":"vale","count":1,"tags":[{many}]}}"#));
        let params: Vec<&str> = faults.iter().map(|(param, _)| param.as_str()).collect();
        assert_eq!(params, ["tags", "tags[0]", "tags[1]"]);
        assert_eq!(faults[0].1, "length is greater than 2");
    }

    #[test]
    fn non_json_text_is_reported_as_such() {
        assert_eq!(read_json::<SampleBody>(b"{").unwrap_err().code, Code::MalformedJson);
        assert_eq!(
            explain_sample("[]"),
            [("body".to_owned(), "must be object, not array".to_owned())]
        );
    }

    #[test]
    fn faults_beyond_the_schema_name_their_field_too() {
        let faults = explain_sample(r#"{"world_id":"vale","count":1,"session_id":"nobody"}"#);
        assert_eq!(faults[0].0, "session_id", "{faults:?}");
        assert!(faults[0].1.contains("ULID") && faults.len() == 1, "{faults:?}");
        assert_eq!(
            explain_sample(r#"{"world_id":"vale","count":-1}"#)[0].0,
            "count",
            "a number out of range"
        );
        let twice = read_json::<SampleBody>(br#"{"world_id":"vale","count":1,"count":2}"#).unwrap_err();
        assert_eq!(twice.detail, "body: has a field more than once");
        assert_eq!(explain_sample(r#"["vale",1]"#)[0].1, "must be object, not array");
        for text in [r#"{"world_id":"vale","count":"1"}"#, r#"["vale"]"#, r#""vale""#, "5"] {
            let detail = read_json::<SampleBody>(text.as_bytes()).unwrap_err().detail;
            assert!(!detail.contains("struct") && !detail.contains("u32"), "{detail}");
        }
    }

    #[test]
    fn rule_violations_are_capped_too() {
        let tags = vec!["\"too long\""; 1_000].join(",");
        let text = format!(r#"{{"world_id":"vale","count":1,"tags":[{tags}]}}"#);
        let problem = read_json::<SampleBody>(text.as_bytes()).unwrap_err();
        assert_eq!(problem.errors.len(), 32);
        assert!(problem.detail.ends_with("; and 968 more"), "{}", problem.detail);
    }
}
