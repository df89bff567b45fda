//! Actions that NPCs asked the backend for. An action stands or is unsaid with its turn.

use std::collections::BTreeSet;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{audit::Edit, state::NewStateChange};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{ActionId, DialogueId, NpcId, PlayerId, TurnId, WorldId},
    scope::TenantScope,
};

/// Longest `result` or `reason`, in Unicode scalar values.
pub const MAX_ANSWER_CHARS: usize = 200;

/// A new action of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAction {
    pub id: ActionId,
    pub world: WorldId,
    pub dialogue: DialogueId,
    pub turn: TurnId,
    /// The turn's number in the dialogue.
    pub number: u32,
    pub npc: NpcId,
    /// `None` in an NPC conversation.
    pub player: Option<PlayerId>,
    pub name: String,
    pub arguments: Map<String, Value>,
    pub requested_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

/// The sort of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    Done,
    Refused,
}

impl AnswerKind {
    pub const ALL: [Self; 2] = [Self::Done, Self::Refused];

    /// `done` or `refused`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
        }
    }
}

/// The backend's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionAnswer {
    pub kind: AnswerKind,
    /// The result or the reason; empty: none.
    pub text: String,
    pub answered_at: DateTime<Utc>,
}

/// A stored action.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// The action's place in the order of writes; from 1, rising.
    pub seq: i64,
    /// As it was asked for.
    pub request: NewAction,
    pub answer: Option<ActionAnswer>,
    /// False: the turn is unsaid.
    pub stands: bool,
}

/// The state of an action, which follows from its turn, its answer and the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActionStatus {
    /// Waits for an answer.
    Requested,
    Done,
    Refused,
    /// No answer came in time.
    Expired,
    /// The turn that asked was taken back.
    Undone,
}

impl ActionStatus {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::Undone => "undone",
        }
    }
}

impl Action {
    #[must_use]
    pub fn status(&self, now: DateTime<Utc>) -> ActionStatus {
        match &self.answer {
            _ if !self.stands => ActionStatus::Undone,
            Some(answer) if answer.kind == AnswerKind::Done => ActionStatus::Done,
            Some(_) => ActionStatus::Refused,
            None if self.request.expires_at < now => ActionStatus::Expired,
            None => ActionStatus::Requested,
        }
    }
}

/// The filter of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActionFilter {
    pub status: Option<ActionStatus>,
    pub dialogue: Option<DialogueId>,
}

/// Whether an answer was stored.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerOutcome {
    /// The answer is stored now.
    Stored(Action),
    /// The action is not open: it is answered, expired or undone. The store wrote no row.
    NotOpen(Action),
    NotFound,
}

/// Actions of NPCs. A turn's commit writes them, and a rewind takes them back
/// ([`super::dialogues::TurnStore`], [`super::rewinds::RewindStore`]).
#[async_trait]
pub trait ActionStore: Send + Sync {
    /// Returns an action, whether it stands or not.
    async fn load_action(&self, scope: &TenantScope, id: ActionId) -> StoreResult<Option<Action>>;
    /// Returns actions by their ids, whether they stand or not, in the order of `seq`. Unknown ids are left out.
    async fn load_actions(&self, scope: &TenantScope, ids: &[ActionId]) -> StoreResult<Vec<Action>>;
    /// Returns the actions that a turn asked for, whether they stand or not, in the order of `seq`.
    async fn load_actions_of_turn(&self, scope: &TenantScope, turn: TurnId) -> StoreResult<Vec<Action>>;
    /// Lists the actions of a world, oldest first. The cursor is an action's id.
    async fn list_actions(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        filter: ActionFilter,
        page: &PageRequest,
        now: DateTime<Utc>,
    ) -> StoreResult<Page<Action>>;
    /// Returns a world's actions with a `seq` above `after`, whether they stand or not, in the order of `seq`. Later
    /// writes have a higher `seq` than every action in the result.
    async fn load_actions_since(&self, scope: &TenantScope, world: &WorldId, after: i64) -> StoreResult<Vec<Action>>;
    /// Returns the `seq` and the id of each standing action of a world, in the order of `seq`.
    async fn list_standing_actions(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<Vec<(i64, ActionId)>>;
    /// Returns the actions of a world that wait for an answer, in the order of `seq`.
    async fn load_open_actions(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        now: DateTime<Utc>,
    ) -> StoreResult<Vec<Action>>;
    /// Returns the NPC's standing actions of a dialogue without those that were answered after `until`, latest first: at
    /// most 8 settled ones, by their answer or expiry, and then at most 8 that wait.
    async fn load_latest_actions(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        npc: &NpcId,
        until: DateTime<Utc>,
    ) -> StoreResult<Vec<Action>>;
    /// Returns the NPC's actions with this player that wait for an answer in other dialogues than `dialogue`, latest first,
    /// at most 8; `None`: without a player.
    async fn load_actions_waiting_elsewhere(
        &self,
        scope: &TenantScope,
        (world, dialogue): (&WorldId, DialogueId),
        npc: &NpcId,
        player: Option<&PlayerId>,
        now: DateTime<Utc>,
    ) -> StoreResult<Vec<Action>>;
    /// Returns those of `names` of which the NPC has a standing action with this player that was done before `until`;
    /// `None`: without a player. A name is that of a rule, without characters that JSON escapes.
    async fn list_done_action_names(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: Option<&PlayerId>,
        names: &[&str],
        until: DateTime<Utc>,
    ) -> StoreResult<BTreeSet<String>>;
    /// Answers an action if it is open at `answer.at`, with the world's event and the audit row: all or none.
    async fn answer_action(
        &self,
        scope: &TenantScope,
        id: ActionId,
        answer: &ActionAnswer,
        event: &NewStateChange,
        edit: &Edit,
    ) -> StoreResult<AnswerOutcome>;
}
