//! World state for the prompt: the lines about one NPC, one player, and who is near.
//!
//! All players of a world share the world state. Before a change is stored, `player` in a state block is replaced by
//! the player's own name. A prompt shows only this NPC, this player, and other NPCs who are present.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use chrono::{DateTime, Utc};
use minijinja::{Value, context};

use super::{
    cached_world_lines::CachedWorldLines,
    template_error::TemplateError,
    templates::{Template, Templates},
    untrusted::escape_untrusted,
};
use crate::{npc_conversation::Scene, turn::TurnInput};
use colloquy_core::{
    ids::{DialogueId, PlayerId},
    planted_leak,
};
use colloquy_memory::{
    attributes::{AttributeAudience, AttributeValue},
    authored::{Language, Npc, World},
    game_clock::GameClock,
    keywords::normalise_text,
    party::{self, PLAYER},
    state::{Character, StateChange, WorldState},
    vocabulary,
};

/// The maximum number of shown relationships, of items, of people near, and of the dead.
const MAX_LISTED: usize = 8;

/// Replaces the word `player` in a change by the player's own name in world state.
pub(crate) fn bind_player(change: &mut StateChange, player: &PlayerId) {
    for name in change.names_mut().filter(|name| party::means_player(name)) {
        *name = party::player_key(player);
    }
}

/// Whose prompt shows the world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Onlooker<'a> {
    /// The dialogue of the prompt.
    pub dialogue: DialogueId,
    pub world: &'a World,
    pub npc: &'a Npc,
    /// The player in the dialogue; `None` in an NPC conversation.
    pub player: Option<&'a PlayerId>,
    /// The other NPCs who are present.
    pub scene: Option<&'a Scene>,
    /// Moods of earlier days are over, and so are places of earlier dialogues.
    pub now: DateTime<Utc>,
}

impl<'a> Onlooker<'a> {
    pub(crate) fn of_turn(input: &'a TurnInput) -> Self {
        Self {
            dialogue: input.dialogue.id,
            world: &input.world,
            npc: &input.npc,
            player: input.player.as_ref(),
            scene: input.scene.as_deref(),
            now: input.started_at,
        }
    }

    /// Returns where a character is.
    fn location_of<'s>(&self, character: &'s Character, clock: Option<GameClock<'_>>) -> Option<&'s str> {
        present_location(character, self.dialogue, clock, self.now)
    }

    /// Returns a character with the values that still hold.
    fn present_values(&self, character: &Character, clock: Option<GameClock<'_>>) -> Character {
        let mut present = character.clone();
        present.location = self.location_of(character, clock).map(str::to_owned);
        present.with = character.companions_in(self.dialogue).map(str::to_owned).collect();
        if !is_of_today(clock, character.mood_since, self.now) {
            present.mood = None;
        }
        present
    }
}

/// Returns where a character is at `now`, as far as a dialogue knows. A place that a turn of another dialogue set before
/// yesterday counts no more: nobody knows whether the character is still there.
pub(crate) fn present_location<'s>(
    character: &'s Character,
    dialogue: DialogueId,
    clock: Option<GameClock<'_>>,
    now: DateTime<Utc>,
) -> Option<&'s str> {
    character.known_location(dialogue, |since| {
        GameClock::day_at(clock, since) + 1 >= GameClock::today(clock, now)
    })
}

/// Returns where a character is, as prompts of a turn may say.
pub(crate) fn location_in_turn<'s>(input: &TurnInput, state: &WorldState, character: &'s Character) -> Option<&'s str> {
    let clock = GameClock::new(&input.world.settings, state);
    Onlooker::of_turn(input).location_of(character, clock)
}

impl CachedWorldLines {
    /// True if the lines were rendered from the very same values. A weak reference keeps the address of its value, so another
    /// value never has the address.
    fn is_rendered_from(&self, state: &Arc<WorldState>, input: &TurnInput) -> bool {
        self.dialogue == input.dialogue.id
            && self.day == day_of_turn(state, input)
            && Weak::as_ptr(&self.state) == Arc::as_ptr(state)
            && Weak::as_ptr(&self.world) == Arc::as_ptr(&input.world)
            && Weak::as_ptr(&self.npc) == Arc::as_ptr(&input.npc)
    }
}

/// Returns the lines about the world for a turn. For a player, unchanged lines are not rendered again.
pub(crate) fn world_lines_of_turn(
    templates: &Templates,
    state: &Arc<WorldState>,
    input: &TurnInput,
) -> Result<Vec<String>, TemplateError> {
    let onlooker = Onlooker::of_turn(input);
    let Some(player) = input.player.as_ref().filter(|_| input.scene.is_none()) else {
        return world_lines(templates, state, &onlooker);
    };
    let tenant = input.scope.tenant().clone();
    let key = (tenant, input.world.id.clone(), input.npc.id.clone(), player.clone());
    if let Some(cached) = templates.world_lines.get(&key)
        && cached.is_rendered_from(state, input)
    {
        return Ok(cached.lines.clone());
    }
    let lines = world_lines(templates, state, &onlooker)?;
    let cached = CachedWorldLines {
        state: Arc::downgrade(state),
        world: Arc::downgrade(&input.world),
        npc: Arc::downgrade(&input.npc),
        dialogue: input.dialogue.id,
        day: day_of_turn(state, input),
        lines: lines.clone(),
    };
    templates.world_lines.insert(key, Arc::new(cached));
    Ok(lines)
}

/// Returns the number of the world's day at the turn.
fn day_of_turn(state: &WorldState, input: &TurnInput) -> i64 {
    let clock = GameClock::new(&input.world.settings, state);
    GameClock::today(clock, input.started_at)
}

/// True if a mood that was set at `since` is of the world's present day. A mood of unknown age is.
fn is_of_today(clock: Option<GameClock<'_>>, since: Option<DateTime<Utc>>, now: DateTime<Utc>) -> bool {
    since.is_none_or(|since| GameClock::day_at(clock, since) >= GameClock::today(clock, now))
}

/// Returns the lines about the NPC, the others present, their relationships, the near, the dead, and the ways from
/// here.
pub(crate) fn world_lines(
    templates: &Templates,
    state: &WorldState,
    onlooker: &Onlooker<'_>,
) -> Result<Vec<String>, TemplateError> {
    let world = onlooker.world;
    let view = WorldView::new(state, onlooker);
    let speaking = view
        .npc_names
        .into_iter()
        .chain(view.player_key.as_deref())
        .chain(view.other_names.iter().copied());
    let characters: Vec<Value> = speaking.filter_map(|name| view.describe(name)).collect();
    // Their details come last: the lines about the world have little room.
    let near = view.nearby.iter();
    let bystanders: Vec<(&str, Value)> = near.filter_map(|name| Some((*name, view.describe(name)?))).collect();
    let relationships = view.relationship_values();
    let escape_all = |names: Vec<&str>| names.into_iter().map(escape_untrusted).collect::<Vec<_>>();
    let dead = escape_all(state.dead_names().take(MAX_LISTED).collect());
    let ways = view
        .place
        .map_or_else(Vec::new, |place| world.settings.places_next_to(place));
    let ways = escape_all(ways.into_iter().take(MAX_LISTED).collect());
    let world_attributes = shown_attributes(world, onlooker.npc.language, None, false, &state.attributes);
    let has_no_more = [&dead, &ways, &world_attributes].into_iter().all(Vec::is_empty);
    if characters.is_empty() && view.nearby.is_empty() && relationships.is_empty() && has_no_more {
        return Ok(Vec::new());
    }
    // Who has a line of its own is named there.
    let is_described = |name: &&str| bystanders.iter().any(|(described, _)| described == name);
    let near = view.nearby.iter().copied().filter(|name| !is_described(name));
    let near = escape_all(near.collect());
    let bystanders: Vec<Value> = bystanders.into_iter().map(|(_, values)| values).collect();
    let ghosts = world.settings.lets_ghosts_speak();
    let values = context! { characters, bystanders, relationships, near, dead, ways, world_attributes, ghosts };
    let text = templates.render(onlooker.npc.language, Template::ReplyWorld, values)?;
    Ok(non_empty_lines(&text))
}

/// The part of the world that one onlooker sees.
struct WorldView<'a> {
    state: &'a WorldState,
    onlooker: &'a Onlooker<'a>,
    clock: Option<GameClock<'a>>,
    player_key: Option<String>,
    /// The name and the id of the NPC.
    npc_names: [&'a str; 2],
    /// The names and ids of the other NPCs of the scene.
    other_names: Vec<&'a str>,
    names_by_id: BTreeMap<&'a str, &'a str>,
    /// Where the NPC is, as far as the onlooker knows.
    place: Option<&'a str>,
    /// The further people at the place.
    nearby: Vec<&'a str>,
    /// Somebody of whom nothing is known.
    nobody: Character,
}

impl<'a> WorldView<'a> {
    fn new(state: &'a WorldState, onlooker: &'a Onlooker<'a>) -> Self {
        let Onlooker {
            world,
            npc,
            player,
            scene,
            ..
        } = *onlooker;
        let cast = || scene.into_iter().flat_map(|scene| &scene.cast);
        let other_names = cast()
            .filter(|member| member.id != npc.id)
            .flat_map(|member| [member.name.as_str(), member.id.as_str()]);
        let names_by_id = cast()
            .map(|member| (member.id.as_str(), member.name.as_str()))
            .chain([(npc.id.as_str(), npc.name.as_str())]);
        let clock = GameClock::new(&world.settings, state);
        let npc_character = state.npc_character(&npc.name, &npc.id);
        let mut view = Self {
            state,
            onlooker,
            clock,
            player_key: player.map(party::player_key),
            npc_names: [npc.name.as_str(), npc.id.as_str()],
            other_names: other_names.collect(),
            names_by_id: names_by_id.collect(),
            place: npc_character.and_then(|character| onlooker.location_of(character, clock)),
            nearby: Vec::new(),
            nobody: Character::default(),
        };
        let nearby = view
            .place
            .into_iter()
            .flat_map(|place| state.people_at(place))
            .filter(|(_, character)| onlooker.location_of(character, clock).is_some())
            .map(|(name, _)| name)
            .filter(|name| !view.is_listed(name) && !party::is_player(name))
            .take(MAX_LISTED);
        view.nearby = nearby.collect();
        view
    }

    fn is_npc(&self, name: &str) -> bool {
        self.npc_names.contains(&name)
    }

    fn is_player(&self, name: &str) -> bool {
        Some(name) == self.player_key.as_deref()
    }

    fn is_listed(&self, name: &str) -> bool {
        self.is_npc(name) || self.other_names.contains(&name) || self.is_player(name)
    }

    fn display_name(&self, name: &str) -> String {
        if self.is_player(name) {
            PLAYER.to_owned()
        } else {
            // An event may name an NPC by its id before the NPC is written.
            escape_untrusted(self.names_by_id.get(name).unwrap_or(&name))
        }
    }

    /// Returns the details about a character. `None`: there are none.
    fn describe(&self, name: &str) -> Option<Value> {
        let onlooker = self.onlooker;
        let world = onlooker.world;
        // Everybody here has the attributes of the world's rules, even before the first change.
        let is_known = name == onlooker.npc.name || self.is_player(name);
        let stored = self.state.characters.get(name);
        let character = stored.or_else(|| is_known.then_some(&self.nobody))?;
        let language = onlooker.npc.language;
        let attributes = shown_attributes(world, language, Some(name), self.is_npc(name), &character.attributes);
        let has_nothing = self.is_player(name) && character.items.is_empty() && world.settings.lists_items();
        let places = places_of(character, onlooker, self.clock);
        let mut character = onlooker.present_values(character, self.clock);
        // Who has only the place is named in the line about who is near.
        let place = character.location.take_if(|_| self.nearby.contains(&name));
        // What others carry may be hidden. Lore tells who has an item that everybody knows.
        if !self.is_npc(name) && !self.is_player(name) {
            character.items.clear();
        }
        let has_details = has_details(&character) || !attributes.is_empty() || has_nothing;
        character.location = character.location.or(place);
        has_details.then(|| {
            let is_near = |companion: &Character| places_of(companion, onlooker, self.clock) == places;
            let companions = companions(self.state, &character, |name| self.is_listed(name), is_near);
            let with = companions.map(|companion| self.display_name(companion));
            let values = character_values(onlooker, &self.display_name(name), &character, attributes, with);
            context! { has_nothing, ..values }
        })
    }

    /// Returns the NPC's relationships with those present. What others feel for each other is not the NPC's knowledge.
    fn relationship_values(&self) -> Vec<Value> {
        let language = self.onlooker.npc.language;
        let relationships = self.state.relationships.iter();
        relationships
            .filter(|bond| {
                self.is_listed(&bond.from) && self.is_listed(&bond.to) || planted_leak!("state.relationships")
            })
            .filter(|bond| self.is_npc(&bond.from) || self.is_npc(&bond.to))
            .take(MAX_LISTED)
            .map(|bond| {
                let kind = escape_untrusted(vocabulary::display_label(&bond.kind, language));
                let from = self.display_name(&bond.from);
                let to = self.display_name(&bond.to);
                context! { from, to, kind, strength => bond.strength }
            })
            .collect()
    }
}

fn non_empty_lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Returns the attributes of `who` (`None`: the world) that the NPC sees, each in words. `is_own`: they are the NPC's.
/// `changed` has the values that differ from the initial values.
fn shown_attributes(
    world: &World,
    language: Language,
    who: Option<&str>,
    is_own: bool,
    changed: &BTreeMap<String, AttributeValue>,
) -> Vec<String> {
    let rules = world.settings.attribute_rules().iter().filter(|rule| {
        rule.is_owned_by(who)
            && match rule.seen_by {
                AttributeAudience::All => true,
                AttributeAudience::Owner => is_own,
                AttributeAudience::Backend => false,
            }
    });
    let lines = rules.filter_map(|rule| {
        let value = changed.get(&rule.name).cloned().or_else(|| rule.initial_value())?;
        let name = escape_untrusted(&rule.name);
        let max = rule.bounds().1;
        Some(match (language, &value) {
            (Language::En, AttributeValue::Number(number)) => format!("{name} {number} of {max}"),
            (Language::Ko, AttributeValue::Number(number)) => format!("{name} {number}/{max}"),
            (Language::En, AttributeValue::Flag(flag)) => format!("{name}: {}", if *flag { "yes" } else { "no" }),
            (Language::Ko, AttributeValue::Flag(flag)) => format!("{name}: {}", if *flag { "예" } else { "아니요" }),
            (_, AttributeValue::Text(text)) => format!("{name}: {}", escape_untrusted(text)),
        })
    });
    lines.collect()
}

/// True if a character has any details besides its name. A character that lost all its details is still in the state.
fn has_details(character: &Character) -> bool {
    let Character {
        location,
        status,
        hp,
        mood,
        items,
        with,
        ..
    } = character;
    let texts = [location, status, mood];
    texts
        .into_iter()
        .any(|text| text.as_deref().is_some_and(|text| !text.is_empty()))
        || hp.is_some()
        || !items.is_empty()
        || !with.is_empty()
}

/// Returns the stored and the known place of a character, normalised. Two characters whose places are both unknown are at
/// the same place only if the stored places are the same.
fn places_of(
    character: &Character,
    onlooker: &Onlooker<'_>,
    clock: Option<GameClock<'_>>,
) -> (Option<String>, Option<String>) {
    let stored = character.location.as_deref();
    (
        stored.map(normalise_text),
        onlooker.location_of(character, clock).map(normalise_text),
    )
}

/// Returns the companions of a character, whose values still hold: those who are present, and those at the same place,
/// as `is_at_same_place` says. Whoever was left at another place, or in another dialogue, is no companion here.
fn companions<'s>(
    state: &'s WorldState,
    character: &'s Character,
    is_present: impl Fn(&str) -> bool,
    is_at_same_place: impl Fn(&Character) -> bool,
) -> impl Iterator<Item = &'s str> {
    // Nobody knows where a companion without values is.
    let nobody = Character::default();
    let is_near = move |name: &str| is_at_same_place(state.characters.get(name).unwrap_or(&nobody));
    let is_dead = move |name: &str| state.dead_names().any(|dead| dead == name);
    let names = character.with.iter().map(String::as_str);
    names.filter(move |name| !is_dead(name) && (is_present(name) || is_near(name)))
}

/// Returns the values of a line about a character. A place that only turns of other dialogues set is where the
/// character was last: nobody said in this dialogue that the character is there.
fn character_values(
    onlooker: &Onlooker<'_>,
    name: &str,
    character: &Character,
    attributes: Vec<String>,
    with: impl Iterator<Item = String>,
) -> Value {
    let language = onlooker.npc.language;
    let text = |value: &Option<String>| value.as_deref().map(escape_untrusted);
    let items: Vec<String> = character
        .items
        .iter()
        .take(MAX_LISTED)
        .map(|(item, count)| match count {
            1 => escape_untrusted(item),
            many => format!("{} \u{d7}{many}", escape_untrusted(item)),
        })
        .collect();
    // No prompt names another player.
    let with: Vec<String> = with
        .filter(|name| name == PLAYER || !party::is_player(name))
        .take(MAX_LISTED)
        .collect();
    context! {
        name,
        location => text(&character.location),
        is_last_location => character.is_location_of_others(onlooker.dialogue),
        status => character.status.as_deref().map(|status| escape_untrusted(vocabulary::display_label(status, language))),
        attributes,
        mood => character.mood.as_deref().map(|mood| escape_untrusted(vocabulary::display_label(mood, language))),
        hp => character.hp,
        items,
        with,
    }
}

/// Returns where the player is, or else the NPC.
pub(crate) fn place_of_turn(input: &TurnInput, state: &WorldState) -> Option<String> {
    let key = input.player.as_ref().map(party::player_key);
    let player = key.as_deref().and_then(|key| state.characters.get(key));
    let npc = state.npc_character(&input.npc.name, &input.npc.id);
    let mut places = player
        .into_iter()
        .chain(npc)
        .filter_map(|character| location_in_turn(input, state, character));
    places.next().map(str::to_owned)
}
