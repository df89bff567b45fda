//! The values of the first section of a prompt: the NPC, its world, and the form of the answer.

use minijinja::{Value, context};

use super::untrusted::escape_untrusted;
use crate::settings::PromptSettings;
use colloquy_memory::{
    attributes::{AttributeAuthor, AttributeRule},
    authored::{Language, Npc, ReplyLanguage, World},
    directive::SelectedDirectives,
    state_block::StateRules,
    vocabulary::Vocabulary,
};

/// What the model is asked to write after its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockRequest {
    /// A state block.
    pub state: bool,
    /// In the block, whether the turn holds nothing to learn.
    pub nothing_new: bool,
}

impl BlockRequest {
    pub(crate) const fn from_settings(settings: &PromptSettings) -> Self {
        Self {
            state: settings.ask_for_state,
            nothing_new: settings.ask_for_state && settings.ask_if_nothing_new,
        }
    }
}

/// Returns the values of the first section. `other_names` are the names of the other NPCs present.
pub(super) fn system_values(
    world: &World,
    npc: &Npc,
    directives: &SelectedDirectives,
    block_request: BlockRequest,
    other_names: Vec<String>,
) -> Value {
    let players_language = world.settings.reply_language == Some(ReplyLanguage::Player);
    // If replies follow the player's language, NPCs among themselves use the world's language.
    let spoken_language = if players_language { world.language } else { npc.language };
    context! {
        players_language,
        spoken => spoken_language.as_str(),
        world => context! {
            name => world.name.as_str(), premise => world.premise.as_str(), rules => world.rules.clone(),
        },
        npc => context! {
            name => npc.name.as_str(),
            description => npc.persona.description.as_str(),
            speech_style => npc.persona.speech_style.as_str(),
            boundaries => npc.persona.boundaries.clone(),
            cues => npc.persona.cues.clone(),
        },
        directives => context! {
            texts => directives.texts.clone(), instructions => directives.instructions.clone(),
            fails_if => directives.fails_if.clone(),
        },
        ask_for_state => block_request.state,
        ask_if_nothing_new => block_request.nothing_new,
        can_ask_actions => world.settings.action_rules().iter().any(|rule| rule.is_for(npc)),
        bounds => state_bounds(world, npc.language),
        others => other_names,
        several => false,
        own_prompt => false,
    }
}

/// The maximum number of items, and of places, named in a prompt. Further names of the world are valid too.
const MAX_LISTED_NAMES: usize = 60;

/// Returns the allowed content of a state block by the world's lists and numbers. A reply with a state block and the
/// call that extracts state from a reply share these bounds.
pub(crate) fn state_bounds(world: &World, language: Language) -> Value {
    let settings = &world.settings;
    let default = StateRules::default();
    let vocabulary = Vocabulary::from_settings(settings);
    let moods = vocabulary.moods_in(language).into_iter().map(str::to_owned);
    let moods: Vec<String> = moods.collect();
    let statuses = vocabulary.statuses_in(language).into_iter().map(str::to_owned);
    let statuses: Vec<String> = statuses.collect();
    let kinds = vocabulary.kinds_in(language).into_iter().map(str::to_owned);
    let kinds: Vec<String> = kinds.collect();
    let of_replies = |rule: &&AttributeRule| rule.changed_by == AttributeAuthor::Replies;
    let attributes = settings.attribute_rules().iter().filter(of_replies).map(|rule| {
        let (min, max) = rule.bounds();
        let values: Vec<String> = rule.values.iter().map(|value| escape_untrusted(value)).collect();
        context! {
            name => escape_untrusted(&rule.name),
            type => <&str>::from(rule.value_type),
            of => <&str>::from(rule.owner),
            values,
            min => min.to_string(),
            max => max.to_string(),
            max_delta => rule.max_delta.map(|max| max.to_string()),
        }
    });
    let attributes: Vec<Value> = attributes.collect();
    let names_of = |list: &Option<Vec<String>>| -> Vec<String> {
        let names = list.iter().flatten().take(MAX_LISTED_NAMES);
        names.map(|name| escape_untrusted(name)).collect()
    };
    context! {
        relationship => settings.max_relationship_delta.unwrap_or(default.max_relationship_delta),
        hp => settings.max_hp_delta.unwrap_or(default.max_hp_delta),
        moods,
        kinds,
        statuses,
        attributes,
        items => names_of(&settings.items),
        places => names_of(&settings.places),
    }
}
