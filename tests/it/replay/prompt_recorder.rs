//! A recorded turn includes the contents of its prompt, like the given reply. An NPC that only repeats its prompt says
//! nothing new.
//!
//! A replayed turn is committed with the facts of the recorded prompt, as far as they stand.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use colloquy::{
    ids::{DialogueId, NodeId, NpcId, PlayerId, TurnId, WorldId},
    memory::{
        locks::DisclosureLocks,
        private_terms::PrivateTerms,
        summary::Meeting,
        trace::{CandidateFate, CandidateTrace, LockedWords, ScenarioTrace, TurnTrace},
        turn::{Checkpoint, Turn},
    },
    ports::{
        Page, PageRequest, StoreResult,
        ledger::dialogues::{
            CommitOutcome, Dialogue, DialogueFilter, DialogueStore, KeyedTurn, OverheardConversation,
            OwnerWriteOutcome, OwnershipClaim, TurnCommit,
        },
    },
    tenancy::TenantScope,
};
use parking_lot::Mutex;

/// The contents of the next turn's prompt; `None` leaves the prompt unchanged.
pub type NextPrompt = Arc<Mutex<Option<PromptContents>>>;

/// A prompt's contents from memory.
pub struct PromptContents {
    pub facts: Vec<CandidateTrace>,
    pub scenarios: Vec<ScenarioTrace>,
    /// The locks of the dialogue before the turn.
    pub locks: DisclosureLocks,
    /// The further locked words of the prompt.
    pub locked: Vec<LockedWords>,
    pub told_locks: Option<DisclosureLocks>,
    /// The terms of the prompt that were private to its player.
    pub confided: Option<PrivateTerms>,
}

pub struct PromptRecordingStore {
    pub inner: Arc<dyn DialogueStore>,
    pub next: NextPrompt,
}

#[async_trait]
impl DialogueStore for PromptRecordingStore {
    async fn commit_turn(&self, scope: &TenantScope, commit: &TurnCommit) -> StoreResult<CommitOutcome> {
        let recorded = self.next.lock().take();
        match recorded {
            Some(had) => {
                let mut commit = commit.clone();
                commit.trace.candidates = had.facts;
                // A told scenario counts as told, even if its unlocking event no longer stands.
                let (number, at) = (commit.turn.number, commit.turn.committed_at);
                let before = self.inner.load_checkpoint(scope, commit.turn.dialogue).await?;
                let mut before = before.unwrap_or_default();
                commit.trace.told_in = before.turns_told_in();
                let told = had.scenarios.iter().filter(|traced| traced.fate == CandidateFate::Used);
                let told = told.map(|traced| traced.scenario.clone());
                before.record_commit(number, at, &commit.turn.npc, told);
                commit.checkpoint.recently_unlocked = before.recently_unlocked;
                commit.trace.scenarios = had.scenarios;
                commit.checkpoint.locks = Some(had.locks.clone());
                commit.trace.locks = had.locks;
                commit.trace.locked = had.locked;
                commit.checkpoint.told_locks.clone_from(&had.told_locks);
                commit.trace.told_locks = had.told_locks;
                commit.checkpoint.confided = had.confided.clone();
                commit.trace.confided = had.confided;
                self.inner.commit_turn(scope, &commit).await
            }
            None => self.inner.commit_turn(scope, commit).await,
        }
    }

    async fn create_dialogue(&self, scope: &TenantScope, dialogue: &Dialogue) -> StoreResult<bool> {
        self.inner.create_dialogue(scope, dialogue).await
    }
    async fn load_dialogue(&self, scope: &TenantScope, id: DialogueId) -> StoreResult<Option<Dialogue>> {
        self.inner.load_dialogue(scope, id).await
    }
    async fn list_dialogues(
        &self,
        scope: &TenantScope,
        filter: &DialogueFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<Dialogue>> {
        self.inner.list_dialogues(scope, filter, page).await
    }
    async fn find_last_overheard(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: Option<&PlayerId>,
    ) -> StoreResult<Option<OverheardConversation>> {
        self.inner.find_last_overheard(scope, world, npc, player).await
    }
    async fn find_last_meeting(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: &PlayerId,
        apart_from: DialogueId,
        unlocked: bool,
    ) -> StoreResult<Option<Meeting>> {
        self.inner
            .find_last_meeting(scope, world, npc, player, apart_from, unlocked)
            .await
    }
    async fn set_resume_token(&self, scope: &TenantScope, id: DialogueId, hash: &[u8]) -> StoreResult<bool> {
        self.inner.set_resume_token(scope, id, hash).await
    }
    async fn close_dialogue(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        at: DateTime<Utc>,
    ) -> StoreResult<OwnerWriteOutcome> {
        self.inner.close_dialogue(scope, id, epoch, at).await
    }
    async fn set_paused(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        paused: bool,
    ) -> StoreResult<OwnerWriteOutcome> {
        self.inner.set_paused(scope, id, epoch, paused).await
    }
    async fn claim_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> StoreResult<OwnershipClaim> {
        self.inner.claim_ownership(scope, id, node, now, until).await
    }
    async fn renew_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        until: DateTime<Utc>,
    ) -> StoreResult<bool> {
        self.inner.renew_ownership(scope, id, epoch, until).await
    }
    async fn release_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        next_seq: u64,
    ) -> StoreResult<()> {
        self.inner.release_ownership(scope, id, epoch, next_seq).await
    }
    async fn release_all_ownership(&self, node: NodeId) -> StoreResult<()> {
        self.inner.release_all_ownership(node).await
    }
    async fn load_turns(&self, scope: &TenantScope, id: DialogueId, from: u32, to: u32) -> StoreResult<Vec<Turn>> {
        self.inner.load_turns(scope, id, from, to).await
    }
    async fn load_turn(&self, scope: &TenantScope, id: TurnId) -> StoreResult<Option<KeyedTurn>> {
        self.inner.load_turn(scope, id).await
    }
    async fn load_turn_by_key(&self, scope: &TenantScope, id: DialogueId, key: &str) -> StoreResult<Option<KeyedTurn>> {
        self.inner.load_turn_by_key(scope, id, key).await
    }
    async fn list_turn_keys(&self, scope: &TenantScope, id: DialogueId, most: usize) -> StoreResult<Vec<String>> {
        self.inner.list_turn_keys(scope, id, most).await
    }
    async fn load_trace(&self, scope: &TenantScope, id: DialogueId, number: u32) -> StoreResult<Option<TurnTrace>> {
        self.inner.load_trace(scope, id, number).await
    }
    async fn load_confided(&self, scope: &TenantScope, id: DialogueId, last: u32) -> StoreResult<Option<PrivateTerms>> {
        self.inner.load_confided(scope, id, last).await
    }
    async fn load_checkpoint(&self, scope: &TenantScope, id: DialogueId) -> StoreResult<Option<Checkpoint>> {
        self.inner.load_checkpoint(scope, id).await
    }
}
