//! Why a file is no card, and what an import leaves out.

use std::collections::BTreeSet;

use serde::Serialize;
use utoipa::ToSchema;

use super::{fields::printable, limits::MAX_BOOK_ENTRIES};

/// Most fields without a known meaning that are reported for one file.
const MAX_FILE_FIELDS: usize = 60;
/// Most parts of entries in one report. Otherwise the report of a hostile file would be much longer than the file.
const MAX_ENTRY_PARTS: usize = 10_000;

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
pub(super) struct Report {
    pub(super) all: Vec<NotTaken>,
    /// The fields that were reported for the whole file.
    of_file: BTreeSet<String>,
    /// The parts of entries over the limit.
    unlisted: usize,
}

impl Report {
    /// Reports a field of the whole card or book, once.
    pub(super) fn note(&mut self, field: &str, reason: impl Into<String>) {
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
    pub(super) fn note_entry(&mut self, entry: &str, field: &str, reason: impl Into<String>) {
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
    pub(super) fn into_parts(mut self) -> Vec<NotTaken> {
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
