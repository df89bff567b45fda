//! Conditions of authored content on the state of the world: of lore, and of actions
//! (docs/algorithms.md#conditions).

mod rule;

use chrono::{DateTime, Utc};

pub use self::rule::{Condition, TimeOfDay};
use super::{
    attributes::{self, AttributeOwner, AttributeValue},
    authored::{Npc, WorldSettings},
    calendar::{GameMoment, GameTimeError, parse_game_time},
    game_clock::GameClock,
    keywords::normalise_text,
    party::{self, PLAYER},
    progress,
    state::{Character, MAX_HP, WorldState},
    unlock_rule::NpcNames,
    vocabulary,
};
use colloquy_core::ids::PlayerId;

/// Most conditions in one list.
pub const MAX_CONDITIONS: usize = 8;
/// Most characters of a name in a condition.
const MAX_NAME_CHARS: usize = 64;

/// The dialogue for which conditions are evaluated.
#[derive(Debug, Clone, Copy)]
pub struct ConditionContext<'a> {
    pub state: &'a WorldState,
    pub settings: &'a WorldSettings,
    /// The NPC that speaks.
    pub npc: &'a Npc,
    /// `None` in a conversation between NPCs.
    pub player: Option<&'a PlayerId>,
    /// The present moment of the game; `None`: the world has no clock.
    pub now: Option<GameMoment<'a>>,
}

impl<'a> ConditionContext<'a> {
    /// Returns the context at the real moment `now`.
    #[must_use]
    pub fn new(
        state: &'a WorldState,
        settings: &'a WorldSettings,
        npc: &'a Npc,
        player: Option<&'a PlayerId>,
        now: DateTime<Utc>,
    ) -> Self {
        Self {
            state,
            settings,
            npc,
            player,
            now: GameClock::present(settings, state, now),
        }
    }
}

impl ConditionContext<'_> {
    /// True if all conditions hold.
    #[must_use]
    pub fn all_hold(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|condition| self.holds(condition))
    }

    #[must_use]
    pub fn holds(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Item { item, of } => self.character_satisfies(of.as_deref(), |character| {
                let items = character.map(|character| &character.items);
                items.is_some_and(|items| items.keys().any(|held_item| is_same_name(held_item, item)))
            }),
            Condition::Location { location, of } => self.character_satisfies(of.as_deref(), |character| {
                let current_location = character.and_then(|character| character.location.as_deref());
                current_location.is_some_and(|current_location| is_same_name(current_location, location))
            }),
            Condition::Met { met } => self
                .player
                .and_then(|player| self.state.milestones.of_player(player))
                .is_some_and(|reached| reached.has_met(met)),
            Condition::Relationship { relationship, at_least } => {
                self.feeling_for_player(relationship) >= Some(*at_least)
            }
            Condition::Status { status, of } => self.character_satisfies(of.as_deref(), |character| {
                let current_status = character.and_then(|character| character.status.as_deref());
                is_same_name(current_status.unwrap_or(vocabulary::ALIVE), status)
            }),
            Condition::HpAtMost { hp_at_most, of } => self.character_satisfies(of.as_deref(), |character| {
                character.and_then(|character| character.hp).unwrap_or(MAX_HP) <= *hp_at_most
            }),
            Condition::AttributeIs { attribute, is, of } => {
                let is_equal = |value: &AttributeValue| match (value, is) {
                    (AttributeValue::Text(value), AttributeValue::Text(is)) => is_same_name(value, is),
                    (value, is) => value == is,
                };
                self.attribute_value(attribute, of.as_deref())
                    .as_ref()
                    .is_some_and(is_equal)
            }
            Condition::AttributeAtLeast {
                attribute,
                at_least,
                of,
            } => {
                let value = self.attribute_value(attribute, of.as_deref());
                matches!(value, Some(AttributeValue::Number(number)) if number >= *at_least)
            }
            Condition::Progress { progress } => {
                let rules = self.settings.unlock_rules();
                let names = NpcNames::new(&self.npc.id, &self.npc.name);
                let state = progress::progress_state(&self.state.milestones, rules, &names, self.player);
                state.progress() >= *progress
            }
            Condition::TimeOfDay { .. }
            | Condition::After { .. }
            | Condition::Before { .. }
            | Condition::Weekday { .. }
            | Condition::Month { .. } => self.time_holds(condition).unwrap_or(false),
            Condition::Not { not } => {
                let is_decided = self.player.is_some() || !self.is_about_player(not);
                is_decided && self.can_decide(not) && !self.holds(not)
            }
        }
    }

    /// False if the world has no such attribute or owner, no clock, or no such day: then the opposite does not hold either.
    fn can_decide(&self, condition: &Condition) -> bool {
        match condition {
            Condition::AttributeIs { attribute, of, .. } | Condition::AttributeAtLeast { attribute, of, .. } => {
                let rule = attributes::find_rule(self.settings.attribute_rules(), attribute);
                rule.is_some_and(|rule| {
                    rule.owner == AttributeOwner::World || {
                        let name = self.name_of(of.as_deref());
                        name.is_some_and(|name| rule.is_owned_by(Some(&name)))
                    }
                })
            }
            _ => !condition.is_about_time() || self.time_holds(condition).is_some(),
        }
    }

    /// True if a condition on the time holds. `None`: the world has no clock, or the calendar has no such day or name.
    fn time_holds(&self, condition: &Condition) -> Option<bool> {
        let now = self.now?;
        let is_past = |text: &str| {
            parse_game_time(text, now.calendar)
                .map(|moment| moment <= now.time)
                .ok()
        };
        match condition {
            Condition::TimeOfDay { time } => time.includes(now.time.minute_of_day()),
            Condition::After { after } => is_past(after),
            Condition::Before { before } => is_past(before).map(|is_past| !is_past),
            Condition::Weekday { weekday } => now.is_weekday(weekday),
            Condition::Month { month } => now.is_month(month),
            _ => None,
        }
    }

    /// True if the condition is about the player of the dialogue.
    fn is_about_player(&self, condition: &Condition) -> bool {
        let means_player = |owner: &Option<String>| owner.as_deref().is_none_or(|owner| is_same_name(owner, PLAYER));
        match condition {
            Condition::Met { .. } | Condition::Relationship { .. } | Condition::Progress { .. } => true,
            Condition::Item { of, .. }
            | Condition::Location { of, .. }
            | Condition::Status { of, .. }
            | Condition::HpAtMost { of, .. } => means_player(of),
            Condition::AttributeIs { attribute, of, .. } | Condition::AttributeAtLeast { attribute, of, .. } => {
                let rule = attributes::find_rule(self.settings.attribute_rules(), attribute);
                means_player(of) && rule.is_none_or(|rule| rule.owner != AttributeOwner::World)
            }
            Condition::TimeOfDay { .. }
            | Condition::After { .. }
            | Condition::Before { .. }
            | Condition::Weekday { .. }
            | Condition::Month { .. } => false,
            Condition::Not { not } => self.is_about_player(not),
        }
    }

    /// The character that `owner` means, by its name in the state. `None`: the player, in a dialogue without one.
    fn name_of(&self, owner: Option<&str>) -> Option<String> {
        match owner.map(str::trim) {
            Some(owner) if is_same_name(owner, "npc") => Some(self.npc.name.clone()),
            Some(owner) if !is_same_name(owner, PLAYER) => Some(owner.to_owned()),
            _ => self.player.map(party::player_key),
        }
    }

    /// The character in the state; the inner `None`: nothing is known of the character. The outer `None`: nobody is
    /// meant.
    #[expect(clippy::option_option, reason = "nobody is meant, or nothing is known")]
    fn character(&self, owner: Option<&str>) -> Option<Option<&Character>> {
        let name = self.name_of(owner)?;
        let character = if is_same_name(&name, &self.npc.name) {
            self.state.npc_character(&self.npc.name, &self.npc.id)
        } else {
            let characters = &self.state.characters;
            let folded = || {
                characters
                    .iter()
                    .find(|(character_name, _)| is_same_name(character_name, &name))
                    .map(|(_, character)| character)
            };
            characters.get(&name).or_else(folded)
        };
        Some(character)
    }

    fn character_satisfies(&self, owner: Option<&str>, test: impl FnOnce(Option<&Character>) -> bool) -> bool {
        self.character(owner).is_some_and(test)
    }

    /// The strength of the NPC's feeling for the player; 0: unchanged so far; `None`: no player.
    fn feeling_for_player(&self, kind: &str) -> Option<i32> {
        let player = party::player_key(self.player?);
        let kind = vocabulary::stored_kind(kind);
        let npc_names = [self.npc.name.as_str(), self.npc.id.as_str()];
        let feelings = self.state.relationships.iter();
        let mut feelings = feelings.filter(|feeling| {
            npc_names.contains(&feeling.from.as_str()) && feeling.to == player && feeling.kind == kind
        });
        Some(feelings.next().map_or(0, |feeling| feeling.strength))
    }

    fn attribute_value(&self, name: &str, owner: Option<&str>) -> Option<AttributeValue> {
        let rule = attributes::find_rule(self.settings.attribute_rules(), name)?;
        let changed = if rule.owner == AttributeOwner::World {
            self.state.attributes.get(&rule.name)
        } else {
            let name = self.name_of(owner)?;
            if !rule.is_owned_by(Some(&name)) {
                return None;
            }
            self.character(owner)?
                .and_then(|character| character.attributes.get(&rule.name))
        };
        changed.cloned().or_else(|| rule.initial_value())
    }
}

impl Condition {
    /// True if the condition is on the clock of the world.
    #[must_use]
    pub const fn is_about_time(&self) -> bool {
        matches!(
            self,
            Self::TimeOfDay { .. }
                | Self::After { .. }
                | Self::Before { .. }
                | Self::Weekday { .. }
                | Self::Month { .. }
        )
    }

    /// Why the condition can never hold in a world with these settings: there is no clock, or the calendar has no such
    /// day or name. `None` for other conditions.
    #[must_use]
    pub fn find_time_fault(&self, settings: &WorldSettings) -> Option<String> {
        if let Self::Not { not } = self {
            return not.find_time_fault(settings);
        }
        if !self.is_about_time() {
            return None;
        }
        let Some(clock) = &settings.clock else {
            return Some("conditions on the time need a clock of the world".to_owned());
        };
        let start = clock.moment(clock.start_time());
        match self {
            Self::After { after: text } | Self::Before { before: text } => {
                clock.parse_time(text).err().map(|error| format!("`{text}` {error}"))
            }
            Self::Weekday { weekday: name } if start.is_weekday(name).is_none() => {
                Some(format!("`{name}` is no weekday of the calendar"))
            }
            Self::Month { month: name } if start.is_month(name).is_none() => {
                Some(format!("`{name}` is no month of the calendar"))
            }
            _ => None,
        }
    }

    /// What is wrong with the condition, if something is. See also [`Self::find_time_fault`].
    #[must_use]
    pub fn find_fault(&self) -> Option<String> {
        let (names, fault): ([Option<&str>; 2], Option<&str>) = match self {
            Self::Item { item, of } => ([Some(item), of.as_deref()], None),
            Self::Location { location, of } => ([Some(location), of.as_deref()], None),
            Self::Met { met } => ([Some(met), None], None),
            Self::Relationship { relationship, at_least } => {
                let fits = (-100..=100).contains(at_least);
                (
                    [Some(relationship), None],
                    (!fits).then_some("`at_least` must be -100 to 100"),
                )
            }
            Self::Status { status, of } => ([Some(status), of.as_deref()], None),
            Self::HpAtMost { hp_at_most, of } => {
                let fits = (0..=MAX_HP).contains(hp_at_most);
                (
                    [None, of.as_deref()],
                    (!fits).then_some("`hp_at_most` must be 0 to 100"),
                )
            }
            Self::AttributeIs { attribute, of, .. } => ([Some(attribute), of.as_deref()], None),
            Self::AttributeAtLeast {
                attribute,
                at_least,
                of,
            } => {
                let fault = (!at_least.is_finite()).then_some("`at_least` must be a finite number");
                ([Some(attribute), of.as_deref()], fault)
            }
            Self::Progress { .. } => ([None, None], None),
            Self::TimeOfDay { time } => {
                let fits = time.minutes().is_some_and(|(from, until)| from != until);
                let rule = "`from` and `until` must be two times of day such as `18:00`";
                ([None, None], (!fits).then_some(rule))
            }
            Self::After { after: text } | Self::Before { before: text } => {
                // Another calendar may have the day.
                let has_form = parse_game_time(text, None) != Err(GameTimeError::Form);
                let rule =
                    "a moment must be a date such as `1024-03-05`, or a date and a time such as `1024-03-05 14:30`";
                ([Some(text), None], (!has_form).then_some(rule))
            }
            Self::Weekday { weekday: name } | Self::Month { month: name } => ([Some(name), None], None),
            Self::Not { not } => {
                if matches!(**not, Self::Not { .. }) {
                    return Some("`not` takes a condition without `not`".to_owned());
                }
                return not.find_fault();
            }
        };
        let too_long = |name: &&str| name.trim().is_empty() || name.chars().count() > MAX_NAME_CHARS;
        let bad_name = names.into_iter().flatten().find(too_long);
        bad_name
            .map(|_| format!("names take 1 to {MAX_NAME_CHARS} characters"))
            .or_else(|| fault.map(str::to_owned))
    }
}

fn is_same_name(name: &str, other: &str) -> bool {
    normalise_text(name.trim()) == normalise_text(other.trim())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
