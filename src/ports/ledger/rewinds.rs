//! Moving a dialogue's head: turns unsaid, and said again (docs/design.md#interrupt-and-rewind).
//!
//! Every turn names the one it followed, so a head stands for the whole chain of turns before it. To
//! move the head is to say which chain stands: turns outside it are unsaid and those in it that had
//! been unsaid stand again, with everything either of them caused. One operation serves an
//! interrupt, a rewind, a reply taken up again and a save that is loaded.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{audit::Edit, jobs::NewJob};
use crate::{
    ids::{DialogueId, RewindId, TurnId, WorldId},
    memory::{fact::Audience, turn::Turn},
    ports::StoreResult,
    tenancy::TenantScope,
};

/// A move of the head, in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct RewindCommit {
    pub id: RewindId,
    pub dialogue: DialogueId,
    /// The dialogue's.
    pub world: WorldId,
    /// Must be the owner's epoch. It rises with the move, so that a turn that was under way cannot commit.
    pub epoch: u64,
    /// Whether a dialogue that was closed is moved too.
    pub include_closed: bool,
    /// The head from now on, standing or not until now; `None`: nothing was ever said.
    pub to: Option<TurnId>,
    /// Said after `to`, in the place of a turn of which less was heard.
    pub replacement: Option<Replacement>,
    /// The turn that goes only to be said anew. Until a turn is committed or the head moves again it can
    /// stand again as it was, and [`super::dialogues::OpenDialogue::replacing`] names it.
    pub replacing: Option<TurnId>,
    /// Whether a conversation is paused from then on; `None`: as it was.
    pub paused: Option<bool>,
    /// Makes a retry safe; unique in a dialogue.
    pub key: Option<String>,
    /// Keys of others who asked at the same time, each with the id of its row: they are told of this move
    /// too. One that the dialogue knows already stays what it was.
    pub other_keys: Vec<(RewindId, String)>,
    /// Nothing is moved if a player has joined at this turn, or at one in whose place it stands.
    pub unless_joined: Option<TurnId>,
    /// `seq` of the event that tells of it.
    pub seq: u64,
    /// Its moment, its author and its audit row.
    pub edit: Edit,
    /// Audit rows of others who asked at the same time, and for less.
    pub other_edits: Vec<Edit>,
}

/// A turn that takes the place of another one: the same line, the same number and the same key, and
/// as much of the reply as was heard.
#[derive(Debug, Clone, PartialEq)]
pub struct Replacement {
    /// The turn it replaces; its checkpoint and its trace are taken over.
    pub of: TurnId,
    pub turn: Turn,
    pub jobs: Vec<NewJob>,
    /// The whole reply, and until when it may be taken up again.
    pub sealed_reply: Option<(String, DateTime<Utc>)>,
}

/// What was taken back, as the wire tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolledBack {
    /// Facts that are no longer valid, since what said them was unsaid.
    pub facts: u32,
    /// Facts that are valid again, since what had ended them was unsaid.
    pub restored: u32,
    pub summaries: u32,
    /// Changes of world state.
    pub state: u32,
}

/// A turn elsewhere whose prompt had something that is unsaid now. What was said there stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct QuotedIn {
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    pub turn: u32,
}

/// What a move did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewindRecord {
    pub id: RewindId,
    pub world: WorldId,
    /// The owner's epoch from now on.
    pub epoch: u64,
    pub head: Option<TurnId>,
    pub head_turn: u32,
    /// How much of the last reply was heard, in Unicode scalar values, where the move cut it.
    pub heard_chars: Option<usize>,
    /// Numbers of turns that no longer stand, rising; not that of a turn which was replaced.
    pub removed: Vec<u32>,
    /// Numbers of turns that stand again, rising.
    pub reinstated: Vec<u32>,
    pub rolled_back: RolledBack,
    /// Latest first, at most [`MAX_QUOTED`].
    pub quoted_in: Vec<QuotedIn>,
    /// Sessions that a player had joined from a turn which no longer stands: closed.
    pub closed: Vec<DialogueId>,
    /// The turn that went only to be said anew, or on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacing: Option<TurnId>,
    /// `seq` of the event that tells of it; 0: none does, since the events of a turn that was cut while it
    /// was being said do.
    pub seq: u64,
    pub at: DateTime<Utc>,
}

impl RewindRecord {
    /// What became of `turn`, which was cut while it was being said: it stands, and nothing was taken back.
    #[must_use]
    pub fn for_live_cut(id: RewindId, world: WorldId, epoch: u64, turn: &Turn) -> Self {
        Self {
            id,
            world,
            epoch,
            head: Some(turn.id),
            head_turn: turn.number,
            heard_chars: Some(turn.reply_text.chars().count()),
            removed: Vec::new(),
            reinstated: Vec::new(),
            rolled_back: RolledBack::default(),
            quoted_in: Vec::new(),
            closed: Vec::new(),
            replacing: None,
            seq: 0,
            at: turn.committed_at,
        }
    }

    /// Nothing was to be taken back: the dialogue stands at `head`, its turn `head_turn`.
    #[must_use]
    pub fn for_no_change(
        id: RewindId,
        world: WorldId,
        epoch: u64,
        (head, head_turn): (Option<TurnId>, u32),
        at: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            world,
            epoch,
            head,
            head_turn,
            heard_chars: None,
            removed: Vec::new(),
            reinstated: Vec::new(),
            rolled_back: RolledBack::default(),
            quoted_in: Vec::new(),
            closed: Vec::new(),
            replacing: None,
            seq: 0,
            at,
        }
    }

    /// `turn` was cut before the first character of its reply: it is none, and [`Self::for_no_change`] was taken back.
    #[must_use]
    pub fn into_dropped(self, turn: u32) -> Self {
        Self {
            head_turn: turn,
            heard_chars: Some(0),
            ..self
        }
    }

    /// Whether it is what [`Self::for_live_cut`] or [`Self::into_dropped`] makes.
    #[must_use]
    pub fn is_live_cut(&self) -> bool {
        self.seq == 0 && self.heard_chars.is_some()
    }

    /// Whether it is what [`Self::for_no_change`] makes.
    #[must_use]
    pub fn is_no_change(&self) -> bool {
        self.seq == 0 && self.heard_chars.is_none()
    }
}

/// A reply was cut while it was being said: written with its turn, so that the audit log has it and its
/// key is known.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveCut {
    pub rewound: RewindRecord,
    /// Makes a retry safe. One that the dialogue knows already stays what it was.
    pub key: Option<String>,
    /// Its moment, its author and its audit row.
    pub edit: Edit,
}

/// Turns named in [`RewindRecord::quoted_in`] at most.
pub const MAX_QUOTED: usize = 100;

/// What came of asking for a move.
#[derive(Debug, Clone, PartialEq)]
pub enum RewindOutcome {
    Done(Box<RewindRecord>),
    /// The epoch was another: this node no longer owns the dialogue. Nothing was written.
    Fenced,
    /// The dialogue is closed. Nothing was written.
    Closed,
    /// `to` is no turn of this dialogue. Nothing was written.
    NoSuchTurn,
    /// The key belongs to this earlier move. Nothing was written.
    Repeated(Box<RewindRecord>),
    /// A player has joined there ([`RewindCommit::unless_joined`]). Nothing was written.
    Joined,
}

/// A memory from which something was unsaid, or into which something was put back: everything said in
/// it since then is to be reconciled again, in the order in which it was said.
#[derive(Debug, Clone, PartialEq)]
pub struct DirtyMemory {
    pub world: WorldId,
    pub audience: Audience,
    pub since: DateTime<Utc>,
    /// Which marks this covers: a later one leaves the row in place.
    pub mark: u64,
}

/// Whoever is told of a move that is not, or not only, their own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RewindAcks {
    /// Their keys, which stand for it from now on; each with a name for its row.
    pub keys: Vec<(RewindId, String)>,
    /// That they asked, for the audit log.
    pub edits: Vec<Edit>,
}

/// What becomes of keys that a dialogue knows already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnKeyConflict {
    /// They stand for what they stood for.
    Keep,
    /// They stand for what is noted now: their callers were told of nothing else.
    Replace,
}

/// Heads and what moving them leaves to be done.
#[async_trait]
pub trait RewindStore: Send + Sync {
    /// Moves a head. Durable when this returns.
    async fn commit_rewind(&self, scope: &TenantScope, rewind: &RewindCommit) -> StoreResult<RewindOutcome>;
    /// Keeps what these were told without a move of their own: all of it, or nothing.
    async fn record_outcome(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        told: &RewindAcks,
        outcome: &RewindRecord,
        known: OnKeyConflict,
    ) -> StoreResult<()>;
    /// The move that a key belongs to, its own or one that others asked for at the same time.
    async fn load_rewind_by_key(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        key: &str,
    ) -> StoreResult<Option<RewindRecord>>;
    /// The moves of a dialogue with a `seq` above `after`, in order; at most `limit`.
    async fn list_rewinds_since(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        after: u64,
        limit: u32,
    ) -> StoreResult<Vec<RewindRecord>>;
    /// A turn, standing or not, and the reply it would have had if nobody had cut it, until its seal runs out.
    async fn load_sealed_reply(
        &self,
        scope: &TenantScope,
        turn: TurnId,
        now: DateTime<Utc>,
    ) -> StoreResult<Option<SealedReply>>;
    /// Deletes every sealed text whose seal has run out by `now`; how many there were.
    async fn delete_expired_seals(&self, scope: &TenantScope, now: DateTime<Utc>) -> StoreResult<u64>;
    /// Open dialogues with a turn that went to be said anew and in whose place none was committed; at most
    /// `limit`.
    async fn list_pending_replacements(&self, scope: &TenantScope, limit: u32) -> StoreResult<Vec<DialogueId>>;
    /// Memories to be settled, oldest mark first.
    async fn list_dirty_memories(&self, scope: &TenantScope, limit: u32) -> StoreResult<Vec<DirtyMemory>>;
}

/// What a cut reply would have been.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedReply {
    /// The turn it was cut from, where that one said all of it: it can stand again as it was.
    pub whole: Option<TurnId>,
    /// The client's idempotency key of the turn.
    pub key: Option<String>,
    /// The text, as far as it had been generated.
    pub text: String,
    /// Until when it may be taken up again.
    pub until: DateTime<Utc>,
}
