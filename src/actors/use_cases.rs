//! The functions of `dialogue` that the actors run. A trait lets the actors' own tests hold a turn or a job at every
//! point.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use colloquy_core::{ids::NpcId, scope::TenantScope};
use colloquy_dialogue as dialogue;
use colloquy_dialogue::{
    Services,
    jobs::{JobError, JobReport},
    knowledge::scenarios::{ScenarioUnlock, UnlockTrigger},
    models::{Budgets, run_admitted},
    npc_conversation::{ListeningNpc, SceneMember, choose_speaker},
    preview::{IntentSource, Preview},
    requester::Requesters,
    rewind::{OwnedDialogue, RewindError, RewindResponse, RewindTarget},
    saves::RestoreRequest,
    settings::DialogueSettings,
    turn::{CommittedTurn, Cut, TurnError, TurnFeed, TurnInput},
};
use colloquy_memory::{authored::World, turn::Intent};
use colloquy_ports::{
    StoreError,
    buffer::{BufferStore, BufferedTurn},
    clock::{Clock, IdSource},
    disabled_tenants::DisabledTenants,
    ledger::{
        Ledger,
        dialogues::Dialogue,
        jobs::Job,
        priority::{in_background, with_deferred_priority, with_urgent_priority},
        saves::RestoreOutcome,
        usage::UsageDelta,
    },
    llm::LlmError,
};

/// The stores and sources that the actors use directly.
#[derive(Clone)]
pub(super) struct Ports {
    pub settings: Arc<DialogueSettings>,
    pub ledger: Ledger,
    pub buffers: Arc<dyn BufferStore>,
    pub disabled: DisabledTenants,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<IdSource>,
    pub budgets: Arc<Budgets>,
}

impl From<&Services> for Ports {
    fn from(services: &Services) -> Self {
        Self {
            settings: Arc::clone(&services.settings),
            ledger: services.ledger.clone(),
            buffers: Arc::clone(&services.buffers),
            disabled: services.disabled.clone(),
            clock: Arc::clone(&services.clock),
            ids: Arc::clone(&services.ids),
            budgets: Arc::clone(services.models.budgets()),
        }
    }
}

/// The use cases that the actors run.
#[async_trait]
pub(super) trait UseCases: Send + Sync + 'static {
    async fn run_turn(
        &self,
        input: TurnInput,
        feed: &dyn TurnFeed,
        cut_watch: watch::Receiver<Option<Cut>>,
    ) -> Result<CommittedTurn, TurnError>;
    async fn preview_prompt(&self, input: &TurnInput, intent: Option<Intent>) -> Result<Preview, TurnError>;
    /// Returns the next speaker of a conversation. `None`: fewer than two NPCs of the cast are alive.
    async fn next_speaker(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
        world: &World,
        members: &[SceneMember],
        history: &[BufferedTurn],
    ) -> Option<NpcId>;
    /// Returns the cast without those who are dead and do not answer in their world.
    async fn living_members(
        &self,
        scope: &TenantScope,
        world: &World,
        members: &[SceneMember],
    ) -> Result<Vec<SceneMember>, StoreError>;
    /// Returns the NPC whom a line addresses by a nickname or a title.
    async fn find_nicknamed_npc(
        &self,
        scope: &TenantScope,
        world: &World,
        listening: &[ListeningNpc],
        line: &str,
    ) -> Result<Option<NpcId>, StoreError>;
    async fn run_job(&self, scope: &TenantScope, job: &Job) -> Result<JobReport, JobError>;
    async fn rewind_dialogue(
        &self,
        dialogue: OwnedDialogue,
        target: RewindTarget,
        requesters: Requesters,
    ) -> Result<RewindResponse, RewindError>;
    async fn restore_world(&self, request: RestoreRequest) -> Result<RestoreOutcome, StoreError>;
    async fn relay_outbox(&self) -> Result<usize, StoreError>;
    /// Embeds what was stored while the embedder was away; returns the tenants whose memories can now be compared.
    async fn embed_backlog(&self) -> Vec<TenantScope>;
    /// Reconciles the memories from which a rewind unsaid facts; returns how many memories were dirty.
    async fn reconcile_dirty(&self, scope: &TenantScope) -> Result<usize, JobError>;
    /// Queues the consolidation of old facts in worlds where it is due; returns the number of queued jobs.
    async fn queue_due_consolidations(&self, scope: &TenantScope) -> Result<u32, StoreError>;
    async fn find_newly_unlocked(&self, unlocking: &UnlockTrigger) -> Vec<ScenarioUnlock>;
    fn take_usage(&self) -> Vec<(TenantScope, UsageDelta)>;
}

#[async_trait]
impl UseCases for Services {
    async fn run_turn(
        &self,
        input: TurnInput,
        feed: &dyn TurnFeed,
        cut_watch: watch::Receiver<Option<Cut>>,
    ) -> Result<CommittedTurn, TurnError> {
        // A listener of NPCs reads a line for seconds, so a start that is some milliseconds later is harmless.
        let patient = input.player.is_none();
        let turn = Box::pin(dialogue::turn::run_turn(self, input, feed, cut_watch));
        if patient {
            with_deferred_priority(turn).await
        } else {
            turn.await
        }
    }
    async fn preview_prompt(&self, input: &TurnInput, intent: Option<Intent>) -> Result<Preview, TurnError> {
        let source = intent.map_or_else(|| IntentSource::for_turn(self, input), IntentSource::Requested);
        dialogue::preview::preview_prompt(self, input, source).await
    }
    async fn next_speaker(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
        world: &World,
        members: &[SceneMember],
        history: &[BufferedTurn],
    ) -> Option<NpcId> {
        let services = self.tuned_by(&world.settings);
        choose_speaker(&services, scope, dialogue, world, members, history).await
    }
    async fn living_members(
        &self,
        scope: &TenantScope,
        world: &World,
        members: &[SceneMember],
    ) -> Result<Vec<SceneMember>, StoreError> {
        dialogue::world_events::living_members(self, scope, world, members).await
    }
    async fn find_nicknamed_npc(
        &self,
        scope: &TenantScope,
        world: &World,
        listening: &[ListeningNpc],
        line: &str,
    ) -> Result<Option<NpcId>, StoreError> {
        dialogue::npc_conversation::find_nicknamed_npc(self, scope, world, listening, line).await
    }
    async fn run_job(&self, scope: &TenantScope, job: &Job) -> Result<JobReport, JobError> {
        self.models
            .budgets()
            .check_daily_budget(scope.tenant())
            .map_err(LlmError::from)?;
        in_background(Box::pin(run_admitted(dialogue::jobs::run_job(self, scope, job)))).await
    }
    async fn rewind_dialogue(
        &self,
        dialogue: OwnedDialogue,
        target: RewindTarget,
        requesters: Requesters,
    ) -> Result<RewindResponse, RewindError> {
        let rewinding = dialogue::rewind::rewind_dialogue(self, dialogue, target, requesters);
        with_urgent_priority(rewinding).await
    }
    async fn restore_world(&self, request: RestoreRequest) -> Result<RestoreOutcome, StoreError> {
        dialogue::saves::restore_save(self, request).await
    }
    async fn relay_outbox(&self) -> Result<usize, StoreError> {
        dialogue::jobs::relay_outbox(self).await
    }
    async fn embed_backlog(&self) -> Vec<TenantScope> {
        in_background(dialogue::jobs::embed_backlog(self)).await
    }
    async fn reconcile_dirty(&self, scope: &TenantScope) -> Result<usize, JobError> {
        in_background(dialogue::rewind::reconcile_after_rewinds(self, scope)).await
    }
    async fn queue_due_consolidations(&self, scope: &TenantScope) -> Result<u32, StoreError> {
        in_background(dialogue::remember::queue_due_consolidations(self, scope)).await
    }
    async fn find_newly_unlocked(&self, unlocking: &UnlockTrigger) -> Vec<ScenarioUnlock> {
        in_background(dialogue::knowledge::scenarios::find_newly_unlocked(self, unlocking)).await
    }
    fn take_usage(&self) -> Vec<(TenantScope, UsageDelta)> {
        self.models.take_usage()
    }
}
