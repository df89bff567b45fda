//! Makes an NPC from a character card.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    fields::{self, Object, present},
    lorebook::{Lorebook, OWN, read_book},
    report::{CardError, NotTaken, Report},
    texts::{Speakers, clean_label, clean_prose, cut, guess_language, is_label, is_longer},
};
use crate::{
    authored::{Npc, Persona},
    language::Language,
    text::{check_label, check_prose},
};

const MAX_NAME_CHARS: usize = 200;
const MAX_DESCRIPTION_CHARS: usize = 4_000;
const MAX_LINE_CHARS: usize = 1_000;
/// The number of boundaries, and the characters of one boundary.
const MAX_BOUNDARIES: (usize, usize) = (20, 200);
/// The number of cues, and the characters of one cue.
const MAX_CUES: (usize, usize) = (32, 32);
/// Most names of extensions in a message.
const MAX_NAMED_EXTENSIONS: usize = 8;
/// The newest version of the specification that is read whole.
const NEWEST_VERSION: f64 = 3.0;

/// A character card as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct CharacterCard {
    name: String,
    description: String,
    personality: String,
    scenario: String,
    first_mes: String,
    mes_example: String,
    lorebook: Option<Lorebook>,
    /// The server's own fields; `None`: the card is from another program.
    own_fields: Option<OwnFields>,
    /// What the card has that no NPC can have.
    report: Report,
}

/// The fields of an NPC that no other program has: `extensions.colloquy` of an exported card. With these fields,
/// `personality` is the way of speaking.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnFields {
    pub language: Language,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub boundaries: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cues: Vec<String>,
    /// The texts have parts that look like macros, and are none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub verbatim: bool,
}

/// The NPC of a card. The texts keep the limits of a [`Persona`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct ImportedNpc {
    /// One line of 1 to 200 characters.
    pub name: String,
    pub persona: Persona,
    pub language: Language,
}

impl From<&Npc> for ImportedNpc {
    fn from(npc: &Npc) -> Self {
        Self {
            name: npc.name.clone(),
            persona: npc.persona.clone(),
            language: npc.language,
        }
    }
}

impl CharacterCard {
    /// The name of the character; one line, not empty.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The lorebook inside the card.
    #[must_use]
    pub const fn lorebook(&self) -> Option<&Lorebook> {
        self.lorebook.as_ref()
    }

    /// The lorebook, without the card.
    #[must_use]
    pub fn into_lorebook(self) -> Option<Lorebook> {
        self.lorebook
    }

    /// The NPC, and all that was left out or shortened. The lorebook has a report of its own.
    #[must_use]
    pub fn to_npc(&self) -> (ImportedNpc, Vec<NotTaken>) {
        let language = self.language();
        let mut reader = TextReader {
            speakers: Speakers::new(Some(&self.name), language),
            is_verbatim: self.own_fields.as_ref().is_some_and(|own_fields| own_fields.verbatim),
            report: self.report.clone(),
        };
        let personality = reader.read(&self.personality, "personality");
        let example = reader.read(&self.mes_example, "mes_example");
        let mut parts = vec![reader.read(&self.description, "description")];
        // A card of our own has the way of speaking as its personality.
        let (speech_style, speech_field) = if self.own_fields.is_some() {
            if !example.is_empty() {
                reader.note("mes_example", "the way of speaking is taken from `personality`");
            }
            (personality, "personality")
        } else {
            parts.push(labelled(language, "Personality", "성격", &personality));
            (example, "mes_example")
        };
        let scenario = reader.read(&self.scenario, "scenario");
        parts.push(labelled(language, "Scenario", "상황", &scenario));
        parts.retain(|part| !part.is_empty());
        let greeting = reader.read(&self.first_mes, "first_mes");
        let description = parts.join("\n\n");
        let persona = Persona {
            description: reader.shorten(&description, MAX_DESCRIPTION_CHARS, "description"),
            speech_style: reader.shorten(&speech_style, MAX_LINE_CHARS, speech_field),
            greeting: reader.shorten(&greeting, MAX_LINE_CHARS, "first_mes"),
            ..self.own_persona(&mut reader.report)
        };
        let npc = ImportedNpc {
            name: self.name.clone(),
            persona,
            language,
        };
        (npc, reader.report.into_parts())
    }

    fn language(&self) -> Language {
        let texts = [
            &self.name,
            &self.description,
            &self.personality,
            &self.scenario,
            &self.first_mes,
            &self.mes_example,
        ];
        let guess = || guess_language(texts.into_iter().map(String::as_str));
        self.own_fields
            .as_ref()
            .map_or_else(guess, |own_fields| own_fields.language)
    }

    /// Boundaries and cues.
    fn own_persona(&self, report: &mut Report) -> Persona {
        let own_fields = self.own_fields.clone().unwrap_or_default();
        let mut fitting = |mut list: Vec<String>, (max_count, max_chars): (usize, usize), field: &str| {
            let count = list.len();
            list.retain(|line| check_label(line).is_ok() && !is_longer(line, max_chars));
            list.truncate(max_count);
            if list.len() < count {
                let reason = format!("at most {max_count}, each of one line with at most {max_chars} characters");
                report.note(field, reason);
            }
            list
        };
        Persona {
            boundaries: fitting(own_fields.boundaries, MAX_BOUNDARIES, "extensions.colloquy.boundaries"),
            cues: fitting(own_fields.cues, MAX_CUES, "extensions.colloquy.cues"),
            ..Persona::default()
        }
    }
}

/// Reads the texts of one card.
struct TextReader<'a> {
    speakers: Speakers<'a>,
    is_verbatim: bool,
    report: Report,
}

impl TextReader<'_> {
    fn read(&mut self, text: &str, field: &str) -> String {
        if self.is_verbatim && check_prose(text).is_ok() {
            return text.to_owned();
        }
        let mut removed = Vec::new();
        let text = clean_prose(&self.speakers.expand(text, &mut removed));
        for name in removed {
            self.note(field, &format!("the macro {{{{{name}}}}} was removed"));
        }
        text
    }

    fn shorten(&mut self, text: &str, max_chars: usize, field: &str) -> String {
        if !is_longer(text, max_chars) {
            return text.to_owned();
        }
        let subject = match field {
            "description" => "description, personality and scenario together take",
            _ => "the text takes",
        };
        self.note(field, &format!("cut: {subject} {max_chars} characters"));
        cut(text, max_chars).to_owned()
    }

    /// Reports a field, more than once if there are more reasons.
    fn note(&mut self, field: &str, reason: &str) {
        self.report.all.push(NotTaken {
            entry: None,
            field: field.to_owned(),
            reason: reason.to_owned(),
        });
    }
}

fn labelled(language: Language, english: &str, korean: &str, text: &str) -> String {
    let label = match language {
        Language::En => english,
        Language::Ko => korean,
    };
    if text.is_empty() {
        String::new()
    } else {
        format!("{label}: {text}")
    }
}

/// Reads the card with the fields in `data`, which stands at `path` in the file.
///
/// # Errors
/// A missing name, and fields of the wrong type.
pub fn read_card(data: &Object, path: &str, version: Option<&Value>) -> Result<CharacterCard, CardError> {
    let text = |field: &str| fields::text(data, field, path);
    let mut report = Report::default();
    let full_name = clean_label(&text("name")?);
    if !is_label(&full_name, usize::MAX) {
        return Err(CardError::Missing {
            path: fields::join(path, "name"),
        });
    }
    let name = cut(&full_name, MAX_NAME_CHARS).to_owned();
    if name != full_name {
        report.note("name", format!("cut after {MAX_NAME_CHARS} characters"));
    }
    note_version(version, &mut report);
    let empty = Object::new();
    let extensions = fields::object(data, "extensions", path)?.unwrap_or(&empty);
    let own_fields = present(extensions, OWN).map(OwnFields::deserialize);
    if matches!(own_fields, Some(Err(_))) {
        report.note("extensions.colloquy", "the fields are not those of an NPC");
    }
    note_extensions(extensions, &mut report);
    for (field, value) in data {
        if !is_taken(field) && !fields::is_empty(value) {
            report.note(field, reason_of_field(field));
        }
    }
    let lorebook = fields::object(data, "character_book", path)?;
    let lorebook = lorebook.map(|book| read_book(book, &fields::join(path, "character_book"), Some(&name)));
    Ok(CharacterCard {
        description: text("description")?,
        personality: text("personality")?,
        scenario: text("scenario")?,
        first_mes: text("first_mes")?,
        mes_example: text("mes_example")?,
        lorebook: lorebook.transpose()?,
        own_fields: own_fields.and_then(Result::ok),
        report,
        name,
    })
}

fn note_version(version: Option<&Value>, report: &mut Report) {
    let number = match version {
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(other) => other.as_f64(),
        None => None,
    };
    if number.is_some_and(|number: f64| number > NEWEST_VERSION) {
        report.note(
            "spec_version",
            "the card is of a newer version: fields of version 3.0 were read",
        );
    }
}

/// Reports the extensions of other programs, by their names.
fn note_extensions(extensions: &Object, report: &mut Report) {
    let foreign_fields = extensions
        .iter()
        .filter(|(name, value)| *name != OWN && !fields::is_empty(value));
    let names: Vec<String> = foreign_fields.map(|(name, _)| fields::printable(name)).collect();
    if names.is_empty() {
        return;
    }
    let mut listed = names[..names.len().min(MAX_NAMED_EXTENSIONS)].join(", ");
    if names.len() > MAX_NAMED_EXTENSIONS {
        listed.push_str(", …");
    }
    report.note("extensions", format!("fields of other programs: {listed}"));
}

fn is_taken(field: &str) -> bool {
    matches!(
        field,
        "name"
            | "description"
            | "personality"
            | "scenario"
            | "first_mes"
            | "mes_example"
            | "extensions"
            | "character_book"
            | "spec"
            | "spec_version"
    )
}

fn reason_of_field(field: &str) -> &'static str {
    match field {
        "system_prompt" | "post_history_instructions" => "the prompts are templates of the server",
        "alternate_greetings" | "group_only_greetings" => "an NPC has one greeting",
        "assets" | "avatar" => "pictures and sounds are not stored",
        "nickname" => "an NPC has one name",
        "creator_notes" | "creator_notes_multilingual" => "notes for people are not stored",
        "tags" => "an NPC has no tags",
        _ => "has no place in an NPC",
    }
}
