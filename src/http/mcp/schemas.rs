//! The input schemas of tools, from the schemas of the OpenAPI document.

use std::collections::BTreeSet;

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use crate::openapi;

const COMPONENTS: &str = "#/components/schemas/";
const DEFINITIONS: &str = "#/$defs/";

/// Keywords that tell an agent nothing that the description does not tell better. The operation still checks them, and
/// names every fault.
const LEFT_OUT: [&str; 2] = ["pattern", "format"];

/// Where an argument of a tool goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Path,
    Query,
    Header,
}

/// A parameter of an operation, as an argument of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// The name in the operation, such as `If-Match`.
    pub name: String,
    /// The name of the argument, such as `if_match`.
    pub argument: String,
    pub place: Place,
    pub required: bool,
}

/// Reads the parameters of an operation of the document.
pub fn parameters_of(operation: &Value) -> Vec<Parameter> {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    parameters
        .filter_map(|parameter| {
            let name = parameter["name"].as_str()?;
            let place = match parameter["in"].as_str()? {
                "path" => Place::Path,
                "query" => Place::Query,
                _ => Place::Header,
            };
            Some(Parameter {
                name: name.to_owned(),
                argument: name.to_lowercase().replace('-', "_"),
                place,
                required: parameter["required"] == true,
            })
        })
        .collect()
}

/// Builds the input schema of the tool of an operation: its parameters, and its JSON body as `body`.
pub fn input_schema(operation: &Value, parameters: &[Parameter]) -> JsonObject {
    let mut properties = Map::new();
    let mut required: Vec<&str> = Vec::new();
    let documented = operation["parameters"].as_array().into_iter().flatten();
    for (parameter, documented) in parameters.iter().zip(documented) {
        properties.insert(parameter.argument.clone(), argument_schema(parameter, documented));
        if parameter.required {
            required.push(&parameter.argument);
        }
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if body.is_object() {
        properties.insert("body".to_owned(), adapted(body));
        if operation["requestBody"]["required"] != false {
            required.push("body");
        }
    }
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let definitions = definitions_of(&[body, &operation["parameters"]]);
    if !definitions.is_empty() {
        schema["$defs"] = Value::Object(definitions);
    }
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

fn argument_schema(parameter: &Parameter, documented: &Value) -> Value {
    match parameter.argument.as_str() {
        "if_match" => json!({
            "type": ["integer", "string"],
            "description": "The `version` of the object that the change was made on; or `*`: any version, but the \
                object must exist. With another version stored, nothing is changed, and the code is `version_mismatch`."
        }),
        "if_none_match" => json!({
            "type": "string", "enum": ["*"], "description": "`*`: only if the object does not exist."
        }),
        "idempotency_key" => json!({
            "type": "string", "minLength": 1, "maxLength": 128,
            "description": "A repeat with the same key gets the first answer, and changes nothing again."
        }),
        _ => {
            let mut schema = adapted(&documented["schema"]);
            if let Some(description) = documented["description"].as_str() {
                schema["description"] = json!(description);
            }
            schema
        }
    }
}

/// The definitions that a schema refers to, directly or by another schema.
fn definitions_of(schemas: &[&Value]) -> Map<String, Value> {
    let components = &openapi::document()["components"]["schemas"];
    let mut definitions = Map::new();
    let mut names = BTreeSet::new();
    for schema in schemas {
        collect_names(schema, &mut names);
    }
    while let Some(name) = names.pop_first() {
        if definitions.contains_key(&name) {
            continue;
        }
        let component = &components[&name];
        collect_names(component, &mut names);
        definitions.insert(name, adapted(component));
    }
    definitions
}

fn collect_names(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let target = fields.get("$ref").and_then(Value::as_str);
            names.extend(
                target
                    .and_then(|target| target.strip_prefix(COMPONENTS))
                    .map(str::to_owned),
            );
            fields.values().for_each(|field| collect_names(field, names));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        _ => {}
    }
}

/// A schema with references to the definitions beside it.
fn adapted(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => fields
            .iter()
            // A property may have the name of a keyword; its value is a schema.
            .filter(|(name, value)| !(LEFT_OUT.contains(&name.as_str()) && value.is_string()))
            .map(|(name, value)| {
                let target = value.as_str().and_then(|text| text.strip_prefix(COMPONENTS));
                let value = match target {
                    Some(target) if name == "$ref" => json!(format!("{DEFINITIONS}{target}")),
                    _ => adapted(value),
                };
                (name.clone(), value)
            })
            .collect(),
        Value::Array(items) => items.iter().map(adapted).collect(),
        other => other.clone(),
    }
}
