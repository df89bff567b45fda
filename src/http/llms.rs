//! The documentation for language models: `/llms.txt` lists the pages, `/llms-full.txt` has the text of those that most
//! readers need, and `/llms/…` serves each page in Markdown. The form is that of <https://llmstxt.org>.

use std::{borrow::Cow, fmt::Write as _, sync::LazyLock};

use actix_web::{HttpResponse, get, http::header::ContentType, web};
use regex::Regex;
use rust_embed::RustEmbed;

use super::{AppState, docs::require_docs, errors::Problem};

const README: &str = include_str!("../../README.md");

/// The Markdown pages of `docs`, with paths from that folder.
#[derive(RustEmbed)]
#[folder = "../../docs"]
#[include = "**/*.md"]
struct DocsFolder;

/// Pages of `docs` that explain the server itself rather than its use.
const BACKGROUND_PAGES: [&str; 4] = ["algorithms.md", "benchmarks.md", "decisions.md", "eval.md"];

static INDEX: LazyLock<String> = LazyLock::new(|| write_index(&pages()));
static FULL_TEXT: LazyLock<String> = LazyLock::new(|| write_full_text(&pages()));
static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\[([^\]]*)\]\([^)]*\)").expect("a valid pattern"));

/// The sections of the index. `Optional` is the word of llms.txt for what a reader may skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Start,
    Guides,
    Reference,
    Optional,
}

impl Section {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Start, "Start"),
        (Self::Guides, "Guides"),
        (Self::Reference, "Reference"),
        (Self::Optional, "Optional"),
    ];

    /// Returns the section of a page of `docs`.
    fn of_path(path: &str) -> Self {
        match path.split_once('/') {
            Some(("guides", _)) => Self::Guides,
            None if !BACKGROUND_PAGES.contains(&path) => Self::Reference,
            _ => Self::Optional,
        }
    }
}

struct Page {
    /// The path under `/llms/`: the place in the repository.
    path: String,
    section: Section,
    text: Cow<'static, str>,
}

impl Page {
    fn title(&self) -> &str {
        let first_line = self.text.lines().next().unwrap_or_default();
        first_line.trim_start_matches("# ")
    }

    /// Returns the first sentence after the title, without links.
    fn summary(&self) -> String {
        let paragraph = self.text.split("\n\n").nth(1).unwrap_or_default();
        let paragraph = paragraph.replace('\n', " ");
        let paragraph = LINK.replace_all(&paragraph, "$1");
        match paragraph.split_once(". ") {
            Some((sentence, _)) => format!("{sentence}."),
            None => paragraph.into_owned(),
        }
    }
}

/// Returns all pages by section, each section in alphabetical order.
fn pages() -> Vec<Page> {
    let mut pages = vec![Page {
        path: "README.md".to_owned(),
        section: Section::Start,
        text: README.into(),
    }];
    pages.extend(DocsFolder::iter().filter_map(|path| {
        let file = DocsFolder::get(&path)?;
        Some(Page {
            section: Section::of_path(&path),
            path: format!("docs/{path}"),
            text: String::from_utf8_lossy(&file.data).into_owned().into(),
        })
    }));
    pages.sort_by(|left_page, right_page| {
        (left_page.section, &left_page.path).cmp(&(right_page.section, &right_page.path))
    });
    pages
}

fn write_index(pages: &[Page]) -> String {
    let readme = &pages[0];
    let mut index = format!(
        "# {}\n\n> {}\n\nAll pages are one text in [llms-full.txt](/llms-full.txt), without the optional ones. The API is described in\n\
         [openapi.json](/openapi.json) (REST) and [asyncapi.json](/asyncapi.json) (WebSocket).\n",
        readme.title(),
        readme.summary()
    );
    for (section, name) in Section::ALL {
        let _ = write!(index, "\n## {name}\n\n");
        for page in pages.iter().filter(|page| page.section == section) {
            let _ = writeln!(index, "- [{}](/llms/{}): {}", page.title(), page.path, page.summary());
        }
    }
    index
}

fn write_full_text(pages: &[Page]) -> String {
    let mut text = String::new();
    for page in pages.iter().filter(|page| page.section != Section::Optional) {
        let _ = writeln!(text, "<!-- /llms/{} -->\n\n{}", page.path, page.text);
    }
    text
}

/// Registers the routes. With `http.docs` off, the routes answer 404.
pub(super) fn configure(cfg: &mut web::ServiceConfig) {
    cfg.service(serve_index).service(serve_full_text).service(serve_page);
}

#[get("/llms.txt")]
async fn serve_index(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    require_docs(&state)?;
    Ok(plain_text(&INDEX))
}

#[get("/llms-full.txt")]
async fn serve_full_text(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    require_docs(&state)?;
    Ok(plain_text(&FULL_TEXT))
}

#[get("/llms/{page:.+\\.md}")]
async fn serve_page(state: web::Data<AppState>, page: web::Path<String>) -> Result<HttpResponse, Problem> {
    require_docs(&state)?;
    let text: Cow<'static, [u8]> = if page.as_str() == "README.md" {
        README.as_bytes().into()
    } else {
        let path = page.strip_prefix("docs/").and_then(DocsFolder::get);
        path.ok_or_else(|| Problem::not_found("page"))?.data
    };
    Ok(HttpResponse::Ok()
        .content_type("text/markdown; charset=utf-8")
        .body(text.into_owned()))
}

fn plain_text(text: &'static str) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::plaintext()).body(text)
}
