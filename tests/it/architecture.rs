//! Enforces two rules on the text of `src/`: the allowed imports between rooms, and the maximum length of a file.
//! `ARCHITECTURE.md` explains the rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The rooms that each room may name, besides itself. A room missing here is a fault.
const ALLOWED_IMPORTS: &[(&str, &[&str])] = &[
    ("ids", &[]),
    ("failpoint", &[]),
    ("shares", &[]),
    ("memory", &["ids"]),
    ("tenancy", &["ids", "ports", "memory", "shares"]),
    ("ports", &["ids", "memory", "tenancy"]),
    ("dialogue", &["ids", "memory", "tenancy", "ports", "shares"]),
    ("transport", &["ports"]),
    (
        "actors",
        &["ids", "memory", "tenancy", "ports", "dialogue", "shares", "transport"],
    ),
    (
        "http",
        &[
            "ids",
            "memory",
            "tenancy",
            "ports",
            "dialogue",
            "actors",
            "telemetry",
            "shares",
            "transport",
        ],
    ),
    ("adapters", &["ids", "memory", "tenancy", "ports", "shares"]),
    ("telemetry", &["ids"]),
    // Sections of the configuration are the settings of the rooms themselves.
    (
        "config",
        &["ids", "memory", "tenancy", "dialogue", "actors", "http", "telemetry"],
    ),
    ("mock_llm", &["ids", "memory", "ports"]),
    ("calibrate", &["ids", "memory", "ports"]),
    (
        "lifecycle",
        &[
            "ids",
            "tenancy",
            "ports",
            "dialogue",
            "actors",
            "http",
            "telemetry",
            "config",
        ],
    ),
    ("app", EVERYTHING),
    ("cli", EVERYTHING),
    ("main", EVERYTHING),
    ("lib", EVERYTHING),
];

const EVERYTHING: &[&str] = &["*"];

/// Rooms below the authenticating rooms, which may see only the scope of `tenancy`.
const SCOPE_ONLY: &[&str] = &["ports", "dialogue", "adapters"];
const SCOPE_NAMES: &[&str] = &["TenantScope", "Principal", "TokenIdentity", "Role", "scope"];

/// Rooms that may name the `actix` crate.
const ACTIX: &[&str] = &["actors", "http", "lifecycle", "app"];

/// The only file that may name `actix_web_actors`.
const SOCKET_FILE: &str = "http/socket/player_socket.rs";

/// The maximum length of a file in lines. `LONGER_FILES` lists the exceptions, with reasons.
const MAX_LINES: usize = 600;
const LONGER_FILES: &[(&str, &str)] = &[];

struct SourceFile {
    /// The path relative to `src/`, with `/`.
    path: String,
    text: String,
}

impl SourceFile {
    fn room(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }
}

fn sources() -> Vec<SourceFile> {
    sources_in("src")
}

fn sources_in(folder: &str) -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(SourceFile {
                    path: path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/"),
                    text: fs::read_to_string(&path).unwrap(),
                });
            }
        }
    }
    assert!(found.len() > 30, "src/ was not found");
    found
}

/// Returns `text` without comments and string contents, so that prose does not count.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let ahead = &text[at..];
        if ahead.starts_with("//") {
            while rest.next_if(|(_, c)| *c != '\n').is_some() {}
        } else if let Some(hashes) = raw_string(ahead).filter(|_| !code.ends_with(is_word)) {
            let end = format!("\"{}", "#".repeat(hashes));
            let open = hashes + 2 + usize::from(ahead.starts_with('b'));
            let length = ahead[open..].find(&end).map_or(ahead.len(), |i| open + i + end.len());
            while rest.next_if(|(i, _)| *i < at + length).is_some() {}
            code.push_str("\"\"");
        } else if c == '"' {
            let mut escaped = false;
            for (_, c) in rest.by_ref() {
                match c {
                    _ if escaped => escaped = false,
                    '\\' => escaped = true,
                    '"' => break,
                    _ => {}
                }
            }
            code.push_str("\"\"");
        } else if c == '\'' && (ahead.starts_with("'\"'") || ahead.starts_with("'\\\"'")) {
            let length = if ahead.starts_with("'\"'") { 3 } else { 4 };
            while rest.next_if(|(i, _)| *i < at + length).is_some() {}
        } else {
            code.push(c);
        }
    }
    code
}

/// Returns the number of hashes of the raw string at the start of `text`.
fn raw_string(text: &str) -> Option<usize> {
    let body = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = body.bytes().take_while(|b| *b == b'#').count();
    body[hashes..].starts_with('"').then_some(hashes)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns all paths that start with `root::`, with groups expanded to two names after the root: `crate::{ids::A,
/// memory::{x, y}}` gives `ids::A`, `memory::x`, `memory::y`.
fn paths(code: &str, root: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let needle = format!("{root}::");
    for (at, _) in code.match_indices(&needle) {
        if code[..at].ends_with(|c: char| is_word(c) || c == ':') {
            continue;
        }
        expand_use_tree(&code[at + needle.len()..], "", &mut found);
    }
    found
}

/// Expands one path at the start of `text`, and returns the number of bytes read.
fn expand_use_tree(text: &str, prefix: &str, found: &mut BTreeSet<String>) -> usize {
    let trimmed = text.trim_start();
    let skipped = text.len() - trimmed.len();
    if let Some(group) = trimmed.strip_prefix('{') {
        let mut at = 0;
        loop {
            at += group[at..].len() - group[at..].trim_start_matches([' ', '\n', '\t', ',']).len();
            if at >= group.len() || group[at..].starts_with('}') {
                return skipped + 1 + at + 1;
            }
            let read = expand_use_tree(&group[at..], prefix, found);
            if read == 0 {
                return skipped + 1 + at;
            }
            at += read;
            // Skips `as Name` and other text up to the next element.
            at += group[at..].find([',', '}']).unwrap_or(group.len() - at);
        }
    }
    let name: String = trimmed.chars().take_while(|c| is_word(*c) || *c == '*').collect();
    let path = if prefix.is_empty() {
        name.clone()
    } else {
        format!("{prefix}::{name}")
    };
    let read = skipped + name.len();
    match trimmed[name.len()..].strip_prefix("::") {
        Some(rest) if !name.is_empty() => read + 2 + expand_use_tree(rest, &path, found),
        _ => {
            found.insert(path);
            read
        }
    }
}

fn violations_in(path: &str, text: &str) -> Vec<String> {
    let source = SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let room = source.room().to_owned();
    // Tests may name any adapter. Test code is at the end of a file or in a test file.
    let text = source.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    let code = if is_test { String::new() } else { code_of(text) };
    let mut faults = Vec::new();

    let rules: BTreeMap<&str, &[&str]> = ALLOWED_IMPORTS.iter().copied().collect();
    let Some(may_see) = rules.get(room.as_str()) else {
        return vec![format!("{path}: the room `{room}` is not in the import rule")];
    };
    let mut named = paths(&code, "crate");
    named.extend(paths(&code, "colloquy"));
    for name in &named {
        let mut parts = name.split("::");
        let (target, inner) = (parts.next().unwrap_or_default(), parts.next());
        if !rules.contains_key(target) || target == room || *may_see == EVERYTHING {
            continue;
        }
        if !may_see.contains(&target) {
            faults.push(format!("{path}: `{room}` must not name `crate::{name}`"));
        } else if target == "tenancy"
            && SCOPE_ONLY.contains(&room.as_str())
            && !inner.is_some_and(|n| SCOPE_NAMES.contains(&n))
        {
            faults.push(format!(
                "{path}: `{room}` may name only the scope of `tenancy`, not `crate::{name}`"
            ));
        }
    }
    if !ACTIX.contains(&room.as_str()) && names_crate(&code, "actix") {
        faults.push(format!("{path}: `actix` belongs to {}", ACTIX.join(", ")));
    }
    if path != SOCKET_FILE && names_crate(&code, "actix_web_actors") {
        faults.push(format!("{path}: `actix_web_actors` belongs to {SOCKET_FILE}"));
    }
    let lines = source.text.lines().count();
    if lines > MAX_LINES && !LONGER_FILES.iter().any(|(name, _)| *name == path) {
        faults.push(format!("{path}: {lines} lines; split it, or list it with a reason"));
    }
    faults
}

/// True if `code` names the crate `name` as the root of a path.
fn names_crate(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let root = before.strip_suffix("::").unwrap_or(before);
        let is_root = !root.ends_with(is_word) && !root.ends_with('>');
        let is_path = after.starts_with("::");
        let is_use = before.trim_end().ends_with("use") && after.starts_with([';', ' ']);
        is_root && (is_path || is_use)
    })
}

#[test]
fn source_files_obey_the_import_rule() {
    let faults: Vec<String> = sources().iter().flat_map(|s| violations_in(&s.path, &s.text)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn adapters_are_named_only_by_app_cli_and_adapters() {
    for (room, may_see) in ALLOWED_IMPORTS {
        let allowed = ["app", "cli", "main", "lib"].contains(room);
        assert_eq!(allowed, may_see.contains(&"*"), "{room}");
        assert!(!may_see.contains(&"adapters"), "{room}");
    }
}

#[test]
fn import_checker_finds_known_violations() {
    let bad = [
        ("ids.rs", "use crate::memory::Fact;"),
        ("memory/fact.rs", "fn f() { crate::ports::x(); }"),
        ("memory/fact.rs", "use crate::{ids::FactId, ports::{llm}};"),
        (
            "dialogue/turn.rs",
            "use crate::{\n    memory::turn::Turn,\n    adapters::sqlite,\n};",
        ),
        ("dialogue/turn.rs", "use actix::prelude::*;"),
        ("dialogue/turn.rs", "use crate::tenancy::auth::mint;"),
        ("adapters/sqlite/mod.rs", "pub(in crate::dialogue) fn f() {}"),
        ("http/mod.rs", "let x: ::actix::Addr<X>;"),
        ("http/ws.rs", "use actix_web_actors::ws;"),
        ("strange/mod.rs", ""),
        ("memory/long.rs", &"\n".repeat(MAX_LINES + 1)),
    ];
    for (path, text) in bad {
        assert_eq!(violations_in(path, text).len(), 1, "{path}: {}", text.trim());
    }
    let good = [
        (
            "memory/fact.rs",
            "// crate::ports::x\nconst A: &str = \"crate::ports\"; use crate::ids::FactId;",
        ),
        (
            "memory/fact.rs",
            "const A: &str = r#\"use \"actix\"; crate::ports::x\"#;",
        ),
        (
            "dialogue/turn.rs",
            "use crate::tenancy::TenantScope; use super::x; const Q: char = '\"'; use crate::ids::A;",
        ),
        ("http/mod.rs", "use actix_web::{web, HttpRequest};"),
        ("actors/player_socket.rs", "use actix_web_actors::ws; use actix::Actor;"),
        ("app.rs", "use crate::adapters::sqlite;"),
        (
            "dialogue/turn.rs",
            "#[cfg(test)]\nmod tests {\n    use crate::adapters::scripted;\n}",
        ),
        ("dialogue/turn/tests.rs", "use crate::adapters::scripted;"),
    ];
    for (path, text) in good {
        assert_eq!(violations_in(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

#[test]
fn documented_tests_all_exist() {
    let code: String = ["src", "tests"]
        .map(sources_in)
        .into_iter()
        .flatten()
        .map(|source| source.text)
        .collect();
    let mut named = 0;
    for document in ["SECURITY.md", "docs/attacks.md"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap();
        // Names of tests are long sentences. Settings and columns are shorter or contain a dot.
        let words = text.split('`').skip(1).step_by(2);
        for name in words.filter(|word| word.matches('_').count() >= 4 && !word.contains(['.', '/', ' '])) {
            named += 1;
            let is_there = code.contains(&format!("fn {name}(")) || code.contains(&format!("fn {name}<"));
            assert!(
                is_there || code.contains(&format!(" {name},")),
                "{document} names `{name}`"
            );
        }
    }
    assert!(named > 40, "{named}");
}
