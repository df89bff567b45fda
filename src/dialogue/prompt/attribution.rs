//! Attribution: the source of a statement, and its wording in a prompt.
//!
//! People in the world may be wrong, or lie. Every statement in a prompt therefore names its speaker, regardless of
//! its subject. The attribution depends on the speaker alone, never on a comparison of names.

use minijinja::context;

use super::{
    template_error::TemplateError,
    templates::{Template, Templates},
    untrusted::escape_untrusted,
};
use colloquy_core::ids::PlayerId;
use colloquy_memory::{authored::Language, fact::Fact, party};

/// The source of a statement, as seen by one NPC in one dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribution<'a> {
    /// The authors or the game itself: the truth of the world.
    Canon,
    /// The player in this dialogue.
    Player,
    AnotherPlayer(&'a str),
    NpcItself,
    /// Another character.
    Character(&'a str),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PromptReader<'a> {
    pub language: Language,
    /// The NPC's name.
    pub npc: &'a str,
    /// The player in the dialogue, if any.
    pub player: Option<&'a PlayerId>,
}

impl PromptReader<'_> {
    /// Returns the attribution of a statement by `speaker`. Statements in old traces have the speaker "" and count as
    /// canon.
    pub(crate) fn attribution_of<'s>(&self, speaker: &'s str) -> Attribution<'s> {
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

    /// Returns the speaker of `fact` for a trace; `party::AUTHOR` for canon.
    pub(crate) fn speaker_of<'s>(&self, fact: &'s Fact) -> &'s str {
        match self.attribution_of_fact(fact) {
            Attribution::Canon => party::AUTHOR,
            _ => &fact.statement.speaker,
        }
    }

    /// Returns the attribution of `fact`. Facts from authors and from the game's backend are canon.
    pub(crate) fn attribution_of_fact<'s>(&self, fact: &'s Fact) -> Attribution<'s> {
        if fact.is_canon() {
            Attribution::Canon
        } else {
            self.attribution_of(&fact.statement.speaker)
        }
    }
}

/// Renders a statement for a model, with its speaker.
pub(crate) fn attribute_statement(
    templates: &Templates,
    reader: PromptReader<'_>,
    subject: &str,
    speaker: &str,
    content: &str,
) -> Result<String, TemplateError> {
    attribute_to(templates, reader, reader.attribution_of(speaker), subject, content)
}

/// Renders a statement with the given attribution.
pub(crate) fn attribute_to(
    templates: &Templates,
    reader: PromptReader<'_>,
    word: Attribution<'_>,
    subject: &str,
    content: &str,
) -> Result<String, TemplateError> {
    let text = render_statement(templates, reader, subject, content)?;
    let (speaker_kind, name) = match word {
        Attribution::Canon => return Ok(text),
        Attribution::Player => ("player", ""),
        Attribution::AnotherPlayer(id) => ("another_player", id),
        Attribution::NpcItself => ("self", ""),
        Attribution::Character(name) => ("character", name),
    };
    let values = context! { by => speaker_kind, name => escape_untrusted(name), text };
    templates.render(reader.language, Template::Claimed, values)
}

/// Renders a statement alone. A statement about another player is marked, because its sentence calls that player `the
/// player` too.
pub(crate) fn render_statement(
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
