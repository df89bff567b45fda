//! The schema of a message.

use serde_json::{Value, json};
use utoipa::ToSchema;

/// A message type with its schema, for the AsyncAPI document.
pub struct MessageSchema {
    pub kind: &'static str,
    pub schema: Value,
    /// Schemas that `schema` refers to.
    pub components: Vec<(String, Value)>,
}

impl MessageSchema {
    /// The schema of `T` under the type name `kind`.
    pub fn for_type<T: ToSchema>(kind: &'static str) -> Self {
        let mut schemas = Vec::new();
        T::schemas(&mut schemas);
        let mut schema = serde_json::to_value(T::schema()).unwrap_or_default();
        // The schema of a struct with a tag lacks the tag.
        schema["properties"]["type"] = json!({"const": kind});
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let other_names = required.into_iter().filter(|name| *name != "type");
        schema["required"] = [json!("type")].into_iter().chain(other_names).collect();
        Self {
            kind,
            schema,
            components: schemas
                .into_iter()
                .filter_map(|(name, schema)| Some((name, serde_json::to_value(schema).ok()?)))
                .collect(),
        }
    }
}
