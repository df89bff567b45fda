//! Costs of the SQLite ledger on the hot path:
//!
//! * whole turns, committed and reconciled by 64 concurrent callers;
//! * the reads of one recall in a memory of 1,000 and of 100,000 facts.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use colloquy::{
    adapters::sqlite::{self, SqliteOptions},
    ids::{DialogueKind, FactId, NodeId, NpcId, TurnId, WorldId},
    memory::{
        disclosure::{
            audience::{Audience, Knower, Viewpoint},
            private_terms::PrivateTerms,
        },
        fact::{Cause, FactKind, Importance, NewFact, Polarity, Statement, Tense},
        trace::{
            ActionsTrace, CandidateFate, CandidateTrace, PromptSources, ScoreParts, Timings, TopicGate, TurnTrace,
        },
        turn::{Checkpoint, Intent, Turn, TurnSeqs, TurnStatus, Usage},
    },
    ports::{
        clock::{Clock as _, IdSource, SystemClock},
        ledger::{
            Ledger,
            dialogues::{CommitOutcome, Dialogue, DialogueOptions, DialogueStatus, OwnershipClaim, TurnCommit},
            facts::{ReconcileOutcome, ReconcileTrigger, Reconciliation},
            jobs::{JobKind, NewJob},
        },
    },
    tenancy::TenantScope,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const CONCURRENT_CALLERS: usize = 64;
const DIMENSIONS: usize = 384;

struct LedgerBench {
    _folder: tempfile::TempDir,
    ledger: Ledger,
    ids: IdSource,
    scope: TenantScope,
    world: WorldId,
    node: NodeId,
}

/// A dialogue that this node owns, with its head.
struct BenchDialogue {
    npc: NpcId,
    dialogue: colloquy::ids::DialogueId,
    epoch: u64,
    head: Option<TurnId>,
    number: u32,
}

impl LedgerBench {
    async fn new() -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let path = folder.path().join("ledger.db");
        let sqlite = sqlite::open_ledger(path.to_str().unwrap(), SqliteOptions::default(), clock.clone())
            .await
            .unwrap();
        let ids = IdSource::from_thread_rng(clock);
        Arc::new(Self {
            _folder: folder,
            ledger: sqlite.ledger(),
            scope: TenantScope::new("bench".parse().unwrap()),
            world: "vale".parse().unwrap(),
            node: ids.next_id(),
            ids,
        })
    }

    async fn open_dialogue(&self, number: usize) -> BenchDialogue {
        let npc: NpcId = format!("npc-{number}").parse().unwrap();
        let now = SystemClock.now();
        let id = self.ids.next_dialogue_id(DialogueKind::Session);
        let dialogue = Dialogue {
            id,
            world: self.world.clone(),
            npcs: vec![npc.clone()],
            player: Some("p1".parse().unwrap()),
            witnesses: Vec::new(),
            resume_token_hash: vec![0; 32],
            status: DialogueStatus::Open,
            options: DialogueOptions::default(),
            cause: None,
            created_at: now,
            updated_at: now,
            head_turn: 0,
        };
        self.ledger
            .dialogues
            .create_dialogue(&self.scope, &dialogue)
            .await
            .unwrap();
        let until = now + chrono::Duration::hours(1);
        let claim = self
            .ledger
            .dialogues
            .claim_ownership(&self.scope, id, self.node, now, until)
            .await;
        let OwnershipClaim::Owned(open) = claim.unwrap() else {
            panic!("not owned")
        };
        BenchDialogue {
            npc,
            dialogue: id,
            epoch: open.epoch,
            head: None,
            number: 0,
        }
    }

    /// Commits the next turn and returns its extraction job.
    async fn commit_turn(&self, line: &mut BenchDialogue) -> NewJob {
        let now = SystemClock.now();
        let turn: TurnId = self.ids.next_id();
        line.number += 1;
        let job = NewJob {
            id: self.ids.next_id(),
            kind: JobKind::ExtractFacts,
            dialogue: line.dialogue,
            turn,
            text_version: 1,
            created_at: now,
            leased_to: self.node,
            leased_until: now + chrono::Duration::seconds(120),
            held_until: None,
        };
        let commit = TurnCommit {
            epoch: line.epoch,
            expected_head: line.head,
            replacing: None,
            turn: Turn {
                id: turn,
                dialogue: line.dialogue,
                number: line.number,
                status: TurnStatus::Completed,
                player: Some("p1".parse().unwrap()),
                player_text: "Do you remember what fruit I like the most?".to_owned(),
                npc: line.npc.clone(),
                reply_text: "Of course. You told me about the grapes by the old well. ".repeat(4),
                text_version: 1,
                cues: Vec::new(),
                usage: Usage::default(),
                started_at: now,
                committed_at: now,
                seqs: TurnSeqs::default(),
            },
            key: Some(format!("key-{turn}")),
            key_of: None,
            sealed_reply: None,
            cuts: Vec::new(),
            checkpoint: Checkpoint {
                turn: line.number,
                ..Checkpoint::default()
            },
            trace: self.sample_trace(),
            state: Vec::new(),
            actions: Vec::new(),
            episode: None,
            jobs: vec![job.clone()],
            next_seq: 10,
        };
        let outcome = self.ledger.turns.commit_turn(&self.scope, &commit).await.unwrap();
        assert_eq!(outcome, CommitOutcome::Committed);
        line.head = Some(turn);
        job
    }

    /// Returns a trace of realistic size: twelve candidates with their scores.
    fn sample_trace(&self) -> TurnTrace {
        TurnTrace {
            traced_at: SystemClock.now(),
            key: String::new(),
            intent: Intent::Memory,
            intent_source: "model".to_owned(),
            query: "Do you remember what fruit I like the most?".to_owned(),
            topic_gate: Some(TopicGate::Asked),
            candidates: (0..12)
                .map(|_| CandidateTrace {
                    fact: self.ids.next_id(),
                    subject: "player:p1".to_owned(),
                    speaker: "player:p1".to_owned(),
                    content: "The player likes grapes from the old orchard".to_owned(),
                    score: ScoreParts {
                        recency: 0.5,
                        importance: 0.5,
                        relevance: 0.5,
                        keyword: 0.5,
                        total: 0.5,
                        cosine: 0.5,
                    },
                    fate: CandidateFate::Used,
                    promise: false,
                    over: false,
                })
                .collect(),
            unlisted_facts: 0,
            not_searched: vec![],
            memory_wait: None,
            scenarios: vec![],
            lore: vec![],
            episodes: vec![],
            directives: vec![],
            insights: vec![],
            story: vec![],
            actions: ActionsTrace::default(),
            place: None,
            progress: None,
            told_in: vec![],
            locks: colloquy::memory::disclosure::locks::DisclosureLocks::default(),
            told_locks: None,
            locked: Vec::new(),
            confided: Some(PrivateTerms::default().with_lines(["The player likes grapes from the old orchard"])),
            sections: Vec::new(),
            prompt_tokens: 900,
            unchanged_tokens: None,
            prompt_hash: "0".repeat(64),
            sources: Some(PromptSources {
                templates: "0123abcd".to_owned(),
                settings: "0123abcd".to_owned(),
                summaries: vec![self.ids.next_id()],
                ..PromptSources::default()
            }),
            calls: Vec::new(),
            timings: Timings::default(),
            notes: Vec::new(),
            state_block: false,
        }
    }

    fn sample_fact(&self, npc: &NpcId, kind: FactKind) -> NewFact {
        let mut embedding = vec![0.0; DIMENSIONS];
        embedding[0] = 1.0;
        NewFact {
            id: self.ids.next_id(),
            world: self.world.clone(),
            audience: Audience {
                knowers: BTreeSet::from([Knower::Npc(npc.clone())]),
                private_to: Some("p1".parse().unwrap()),
            },
            statement: Statement {
                subject: "player".to_owned(),
                predicate: "likes".to_owned(),
                object: "grapes".to_owned(),
                content: "The player likes grapes from the old orchard".to_owned(),
                keywords: ["grape", "fruit", "food", "orchard"].map(str::to_owned).to_vec(),
                speaker: "player".to_owned(),
                kind,
                importance: Importance::DEFAULT,
                polarity: Polarity::Positive,
                tense: Tense::Present,
                pinned: false,
            },
            valid_at: SystemClock.now(),
            locks: colloquy::memory::disclosure::locks::DisclosureLocks::default(),
            expires_at: None,
            cause: Cause::Edit(self.ids.next_id()),
            source: None,
            derived_from: Vec::new(),
            pii: Vec::new(),
            authored: false,
            embedding,
        }
    }

    async fn reconcile_facts(&self, npc: &NpcId, job: &NewJob, facts: Vec<NewFact>) {
        let npcs = vec![npc.clone()];
        let store = &self.ledger.facts;
        let position = store.memory_position(&self.scope, &self.world, &npcs).await.unwrap();
        let expected_memory_seq = position.seq;
        let result = Reconciliation {
            calls: Vec::new(),
            trigger: ReconcileTrigger::Job(colloquy::ports::ledger::jobs::Job::from(job).fence()),
            world: self.world.clone(),
            npcs,
            expected_memory_seq,
            facts,
            lacks_vectors: false,
            extractions: Vec::new(),
            invalidations: Vec::new(),
            lifts: Vec::new(),
            flags: Vec::new(),
            flagging: Vec::new(),
            flagging_by: Vec::new(),
            episode: None,
            flags_kept: Vec::new(),
            replaced: Vec::new(),
            verdicts: Vec::new(),
        };
        let outcome = store.commit_reconciliation(&self.scope, &result).await.unwrap();
        assert_eq!(outcome, ReconcileOutcome::Committed);
    }
}

/// Runs `turns` turns in total, shared among the callers, and returns the elapsed time.
async fn run_turns(bench: &Arc<LedgerBench>, turns: u64, remember: bool) -> Duration {
    let each = turns.div_ceil(CONCURRENT_CALLERS as u64);
    let mut lines = Vec::new();
    for number in 0..CONCURRENT_CALLERS {
        lines.push(bench.open_dialogue(number).await);
    }
    #[allow(clippy::disallowed_methods)] // a stopwatch
    let start = Instant::now();
    let callers: Vec<_> = lines
        .into_iter()
        .map(|mut line| {
            let bench = bench.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    let job = bench.commit_turn(&mut line).await;
                    if remember {
                        let fact = bench.sample_fact(&line.npc, FactKind::Preference);
                        bench.reconcile_facts(&line.npc, &job, vec![fact]).await;
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of turns stay far below 2^53")]
    let share = turns as f64 / (each * CONCURRENT_CALLERS as u64) as f64;
    start.elapsed().mul_f64(share)
}

fn bench_writes(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let bench = runtime.block_on(LedgerBench::new());
    let mut group = criterion.benchmark_group("ledger");
    group.sample_size(10).throughput(Throughput::Elements(1));
    for (name, remember) in [
        ("commit_turn, 64 callers", false),
        ("commit_turn and reconcile, 64 callers", true),
    ] {
        group.bench_function(name, |bencher| {
            bencher.to_async(&runtime).iter_custom(|turns| {
                let bench = bench.clone();
                async move { run_turns(&bench, turns, remember).await }
            });
        });
    }
    group.finish();
}

fn bench_reads(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut group = criterion.benchmark_group("ledger");
    group.sample_size(50);
    for size in [1_000_usize, 100_000] {
        let bench = runtime.block_on(LedgerBench::new());
        let (npc, ids) = runtime.block_on(fill_memory(&bench, size));
        let viewpoint = Viewpoint {
            world: bench.world.clone(),
            npc,
            factions: vec!["guild".parse().unwrap()],
            player: Some("p1".parse().unwrap()),
            watchers: colloquy::memory::disclosure::audience::Watchers::default(),
            sees_all_players: false,
        };
        let asked: Vec<FactId> = ids.iter().copied().step_by(size / 80).take(80).collect();
        let facts = &bench.ledger.facts;
        group.bench_function(format!("confirm 80 of {size}"), |bencher| {
            bencher.to_async(&runtime).iter(|| async {
                let now = SystemClock.now();
                let confirmed = facts
                    .confirm_facts(&bench.scope, &viewpoint, &asked, now)
                    .await
                    .unwrap()
                    .open;
                assert_eq!(confirmed.len(), 80);
                black_box(confirmed)
            });
        });
        group.bench_function(format!("bodies of 30 of {size}"), |bencher| {
            bencher
                .to_async(&runtime)
                .iter(|| async { black_box(facts.load_bodies(&bench.scope, &asked[..30]).await.unwrap()) });
        });
        group.bench_function(format!("standing 20 of {size}"), |bencher| {
            bencher.to_async(&runtime).iter(|| async {
                let now = SystemClock.now();
                black_box(
                    facts
                        .load_standing(&bench.scope, &viewpoint, false, now, 20)
                        .await
                        .unwrap(),
                )
            });
        });
    }
    group.finish();
}

/// Fills the memory of one NPC with `size` facts, a third of them of mutable kinds.
async fn fill_memory(bench: &Arc<LedgerBench>, size: usize) -> (NpcId, Vec<FactId>) {
    let mut line = bench.open_dialogue(0).await;
    let mut ids = Vec::with_capacity(size);
    for _ in 0..size / 1_000 {
        let job = bench.commit_turn(&mut line).await;
        let facts: Vec<NewFact> = (0..1_000)
            .map(|number| bench.sample_fact(&line.npc, FactKind::ALL[number % FactKind::ALL.len()]))
            .collect();
        ids.extend(facts.iter().map(|fact| fact.id));
        bench.reconcile_facts(&line.npc, &job, facts).await;
    }
    (line.npc, ids)
}

criterion_group!(benches, bench_writes, bench_reads);
criterion_main!(benches);
