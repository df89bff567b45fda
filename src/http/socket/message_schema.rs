//! The schema of a message.

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// A message type with its schema, for the AsyncAPI document.
pub struct MessageSchema {
    pub kind: String,
    pub schema: Value,
    /// Schemas that `schema` refers to.
    pub components: Vec<(String, Value)>,
}

impl MessageSchema {
    /// The schema of `T` under the type name `kind`.
    pub fn for_type<T: ToSchema>(kind: &str) -> Self {
        let mut schema = serde_json::to_value(T::schema()).unwrap_or_default();
        // The schema of a struct with a tag lacks the tag.
        schema["properties"]["type"] = json!({"const": kind});
        let required = names_in(&schema["required"]);
        let other_names = required.filter(|name| *name != "type");
        schema["required"] = [json!("type")].into_iter().chain(other_names).collect();
        Self {
            kind: kind.to_owned(),
            schema,
            components: components_of::<T>(),
        }
    }

    /// The schema of each variant of the enum `T`, whose tag is `type`, with the fields of `Common`.
    pub fn for_variants<T: ToSchema, Common: ToSchema>() -> impl Iterator<Item = Self> {
        let all = serde_json::to_value(T::schema()).unwrap_or_default();
        let common = serde_json::to_value(Common::schema()).unwrap_or_default();
        let components = components_of::<T>();
        let variants = all["oneOf"].as_array().cloned().unwrap_or_default();
        variants.into_iter().map(move |variant| {
            let mut properties = Map::new();
            let mut required = vec![json!("type")];
            for part in [&common, &variant] {
                add_properties(part, &mut properties, &mut required);
            }
            let kind = properties["type"]["enum"][0].as_str().unwrap_or_default().to_owned();
            properties.insert("type".to_owned(), json!({"const": kind}));
            let description = &variant["description"];
            Self {
                schema: json!({
                    "type": "object", "description": description, "properties": properties, "required": required,
                    "additionalProperties": false,
                }),
                kind,
                components: components.clone(),
            }
        })
    }

    /// Removes a field that the message does not have.
    pub fn remove_field(&mut self, name: &str) {
        if let Some(properties) = self.schema["properties"].as_object_mut() {
            properties.remove(name);
        }
        self.schema["required"] = names_in(&self.schema["required"])
            .filter(|field| field != name)
            .collect();
    }
}

/// Adds the properties of a schema and its parts, and the names of the required properties. A variant with a struct has
/// parts: the struct, and the tag.
fn add_properties(schema: &Value, properties: &mut Map<String, Value>, required: &mut Vec<Value>) {
    for part in schema["allOf"].as_array().into_iter().flatten() {
        add_properties(part, properties, required);
    }
    properties.extend(schema["properties"].as_object().cloned().unwrap_or_default());
    required.extend(names_in(&schema["required"]).filter(|name| name != "type"));
}

/// Returns the schemas that the schema of `T` refers to.
fn components_of<T: ToSchema>() -> Vec<(String, Value)> {
    let mut schemas = Vec::new();
    T::schemas(&mut schemas);
    let values = schemas
        .into_iter()
        .filter_map(|(name, schema)| Some((name, serde_json::to_value(schema).ok()?)));
    values.collect()
}

fn names_in(required: &Value) -> impl Iterator<Item = Value> + use<> {
    required.as_array().cloned().unwrap_or_default().into_iter()
}
