//! The query string: explains its faults by the schemas of its parameters.

use std::fmt::Write as _;

use actix_web::{error::QueryPayloadError, web};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::{
    IntoParams,
    openapi::path::{Parameter, ParameterIn},
};

use super::{
    faults::{ValidationFaults, truncate_name},
    first_quoted_name, schema_faults,
};
use crate::errors::Problem;
use colloquy_memory::text::check_prose;

/// Reads the parameters of a query string; unknown parameters are faults.
///
/// # Errors
/// Every fault, with the name of its parameter.
pub fn parse_query<T: DeserializeOwned + IntoParams>(text: &str) -> Result<T, Problem> {
    let pairs =
        || web::Query::<Vec<(String, String)>>::from_query(text).map_or_else(|_| Vec::new(), web::Query::into_inner);
    let mut faults = ValidationFaults::default();
    // A query can contain control characters only in escaped form.
    for (name, value) in text.contains('%').then(pairs).into_iter().flatten() {
        if let Err(fault) = check_prose(&value) {
            faults.push(truncate_name(&name), || fault.to_string());
        }
    }
    let error = match web::Query::<T>::from_query(text) {
        Ok(query) if faults.first_faults.is_empty() => return Ok(query.into_inner()),
        Ok(_) => return Err(faults.into_problem()),
        Err(error) => query_error_text(error),
    };
    let parameters = T::into_params(|| Some(ParameterIn::Query));
    let pairs = pairs();
    for (index, (name, value)) in pairs.iter().enumerate() {
        let Some(parameter) = parameters.iter().find(|parameter| parameter.name == *name) else {
            let names: Vec<_> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
            faults.push(truncate_name(name), || {
                format!("unknown parameter; there are {}", names.join(", "))
            });
            continue;
        };
        if pairs[..index].iter().any(|(earlier_name, _)| earlier_name == name) {
            faults.push(name, || "is given more than once".to_owned());
        } else if let Some(detail) = parameter_fault(parameter, value).or_else(|| fault_alone::<T>(name, value)) {
            faults.push(name, || detail);
        }
    }
    if faults.first_faults.is_empty() {
        let name = first_quoted_name(&error).unwrap_or_else(|| "query".to_owned());
        let is_missing = error.starts_with("missing field");
        return Err(Problem::invalid_field(
            name,
            if is_missing { "is missing".to_owned() } else { error },
        ));
    }
    Err(faults.into_problem())
}

/// Explains the fault of one parameter, as far as its schema describes the parameter.
fn parameter_fault(parameter: &Parameter, text: &str) -> Option<String> {
    let schema = serde_json::to_value(&parameter.schema).ok()?;
    let is_type = |kind: &str| {
        schema["type"] == kind
            || schema["type"]
                .as_array()
                .is_some_and(|types| types.contains(&kind.into()))
    };
    if is_type("integer") {
        return text
            .parse::<u64>()
            .is_err()
            .then(|| "must be a whole number".to_owned());
    }
    if is_type("boolean") {
        return (!matches!(text, "true" | "false")).then(|| "must be true or false".to_owned());
    }
    if schema["format"] == "date-time" && chrono::DateTime::parse_from_rfc3339(text).is_err() {
        return Some("must be a time such as 2026-01-31T12:00:00Z".to_owned());
    }
    let faults = schema_faults(&schema, &Map::new(), &Value::String(text.to_owned()));
    faults.first_faults.into_iter().next().map(|fault| fault.detail)
}

/// Serde's message for a parameter alone, except for a message about other missing parameters.
fn fault_alone<T: DeserializeOwned>(name: &str, text: &str) -> Option<String> {
    let error_without_value = web::Query::<T>::from_query("").err().map(query_error_text);
    // The name comes from the schema, so only the value needs escaping.
    let error = query_error_text(web::Query::<T>::from_query(&format!("{name}={}", percent_encode(text))).err()?);
    (Some(&error) != error_without_value.as_ref()).then_some(error)
}

/// Escapes a query value, except letters and digits.
fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() {
            escaped.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

fn query_error_text(error: QueryPayloadError) -> String {
    match error {
        QueryPayloadError::Deserialize(inner) => inner.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use colloquy_actors::OnBusy;
    use colloquy_core::ids::DialogueId;

    #[derive(Debug, Deserialize, IntoParams)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct SampleQuery {
        limit: Option<u32>,
        #[param(value_type = Option<String>)]
        session_id: Option<DialogueId>,
        #[param(inline)]
        on_busy: Option<OnBusy>,
        since: Option<chrono::DateTime<chrono::Utc>>,
        all: Option<bool>,
    }
    #[derive(Debug, Deserialize, IntoParams)]
    #[allow(dead_code)]
    struct Needed {
        limit: u32,
    }

    #[test]
    fn invalid_parameters_are_all_named() {
        let text = "limit=abc&session_id=x%20y&on_busy=shout&since=today&all=maybe&colour=red&limit=2";
        let problem = parse_query::<SampleQuery>(text).unwrap_err();
        let faults: Vec<_> = problem
            .errors
            .iter()
            .map(|e| (e.param.as_str(), e.detail.as_str()))
            .collect();
        let names: Vec<_> = faults.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            ["limit", "session_id", "on_busy", "since", "all", "colour", "limit"],
            "{faults:?}"
        );
        assert_eq!(faults[0].1, "must be a whole number");
        assert!(faults[1].1.contains("ULID"), "{faults:?}");
        assert!(faults[2].1.contains("queue"), "{faults:?}");
        assert_eq!(faults[6].1, "is given more than once");
        assert_eq!(parse_query::<SampleQuery>("limit=7&all=true").unwrap().limit, Some(7));
        assert_eq!(
            parse_query::<SampleQuery>("limit=99999999999")
                .unwrap_err()
                .param
                .as_deref(),
            Some("limit")
        );
        let problem = parse_query::<SampleQuery>("session_id=a%00").unwrap_err();
        assert!(problem.errors[0].detail.contains("U+0000"), "{problem}");
        let missing = parse_query::<Needed>("").unwrap_err();
        assert_eq!(missing.detail, "limit: is missing");
    }
}
