//! Checks links between documents and citations in code: each must name an existing file and heading. A guide that
//! edits a template must name a text of the template.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

/// Documents whose links are checked, besides all pages below `docs/`.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docker/README.md",
    "examples/README.md",
    "load-tests/README.md",
];

/// Folders whose texts may cite `docs/NAME.md#anchor` or `docs/FOLDER/NAME.md#anchor`.
const CITING: &[&str] = &["src", "tests", "config", "docs"];

/// Folders outside the project's text, at any depth.
const SKIPPED: &[&str] = &["target", ".git", "node_modules", "__pycache__"];

/// The ledger folder of a server started in the repository.
const DATA: &str = "data";

/// Documents that were never in the repository, and their former citation marks. Split, so that this file cites none.
const ABSENT: &[&str] = &["DESIGN", "ALGORITHMS", "PROTOCOL", "PARTS"];
const ABSENT_MARKS: &[&str] = &[" §", ".md", " \"", ", first page"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the text files below `folder`, relative to the root, with their texts.
fn texts_below(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (kind, path) = (entry.file_type().unwrap(), entry.path());
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_dir() {
                if !SKIPPED.contains(&name.as_str()) && path != root().join(DATA) {
                    folders.push(path);
                }
            } else if kind.is_file() {
                // Binary files, such as a fuzzer's corpus, contain no citations.
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let relative = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
                found.push((relative, text));
            }
        }
    }
    found.sort();
    found
}

/// Returns the documents whose links are checked, with their texts.
fn documents() -> Vec<(String, String)> {
    let mut documents: Vec<(String, String)> = DOCUMENTS
        .iter()
        .map(|name| ((*name).to_owned(), fs::read_to_string(root().join(name)).unwrap()))
        .collect();
    let pages = texts_below("docs").into_iter();
    documents.extend(pages.filter(|(name, _)| has_ending(name, "md")));
    documents
}

fn has_ending(name: &str, ending: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == ending)
}

/// Returns the lines of a Markdown text outside its code blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((at + 1, line))
    })
}

/// Returns GitHub's anchor of a heading: lower case, blanks to hyphens, other punctuation dropped.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns the text of a heading without the targets of its links.
fn without_targets(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text
}

/// Returns the anchors of a document. A repeated heading's anchor ends in a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for (_, line) in prose(text) {
        let depth = line.bytes().take_while(|byte| *byte == b'#').count();
        let Some(heading) = line[depth..].strip_prefix(' ').filter(|_| (1..=6).contains(&depth)) else {
            continue;
        };
        let slug = slug(&without_targets(heading));
        let before = times.entry(slug.clone()).or_default();
        found.insert(if *before == 0 { slug } else { format!("{slug}-{before}") });
        *before += 1;
    }
    found
}

/// A link or a citation, and its place.
#[derive(Debug, PartialEq)]
struct Link {
    /// The place as `file:line`.
    from: String,
    /// The text as written.
    written: String,
    /// The target, relative to the root.
    file: String,
    anchor: Option<String>,
}

/// Returns the relative links `[text](target)` of a document.
fn links_of(document: &str, text: &str) -> Vec<Link> {
    let folder = Path::new(document).parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for (line, content) in prose(text) {
        for rest in content.split("](").skip(1) {
            let Some((target, _)) = rest.split_once(')') else {
                continue;
            };
            let written = target.split_whitespace().next().unwrap_or_default();
            if written.contains("://") || written.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = match written.split_once('#') {
                Some((path, anchor)) => (path, Some(anchor.to_owned())),
                None => (written, None),
            };
            let file = if path.is_empty() {
                document.to_owned()
            } else {
                plain(&folder.join(path))
            };
            found.push(Link {
                from: format!("{document}:{line}"),
                written: written.to_owned(),
                file,
                anchor,
            });
        }
    }
    found
}

/// Returns a path without `.` and `..`, with `/`.
fn plain(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop();
            }
            other => parts.push(other.as_os_str().to_string_lossy().into_owned()),
        }
    }
    parts.join("/")
}

/// Returns the citations `docs/NAME.md` and `docs/FOLDER/NAME.md` of a text, with or without `#anchor`; not the ends of
/// longer paths.
fn citations_of(file: &str, text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (at, content) in text.lines().enumerate() {
        for (start, _) in content.match_indices("docs/") {
            let is_inside = content[..start].ends_with(|c: char| c.is_alphanumeric() || "/._-".contains(c));
            let cited = &content[start..];
            let Some(end) = cited.find(".md").map(|dot| dot + ".md".len()) else {
                continue;
            };
            let name = &cited["docs/".len()..end - ".md".len()];
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || "-/".contains(c));
            if is_inside || !is_name {
                continue;
            }
            let anchor = cited[end..].strip_prefix('#').map(|rest| {
                let ends = rest.find(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
                rest[..ends.unwrap_or(rest.len())].to_owned()
            });
            let file_cited = cited[..end].to_owned();
            let written = anchor
                .as_ref()
                .map_or(file_cited.clone(), |of| format!("{file_cited}#{of}"));
            found.push(Link {
                from: format!("{file}:{}", at + 1),
                written,
                file: file_cited,
                anchor,
            });
        }
    }
    found
}

/// Returns a link's fault. `text_of` reads a document, and `exists` is true for an existing file or folder.
fn fault_of(link: &Link, text_of: &dyn Fn(&str) -> Option<String>, exists: &dyn Fn(&str) -> bool) -> Option<String> {
    let Link {
        from,
        written,
        file,
        anchor,
    } = link;
    if !exists(file) {
        return Some(format!("{from}: `{written}`: there is no {file}"));
    }
    let anchor = anchor.as_ref().filter(|_| has_ending(file, "md"))?;
    let has_heading = text_of(file).is_some_and(|text| anchors(&text).contains(anchor));
    (!has_heading).then(|| format!("{from}: `{written}`: {file} has no heading `#{anchor}`"))
}

fn faults_of(links: &[Link]) -> Vec<String> {
    let text_of = |file: &str| fs::read_to_string(root().join(file)).ok();
    let exists = |file: &str| root().join(file).exists();
    links
        .iter()
        .filter_map(|link| fault_of(link, &text_of, &exists))
        .collect()
}

/// Returns the lines of a text that cite a document outside the repository.
fn cites_absent(file: &str, text: &str) -> Vec<String> {
    let cites = |line: &str| {
        ABSENT.iter().any(|name| {
            line.match_indices(name).any(|(at, _)| {
                let is_word = !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                let after = &line[at + name.len()..];
                is_word && ABSENT_MARKS.iter().any(|mark| after.starts_with(mark))
            })
        })
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| cites(line))
        .map(|(at, line)| format!("{file}:{}: {}", at + 1, line.trim()))
        .collect()
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let links: Vec<Link> = documents()
        .iter()
        .flat_map(|(name, text)| links_of(name, text))
        .collect();
    assert!(links.len() > 30, "only {} links were found", links.len());
    let in_guides = links
        .iter()
        .filter(|link| link.from.starts_with("docs/guides/"))
        .count();
    assert!(in_guides > 10, "only {in_guides} links of docs/guides were found");
    let faults = faults_of(&links);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn guide_to_prompts_replaces_a_text_of_the_built_in_template() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let guide = read("docs/guides/prompts.md");
    let (_, replacement) = guide.split_once("mkdir -p prompts/en\nsed 's/").unwrap();
    let (replaced, _) = replacement.split_once('/').unwrap();
    let template = read("config/prompts/en/reply_system.j2");
    assert_eq!(template.matches(replaced).count(), 1, "{replaced}");
}

#[test]
fn every_citation_names_a_page_and_a_heading() {
    let texts = CITING.iter().flat_map(|folder| texts_below(folder));
    // The examples below cite missing documents.
    let citations: Vec<Link> = texts
        .filter(|(file, _)| file != "tests/it/links.rs")
        .flat_map(|(file, text)| citations_of(&file, &text))
        .collect();
    let with_heading = citations.iter().filter(|link| link.anchor.is_some()).count();
    assert!(with_heading > 40, "only {with_heading} citations were found");
    let faults = faults_of(&citations);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn no_file_cites_a_document_that_is_not_in_the_repository() {
    let faults: Vec<String> = texts_below("")
        .iter()
        .flat_map(|(file, text)| cites_absent(file, text))
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_checker_of_links_finds_what_it_should() {
    const PAGE: &str =
        "# A page\n\n## Dedupe & conflict\n\n```\n## no heading\n```\n\n## The `state` block\n\n## Again\n\n## Again\n";
    let text_of = |file: &str| (file == "docs/page.md").then(|| PAGE.to_owned());
    let exists = |file: &str| ["docs/page.md", "src/lib.rs", "docker"].contains(&file);
    let check = |links: Vec<Link>| -> Vec<String> {
        let found = links.iter().filter_map(|link| fault_of(link, &text_of, &exists));
        found.collect()
    };

    let anchors: Vec<String> = anchors(PAGE).into_iter().collect();
    assert_eq!(
        anchors,
        ["a-page", "again", "again-1", "dedupe--conflict", "the-state-block"]
    );

    let good = "[a](docs/page.md#the-state-block), [b](docs/page.md), [c](docker), [d](https://x.example/y#z)";
    assert_eq!(check(links_of("README.md", good)), Vec::<String>::new());
    assert_eq!(links_of("README.md", good).len(), 3);
    let from_docs = "[a](page.md#again) [b](#again-1) [c](../src/lib.rs)";
    assert_eq!(check(links_of("docs/page.md", from_docs)), Vec::<String>::new());
    let bad = "one\n[a](docs/page.md#the-block)\n[b](docs/none.md)";
    assert_eq!(
        check(links_of("README.md", bad)),
        [
            "README.md:2: `docs/page.md#the-block`: docs/page.md has no heading `#the-block`",
            "README.md:3: `docs/none.md`: there is no docs/none.md",
        ]
    );

    let cited = "//! Facts (docs/page.md#again), and `docs/page.md`.\n// https://x.example/docs/other.md";
    assert_eq!(citations_of("src/a.rs", cited).len(), 2);
    assert_eq!(
        check(citations_of("src/a.rs", "// See docs/guides/none.md.")),
        ["src/a.rs:1: `docs/guides/none.md`: there is no docs/guides/none.md"]
    );
    assert_eq!(check(citations_of("src/a.rs", cited)), Vec::<String>::new());
    assert_eq!(
        check(citations_of("src/a.rs", "\n/// See docs/page.md#renamed.")),
        ["src/a.rs:2: `docs/page.md#renamed`: docs/page.md has no heading `#renamed`"]
    );
    assert_eq!(
        check(citations_of("src/a.rs", "//! See docs/folder/none.md.")),
        ["src/a.rs:1: `docs/folder/none.md`: there is no docs/folder/none.md"]
    );

    for name in ABSENT {
        let line = format!("/// Facts ({name} §1).");
        assert_eq!(cites_absent("src/a.rs", &line).len(), 1, "{line}");
        let code = format!("const {name}: u32 = wanted() / {name}, 4;");
        assert_eq!(cites_absent("src/a.rs", &code), Vec::<String>::new());
    }
}
