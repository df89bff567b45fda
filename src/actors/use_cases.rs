//! What the actors run: the functions of `dialogue`, behind a trait so that the actors' own tests
//! can hold a turn or a job at any point.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    dialogue::{
        self, Services,
        events::EventError,
        jobs::{JobError, JobReport},
        npc_conversation::{Member, choose_speaker},
        prompt::Preview,
        rewind::{Moved, RewindError, RewindRequest},
        saves::RestoreRequest,
        settings::DialogueSettings,
        turn::{CommittedTurn, Cut, TurnError, TurnFeed, TurnInput},
    },
    ids::NpcId,
    memory::authored::Language,
    ports::{
        StoreError,
        buffer::{BufferStore, BufferedTurn},
        clock::{Clock, IdSource},
        ledger::{Ledger, dialogues::Dialogue, jobs::Job, saves::RestoreOutcome, usage::UsageDelta},
        llm::LlmError,
    },
    tenancy::TenantScope,
};

/// The stores and sources that the actors themselves touch.
#[derive(Clone)]
pub(super) struct Ports {
    pub settings: Arc<DialogueSettings>,
    pub ledger: Ledger,
    pub buffers: Arc<dyn BufferStore>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<IdSource>,
}

impl From<&Services> for Ports {
    fn from(services: &Services) -> Self {
        Self {
            settings: Arc::clone(&services.settings),
            ledger: services.ledger.clone(),
            buffers: Arc::clone(&services.buffers),
            clock: Arc::clone(&services.clock),
            ids: Arc::clone(&services.ids),
        }
    }
}

/// The use cases the actors run.
#[async_trait]
pub(super) trait UseCases: Send + Sync + 'static {
    async fn run_turn(
        &self,
        input: TurnInput,
        feed: &dyn TurnFeed,
        cut: watch::Receiver<Option<Cut>>,
    ) -> Result<CommittedTurn, TurnError>;
    async fn preview(&self, input: &TurnInput) -> Result<Preview, TurnError>;
    /// Who says the next line of a conversation in which a model is asked for it.
    async fn next_speaker(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
        language: Language,
        cast: &[Member],
        history: &[BufferedTurn],
    ) -> Option<NpcId>;
    async fn run_job(&self, scope: &TenantScope, job: &Job) -> Result<JobReport, JobError>;
    async fn rewind(&self, request: RewindRequest) -> Result<Moved, RewindError>;
    async fn restore(&self, request: RestoreRequest) -> Result<RestoreOutcome, StoreError>;
    async fn relay_outbox(&self) -> Result<usize, StoreError>;
    /// Reconciles again the memories from which something was unsaid; how many there were.
    async fn settle(&self, scope: &TenantScope) -> Result<usize, JobError>;
    fn take_usage(&self) -> Vec<(TenantScope, UsageDelta)>;
}

#[async_trait]
impl UseCases for Services {
    async fn run_turn(
        &self,
        input: TurnInput,
        feed: &dyn TurnFeed,
        cut: watch::Receiver<Option<Cut>>,
    ) -> Result<CommittedTurn, TurnError> {
        dialogue::turn::run(self, input, feed, cut).await
    }
    async fn preview(&self, input: &TurnInput) -> Result<Preview, TurnError> {
        dialogue::prompt::preview(self, input).await
    }
    async fn next_speaker(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
        language: Language,
        cast: &[Member],
        history: &[BufferedTurn],
    ) -> Option<NpcId> {
        choose_speaker(self, scope, dialogue, language, cast, history).await
    }
    async fn run_job(&self, scope: &TenantScope, job: &Job) -> Result<JobReport, JobError> {
        dialogue::jobs::run(self, scope, job).await
    }
    async fn rewind(&self, request: RewindRequest) -> Result<Moved, RewindError> {
        dialogue::rewind::rewind(self, request).await
    }
    async fn restore(&self, request: RestoreRequest) -> Result<RestoreOutcome, StoreError> {
        dialogue::saves::restore(self, request).await
    }
    async fn relay_outbox(&self) -> Result<usize, StoreError> {
        dialogue::jobs::relay_outbox(self).await
    }
    async fn settle(&self, scope: &TenantScope) -> Result<usize, JobError> {
        dialogue::rewind::settle(self, scope).await
    }
    fn take_usage(&self) -> Vec<(TenantScope, UsageDelta)> {
        self.models.take_usage()
    }
}

/// A turn's failure as those who listen learn it: the codes of the HTTP errors, and nothing that an
/// endpoint or a store said.
pub(super) fn event_error(error: &TurnError) -> EventError {
    let (code, message, retry_after) = match error {
        TurnError::Model(LlmError::Timeout) | TurnError::TimedOut => {
            ("model_timeout", "the language model did not answer in time", None)
        }
        TurnError::Model(LlmError::Unavailable(_)) => (
            "model_unavailable",
            "the language model cannot be reached",
            Some(Duration::from_secs(1)),
        ),
        TurnError::Model(LlmError::RateLimited { retry_after }) => {
            ("model_unavailable", "the language model limits requests", *retry_after)
        }
        TurnError::Model(_) => ("model_failed", "the language model failed", None),
        TurnError::Store(StoreError::Unavailable(_)) => (
            "store_unavailable",
            "a store cannot be reached; the turn was not kept",
            Some(Duration::from_secs(1)),
        ),
        TurnError::Store(_) | TurnError::Template(_) => ("internal", "the server failed; the turn was not kept", None),
        TurnError::Fenced => ("wrong_node", "this dialogue moved; the turn was not kept", None),
        TurnError::KeyTaken => ("key_taken", "the key belongs to another turn", None),
        TurnError::Unsaid => ("turn_unsaid", "the dialogue was taken back to an earlier turn", None),
        TurnError::CutBeforeReply => ("turn_cut", "the turn was cut before the reply began", None),
        TurnError::PromptTooLarge { .. } => (
            "prompt_too_large",
            "the persona and rules alone exceed the prompt budget",
            None,
        ),
    };
    EventError {
        code,
        message: message.to_owned(),
        retry_after_ms: retry_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
    }
}
