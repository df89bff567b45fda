//! The starting point of the contract tests: an empty ledger, a clock, two tenants, and sample values.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chrono::{DateTime, TimeZone as _, Utc};
use colloquy::{
    ids::{DialogueId, DialogueKind, FactId, GeneratedId, NodeId, NpcId, PlayerId, TurnId, WorldId},
    memory::{
        authored::{Language, Npc, Persona, TierSettings, World, WorldSettings},
        disclosure::audience::{Audience, Knower, Viewpoint},
        fact::{
            Cause, Fact, FactKind, FoldedFact, Importance, InvalidReason, NewFact, NewInvalidation, Polarity,
            Statement, Tense,
        },
        trace::{ActionsTrace, Timings, TurnTrace},
        turn::{Checkpoint, Intent, Turn, TurnSeqs, TurnStatus, Usage},
    },
    ports::{
        PageRequest,
        clock::{Clock as _, IdSource, ManualClock},
        ledger::{
            Ledger,
            audit::Edit,
            dialogues::{
                CommitOutcome, Dialogue, DialogueOptions, DialogueStatus, OpenDialogue, OwnerWriteOutcome,
                OwnershipClaim, TurnCommit,
            },
            facts::{ReconcileOutcome, ReconcileTrigger, Reconciliation},
            jobs::{JobFence, JobKind, NewJob},
        },
    },
    tenancy::{Role, TenantScope},
};

use super::LedgerSubject;

pub struct Fixture<S> {
    pub subject: S,
    pub clock: Arc<ManualClock>,
    pub ids: IdSource,
    pub scope: TenantScope,
    /// A second tenant without any data.
    pub other: TenantScope,
    pub world: WorldId,
    pub npc: NpcId,
    pub player: PlayerId,
    pub node: NodeId,
}

impl<S: LedgerSubject> Fixture<S> {
    pub async fn new() -> Self {
        let clock = ManualClock::starting_at(Utc.with_ymd_and_hms(2031, 5, 4, 12, 0, 0).unwrap());
        let mut random = 0_u128;
        let ids = IdSource::new(
            clock.clone(),
            Box::new(move || {
                random += 1 << 40;
                random
            }),
        );
        Self {
            subject: S::open_empty(clock.clone()).await,
            scope: TenantScope::new("studio".parse().unwrap()),
            other: TenantScope::new("rival".parse().unwrap()),
            world: "vale".parse().unwrap(),
            npc: "mira".parse().unwrap(),
            player: "p7".parse().unwrap(),
            node: ids.next_id(),
            clock,
            ids,
        }
    }

    pub fn ledger(&self) -> &Ledger {
        self.subject.ledger()
    }
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }
    /// Advances the clock by one second.
    pub fn advance_clock(&self) {
        self.clock.advance(Duration::from_secs(1));
    }
    pub fn id<T: GeneratedId>(&self) -> T {
        self.ids.next_id()
    }

    pub fn audit_edit(&self, action: &'static str) -> Edit {
        Edit {
            id: self.id(),
            audit_id: self.id(),
            subject: "designer".to_owned(),
            role: Role::Backend,
            player: None,
            made_at: self.now(),
            action,
            object: "something".to_owned(),
            limits: colloquy::ports::ledger::usage::AuthoredLimits::default(),
        }
    }

    pub fn sample_world(&self, id: &str) -> World {
        World {
            id: id.parse().unwrap(),
            name: format!("World {id}"),
            premise: "a valley of orchards".to_owned(),
            language: Language::Ko,
            rules: vec!["no magic".to_owned()],
            settings: WorldSettings {
                recency_lambda_per_day: Some(0.5),
                ..WorldSettings::default()
            },
            lore_version: 0,
            tenant: colloquy::memory::authored::TenantTier::default(),
            version: 0,
            updated_at: self.now(),
        }
    }

    /// Writes [`Self::sample_world`].
    pub async fn put_world(&self, id: &str) -> World {
        let (world, edit) = (self.sample_world(id), self.audit_edit("world.put"));
        let authored = &self.ledger().authored;
        authored.put_world(&self.scope, &world, None, &edit).await.unwrap();
        world
    }

    pub fn sample_npc(&self, world: &str, id: &str) -> Npc {
        Npc {
            world: world.parse().unwrap(),
            id: id.parse().unwrap(),
            name: "미라".to_owned(),
            persona: Persona {
                description: "keeps the orchard".to_owned(),
                ..Persona::default()
            },
            language: Language::En,
            factions: vec!["guild".parse().unwrap()],
            model: Some("small".to_owned()),
            settings: TierSettings {
                max_hp_delta: Some(7),
                ..TierSettings::default()
            },
            has_scenarios: false,
            has_tells: false,
            version: 0,
            updated_at: self.now(),
        }
    }

    pub fn sample_dialogue(&self) -> Dialogue {
        Dialogue {
            id: self.ids.next_dialogue_id(DialogueKind::Session),
            world: self.world.clone(),
            npcs: vec![self.npc.clone()],
            player: Some(self.player.clone()),
            witnesses: vec!["ergen".parse().unwrap()],
            resume_token_hash: vec![1, 2, 3],
            status: DialogueStatus::Open,
            options: DialogueOptions::default(),
            cause: None,
            created_at: self.now(),
            updated_at: self.now(),
            head_turn: 0,
        }
    }

    /// Creates a dialogue owned by this node.
    pub async fn open_dialogue(&self) -> OpenDialogue {
        let dialogue = self.sample_dialogue();
        self.ledger()
            .dialogues
            .create_dialogue(&self.scope, &dialogue)
            .await
            .unwrap();
        self.claim_dialogue(dialogue.id).await
    }

    pub async fn claim_dialogue(&self, id: DialogueId) -> OpenDialogue {
        let until = self.now() + chrono::Duration::seconds(30);
        match self
            .ledger()
            .dialogues
            .claim_ownership(&self.scope, id, self.node, self.now(), until)
            .await
            .unwrap()
        {
            OwnershipClaim::Owned(open) => *open,
            other => panic!("not owned: {other:?}"),
        }
    }

    pub async fn close_dialogue(&self, id: DialogueId, epoch: u64) {
        let dialogues = &self.ledger().dialogues;
        let closed = dialogues
            .close_dialogue(&self.scope, id, epoch, self.now())
            .await
            .unwrap();
        assert_eq!(closed, OwnerWriteOutcome::Done);
    }

    /// Returns the commit of turn `number`, after `head`, with no state and no jobs.
    pub fn sample_commit(&self, open: &OpenDialogue, number: u32, head: Option<TurnId>) -> TurnCommit {
        let id = self.id();
        TurnCommit {
            epoch: open.epoch,
            expected_head: head,
            replacing: open.replacing,
            turn: Turn {
                id,
                dialogue: open.dialogue.id,
                number,
                status: TurnStatus::Completed,
                player: Some(self.player.clone()),
                player_text: format!("line {number}"),
                npc: self.npc.clone(),
                reply_text: format!("reply {number}: \"그래\""),
                text_version: 1,
                cues: vec!["smile".to_owned()],
                usage: Usage {
                    prompt_tokens: 100,
                    cached_tokens: 40,
                    completion_tokens: 12,
                },
                started_at: self.now(),
                committed_at: self.now(),
                seqs: TurnSeqs {
                    started: u64::from(number) * 3 - 2,
                    done: u64::from(number) * 3 - 1,
                    committed: u64::from(number) * 3,
                },
            },
            key: None,
            key_of: None,
            sealed_reply: None,
            cuts: Vec::new(),
            checkpoint: Checkpoint {
                turn: number,
                buffer_from: 1,
                recently_unlocked: vec![("mira".parse().unwrap(), "well".parse().unwrap(), 5)],
                told_scenarios: vec![("mira".parse().unwrap(), "well".parse().unwrap(), self.now())],
                ..Checkpoint::default()
            },
            trace: sample_trace(self.now(), &format!("line {number}")),
            state: Vec::new(),
            actions: Vec::new(),
            episode: None,
            jobs: Vec::new(),
            next_seq: u64::from(number) * 3 + 1,
        }
    }

    pub fn sample_job(&self, commit: &TurnCommit, kind: JobKind) -> NewJob {
        NewJob {
            id: self.id(),
            kind,
            dialogue: commit.turn.dialogue,
            turn: commit.turn.id,
            text_version: commit.turn.text_version,
            created_at: self.now(),
            leased_to: self.node,
            leased_until: self.now() + chrono::Duration::seconds(120),
            held_until: None,
        }
    }

    pub async fn commit_turn(&self, commit: &TurnCommit) {
        let outcome = self.ledger().turns.commit_turn(&self.scope, commit).await.unwrap();
        assert_eq!(outcome, CommitOutcome::Committed);
    }

    /// Commits a turn in a new dialogue, with one pending job of `kind`.
    pub async fn sample_job_fence(&self, kind: JobKind) -> (DialogueId, JobFence) {
        let open = self.open_dialogue().await;
        let mut commit = self.sample_commit(&open, 1, None);
        let job = self.sample_job(&commit, kind);
        let fence = JobFence {
            job: job.id,
            turn: commit.turn.id,
            text_version: commit.turn.text_version,
        };
        commit.jobs.push(job);
        self.commit_turn(&commit).await;
        (open.dialogue.id, fence)
    }

    /// Returns an audience of this NPC, private to no player.
    pub fn audience(&self) -> Audience {
        Audience {
            knowers: BTreeSet::from([Knower::Npc(self.npc.clone())]),
            private_to: None,
        }
    }

    pub fn viewpoint(&self) -> Viewpoint {
        Viewpoint {
            world: self.world.clone(),
            npc: self.npc.clone(),
            factions: vec!["guild".parse().unwrap()],
            player: Some(self.player.clone()),
            watchers: colloquy::memory::disclosure::audience::Watchers::default(),
            sees_all_players: false,
        }
    }

    pub fn sample_fact(&self, content: &str) -> NewFact {
        NewFact {
            id: self.id(),
            world: self.world.clone(),
            audience: self.audience(),
            statement: Statement {
                subject: "player".to_owned(),
                predicate: "likes".to_owned(),
                object: "grapes".to_owned(),
                content: content.to_owned(),
                keywords: vec!["grape".to_owned()],
                speaker: "player".to_owned(),
                kind: FactKind::Preference,
                importance: Importance::DEFAULT,
                polarity: Polarity::Positive,
                tense: Tense::Present,
                pinned: false,
            },
            valid_at: self.now(),
            locks: colloquy::memory::disclosure::locks::DisclosureLocks::default(),
            expires_at: None,
            cause: Cause::Turn(self.id()),
            source: None,
            derived_from: Vec::new(),
            pii: Vec::new(),
            authored: false,
            embedding: vec![0.6, -0.8, 0.0],
        }
    }

    /// Writes a fact as a manual edit.
    pub async fn create_fact(&self, fact: NewFact) -> FactId {
        let edit = self.audit_edit("fact.create");
        self.ledger()
            .facts
            .create_fact(&self.scope, &fact, false, &edit)
            .await
            .unwrap();
        fact.id
    }

    pub async fn fact(&self, id: FactId) -> Fact {
        self.ledger()
            .facts
            .load_fact(&self.scope, id)
            .await
            .unwrap()
            .expect("a stored fact")
    }

    pub fn sample_invalidation(&self, fact: FactId, reason: InvalidReason, by: Option<FactId>) -> NewInvalidation {
        NewInvalidation {
            id: self.id(),
            fact,
            reason,
            ended_by: by,
            cause: Cause::Turn(self.id()),
            ended_at: self.now(),
            restored_at: None,
        }
    }

    pub async fn memory_seq(&self) -> u64 {
        self.ledger()
            .facts
            .memory_position(&self.scope, &self.world, std::slice::from_ref(&self.npc))
            .await
            .unwrap()
            .seq
    }

    /// Returns an empty reconciliation with an open fence and the current memory version.
    pub async fn sample_plan(&self) -> Reconciliation {
        let (_, fence) = self.sample_job_fence(JobKind::ExtractFacts).await;
        Reconciliation {
            calls: vec![],
            trigger: ReconcileTrigger::Job(fence),
            world: self.world.clone(),
            npcs: vec![self.npc.clone()],
            expected_memory_seq: self.memory_seq().await,
            facts: Vec::new(),
            extractions: Vec::new(),
            invalidations: Vec::new(),
            lifts: Vec::new(),
            flags: Vec::new(),
            flagging: vec![fence.turn],
            flagging_by: Vec::new(),
            episode: None,
            flags_kept: Vec::new(),
            replaced: Vec::new(),
            verdicts: Vec::new(),
            lacks_vectors: false,
        }
    }

    pub async fn reconcile_plan(&self, plan: &Reconciliation) {
        let outcome = self
            .ledger()
            .facts
            .commit_reconciliation(&self.scope, plan)
            .await
            .unwrap();
        assert_eq!(outcome, ReconcileOutcome::Committed);
    }

    /// Writes `fact`, which makes `older` invalid.
    pub async fn learn_fact(&self, fact: NewFact, older: &[(FactId, InvalidReason)]) -> FactId {
        let mut plan = self.sample_plan().await;
        let id = fact.id;
        plan.facts.push(fact);
        for (old, reason) in older {
            plan.invalidations
                .push(self.sample_invalidation(*old, *reason, Some(id)));
        }
        self.reconcile_plan(&plan).await;
        id
    }

    /// Handles the outbox, and returns the facts named there.
    pub async fn drain_outbox(&self) -> Vec<FactId> {
        let rows = self.ledger().facts.load_outbox(1_000).await.unwrap();
        let seqs: Vec<i64> = rows.iter().map(|row| row.seq).collect();
        self.ledger().facts.mark_outbox_done(&seqs).await.unwrap();
        rows.into_iter().map(|row| row.fact).collect()
    }
}

pub fn page(limit: u32, after: Option<String>) -> PageRequest {
    PageRequest { limit, after }
}

pub fn importance(value: u8) -> Importance {
    Importance::new(value).unwrap()
}

pub fn sample_view(content: &str, keywords: &[&str], weight: u8, pinned: bool) -> FoldedFact {
    FoldedFact {
        content: content.to_owned(),
        keywords: keywords.iter().map(|word| (*word).to_owned()).collect(),
        importance: importance(weight),
        pinned,
    }
}

pub fn sample_trace(at: DateTime<Utc>, query: &str) -> TurnTrace {
    TurnTrace {
        traced_at: at,
        key: String::new(),
        intent: Intent::Chat,
        intent_source: "model".to_owned(),
        not_searched: Vec::new(),
        memory_wait: None,
        query: query.to_owned(),
        topic_gate: None,
        candidates: Vec::new(),
        unlisted_facts: 0,
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
        confided: None,
        sections: Vec::new(),
        prompt_tokens: 321,
        unchanged_tokens: Some(210),
        prompt_hash: "00ff".to_owned(),
        sources: None,
        calls: Vec::new(),
        timings: Timings::default(),
        notes: vec!["nothing unusual".to_owned()],
        state_block: false,
    }
}
