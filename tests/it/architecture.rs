//! Enforces the rules of `ARCHITECTURE.md` that the compiler does not: which crate may depend on which, and the maximum
//! length of a file. The compiler refuses an import of a crate that is no dependency. The picture of the crates, and the
//! files and functions that the document names, must be true.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

/// The crates of the workspace that each crate may depend on, outside its tests. The root package may use all.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("memory", &["core"]),
    ("ports", &["core", "memory"]),
    ("transport", &["ports"]),
    ("tenancy", &["core", "ports"]),
    ("dialogue", &["core", "memory", "ports"]),
    ("actors", &["core", "memory", "ports", "dialogue"]),
    (
        "http",
        &[
            "core",
            "memory",
            "ports",
            "dialogue",
            "transport",
            "actors",
            "tenancy",
            "telemetry",
            "webhooks",
        ],
    ),
    ("stores", &["core", "memory", "ports"]),
    ("models", &["memory", "ports"]),
    ("telemetry", &[]),
    ("webhooks", &["core", "ports"]),
    ("dev/scripted_model", &["memory", "ports"]),
    ("dev/mock_llm", &["models", "ports"]),
    ("dev/eval", &["core", "memory", "ports", "dialogue"]),
    ("dev/chat", &["core", "models"]),
    ("dev/fuzzing", &["core", "memory", "ports", "http", "tenancy"]),
];

/// Crates from outside that belong to some crates of the server alone.
const OUTSIDE: &[(&str, &[&str])] = &[
    ("actix", &["actors", "http"]),
    ("actix-web-actors", &["http"]),
    // `core` with its feature `sql`: ids as values of statements.
    ("sqlx", &["stores", "core"]),
    ("redis", &["stores"]),
    ("qdrant-client", &["stores"]),
    ("async-openai", &["models"]),
    ("jsonwebtoken", &["tenancy", "http", "dev/fuzzing"]),
    ("governor", &["tenancy"]),
    ("hmac", &["webhooks"]),
    ("ed25519-dalek", &["webhooks"]),
    ("rmcp", &["http"]),
];

/// The only file that may name `actix_web_actors`, which is deprecated upstream.
const SOCKET_FILE: &str = "http/socket/player_socket.rs";

/// The only folder that may name `rmcp`.
const MCP_FOLDER: &str = "http/mcp/";

const MAX_LINES: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Returns the names in the section `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let section = lines.take_while(|line| !line.starts_with('['));
    let name = |line: &str| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned();
    section
        .map(name)
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect()
}

/// Returns the crates in `src/` and `src/dev/`: the folder and the dependencies.
fn crates() -> Vec<(String, BTreeSet<String>)> {
    let folders = [root(), root().join("dev")].map(|parent| fs::read_dir(parent).unwrap());
    let manifests = folders.into_iter().flatten().map(|entry| {
        let folder = entry.unwrap().path();
        (folder.clone(), folder.join("Cargo.toml"))
    });
    let mut found: Vec<_> = manifests
        .filter(|(_, manifest)| manifest.exists())
        .map(|(folder, manifest)| {
            let name = folder
                .strip_prefix(root())
                .unwrap()
                .to_str()
                .unwrap()
                .replace('\\', "/");
            (name, dependencies(&fs::read_to_string(manifest).unwrap()))
        })
        .collect();
    found.sort();
    found
}

/// Returns the Rust files of `src/`: the path relative to `src/`, and the text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(found.len() > 300, "src/ was not found");
    found
}

#[test]
fn crates_depend_only_on_the_crates_below_them() {
    let crates = crates();
    let names: Vec<&str> = crates.iter().map(|(name, _)| name.as_str()).collect();
    let mut listed: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    listed.sort_unstable();
    assert_eq!(names, listed);
    for (name, dependencies) in &crates {
        let (_, allowed) = ALLOWED.iter().find(|(listed, _)| listed == name).unwrap();
        let of_server = dependencies.iter().filter_map(|name| name.strip_prefix("colloquy-"));
        for dependency in of_server {
            assert!(allowed.contains(&dependency), "{name} must not depend on {dependency}");
        }
        for (outside, owners) in OUTSIDE {
            let may_use = owners.contains(&name.as_str());
            assert!(
                !dependencies.contains(*outside) || may_use,
                "{name} must not depend on {outside}"
            );
        }
    }
}

#[test]
fn deprecated_socket_crate_is_named_in_one_file() {
    for (path, text) in sources() {
        let names = text
            .lines()
            .any(|line| !line.trim_start().starts_with("//") && line.contains("actix_web_actors"));
        assert!(!names || path == SOCKET_FILE, "{path}");
    }
}

#[test]
fn protocol_of_agents_is_read_in_one_folder() {
    for (path, text) in sources() {
        let names = text
            .lines()
            .any(|line| !line.trim_start().starts_with("//") && line.contains("rmcp::"));
        assert!(!names || path.starts_with(MCP_FOLDER), "{path}");
    }
}

#[test]
fn source_files_are_short() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{path}: {lines} lines; split the file");
    }
}

fn architecture() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).unwrap()
}

/// True if one of `dependencies` depends on `name`, directly or through others.
fn reaches(crates: &[(String, BTreeSet<String>)], dependencies: &BTreeSet<String>, name: &str) -> bool {
    dependencies.iter().any(|dependency| {
        let crate_below = crates.iter().find(|(listed, _)| listed == dependency);
        crate_below.is_some_and(|(_, below)| below.contains(name) || reaches(crates, below, name))
    })
}

/// The picture has the direct dependencies that no other dependency brings along; not those of `src/dev/`.
#[test]
fn picture_of_the_crates_has_the_dependencies_of_the_manifests() {
    let crates: Vec<(String, BTreeSet<String>)> = crates()
        .into_iter()
        .map(|(name, dependencies)| {
            let of_server = dependencies.iter().filter_map(|name| name.strip_prefix("colloquy-"));
            (name, of_server.map(str::to_owned).collect())
        })
        .collect();
    let expected: BTreeSet<(String, String)> = crates
        .iter()
        .filter(|(name, _)| !name.starts_with("dev/"))
        .flat_map(|(name, dependencies)| {
            let direct = dependencies
                .iter()
                .filter(|dependency| !reaches(&crates, dependencies, dependency));
            direct.map(|dependency| (name.clone(), dependency.clone()))
        })
        .collect();
    let document = architecture();
    let (_, picture) = document.split_once("```mermaid\n").unwrap();
    let (picture, _) = picture.split_once("```").unwrap();
    let drawn: BTreeSet<(String, String)> = picture
        .lines()
        .filter(|line| !line.trim_start().starts_with("root["))
        .filter_map(|line| line.trim().split_once(" --> "))
        .flat_map(|(name, dependencies)| {
            let dependencies = dependencies.split(" & ");
            dependencies.map(|dependency| (name.to_owned(), dependency.to_owned()))
        })
        .collect();
    assert_eq!(drawn, expected);
}

/// Returns the files and folders that a path in the document names, in the root or in `src/`. A part may be `*`.
fn named_places(path: &str) -> Vec<PathBuf> {
    let root_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut places = vec![root_folder.to_owned(), root_folder.join("src")];
    for part in path.trim_end_matches('/').split('/') {
        places = places
            .into_iter()
            .flat_map(|folder| match part {
                "*" => fs::read_dir(folder).map_or_else(
                    |_| Vec::new(),
                    |entries| entries.map(|entry| entry.unwrap().path()).collect(),
                ),
                name => vec![folder.join(name)],
            })
            .filter(|place| place.exists())
            .collect();
    }
    places
}

#[test]
fn files_that_the_architecture_names_exist() {
    let path_span = Regex::new(r"`([a-z_-]+/[A-Za-z0-9_./*-]+)`").unwrap();
    let document = architecture();
    let paths: Vec<&str> = path_span
        .captures_iter(&document)
        .map(|found| found.get(1).unwrap().as_str())
        .collect();
    assert!(paths.len() > 60, "only {} paths were found", paths.len());
    let missing: Vec<&&str> = paths.iter().filter(|path| named_places(path).is_empty()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn functions_are_in_the_files_that_the_architecture_names() {
    let names_in_file = Regex::new(r"((?:`[A-Za-z_:!]+`(?:,\s| and\s)?)+)\s?in\s`([a-z_/]+\.(?:rs|lua))`").unwrap();
    let name = Regex::new(r"`([A-Za-z_:!]+)`").unwrap();
    let document = architecture();
    let mut pairs = 0;
    let mut missing = Vec::new();
    for found in names_in_file.captures_iter(&document) {
        let texts: Vec<String> = named_places(&found[2])
            .iter()
            .map(|file| fs::read_to_string(file).unwrap())
            .collect();
        for named in name.captures_iter(&found[1]) {
            pairs += 1;
            let last = named[1].rsplit("::").next().unwrap();
            if !texts.iter().any(|text| text.contains(last)) {
                missing.push(format!("{} in {}", &named[1], &found[2]));
            }
        }
    }
    assert!(pairs > 20, "only {pairs} pairs were found");
    assert!(missing.is_empty(), "{missing:?}");
}
