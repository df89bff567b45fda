//! Rules of request bodies that no derive attribute states. The server checks them when it reads a body.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::texts::complete_texts;

/// Adds the rules of request bodies to their schemas.
pub fn complete_bodies(document: &mut Value) {
    let mut names = BTreeSet::new();
    let operations = document["paths"].as_object().into_iter().flatten();
    for (_, operation) in operations.flat_map(|(_, item)| item.as_object().into_iter().flatten()) {
        collect_references(
            &operation["requestBody"],
            &document["components"]["schemas"],
            &mut names,
        );
    }
    let schemas = document["components"]["schemas"].as_object_mut();
    let bodies = schemas.into_iter().flatten().filter(|(name, _)| names.contains(*name));
    for (_, schema) in bodies {
        close_choices(schema);
        complete_texts("", schema);
    }
    for (path, rule) in rules_between_fields() {
        if let (Some(Value::Object(schema)), Value::Object(rule)) =
            (document["components"]["schemas"].pointer_mut(path), rule)
        {
            schema.extend(rule);
        }
    }
}

/// Collects the names of the schemas that a schema refers to, directly or by another schema.
fn collect_references(schema: &Value, schemas: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let target = fields.get("$ref").and_then(Value::as_str);
            if let Some(name) = target.and_then(|target| target.strip_prefix("#/components/schemas/"))
                && names.insert(name.to_owned())
            {
                collect_references(&schemas[name], schemas, names);
            }
            for field in fields.values() {
                collect_references(field, schemas, names);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect_references(item, schemas, names);
            }
        }
        _ => {}
    }
}

/// Forbids unknown fields in the shapes of a choice between objects, such as a condition.
fn close_choices(schema: &mut Value) {
    let shapes = schema.get_mut("oneOf").and_then(Value::as_array_mut);
    for shape in shapes.into_iter().flatten() {
        if shape["type"] == "object" {
            shape["additionalProperties"] = json!(false);
        }
    }
}

/// Fields that need or exclude each other, by the path of their schema. With `if`, because generators of clients would
/// make types of the choices of a `oneOf`.
fn rules_between_fields() -> [(&'static str, Value); 6] {
    let session = if_else(has_items("npc_ids"), without(&["npc_id"]), has_text("npc_id"));
    let of_owner = if_else(has_text("subject"), without(&["player_id"]), has_text("player_id"));
    let revocation = if_else(
        has_text("jti"),
        without(&["subject", "player_id", "before"]),
        json!({"allOf": [without(&["expires_at"]), of_owner]}),
    );
    let no_tell = || json!({"properties": {"tell": {"type": "null"}}});
    let lore = if_else(has_items("when"), json!({}), no_tell());
    let has_progress = has("required_progress", json!({"minimum": 1}));
    let scenario = if_else(
        json!({"anyOf": [has_items("when"), has_progress]}),
        json!({}),
        no_tell(),
    );
    let has_lines = json!({"anyOf": [has_items("instructions"), has_items("fails_if")]});
    let directive = if_else(has_lines, json!({}), has("text", json!({"pattern": r"\S"})));
    let strength = has("at_least", json!({"type": "integer"}));
    let relationship = json!({"allOf": [has_text("relationship"), strength]});
    let met = if_else(has_text("met"), without(&["relationship", "at_least"]), relationship);
    let location = if_else(has_text("location"), without(&["met", "relationship", "at_least"]), met);
    let unlock = if_else(
        has_text("item"),
        without(&["location", "met", "relationship", "at_least"]),
        location,
    );
    [
        ("/SessionBody", session),
        ("/RevokeRequest", revocation),
        ("/LoreText", lore),
        ("/ScenarioBody", scenario),
        ("/DirectiveBody", directive),
        ("/UnlockBody/properties/when", unlock),
    ]
}

fn if_else(condition: Value, consequence: Value, alternative: Value) -> Value {
    Value::from_iter([("if", condition), ("then", consequence), ("else", alternative)])
}

/// The field is set, and fits the schema.
fn has(field: &str, schema: Value) -> Value {
    json!({"required": [field], "properties": Value::from_iter([(field, schema)])})
}

fn has_text(field: &str) -> Value {
    has(field, json!({"type": "string"}))
}

fn has_items(field: &str) -> Value {
    has(field, json!({"minItems": 1}))
}

/// None of the fields is set.
fn without(fields: &[&str]) -> Value {
    let unset: Value = fields.iter().map(|field| (*field, json!({"type": "null"}))).collect();
    json!({ "properties": unset })
}

/// Collects the names of all properties.
#[cfg(test)]
pub fn collect_properties<'a>(schema: &'a Value, names: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(fields) => {
            let properties = fields.get("properties").and_then(Value::as_object);
            names.extend(properties.into_iter().flatten().map(|(name, _)| name.as_str()));
            for field in fields.values() {
                collect_properties(field, names);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect_properties(item, names);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::document, *};
    use colloquy_memory::authored::WorldSettings;

    #[test]
    fn bodies_state_what_their_fields_need_and_exclude() {
        let fits = |body: &str, mut value: Value, fields: Value| {
            let target = format!("#/components/schemas/{body}");
            let schema = json!({"$ref": target, "components": document()["components"]});
            value
                .as_object_mut()
                .unwrap()
                .extend(fields.as_object().cloned().unwrap());
            jsonschema::validator_for(&schema).unwrap().is_valid(&value)
        };
        let session = |fields| fits("SessionBody", json!({"world_id": "vale", "player_id": "p7"}), fields);
        assert!(session(json!({"npc_id": "mira"})));
        assert!(session(json!({"npc_id": null, "npc_ids": ["mira"]})));
        assert!(!session(json!({})));
        assert!(!session(json!({"npc_id": "mira", "npc_ids": ["ergen"]})));
        let revocation = |fields| fits("RevokeRequest", json!({}), fields);
        let moment = "2026-01-31T12:00:00Z";
        assert!(revocation(json!({"jti": "1", "expires_at": moment})));
        assert!(revocation(json!({"subject": "s", "before": moment})));
        assert!(revocation(json!({"player_id": "p7", "jti": null})));
        assert!(!revocation(json!({})));
        assert!(!revocation(json!({"jti": "1", "before": moment})));
        assert!(!revocation(json!({"subject": "s", "player_id": "p7"})));
        assert!(!revocation(json!({"player_id": "p7", "expires_at": moment})));
        let tell = json!({"text": "She looks away."});
        let entry = |fields| {
            fits(
                "LoreText",
                json!({"name": "The well", "content": "It is deep."}),
                fields,
            )
        };
        assert!(entry(json!({"tell": null})));
        assert!(entry(json!({"tell": tell, "when": [{"item": "key"}]})));
        assert!(!entry(json!({"tell": tell})));
        assert!(!entry(json!({"when": [{"item": "key", "at": 1}]})));
        let scenario = |fields| {
            fits(
                "ScenarioBody",
                json!({"title": "The well", "content": "It is deep."}),
                fields,
            )
        };
        assert!(scenario(json!({"required_progress": 0})));
        assert!(scenario(json!({"tell": tell, "required_progress": 1})));
        assert!(!scenario(json!({"tell": tell, "required_progress": 0})));
        let directive = |fields| fits("DirectiveBody", json!({"keys": ["world:vale"]}), fields);
        assert!(directive(json!({"text": "Be kind."})));
        assert!(directive(json!({"fails_if": ["it is rude"]})));
        assert!(!directive(json!({"text": " ", "instructions": []})));
        let unlock = |when: Value| {
            fits(
                "UnlockBody",
                json!({"npc": "mira", "progress": 10}),
                json!({"when": when}),
            )
        };
        assert!(unlock(json!({"met": "Mira"})));
        assert!(unlock(json!({"relationship": "trust", "at_least": 5})));
        assert!(!unlock(json!({})));
        assert!(!unlock(json!({"item": "key", "at_least": 5})));
        assert!(!unlock(json!({"item": "key", "met": "Mira"})));
        assert!(!unlock(json!({"relationship": "trust"})));
    }

    #[test]
    fn bodies_state_the_ranges_of_their_numbers() {
        let schemas = &document()["components"]["schemas"];
        for (path, rule) in [
            ("prompt/oneOf/0/properties/history_tokens/minimum", 500),
            ("prompt/oneOf/0/properties/lore_tokens/maximum", 100_000),
            ("summaries/oneOf/0/properties/first_after_turns/minimum", 1),
            ("curation/oneOf/0/properties/every_turns/maximum", 10_000),
            ("recall/oneOf/0/properties/top_k/maximum", 100),
            ("models/oneOf/0/properties/reply/maxLength", 200),
            (
                "retention/oneOf/0/properties/facts_d/additionalProperties/maximum",
                36_500,
            ),
        ] {
            let stated = schemas["TierSettingsBody"].pointer(&format!("/properties/{path}"));
            assert_eq!(stated, Some(&json!(rule)), "{path}");
        }
        let strength = &schemas["Condition"]["oneOf"][3]["properties"]["at_least"];
        assert_eq!(
            (&strength["minimum"], &strength["maximum"]),
            (&json!(-100), &json!(100))
        );
        assert_eq!(schemas["LayerRule"]["properties"]["when"]["minItems"], 1);
    }

    #[test]
    fn settings_of_worlds_are_in_no_other_body() {
        let schemas = &document()["components"]["schemas"];
        let mut of_worlds = BTreeSet::new();
        collect_properties(&schemas["WorldBody"]["properties"]["settings"], &mut of_worlds);
        for body in ["NpcBody", "SessionBody", "TierSettingsBody"] {
            let mut other_settings = BTreeSet::new();
            collect_properties(&schemas[body], &mut other_settings);
            for name in WorldSettings::WORLD_RULES {
                assert!(
                    of_worlds.contains(*name) && !other_settings.contains(*name),
                    "{body}: {name}"
                );
            }
            assert!(other_settings.contains("top_k"), "{body}");
        }
    }
}
