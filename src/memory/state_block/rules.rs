//! The bounds of a state block, and the result of reading one.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    action_rule::ActionRule, actions::RequestedAction, attributes::AttributeRule, backend_names::BackendNames,
    state::StateChange, vocabulary::Vocabulary,
};

/// Longest name, place, item or mood, in Unicode scalar values.
pub const MAX_NAME_CHARS: usize = 64;
/// Bounds for the changes of one block.
#[derive(Debug, Clone, PartialEq)]
pub struct StateRules {
    /// Largest change of one relationship in one turn; 20.
    pub max_relationship_delta: i32,
    /// Largest change of hit points in one turn; 100.
    pub max_hp_delta: i32,
    /// Most of one item gained, and most lost, in one turn; 1,000.
    pub max_item_delta: u32,
    /// Longest name, place, item or mood, in Unicode scalar values; 64.
    pub max_name_chars: usize,
    /// Longest sentence in events and notes, in Unicode scalar values; 200.
    pub max_text_chars: usize,
    /// Most entries of one list; 16.
    pub max_list: usize,
    /// Names allowed in relationships and meetings, besides the player and the speaker. Empty: any name.
    pub known_names: Vec<String>,
    /// Names under which the NPC knows the player; each is read as `player`.
    pub player_names: Vec<String>,
    /// True without a player, as in NPC conversations: the changes of a block belong to the speaker.
    pub without_player: bool,
    /// The words for moods and relationships.
    pub vocabulary: Vocabulary,
    /// All items of the world; `None`: any item.
    pub items: Option<Vec<String>>,
    /// All places of the world; `None`: any place.
    pub places: Option<Vec<String>>,
    /// The items and places that a block does not change.
    pub backend_names: BackendNames,
    /// The characters whom a block does not take away from their places, by their names in the block's changes.
    pub immovable: BTreeSet<String>,
    /// The attributes of the world.
    pub attributes: Vec<AttributeRule>,
    /// The places to which a character can go now, by the character's name in the block's changes. A character without
    /// an entry can go anywhere, for example from a place that no prompt names.
    pub reachable: BTreeMap<String, Vec<String>>,
    /// Who else is here, besides the player and the speaker: the only others whom `changes` may change. The names in
    /// the state, by their normalised names and ids.
    pub present: BTreeMap<String, String>,
    /// The dead, whom a block does not change.
    pub dead: Vec<String>,
    /// True if the dead act: then a block changes all of them but their status.
    pub ghosts_act: bool,
    /// The actions that the block may ask for.
    pub actions: Vec<ActionRule>,
}

impl Default for StateRules {
    fn default() -> Self {
        Self {
            max_relationship_delta: 20,
            max_hp_delta: 100,
            max_item_delta: 1_000,
            max_name_chars: MAX_NAME_CHARS,
            max_text_chars: 200,
            max_list: 16,
            known_names: Vec::new(),
            player_names: Vec::new(),
            without_player: false,
            vocabulary: Vocabulary::default(),
            items: None,
            places: None,
            backend_names: BackendNames::default(),
            immovable: BTreeSet::new(),
            attributes: Vec::new(),
            reachable: BTreeMap::new(),
            present: BTreeMap::new(),
            dead: Vec::new(),
            ghosts_act: false,
            actions: Vec::new(),
        }
    }
}

/// The content of a block.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParsedStateBlock {
    pub changes: Vec<StateChange>,
    /// At most [`crate::actions::MAX_ACTIONS_PER_TURN`], of the rules' actions.
    pub actions: Vec<RequestedAction>,
    /// True if the turn holds nothing to learn.
    pub nothing_new: bool,
    /// Left-out or reduced entries with the reason, in words, for the trace.
    pub rejected: Vec<String>,
}

impl ParsedStateBlock {
    /// True if the block says only that the turn holds nothing to learn.
    #[must_use]
    pub fn is_only_nothing_new(&self) -> bool {
        self.nothing_new && self.changes.is_empty() && self.actions.is_empty() && self.rejected.is_empty()
    }
}

/// Why a whole block cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateBlockError {
    /// Where the block was to end is unknown, so its whole entries do not count either.
    #[error("the state block was not closed")]
    NotClosed,
    #[error("the state block is longer than {max} bytes")]
    TooLong { max: usize },
    #[error("the state block has no `key: value` line and is not an object")]
    NotABlock,
    /// The text is readable, but has no key of a state block.
    #[error("the state block has none of the known keys")]
    NoKnownKey,
}
