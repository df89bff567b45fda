//! Turns and memory on the real ledger and index, with a scripted model.

mod acquaintance;
mod block_sentences;
mod canaries;
mod consolidation;
mod curation;
mod cuts;
mod early_replies;
mod episodes;
mod fakes;
mod faults;
mod forgetting;
mod index;
mod indexing_races;
mod insights;
mod learning;
mod locked_lore;
mod locked_past;
mod memory;
mod names;
mod nothing_new;
mod npc_self_facts;
mod outages;
mod overlapping_memories;
mod places;
mod player_inventions;
mod promises;
mod recall;
mod reconciliation;
mod rejecting_index;
mod retention;
mod silence;
mod speculative_recall;
mod story;
mod turns;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use colloquy::{
    adapters::{
        in_process::{
            buffers::{BufferLimits, InProcessBuffers},
            fact_index::{FactIndexOptions, InProcessFactIndex},
        },
        postgres::{self, PostgresOptions},
        qdrant::{QdrantFactIndex, QdrantOptions},
        sqlite::{self, SqliteOptions},
    },
    config::Config,
    dialogue::{
        Services,
        events::ReplyDone,
        explain::{self, Explained, TurnExplanation},
        heard::HeardLength,
        jobs::{self, JobReport},
        models::{ModelLimits, ModelRouter, RouteTable, with_usage_tally},
        prompt::Templates,
        recall::MemoryCache,
        requester::Requester,
        rewind::{self, DialogueTiers, OwnedDialogue, RewindError, RewindResponse, RewindTarget},
        settings::DialogueSettings,
        turn::{self, CommittedTurn, Cut, TurnError, TurnFeed, TurnInput},
    },
    ids::{DialogueKind, NodeId, NpcId, PlayerId},
    memory::{
        authored::{Language, Npc, Persona, TierSettings, World, WorldSettings},
        disclosure::audience::Viewpoint,
        fact::Fact,
        trace::TurnTrace,
        turn::TurnStatus,
    },
    ports::{
        PageRequest,
        clock::{Clock as _, IdSource, ManualClock},
        disabled_tenants::DisabledTenants,
        embedder::Embedder as _,
        ledger::{
            Ledger,
            audit::Edit,
            dialogues::{Dialogue, DialogueOptions, DialogueStatus, OpenDialogue, OwnershipClaim},
            facts::FactFilter,
            jobs::Job,
        },
        llm::Llm,
        vectors::{FactIndex, PointSource},
    },
    tenancy::{Principal, Role, TenantScope},
};
use parking_lot::Mutex;
use tokio::sync::watch;

use self::fakes::{QueuedAnswer, QueuedLlm, WordEmbedder};
use crate::support::{PATIENCE, PostgresDatabase};

/// A world with one NPC, and all services below the actors.
pub struct Stage {
    pub services: Services,
    pub llm: Arc<QueuedLlm>,
    pub embedder: Arc<WordEmbedder>,
    pub clock: Arc<ManualClock>,
    pub scope: TenantScope,
    pub world: World,
    pub npc: Npc,
    node: NodeId,
    folder: tempfile::TempDir,
    // Dropped last, because fields drop in order.
    _database: Option<PostgresDatabase>,
}

impl Stage {
    pub async fn prepare() -> Self {
        Self::prepare_with(|_| {}, WorldSettings::default()).await
    }

    pub async fn prepare_with(change: impl FnOnce(&mut DialogueSettings), world_settings: WorldSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::starting_at("2026-03-01T09:00:00Z".parse().unwrap());
        let path = folder.path().join("colloquy.db");
        let store = sqlite::open_ledger(path.to_str().unwrap(), SqliteOptions::default(), clock.clone())
            .await
            .unwrap();
        let place = (folder, None);
        Self::prepare_in(
            store.ledger(),
            store.point_source(),
            clock,
            change,
            world_settings,
            place,
        )
        .await
    }

    /// Prepares a stage in a new Postgres database.
    pub async fn prepare_on_postgres(
        change: impl FnOnce(&mut DialogueSettings),
        world_settings: WorldSettings,
    ) -> Self {
        let clock = ManualClock::starting_at("2026-03-01T09:00:00Z".parse().unwrap());
        let database = PostgresDatabase::migrated().await;
        let options = PostgresOptions {
            connections: 4,
            ..PostgresOptions::default()
        };
        let store = postgres::open_ledger(&database.url, options, clock.clone())
            .await
            .unwrap();
        let place = (tempfile::tempdir().unwrap(), Some(database));
        Self::prepare_in(
            store.ledger(),
            store.point_source(),
            clock,
            change,
            world_settings,
            place,
        )
        .await
    }

    async fn prepare_in(
        ledger: Ledger,
        points: Arc<dyn PointSource>,
        clock: Arc<ManualClock>,
        change: impl FnOnce(&mut DialogueSettings),
        world_settings: WorldSettings,
        (folder, database): (tempfile::TempDir, Option<PostgresDatabase>),
    ) -> Self {
        let llm = Arc::new(QueuedLlm::default());
        let as_llm: Arc<dyn Llm> = llm.clone();
        let limits = ModelLimits {
            retries: 0,
            ..ModelLimits::default()
        };
        let mut settings = Config::embedded_defaults().dialogue_settings();
        // The queued answers of these tests are for the jobs that a turn has on its own.
        settings.turn.replies_without_block = 0;
        change(&mut settings);
        let embedder = Arc::new(WordEmbedder::new());
        let ids = Arc::new(IdSource::from_thread_rng(clock.clone()));
        let services = Services {
            settings: Arc::new(settings),
            ledger,
            buffers: Arc::new(InProcessBuffers::new(BufferLimits::default())),
            index: Arc::new(InProcessFactIndex::new(points, FactIndexOptions::default())),
            embedder: embedder.clone(),
            models: Arc::new(ModelRouter::with_limits(
                RouteTable::with_single_model(&as_llm),
                limits,
                clock.clone(),
            )),
            prompts: Arc::new(Templates::load(None).unwrap()),
            memory_cache: Arc::new(MemoryCache::new(1_000)),
            reconcile_backoff: Arc::default(),
            disabled: DisabledTenants::default(),
            clock: clock.clone(),
            ids: ids.clone(),
        };
        let mut stage = Self {
            world: World {
                id: "vale".parse().unwrap(),
                name: "Vale".to_owned(),
                premise: String::new(),
                language: Language::En,
                rules: vec![],
                settings: world_settings,
                lore_version: 0,
                tenant: colloquy::memory::authored::TenantTier::default(),
                version: 1,
                updated_at: clock.now(),
            },
            npc: Npc {
                world: "vale".parse().unwrap(),
                id: "mira".parse().unwrap(),
                name: "Mira".to_owned(),
                persona: Persona {
                    description: "A baker.".to_owned(),
                    cues: vec!["smile".to_owned()],
                    ..Persona::default()
                },
                language: Language::En,
                factions: vec![],
                model: None,
                settings: TierSettings::default(),
                has_scenarios: false,
                has_tells: false,
                version: 1,
                updated_at: clock.now(),
            },
            node: ids.next_id(),
            scope: TenantScope::new("demo".parse().unwrap()),
            services,
            llm,
            embedder,
            clock,
            folder,
            _database: database,
        };
        stage.author_world().await;
        stage
    }

    /// Restarts with another model's name for new vectors.
    pub async fn change_embedder(&mut self, model: &str) {
        self.services.ledger.maintenance.close_connections().await;
        let options = SqliteOptions {
            embedding_model: model.to_owned(),
            ..SqliteOptions::default()
        };
        let path = self.folder.path().join("colloquy.db");
        let store = sqlite::open_ledger(path.to_str().unwrap(), options, self.clock.clone())
            .await
            .unwrap();
        self.services.ledger = store.ledger();
        let index = InProcessFactIndex::new(store.point_source(), FactIndexOptions::default());
        self.services.index = Arc::new(index);
        self.services.memory_cache = Arc::new(MemoryCache::new(1_000));
    }

    /// Prepares a stage with its index in Qdrant.
    pub async fn prepare_on_qdrant(url: &str) -> Self {
        let mut stage = Self::prepare().await;
        stage.services.index = stage.index_in_qdrant(url, "words");
        jobs::activate_index(&stage.services).await.unwrap();
        stage
    }

    pub fn index_in_qdrant(&self, url: &str, embedding_model: &str) -> Arc<dyn FactIndex> {
        let index = QdrantFactIndex::new(QdrantOptions {
            url: url.to_owned(),
            api_key: None,
            collection: "colloquy".to_owned(),
            timeout: PATIENCE,
            write_timeout: PATIENCE,
            embedding_model: embedding_model.to_owned(),
            dimensions: self.embedder.info().dimensions,
        });
        Arc::new(index.unwrap())
    }

    async fn author_world(&mut self) {
        let tenant = colloquy::ports::ledger::tenants::Tenant {
            id: self.scope.tenant().clone(),
            name: "Demo".to_owned(),
            enabled: true,
            budget: None,
            created_at: self.clock.now(),
            version: 1,
        };
        self.services.ledger.tenants.ensure_tenant(&tenant).await.unwrap();
        let authored = &self.services.ledger.authored;
        let edit = self.edit("world.put");
        authored.put_world(&self.scope, &self.world, None, &edit).await.unwrap();
        let edit = self.edit("npc.put");
        authored.put_npc(&self.scope, &self.npc, None, &edit).await.unwrap();
    }

    pub fn edit(&self, action: &'static str) -> Edit {
        Edit {
            id: self.services.ids.next_id(),
            audit_id: self.services.ids.next_id(),
            subject: "designer".to_owned(),
            role: Role::Backend,
            player: None,
            made_at: self.clock.now(),
            action,
            object: "x".to_owned(),
            limits: colloquy::ports::ledger::usage::AuthoredLimits::default(),
        }
    }

    /// Opens a new session of `player` with the NPC.
    pub async fn session(&self, player: &str) -> TestDialogue<'_> {
        self.session_with_witnesses(player, &[]).await
    }

    /// Returns a backend that asks for something.
    pub fn requester(&self, action: &'static str) -> Requester {
        Requester {
            who: Principal {
                subject: "player".to_owned(),
                tenant: self.scope.tenant().clone(),
                role: Role::Backend,
                player: None,
                world: None,
                issued: colloquy::tenancy::TokenIdentity::default(),
                expires_at: DateTime::<Utc>::MAX_UTC,
            },
            key: None,
            action,
        }
    }

    /// Opens a session with witnesses.
    pub async fn session_with_witnesses(&self, player: &str, witnesses: &[&str]) -> TestDialogue<'_> {
        self.session_with(player, &[], witnesses).await
    }

    /// Opens a session with the NPC and `others`.
    pub async fn session_with(&self, player: &str, others: &[&Npc], witnesses: &[&str]) -> TestDialogue<'_> {
        let now = self.clock.now();
        let others = others.iter().map(|npc| npc.id.clone());
        let dialogue = Dialogue {
            id: self.services.ids.next_dialogue_id(DialogueKind::Session),
            world: self.world.id.clone(),
            npcs: [self.npc.id.clone()].into_iter().chain(others).collect(),
            player: Some(player.parse().unwrap()),
            witnesses: witnesses.iter().map(|npc| npc.parse().unwrap()).collect(),
            resume_token_hash: vec![],
            status: DialogueStatus::Open,
            options: DialogueOptions::default(),
            cause: None,
            created_at: now,
            updated_at: now,
            head_turn: 0,
        };
        let dialogues = &self.services.ledger.dialogues;
        dialogues.create_dialogue(&self.scope, &dialogue).await.unwrap();
        let until = now + std::time::Duration::from_hours(1);
        let claim = dialogues
            .claim_ownership(&self.scope, dialogue.id, self.node, now, until)
            .await
            .unwrap();
        let OwnershipClaim::Owned(open) = claim else {
            panic!("{claim:?}")
        };
        TestDialogue {
            stage: self,
            player: player.parse().unwrap(),
            open: *open,
            history: vec![],
            feed: RecordingFeed::default(),
            seq: 1,
        }
    }

    pub fn viewpoint(&self) -> Viewpoint {
        Viewpoint {
            world: self.world.id.clone(),
            npc: self.npc.id.clone(),
            factions: vec![],
            player: None,
            watchers: colloquy::memory::disclosure::audience::Watchers::default(),
            sees_all_players: true,
        }
    }

    /// Returns all facts of the NPC, oldest first.
    pub async fn facts(&self) -> Vec<Fact> {
        self.listed_facts(false).await
    }
    /// Returns the contents of protected facts that a valid fact contradicts.
    pub async fn flagged_contents(&self) -> Vec<String> {
        let flagged = self.listed_facts(true).await.into_iter();
        flagged.map(|fact| fact.view.content).collect()
    }
    async fn listed_facts(&self, flagged: bool) -> Vec<Fact> {
        let filter = FactFilter {
            viewpoint: self.viewpoint(),
            subject: None,
            kind: None,
            from: None,
            to: None,
            as_of: self.clock.now(),
            include_invalid: true,
            flagged,
        };
        let page = PageRequest {
            limit: 200,
            after: None,
        };
        let facts = &self.services.ledger.facts;
        let mut found = facts.list_facts(&self.scope, &filter, &page).await.unwrap().items;
        found.sort_by_key(|fact| fact.id);
        found
    }
    /// Returns the contents of the facts valid now.
    pub async fn valid_contents(&self) -> Vec<String> {
        let now: DateTime<Utc> = self.clock.now();
        let facts = self.facts().await.into_iter();
        facts
            .filter(|fact| fact.is_valid_at(now))
            .map(|fact| fact.view.content)
            .collect()
    }
    /// Runs a job, and counts its usage.
    pub async fn run_job(&self, job: &Job) -> Result<JobReport, jobs::JobError> {
        with_usage_tally(jobs::run_job(&self.services, &self.scope, job)).await
    }
    pub fn break_embedder(&self, broken: bool) {
        *self.embedder.refuses.lock() = broken.then_some("");
    }
}

/// Records what a listener received, and can cut the reply.
#[derive(Default)]
pub struct RecordingFeed {
    pub deltas: Mutex<Vec<(usize, String)>>,
    pub done: Mutex<Vec<ReplyDone>>,
    /// The number of deltas after which the reply is cut, and the cut.
    pub cut_after: Mutex<Option<(usize, Cut)>>,
    cut: Mutex<Option<watch::Sender<Option<Cut>>>>,
}

impl TurnFeed for RecordingFeed {
    fn send_delta(&self, _: u32, offset: usize, _: &NpcId, text: &str) {
        let mut deltas = self.deltas.lock();
        deltas.push((offset, text.to_owned()));
        if let (Some((after, cut)), Some(hand)) = (self.cut_after.lock().clone(), self.cut.lock().as_ref())
            && deltas.len() >= after
        {
            hand.send_replace(Some(cut));
        }
    }
    fn send_done(&self, done: ReplyDone) -> u64 {
        self.done.lock().push(done);
        10
    }
    fn reserve_committed(&self) -> u64 {
        11
    }
}

impl RecordingFeed {
    pub fn text(&self) -> String {
        self.deltas.lock().iter().map(|delta| delta.1.as_str()).collect()
    }
    /// Returns the only end of the turn.
    pub fn reply_end(&self) -> ReplyDone {
        let done = self.done.lock();
        assert_eq!(done.len(), 1, "a turn ends exactly once");
        done[0].clone()
    }
}

/// A session without its actor, with the same state.
pub struct TestDialogue<'a> {
    pub stage: &'a Stage,
    player: PlayerId,
    pub open: OpenDialogue,
    pub history: Vec<colloquy::ports::buffer::BufferedTurn>,
    pub feed: RecordingFeed,
    seq: u64,
}

impl TestDialogue<'_> {
    /// Says a line and runs the turn. `cut_now` cuts before the model is asked.
    pub async fn try_say_line(&mut self, line: &str, cut_now: bool) -> Result<CommittedTurn, TurnError> {
        let input = self.turn_input(line).await;
        self.run_turn(input, cut_now).await
    }
    /// Runs a turn. `cut_now` cuts before the model is asked.
    pub async fn run_turn(&mut self, input: TurnInput, cut_now: bool) -> Result<CommittedTurn, TurnError> {
        let stage = self.stage;
        let (hand, cut) = watch::channel(cut_now.then_some(Cut::default()));
        self.feed.deltas.lock().clear();
        self.feed.done.lock().clear();
        *self.feed.cut.lock() = Some(hand);
        let outcome = turn::run_turn(&stage.services, input, &self.feed, cut).await;
        if let Ok(committed) = &outcome {
            self.open.head = Some(committed.turn.id);
            self.open.dialogue.head_turn = committed.turn.number;
            self.open.dialogue.updated_at = committed.turn.committed_at;
            self.open.checkpoint = committed.checkpoint.clone();
            self.history.push((&committed.turn).into());
            let from = committed.checkpoint.buffer_from;
            self.history.retain(|turn| turn.number >= from);
            self.seq += 3;
        }
        outcome
    }
    pub async fn turn_input(&self, line: &str) -> TurnInput {
        let stage = self.stage;
        let number = self.open.checkpoint.turn + 1;
        let summaries = stage
            .services
            .ledger
            .summaries
            .load_summaries(&stage.scope, self.open.dialogue.id)
            .await
            .unwrap();
        // A new summary shortens the history before the next turn.
        let mut checkpoint = self.open.checkpoint.clone();
        checkpoint.apply_summaries(&summaries, stage.services.settings.summaries.buffer_min_turns);
        let mut history = self.history.clone();
        history.retain(|turn| turn.number >= checkpoint.buffer_from);
        TurnInput {
            scope: stage.scope.clone(),
            node: stage.node,
            world: Arc::new(stage.world.clone()),
            npc: Arc::new(stage.npc.clone()),
            directives: Arc::from([]),
            dialogue: Arc::new(self.open.dialogue.clone()),
            player: Some(self.player.clone()),
            charged_player: None,
            scene: None,
            epoch: self.open.epoch,
            id: stage.services.ids.next_id(),
            number,
            previous: self.open.head,
            replacing: self.open.replacing,
            line: line.to_owned(),
            key: None,
            chat: None,
            continuation: None,
            known_intent: None,
            history: Arc::new(history),
            summaries: Arc::new(summaries),
            checkpoint: self.open.checkpoint.clone(),
            accepted_at: stage.clock.monotonic_now(),
            started_at: stage.clock.now(),
            queue_ms: 0.0,
            memory_wait_ms: 0.0,
            memory_wait: None,
            started_seq: self.seq,
        }
    }
    pub async fn say_line(&mut self, line: &str) -> CommittedTurn {
        self.try_say_line(line, false).await.unwrap()
    }
    /// Says a line that teaches `facts`, and runs the turn's jobs.
    pub async fn say_and_learn(&mut self, line: &str, facts: &serde_json::Value) -> Vec<JobReport> {
        let answer = serde_json::json!({ "facts": facts }).to_string();
        self.stage
            .llm
            .queue_text(colloquy::ports::llm::Task::Extraction, answer);
        let committed = self.say_line(line).await;
        self.stage.clock.advance(std::time::Duration::from_mins(1));
        let mut reports = Vec::new();
        for job in &committed.jobs {
            reports.push(self.stage.run_job(job).await.unwrap());
        }
        reports
    }
    /// Rewinds the session to a turn.
    pub async fn rewind(&mut self, number: u32, heard_chars: Option<usize>) -> RewindResponse {
        self.rewind_at(number, heard_chars.map(HeardLength::Chars)).await
    }
    pub async fn rewind_at(&mut self, number: u32, heard: Option<HeardLength>) -> RewindResponse {
        let requester = self.stage.requester("session.rewind");
        let target = RewindTarget::Turn { number, heard };
        self.rewind_for(target, requester, self.seq).await.unwrap()
    }
    pub async fn rewind_for(
        &self,
        target: RewindTarget,
        requester: Requester,
        seq: u64,
    ) -> Result<RewindResponse, RewindError> {
        let dialogue = self.owned_dialogue(seq);
        rewind::rewind_dialogue(&self.stage.services, dialogue, target, requester.into()).await
    }
    /// Returns the dialogue before a rewind whose event has the number `seq`.
    pub fn owned_dialogue(&self, seq: u64) -> OwnedDialogue {
        let (stage, open) = (self.stage, &self.open);
        OwnedDialogue {
            scope: stage.scope.clone(),
            node: stage.node,
            id: open.dialogue.id,
            world: stage.world.id.clone(),
            epoch: open.epoch,
            head: open.head,
            head_turn: open.dialogue.head_turn,
            fence: false,
            seq,
            tiers: DialogueTiers {
                worlds: Vec::new(),
                session: open.dialogue.options.settings.clone(),
            },
        }
    }
    pub async fn explain_turn(&self, number: u32) -> Explained {
        let stage = self.stage;
        let dialogue = &self.open.dialogue;
        let explained = explain::explain_turn(&stage.services, &stage.scope, dialogue, number, false).await;
        match explained.unwrap() {
            TurnExplanation::Explained(explanation) => explanation.explained,
            other => panic!("{other:?}"),
        }
    }
    /// True if the prompt of a turn, assembled again, is the same.
    pub async fn is_verified(&self, number: u32) -> bool {
        let (stage, dialogue) = (self.stage, &self.open.dialogue);
        let explained = explain::explain_turn(&stage.services, &stage.scope, dialogue, number, true).await;
        match explained.unwrap() {
            TurnExplanation::Explained(explanation) => explanation.explained.verification.unwrap().same == Some(true),
            other => panic!("{other:?}"),
        }
    }
    pub async fn trace(&self, number: u32) -> TurnTrace {
        let dialogues = &self.stage.services.ledger.dialogues;
        let trace = dialogues
            .load_trace(&self.stage.scope, self.open.dialogue.id, number)
            .await;
        trace.unwrap().unwrap()
    }
    /// Returns the numbers and replies of the stored turns.
    pub async fn transcript(&self) -> Vec<(u32, TurnStatus, String)> {
        let dialogues = &self.stage.services.ledger.dialogues;
        let turns = dialogues
            .load_turns(&self.stage.scope, self.open.dialogue.id, 1, 99)
            .await
            .unwrap();
        turns
            .into_iter()
            .map(|turn| (turn.number, turn.status, turn.reply_text))
            .collect()
    }
}

/// Returns a fact as an extractor writes facts.
pub fn liking_fact(object: &str, keywords: &[&str]) -> serde_json::Value {
    statement(
        "like",
        object,
        &format!("The player likes {object}."),
        "positive",
        keywords,
    )
}

/// Returns a judge's answer with the same verdict for every pair.
pub fn verdicts(verdict: &str) -> String {
    verdicts_of(32, verdict)
}

/// Returns the same verdict for `pairs` pairs.
pub fn verdicts_of(pairs: usize, verdict: &str) -> String {
    let verdicts: Vec<_> = (1..=pairs)
        .map(|pair| serde_json::json!({ "pair": pair, "verdict": verdict }))
        .collect();
    serde_json::json!({ "verdicts": verdicts }).to_string()
}

pub fn statement(predicate: &str, object: &str, content: &str, polarity: &str, keywords: &[&str]) -> serde_json::Value {
    serde_json::json!({
        "subject": "player", "predicate": predicate, "object": object, "content": content, "keywords": keywords,
        "speaker": "player", "kind": "preference", "importance": 5, "polarity": polarity, "tense": "present",
    })
}

pub fn streamed_answer(pieces: &[&str]) -> QueuedAnswer {
    QueuedAnswer::Pieces(pieces.iter().map(|piece| (*piece).to_owned()).collect())
}
