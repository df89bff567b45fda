//! A turn in answers.

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use colloquy_core::{
    ids::{DialogueId, NpcId, TurnId},
    scope::Principal,
};
use colloquy_memory::turn::{Turn, TurnStatus, Usage};

/// A committed turn.
#[derive(Debug, Serialize, ToSchema)]
pub struct TurnView {
    #[schema(value_type = String)]
    id: TurnId,
    #[schema(value_type = String)]
    dialogue_id: DialogueId,
    turn: u32,
    status: TurnStatus,
    /// Empty if the NPC spoke first.
    player_text: String,
    #[schema(value_type = String)]
    npc_id: NpcId,
    reply_text: String,
    cues: Vec<String>,
    usage: Usage,
    started_at: DateTime<Utc>,
    committed_at: DateTime<Utc>,
}

impl TurnView {
    pub fn id(&self) -> TurnId {
        self.id
    }
    /// The view of the turn for `principal`.
    pub fn for_caller(turn: &Turn, principal: &Principal) -> Self {
        Self {
            id: turn.id,
            dialogue_id: turn.dialogue,
            turn: turn.number,
            status: turn.status,
            player_text: turn.player_text.clone(),
            npc_id: turn.npc.clone(),
            reply_text: turn.reply_text.clone(),
            cues: turn.cues.clone(),
            usage: turn.usage.seen_by(principal.role),
            started_at: turn.started_at,
            committed_at: turn.committed_at,
        }
    }
}
