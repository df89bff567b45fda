//! Whose word a statement is, and how a prompt says so.
//!
//! What people in the world say may be wrong, or a lie. So every statement in a prompt names whoever said
//! it, whatever the statement is about: the speaker decides, never a comparison of names.

use minijinja::context;

use super::{
    templates::{Template, TemplateError, Templates},
    untrusted::escape_untrusted,
};
use crate::{
    ids::PlayerId,
    memory::{authored::Language, fact::Fact, party},
};

/// Whose word a statement is, for one NPC and whoever it talks with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribution<'a> {
    /// Of the authors, or of the game itself: how things are.
    Canon,
    /// The player who is spoken with.
    Player,
    AnotherPlayer(&'a str),
    /// The NPC's own.
    NpcItself,
    /// Another character.
    Character(&'a str),
}

/// Who reads a prompt.
#[derive(Debug, Clone, Copy)]
pub(in crate::dialogue) struct PromptReader<'a> {
    pub language: Language,
    /// The NPC's name.
    pub npc: &'a str,
    /// Whom the NPC talks with.
    pub player: Option<&'a PlayerId>,
}

impl PromptReader<'_> {
    /// Whose word it is that `speaker` said. Nothing is known of who said what an old trace holds: "".
    pub(super) fn attribution_of<'s>(&self, speaker: &'s str) -> Attribution<'s> {
        if speaker == party::AUTHOR || speaker.is_empty() {
            Attribution::Canon
        } else if party::is_player(speaker) {
            match party::owner_id(speaker).filter(|&id| self.player.is_none_or(|player| player.as_str() != id)) {
                Some(other) => Attribution::AnotherPlayer(other),
                None => Attribution::Player,
            }
        } else if speaker == self.npc {
            Attribution::NpcItself
        } else {
            Attribution::Character(speaker)
        }
    }

    /// Who said `fact`, as a trace keeps it: nobody, where it is so.
    pub(super) fn speaker_of<'s>(&self, fact: &'s Fact) -> &'s str {
        match self.attribution_of_fact(fact) {
            Attribution::Canon => party::AUTHOR,
            _ => &fact.statement.speaker,
        }
    }

    /// Whose word `fact` is: what people write and what the game's backend reports is so.
    pub(super) fn attribution_of_fact<'s>(&self, fact: &'s Fact) -> Attribution<'s> {
        if fact.is_canon() {
            Attribution::Canon
        } else {
            self.attribution_of(&fact.statement.speaker)
        }
    }
}

/// A statement as a model reads it, with whoever said it.
pub(in crate::dialogue) fn attribute_statement(
    templates: &Templates,
    reader: PromptReader<'_>,
    subject: &str,
    speaker: &str,
    content: &str,
) -> Result<String, TemplateError> {
    attribute_to(templates, reader, reader.attribution_of(speaker), subject, content)
}

/// The same, where it is known whose word it is.
pub(super) fn attribute_to(
    templates: &Templates,
    reader: PromptReader<'_>,
    word: Attribution<'_>,
    subject: &str,
    content: &str,
) -> Result<String, TemplateError> {
    let text = render_statement(templates, reader, subject, content)?;
    let (by, name) = match word {
        Attribution::Canon => return Ok(text),
        Attribution::Player => ("player", ""),
        Attribution::AnotherPlayer(id) => ("another_player", id),
        Attribution::NpcItself => ("self", ""),
        Attribution::Character(name) => ("character", name),
    };
    let values = context! { by, name => escape_untrusted(name), text };
    templates.render(reader.language, Template::Claimed, values)
}

/// A statement alone. What is known about another player than the one who is spoken with says so: its
/// sentence calls that player `the player` too.
pub(super) fn render_statement(
    templates: &Templates,
    reader: PromptReader<'_>,
    subject: &str,
    content: &str,
) -> Result<String, TemplateError> {
    let text = escape_untrusted(content);
    match party::owner_id(subject).filter(|&id| reader.player.is_none_or(|player| player.as_str() != id)) {
        Some(other) => {
            let values = context! { player => escape_untrusted(other), text };
            templates.render(reader.language, Template::AboutAnother, values)
        }
        None => Ok(text),
    }
}
