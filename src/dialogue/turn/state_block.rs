//! Reads the state block of a reply within the world's rules.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use crate::{
    Services,
    prompt::{self},
    scene::SceneMember,
};
use colloquy_core::{
    ids::{DialogueId, PlayerId},
    scope::TenantScope,
};
use colloquy_memory::{
    actions::ActionRule,
    authored::{Npc, World, WorldSettings},
    backend_names::BackendNames,
    game_clock::GameClock,
    keywords::normalise_text,
    party,
    state::{Character, StateChange, WorldState},
    state_block::{ParsedStateBlock, StateBlock, StateBlockError, StateRules},
    vocabulary::Vocabulary,
};
use colloquy_ports::{StoreResult, ledger::authored::NpcName};

/// The speaker and the listener of a state block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateBlockContext<'a> {
    pub dialogue: DialogueId,
    /// When the turn began.
    pub now: DateTime<Utc>,
    pub world: &'a World,
    pub npc: &'a Npc,
    /// `None` in an NPC conversation.
    pub player: Option<&'a PlayerId>,
    /// The NPCs that take part; empty in a session with one NPC.
    pub cast: &'a [SceneMember],
    /// The player's name, as the NPC knows it.
    pub player_names: &'a [&'a str],
    /// The present state of the world.
    pub state: &'a WorldState,
    /// The actions for which the block may ask.
    pub actions: &'a [ActionRule],
}

impl StateBlockContext<'_> {
    /// Returns the world's limits for what the reply may change here.
    fn state_rules(&self) -> StateRules {
        let Self {
            world,
            npc,
            player,
            cast,
            state,
            actions,
            ..
        } = *self;
        let key = player.map(party::player_key);
        let speaker = state.npc_character(&npc.name, &npc.id);
        let player_character = key.as_deref().and_then(|key| state.characters.get(key));
        let place_of = |character: Option<&'_ Character>| character.and_then(|character| character.location.clone());
        let mut present = BTreeMap::new();
        for place in [speaker, player_character].into_iter().filter_map(place_of) {
            let people = state.people_at(&place).map(|(name, _)| name);
            let people = people.filter(|name| !party::is_player(name));
            present.extend(people.map(|name| (normalise_text(name), name.to_owned())));
        }
        let cast = cast.iter().map(|member| (&member.id, &member.name));
        for (id, name) in cast.chain([(&npc.id, &npc.name)]) {
            present.insert(id.to_string(), name.clone());
            present.insert(normalise_text(name), name.clone());
        }
        let other_names = present.values().filter(|name| **name != npc.name);
        let clock = GameClock::new(&world.settings, state);
        let known_places = self.located(other_names.cloned(), |character| {
            prompt::present_location(character, self.dialogue, clock, self.now)
        });
        let reachable = known_places.into_iter().filter_map(|(name, place)| {
            let next = world.settings.places_next_to(&place);
            let next: Vec<String> = next.into_iter().map(str::to_owned).collect();
            (!next.is_empty()).then(|| (name, next.into_iter().chain([place]).collect()))
        });
        let dead_player = player_character.is_some_and(Character::is_dead);
        let dead = state.dead_names().chain(dead_player.then_some(party::PLAYER));
        StateRules {
            without_player: player.is_none(),
            reachable: reachable.collect(),
            dead: dead.map(str::to_owned).collect(),
            ghosts_act: world.settings.lets_ghosts_speak(),
            present,
            actions: actions.to_vec(),
            ..state_rules_of(&world.settings)
        }
    }

    /// The places of the speaker, of the player, and of `others`, by the names in a block's changes.
    fn located(
        &self,
        names: impl Iterator<Item = String>,
        place_of: impl Fn(&Character) -> Option<&str>,
    ) -> Vec<(String, String)> {
        let state = self.state;
        let key = self.player.map(party::player_key);
        let player = key.as_deref().and_then(|key| state.characters.get(key));
        let speaker = state.npc_character(&self.npc.name, &self.npc.id);
        let names = names.map(|name| {
            let character = state.characters.get(&name);
            (name, character)
        });
        let people = names.chain([(self.npc.name.clone(), speaker), (party::PLAYER.to_owned(), player)]);
        people
            .filter_map(|(name, character)| Some((name, place_of(character?)?.to_owned())))
            .collect()
    }

    /// The characters whom only the backend takes away from their places.
    fn held_characters(&self, names: &BackendNames) -> BTreeSet<String> {
        let everybody = self.state.characters.keys().cloned();
        let located = self.located(everybody, |character| character.location.as_deref());
        let held_characters = located.into_iter().filter(|(_, place)| names.holds_people_at(place));
        held_characters.map(|(name, _)| name).collect()
    }

    /// Adds the names of people whom a block may name: `known_npcs` are those of the world's NPCs that it does name.
    fn add_known_names(&self, rules: &mut StateRules, known_npcs: Vec<NpcName>) {
        // The NPC's own name comes first, because an empty list would allow any name.
        rules.known_names.push(self.npc.name.clone());
        // A person stays under the name or id in the block.
        rules
            .known_names
            .extend(known_npcs.into_iter().flat_map(|npc| [npc.name, npc.id.to_string()]));
        let characters = self.state.characters.keys();
        rules
            .known_names
            .extend(characters.filter(|name| party::owner_id(name).is_none()).cloned());
        // If an NPC or a character has the player's name, the name means that NPC or character.
        let is_somebody_else = |name: &str| {
            rules
                .known_names
                .iter()
                .any(|known_name| normalise_text(known_name) == normalise_text(name))
        };
        let own_names = self.player_names.iter().filter(|name| !is_somebody_else(name));
        let own_names: Vec<String> = own_names.map(|name| (*name).to_owned()).collect();
        rules.player_names.extend(own_names);
    }
}

/// Reads a state block within the world's rules. A person that the block names as met, left or related must belong to
/// this world: an NPC, or a character in the state.
pub(crate) async fn parse_state_block(
    services: &Services,
    scope: &TenantScope,
    block_context: &StateBlockContext<'_>,
    block: &StateBlock,
) -> StoreResult<Result<ParsedStateBlock, StateBlockError>> {
    let StateBlockContext { world, npc, .. } = *block_context;
    let mut rules = block_context.state_rules();
    let anybody = block.parse_changes(&npc.name, &rules);
    let Ok(parsed) = &anybody else {
        return Ok(anybody);
    };
    let needs_names = parsed.changes.iter().any(StateChange::is_of_item_or_place);
    let people = parsed.changes.iter().flat_map(StateChange::related_people);
    let strangers: BTreeSet<String> = people
        .filter(|name| *name != npc.name && !party::means_player(name))
        .map(str::to_owned)
        .collect();
    if strangers.is_empty() && !needs_names {
        return Ok(anybody);
    }
    if needs_names {
        rules.backend_names = backend_names_of(services, scope, world).await?;
        rules.immovable = block_context.held_characters(&rules.backend_names);
    }
    if strangers.is_empty() {
        return Ok(block.parse_changes(&npc.name, &rules));
    }
    let strangers: Vec<String> = strangers.into_iter().collect();
    let known_npcs = services
        .ledger
        .authored
        .find_npc_names(scope, &world.id, &strangers)
        .await?;
    block_context.add_known_names(&mut rules, known_npcs);
    Ok(block.parse_changes(&npc.name, &rules))
}

/// The items and places of a world that replies do not change.
pub(crate) async fn backend_names_of(
    services: &Services,
    scope: &TenantScope,
    world: &World,
) -> StoreResult<BackendNames> {
    let mut names = BackendNames::in_settings(&world.settings);
    let content = services.memory_cache.lore.load_lore(services, scope, world).await?;
    names.extend(&content.backend_names);
    names.apply_settings(&world.settings);
    Ok(names)
}

/// Returns a world's limits for the state changes of one turn.
pub(crate) fn state_rules_of(settings: &WorldSettings) -> StateRules {
    let default = StateRules::default();
    StateRules {
        max_relationship_delta: settings
            .max_relationship_delta
            .unwrap_or(default.max_relationship_delta),
        max_hp_delta: settings.max_hp_delta.unwrap_or(default.max_hp_delta),
        max_item_delta: settings.max_item_delta.unwrap_or(default.max_item_delta),
        vocabulary: Vocabulary::from_settings(settings),
        items: settings.items.clone(),
        places: settings.places.clone(),
        attributes: settings.attribute_rules().to_vec(),
        ..default
    }
}
