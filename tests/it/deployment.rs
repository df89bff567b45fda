//! Checks what `docker/` and `scripts/` promise to operators: no default passwords, images that can be pinned, isolated
//! nodes, and dated waivers of advisories.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use regex::Regex;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files of a folder with their text.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && !path.ends_with(".env") {
            files.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
    files
}

/// Returns a writable copy of `docker/`.
fn copy_of_docker() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for (path, text) in files("docker") {
        let to = copy.path().join(path.file_name().unwrap());
        fs::write(&to, text).unwrap();
        fs::set_permissions(&to, fs::metadata(&path).unwrap().permissions()).unwrap();
    }
    fs::create_dir(copy.path().join("kubernetes")).unwrap();
    copy
}

fn run(folder: &Path, script: &str, arguments: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new(folder.join(script))
        .args(arguments)
        .env("PATH", format!("{}:{path}", folder.display()))
        .output()
        .unwrap()
}

fn assert_only_its_owner_reads(file: &Path) {
    let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{}", file.display());
}

#[test]
fn passwords_have_no_defaults() {
    let default = Regex::new(r"\$\{\w*(PASSWORD|SECRET)\w*(:?-|\})").unwrap();
    for (path, text) in files("docker") {
        let yaml = path.extension().is_some_and(|extension| extension == "yaml");
        if let Some(found) = default.find(&text).filter(|_| yaml) {
            panic!("{}: {}", path.display(), found.as_str());
        }
    }
}

#[test]
fn secrets_are_created_once_and_readable_by_their_owner_only() {
    let docker = copy_of_docker();
    let file = docker.path().join(".env");
    assert!(run(docker.path(), "secrets.sh", &[]).status.success());
    assert_only_its_owner_reads(&file);
    let first = fs::read_to_string(&file).unwrap();
    // All variables used by the files exist, and all values differ.
    let asked = Regex::new(r"\$\{(\w+):\?").unwrap();
    for (_, text) in files("docker") {
        for name in asked.captures_iter(&text).map(|found| found[1].to_owned()) {
            let line = Regex::new(&format!("(?m)^{name}=[0-9a-f]{{64}}$")).unwrap();
            assert!(line.is_match(&first), "{name}");
        }
    }
    let mut values: Vec<_> = first.lines().filter_map(|line| line.split_once('=')).collect();
    values.sort_by_key(|(_, value)| *value);
    values.dedup_by_key(|(_, value)| *value);
    assert_eq!(values.len(), first.lines().count());

    assert!(run(docker.path(), "secrets.sh", &[]).status.success());
    assert_eq!(fs::read_to_string(&file).unwrap(), first);
    // Existing values stay, and missing values are added.
    fs::write(&file, "NODE_SECRET=mine").unwrap();
    assert!(run(docker.path(), "secrets.sh", &[]).status.success());
    let added = fs::read_to_string(&file).unwrap();
    assert!(
        added.starts_with("NODE_SECRET=mine\n") && added.contains("\nLEDGER_PASSWORD="),
        "{added}"
    );

    let secret = docker.path().join("kubernetes/secret.yaml");
    assert!(run(docker.path(), "secrets.sh", &["kubernetes"]).status.success());
    assert_only_its_owner_reads(&secret);
    let first = fs::read_to_string(&secret).unwrap();
    assert!(first.contains("COLLOQUY__NODE__SECRET: \""), "{first}");
    assert!(!run(docker.path(), "secrets.sh", &["kubernetes"]).status.success());
    assert_eq!(fs::read_to_string(&secret).unwrap(), first);

    let ignored = fs::read_to_string(root().join(".gitignore")).unwrap();
    for untracked in ["/docker/.env", "secret.yaml"] {
        assert!(ignored.lines().any(|line| line == untracked), "{untracked}");
    }
}

#[test]
fn images_can_be_pinned_to_a_digest() {
    let variable = Regex::new(r"\$\{([A-Z]+_IMAGE):-([^}]+)\}").unwrap();
    let dockerfile = fs::read_to_string(root().join("docker/Dockerfile")).unwrap();
    for line in dockerfile.lines().filter(|line| line.starts_with("FROM ")) {
        assert!(line.contains("_IMAGE}"), "{line}");
    }
    let mut images = std::collections::BTreeMap::new();
    for (path, text) in files("docker") {
        for line in text.lines().filter(|line| line.trim_start().starts_with("image: ")) {
            let own = line.trim() == "image: colloquy";
            assert!(own || variable.is_match(line), "{}: {line}", path.display());
        }
        for found in variable.captures_iter(&text) {
            let tag = images.entry(found[1].to_owned()).or_insert_with(|| found[2].to_owned());
            assert_eq!(*tag, found[2], "{} has two tags", &found[1]);
        }
    }
    for name in ["BUILD_IMAGE", "BASE_IMAGE"] {
        let argument = format!("ARG {name}={}", images[name]);
        assert!(dockerfile.lines().any(|line| line == argument), "{argument}");
    }

    // A stand-in for Docker returns a digest.
    let docker = copy_of_docker();
    let (stand_in, digest) = (docker.path().join("docker"), format!("sha256:{}", "0".repeat(64)));
    fs::write(&stand_in, format!("#!/bin/sh\necho {digest}\n")).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(docker.path().join(".env"), "NODE_SECRET=mine\nREDIS_IMAGE=older\n").unwrap();
    assert!(run(docker.path(), "pin-images.sh", &[]).status.success());
    let pinned = fs::read_to_string(docker.path().join(".env")).unwrap();
    for (name, image) in &images {
        assert!(pinned.contains(&format!("{name}={image}@{digest}\n")), "{pinned}");
    }
    assert!(
        pinned.contains("NODE_SECRET=mine\n") && !pinned.contains("older"),
        "{pinned}"
    );
    assert_only_its_owner_reads(&docker.path().join(".env"));
    // If the registry does not answer, nothing changes.
    fs::write(&stand_in, "#!/bin/sh\nexit 1\n").unwrap();
    assert!(!run(docker.path(), "pin-images.sh", &[]).status.success());
    assert_eq!(fs::read_to_string(docker.path().join(".env")).unwrap(), pinned);
}

/// Every rule of the network policy names its peers. No rule allows all traffic in or out.
#[test]
fn network_policy_names_every_peer() {
    let policy = fs::read_to_string(root().join("docker/kubernetes/network.yaml")).unwrap();
    assert!(policy.contains("policyTypes: [Ingress, Egress]"));
    let rules: Vec<&str> = policy.lines().filter(|line| line.starts_with("    - ")).collect();
    assert_eq!(rules.len(), 9, "{rules:?}");
    assert!(
        rules.iter().all(|rule| matches!(rule.trim(), "- from:" | "- to:")),
        "{rules:?}"
    );
    assert_eq!(policy.matches("\n      ports:\n").count(), rules.len());
    assert!(!policy.contains("{}"));
}

#[test]
fn advisory_waiver_ends_at_its_date() {
    let waivers = |today: &str| {
        Command::new(root().join("scripts/advisories.sh"))
            .arg("waivers")
            .env("TODAY", today)
            .output()
            .unwrap()
    };
    assert!(waivers("2026-11-26").status.success());
    let late = waivers("2999-01-01");
    assert!(!late.status.success());
    let text = String::from_utf8_lossy(&late.stderr).into_owned();
    let ignored = fs::read_to_string(root().join("deny.toml")).unwrap();
    let ignored = ignored.matches("id = \"RUSTSEC-").count();
    assert_eq!(text.matches("waiver expired on ").count(), ignored, "{text}");
}
