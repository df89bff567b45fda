//! Turns, jobs and rewinds that tests hold and release.

use std::{
    collections::HashMap,
    sync::{atomic::AtomicUsize, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::{
    HeardLength,
    use_cases::{Ports, UseCases},
};
use colloquy_core::{
    ids::{DialogueId, NpcId, PlayerId, TurnId},
    scope::TenantScope,
};
use colloquy_dialogue::{
    events::{MemoryChange, MemoryOp, ReplyDone},
    jobs::{JobError, JobReport},
    knowledge::scenarios::{ScenarioUnlock, UnlockTrigger},
    npc_conversation::{ListeningNpc, SceneMember, next_speaker},
    preview::Preview,
    requester::{Requester, Requesters},
    rewind::{AppliedRewind, OwnedDialogue, RewindError, RewindResponse, RewindTarget},
    saves::RestoreRequest,
    turn::{CommittedTurn, Cut, PartialReply, TurnError, TurnFeed, TurnInput},
};
use colloquy_memory::{
    authored::World,
    trace::TurnTrace,
    turn::{Intent, Turn, TurnSeqs, TurnStatus, Usage},
};
use colloquy_ports::{
    StoreError,
    buffer::BufferedTurn,
    ledger::{
        audit::Edit,
        dialogues::{CommitOutcome, Dialogue, NextSpeaker, Playback, TurnCommit},
        jobs::{Job, JobKind, NewJob},
        rewinds::{LiveCut, Replacement, RewindCommit, RewindCommitResult},
        saves::{RestoreCommit, RestoreOutcome},
        usage::{OverBudget, UsageDelta},
    },
    llm::LlmError,
};

/// Turns and jobs under the control of the tests. After its first delta, a turn whose line begins with `hold` waits for
/// `go` or a cut, and `hold on` for both. `panic` panics there; `fail` fails like a model. The job after `nothing new` is
/// a summary, and after any other line an extraction.
pub struct FakeUseCases {
    pub ports: Ports,
    pub go: Semaphore,
    /// Jobs wait for a permit when `hold_jobs` is set.
    pub job_go: Semaphore,
    pub hold_jobs: Mutex<bool>,
    pub with_jobs: Mutex<bool>,
    /// Length of the leases of a turn's jobs.
    pub leased_for: Mutex<Duration>,
    /// Makes every turn fail like a model.
    pub fail_turns: Mutex<bool>,
    /// Makes failing turns fail for a budget, and not for a slow model.
    pub over_budget: Mutex<Option<OverBudget>>,
    /// Lines, in the order of their turns' starts.
    pub spoken: Mutex<Vec<String>>,
    /// The cut requests of the latest turn.
    pub cut: Mutex<Option<watch::Receiver<Option<Cut>>>>,
    pub memory_waits: Mutex<Vec<f64>>,
    pub charged_players: Mutex<Vec<Option<PlayerId>>>,
    /// Jobs, in the order of their ends.
    pub jobs: Mutex<Vec<(DialogueId, Job)>>,
    /// Remaining failures of each dialogue's jobs.
    pub failures: Mutex<HashMap<DialogueId, u32>>,
    /// Jobs that panic before any other job runs.
    pub panicking_jobs: AtomicUsize,
    pub running_jobs: AtomicUsize,
    pub most_running_jobs: AtomicUsize,
    pub usage: Mutex<Vec<(TenantScope, UsageDelta)>>,
    /// The targets of rewinds, in order.
    pub rewinds: Mutex<Vec<RewindTarget>>,
    /// Makes rewinds wait for a permit of `rewind_go`.
    pub hold_rewinds: Mutex<bool>,
    /// Makes the answers of rewinds wait for a permit of `rewind_go`, when the ledger has the rewinds.
    pub hold_rewind_answers: Mutex<bool>,
    /// Makes rewinds fail when the ledger has them: only the next load tells their outcome.
    pub lose_rewind_answers: Mutex<bool>,
    pub durable_rewinds: AtomicUsize,
    pub rewind_go: Semaphore,
    pub settled: AtomicUsize,
    /// Next speakers for a model to choose; every answer is used once.
    pub next_speakers: Mutex<Vec<NpcId>>,
    /// Makes the choosing model hang.
    pub hold_speakers: Mutex<bool>,
    pub speakers_asked: AtomicUsize,
}

fn empty_trace(at: DateTime<Utc>) -> TurnTrace {
    TurnTrace {
        traced_at: at,
        intent_source: "test".into(),
        ..TurnTrace::default()
    }
}

impl FakeUseCases {
    /// Returns the turns of the jobs so far, in the order in which the jobs ran.
    pub fn turns_of_jobs(&self) -> Vec<TurnId> {
        self.jobs.lock().iter().map(|(_, job)| job.turn).collect()
    }

    /// Returns the last turn as it was before a heard length cut it, or the last line if cut while running.
    async fn sealed_reply(&self, owned: &OwnedDialogue) -> Result<Result<TurnId, PartialReply>, RewindError> {
        let head = owned.head.ok_or(RewindError::NothingToResume)?;
        let (ledger, now) = (&self.ports.ledger, self.ports.clock.now());
        let sealed = ledger.rewinds.load_sealed_reply(&owned.scope, head, now).await?;
        let sealed = sealed.ok_or(RewindError::NothingToResume)?;
        if let Some(whole) = sealed.whole {
            return Ok(Ok(whole));
        }
        let of = ledger.dialogues.load_turn(&owned.scope, head).await?;
        Ok(Err(PartialReply {
            key: sealed.key,
            until: sealed.until,
            ..PartialReply::from_text(of.ok_or(RewindError::NothingToResume)?.turn, sealed.text)
        }))
    }

    /// Returns turn `number` cut at `heard`, unless the whole reply was heard.
    async fn cut_replacement(
        &self,
        owned: &OwnedDialogue,
        number: u32,
        heard: HeardLength,
    ) -> Result<Option<Replacement>, RewindError> {
        let (ledger, now) = (&self.ports.ledger, self.ports.clock.now());
        let turns = ledger.dialogues.load_turns(&owned.scope, owned.id, number, number);
        let Some(of) = turns.await?.pop() else {
            return Ok(None);
        };
        let heard = heard.to_scalar_count(&of.reply_text);
        if of.reply_text.len() <= heard {
            return Ok(None);
        }
        let turn = Turn {
            id: self.ports.ids.next_id(),
            status: TurnStatus::Interrupted,
            reply_text: of.reply_text[..heard].to_owned(),
            ..of.clone()
        };
        let seal = Duration::from_secs(self.ports.settings.turn.seal_s.into());
        Ok(Some(Replacement {
            replaced_turn: of.id,
            jobs: vec![NewJob {
                id: self.ports.ids.next_id(),
                kind: JobKind::ExtractFacts,
                dialogue: turn.dialogue,
                turn: turn.id,
                text_version: turn.text_version,
                created_at: now,
                leased_to: owned.node,
                leased_until: now,
                held_until: Some(now + self.ports.settings.turn.cut_hold()),
            }],
            sealed_reply: Some((of.reply_text, now + seal)),
            turn,
        }))
    }

    fn cuts_of(&self, turn: &Turn, cut: Option<Cut>) -> Vec<LiveCut> {
        let (ids, at) = (&self.ports.ids, turn.committed_at);
        let cut_by = |by: Requester| LiveCut {
            id: ids.next_id(),
            edit: by.audit_edit(ids, at, turn.dialogue),
            key: by.key,
        };
        cut.unwrap_or_default().requesters.into_iter().map(cut_by).collect()
    }

    fn jobs_of(&self, input: &TurnInput, status: TurnStatus, was_cut: bool, now: DateTime<Utc>) -> Vec<NewJob> {
        if !*self.with_jobs.lock() {
            return Vec::new();
        }
        let settings = &self.ports.settings.turn;
        let hold = match input.dialogue.options.playback {
            _ if was_cut => Some(settings.cut_hold_s).filter(|hold| *hold > 0),
            Playback::Ack if status != TurnStatus::Interrupted => Some(settings.playback_timeout_s),
            _ => None,
        };
        let kind = if input.line == "nothing new" {
            JobKind::Summarise
        } else {
            JobKind::ExtractFacts
        };
        vec![NewJob {
            id: self.ports.ids.next_id(),
            kind,
            dialogue: input.dialogue.id,
            turn: input.id,
            text_version: 1,
            created_at: now,
            leased_to: input.node,
            leased_until: now + *self.leased_for.lock(),
            held_until: hold.map(|hold| now + Duration::from_secs(hold.into())),
        }]
    }

    async fn commit_turn(
        &self,
        input: TurnInput,
        feed: &dyn TurnFeed,
        cut: Option<Cut>,
    ) -> Result<CommittedTurn, TurnError> {
        let status = match cut {
            Some(_) => TurnStatus::Interrupted,
            None => TurnStatus::Completed,
        };
        let reply_text = fake_reply(&input, cut.as_ref());
        let done = feed.send_done(ReplyDone {
            turn: input.number,
            npc_id: input.npc.id.clone(),
            text: reply_text.clone(),
            status,
            usage: Usage::default(),
            cues: Vec::new(),
            error: None,
        });
        let committed = feed.reserve_committed();
        if input.line.starts_with("commit later") {
            self.go.acquire().await.unwrap().forget();
        }
        let now = self.ports.clock.now();
        let turn = Turn {
            id: input.id,
            dialogue: input.dialogue.id,
            number: input.number,
            status,
            player: input.player.clone(),
            player_text: input.line.clone(),
            npc: input.npc.id.clone(),
            reply_text,
            text_version: 1,
            cues: Vec::new(),
            usage: Usage::default(),
            started_at: input.started_at,
            committed_at: now,
            seqs: TurnSeqs {
                started: input.started_seq,
                done,
                committed,
            },
        };
        let mut checkpoint = input.checkpoint.clone();
        checkpoint.turn = input.number;
        checkpoint.has_ended = input
            .scene
            .as_ref()
            .is_some_and(|scene| scene.topic.as_deref() == Some("conclude at 2") && input.number == 2);
        let was_cut = cut.as_ref().is_some_and(|cut| !cut.requesters.is_empty());
        let jobs = self.jobs_of(&input, status, was_cut, now);
        let commit = TurnCommit {
            epoch: input.epoch,
            expected_head: input.previous,
            replacing: input.replacing,
            turn: turn.clone(),
            key: input.key.clone(),
            key_of: input.continuation.as_ref().map(|unfinished| unfinished.turn.id),
            sealed_reply: cut.as_ref().map(|_| {
                let seal = self.ports.settings.turn.seal_s;
                let until = now + Duration::from_secs(seal.into());
                (format!("{} and more.", turn.reply_text), until)
            }),
            cuts: self.cuts_of(&turn, cut),
            checkpoint: checkpoint.clone(),
            trace: empty_trace(now),
            state: Vec::new(),
            actions: Vec::new(),
            episode: None,
            jobs: jobs.clone(),
            next_seq: committed + 1,
        };
        match self.ports.ledger.turns.commit_turn(&input.scope, &commit).await? {
            CommitOutcome::Committed => Ok(CommittedTurn {
                turn,
                checkpoint,
                unlocking: input
                    .player
                    .filter(|_| input.line == "unlock")
                    .map(|player| UnlockTrigger {
                        scope: input.scope,
                        world: input.world,
                        npc: input.npc,
                        player,
                        changed_at: now,
                    }),
                state: Vec::new(),
                jobs: jobs
                    .iter()
                    .filter(|job| job.held_until.is_none())
                    .map(Job::from)
                    .collect(),
                was_cut,
                cut_keys: commit.cuts.iter().filter_map(|cut| cut.key.clone()).collect(),
            }),
            CommitOutcome::Fenced => Err(TurnError::Fenced),
            CommitOutcome::Closed => Err(TurnError::Closed),
            CommitOutcome::KeyTaken => Err(TurnError::KeyTaken),
        }
    }
}

/// Returns the NPC's reply to a line, up to the cut.
fn fake_reply(input: &TurnInput, cut: Option<&Cut>) -> String {
    let reply_text = match (&input.continuation, &input.player) {
        (Some(unfinished), _) => format!("{} And on.", unfinished.text),
        (None, Some(_)) => format!("You said {}", input.line),
        (None, None) => format!("{} says {}", input.npc.name, input.number),
    };
    match cut.and_then(|cut| cut.heard_chars) {
        Some(heard) => reply_text.chars().take(heard).collect(),
        None => reply_text,
    }
}

#[async_trait]
impl UseCases for FakeUseCases {
    async fn run_turn(
        &self,
        input: TurnInput,
        feed: &dyn TurnFeed,
        mut cut: watch::Receiver<Option<Cut>>,
    ) -> Result<CommittedTurn, TurnError> {
        self.memory_waits.lock().push(input.memory_wait_ms);
        self.charged_players.lock().push(input.charged_player.clone());
        let topic = input.scene.as_ref().and_then(|scene| scene.topic.clone());
        let line = topic
            .filter(|_| input.player.is_none())
            .unwrap_or_else(|| input.line.clone());
        if !line.starts_with("hold back") {
            feed.send_delta(input.number, 0, &input.npc.id, "You ");
        }
        *self.cut.lock() = Some(cut.clone());
        self.spoken.lock().push(line.clone());
        let mut was_cut = None;
        if line.starts_with("hold") {
            tokio::select! {
                permit = self.go.acquire() => permit.unwrap().forget(),
                asked = cut.wait_for(Option::is_some) => drop(asked),
            }
            if line.starts_with("hold on") {
                self.go.acquire().await.unwrap().forget();
            }
            was_cut = cut.borrow().clone();
            if line.starts_with("hold back") && was_cut.is_some() {
                return Err(TurnError::CutBeforeReply);
            }
        }
        assert!(!line.starts_with("panic"), "a test asked for it");
        if line.starts_with("fail") || *self.fail_turns.lock() {
            feed.send_done(ReplyDone {
                turn: input.number,
                npc_id: input.npc.id.clone(),
                text: String::new(),
                status: TurnStatus::Failed,
                usage: Usage::default(),
                cues: Vec::new(),
                error: None,
            });
            return Err(match *self.over_budget.lock() {
                Some(over) => over.into(),
                None => TurnError::Model(LlmError::Timeout),
            });
        }
        self.commit_turn(input, feed, was_cut).await
    }

    async fn next_speaker(
        &self,
        _: &TenantScope,
        dialogue: &Dialogue,
        _: &World,
        cast: &[SceneMember],
        history: &[BufferedTurn],
    ) -> Option<NpcId> {
        if dialogue.options.next_speaker == NextSpeaker::Rule {
            return next_speaker(cast, history);
        }
        self.speakers_asked.fetch_add(1, Relaxed);
        let hangs = *self.hold_speakers.lock();
        if hangs {
            std::future::pending::<()>().await;
        }
        let named = self.next_speakers.lock().pop();
        named.or_else(|| next_speaker(cast, history))
    }
    async fn living_members(
        &self,
        _: &TenantScope,
        _: &World,
        cast: &[SceneMember],
    ) -> Result<Vec<SceneMember>, StoreError> {
        Ok(cast.to_vec())
    }
    async fn find_nicknamed_npc(
        &self,
        _: &TenantScope,
        _: &World,
        _: &[ListeningNpc],
        _: &str,
    ) -> Result<Option<NpcId>, StoreError> {
        Ok(None)
    }
    async fn preview_prompt(&self, input: &TurnInput, intent: Option<Intent>) -> Result<Preview, TurnError> {
        Ok(Preview {
            intent: intent.unwrap_or(Intent::Chat),
            prompt_tokens: input.number,
            prompt_hash: input.line.clone(),
            ..Preview::default()
        })
    }

    async fn run_job(&self, scope: &TenantScope, job: &Job) -> Result<JobReport, JobError> {
        let running = self.running_jobs.fetch_add(1, Relaxed) + 1;
        self.most_running_jobs.fetch_max(running, Relaxed);
        if *self.hold_jobs.lock() {
            self.job_go.acquire().await.unwrap().forget();
        }
        self.running_jobs.fetch_sub(1, Relaxed);
        let panics = self
            .panicking_jobs
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        assert!(panics.is_err(), "a test asked for it");
        if let Some(left) = self.failures.lock().get_mut(&job.dialogue)
            && *left > 0
        {
            *left -= 1;
            return Err(JobError::Unusable("nonsense".into()));
        }
        let turn = self.ports.ledger.dialogues.load_turn(scope, job.turn).await?;
        self.ports.ledger.jobs.finish_job(scope, job.id, &[]).await?;
        self.jobs.lock().push((job.dialogue, job.clone()));
        Ok(JobReport {
            turn: turn.map_or(0, |found| found.turn.number),
            memory: vec![MemoryChange {
                id: self.ports.ids.next_id(),
                content: "a fact".into(),
                op: MemoryOp::Added,
            }],
            ..JobReport::default()
        })
    }

    async fn rewind_dialogue(
        &self,
        owned: OwnedDialogue,
        target: RewindTarget,
        requesters: Requesters,
    ) -> Result<RewindResponse, RewindError> {
        self.rewinds.lock().push(target);
        if *self.hold_rewinds.lock() {
            self.rewind_go.acquire().await.unwrap().forget();
        }
        let ledger = &self.ports.ledger;
        let at = async |number| -> Result<Option<TurnId>, RewindError> {
            let turns = ledger.dialogues.load_turns(&owned.scope, owned.id, number, number);
            Ok(turns.await?.first().map(|turn| turn.id))
        };
        let (mut unfinished, mut replacement) = (None, None);
        let to = match target {
            RewindTarget::Turn { number, heard } => {
                if let Some(heard) = heard {
                    replacement = self.cut_replacement(&owned, number, heard).await?;
                }
                at(number - u32::from(replacement.is_some())).await?
            }
            RewindTarget::Regenerate { number } | RewindTarget::GoOn { number } => at(number).await?,
            RewindTarget::Reinstate { turn } => Some(turn),
            RewindTarget::Resume { .. } => match self.sealed_reply(&owned).await? {
                Ok(whole) => Some(whole),
                Err(cut_reply) => {
                    unfinished = Some(cut_reply);
                    at(owned.head_turn - 1).await?
                }
            },
        };
        let now = self.ports.clock.now();
        let hold = self.ports.settings.turn.cut_hold();
        let draft = owned.draft_rewind(&self.ports.ids, now, target, &requesters);
        let rewind = RewindCommit {
            to,
            replacement,
            replacing: draft.replacing.or(owned.head.filter(|_| unfinished.is_some())),
            held_until: draft.held_until.map(|until| until + hold),
            ..draft
        };
        let committed = ledger.rewinds.commit_rewind(&owned.scope, &rewind).await?;
        self.durable_rewinds.fetch_add(1, Relaxed);
        if *self.hold_rewind_answers.lock() {
            self.rewind_go.acquire().await.unwrap().forget();
        }
        if *self.lose_rewind_answers.lock() {
            return Err(StoreError::Disconnected("a test asked for it".to_owned()).into());
        }
        match committed {
            RewindCommitResult::Done(rewound) => Ok(RewindResponse::Done(Box::new(AppliedRewind {
                rewound,
                replacement: rewind.replacement.map(|replacement| replacement.turn),
                intent: None,
                unfinished,
            }))),
            RewindCommitResult::Repeated(outcome) => Ok(RewindResponse::Repeated(outcome)),
            RewindCommitResult::Fenced => Err(RewindError::Fenced),
            RewindCommitResult::Closed => Err(RewindError::Closed),
            RewindCommitResult::NoSuchTurn | RewindCommitResult::Joined => Err(RewindError::NothingToResume),
        }
    }

    async fn restore_world(&self, request: RestoreRequest) -> Result<RestoreOutcome, StoreError> {
        let (ids, now) = (&self.ports.ids, self.ports.clock.now());
        let restore = RestoreCommit {
            edit: Edit::made_by(&request.who, ids, now, "save.restore", request.save),
            world: request.world,
            save: request.save,
            key: request.key,
            seq_gap: request.seq_gap,
        };
        self.ports.ledger.saves.restore_save(&request.scope, &restore).await
    }

    async fn relay_outbox(&self) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn embed_backlog(&self) -> Vec<TenantScope> {
        Vec::new()
    }

    async fn reconcile_dirty(&self, _: &TenantScope) -> Result<usize, JobError> {
        self.settled.fetch_add(1, Relaxed);
        Ok(0)
    }

    async fn queue_due_consolidations(&self, _: &TenantScope) -> Result<u32, StoreError> {
        Ok(0)
    }

    async fn find_newly_unlocked(&self, unlocking: &UnlockTrigger) -> Vec<ScenarioUnlock> {
        self.go.acquire().await.unwrap().forget();
        vec![ScenarioUnlock {
            scenario: "well".parse().unwrap(),
            title: "The well".to_owned(),
            npc: unlocking.npc.id.clone(),
        }]
    }
    fn take_usage(&self) -> Vec<(TenantScope, UsageDelta)> {
        std::mem::take(&mut *self.usage.lock())
    }
}
