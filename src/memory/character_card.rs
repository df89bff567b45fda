//! Character cards and lorebooks: files in which authors exchange characters and worlds. A card becomes an NPC, a
//! lorebook becomes entries of lore, and the reverse (docs/guides/import-cards.md).
//!
//! The formats are Character Card V1, V2 and V3 as JSON or inside a PNG, lorebooks inside a card, lorebooks of V3, and
//! exports of "world info". Input comes from strangers. A fault of the file is a [`CardError`]. A part that has no
//! place here is a [`NotTaken`] in the report.
//!
//! Cards as archives (`.charx`) are not read.

mod bounded_json;
mod decorators;
mod entries;
mod export;
mod fields;
mod lorebook;
mod npc;
mod png;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

pub use self::{
    export::card_from_npc,
    lorebook::{Lorebook, MAX_BOOK_ENTRIES},
    npc::{CharacterCard, ImportedNpc},
    png::write_png_card,
};
use self::{
    fields::{Object, kind_of, printable},
    lorebook::read_book,
    npc::read_card,
};

/// Why a file is refused. The messages are safe to show to a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    #[error("the file is no JSON: {0}")]
    NotJson(String),
    #[error("the file has too many values: read, it would take more than {most} bytes of memory")]
    TooManyValues { most: usize },
    #[error("the PNG has no character card: it needs a text chunk `ccv3` or `chara`")]
    NoCardInPng,
    #[error("the PNG is damaged: {0}")]
    DamagedPng(&'static str),
    #[error("the text chunk `{chunk}` of the PNG is no base64")]
    BadBase64 { chunk: &'static str },
    #[error("the text chunk `{chunk}` of the PNG has more than {most} bytes")]
    TooLarge { chunk: &'static str, most: usize },
    #[error("the spec `{0}` is unknown: known are `chara_card_v2`, `chara_card_v3` and `lorebook_v3`")]
    UnknownSpec(String),
    #[error("the JSON is no character card: a card has `spec` and `data`, or `name` and `description`")]
    NotACard,
    #[error("the file is a lorebook, not a character card")]
    IsLorebook,
    #[error("the JSON is no lorebook: a lorebook has `entries`")]
    NotALorebook,
    #[error("the character card has no lorebook")]
    NoLorebook,
    #[error("`{path}` is missing")]
    Missing { path: String },
    #[error("`{path}` must be {expected}, not {found}")]
    WrongType {
        path: String,
        expected: &'static str,
        found: &'static str,
    },
    #[error("the lorebook has {0} entries: at most {MAX_BOOK_ENTRIES} are allowed")]
    TooManyEntries(usize),
}

/// A part of a file that was left out, or was shortened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NotTaken {
    /// The name of the entry of lore; without it, the whole card or book is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// The field of the file, for example `alternate_greetings` or `extensions.depth`.
    pub field: String,
    /// A sentence without a full stop.
    pub reason: String,
}

/// The report of an import.
#[derive(Debug, Clone, Default, PartialEq)]
struct Report {
    all: Vec<NotTaken>,
    /// The fields that were reported for the whole file.
    of_file: BTreeSet<String>,
    /// The parts of entries over the limit.
    unlisted: usize,
}

/// Most fields without a known meaning that are reported for one file.
const MAX_FILE_FIELDS: usize = 60;
/// Most parts of entries in one report. Otherwise the report of a hostile file would be much longer than the file.
const MAX_ENTRY_PARTS: usize = 10_000;

impl Report {
    /// Reports a field of the whole card or book, once.
    fn note(&mut self, field: &str, reason: impl Into<String>) {
        if self.of_file.len() < MAX_FILE_FIELDS && !self.of_file.contains(field) {
            self.of_file.insert(field.to_owned());
            self.all.push(NotTaken {
                entry: None,
                field: printable(field),
                reason: reason.into(),
            });
        }
    }

    /// Reports a field of one entry.
    fn note_entry(&mut self, entry: &str, field: &str, reason: impl Into<String>) {
        if self.all.len() >= MAX_ENTRY_PARTS {
            self.unlisted += 1;
            return;
        }
        self.all.push(NotTaken {
            entry: Some(entry.to_owned()),
            field: field.to_owned(),
            reason: reason.into(),
        });
    }

    /// All parts. The last part counts those over the limit.
    fn into_parts(mut self) -> Vec<NotTaken> {
        if self.unlisted > 0 {
            self.all.push(NotTaken {
                entry: None,
                field: "entries".to_owned(),
                reason: format!("{} further parts are not listed", self.unlisted),
            });
        }
        self.all
    }
}

/// Reads a character card: a PNG with a card inside, or JSON.
///
/// # Errors
/// Damaged files, other files, unknown specifications, and fields of the wrong type with their paths.
pub fn parse_card(bytes: &[u8]) -> Result<CharacterCard, CardError> {
    let value = read_file(bytes)?;
    let root = value.as_object().ok_or(CardError::NotACard)?;
    match spec_of(root)? {
        Some(Spec::Card) => read_card(data_of(root)?, "data", root.get("spec_version")),
        Some(Spec::Lorebook) => Err(CardError::IsLorebook),
        None if is_bare_card(root) => read_card(root, "", None),
        None if root.contains_key("entries") => Err(CardError::IsLorebook),
        None => Err(CardError::NotACard),
    }
}

/// Reads a lorebook: of V3, an export of world info, or the lorebook inside a character card.
///
/// # Errors
/// As [`parse_card`]; a card without a lorebook; too many entries.
pub fn parse_lorebook(bytes: &[u8]) -> Result<Lorebook, CardError> {
    let value = read_file(bytes)?;
    let root = value.as_object().ok_or(CardError::NotALorebook)?;
    match spec_of(root)? {
        Some(Spec::Lorebook) => read_book(data_of(root)?, "data", None),
        None if root.contains_key("entries") => read_book(root, "", None),
        None if !is_bare_card(root) => Err(CardError::NotALorebook),
        Some(Spec::Card) | None => parse_card(bytes)?.into_lorebook().ok_or(CardError::NoLorebook),
    }
}

#[derive(Debug, Clone, Copy)]
enum Spec {
    Card,
    Lorebook,
}

fn spec_of(root: &Object) -> Result<Option<Spec>, CardError> {
    match root.get("spec") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(spec)) => match spec.as_str() {
            "chara_card_v2" | "chara_card_v3" => Ok(Some(Spec::Card)),
            "lorebook_v3" => Ok(Some(Spec::Lorebook)),
            other => Err(CardError::UnknownSpec(printable(other))),
        },
        Some(other) => Err(CardError::WrongType {
            path: "spec".to_owned(),
            expected: "text",
            found: kind_of(other),
        }),
    }
}

fn data_of(root: &Object) -> Result<&Object, CardError> {
    fields::object(root, "data", "")?.ok_or_else(|| CardError::Missing {
        path: "data".to_owned(),
    })
}

/// True for a card of V1, which has its fields at the root.
fn is_bare_card(root: &Object) -> bool {
    let fields = ["description", "personality", "scenario", "first_mes", "mes_example"];
    root.contains_key("name") && fields.iter().any(|field| root.contains_key(*field))
}

/// Most memory of the values of one file. A file of 8 MiB with nothing but brackets would take some hundred times its
/// size; lorebooks take about seven times the size of their structure, and texts once.
const MAX_VALUE_BYTES: usize = 32 << 20;

/// Reads the JSON of a file. The reader of JSON refuses more than 128 levels.
fn read_file(bytes: &[u8]) -> Result<Value, CardError> {
    let from_png;
    let json = if png::is_png(bytes) {
        from_png = png::read_card_json(bytes)?;
        from_png.as_slice()
    } else {
        bytes
    };
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    bounded_json::parse_json(json, MAX_VALUE_BYTES.max(4 * json.len()))
}
