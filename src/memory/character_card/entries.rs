//! Makes entries of lore from the entries of a book.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use super::{
    decorators::{Decorated, is_placement, read_decorators},
    lorebook::BookEntry,
    report::{NotTaken, Report},
    texts::{Speakers, clean_label, clean_prose, cut, is_label, is_longer},
};
use crate::{
    condition::Condition,
    disclosure::secrecy::Tell,
    keywords::normalise_text,
    lore::{KnownBy, LayerRule, LoreLayer, LoreText, MAX_STAY_TURNS},
    text::check_prose,
};
use colloquy_core::ids::LoreId;

const MAX_NAME_CHARS: usize = 100;
const MAX_KEY_CHARS: usize = 64;
const MAX_ALIASES: usize = 16;
const MAX_KEYWORDS: usize = 32;
const MAX_CONTENT_CHARS: usize = 4_000;
/// Most characters of an id; the end of an id leaves room for a number.
const MAX_ID_CHARS: usize = 64 - 6;

/// The fields of an entry of lore that no other program has: `extensions.colloquy` of an exported entry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<LoreId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The keys that are no mentions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<LoreLayer>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub characters: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<LoreId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_by: Option<KnownBy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tell: Option<Tell>,
    /// The content has text that looks like a macro or a decorator, and is none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub verbatim: bool,
}

/// The import of one book.
pub struct EntryImport<'a> {
    speakers: Speakers<'a>,
    report: Report,
    /// The position in the book, the id of an earlier export, and the entry.
    imported: Vec<(usize, Option<LoreId>, LoreText)>,
}

impl<'a> EntryImport<'a> {
    /// An import without entries so far; `report` is continued.
    pub fn new(speakers: Speakers<'a>, report: Report) -> Self {
        Self {
            speakers,
            report,
            imported: Vec::new(),
        }
    }

    /// Takes an entry, or reports why it is skipped. `position` begins at 1.
    pub fn add(&mut self, entry: &BookEntry, position: usize) {
        let own_fields = entry.own_fields.as_ref().map(OwnFields::deserialize);
        let has_broken_fields = matches!(own_fields, Some(Err(_)));
        let own_fields = own_fields.and_then(Result::ok);
        let (name, title) = self.name_of(entry, own_fields.is_some(), position);
        if !entry.is_enabled {
            let reason = "the entry is switched off, and was skipped";
            return self.report.note_entry(&title, "enabled", reason);
        }
        if has_broken_fields {
            let reason = "the fields are not those of an entry of lore";
            self.report.note_entry(&title, "extensions.colloquy", reason);
        }
        let Some(text) = self.read_text(entry, own_fields.as_ref(), name, &title) else {
            return;
        };
        let id = own_fields.as_ref().and_then(|own_fields| own_fields.id.clone());
        let mut faults = Vec::new();
        for own_fields in [own_fields.as_ref(), None] {
            let text = with_own_fields(text.clone(), own_fields);
            faults = text.find_faults();
            if faults.is_empty() {
                return self.imported.push((position, id, text));
            }
            if own_fields.is_some() {
                let reason = format!("{}: {}", faults[0].0, faults[0].1);
                self.report.note_entry(&title, "extensions.colloquy", reason);
            }
        }
        if let Some((field, fault)) = faults.into_iter().next() {
            let reason = format!("{fault}; the entry was skipped");
            self.report.note_entry(&title, &field, reason);
        }
    }

    /// The entries with unique ids, and the report.
    pub fn finish(self) -> (Vec<(LoreId, LoreText)>, Vec<NotTaken>) {
        let mut used: HashSet<LoreId> = HashSet::new();
        // Ids of an earlier export go first: entries name each other by them.
        let first_come: Vec<Option<LoreId>> = self
            .imported
            .iter()
            .map(|(_, id, _)| id.clone().filter(|id| used.insert(id.clone())))
            .collect();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let with_ids = self.imported.into_iter().zip(first_come);
        let entries = with_ids.map(|((position, _, text), id)| {
            let id = id.unwrap_or_else(|| unused_id(&slug(&text.name, position), &mut numbers, &mut used));
            (id, text)
        });
        (entries.collect(), self.report.into_parts())
    }

    /// The name of the entry, and the name in the report. The name is the entry's name, otherwise its comment,
    /// otherwise its first key.
    fn name_of(&mut self, entry: &BookEntry, is_own: bool, position: usize) -> (String, String) {
        if is_own && is_label(&entry.name, MAX_NAME_CHARS) {
            return (entry.name.clone(), entry.name.clone());
        }
        let keys = entry.keys.iter().filter(|key| !is_pattern(key, entry.uses_regex));
        let labels = [&entry.name, &entry.comment].into_iter().chain(keys.take(1));
        let labels: Vec<String> = labels
            .map(|name| clean_label(&self.speakers.expand(name, &mut Vec::new())))
            .filter(|name| is_label(name, usize::MAX))
            .collect();
        // A long comment is a note of the author rather than a name.
        let fitting = labels.iter().find(|name| !is_longer(name, MAX_NAME_CHARS));
        if let Some(name) = fitting {
            return (name.clone(), name.clone());
        }
        let name = match labels.first() {
            Some(long) => cut(long, MAX_NAME_CHARS).to_owned(),
            None => format!("Entry {position}"),
        };
        if entry.is_enabled {
            let reason = match labels.first() {
                Some(_) => format!("cut after {MAX_NAME_CHARS} characters"),
                None => "the entry has neither a name nor a key that is a word; it got a number".to_owned(),
            };
            self.report.note_entry(&name, "name", reason);
        }
        (name.clone(), name)
    }

    /// The fields that other programs have too; `None`: the entry was skipped.
    fn read_text(
        &mut self,
        entry: &BookEntry,
        own_fields: Option<&OwnFields>,
        name: String,
        title: &str,
    ) -> Option<LoreText> {
        let is_verbatim =
            own_fields.is_some_and(|own_fields| own_fields.verbatim) && check_prose(&entry.content).is_ok();
        let decorated = if is_verbatim {
            Decorated {
                content: &entry.content,
                ..Decorated::default()
            }
        } else {
            read_decorators(&entry.content)
        };
        if decorated.is_never {
            let reason = "the entry is never used, and was skipped";
            self.report.note_entry(title, "@@dont_activate", reason);
            return None;
        }
        for name in &decorated.dropped {
            self.note_decorator(title, name);
        }
        let content = if is_verbatim {
            entry.content.clone()
        } else {
            self.read_content(decorated.content, title)
        };
        if content.trim().is_empty() {
            let reason = "the entry has no text, and was skipped";
            self.report.note_entry(title, "content", reason);
            return None;
        }
        if !entry.secondary_keys.iter().all(|key| key.trim().is_empty()) {
            let reason = "an entry is found by each of its names alone";
            self.report.note_entry(title, "secondary_keys", reason);
        }
        let (aliases, keywords) = self.read_keys(entry, own_fields, &name, title);
        let always = entry.is_constant || decorated.is_always;
        let sticky = self.read_stay(entry, decorated.is_kept, title);
        Some(LoreText {
            name,
            aliases,
            keywords,
            content,
            layer: if always { LoreLayer::A1 } else { LoreLayer::A3 },
            always,
            sticky,
            cooldown: self.read_turns(entry.cooldown, title, "cooldown", MAX_STAY_TURNS - sticky),
            group: self.read_group(entry, own_fields.is_some(), title),
            ..LoreText::default()
        })
    }

    fn note_decorator(&mut self, title: &str, name: &str) {
        let field = format!("@@{name}");
        if is_placement(name) {
            self.report.note(
                &field,
                "the server decides where lore stands in the prompt, and how much text is searched",
            );
        } else {
            self.report
                .note_entry(title, &field, "the decorator has no meaning here");
        }
    }

    fn read_content(&mut self, content: &str, title: &str) -> String {
        let mut removed = Vec::new();
        let content = clean_prose(&self.speakers.expand(content, &mut removed));
        for name in removed {
            let reason = format!("the macro {{{{{name}}}}} was removed");
            self.report.note_entry(title, "content", reason);
        }
        let short = cut(&content, MAX_CONTENT_CHARS);
        if short.len() < content.len() {
            let reason = format!("cut: an entry takes {MAX_CONTENT_CHARS} characters");
            self.report.note_entry(title, "content", reason);
        }
        short.to_owned()
    }

    /// The aliases and the keywords.
    fn read_keys(
        &mut self,
        entry: &BookEntry,
        own_fields: Option<&OwnFields>,
        name: &str,
        title: &str,
    ) -> (Vec<String>, Vec<String>) {
        let keys = || entry.keys.iter().map(String::as_str);
        if let Some(own_fields) = own_fields.filter(|own_fields| own_fields.exported_keys(name).eq(keys())) {
            return (own_fields.aliases.clone(), own_fields.keywords.clone());
        }
        let own_keywords: HashSet<String> = own_fields
            .into_iter()
            .flat_map(|own_fields| &own_fields.keywords)
            .map(|word| normalise_text(word))
            .collect();
        let mut known_keys = HashSet::from([String::new(), normalise_text(name)]);
        let mut aliases = Vec::new();
        let mut keywords = Vec::new();
        let mut patterns = 0;
        let mut long = 0;
        let mut surplus = 0;
        for key in &entry.keys {
            if is_pattern(key, entry.uses_regex) {
                patterns += 1;
                continue;
            }
            let key = clean_label(&self.speakers.expand(key, &mut Vec::new()));
            let normal = normalise_text(&key);
            let is_keyword = own_keywords.contains(&normal) || aliases.len() == MAX_ALIASES;
            if !known_keys.insert(normal) {
                continue;
            }
            if is_longer(&key, MAX_KEY_CHARS) {
                long += 1;
            } else if is_keyword && keywords.len() == MAX_KEYWORDS {
                surplus += 1;
            } else if is_label(&key, MAX_KEY_CHARS) {
                let list = if is_keyword { &mut keywords } else { &mut aliases };
                list.push(key);
            }
        }
        let unread = entry.key_count - entry.keys.len();
        for (count, problem) in [
            (unread, format!("after the first {}", entry.keys.len())),
            (patterns, "regular expressions".to_owned()),
            (long, format!("longer than {MAX_KEY_CHARS} characters")),
            (
                surplus,
                format!("more than {MAX_ALIASES} aliases and {MAX_KEYWORDS} keywords"),
            ),
        ] {
            if count > 0 {
                let reason = format!("not taken: {count} of {} keys; they are {problem}", entry.key_count);
                self.report.note_entry(title, "keys", reason);
            }
        }
        (aliases, keywords)
    }

    /// Turns for which the entry stays after a mention. `is_kept`: for ever in other programs.
    fn read_stay(&mut self, entry: &BookEntry, is_kept: bool, title: &str) -> u32 {
        if !is_kept {
            return self.read_turns(entry.sticky, title, "sticky", MAX_STAY_TURNS);
        }
        let reason = format!("the entry stays {MAX_STAY_TURNS} turns after each mention, not for ever");
        self.report.note_entry(title, "@@keep_activate_after_match", reason);
        MAX_STAY_TURNS
    }

    /// Turns of a number of messages, at most `max`. A turn has two messages: a line and its reply.
    fn read_turns(&mut self, messages: f64, title: &str, field: &str, max: u32) -> u32 {
        let turns = (messages / 2.0).ceil();
        if turns <= 0.0 {
            return 0;
        }
        if turns > f64::from(max) {
            let reason = format!("shortened to {max} turns");
            self.report.note_entry(title, field, reason);
        }
        let fits = (1..max).find(|fit| turns <= f64::from(*fit));
        fits.unwrap_or(max)
    }

    fn read_group(&mut self, entry: &BookEntry, is_own: bool, title: &str) -> Option<String> {
        if is_own && is_label(&entry.group, MAX_KEY_CHARS) {
            return Some(entry.group.clone());
        }
        // Other programs allow several groups, with commas.
        let groups = entry.group.split(',').map(clean_label);
        let mut groups = groups.filter(|group| is_label(group, usize::MAX));
        let group = groups.next()?;
        if groups.next().is_some() {
            self.report.note_entry(title, "group", "only the first group was taken");
        }
        if is_longer(&group, MAX_KEY_CHARS) {
            let reason = format!("shortened to {MAX_KEY_CHARS} characters");
            self.report.note_entry(title, "group", reason);
        }
        Some(cut(&group, MAX_KEY_CHARS).to_owned())
    }
}

impl OwnFields {
    /// The fields of `text`, as they are exported.
    pub fn of(id: &LoreId, text: &LoreText) -> Self {
        Self {
            id: Some(id.clone()),
            aliases: text.aliases.clone(),
            keywords: text.keywords.clone(),
            layer: Some(text.layer),
            layers: text.layers.clone(),
            place: text.place.clone(),
            characters: text.characters.clone(),
            items: text.items.clone(),
            related: text.related.clone(),
            known_by: (text.known_by != KnownBy::default()).then(|| text.known_by.clone()),
            when: text.when.clone(),
            tell: text.tell.clone(),
            verbatim: !is_plain(&text.content),
        }
    }

    /// The keys of the exported entry: its name, aliases and keywords.
    pub fn exported_keys<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let other_keys = self.aliases.iter().chain(&self.keywords);
        std::iter::once(name).chain(other_keys.map(String::as_str))
    }
}

fn with_own_fields(text: LoreText, own_fields: Option<&OwnFields>) -> LoreText {
    let Some(own_fields) = own_fields.cloned() else {
        return text;
    };
    LoreText {
        layer: own_fields.layer.unwrap_or(text.layer),
        layers: own_fields.layers,
        place: own_fields.place,
        characters: own_fields.characters,
        items: own_fields.items,
        related: own_fields.related,
        known_by: own_fields.known_by.unwrap_or_default(),
        when: own_fields.when,
        tell: own_fields.tell,
        ..text
    }
}

/// True if an import takes the text as it is.
pub fn is_plain(text: &str) -> bool {
    let speakers = Speakers {
        character: "",
        player: "",
    };
    read_decorators(text).content == text && clean_prose(&speakers.expand(text, &mut Vec::new())) == text
}

/// True for a regular expression: `/…/i`, or signs of an expression where the book says that keys are expressions.
fn is_pattern(key: &str, uses_regex: bool) -> bool {
    let key = key.trim();
    let in_slashes = key.strip_prefix('/').and_then(|rest| rest.rsplit_once('/'));
    if in_slashes.is_some_and(|(body, flags)| !body.is_empty() && flags.chars().all(|c| c.is_ascii_lowercase())) {
        return true;
    }
    let signs = ['\\', '^', '$', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|'];
    // Macros have braces too.
    uses_regex && key.replace("{{", "").replace("}}", "").contains(signs)
}

/// An id from a name: its letters and digits in ASCII. Names in other letters get the position in the book.
fn slug(name: &str, position: usize) -> String {
    let mut slug = String::new();
    for c in name.nfkd().flat_map(char::to_lowercase) {
        if slug.len() >= MAX_ID_CHARS {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !is_combining_mark(c) && c != '\'' && c != '’' && !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() {
        format!("entry-{position}")
    } else {
        slug.to_owned()
    }
}

fn is_combining_mark(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c)
}

fn unused_id(slug: &str, numbers: &mut HashMap<String, usize>, used: &mut HashSet<LoreId>) -> LoreId {
    let number = numbers.entry(slug.to_owned()).or_insert(1);
    loop {
        let id = if *number == 1 {
            slug.to_owned()
        } else {
            format!("{slug}-{number}")
        };
        *number += 1;
        let id: LoreId = id.parse().expect("letters and digits of ASCII, at most 64");
        if used.insert(id.clone()) {
            return id;
        }
    }
}
