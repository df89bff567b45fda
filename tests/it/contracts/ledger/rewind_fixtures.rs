//! Dialogues with turns, for the tests of rewinds.

use std::{collections::BTreeMap, sync::Arc};

use colloquy::{
    ids::{DialogueId, FactId, TurnId},
    memory::{
        fact::{Cause, InvalidReason},
        state::StateChange,
        turn::{Turn, TurnStatus},
    },
    ports::ledger::{
        dialogues::{OpenDialogue, TurnCommit},
        facts::{ReconcileTrigger, Reconciliation},
        jobs::{JobFence, JobKind, NewJob},
        rewinds::{Replacement, RewindCommit, RewindCommitResult, RewindOrigin, RewindRecord},
        state::NewStateChange,
    },
};

use super::{LedgerSubject, fixture::Fixture};

/// A dialogue in which every turn moved the player. The extraction of every turn is still pending.
pub(super) struct RewindFixture {
    pub open: OpenDialogue,
    pub turns: Vec<Turn>,
    pub extractions: Vec<NewJob>,
}

pub(super) async fn dialogue_with_turns<S: LedgerSubject>(f: &Fixture<S>, turns: u32) -> RewindFixture {
    let open = f.open_dialogue().await;
    let mut told = RewindFixture {
        open,
        turns: Vec::new(),
        extractions: Vec::new(),
    };
    for number in 1..=turns {
        told.commit_turn(f, number).await;
    }
    told
}

impl RewindFixture {
    pub(super) async fn commit_turn<S: LedgerSubject>(&mut self, f: &Fixture<S>, number: u32) {
        f.advance_clock();
        let commit = self.turn_commit(f, number);
        f.commit_turn(&commit).await;
        self.extractions.push(commit.jobs[0].clone());
        self.turns.push(commit.turn);
    }

    pub(super) fn turn_commit<S: LedgerSubject>(&self, f: &Fixture<S>, number: u32) -> TurnCommit {
        let head = self.turns.last().map(|turn| turn.id);
        let mut commit = f.sample_commit(&self.open, number, head);
        commit.key = Some(format!("key {number}"));
        commit.jobs = vec![f.sample_job(&commit, JobKind::ExtractFacts)];
        commit.state = vec![NewStateChange {
            id: f.id(),
            world: f.world.clone(),
            dialogue: Some(self.open.dialogue.id),
            change: StateChange::Location {
                who: "player".to_owned(),
                to: format!("place {number}"),
            },
            cause: Cause::Turn(commit.turn.id),
            changed_at: f.now(),
        }];
        commit
    }

    pub(super) fn id(&self) -> DialogueId {
        self.open.dialogue.id
    }

    pub(super) fn turn(&self, number: usize) -> TurnId {
        self.turns[number - 1].id
    }

    /// Writes the fact that turn `number` taught, and ends the older facts.
    pub(super) async fn learn_fact<S: LedgerSubject>(
        &self,
        f: &Fixture<S>,
        number: usize,
        content: &str,
        ended: &[FactId],
    ) -> FactId {
        let plan = self.fact_plan(f, number, content, ended).await;
        f.reconcile_plan(&plan).await;
        plan.facts[0].id
    }

    pub(super) async fn fact_plan<S: LedgerSubject>(
        &self,
        f: &Fixture<S>,
        number: usize,
        content: &str,
        ended: &[FactId],
    ) -> Reconciliation {
        let job = &self.extractions[number - 1];
        let mut plan = f.sample_plan().await;
        plan.trigger = ReconcileTrigger::Job(JobFence {
            job: job.id,
            turn: job.turn,
            text_version: 1,
        });
        plan.flagging = vec![job.turn];
        let mut fact = f.sample_fact(content);
        fact.cause = Cause::Turn(job.turn);
        for older in ended {
            let mut row = f.sample_invalidation(*older, InvalidReason::Superseded, Some(fact.id));
            row.cause = Cause::Turn(job.turn);
            plan.invalidations.push(row);
        }
        plan.facts.push(fact);
        plan
    }

    pub(super) fn rewind_request_to<S: LedgerSubject>(&self, f: &Fixture<S>, to: Option<TurnId>) -> RewindCommit {
        RewindCommit {
            id: f.id(),
            rewound_at: f.now(),
            dialogue: self.id(),
            world: self.open.dialogue.world.clone(),
            epoch: self.open.epoch,
            origin: RewindOrigin::Request,
            to,
            replacement: None,
            replacing: None,
            paused: None,
            held_until: None,
            key: None,
            other_keys: Vec::new(),
            seq: 100,
            edits: vec![f.audit_edit("session.rewind")],
        }
    }

    /// Cuts the last turn to `heard`, and returns the turn in its place.
    pub(super) async fn cut_turn<S: LedgerSubject>(&mut self, f: &Fixture<S>, whole: &Turn, heard: &str) -> TurnId {
        let turn = Turn {
            id: f.id(),
            status: TurnStatus::Interrupted,
            reply_text: heard.to_owned(),
            ..whole.clone()
        };
        let id = turn.id;
        let before = self.turns.iter().find(|turn| turn.number + 1 == whole.number);
        let rewind = RewindCommit {
            replacement: Some(Replacement {
                replaced_turn: whole.id,
                turn,
                jobs: Vec::new(),
                sealed_reply: Some((whole.reply_text.clone(), f.now() + chrono::Duration::seconds(30))),
            }),
            ..self.rewind_request_to(f, before.map(|turn| turn.id))
        };
        self.rewind(f, &rewind).await;
        id
    }

    pub(super) async fn rewind<S: LedgerSubject>(&mut self, f: &Fixture<S>, rewind: &RewindCommit) -> RewindRecord {
        f.advance_clock();
        match f.ledger().rewinds.commit_rewind(&f.scope, rewind).await.unwrap() {
            RewindCommitResult::Done(rewound) => {
                assert_eq!(rewound.epoch, self.open.epoch + 1);
                self.open.epoch = rewound.epoch;
                Arc::unwrap_or_clone(rewound)
            }
            other => panic!("not moved: {other:?}"),
        }
    }

    pub(super) async fn rewind_to<S: LedgerSubject>(&mut self, f: &Fixture<S>, to: Option<TurnId>) -> RewindRecord {
        let rewind = self.rewind_request_to(f, to);
        self.rewind(f, &rewind).await
    }

    /// Returns the whole visible state of the dialogue, including ids.
    pub(super) async fn visible_state<S: LedgerSubject>(
        &self,
        f: &Fixture<S>,
        facts: &[FactId],
    ) -> BTreeMap<&'static str, String> {
        let ledger = f.ledger();
        let mut shown = Vec::new();
        for fact in facts {
            let fact = f.fact(*fact).await;
            shown.push((fact.id, fact.view, fact.invalid.is_none()));
        }
        let (scope, id) = (&f.scope, self.id());
        BTreeMap::from([
            (
                "turns",
                format!("{:?}", ledger.dialogues.load_turns(scope, id, 1, 99).await.unwrap()),
            ),
            ("facts", format!("{shown:?}")),
            (
                "summaries",
                format!("{:?}", ledger.summaries.load_summaries(scope, id).await.unwrap()),
            ),
            (
                "state",
                format!(
                    "{:?}",
                    ledger
                        .state
                        .load_changes_since(scope, &f.world, 0)
                        .await
                        .unwrap()
                        .changes
                ),
            ),
            (
                "jobs",
                ledger.jobs.count_pending_jobs(scope, id).await.unwrap().to_string(),
            ),
            (
                "head",
                ledger
                    .dialogues
                    .load_dialogue(scope, id)
                    .await
                    .unwrap()
                    .unwrap()
                    .head_turn
                    .to_string(),
            ),
        ])
    }
}
