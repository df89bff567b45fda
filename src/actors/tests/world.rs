//! A node's actors over a SQLite ledger in a temporary folder. `TestWorld::shut_down` fails the test if an actor is
//! still in memory.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::fake::FakeUseCases;
use crate::{
    AcceptedLine, ActorSettings, DialogueError, HeardLength, InterruptCommand, InterruptOutcome, Listener,
    ListenerGone, NewSession, OnBusy, PlayerLine, PublishedEvent, VisibleEvent,
    handle::Dialogues,
    use_cases::{Ports, UseCases},
};
use colloquy_core::{
    ids::{DialogueId, NodeId, TenantId},
    scope::{Principal, Role, TenantScope},
};
use colloquy_dialogue::{
    disclosure::{EventViewer, OptionalEvents},
    events::EventBody,
    models::{BudgetSettings, Budgets},
    settings::{
        CurationSettings, DialogueSettings, FixedBudgets, JobSettings, PassLimits, PromptSettings, RecallSettings,
        RetentionSettings, SaveSettings, ScenarioSettings, SummarySettings, TurnSettings,
    },
    turn::TurnError,
};
use colloquy_memory::{
    authored::{IntentClassification, Language, Npc, Persona, TierSettings, World as AuthoredWorld, WorldSettings},
    scoring::RecallWeights,
    turn::Turn,
};
use colloquy_ports::{
    clock::{Clock, IdSource, SystemClock},
    disabled_tenants::DisabledTenants,
    ledger::{audit::Edit, dialogues::Playback, tenants::Tenant},
};
use colloquy_stores::{
    in_process::buffers::{BufferLimits, InProcessBuffers},
    sqlite::{self, SqliteLedger, SqliteOptions},
};

/// How long a condition may take to become true.
pub const PATIENCE: Duration = Duration::from_mins(1);

pub struct TestWorld {
    pub sessions: Dialogues,
    pub fake: Arc<FakeUseCases>,
    pub scope: TenantScope,
    pub ports: Ports,
    pub node: NodeId,
    pub settings: ActorSettings,
    store: SqliteLedger,
    folder: Arc<tempfile::TempDir>,
}

pub fn test_actor_settings() -> ActorSettings {
    ActorSettings {
        arbiters: 2,
        chores_ms: 20,
        ..ActorSettings::default()
    }
}

fn unpaced_conversations() -> colloquy_dialogue::settings::ConversationSettings {
    colloquy_dialogue::settings::ConversationSettings {
        max_turns: 20,
        pause_ms: 0,
        reading_ms_per_char: 0,
    }
}

pub fn test_dialogue_settings() -> DialogueSettings {
    DialogueSettings {
        turn: TurnSettings {
            max_line_chars: 100,
            max_queued: 4,
            wait_for_memory_ms: 5_000,
            longest_wait_for_memory_ms: 0,
            intent_classification: IntentClassification::default(),
            replies_without_block: 0,
            timeout_ms: 60_000,
            seal_s: 30,
            cut_hold_s: 0,
            playback_timeout_s: 60,
        },
        prompt: PromptSettings {
            total_tokens: 8_000,
            pinned_tokens: 400,
            summary_tokens: 1_200,
            history_tokens: 6_000,
            overheard_tokens: 600,
            scene_note_tokens: 400,
            scenario_tokens: 1_000,
            episode_tokens: 300,
            insight_tokens: 200,
            lore_tokens: 800,
            memory_tokens: 1_200,
            fixed: FixedBudgets {
                acquaintance_tokens: 150,
                ..FixedBudgets::default()
            },
            state_block: true,
            ask_for_state: true,
            ask_if_nothing_new: true,
            templates_dir: None,
        },
        recall: RecallSettings {
            preset: None,
            diversity: 0.0,
            weights: RecallWeights::FOUR_FACTOR,
            recency_lambda_per_day: 0.002,
            top_k: 8,
            min_score: 0.05,
            speculative: true,
        },
        scenarios: ScenarioSettings::default(),
        curation: CurationSettings {
            every_turns: 0,
            min_turns: 4,
            limits: PassLimits::default(),
            consolidate_every_d: 0,
            consolidate_after_d: 7,
            player_passes_per_hour: 12,
            calls_per_day: 0,
            tokens_per_day: 0,
        },
        summaries: SummarySettings {
            first_after_turns: 10,
            then_every_turns: 20,
            then_every_s: 3_600,
            after_silence_s: 3_600,
            min_turns: 4,
            force_turns: 30,
            force_tokens: 6_000,
            keep: 5,
            buffer_min_turns: 8,
        },
        saves: SaveSettings { max_per_world: 100 },
        retention: RetentionSettings {
            done_jobs_d: 90,
            traces_d: 90,
            verdicts_d: 90,
            npc_usage_d: 400,
            audit_d: 400,
            unsaid_d: 30,
            unchanged_d: 1,
            webhooks_d: 30,
        },
        jobs: JobSettings {
            max_attempts: 3,
            max_useless: 3,
            give_up_after_s: 86_400,
            lease_s: 120,
            retry_base_s: 0,
            concurrency: 4,
            poll_s: 0,
            judge_tokens: 800,
        },
        conversation: unpaced_conversations(),
        models: colloquy_memory::tiers::TaskModels::default(),
    }
}

impl TestWorld {
    pub async fn new() -> Self {
        Self::with_settings(test_actor_settings(), test_dialogue_settings()).await
    }

    pub async fn with_settings(settings: ActorSettings, dialogue: DialogueSettings) -> Self {
        Self::with_clock(Arc::new(SystemClock), settings, dialogue).await
    }

    /// Creates a world with the given clock.
    pub async fn with_clock(clock: Arc<dyn Clock>, settings: ActorSettings, dialogue: DialogueSettings) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let path = folder.path().join("ledger.db");
        let store = sqlite::open_ledger(path.to_str().unwrap(), SqliteOptions::default(), Arc::clone(&clock))
            .await
            .unwrap();
        let ids = Arc::new(IdSource::from_thread_rng(Arc::clone(&clock)));
        let ports = Ports {
            settings: Arc::new(dialogue),
            ledger: store.ledger(),
            buffers: Arc::new(InProcessBuffers::new(BufferLimits::default())),
            disabled: DisabledTenants::default(),
            budgets: Arc::new(Budgets::new(
                BudgetSettings::default(),
                Arc::default(),
                Arc::clone(&clock),
            )),
            clock,
            ids,
        };
        let scope = write_authored(&ports, "studio").await;
        let node = ports.ids.next_id();
        Self::start_world(ports, scope, node, settings, store, folder)
    }

    fn start_world(
        ports: Ports,
        scope: TenantScope,
        node: NodeId,
        settings: ActorSettings,
        store: SqliteLedger,
        folder: Arc<tempfile::TempDir>,
    ) -> Self {
        let fake = Arc::new(FakeUseCases {
            ports: ports.clone(),
            go: Semaphore::new(0),
            job_go: Semaphore::new(0),
            hold_jobs: Mutex::new(false),
            with_jobs: Mutex::new(false),
            leased_for: Mutex::new(Duration::from_mins(2)),
            fail_turns: Mutex::new(false),
            over_budget: Mutex::default(),
            spoken: Mutex::default(),
            cut: Mutex::default(),
            memory_waits: Mutex::default(),
            charged_players: Mutex::default(),
            jobs: Mutex::default(),
            failures: Mutex::default(),
            panicking_jobs: AtomicUsize::new(0),
            running_jobs: AtomicUsize::new(0),
            most_running_jobs: AtomicUsize::new(0),
            usage: Mutex::default(),
            rewinds: Mutex::default(),
            hold_rewinds: Mutex::new(false),
            hold_rewind_answers: Mutex::new(false),
            lose_rewind_answers: Mutex::new(false),
            durable_rewinds: AtomicUsize::new(0),
            rewind_go: Semaphore::new(0),
            settled: AtomicUsize::new(0),
            next_speakers: Mutex::default(),
            hold_speakers: Mutex::new(false),
            speakers_asked: AtomicUsize::new(0),
        });
        let use_cases: Arc<dyn UseCases> = Arc::<FakeUseCases>::clone(&fake);
        let sessions = Dialogues::start_with_ports(ports.clone(), use_cases, node, settings.clone(), None);
        Self {
            sessions,
            fake,
            scope,
            ports,
            node,
            settings,
            store,
            folder,
        }
    }

    /// Starts another process on the same ledger, as after a kill: the old process gets no stop.
    pub fn restart_process(&self) -> Self {
        Self::start_world(
            self.ports.clone(),
            self.scope.clone(),
            self.node,
            self.settings.clone(),
            self.store.clone(),
            Arc::clone(&self.folder),
        )
    }

    pub async fn new_session(&self) -> DialogueId {
        self.new_session_with_token().await.0
    }

    /// Creates a session that learns from a reply only after it was heard.
    pub async fn new_acknowledging_session(&self) -> DialogueId {
        self.create_with_playback(Playback::Ack).await.0
    }

    pub async fn new_session_with_token(&self) -> (DialogueId, String) {
        self.create_with_playback(Playback::Immediate).await
    }

    async fn create_with_playback(&self, playback: Playback) -> (DialogueId, String) {
        let new = NewSession {
            world: "vale".parse().unwrap(),
            npcs: vec!["mira".parse().unwrap()],
            player: "p1".parse().unwrap(),
            witnesses: Vec::new(),
            factions: Vec::new(),
            cause: None,
            chat_key: None,
            playback,
            settings: None,
        };
        let created = self.sessions.create_session(&self.scope, new).await.unwrap();
        (created.dialogue.id, created.resume_token)
    }

    pub async fn say_line(&self, id: DialogueId, text: &str) -> Result<AcceptedLine, DialogueError> {
        self.say_line_with(id, text, None, OnBusy::Queue).await
    }

    pub async fn say_line_with(
        &self,
        id: DialogueId,
        text: &str,
        key: Option<&str>,
        on_busy: OnBusy,
    ) -> Result<AcceptedLine, DialogueError> {
        let line = PlayerLine {
            text: text.to_owned(),
            to: None,
            key: key.map(str::to_owned),
            on_busy,
            re: Some(text.into()),
            who: Some(self.test_principal()),
            chat: None,
        };
        self.sessions.say_line(&self.scope, id, line).await
    }

    /// Says a line and waits for its turn.
    pub async fn say_and_wait(&self, id: DialogueId, text: &str) -> Arc<Turn> {
        wait_for_turn(self.say_line(id, text).await).await.unwrap()
    }

    /// Rewinds a dialogue to a turn.
    pub async fn rewind_to(&self, id: DialogueId, turn: u32) -> Result<InterruptOutcome, DialogueError> {
        self.sessions
            .rewind_dialogue(&self.scope, id, self.interrupt_command(Some(turn), None))
            .await
    }

    pub async fn interrupt(
        &self,
        id: DialogueId,
        turn: Option<u32>,
        heard: Option<HeardLength>,
    ) -> Result<InterruptOutcome, DialogueError> {
        let wish = self.interrupt_command(turn, heard);
        self.sessions.interrupt_dialogue(&self.scope, id, wish).await
    }

    pub fn interrupt_command(&self, turn: Option<u32>, heard: Option<HeardLength>) -> InterruptCommand {
        InterruptCommand {
            turn,
            heard_length: heard,
            key: None,
            if_head: None,
            who: self.test_principal(),
        }
    }

    pub fn test_principal(&self) -> Principal {
        Principal {
            subject: "test".into(),
            tenant: self.scope.tenant().clone(),
            role: Role::Backend,
            player: None,
            world: None,
            issued: colloquy_core::scope::TokenIdentity::default(),
            expires_at: self.ports.clock.now(),
        }
    }

    pub async fn attach_recorder(&self, id: DialogueId) -> Arc<RecordingListener> {
        let ear = RecordingListener::new();
        let listener: Arc<dyn Listener> = Arc::<RecordingListener>::clone(&ear);
        self.sessions
            .attach_listener(&self.scope, id, listener, None)
            .await
            .unwrap();
        ear
    }

    /// Waits until the given number of turns have begun.
    pub async fn wait_for_begun(&self, turns: usize) {
        wait_until("turns begin", || self.fake.spoken.lock().len() >= turns).await;
    }

    /// Stops the world; fails if an actor stays.
    pub async fn shut_down(self) {
        self.fake.go.add_permits(1_000);
        self.fake.job_go.add_permits(1_000);
        self.fake.rewind_go.add_permits(1_000);
        self.sessions.drain_node(PATIENCE).await;
        wait_until("no actor is left", || self.sessions.live_count() == 0).await;
        // A mailbox is dropped just after its actor, together with the permits in its messages.
        wait_until("every permit is back", || {
            self.sessions.free_permits() == self.settings.max_in_flight
        })
        .await;
        self.sessions.stop_threads();
    }
}

/// Writes a tenant with a world.
pub async fn write_authored(ports: &Ports, tenant: &str) -> TenantScope {
    let now = ports.clock.now();
    let tenant: TenantId = tenant.parse().unwrap();
    let row = Tenant {
        id: tenant.clone(),
        name: "Studio".into(),
        enabled: true,
        budget: None,
        created_at: now,
        version: 1,
    };
    ports.ledger.tenants.ensure_tenant(&row).await.unwrap();
    let scope = TenantScope::new(tenant.clone());
    let who = Principal {
        subject: "test".into(),
        tenant,
        role: Role::Admin,
        player: None,
        world: None,
        issued: colloquy_core::scope::TokenIdentity::default(),
        expires_at: now,
    };
    let edit = || Edit::made_by(&who, &ports.ids, now, "test.put", "x");
    let world = AuthoredWorld {
        id: "vale".parse().unwrap(),
        name: "The Vale".into(),
        premise: String::new(),
        language: Language::En,
        rules: Vec::new(),
        settings: WorldSettings::default(),
        lore_version: 0,
        tenant: colloquy_memory::authored::TenantTier::default(),
        version: 1,
        updated_at: now,
    };
    ports
        .ledger
        .authored
        .put_world(&scope, &world, None, &edit())
        .await
        .unwrap();
    for (id, name) in [("mira", "Mira"), ("ergen", "Ergen")] {
        let npc = Npc {
            world: world.id.clone(),
            id: id.parse().unwrap(),
            name: name.into(),
            persona: Persona::default(),
            language: Language::En,
            factions: Vec::new(),
            model: None,
            settings: TierSettings::default(),
            has_scenarios: false,
            has_tells: false,
            version: 1,
            updated_at: now,
        };
        ports
            .ledger
            .authored
            .put_npc(&scope, &npc, None, &edit())
            .await
            .unwrap();
    }
    scope
}

pub async fn wait_for_turn(accepted: Result<AcceptedLine, DialogueError>) -> Result<Arc<Turn>, Arc<TurnError>> {
    match accepted.unwrap() {
        AcceptedLine::Turn { done } => tokio::time::timeout(PATIENCE, done).await.unwrap().unwrap(),
        AcceptedLine::Repeated(turn) => Ok(turn),
    }
}

pub async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("in vain: {what}"));
}

/// A listener that records its events.
pub struct RecordingListener {
    pub heard: Mutex<Vec<VisibleEvent>>,
    pub deaf: Mutex<bool>,
}

impl RecordingListener {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            heard: Mutex::default(),
            deaf: Mutex::new(false),
        })
    }
    /// Returns `type turn/number` of the durable events so far.
    pub fn event_labels(&self) -> Vec<String> {
        let heard = self.heard.lock();
        heard
            .iter()
            .filter(|event| event.seq.is_some())
            .map(|event| event_label(event))
            .collect()
    }
    pub fn heard_seqs(&self) -> Vec<u64> {
        self.heard.lock().iter().filter_map(|event| event.seq).collect()
    }
    pub async fn wait_for_event(&self, what: &str) {
        wait_until(what, || self.event_labels().iter().any(|event| event == what)).await;
    }
}

pub fn event_label(event: &PublishedEvent) -> String {
    match &event.body {
        EventBody::TurnStarted { turn } => format!("started {turn}"),
        EventBody::ReplyDelta { turn, .. } | EventBody::NpcTurnDelta { turn, .. } => format!("delta {turn}"),
        EventBody::ReplyDone(done) | EventBody::NpcTurnDone(done) => format!("{} {}", done.status.as_str(), done.turn),
        EventBody::TurnCommitted { turn, .. } | EventBody::NpcTurnCommitted { turn, .. } => format!("committed {turn}"),
        EventBody::MemoryUpdated { turn, .. } => format!("memory {turn}"),
        EventBody::StateChanged { turn, .. } => format!("state {turn}"),
        EventBody::ScenarioUnlocked { turn, scenario_id, .. } => format!("unlocked {turn} {scenario_id}"),
        EventBody::DialogueRewound(rewound) => format!("rewound {}", rewound.turn),
        EventBody::SessionClosed { reason } => format!("closed {reason}"),
        EventBody::NpcTurnStarted { turn, npc_id } => format!("{npc_id} started {turn}"),
        EventBody::ConversationPaused { turn, reason } => format!("paused {turn} {reason}"),
        EventBody::ConversationResumed { turn } => format!("resumed {turn}"),
        EventBody::ConversationEnded { turn, reason } => format!("ended {turn} {reason}"),
        EventBody::Error { error, .. } => format!("error {}", error.code),
    }
}

impl Listener for RecordingListener {
    fn viewer(&self) -> EventViewer {
        let all_events = OptionalEvents {
            memory: true,
            state: true,
            scenarios: true,
        };
        EventViewer::of_role(Role::Backend).with_optional(all_events).unwrap()
    }
    fn deliver_event(&self, event: &VisibleEvent) -> Result<(), ListenerGone> {
        if *self.deaf.lock() {
            return Err(ListenerGone);
        }
        self.heard.lock().push(event.clone());
        Ok(())
    }
}
