//! Dialogues, their turns, checkpoints and traces.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{jobs::NewJob, rewinds::LiveCut, state::NewStateChange};
use crate::{
    ids::{DialogueId, DialogueKind, FactionId, NodeId, NpcId, PlayerId, TurnId, WorldId},
    memory::{
        authored::Npc,
        fact::{Cause, Viewpoint, Watchers},
        private_terms::PrivateTerms,
        summary::Meeting,
        trace::TurnTrace,
        turn::{Checkpoint, Turn},
    },
    ports::{Page, PageRequest, StoreResult},
    tenancy::TenantScope,
};

/// How a dialogue stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DialogueStatus {
    Open,
    Closed,
}

/// When a turn of a session counts as heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Playback {
    /// As soon as it was sent.
    #[default]
    Immediate,
    /// When the client says that it was played, at the next line, or after a while. Nothing is learned
    /// from a turn before that.
    Ack,
}

/// Who decides whose line is next in an NPC conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(default = "rule")]
pub enum NextSpeaker {
    /// Whoever the last line names, or else whoever has been silent for longest.
    #[default]
    Rule,
    /// The model of the task `intent`; the rule, where that fails, is late or names nobody.
    Model,
}

impl NextSpeaker {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_rule(&self) -> bool {
        *self == Self::Rule
    }
}

/// Which players may cut into an NPC conversation, join it and resume it. Backends always may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(default = "watchers")]
pub enum Interrupters {
    /// No player.
    None,
    /// Those that `watchers` names.
    #[default]
    Watchers,
    /// Every player who may watch it.
    All,
}

impl Interrupters {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_watchers(&self) -> bool {
        *self == Self::Watchers
    }
}

/// What a dialogue was opened with and keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DialogueOptions {
    /// What NPCs are to talk about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// After how many turns an NPC conversation ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// An NPC conversation that goes on by itself, not step by step.
    pub auto: bool,
    /// An NPC conversation in which nobody speaks until it is resumed or stepped.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    pub playback: Playback,
    #[serde(skip_serializing_if = "NextSpeaker::is_rule")]
    pub next_speaker: NextSpeaker,
    /// Factions that overhear it and so learn its facts: of an NPC conversation, and of a session that joined one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub factions: Vec<FactionId>,
    /// Players who may watch an NPC conversation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watchers: Vec<PlayerId>,
    /// Every player of the world may.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    #[serde(skip_serializing_if = "Interrupters::is_watchers")]
    pub interrupters: Interrupters,
}

impl DialogueOptions {
    /// Whether a player may watch an NPC conversation.
    #[must_use]
    pub fn may_watch(&self, player: &PlayerId) -> bool {
        self.open || self.watchers.contains(player)
    }
    /// Whether a player may cut into an NPC conversation, join it and resume it.
    #[must_use]
    pub fn may_interrupt(&self, player: &PlayerId) -> bool {
        match self.interrupters {
            Interrupters::None => false,
            Interrupters::Watchers => self.watchers.contains(player),
            Interrupters::All => self.may_watch(player),
        }
    }
    /// Who else hears what is said.
    #[must_use]
    pub fn watchers(&self) -> Watchers {
        Watchers {
            players: self.watchers.iter().cloned().collect(),
            everyone: self.open,
        }
    }
}

/// A conversation of NPCs that an NPC heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverheardConversation {
    pub dialogue: DialogueId,
    /// The number of its last turn.
    pub last: u32,
    /// Which players may listen to it.
    pub watchers: Watchers,
}

/// A dialogue without its turns.
#[derive(Debug, Clone, PartialEq)]
pub struct Dialogue {
    pub id: DialogueId,
    pub world: WorldId,
    /// The NPCs that take part; exactly one in a plain session.
    pub npcs: Vec<NpcId>,
    /// Set for sessions.
    pub player: Option<PlayerId>,
    /// NPCs that overhear it and so learn its facts.
    pub witnesses: Vec<NpcId>,
    /// SHA-256 of the resume token.
    pub resume_token_hash: Vec<u8>,
    pub status: DialogueStatus,
    pub options: DialogueOptions,
    /// What opened it, where that was a turn of another dialogue: a player joined there.
    pub cause: Option<Cause>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// Number of the last turn that stands; 0 before the first.
    pub head_turn: u32,
}

impl Dialogue {
    /// Whose eyes the searches of a turn look through in which this NPC answers, the player or others.
    #[must_use]
    pub fn viewpoint_for(&self, npc: &Npc, player: Option<PlayerId>) -> Viewpoint {
        Viewpoint {
            world: self.world.clone(),
            npc: npc.id.clone(),
            factions: npc.factions.clone(),
            player,
            watchers: self.options.watchers(),
            sees_all_players: false,
        }
    }
}

/// What an actor needs to go on with a dialogue, read in one transaction that also takes ownership.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenDialogue {
    pub dialogue: Dialogue,
    /// The fence of every commit by this owner.
    pub epoch: u64,
    pub head: Option<TurnId>,
    pub checkpoint: Checkpoint,
    /// A turn that went to be said anew, in whose place none was committed.
    pub replacing: Option<TurnId>,
    /// The next event sequence number.
    pub next_seq: u64,
    /// Another node that had it and has not given it up.
    pub taken_from: Option<NodeId>,
}

/// What came of asking for ownership.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnershipClaim {
    Owned(Box<OpenDialogue>),
    /// Another live node has it.
    OwnedBy {
        node: NodeId,
        until: DateTime<Utc>,
    },
    NotFound,
}

/// A finished turn and everything that is written with it, in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnCommit {
    /// Must be the owner's epoch, or nothing is written.
    pub epoch: u64,
    /// The head before this turn.
    pub expected_head: Option<TurnId>,
    /// The turn that went to be said anew or on, and does not come back now: its checkpoint goes.
    pub replacing: Option<TurnId>,
    pub turn: Turn,
    /// The client's idempotency key.
    pub key: Option<String>,
    /// An unsaid turn whose line this one answers: its key is this turn's too.
    pub key_of: Option<TurnId>,
    /// All that was said of a reply by the time it was cut, and until when it may be taken up again.
    /// Sealed: [`super::rewinds::RewindStore::load_sealed_reply`] alone reads it.
    pub sealed_reply: Option<(String, DateTime<Utc>)>,
    /// Who cut it while it was being said.
    pub cuts: Vec<LiveCut>,
    pub checkpoint: Checkpoint,
    pub trace: TurnTrace,
    pub state: Vec<NewStateChange>,
    pub jobs: Vec<NewJob>,
    /// The next event sequence number after this turn's events.
    pub next_seq: u64,
}

/// What came of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    Committed,
    /// The epoch or the head was another: this node no longer owns the dialogue. Nothing was written.
    Fenced,
    /// The dialogue is closed. Nothing was written.
    Closed,
    /// The key belongs to another turn of this dialogue. Nothing was written.
    KeyTaken,
}

/// What came of another write that is its owner's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerWriteOutcome {
    Done,
    /// There is no such dialogue that is open. Nothing was written.
    NotOpen,
    /// The epoch was another: this node no longer owns the dialogue. Nothing was written.
    Fenced,
}

/// A turn found by its idempotency key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyedTurn {
    pub turn: Turn,
    /// `false`: it was unsaid since.
    pub stands: bool,
}

/// Which dialogues to list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DialogueFilter {
    pub kind: Option<DialogueKind>,
    pub world: Option<WorldId>,
    /// Who takes part in it.
    pub npc: Option<NpcId>,
    pub player: Option<PlayerId>,
    pub status: Option<DialogueStatus>,
    /// Who takes part in it or was named a witness.
    pub heard_by: Option<NpcId>,
}

/// Dialogues and their turns.
#[async_trait]
pub trait DialogueStore: Send + Sync {
    /// Writes a new dialogue, not owned by anybody yet, with `next_seq` 1. `false`, and nothing is written: the
    /// turn that opens it stands no longer.
    async fn create_dialogue(&self, scope: &TenantScope, dialogue: &Dialogue) -> StoreResult<bool>;
    async fn load_dialogue(&self, scope: &TenantScope, id: DialogueId) -> StoreResult<Option<Dialogue>>;
    /// Newest first.
    async fn list_dialogues(
        &self,
        scope: &TenantScope,
        filter: &DialogueFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<Dialogue>>;
    /// The conversation of NPCs that `npc` took part in or was a witness of in which something was said last, of those that
    /// are open to `player`; `None`: of all. One in which nothing that was said stands is none.
    async fn find_last_overheard(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: Option<&PlayerId>,
    ) -> StoreResult<Option<OverheardConversation>>;
    /// The newest session but `apart_from` in which `npc` talked with `player`, and of which something stands. Its summary
    /// is that of an earlier session where it has none of its own. `unlocked`: of summaries that everybody may hear of alone.
    async fn find_last_meeting(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: &PlayerId,
        apart_from: DialogueId,
        unlocked: bool,
    ) -> StoreResult<Option<Meeting>>;
    /// Replaces the hash of the resume token. `false`: there is no such dialogue.
    async fn set_resume_token(&self, scope: &TenantScope, id: DialogueId, hash: &[u8]) -> StoreResult<bool>;
    /// Marks it closed, for the owner of this epoch.
    async fn close_dialogue(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        at: DateTime<Utc>,
    ) -> StoreResult<OwnerWriteOutcome>;

    /// Pauses an NPC conversation that is open, or lets it go on, for the owner of this epoch.
    async fn set_paused(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        paused: bool,
    ) -> StoreResult<OwnerWriteOutcome>;

    /// Takes or renews ownership for `node` until `until` and reads the state to go on from.
    /// Taking it anew raises the epoch; so does the same node claiming again after a restart. What belongs
    /// to a node that is known to be dead ([`super::nodes`]) is anybody's, whenever it would have run out.
    async fn claim_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> StoreResult<OwnershipClaim>;
    /// Prolongs ownership without a new epoch; `false`: it was lost.
    async fn renew_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        until: DateTime<Utc>,
    ) -> StoreResult<bool>;

    /// Gives up the ownership that was taken with this epoch, so that another node need not wait until it
    /// has run out. Nothing happens if it was lost or taken anew. Numbers of events below `next_seq` were given out, also
    /// those of events after the last commit; 0: which were is not known.
    async fn release_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        next_seq: u64,
    ) -> StoreResult<()>;
    /// Gives up everything `node` owns: called once, when it stops.
    async fn release_all_ownership(&self, node: NodeId) -> StoreResult<()>;

    /// Writes a turn. Durable when this returns `Committed`.
    async fn commit_turn(&self, scope: &TenantScope, commit: &TurnCommit) -> StoreResult<CommitOutcome>;

    /// Turns that stand, numbers `from..=to`, in order.
    async fn load_turns(&self, scope: &TenantScope, id: DialogueId, from: u32, to: u32) -> StoreResult<Vec<Turn>>;
    async fn load_turn(&self, scope: &TenantScope, id: TurnId) -> StoreResult<Option<KeyedTurn>>;
    async fn load_turn_by_key(&self, scope: &TenantScope, id: DialogueId, key: &str) -> StoreResult<Option<KeyedTurn>>;
    /// Keys of the dialogue's turns, whether or not they stand; `most` of them at most, in no order.
    async fn list_turn_keys(&self, scope: &TenantScope, id: DialogueId, most: usize) -> StoreResult<Vec<String>>;
    async fn load_trace(&self, scope: &TenantScope, id: DialogueId, number: u32) -> StoreResult<Option<TurnTrace>>;
    /// What the turns up to `last` that stand had in their prompts that was private to the player; `None`: of some of them
    /// nobody knows.
    async fn load_confided(&self, scope: &TenantScope, id: DialogueId, last: u32) -> StoreResult<Option<PrivateTerms>>;
    /// The checkpoint after the last turn that stands.
    async fn load_checkpoint(&self, scope: &TenantScope, id: DialogueId) -> StoreResult<Option<Checkpoint>>;
}
