//! The events about a watched world.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{actions::ActionView, world_state::CauseView};
use colloquy_core::ids::{ActionId, DialogueId, StateEventId, TurnId, WorldId};
use colloquy_memory::state::StateChange;
use colloquy_ports::ledger::state::StoredStateChange;

/// `world.watched`: from here on, every change of the world follows as `world.changed`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "world.watched", deny_unknown_fields)]
pub struct WorldWatched<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    #[schema(value_type = String)]
    pub world_id: &'a WorldId,
}

/// `world.changed`: changes of a watched world, at most 100.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "world.changed", deny_unknown_fields)]
pub struct WorldChanged<'a> {
    #[schema(value_type = String)]
    pub world_id: &'a WorldId,
    /// Changes that a rewind or a restored save took back. They come before new changes.
    #[schema(value_type = Vec<Object>)]
    pub taken_back: Vec<WorldChange<'a>>,
    /// New changes, and changes that stand again.
    #[schema(value_type = Vec<Object>)]
    pub changes: Vec<WorldChange<'a>>,
}

/// `action.requested`: an NPC of a watched world asks for an action, or its turn stands again.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "action.requested", deny_unknown_fields)]
pub struct ActionRequested<'a> {
    #[schema(value_type = String)]
    pub world_id: &'a WorldId,
    pub action: ActionView,
}

/// `action.undone`: the turn that asked for the action was taken back.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "action.undone", deny_unknown_fields)]
pub struct ActionUndone<'a> {
    #[schema(value_type = String)]
    pub world_id: &'a WorldId,
    #[schema(value_type = String)]
    pub action_id: ActionId,
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    #[schema(value_type = String)]
    pub turn_id: TurnId,
    /// The number of the turn in the dialogue.
    pub turn: u32,
}

/// A change of a watched world: the fields of `state.changed`, with an id, the cause and the time.
#[derive(Debug, Serialize)]
pub struct WorldChange<'a> {
    id: StateEventId,
    #[serde(flatten)]
    change: &'a StateChange,
    cause: CauseView,
}

impl<'a> From<&'a StoredStateChange> for WorldChange<'a> {
    fn from(stored: &'a StoredStateChange) -> Self {
        Self {
            id: stored.id,
            change: &stored.change,
            cause: CauseView::new(&stored.cause, stored.changed_at),
        }
    }
}
