//! A recorded turn includes the contents of its prompt, like the given reply. An NPC that only repeats its prompt says
//! nothing new.
//!
//! A replayed turn is committed with the facts of the recorded prompt, as far as they stand. A turn of the adventure also
//! has its recorded changes of the state and its actions: what a reply may change depends on the state of that moment.

use std::sync::Arc;

use async_trait::async_trait;
use colloquy::{
    ids::WorldId,
    memory::{
        disclosure::{locks::DisclosureLocks, private_terms::PrivateTerms, secrecy::Secrecy},
        fact::Cause,
        state::StateChange,
        trace::{CandidateFate, CandidateTrace, LockedWords, ScenarioTrace},
    },
    ports::{
        StoreResult,
        clock::IdSource,
        ledger::{
            actions::NewAction,
            dialogues::{CommitOutcome, DialogueStore, TurnCommit, TurnStore},
            jobs::JobKind,
            state::NewStateChange,
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
    /// Where the player was, with all that was reported until then.
    pub place: Option<String>,
    /// `None`: the replayed reply has its own.
    pub effects: Option<TurnEffects>,
}

/// What a turn changed, also by the extraction of a cut state block.
#[derive(Debug, Clone)]
pub struct TurnEffects {
    pub world: WorldId,
    pub changes: Vec<StateChange>,
    pub actions: Vec<NewAction>,
}

impl TurnEffects {
    /// Puts the effects in the place of those of the commit.
    fn replace_in(self, commit: &mut TurnCommit, ids: &IdSource) {
        let turn = &commit.turn;
        let change = |change| NewStateChange {
            id: ids.next_id(),
            world: self.world.clone(),
            dialogue: Some(turn.dialogue),
            change,
            cause: Cause::Turn(turn.id),
            changed_at: turn.committed_at,
        };
        commit.state = self.changes.into_iter().map(change).collect();
        let action = |action| NewAction {
            id: ids.next_id(),
            dialogue: turn.dialogue,
            turn: turn.id,
            ..action
        };
        commit.actions = self.actions.into_iter().map(action).collect();
        commit.jobs.retain(|job| job.kind != JobKind::ExtractState);
    }
}

pub struct PromptRecordingStore {
    pub dialogues: Arc<dyn DialogueStore>,
    pub inner: Arc<dyn TurnStore>,
    pub ids: Arc<IdSource>,
    pub next: NextPrompt,
}

#[async_trait]
impl TurnStore for PromptRecordingStore {
    async fn commit_turn(&self, scope: &TenantScope, commit: &TurnCommit) -> StoreResult<CommitOutcome> {
        let recorded = self.next.lock().take();
        match recorded {
            Some(had) => {
                let mut commit = commit.clone();
                commit.trace.candidates = had.facts;
                // A told scenario counts as told, even if its unlocking event no longer stands.
                let (number, at) = (commit.turn.number, commit.turn.committed_at);
                let before = self.dialogues.load_checkpoint(scope, commit.turn.dialogue).await?;
                let mut before = before.unwrap_or_default();
                commit.trace.told_in = before.turns_told_in();
                // A tell does not count as told.
                let is_told =
                    |traced: &&ScenarioTrace| traced.fate == CandidateFate::Used && traced.secrecy == Secrecy::Open;
                let told = had.scenarios.iter().filter(is_told);
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
                commit.trace.place = had.place;
                if let Some(effects) = had.effects {
                    effects.replace_in(&mut commit, &self.ids);
                }
                self.inner.commit_turn(scope, &commit).await
            }
            None => self.inner.commit_turn(scope, commit).await,
        }
    }
}
