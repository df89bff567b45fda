//! World state for the prompt: the lines about one NPC and one player.
//!
//! All players of a world share the world state. Before a change is stored, `player` in a state block is replaced by
//! the player's own name. A prompt shows only this NPC and this player.

use minijinja::context;

use super::{
    templates::{Template, TemplateError, Templates},
    untrusted::escape_untrusted,
};
use crate::npc_conversation::Scene;
use colloquy_core::ids::PlayerId;
use colloquy_memory::{
    authored::{Language, Npc},
    party::{self, PLAYER},
    state::{Character, StateChange, WorldState},
    vocabulary,
};

/// The maximum number of shown relationships, and of items.
const MAX_LISTED: usize = 8;

/// Replaces the word `player` in a change by the player's own name in world state.
pub(crate) fn bind_player(change: &mut StateChange, player: &PlayerId) {
    let bind = |name: &mut String| {
        if party::means_player(name) {
            *name = party::player_key(player);
        }
    };
    match change {
        StateChange::Location { who, .. }
        | StateChange::HpDelta { who, .. }
        | StateChange::Status { who, .. }
        | StateChange::ItemGained { who, .. }
        | StateChange::ItemLost { who, .. }
        | StateChange::Mood { who, .. }
        | StateChange::Progress { who, .. } => bind(who),
        StateChange::Relationship { from, to, .. } => {
            bind(from);
            bind(to);
        }
        StateChange::Met { who, whom } | StateChange::Separated { who, whom } => {
            bind(who);
            bind(whom);
        }
        StateChange::Happened { .. } | StateChange::Note { .. } => {}
    }
}

/// Returns the lines about the NPC, the others present, and their relationships.
pub(crate) fn world_lines(
    templates: &Templates,
    language: Language,
    state: &WorldState,
    npc: &Npc,
    player: Option<&PlayerId>,
    scene: Option<&Scene>,
) -> Result<Vec<String>, TemplateError> {
    let bound = player.map(party::player_key);
    let others: Vec<&str> = scene
        .into_iter()
        .flat_map(|scene| &scene.cast)
        .filter(|member| member.id != npc.id)
        .flat_map(|member| [member.name.as_str(), member.id.as_str()])
        .collect();
    let shown = |name: &str| {
        if Some(name) == bound.as_deref() {
            PLAYER.to_owned()
        } else {
            escape_untrusted(name)
        }
    };
    let characters: Vec<_> = [npc.name.as_str(), npc.id.as_str()]
        .into_iter()
        .chain(others.iter().copied())
        .chain(bound.as_deref())
        .filter_map(|name| state.characters.get_key_value(name))
        .filter(|(_, character)| has_details(character))
        .map(|(name, character)| character_values(&shown(name), character, language, &shown))
        .collect();
    let about_us = |name: &str| {
        Some(name) == bound.as_deref() || name == npc.name || name == npc.id.as_str() || others.contains(&name)
    };
    let relationships: Vec<_> = state
        .relationships
        .iter()
        .filter(|r| about_us(&r.from) && about_us(&r.to))
        .take(MAX_LISTED)
        .map(|r| context! { from => shown(&r.from), to => shown(&r.to), kind => escape_untrusted(&r.kind), strength => r.strength })
        .collect();
    if characters.is_empty() && relationships.is_empty() {
        return Ok(Vec::new());
    }
    let text = templates.render(language, Template::ReplyWorld, context! { characters, relationships })?;
    Ok(text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect())
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

fn character_values(
    name: &str,
    character: &Character,
    language: Language,
    shown: &dyn Fn(&str) -> String,
) -> minijinja::Value {
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
    let with: Vec<String> = character.with.iter().take(MAX_LISTED).map(|name| shown(name)).collect();
    context! {
        name,
        location => text(&character.location),
        status => text(&character.status),
        mood => character.mood.as_deref().map(|mood| escape_untrusted(vocabulary::display_label(mood, language))),
        hp => character.hp,
        items,
        with,
    }
}
