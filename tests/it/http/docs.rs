//! The documents are fresh, served, and consistent with the routes.

use std::{collections::BTreeSet, path::Path};

use colloquy::{http::docs, tenancy::Role};
use regex::Regex;
use serde_json::Value;

use super::harness::HttpTestServer;

/// Writes a document with one line for each operation, schema and message, so that changes are easy to compare.
fn write_lines(value: &Value, depth: usize) -> String {
    match value {
        Value::Object(fields) if depth < 3 => {
            let indent = "  ".repeat(depth);
            let fields = fields.iter().map(|(name, field)| {
                let text = write_lines(field, depth + 1);
                format!("{indent}  {}: {text}", Value::from(name.as_str()))
            });
            format!("{{\n{}\n{indent}}}", fields.collect::<Vec<_>>().join(",\n"))
        }
        value => value.to_string(),
    }
}

/// Fails if the committed copy is stale. `UPDATE_DOCS=1` rewrites the copy.
fn assert_document_is_fresh(name: &str, document: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    let fresh = format!("{}\n", write_lines(document, 0));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "docs/{name} is stale: run the tests once with UPDATE_DOCS=1 and commit it"
    );
}

#[test]
fn openapi_document_is_fresh() {
    assert_document_is_fresh("openapi.json", docs::openapi_document());
}

#[test]
fn asyncapi_document_is_fresh() {
    assert_document_is_fresh("asyncapi.json", docs::asyncapi_document());
}

/// Collects all `$ref` targets of a document.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("$ref", Value::String(target)) => found.push(target),
                    _ => references(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn document_references_all_resolve() {
    for (name, document) in [
        ("openapi", docs::openapi_document()),
        ("asyncapi", docs::asyncapi_document()),
    ] {
        let mut found = Vec::new();
        references(document, &mut found);
        assert!(found.len() > 10, "{name} has {} references", found.len());
        for target in found {
            let pointer = target.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{name}: {target} leads nowhere");
        }
    }
}

/// Returns the kinds of values that a schema states, following references.
fn allowed_kinds<'a>(document: &'a Value, schema: &'a Value) -> Option<BTreeSet<&'a str>> {
    if let Some(target) = schema["$ref"].as_str() {
        return allowed_kinds(document, document.pointer(target.trim_start_matches('#'))?);
    }
    let own: Option<BTreeSet<&str>> = match &schema["type"] {
        Value::String(kind) => Some(BTreeSet::from([kind.as_str()])),
        Value::Array(kinds) => Some(kinds.iter().filter_map(Value::as_str).collect()),
        _ => None,
    };
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let of_all = parts.filter_map(|part| allowed_kinds(document, part)).chain(own);
    of_all.reduce(|all, more| all.intersection(&more).copied().collect())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Collects schemas that no value satisfies, and defaults that the schema forbids.
fn contradictions(document: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    if let Some(kinds) = allowed_kinds(document, schema) {
        if kinds.is_empty() {
            found.push(format!("{path}: nothing can be all of that"));
        }
        let default = schema.get("default").map(kind_of);
        let fits = |kind: &str| kinds.contains(kind) || (kind == "integer" && kinds.contains("number"));
        if let Some(kind) = default.filter(|kind| !fits(kind)) {
            found.push(format!("{path}: the default is of the kind {kind}, not {kinds:?}"));
        }
    }
    if let (Some(allowed), Some(default)) = (schema["enum"].as_array(), schema.get("default"))
        && !allowed.contains(default)
    {
        found.push(format!("{path}: the default {default} is none of {allowed:?}"));
    }
    let parts: Vec<(String, &Value)> = match schema {
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), field)).collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(n, item)| (n.to_string(), item))
            .collect(),
        _ => Vec::new(),
    };
    for (name, part) in parts {
        // An example is an arbitrary value, not a schema.
        if !matches!(name.as_str(), "default" | "example" | "examples" | "enum" | "const") {
            contradictions(document, part, &format!("{path}/{name}"), found);
        }
    }
}

#[test]
fn schemas_do_not_contradict_themselves() {
    for (name, document) in [
        ("openapi", docs::openapi_document()),
        ("asyncapi", docs::asyncapi_document()),
    ] {
        let mut found = Vec::new();
        contradictions(document, document, name, &mut found);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
    let both =
        serde_json::json!({"allOf": [{"type": "string", "enum": ["rule"]}, {"type": "object", "default": "rule"}]});
    let mut found = Vec::new();
    contradictions(&both, &both, "both", &mut found);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn operations_all_state_their_roles_and_errors() {
    let document = docs::openapi_document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations += 1;
            let what = format!("{method} {path}");
            assert!(operation["operationId"].is_string(), "{what}");
            assert!(
                !operation["summary"].as_str().unwrap().contains('`'),
                "{what}: plain text"
            );
            assert!(operation["responses"]["500"].is_object(), "{what}");
            if !path.starts_with("/v1/") {
                continue;
            }
            assert!(
                operation["x-roles"].as_array().is_some_and(|roles| !roles.is_empty()),
                "{what}"
            );
            assert!(operation["description"].as_str().unwrap().contains("Roles: "), "{what}");
            assert_eq!(operation["security"][0]["token"], serde_json::json!([]), "{what}");
            for status in ["401", "403", "429"] {
                assert_eq!(
                    operation["responses"][status]["content"]["application/problem+json"]["schema"]["$ref"],
                    "#/components/schemas/ProblemBody",
                    "{what} {status}"
                );
            }
        }
    }
    assert!(operations >= 30, "{operations} operations");
}

#[actix_web::test]
async fn documents_and_their_page_are_served() {
    let server = HttpTestServer::start();
    let anyone = server.as_role(Role::Operator);
    assert_eq!(&anyone.get("/openapi.json").await, docs::openapi_document());
    assert_eq!(&anyone.get("/asyncapi.json").await, docs::asyncapi_document());
    for path in ["/docs", "/"] {
        let page = anyone.anonymous(reqwest::Method::GET, path).send().await.unwrap();
        assert_eq!(page.status(), 200, "{path}");
        assert!(page.text().await.unwrap().contains("swagger-ui"), "{path}");
    }
    let icon = anyone
        .anonymous(reqwest::Method::GET, "/favicon.ico")
        .send()
        .await
        .unwrap();
    assert_eq!(icon.status(), 204);
}

#[actix_web::test]
async fn pages_for_language_models_are_listed_and_served() {
    let server = HttpTestServer::start();
    let client = server.as_role(Role::Operator);
    let text_of = async |path: &str| {
        let page = client.anonymous(reqwest::Method::GET, path).send().await.unwrap();
        assert_eq!(page.status(), 200, "{path}");
        page.text().await.unwrap()
    };
    let index = text_of("/llms.txt").await;
    assert!(index.starts_with("# Colloquy\n\n> "), "{index}");
    let links = Regex::new(r"\[[^\]]+\]\((/llms/[^)]+)\): \S").unwrap();
    let listed: Vec<&str> = links
        .captures_iter(&index)
        .map(|link| link.get(1).unwrap().as_str())
        .collect();
    let guides = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides");
    for guide in std::fs::read_dir(guides).unwrap() {
        let name = guide.unwrap().file_name().into_string().unwrap();
        let is_listed = listed.contains(&format!("/llms/docs/guides/{name}").as_str());
        let is_page = Path::new(&name).extension().is_some_and(|extension| extension == "md");
        assert!(is_listed || !is_page, "{name} is not in {index}");
    }
    for path in &listed {
        assert!(text_of(path).await.starts_with("# "), "{path}");
    }
    let full_text = text_of("/llms-full.txt").await;
    assert!(full_text.contains("# Chat programs") && !full_text.contains("# Decisions"));
    let unknown = client
        .anonymous(reqwest::Method::GET, "/llms/docs/nothing.md")
        .send()
        .await;
    assert_eq!(unknown.unwrap().status(), 404);
}

#[actix_web::test]
async fn documents_are_absent_when_switched_off() {
    let mut options = super::harness::HttpTestOptions::default();
    options.http.docs = false;
    let server = HttpTestServer::with(options);
    let anyone = server.as_role(Role::Operator);
    for path in [
        "/openapi.json",
        "/asyncapi.json",
        "/docs",
        "/docs/",
        "/",
        "/llms.txt",
        "/llms-full.txt",
        "/llms/README.md",
    ] {
        let (status, _) = anyone.call(reqwest::Method::GET, path, None).await;
        assert_eq!(status, 404, "{path}");
    }
}

#[test]
fn responses_all_have_a_description() {
    for (path, item) in docs::openapi_document()["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let text = response["description"].as_str().unwrap_or_default();
                assert!(!text.is_empty(), "{method} {path} {status}");
            }
        }
    }
}

/// Returns all error codes of the actors, the turns and the socket, which do not name the documents' enumeration.
fn codes_of_dialogues() -> BTreeSet<String> {
    // Matches fields, arguments of functions that create errors, and the table of failures.
    let told = Regex::new(
        r#"code: "([a-z_]+)"|\.close_with_error\(\s*close_code::\w+,\s*"([a-z_]+)"|failed_reply\(\w+, \w+, "([a-z_]+)"|\(\s*"([a-z_]+)",\s*"[a-z]"#,
    )
    .unwrap();
    let mut found = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rooms = [
        "src/actors",
        "src/dialogue/turn",
        "src/http/socket/player_socket.rs",
        "src/http/socket/connection.rs",
    ];
    let mut paths = rooms.map(|room| root.join(room)).to_vec();
    while let Some(path) = paths.pop() {
        if path.ends_with("tests") || path.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            let entries = std::fs::read_dir(path).unwrap();
            paths.extend(entries.map(|entry| entry.unwrap().path()));
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let codes = told
            .captures_iter(&text)
            .filter_map(|found| found.iter().skip(1).flatten().next());
        found.extend(codes.map(|code| code.as_str().to_owned()));
    }
    found
}

#[test]
fn error_codes_in_use_are_all_published() {
    let told = codes_of_dialogues();
    for code in [
        "turn_lost",
        "idle",
        "session_closed",
        "model_failed",
        "prompt_too_large",
        "payload_too_large",
    ] {
        assert!(told.contains(code), "{code} was not found in {told:?}");
    }
    for (name, document) in [
        ("openapi", docs::openapi_document()),
        ("asyncapi", docs::asyncapi_document()),
    ] {
        let published = document["x-error-codes"].as_array().unwrap();
        let missing: Vec<_> = told
            .iter()
            .filter(|code| !published.contains(&Value::from(code.as_str())))
            .collect();
        assert!(missing.is_empty(), "{name} does not publish {missing:?}");
    }
}

#[test]
fn header_rejections_are_all_documented() {
    let mut seen = BTreeSet::new();
    for (path, item) in docs::openapi_document()["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for header in parameters.filter(|one| one["in"] == "header") {
                let status = match header["name"].as_str().unwrap() {
                    "If-Match" | "If-None-Match" => "400",
                    "Idempotency-Key" => "422",
                    _ => continue,
                };
                let responses = &operation["responses"];
                assert!(responses[status].is_object(), "{method} {path} has no {status}");
                seen.insert(format!("{method} {path}"));
            }
        }
    }
    for operation in [
        "delete /v1/worlds/{world}",
        "delete /v1/worlds/{world}/npcs/{npc}",
        "post /v1/tickets",
    ] {
        assert!(seen.contains(operation), "{operation} is not among {seen:?}");
    }
}
