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
mod limits;
mod lorebook;
mod npc;
mod png;
mod report;
#[cfg(test)]
mod tests;
mod texts;

use serde_json::Value;

pub use self::{
    export::card_from_npc,
    limits::MAX_BOOK_ENTRIES,
    lorebook::Lorebook,
    npc::{CharacterCard, ImportedNpc},
    png::write_png_card,
    report::{CardError, NotTaken},
};
use self::{
    fields::{Object, kind_of, printable},
    lorebook::read_book,
    npc::read_card,
};

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
