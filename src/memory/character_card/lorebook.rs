//! Reads lorebooks. A book of V2 or V3 has a list of entries. An export of world info has an object of entries by their
//! numbers, and other names for some fields.

use serde_json::Value;

use super::{
    entries::EntryImport,
    fields::{self, Object, present},
    limits::MAX_BOOK_ENTRIES,
    report::{CardError, NotTaken, Report},
    texts::{Speakers, clean_label, guess_language},
};
use crate::{language::Language, lore::LoreText};
use colloquy_core::ids::LoreId;

/// Most keys of one entry that are read. An exported entry has at most 49.
const MAX_READ_KEYS: usize = 64;

/// The place of the server's own fields in `extensions`.
pub const OWN: &str = "colloquy";

/// A lorebook as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Lorebook {
    /// Empty if the book has no name.
    name: String,
    /// The character of the card that has the book.
    character: Option<String>,
    pub(super) entries: Vec<BookEntry>,
    /// What the book has that no entry can have.
    report: Report,
}

/// An entry as it was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BookEntry {
    pub name: String,
    pub comment: String,
    /// At most `MAX_READ_KEYS`.
    pub keys: Vec<String>,
    /// The number of keys in the file.
    pub key_count: usize,
    /// At most `MAX_READ_KEYS` keys of which another must be in the text; empty if they do not count.
    pub secondary_keys: Vec<String>,
    pub content: String,
    pub is_enabled: bool,
    pub is_constant: bool,
    pub uses_regex: bool,
    /// Messages, not turns.
    pub sticky: f64,
    /// Messages, not turns.
    pub cooldown: f64,
    pub group: String,
    /// The server's own fields.
    pub own_fields: Option<Value>,
}

impl Lorebook {
    /// The name of the book; empty if the book has none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of entries in the file, with those that cannot be taken.
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// The language of most letters in the entries.
    #[must_use]
    pub fn language(&self) -> Language {
        guess_language(self.entries.iter().map(|entry| entry.content.as_str()))
    }

    /// The entries of lore, in the order of the book. Each passes [`LoreText::find_faults`], and each id is unique. The
    /// report has all that was left out.
    #[must_use]
    pub fn to_entries(&self) -> (Vec<(LoreId, LoreText)>, Vec<NotTaken>) {
        let speakers = Speakers::new(self.character.as_deref(), self.language());
        let mut import = EntryImport::new(speakers, self.report.clone());
        for (nth, entry) in self.entries.iter().enumerate() {
            import.add(entry, nth + 1);
        }
        import.finish()
    }
}

/// Reads the book in `object`, which stands at `path` in the file.
///
/// # Errors
/// Fields of the wrong type, and too many entries.
pub fn read_book(object: &Object, path: &str, character: Option<&str>) -> Result<Lorebook, CardError> {
    let mut report = Report::default();
    let entry_values: Vec<(String, &Value)> = match present(object, "entries") {
        None => {
            return Err(CardError::Missing {
                path: fields::join(path, "entries"),
            });
        }
        Some(Value::Array(items)) => {
            let items = items.iter().enumerate();
            items.map(|(nth, item)| (format!("entries[{nth}]"), item)).collect()
        }
        Some(Value::Object(items)) => {
            let mut items: Vec<(&String, &Value)> = items.iter().collect();
            items.sort_by_key(|(key, _)| (key.parse::<u64>().unwrap_or(u64::MAX), key.as_str()));
            let path_of = |key: &str| format!("entries.{}", fields::printable(key));
            items.into_iter().map(|(key, item)| (path_of(key), item)).collect()
        }
        Some(other) => return Err(fields::wrong_type(path, "entries", "a list or an object", other)),
    };
    if entry_values.len() > MAX_BOOK_ENTRIES {
        return Err(CardError::TooManyEntries(entry_values.len()));
    }
    let entries = entry_values.into_iter().map(|(field, item)| match item {
        Value::Object(entry) => read_entry(entry, &fields::join(path, &field), &mut report),
        other => Err(fields::wrong_type(path, &field, "an object", other)),
    });
    let entries = entries.collect::<Result<_, _>>()?;
    for (field, value) in object {
        let is_known = matches!(field.as_str(), "name" | "entries" | "originalData");
        if !is_known && !fields::is_empty(value) {
            report.note(field, reason_of_book_field(field));
        }
    }
    Ok(Lorebook {
        name: clean_label(&fields::text(object, "name", path)?),
        character: character.map(str::to_owned),
        entries,
        report,
    })
}

fn read_entry(entry: &Object, path: &str, report: &mut Report) -> Result<BookEntry, CardError> {
    let empty = Object::new();
    let extensions = fields::object(entry, "extensions", path)?.unwrap_or(&empty);
    let list = |names: [&str; 2]| {
        let name = names.into_iter().find(|name| present(entry, name).is_some());
        fields::texts(entry, name.unwrap_or(names[0]), path, MAX_READ_KEYS)
    };
    // Other programs write these fields either in the entry or in its extensions.
    let either = |name: &str| present(extensions, name).or_else(|| present(entry, name));
    let number = |name: &str| either(name).and_then(Value::as_f64).unwrap_or_default();
    let is_disabled = fields::flag(entry, "disable", path)?.unwrap_or(false);
    let is_selective = fields::flag(entry, "selective", path)?.unwrap_or(false);
    let secondary_keys = list(["secondary_keys", "keysecondary"])?.texts;
    let keys = list(["keys", "key"])?;
    let book_entry = BookEntry {
        name: fields::text(entry, "name", path)?,
        comment: fields::text(entry, "comment", path)?,
        key_count: keys.total,
        keys: keys.texts,
        secondary_keys: if is_selective { secondary_keys } else { Vec::new() },
        content: fields::text(entry, "content", path)?,
        is_enabled: fields::flag(entry, "enabled", path)?.unwrap_or(true) && !is_disabled,
        is_constant: fields::flag(entry, "constant", path)?.unwrap_or(false),
        uses_regex: fields::flag(entry, "use_regex", path)?.unwrap_or(false),
        sticky: number("sticky"),
        cooldown: number("cooldown"),
        group: either("group").and_then(Value::as_str).unwrap_or_default().to_owned(),
        own_fields: present(extensions, OWN).cloned(),
    };
    for (field, value) in entry {
        note_entry_field(report, "", field, value);
    }
    for (field, value) in extensions {
        note_entry_field(report, "extensions.", field, value);
    }
    if !book_entry.comment.trim().is_empty()
        && !book_entry.name.trim().is_empty()
        && book_entry.comment != book_entry.name
    {
        report.note("comment", "the name of the entry is taken");
    }
    Ok(book_entry)
}

/// Reports a field that no entry of lore has, once for the book, unless the value is the usual one.
fn note_entry_field(report: &mut Report, prefix: &str, field: &str, value: &Value) {
    let is_taken = matches!(
        field,
        "name"
            | "comment"
            | "keys"
            | "key"
            | "secondary_keys"
            | "keysecondary"
            | "content"
            | "enabled"
            | "disable"
            | "constant"
            | "selective"
            | "use_regex"
            | "sticky"
            | "cooldown"
            | "group"
            | "extensions"
            | OWN
    );
    // Numbers of an editor.
    let is_editor = matches!(
        field,
        "id" | "uid" | "addMemo" | "displayIndex" | "display_index" | "useProbability"
    );
    if !is_taken && !is_editor && !is_usual(field, value) {
        report.note(&format!("{prefix}{field}"), reason_of_entry_field(field));
    }
}

/// True for values that programs write without a decision of the author.
fn is_usual(field: &str, value: &Value) -> bool {
    let usual = match field {
        "probability" | "groupWeight" | "group_weight" => Some(100),
        "depth" => Some(4),
        _ => None,
    };
    fields::is_empty(value) || (usual.is_some() && value.as_u64() == usual)
}

fn reason_of_book_field(field: &str) -> &'static str {
    match field {
        "description" => "a book has no description here",
        "scan_depth" => "the server decides how much text is searched",
        "token_budget" => "the budget of lore is a setting of the server",
        "recursive_scanning" => "entries lead to others by `related` alone",
        _ => "has no place in lore",
    }
}

fn reason_of_entry_field(field: &str) -> &'static str {
    match field {
        "insertion_order" | "order" | "priority" => "the score of an entry decides its rank",
        "position" | "depth" | "role" => "lore has one place in the prompt",
        "scan_depth" | "scanDepth" => "the server decides how much text is searched",
        "case_sensitive" | "caseSensitive" => "names are found in upper and lower case",
        "match_whole_words" | "matchWholeWords" => "names are found as whole words",
        "probability" => "an entry does not depend on chance",
        "selectiveLogic" => "an entry is found by each of its names alone",
        "group_weight" | "groupWeight" | "group_override" | "groupOverride" | "use_group_scoring"
        | "useGroupScoring" => "the score decides between the entries of a group",
        "exclude_recursion"
        | "excludeRecursion"
        | "prevent_recursion"
        | "preventRecursion"
        | "delay_until_recursion"
        | "delayUntilRecursion" => "entries lead to others by `related` alone",
        _ => "has no place in an entry of lore",
    }
}
