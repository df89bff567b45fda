//! Rules of parameters and ids that many operations share. The document states them once for all.

use serde_json::{Value, json};

use super::patterns::prose_pattern;
use colloquy_core::ids::{
    ActionId, AttemptId, AuditId, DialogueKind, FactId, FindingId, InsightId, JobId, MessageId, PassId, SaveId, TurnId,
    WebhookId,
};
use colloquy_memory::flags::FlagKind;

/// An id that a person chose.
const AUTHORED_ID: &str = "^[a-z0-9][a-z0-9_-]{0,63}$";
const PLAYER_ID: &str = "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$";
/// The part of a generated id after its prefix: a ULID.
const ULID: &str = "[0-7][0-9A-HJKMNP-TV-Z]{25}";
/// A pattern of dialogue keys. In the id of a dialogue, no lower case follows the prefix (`ses_`, `con_`).
const KEY_PATTERN: &str = "^world:[a-z0-9_*?-]{1,64}(:npc:[a-z0-9_*?-]{1,64}(:(session|conversation):\
    ([A-Za-z0-9*?-]{1,64}|[A-Za-z0-9*?-]{0,31}_[A-Z0-9_*?-]{0,32}))?)?$";
/// An entity tag; a weak one never matches.
const ENTITY_TAG: &str = r#"^"[!#-~]*"$"#;
/// Printable ASCII, without blanks at the ends: these are no part of a header's value.
const IDEMPOTENCY_KEY: &str = "^[!-~]([ -~]{0,126}[!-~])?$";

/// The prefixes of generated ids by the last part of a list's path.
const PREFIXES: [(&str, &str); 13] = [
    ("actions", ActionId::PREFIX),
    ("attempts", AttemptId::PREFIX),
    ("audit", AuditId::PREFIX),
    ("curation", FindingId::PREFIX),
    ("episodes", TurnId::PREFIX),
    ("facts", FactId::PREFIX),
    ("insights", InsightId::PREFIX),
    ("jobs", JobId::PREFIX),
    ("npc-conversations", DialogueKind::NpcConversation.id_prefix()),
    ("passes", PassId::PREFIX),
    ("saves", SaveId::PREFIX),
    ("sessions", DialogueKind::Session.id_prefix()),
    ("webhooks", WebhookId::PREFIX),
];
/// The lists by ids that people chose.
const AUTHORED: [&str; 7] = ["directives", "lore", "npcs", "scenarios", "tenants", "usage", "worlds"];

/// Adds the rule of a parameter to its schema, unless the operation states its own.
pub fn complete_parameter(path: &str, parameter: &mut Value) {
    let place = parameter["in"].as_str();
    let name = parameter["name"].as_str();
    let (Some(place), Some(name)) = (place, name) else {
        return;
    };
    let rule = match (place, name) {
        ("header", "If-Match") => {
            // A header that is missing is no `null`.
            parameter["schema"] = json!({"anyOf": [{"type": "string", "enum": ["*"]},
                {"type": "string", "pattern": ENTITY_TAG}]});
            return;
        }
        ("header", "If-None-Match") => json!({"enum": ["*"]}),
        ("header", "Idempotency-Key") => pattern(IDEMPOTENCY_KEY),
        ("query", "coalesce_ms") => json!({"maximum": 1_000}),
        ("query", "limit") => json!({"minimum": 1, "maximum": super::super::pagination::MAX_PAGE}),
        ("query", "world_id" | "npc_id" | "heard_by") => pattern(AUTHORED_ID),
        ("query", "player_id") => pattern(PLAYER_ID),
        ("query", "dialogue") => pattern(&dialogue_id_pattern()),
        ("query", "key") => pattern(KEY_PATTERN),
        ("query", "after") if parameter["schema"]["type"] == "string" => match cursor_pattern(path) {
            Some(cursor) => pattern(&cursor),
            None => return,
        },
        ("query", _) if is_free_text(&parameter["schema"]) => pattern(&prose_pattern()),
        _ => return,
    };
    let is_header = place == "header";
    let Some(schema) = parameter["schema"].as_object_mut() else {
        return;
    };
    if is_header {
        // A header that is missing is no `null`.
        schema.insert("type".to_owned(), json!("string"));
    }
    for (keyword, value) in rule.as_object().into_iter().flatten() {
        // The document has the type's own least number.
        if keyword == "minimum" || !schema.contains_key(keyword) {
            schema.insert(keyword.clone(), value.clone());
        }
    }
}

fn pattern(pattern: &str) -> Value {
    json!({ "pattern": pattern })
}

/// True for the schema of a text without a rule of its own.
pub fn is_free_text(schema: &Value) -> bool {
    let has_rule = |keyword| schema.get(keyword).is_some();
    is_text(schema) && !["pattern", "enum", "format"].into_iter().any(has_rule)
}

/// True for the schema of a text, `null` or not.
fn is_text(schema: &Value) -> bool {
    let kind = &schema["type"];
    kind == "string" || kind.as_array().is_some_and(|kinds| kinds.contains(&json!("string")))
}

fn dialogue_id_pattern() -> String {
    let [session, conversation] = [DialogueKind::Session, DialogueKind::NpcConversation].map(DialogueKind::id_prefix);
    format!("^({session}|{conversation})_{ULID}$")
}

/// The pattern of a list's cursors: the id of the last row of a page.
fn cursor_pattern(path: &str) -> Option<String> {
    let list = path.rsplit('/').next()?;
    if list == "flags" {
        let kinds = FlagKind::ALL.map(FlagKind::as_str).join("|");
        return Some(format!("^{}_{ULID}/({kinds})$", FactId::PREFIX));
    }
    if AUTHORED.contains(&list) {
        return Some(AUTHORED_ID.to_owned());
    }
    let (_, prefix) = PREFIXES.iter().find(|(list_name, _)| *list_name == list)?;
    Some(format!("^{prefix}_{ULID}$"))
}

/// Merges the parts of an object whose parts forbid each other's fields: an answer that has the fields of a request's
/// body beside its own. `components` are the schemas that references name.
pub fn merge_flattened_schemas(components: &Value, schema: &mut Value) {
    match schema {
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| merge_flattened_schemas(components, field)),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| merge_flattened_schemas(components, item)),
        _ => return,
    }
    let Some(parts) = schema.get("allOf").and_then(Value::as_array) else {
        return;
    };
    let resolved: Vec<Value> = parts.iter().map(|part| resolve(components, part)).collect();
    let is_closed = |part: &Value| part.get("additionalProperties") == Some(&json!(false));
    let with_fields = resolved.iter().filter(|part| part.get("properties").is_some());
    if with_fields.count() < 2 || !resolved.iter().any(is_closed) {
        return;
    }
    let mut merged = json!({"type": "object", "properties": {}, "required": []});
    for part in &resolved {
        for (name, property) in part["properties"].as_object().into_iter().flatten() {
            merged["properties"][name] = property.clone();
        }
        if let (Some(required), Some(additional)) = (merged["required"].as_array_mut(), part["required"].as_array()) {
            required.extend(additional.iter().cloned());
        }
    }
    if let Some(text) = schema.get("description") {
        merged["description"] = text.clone();
    }
    *schema = merged;
}

/// Adds the patterns of ids to the fields with the names of ids.
pub fn complete_ids(schema: &mut Value) {
    match schema {
        Value::Array(items) => return items.iter_mut().for_each(complete_ids),
        Value::Object(fields) => fields.values_mut().for_each(complete_ids),
        _ => return,
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        let rule = match name.as_str() {
            "npc_id" | "world_id" | "world_ids" | "npc_ids" | "npcs" | "witnesses" | "factions" | "related" => {
                AUTHORED_ID.to_owned()
            }
            "player_id" | "watchers" => PLAYER_ID.to_owned(),
            "dialogue_id" => dialogue_id_pattern(),
            "message_id" | "from_message_id" => format!("^{}_{ULID}$", MessageId::PREFIX),
            "keys" => KEY_PATTERN.to_owned(),
            "knowers" => "^(world|(npc|faction):[a-z0-9][a-z0-9_-]{0,63})$".to_owned(),
            _ => continue,
        };
        if name == "npc_ids" {
            property["uniqueItems"] = json!(true);
        }
        let of_texts = if property.get("items").is_some() {
            &mut property["items"]
        } else {
            property
        };
        if is_text(of_texts) && of_texts.get("pattern").is_none() {
            of_texts["pattern"] = json!(rule);
        }
    }
}

/// The schema behind a reference.
fn resolve(schemas: &Value, part: &Value) -> Value {
    let name = part["$ref"]
        .as_str()
        .and_then(|target| target.strip_prefix("#/components/schemas/"));
    name.map_or(part, |name| &schemas[name]).clone()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn cursors_and_limits_are_in_the_document() {
        for (path, cursor) in [
            ("/v1/worlds/{world}/npcs", Some(AUTHORED_ID)),
            ("/v1/audit", Some("^aud_[0-7][0-9A-HJKMNP-TV-Z]{25}$")),
            (
                "/v1/worlds/{world}/flags",
                Some("^fact_[0-7][0-9A-HJKMNP-TV-Z]{25}/(contradicted|pii|over_merged)$"),
            ),
            ("/v1/worlds/{world}/state", None),
        ] {
            assert_eq!(cursor_pattern(path).as_deref(), cursor, "{path}");
        }
        let mut character = json!({"in": "query", "name": "who", "schema": {"type": "string", "maxLength": 200}});
        complete_parameter("/v1/worlds/{world}/state", &mut character);
        assert_eq!(character["schema"]["pattern"], prose_pattern());
        for (name, rule) in [("key", KEY_PATTERN), ("heard_by", AUTHORED_ID)] {
            let mut parameter = json!({"in": "query", "name": name, "schema": {"type": "string"}});
            complete_parameter("/v1/npc-conversations", &mut parameter);
            assert_eq!(parameter["schema"]["pattern"], rule, "{name}");
        }
        let mut limit = json!({"in": "query", "name": "limit", "schema": {"type": "integer", "minimum": 0}});
        complete_parameter("/v1/worlds", &mut limit);
        assert_eq!(
            limit["schema"],
            json!({"type": "integer", "minimum": 1, "maximum": 200})
        );
    }

    #[test]
    fn fields_with_ids_have_their_patterns() {
        let mut schema = json!({"properties": {"npc_ids": {"type": "array", "items": {"type": "string"}},
            "player_id": {"type": ["string", "null"]}, "npc_id": {"type": "object"}}});
        complete_ids(&mut schema);
        let properties = &schema["properties"];
        assert_eq!(properties["npc_ids"]["items"]["pattern"], AUTHORED_ID);
        assert_eq!(properties["player_id"]["pattern"], PLAYER_ID);
        assert_eq!(properties["npc_ids"]["uniqueItems"], true);
        assert_eq!(properties["npc_id"], json!({"type": "object"}));
    }

    #[test]
    fn pattern_of_keys_agrees_with_the_reader() {
        let pattern = regex::Regex::new(KEY_PATTERN).unwrap();
        for key in [
            "world:vale",
            "world:*",
            "world:Vale",
            "world:va?e:npc:guard-*",
            "world:vale:npc:Mira",
            "world:vale:npc:*:session:ses_00000000000000000000000007",
            "world:vale:npc:*:session:ses_01arz*",
            "world:vale:npc:*:conversation:*",
            "world:vale:npc:*:room:*",
            "world:vale:session:*",
            "world:vale:npc:mira:session:*:more:x",
            "world:",
            "vale",
        ] {
            let is_key = key.parse::<colloquy_memory::directive::KeyPattern>().is_ok();
            assert_eq!(pattern.is_match(key), is_key, "{key}");
        }
    }

    #[test]
    fn parts_that_forbid_each_other_become_one_object() {
        let mut schemas = json!({
            "Text": {"type": "object", "required": ["name"], "properties": {"name": {}}, "additionalProperties": false},
            "View": {"description": "v", "allOf": [{"$ref": "#/components/schemas/Text"},
                {"type": "object", "required": ["id"], "properties": {"id": {}}}]},
            "Open": {"allOf": [{"type": "object", "properties": {"a": {}}}]},
            "Described": {"allOf": [{"$ref": "#/components/schemas/Text"}, {"type": "object", "description": "d"}]},
        });
        let open = [schemas["Open"].clone(), schemas["Described"].clone()];
        let components = schemas.clone();
        merge_flattened_schemas(&components, &mut schemas);
        assert_eq!(
            schemas["View"],
            json!({"type": "object", "required": ["name", "id"], "properties": {"name": {}, "id": {}}, "description": "v"})
        );
        assert_eq!([schemas["Open"].clone(), schemas["Described"].clone()], open);
        assert_eq!(schemas["Text"]["additionalProperties"], false);
    }
}
