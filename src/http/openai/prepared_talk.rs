//! A talk at the point where the NPC speaks, and its replies.

use std::sync::Arc;

use actix_web::web;
use serde_json::Value;
use tokio::sync::{OwnedMutexGuard, mpsc};

use super::{answer::FinishReason, known_sessions::KnownSessions, tool_calls::ReplyOutcome};
use crate::AppState;
use colloquy_actors::AcceptedLine;
use colloquy_core::{
    ids::{DialogueId, NpcId, TurnId},
    scope::Principal,
};
use colloquy_dialogue::turn::{ChatRequest, OwnPrompt, ToolExchange};
use colloquy_memory::{chat_transcript::TranscriptRequest, turn::Usage};
use colloquy_ports::llm::ClientFields;

/// The header that names a talk, or a session by its id.
pub const SESSION_HEADER: &str = "x-colloquy-session";

/// A talk at the point where the NPC speaks: the session has the turns of the transcript.
pub struct PreparedTalk {
    pub state: web::Data<AppState>,
    pub principal: Principal,
    pub session: DialogueId,
    pub(super) npc: NpcId,
    /// The number of the turn that the reply belongs to.
    pub number: u32,
    /// Held until the reply has ended, so that requests of one talk follow each other.
    pub thread: OwnedMutexGuard<KnownSessions>,
    /// The id of the next turn. `None`: the session makes an id.
    pub turn_id: Option<TurnId>,
    /// Gets the pieces of tool calls of a streamed reply.
    pub tool_calls: Option<mpsc::UnboundedSender<Vec<Value>>>,
    pub(super) request: TranscriptRequest,
    pub(super) chat: ChatTemplate,
}

/// What each line of the request gets from the request.
pub(super) struct ChatTemplate {
    pub(super) scene_notes: Vec<String>,
    pub(super) client: Arc<ClientFields>,
    pub(super) own_prompt: Option<Arc<OwnPrompt>>,
    pub(super) tools: ToolExchange,
}

/// A reply under way.
pub struct RunningReply {
    pub accepted: AcceptedLine,
    pub chat: Arc<ChatRequest>,
    /// The text of the reply that the client has already, in Unicode scalar values.
    pub known_chars: usize,
    /// The part of that text that stands if the client hangs up at once, in Unicode scalar values.
    pub heard_chars: usize,
}

/// A whole reply.
pub struct WholeReply {
    pub outcome: ReplyOutcome,
    /// The text that the client does not have yet.
    pub new_text: String,
    pub finish_reason: FinishReason,
    /// The tokens of the reply, as the caller may see them.
    pub usage: Usage,
}
