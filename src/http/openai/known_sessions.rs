//! The sessions of chat programs' talks that this node keeps.

use std::{collections::HashSet, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use moka::sync::Cache;
use tokio::sync::{Mutex, OwnedMutexGuard};

use colloquy_core::{
    ids::{DialogueId, NpcId, PlayerId, TenantId, WorldId},
    scope::Principal,
};
use colloquy_memory::{
    authored::Npc,
    chat_transcript::{StoredTurn, TextPrint, TranscriptTurn},
};
use colloquy_ports::ledger::dialogues::Dialogue;

/// The number of talks whose lines the node keeps: about 30 bytes for a line.
const MAX_KEPT_THREADS: u64 = 5_000;
/// How long the lines of a talk are kept after its last request.
const KEPT_FOR: Duration = Duration::from_mins(15);

/// Who talks with whom, and the name that the request gives the talk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ThreadKey {
    pub tenant: TenantId,
    pub player: PlayerId,
    pub world: WorldId,
    pub npc: NpcId,
    /// `X-Colloquy-Session`; empty: the request names no talk.
    pub name: String,
}

impl ThreadKey {
    pub fn new(principal: &Principal, player: PlayerId, npc: &Npc, name: String) -> Self {
        Self {
            tenant: principal.tenant.clone(),
            player,
            world: npc.world.clone(),
            npc: npc.id.clone(),
            name,
        }
    }
}

/// The talks of chat programs on this node. A copy: everything is in the ledger too.
#[derive(Clone)]
pub struct ChatThreads(Cache<ThreadKey, Arc<Mutex<KnownSessions>>>);

impl Default for ChatThreads {
    fn default() -> Self {
        Self(
            Cache::builder()
                .max_capacity(MAX_KEPT_THREADS)
                .time_to_idle(KEPT_FOR)
                .build(),
        )
    }
}

impl ChatThreads {
    /// Waits until no other request of the talk is being answered.
    pub async fn lock(&self, key: &ThreadKey) -> OwnedMutexGuard<KnownSessions> {
        let thread = self.0.get_with_by_ref(key, Arc::default);
        thread.lock_owned().await
    }
}

/// The sessions of a talk, as this node has seen them last.
#[derive(Debug, Default)]
pub struct KnownSessions {
    /// The last used session comes last.
    pub(super) sessions: Vec<KnownSession>,
    /// The last request for a turn; `None`: there was none on this node.
    pub(super) last_request: Option<LastRequest>,
    /// The last turn that a request has stored on this node.
    pub(super) last_turn: Option<TranscriptTurn>,
    /// The session whose first line awaits the results of tools. The session has no turn yet.
    pub(super) awaits_results: Option<DialogueId>,
}

/// The marks of a request for a turn, with which later requests are compared.
#[derive(Debug)]
pub(super) struct LastRequest {
    /// The system messages within and after the talk.
    pub(super) notes: HashSet<TextPrint>,
    pub(super) was_streamed: bool,
}

#[derive(Debug)]
pub(super) struct KnownSession {
    pub(super) id: DialogueId,
    pub(super) head_turn: u32,
    pub(super) updated_at: DateTime<Utc>,
    pub(super) turns: Vec<StoredTurn>,
}

impl KnownSession {
    pub(super) const fn new(id: DialogueId) -> Self {
        Self {
            id,
            head_turn: 0,
            updated_at: DateTime::<Utc>::MIN_UTC,
            turns: Vec::new(),
        }
    }

    pub(super) fn is_current(&self, dialogue: &Dialogue) -> bool {
        self.head_turn == dialogue.head_turn
            && self.updated_at.timestamp_micros() == dialogue.updated_at.timestamp_micros()
    }
}
