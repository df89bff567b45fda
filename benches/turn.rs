//! Whole turns with a mock model at 0 ms, below the actors: gather, prompt, streamed reply, commit. Five parts:
//!
//! 1. Criterion: assembling a prompt from warm stores (as the context preview does), and one turn end to end with
//!    1,000 facts.
//! 2. Percentiles of the recall times in the turns' traces, without the embedder. The NPC has 1,000 or 100,000 facts
//!    with clustered vectors of 384 dimensions. Each size runs 400 turns, every line new.
//! 3. The prompts of 64 dialogues with one NPC at once, on the callers' threads or on a single thread.
//! 4. Percentiles of assembling a prompt with 100,000 facts, without lore and with 10,000 entries, taken in turn.
//! 5. The same without episodes, and after 2,000 turns with an episode each.
//!
//! Writing the 100,000 facts takes a minute. `RECALL_FACTS=1000` skips this size.
#![allow(clippy::unwrap_used)]

use std::{hash::BuildHasher as _, hint::black_box, sync::Arc, time::Duration};

use async_trait::async_trait;
use colloquy::{
    adapters::{
        in_process::{
            buffers::{BufferLimits, InProcessBuffers},
            fact_index::{FactIndexOptions, InProcessFactIndex},
        },
        openai::{Endpoint, HttpClient, OpenAiLlm, OpenAiLlmOptions},
        sqlite::{self, SqliteOptions},
    },
    config::Config,
    dialogue::{
        Services,
        events::ReplyDone,
        jobs,
        knowledge::lore,
        models::{ModelRouter, RouteTable},
        preview::{IntentSource, preview_prompt},
        prompt::Templates,
        recall::MemoryCache,
        turn::{self, TurnFeed, TurnInput},
    },
    ids::{DialogueKind, NodeId, NpcId},
    memory::{
        authored::{Language, Npc, Persona, TierSettings, World, WorldSettings},
        calibration::Calibration,
        disclosure::audience::{Audience, Knower},
        fact::{Cause, FactKind, Importance, NewFact, Polarity, Statement, Tense},
        lore::LoreEntry,
    },
    mock_llm::{self, MockHandle, MockOptions},
    ports::{
        buffer::BufferedTurn,
        clock::{Clock as _, IdSource, SystemClock},
        disabled_tenants::DisabledTenants,
        embedder::{EmbedAs, Embedder, EmbedderInfo},
        ledger::{
            audit::Edit,
            dialogues::{Dialogue, DialogueOptions, DialogueStatus, OpenDialogue, OwnershipClaim},
            jobs::Job,
        },
        llm::{Llm, LlmError},
    },
    tenancy::{Role, TenantScope},
};
use criterion::{Criterion, criterion_group};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::sync::watch;

/// A preview with every search, without a call of the classifier.
const IN_FULL: IntentSource = IntentSource::Assumed;
const DIMENSIONS: usize = 384;
const CLUSTERS: u64 = 200;
const NOUNS: [&str; 8] = [
    "lantern",
    "orchard",
    "ferry",
    "blacksmith",
    "market",
    "tower",
    "meadow",
    "bridge",
];

/// Embedder without cost that puts texts of the same cluster close together. Recall is measured without the embedder.
struct ClusteredEmbedder(EmbedderInfo);

impl ClusteredEmbedder {
    fn new() -> Self {
        Self(EmbedderInfo {
            model: "clustered".to_owned(),
            dimensions: DIMENSIONS,
            calibration: Calibration::IDENTITY,
            offline: true,
        })
    }
}

impl ClusteredEmbedder {
    fn vector_of(text: &str) -> Vec<f32> {
        let hash = hash_text(text);
        let mut centre = StdRng::seed_from_u64(hash % CLUSTERS);
        let mut noise = StdRng::seed_from_u64(hash);
        let mut vector: Vec<f32> = (0..DIMENSIONS)
            .map(|_| centre.random_range(-1.0..1.0_f32) + 0.3 * noise.random_range(-1.0..1.0_f32))
            .collect();
        let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        for x in &mut vector {
            *x /= norm;
        }
        vector
    }
}

fn hash_text(text: &str) -> u64 {
    std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(text)
}

#[async_trait]
impl Embedder for ClusteredEmbedder {
    async fn embed_texts(&self, _: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        Ok(texts.iter().map(|text| Self::vector_of(text)).collect())
    }
    fn info(&self) -> &EmbedderInfo {
        &self.0
    }
}

struct SilentFeed;

impl TurnFeed for SilentFeed {
    fn send_delta(&self, _: u32, _: usize, _: &NpcId, text: &str) {
        black_box(text);
    }
    fn send_done(&self, _: ReplyDone) -> u64 {
        0
    }
    fn reserve_committed(&self) -> u64 {
        0
    }
}

/// A world with one NPC who knows `facts` facts, and a session with this NPC.
struct TurnBench {
    services: Services,
    scope: TenantScope,
    node: NodeId,
    world: Arc<World>,
    npc: Arc<Npc>,
    open: OpenDialogue,
    history: Vec<BufferedTurn>,
    said: u32,
    _model: MockHandle,
    _folder: tempfile::TempDir,
}

/// The NPC that answers.
fn innkeeper(world: &colloquy::ids::WorldId, now: chrono::DateTime<chrono::Utc>) -> Npc {
    Npc {
        world: world.clone(),
        id: "mira".parse().unwrap(),
        name: "Mira".to_owned(),
        persona: Persona {
            description: "Keeps the inn at the crossroads. ".repeat(8),
            speech_style: "Warm and brisk.".to_owned(),
            ..Persona::default()
        },
        language: Language::En,
        factions: vec![],
        model: None,
        settings: TierSettings::default(),
        has_scenarios: false,
        has_tells: false,
        version: 1,
        updated_at: now,
    }
}

impl TurnBench {
    async fn with_facts(facts: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let path = folder.path().join("ledger.db");
        let store = sqlite::open_ledger(path.to_str().unwrap(), SqliteOptions::default(), clock.clone())
            .await
            .unwrap();
        let model = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let endpoint = Endpoint {
            base_url: model.base_url(),
            api_key: None,
        };
        let options = OpenAiLlmOptions::new(endpoint, "mock");
        let llm: Arc<dyn Llm> = Arc::new(OpenAiLlm::new(&HttpClient::new().unwrap(), options).unwrap());
        let ids = Arc::new(IdSource::from_thread_rng(clock.clone()));
        let index = InProcessFactIndex::new(store.point_source(), FactIndexOptions::default());
        let services = Services {
            settings: Arc::new(Config::embedded_defaults().dialogue_settings()),
            ledger: store.ledger(),
            buffers: Arc::new(InProcessBuffers::new(BufferLimits::default())),
            index: Arc::new(index),
            embedder: Arc::new(ClusteredEmbedder::new()),
            models: Arc::new(ModelRouter::new(RouteTable::with_single_model(&llm), clock.clone())),
            prompts: Arc::new(Templates::load(None).unwrap()),
            memory_cache: Arc::new(MemoryCache::new(100_000)),
            reconcile_backoff: Arc::default(),
            disabled: DisabledTenants::default(),
            clock: clock.clone(),
            ids: ids.clone(),
        };
        let now = clock.now();
        let world = World {
            id: "vale".parse().unwrap(),
            name: "Vale".to_owned(),
            premise: "A quiet valley below an old forest.".to_owned(),
            language: Language::En,
            rules: vec!["Magic is rare.".to_owned()],
            settings: WorldSettings::default(),
            lore_version: 0,
            tenant: colloquy::memory::authored::TenantTier::default(),
            version: 1,
            updated_at: now,
        };
        let npc = innkeeper(&world.id, now);
        let scope = TenantScope::new("bench".parse().unwrap());
        let node: NodeId = ids.next_id();
        let dialogue = Dialogue {
            id: ids.next_dialogue_id(DialogueKind::Session),
            world: world.id.clone(),
            npcs: vec![npc.id.clone()],
            player: Some("p1".parse().unwrap()),
            witnesses: vec![],
            resume_token_hash: vec![],
            status: DialogueStatus::Open,
            options: DialogueOptions::default(),
            cause: None,
            created_at: now,
            updated_at: now,
            head_turn: 0,
        };
        let dialogues = &services.ledger.dialogues;
        dialogues.create_dialogue(&scope, &dialogue).await.unwrap();
        let until = now + Duration::from_hours(1);
        let OwnershipClaim::Owned(open) = dialogues
            .claim_ownership(&scope, dialogue.id, node, now, until)
            .await
            .unwrap()
        else {
            panic!("a new dialogue is free")
        };
        let stage = Self {
            services,
            scope,
            node,
            world: Arc::new(world),
            npc: Arc::new(npc),
            open: *open,
            history: vec![],
            said: 0,
            _model: model,
            _folder: folder,
        };
        stage.write_facts(facts).await;
        stage
    }

    /// Writes lore of the world, and returns the world with it.
    async fn author_lore(&self, count: u32) -> World {
        let (ledger, at) = (&self.services.ledger, self.services.clock.now());
        let edit = |action: &'static str| Edit {
            id: self.services.ids.next_id(),
            audit_id: self.services.ids.next_id(),
            subject: "bench".to_owned(),
            role: Role::Backend,
            player: None,
            limits: colloquy::ports::ledger::usage::AuthoredLimits::default(),
            made_at: at,
            action,
            object: "vale".to_owned(),
        };
        let authoring = edit("world.put");
        let put = ledger.authored.put_world(&self.scope, &self.world, None, &authoring);
        put.await.unwrap();
        let entries = (0..count).map(|n| {
            let (noun, place) = (NOUNS[n as usize % NOUNS.len()], n % 500);
            let text = serde_json::json!({
                "name": format!("landmark{n}"), "keywords": [format!("way{n}")], "layer": "A1",
                "content": format!("A {noun} stood at place{place} before the {noun} of landmark{} burned.", n / 2),
                "place": format!("place{place}"), "when": [{"not": {"item": "key"}}],
            });
            LoreEntry {
                world: self.world.id.clone(),
                id: format!("landmark{n}").parse().unwrap(),
                text: serde_json::from_value(text).unwrap(),
                version: 0,
                updated_at: at,
            }
        });
        let edit = edit("lore.import");
        let imported = lore::import_lore(&self.services, &self.scope, &self.world.id, entries.collect(), &edit);
        imported.await.unwrap();
        let loaded = ledger.authored.load_world(&self.scope, &self.world.id).await.unwrap();
        loaded.unwrap()
    }

    /// Writes facts concurrently, so that the ledger groups the commits.
    async fn write_facts(&self, count: u32) {
        let mut rng = StdRng::seed_from_u64(7);
        let facts: Vec<NewFact> = (0..count).map(|n| self.sample_fact(n, &mut rng)).collect();
        for group in facts.chunks(256) {
            let writes = group.iter().map(|fact| async {
                let edit = Edit {
                    id: self.services.ids.next_id(),
                    audit_id: self.services.ids.next_id(),
                    subject: "bench".to_owned(),
                    role: Role::Backend,
                    player: None,
                    limits: colloquy::ports::ledger::usage::AuthoredLimits::default(),
                    made_at: self.services.clock.now(),
                    action: "fact.create",
                    object: fact.id.to_string(),
                };
                self.services
                    .ledger
                    .facts
                    .create_fact(&self.scope, fact, false, &edit)
                    .await
                    .unwrap();
            });
            futures_util::future::join_all(writes).await;
        }
    }

    fn sample_fact(&self, n: u32, rng: &mut StdRng) -> NewFact {
        let (noun, place) = (
            NOUNS[rng.random_range(0..NOUNS.len())],
            format!("place{}", rng.random_range(0..5_000)),
        );
        let statement = Statement {
            subject: "player".to_owned(),
            predicate: "saw".to_owned(),
            object: format!("a {noun}"),
            content: format!("The player saw a {noun} at {place} with companion{n}."),
            keywords: vec![noun.to_owned(), place],
            speaker: "player".to_owned(),
            kind: FactKind::Timeline,
            importance: Importance::from_clamped(rng.random_range(1.0..10.0)),
            polarity: Polarity::Positive,
            tense: Tense::Past,
            pinned: false,
        };
        NewFact {
            id: self.services.ids.next_id(),
            world: self.world.id.clone(),
            audience: Audience {
                knowers: [Knower::Npc(self.npc.id.clone())].into(),
                private_to: Some("p1".parse().unwrap()),
            },
            embedding: ClusteredEmbedder::vector_of(&statement.embedded_text()),
            statement,
            valid_at: self.services.clock.now() - chrono::Duration::minutes(rng.random_range(1..500_000)),
            locks: colloquy::memory::disclosure::locks::DisclosureLocks::default(),
            expires_at: None,
            cause: Cause::Edit(self.services.ids.next_id()),
            source: None,
            derived_from: vec![],
            pii: vec![],
            authored: false,
        }
    }

    fn turn_input(&self) -> TurnInput {
        self.turn_input_after(self.said)
    }

    /// Builds the next turn, with the line that follows `said` lines.
    fn turn_input_after(&self, said: u32) -> TurnInput {
        let noun = NOUNS[said as usize % NOUNS.len()];
        TurnInput {
            scope: self.scope.clone(),
            node: self.node,
            world: self.world.clone(),
            npc: self.npc.clone(),
            directives: Arc::from([]),
            dialogue: Arc::new(self.open.dialogue.clone()),
            player: Some("p1".parse().unwrap()),
            charged_player: None,
            scene: None,
            epoch: self.open.epoch,
            id: self.services.ids.next_id(),
            number: self.open.checkpoint.turn + 1,
            previous: self.open.head,
            replacing: None,
            line: format!(
                "Do you remember the {noun} at place{} on day {}?",
                said * 37 % 5_000,
                said
            ),
            key: None,
            chat: None,
            continuation: None,
            known_intent: None,
            history: Arc::new(self.history.clone()),
            summaries: Arc::new(vec![]),
            checkpoint: self.open.checkpoint.clone(),
            accepted_at: self.services.clock.monotonic_now(),
            started_at: self.services.clock.now(),
            queue_ms: 0.0,
            memory_wait_ms: 0.0,
            memory_wait: None,
            started_seq: 0,
        }
    }

    async fn run_turn(&mut self) {
        self.run_turn_with_jobs().await;
    }

    /// Runs a turn, and returns its jobs.
    async fn run_turn_with_jobs(&mut self) -> Vec<Job> {
        let (_hand, cut) = watch::channel(None);
        let committed = turn::run_turn(&self.services, self.turn_input(), &SilentFeed, cut)
            .await
            .unwrap();
        self.said += 1;
        self.open.head = Some(committed.turn.id);
        self.open.checkpoint = committed.checkpoint;
        // The benchmark has no curator and thus no summaries. The buffer is trimmed to its usual size.
        self.history.push((&committed.turn).into());
        if self.history.len() > 20 {
            self.history.drain(..8);
        }
        committed.jobs
    }

    /// Runs turns with their jobs, so that each leaves an episode. No later prompt has the lines.
    async fn leave_episodes(&mut self, turns: u32) {
        for _ in 0..turns {
            for job in self.run_turn_with_jobs().await {
                jobs::run_job(&self.services, &self.scope, &job).await.unwrap();
            }
        }
        self.history.clear();
    }

    /// Returns the assembly time of each of `rounds` prompts in milliseconds, sorted.
    async fn prompt_millis(&self, rounds: u32) -> Vec<f64> {
        let mut millis = Vec::new();
        for round in 0..rounds + 40 {
            let input = self.turn_input_after(round);
            let started = self.services.clock.monotonic_now();
            black_box(preview_prompt(&self.services, &input, IN_FULL).await.unwrap());
            if round >= 40 {
                let time = self.services.clock.monotonic_now() - started;
                millis.push(time.as_secs_f64() * 1_000.0);
            }
        }
        millis.sort_by(f64::total_cmp);
        millis
    }

    /// Returns the recall time of each of `turns` turns in milliseconds, sorted.
    async fn recall_millis(&mut self, turns: u32) -> Vec<f64> {
        let mut millis = Vec::new();
        for _ in 0..turns {
            self.run_turn().await;
            let number = self.open.checkpoint.turn;
            let dialogues = &self.services.ledger.dialogues;
            let trace = dialogues
                .load_trace(&self.scope, self.open.dialogue.id, number)
                .await
                .unwrap()
                .unwrap();
            assert!(!trace.candidates.is_empty(), "recall found nothing");
            millis.push(trace.timings.recall);
        }
        millis.sort_by(f64::total_cmp);
        millis
    }
}

fn build_runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap()
}

fn bench_turns(criterion: &mut Criterion) {
    let runtime = build_runtime(2);
    let mut stage = runtime.block_on(TurnBench::with_facts(1_000));
    runtime.block_on(async {
        for _ in 0..20 {
            stage.run_turn().await;
        }
    });
    criterion.bench_function("prompt preview, 1,000 facts", |bencher| {
        bencher.iter(|| {
            let input = stage.turn_input();
            black_box(
                runtime
                    .block_on(preview_prompt(&stage.services, &input, IN_FULL))
                    .unwrap(),
            )
        });
    });
    criterion.bench_function("one turn, mock model, 1,000 facts", |bencher| {
        bencher.iter(|| runtime.block_on(stage.run_turn()));
    });
}

fn most_facts() -> u32 {
    let set = std::env::var("RECALL_FACTS").ok();
    set.and_then(|number| number.parse().ok()).unwrap_or(100_000)
}

fn recall_percentiles() {
    let runtime = build_runtime(2);
    for facts in [1_000, 100_000].into_iter().filter(|&facts| facts <= most_facts()) {
        let millis = runtime.block_on(async {
            let mut stage = TurnBench::with_facts(facts).await;
            stage.recall_millis(40).await; // reads the partition and warms the caches
            stage.recall_millis(400).await
        });
        let at = |share: usize| millis[millis.len() * share / 100 - 1];
        println!(
            "recall of {facts} facts: p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms",
            at(50),
            at(95),
            at(99)
        );
    }
}

/// Compares two ways to make the prompts of one NPC: on the threads of the callers, or on a single thread. A single
/// thread is like an actor that owns the NPC's memory
/// (docs/decisions.md#the-memory-of-an-npc-is-shared-structures-not-an-actors-state).
fn concurrent_recalls_of_one_npc() {
    const CALLERS: u32 = 64;
    const ROUNDS: u32 = 30;
    let (callers, single) = (build_runtime(2), build_runtime(1));
    let mut stage = callers.block_on(TurnBench::with_facts(1_000));
    callers.block_on(stage.recall_millis(40)); // reads the partition and warms the caches
    let stage = Arc::new(stage);
    for (name, runtime) in [("one thread", &single), ("callers' threads", &callers)] {
        let mut took = Duration::ZERO;
        for round in 0..=ROUNDS {
            let clock = &stage.services.clock;
            let started = clock.monotonic_now();
            let previews = (0..CALLERS).map(|caller| {
                let stage = Arc::clone(&stage);
                runtime.spawn(async move {
                    let input = stage.turn_input_after(stage.said + round * CALLERS + caller);
                    preview_prompt(&stage.services, &input, IN_FULL).await.unwrap();
                })
            });
            runtime.block_on(futures_util::future::try_join_all(previews)).unwrap();
            if round > 0 {
                took += clock.monotonic_now() - started;
            }
        }
        println!(
            "{CALLERS} prompts of one NPC at once, {name}: {:.2} ms until the last",
            took.as_secs_f64() * 1_000.0 / f64::from(ROUNDS)
        );
    }
}

/// Measures the assembly of prompts in a world without lore, and in the same world with 10,000 entries.
fn lore_percentiles() {
    const ROUNDS: u32 = 400;
    let runtime = build_runtime(2);
    let facts = most_facts().min(100_000);
    let (plain, lore) = runtime.block_on(async {
        let mut stage = TurnBench::with_facts(facts).await;
        let worlds = [Arc::clone(&stage.world), Arc::new(stage.author_lore(10_000).await)];
        let mut took = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS + 40 {
            for (at, (world, took)) in (0..).zip(worlds.iter().zip(&mut took)) {
                stage.world = Arc::clone(world);
                // Another line for each world, so that no prompt finds the facts of the one before in a cache.
                let input = stage.turn_input_after(round * 2 + at);
                let started = stage.services.clock.monotonic_now();
                black_box(preview_prompt(&stage.services, &input, IN_FULL).await.unwrap());
                if round >= 40 {
                    let time = stage.services.clock.monotonic_now() - started;
                    took.push(time.as_secs_f64() * 1_000.0);
                }
            }
        }
        let [plain, lore] = took;
        (plain, lore)
    });
    for (name, mut millis) in [("no lore", plain), ("10,000 entries of lore", lore)] {
        millis.sort_by(f64::total_cmp);
        let at = |share: usize| millis[millis.len() * share / 100 - 1];
        println!(
            "a prompt with {facts} facts and {name}: p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms",
            at(50),
            at(95),
            at(99)
        );
    }
}

/// Measures the assembly of prompts without episodes, and with 2,000 of the NPC and the player.
fn episode_percentiles() {
    const ROUNDS: u32 = 400;
    let facts = most_facts().min(100_000);
    let (none, many) = build_runtime(2).block_on(async {
        let mut stage = TurnBench::with_facts(facts).await;
        let none = stage.prompt_millis(ROUNDS).await;
        stage.leave_episodes(2_000).await;
        (none, stage.prompt_millis(ROUNDS).await)
    });
    for (name, millis) in [("no episodes", none), ("2,000 episodes", many)] {
        let at = |share: usize| millis[millis.len() * share / 100 - 1];
        println!(
            "a prompt with {facts} facts and {name}: p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms",
            at(50),
            at(95),
            at(99)
        );
    }
}

criterion_group!(benches, bench_turns);

fn main() {
    // `cargo test` runs every benchmark once as a check. Percentiles are measured only under `cargo bench`.
    if std::env::args().any(|argument| argument == "--bench") {
        recall_percentiles();
        concurrent_recalls_of_one_npc();
        lore_percentiles();
        episode_percentiles();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
