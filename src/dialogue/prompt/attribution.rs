//! Whose word a statement is, and how a prompt says so.
//!
//! What people in the world say may be wrong, or a lie. So every statement in a prompt names whoever said
//! it, whatever the statement is about: the speaker decides, never a comparison of names.

use minijinja::context;

use super::{
    templates::{Template, TemplateError, Templates},
    untrusted,
};
use crate::{
    ids::PlayerId,
    memory::{authored::Language, fact::Fact, party},
};

/// Whose word a statement is, for one NPC and whoever it talks with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// Of the authors, or of the game itself: how things are.
    Canon,
    /// The player who is spoken with.
    Player,
    AnotherPlayer(&'a str),
    /// The NPC's own.
    Own,
    /// Another character.
    Character(&'a str),
}

/// Who reads a prompt.
#[derive(Debug, Clone, Copy)]
pub(in crate::dialogue) struct Reader<'a> {
    pub language: Language,
    /// The NPC's name.
    pub npc: &'a str,
    /// Whom the NPC talks with.
    pub player: Option<&'a PlayerId>,
}

impl Reader<'_> {
    /// Whose word it is that `speaker` said. Nothing is known of who said what an old trace holds: "".
    pub(super) fn word_of<'s>(&self, speaker: &'s str) -> Word<'s> {
        if speaker == party::AUTHOR || speaker.is_empty() {
            Word::Canon
        } else if party::is_player(speaker) {
            match party::owner(speaker).filter(|&id| self.player.is_none_or(|player| player.as_str() != id)) {
                Some(other) => Word::AnotherPlayer(other),
                None => Word::Player,
            }
        } else if speaker == self.npc {
            Word::Own
        } else {
            Word::Character(speaker)
        }
    }

    /// Who said `fact`, as a trace keeps it: nobody, where it is so.
    pub(super) fn speaker_of<'s>(&self, fact: &'s Fact) -> &'s str {
        match self.word_of_fact(fact) {
            Word::Canon => party::AUTHOR,
            _ => &fact.statement.speaker,
        }
    }

    /// Whose word `fact` is: what people write and what the game's backend reports is so.
    pub(super) fn word_of_fact<'s>(&self, fact: &'s Fact) -> Word<'s> {
        if fact.is_canon() {
            Word::Canon
        } else {
            self.word_of(&fact.statement.speaker)
        }
    }
}

/// A statement as a model reads it, with whoever said it.
pub(in crate::dialogue) fn attributed(
    templates: &Templates,
    reader: Reader<'_>,
    subject: &str,
    speaker: &str,
    content: &str,
) -> Result<String, TemplateError> {
    attributed_to(templates, reader, reader.word_of(speaker), subject, content)
}

/// The same, where it is known whose word it is.
pub(super) fn attributed_to(
    templates: &Templates,
    reader: Reader<'_>,
    word: Word<'_>,
    subject: &str,
    content: &str,
) -> Result<String, TemplateError> {
    let text = told(templates, reader, subject, content)?;
    let (by, name) = match word {
        Word::Canon => return Ok(text),
        Word::Player => ("player", ""),
        Word::AnotherPlayer(id) => ("another_player", id),
        Word::Own => ("self", ""),
        Word::Character(name) => ("character", name),
    };
    let values = context! { by, name => untrusted(name), text };
    templates.render(reader.language, Template::Claimed, values)
}

/// A statement alone. What is known about another player than the one who is spoken with says so: its
/// sentence calls that player `the player` too.
pub(super) fn told(
    templates: &Templates,
    reader: Reader<'_>,
    subject: &str,
    content: &str,
) -> Result<String, TemplateError> {
    let text = untrusted(content);
    match party::owner(subject).filter(|&id| reader.player.is_none_or(|player| player.as_str() != id)) {
        Some(other) => {
            let values = context! { player => untrusted(other), text };
            templates.render(reader.language, Template::AboutAnother, values)
        }
        None => Ok(text),
    }
}
