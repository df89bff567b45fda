//! Remarks before remembered texts: what the others who hear the NPC do not know, what was said of the dead while they
//! lived, and what is new (docs/memory.md#what-npcs-tell-whom).

use std::collections::BTreeSet;

use minijinja::context;

use super::{
    context::PromptContext, dead_character::DeadCharacter, template_error::TemplateError, templates::Template,
    untrusted::escape_untrusted,
};
use crate::scene::SceneMember;
use chrono::{DateTime, Utc};
use colloquy_core::ids::DialogueId;
use colloquy_memory::{
    disclosure::audience::Knower,
    fact::{Fact, Tense},
    party,
    scenario::ScenarioNews,
};

/// What a prompt says about a remembered text besides the text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Remark {
    /// The names of those present who do not know of the text.
    unknown_to: Vec<String>,
    /// The dead character of whom the text tells as of one alive.
    dead: Option<String>,
    /// The character who has died since a promise named the character.
    dead_party: Option<String>,
    news: Option<ScenarioNews>,
}

impl PromptContext<'_> {
    /// Returns the other NPCs who hear the NPC in a session with a player, those who only overhear the session among
    /// them.
    fn hearers(&self) -> impl Iterator<Item = &SceneMember> {
        let scene = self.scene.filter(|_| self.input.player.is_some());
        let other_members = scene
            .into_iter()
            .flat_map(|scene| scene.living_others(&self.input.npc.id));
        other_members.chain(self.witnesses)
    }

    /// Returns the remark about a text that these knowers know.
    pub(crate) fn remark_for_knowers(&self, knowers: &BTreeSet<Knower>) -> Remark {
        let ignorant = self.hearers().filter(|member| !member.is_among(knowers));
        Remark {
            unknown_to: ignorant.map(|member| escape_untrusted(&member.name)).collect(),
            ..Remark::default()
        }
    }

    /// Returns the dead character whom an open promise names, if the character lived when the promise was made: nothing
    /// more can be done for the dead. `None` also for the NPC itself, as a ghost, and in a world whose ghosts act.
    pub(crate) fn dead_party_of(&self, promise: &Fact) -> Option<&str> {
        let is_open = promise.invalid.is_none() && promise.statement.is_open_promise();
        if !is_open || self.input.world.settings.lets_ghosts_speak() {
            return None;
        }
        let is_party = |dead: &&DeadCharacter<'_>| {
            dead.name != self.input.npc.name
                && dead.lived_at(promise.valid_at)
                && dead.is_party_in(&promise.view.content)
        };
        self.dead.iter().find(is_party).map(|dead| dead.name)
    }

    /// Returns the remark about a text of which only the NPC knows from a dialogue. Those who take part in this
    /// dialogue have heard all of its turns.
    pub(crate) fn remark_for_dialogue(&self, dialogue: DialogueId) -> Remark {
        if dialogue == self.dialogue() {
            Remark::default()
        } else {
            self.remark_for_earlier_talk()
        }
    }

    /// Returns the remark about a text that only the NPC and the player know.
    pub(crate) fn remark_for_earlier_talk(&self) -> Remark {
        self.remark_for_knowers(&BTreeSet::new())
    }
}

impl Remark {
    /// Adds whom of the dead the statement describes as alive: the subject of a statement about the present, said at
    /// `moment`.
    pub(crate) fn with_dead(
        mut self,
        dead: &[DeadCharacter<'_>],
        subject: &str,
        tense: Tense,
        moment: DateTime<Utc>,
    ) -> Self {
        if tense == Tense::Present && !dead.is_empty() {
            let key = party::subject_key(subject);
            let mut dead = dead.iter();
            let person = dead.find(|dead| dead.is_subject(subject, &key) && dead.lived_at(moment));
            self.dead = person.map(|dead| escape_untrusted(dead.name));
        }
        self
    }

    /// Adds who has died since a promise named the character.
    pub(crate) fn with_dead_party(mut self, name: Option<&str>) -> Self {
        self.dead_party = name.map(escape_untrusted);
        self
    }

    /// Adds what is new about a scenario.
    pub(crate) fn with_news(mut self, news: Option<ScenarioNews>) -> Self {
        self.news = news;
        self
    }

    /// Writes the dates of a text in words, and the remark before the text: a long text may be cut at its end.
    pub(crate) fn add_to(&self, context: &PromptContext<'_>, text: String) -> Result<String, TemplateError> {
        let text = context.ages().word_dates(context.templates, text)?;
        if *self == Self::default() {
            return Ok(text);
        }
        let values = context! {
            text,
            unknown_to => self.unknown_to.clone(),
            dead_name => self.dead.as_deref(),
            dead_party => self.dead_party.as_deref(),
            news => self.news.map(<&str>::from),
        };
        context.templates.render(context.language(), Template::Remark, values)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use colloquy_memory::state::{StateChange, WorldState};

    #[test]
    fn relative_of_the_dead_is_alive() {
        let mut state = WorldState::default();
        for name in ["Bram", "최덕수"] {
            let die = StateChange::Status {
                who: name.to_owned(),
                status: "dead".to_owned(),
            };
            state.apply_change(&die, DateTime::UNIX_EPOCH + TimeDelta::days(1), None);
        }
        let dead = DeadCharacter::find_in(&state);
        for (subject, expected) in [
            ("bram", Some("Bram")),
            ("old Bram", Some("Bram")),
            ("player:p7's brother Bram", Some("Bram")),
            ("Bram's brother", None),
            ("Old Bram\u{2019}s brother", None),
            ("Brammel", None),
            ("최덕수", Some("최덕수")),
            ("최덕수 아저씨", Some("최덕수")),
            ("최덕수의 딸", None),
            ("최덕수 아저씨의 딸", None),
        ] {
            let remark = Remark::default().with_dead(&dead, subject, Tense::Present, DateTime::UNIX_EPOCH);
            assert_eq!(remark.dead.as_deref(), expected, "{subject}");
        }
    }
}
