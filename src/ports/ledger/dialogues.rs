//! Dialogues, their turns, checkpoints and traces.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{actions::NewAction, new_job::NewJob, rewinds::LiveCut, state::NewStateChange};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{DialogueId, DialogueKind, FactionId, NodeId, NpcId, PlayerId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Npc, TierSettings},
    directive::KeyPattern,
    disclosure::{
        audience::{Viewpoint, Watchers},
        private_terms::PrivateTerms,
    },
    episode::Episode,
    fact::Cause,
    joined_lines::other_speakers,
    summary::Meeting,
    trace::{ScenarioTrace, TurnTrace},
    turn::{Checkpoint, Turn},
};

/// The status of a dialogue.
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
    /// As soon as the turn is sent.
    #[default]
    Immediate,
    /// When the client reports playback, when the next line arrives, or after a timeout. NPCs learn from the turn only
    /// then.
    Ack,
}

/// Who decides which NPC speaks next in an NPC conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(default = "rule")]
pub enum NextSpeaker {
    /// A rule: the NPC named in the last line, or else the NPC that has been silent longest.
    #[default]
    Rule,
    /// The model of the task `intent`. The rule decides if the model fails, is late or names no NPC.
    Model,
}

impl NextSpeaker {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_rule(&self) -> bool {
        *self == Self::Rule
    }
}

/// Which players may interrupt, join and resume an NPC conversation. Backends always may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(default = "watchers")]
pub enum Interrupters {
    /// No player.
    None,
    /// The players in `watchers`.
    #[default]
    Watchers,
    /// Every player who may watch the conversation.
    All,
}

impl Interrupters {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_watchers(&self) -> bool {
        *self == Self::Watchers
    }
}

/// Lasting options of a dialogue, set when it is opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DialogueOptions {
    /// The topic for NPCs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The number of turns after which an NPC conversation ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// True for an NPC conversation that continues by itself; false for stepwise conversations.
    pub auto: bool,
    /// True for an NPC conversation in which no NPC speaks before a resume or a step.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    pub playback: Playback,
    #[serde(skip_serializing_if = "NextSpeaker::is_rule")]
    pub next_speaker: NextSpeaker,
    /// Factions that overhear the dialogue and learn its facts: in NPC conversations, and in sessions that joined them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub factions: Vec<FactionId>,
    /// Players who may watch an NPC conversation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watchers: Vec<PlayerId>,
    /// True if every player of the world may watch.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    #[serde(skip_serializing_if = "Interrupters::is_watchers")]
    pub interrupters: Interrupters,
    /// Settings of a session, in place of those of its NPC, world and tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Box<TierSettings>>,
    /// For a session that a chat program opened: the name that the program gives the talk, or an empty text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_key: Option<String>,
}

impl DialogueOptions {
    /// Returns the names of others whose words a player's line has: in groups of chat programs, NPCs hear the other
    /// members too.
    pub fn other_speakers<'l>(&self, line: &'l str) -> impl Iterator<Item = &'l str> + use<'l> {
        let line = self.chat_key.is_some().then_some(line);
        line.into_iter().flat_map(other_speakers)
    }
    /// True if the player may watch an NPC conversation.
    #[must_use]
    pub fn may_watch(&self, player: &PlayerId) -> bool {
        self.open || self.watchers.contains(player)
    }
    /// True if the player may interrupt, join and resume an NPC conversation.
    #[must_use]
    pub fn may_interrupt(&self, player: &PlayerId) -> bool {
        match self.interrupters {
            Interrupters::None => false,
            Interrupters::Watchers => self.watchers.contains(player),
            Interrupters::All => self.may_watch(player),
        }
    }
    /// Returns the players who also hear the dialogue.
    #[must_use]
    pub fn watchers(&self) -> Watchers {
        Watchers {
            players: self.watchers.iter().cloned().collect(),
            everyone: self.open,
        }
    }
}

/// An NPC conversation that a given NPC heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverheardConversation {
    pub dialogue: DialogueId,
    /// The number of the conversation's last turn.
    pub last: u32,
    /// The players who may listen to the conversation.
    pub watchers: Watchers,
}

/// A dialogue without its turns.
#[derive(Debug, Clone, PartialEq)]
pub struct Dialogue {
    pub id: DialogueId,
    pub world: WorldId,
    /// The NPCs that take part; exactly one NPC in a plain session.
    pub npcs: Vec<NpcId>,
    /// Set for sessions only.
    pub player: Option<PlayerId>,
    /// NPCs that overhear the dialogue and learn its facts.
    pub witnesses: Vec<NpcId>,
    /// SHA-256 of the resume token.
    pub resume_token_hash: Vec<u8>,
    pub status: DialogueStatus,
    pub options: DialogueOptions,
    /// The turn of another dialogue where a player joined and so opened this dialogue, if any.
    pub cause: Option<Cause>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// The number of the last standing turn; 0 before the first.
    pub head_turn: u32,
}

impl Dialogue {
    /// Returns the viewpoint for searches of a turn in which this NPC answers the player, or other NPCs.
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

/// A dialogue's state for its actor, read in the transaction that takes ownership.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenDialogue {
    pub dialogue: Dialogue,
    /// The fence for every commit of this owner.
    pub epoch: u64,
    pub head: Option<TurnId>,
    pub checkpoint: Checkpoint,
    /// The turn removed for a regenerated reply, until a replacement is committed.
    pub replacing: Option<TurnId>,
    /// The next event sequence number.
    pub next_seq: u64,
    /// The previous owner, if another node owned the dialogue and did not release it.
    pub taken_from: Option<NodeId>,
}

/// The outcome of an ownership claim.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnershipClaim {
    Owned(Box<OpenDialogue>),
    /// Another live node owns the dialogue.
    OwnedBy {
        node: NodeId,
        until: DateTime<Utc>,
    },
    NotFound,
}

/// A finished turn and all writes with it, in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnCommit {
    /// The owner's epoch. With another epoch, the store writes no row.
    pub epoch: u64,
    /// The head before this turn.
    pub expected_head: Option<TurnId>,
    /// The turn removed for a new or resumed reply. The turn cannot return any more, so its checkpoint is deleted.
    pub replacing: Option<TurnId>,
    pub turn: Turn,
    /// The client's idempotency key.
    pub key: Option<String>,
    /// The unsaid turn of the same line. This turn takes over its key too.
    pub key_of: Option<TurnId>,
    /// The text of a cut reply up to the cut, and the end of the time for a resume. Sealed: only
    /// [`super::rewinds::RewindStore::load_sealed_reply`] reads the text.
    pub sealed_reply: Option<(String, DateTime<Utc>)>,
    /// The interrupts that cut the running reply.
    pub cuts: Vec<LiveCut>,
    pub checkpoint: Checkpoint,
    pub trace: TurnTrace,
    pub state: Vec<NewStateChange>,
    pub actions: Vec<NewAction>,
    /// The episode of a turn with a player that no extraction will read.
    pub episode: Option<Episode>,
    pub jobs: Vec<NewJob>,
    /// The next event sequence number after this turn's events.
    pub next_seq: u64,
}

/// The outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    Committed,
    /// The epoch or the head differs: this node no longer owns the dialogue. The store wrote no row.
    Fenced,
    /// The dialogue is closed. The store wrote no row.
    Closed,
    /// The key belongs to another turn of this dialogue. The store wrote no row.
    KeyTaken,
}

/// The outcome of another write reserved to the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerWriteOutcome {
    Done,
    /// No open dialogue has this id. The store wrote no row.
    NotOpen,
    /// The epoch differs: this node no longer owns the dialogue. The store wrote no row.
    Fenced,
}

/// A turn found by its idempotency key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyedTurn {
    pub turn: Turn,
    /// `false`: the turn is unsaid.
    pub stands: bool,
}

/// Selects dialogues of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DialogueFilter {
    pub kind: Option<DialogueKind>,
    pub world: Option<WorldId>,
    /// An NPC that takes part.
    pub npc: Option<NpcId>,
    pub player: Option<PlayerId>,
    pub status: Option<DialogueStatus>,
    /// An NPC that takes part or is a named witness.
    pub heard_by: Option<NpcId>,
    /// A pattern of the keys of the NPCs that take part.
    pub key: Option<KeyPattern>,
    /// The name of a chat program's talk, as in [`DialogueOptions::chat_key`].
    pub chat_key: Option<String>,
}

/// Commits turns. Apart from [`DialogueStore`], so that commits can be measured or changed without its other methods.
#[async_trait]
pub trait TurnStore: Send + Sync {
    /// Writes a turn. Durable when the call returns `Committed`.
    async fn commit_turn(&self, scope: &TenantScope, commit: &TurnCommit) -> StoreResult<CommitOutcome>;
}

/// Owners of dialogues, and the writes of an owner other than turns.
#[async_trait]
pub trait OwnershipStore: Send + Sync {
    /// Closes the dialogue, for the owner of this epoch.
    async fn close_dialogue(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        now: DateTime<Utc>,
    ) -> StoreResult<OwnerWriteOutcome>;
    /// Pauses or continues an open NPC conversation, for the owner of this epoch.
    async fn set_paused(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        paused: bool,
    ) -> StoreResult<OwnerWriteOutcome>;
    /// Takes or renews ownership for `node` until `until`, and reads the state to continue from. A new claim raises the
    /// epoch; so does a claim of the same node after a restart. The dialogues of a dead node ([`super::nodes`]) are
    /// free at once, before their ownership expires.
    async fn claim_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> StoreResult<OwnershipClaim>;
    /// Extends ownership without a new epoch. Returns `false` if ownership was lost.
    async fn renew_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        until: DateTime<Utc>,
    ) -> StoreResult<bool>;
    /// Releases ownership under this epoch, so that another node need not wait for its end. Lost or renewed ownership
    /// is unchanged. The owner has used event numbers below `next_seq`, partly after its last commit; 0: unknown.
    async fn release_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        next_seq: u64,
    ) -> StoreResult<()>;
    /// Releases all ownership of `node`. Called once, on shutdown.
    async fn release_all_ownership(&self, node: NodeId) -> StoreResult<()>;
}

/// Dialogues and their turns.
#[async_trait]
pub trait DialogueStore: OwnershipStore {
    /// Writes a new dialogue without an owner, with `next_seq` 1. Returns `false`, without a write, if the turn that
    /// opens the dialogue no longer stands.
    async fn create_dialogue(&self, scope: &TenantScope, dialogue: &Dialogue) -> StoreResult<bool>;
    async fn load_dialogue(&self, scope: &TenantScope, id: DialogueId) -> StoreResult<Option<Dialogue>>;
    /// Returns dialogues, newest first.
    async fn list_dialogues(
        &self,
        scope: &TenantScope,
        filter: &DialogueFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<Dialogue>>;
    /// Returns the NPC conversation with the latest line among those in which `npc` took part or was a witness. Only
    /// conversations open to `player` count; with `None`, all. A conversation without a standing turn does not count.
    async fn find_last_overheard(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: Option<&PlayerId>,
    ) -> StoreResult<Option<OverheardConversation>>;
    /// Returns the newest session of `npc` and `player` with a standing turn, except `apart_from`. Without a summary of
    /// its own, the session gets the summary of an earlier session. `unlocked`: only summaries without locks count.
    async fn find_last_meeting(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: &PlayerId,
        apart_from: DialogueId,
        unlocked: bool,
    ) -> StoreResult<Option<Meeting>>;
    /// Replaces the hash of the resume token. Returns `false` if the dialogue does not exist.
    async fn set_resume_token(&self, scope: &TenantScope, id: DialogueId, hash: &[u8]) -> StoreResult<bool>;

    /// Returns the standing turns `from..=to`, in order.
    async fn load_turns(&self, scope: &TenantScope, id: DialogueId, from: u32, to: u32) -> StoreResult<Vec<Turn>>;
    /// Returns the turns of a dialogue that were replaced or taken back, the latest of them first; at most `limit`.
    /// Turns whose texts were deleted since are not among them.
    async fn list_unsaid_turns(&self, scope: &TenantScope, id: DialogueId, limit: usize) -> StoreResult<Vec<Turn>>;
    async fn load_turn(&self, scope: &TenantScope, id: TurnId) -> StoreResult<Option<KeyedTurn>>;
    async fn load_turn_by_key(&self, scope: &TenantScope, id: DialogueId, key: &str) -> StoreResult<Option<KeyedTurn>>;
    /// Returns the keys of the dialogue's turns, unsaid turns included; at most `limit`, in no order.
    async fn list_turn_keys(&self, scope: &TenantScope, id: DialogueId, limit: usize) -> StoreResult<Vec<String>>;
    async fn load_trace(&self, scope: &TenantScope, id: DialogueId, number: u32) -> StoreResult<Option<TurnTrace>>;
    /// Returns the scenarios that the traces of the standing turns `from..=to` name, in the order of the turns.
    async fn load_traced_scenarios(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        from: u32,
        to: u32,
    ) -> StoreResult<Vec<ScenarioTrace>>;
    /// Returns the player's private terms from the prompts of the standing turns up to `last`. `None`: for some of
    /// these turns, the terms are unknown.
    async fn load_confided(&self, scope: &TenantScope, id: DialogueId, last: u32) -> StoreResult<Option<PrivateTerms>>;
    /// Returns the checkpoint after the last standing turn.
    async fn load_checkpoint(&self, scope: &TenantScope, id: DialogueId) -> StoreResult<Option<Checkpoint>>;
}
