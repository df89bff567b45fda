//! The state of the world that a pass is shown.
//!
//! The insights of a pass are prompts of its NPCs later. So a prompt has the state of those who take part, and of
//! others whom the lines name only whether they are dead, which every NPC that hears of them is told anyway. A value
//! that another dialogue has changed is left out: the pass would rest on turns that no rewind of its own dialogue takes
//! back, or take what was true before them for true.

use std::collections::BTreeSet;

use minijinja::{Value, context};

use super::unread_turns::UnreadTurns;
use crate::{
    Services, knowledge::lore::DeadPerson, npc_conversation::SceneMember, prompt::attribute_text,
    world_events::CausedState,
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    authored::Npc,
    fact::Cause,
    party::{self, PLAYER},
    state::{Character, StateChange, StatePart, WorldState},
    turn::Turn,
    vocabulary,
};
use colloquy_ports::{
    StoreResult,
    ledger::{jobs::JobInput, state::StoredStateChange},
};

/// The most characters of the world's state that a prompt shows.
const MAX_SHOWN_CHARACTERS: usize = 60;

/// What the state blocks of a dialogue changed.
pub(super) struct DialogueChanges {
    changes: Vec<StoredStateChange>,
    folded: CausedState,
}

/// Returns the check whether a character of the world's state, by its name there, takes part in the dialogue.
pub(super) fn participant_check(job_input: &JobInput, cast: &[(SceneMember, Option<Npc>)]) -> impl Fn(&str) -> bool {
    let player = job_input.turn.player.as_ref().map(party::player_key);
    move |name| Some(name) == player.as_deref() || cast.iter().any(|(member, _)| member.name == name)
}

impl DialogueChanges {
    /// Reads the changes that the dialogue and backends made up to the last turn of a pass.
    pub(super) async fn load(
        services: &Services,
        scope: &TenantScope,
        job_input: &JobInput,
        last: &Turn,
    ) -> StoreResult<Self> {
        let states = &services.ledger.state;
        let dialogue = job_input.dialogue.id;
        let changes = states
            .load_changes_of_dialogue(scope, &job_input.world.id, dialogue, last.committed_at)
            .await?;
        let folded = CausedState::from_changes(changes.iter());
        Ok(Self { changes, folded })
    }

    /// Returns the events and notes of a turn's state block.
    pub(super) fn sentences_of_turn(&self, turn: &Turn) -> Vec<&str> {
        let of_turn = self
            .changes
            .iter()
            .filter(|stored| stored.cause == Cause::Turn(turn.id));
        let sentences = of_turn.filter_map(|stored| match &stored.change {
            StateChange::Happened { text } | StateChange::Note { text } => Some(text.as_str()),
            _ => None,
        });
        sentences.collect()
    }

    /// Returns the dead who do not take part: by the changes that the dialogue and backends made, and still at present.
    pub(super) fn known_dead<'s>(
        &'s self,
        cast: &[(SceneMember, Option<Npc>)],
        present: &WorldState,
    ) -> Vec<DeadPerson<'s>> {
        let people = present.characters.keys().map(String::as_str);
        let people = people.filter(|name| !party::is_player(name));
        let people = people.chain(cast.iter().map(|(member, _)| member.name.as_str()));
        let dead = self.folded.state.dead_names().filter(|name| {
            let is_still = present.characters.get(*name).is_some_and(Character::is_dead);
            is_still && cast.iter().all(|(member, _)| member.name != *name)
        });
        dead.map(|name| DeadPerson::new(name, &people)).collect()
    }

    /// Returns the characters for a prompt. `present` is the state of the world with the changes of all dialogues.
    /// `since` of a character is the turn by which it had its status. `named_dead` are the dead whom the lines name.
    pub(super) fn state_values(
        &self,
        job_input: &JobInput,
        cast: &[(SceneMember, Option<Npc>)],
        present: &WorldState,
        unread: &UnreadTurns,
        named_dead: &BTreeSet<String>,
    ) -> Vec<Value> {
        let player = job_input.turn.player.as_ref().map(party::player_key);
        let takes_part = participant_check(job_input, cast);
        let label = |status: &str| attribute_text(vocabulary::display_label(status, job_input.npc.language));
        let characters = &self.folded.state.characters;
        let participants = characters.iter().filter(|(name, _)| takes_part(name));
        let participants = participants
            .filter_map(|(name, character)| Some((name, unchanged(character, present.characters.get(name)?))));
        let dead = characters
            .iter()
            .filter(|(name, _)| !takes_part(name) && named_dead.contains(name.as_str()));
        let dead = dead.map(|(name, character)| {
            let death = ShownCharacter {
                status: character.status.as_deref(),
                ..ShownCharacter::default()
            };
            (name, death)
        });
        participants
            .chain(dead)
            .filter(|(_, character)| *character != ShownCharacter::default())
            .take(MAX_SHOWN_CHARACTERS)
            .map(|(name, character)| {
                context! {
                    name => if Some(name) == player.as_ref() { PLAYER.to_owned() } else { attribute_text(name) },
                    location => character.location.map(attribute_text),
                    hp => character.hp,
                    status => character.status.map(label),
                    since => self.turn_of_status(name, unread),
                    items => character.items,
                }
            })
            .collect()
    }

    fn turn_of_status(&self, name: &str, unread: &UnreadTurns) -> Option<u32> {
        let cause = self.folded.causes.get(&StatePart::Status(name.to_owned()))?;
        Some(match unread.turns.first() {
            Some(first) if cause.changed_at < first.started_at => unread.from - 1,
            _ => unread
                .turns
                .iter()
                .find(|turn| turn.committed_at >= cause.changed_at)
                .map_or(unread.from, |turn| turn.number),
        })
    }
}

/// The values of a character that no other dialogue has changed.
#[derive(Default, PartialEq)]
struct ShownCharacter<'a> {
    location: Option<&'a str>,
    hp: Option<i32>,
    status: Option<&'a str>,
    items: Vec<String>,
}

/// Returns the values that are the same at present. Of the items all or none: a list without some of them would be read
/// as the whole.
fn unchanged<'a>(character: &'a Character, present: &Character) -> ShownCharacter<'a> {
    let items = character.items.iter().map(|(item, count)| match count {
        1 => attribute_text(item),
        count => format!("{} ×{count}", attribute_text(item)),
    });
    ShownCharacter {
        location: character
            .location
            .as_deref()
            .filter(|_| character.location == present.location),
        hp: character.hp.filter(|_| character.hp == present.hp),
        status: character
            .status
            .as_deref()
            .filter(|_| character.status == present.status),
        items: if character.items == present.items {
            items.collect()
        } else {
            Vec::new()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn character(location: &str, items: &[(&str, u32)]) -> Character {
        Character {
            location: Some(location.to_owned()),
            items: items.iter().map(|(item, count)| ((*item).to_owned(), *count)).collect(),
            ..Character::default()
        }
    }

    #[test]
    fn values_that_another_dialogue_changed_are_left_out() {
        let known = character("mill", &[("rope", 1), ("coin", 2)]);
        let shown = unchanged(&known, &known);
        assert_eq!(shown.location, Some("mill"));
        assert_eq!(shown.items, ["coin ×2", "rope"]);
        let moved = unchanged(&known, &character("quay", &[("rope", 1), ("coin", 2)]));
        assert_eq!((moved.location, moved.items.len()), (None, 2));
        let richer = unchanged(&known, &character("mill", &[("rope", 1), ("coin", 2), ("chart", 1)]));
        assert_eq!(
            (richer.location, richer.items.len()),
            (Some("mill"), 0),
            "a part of the items is none"
        );
    }
}
