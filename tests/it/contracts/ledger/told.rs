//! Dialogues of which something was told, for the tests of what takes turns back.

use std::collections::BTreeMap;

use colloquy::{
    ids::{DialogueId, FactId, TurnId},
    memory::{
        fact::{Cause, InvalidReason},
        state::StateChange,
        turn::{Turn, TurnStatus},
    },
    ports::ledger::{
        dialogues::{OpenDialogue, TurnCommit},
        facts::{Reconciliation, Writing},
        jobs::{JobFence, JobKind, NewJob},
        rewinds::{Replacement, Rewind, RewindOutcome, Rewound},
        state::NewStateChange,
    },
};

use super::{Subject, fixture::Fixture};

/// A dialogue in which every turn moved the player, with the extraction of each still pending.
pub(super) struct Told {
    pub open: OpenDialogue,
    pub turns: Vec<Turn>,
    pub extractions: Vec<NewJob>,
}

pub(super) async fn told<S: Subject>(f: &Fixture<S>, turns: u32) -> Told {
    let open = f.open().await;
    let mut told = Told {
        open,
        turns: Vec::new(),
        extractions: Vec::new(),
    };
    for number in 1..=turns {
        told.say(f, number).await;
    }
    told
}

impl Told {
    pub(super) async fn say<S: Subject>(&mut self, f: &Fixture<S>, number: u32) {
        f.tick();
        let commit = self.commit(f, number);
        f.commit(&commit).await;
        self.extractions.push(commit.jobs[0].clone());
        self.turns.push(commit.turn);
    }

    pub(super) fn commit<S: Subject>(&self, f: &Fixture<S>, number: u32) -> TurnCommit {
        let head = self.turns.last().map(|turn| turn.id);
        let mut commit = f.a_commit(&self.open, number, head);
        commit.key = Some(format!("key {number}"));
        commit.jobs = vec![f.a_job(&commit, JobKind::ExtractFacts)];
        commit.state = vec![NewStateChange {
            id: f.id(),
            world: f.world.clone(),
            dialogue: Some(self.open.dialogue.id),
            change: StateChange::Location {
                who: "player".to_owned(),
                to: format!("place {number}"),
            },
            cause: Cause::Turn(commit.turn.id),
            at: f.now(),
        }];
        commit
    }

    pub(super) fn id(&self) -> DialogueId {
        self.open.dialogue.id
    }

    pub(super) fn turn(&self, number: usize) -> TurnId {
        self.turns[number - 1].id
    }

    /// What turn `number` taught, and what that ended.
    pub(super) async fn learn<S: Subject>(
        &self,
        f: &Fixture<S>,
        number: usize,
        content: &str,
        ended: &[FactId],
    ) -> FactId {
        let plan = self.plan(f, number, content, ended).await;
        f.reconcile(&plan).await;
        plan.facts[0].id
    }

    pub(super) async fn plan<S: Subject>(
        &self,
        f: &Fixture<S>,
        number: usize,
        content: &str,
        ended: &[FactId],
    ) -> Reconciliation {
        let job = &self.extractions[number - 1];
        let mut plan = f.a_plan().await;
        plan.writing = Writing::Job(JobFence {
            job: job.id,
            turn: job.turn,
            text_version: 1,
        });
        plan.flagging = vec![job.turn];
        let mut fact = f.a_fact(content);
        fact.cause = Cause::Turn(job.turn);
        for older in ended {
            let mut row = f.an_invalidation(*older, InvalidReason::Superseded, Some(fact.id));
            row.cause = Cause::Turn(job.turn);
            plan.invalidations.push(row);
        }
        plan.facts.push(fact);
        plan
    }

    pub(super) fn move_to<S: Subject>(&self, f: &Fixture<S>, to: Option<TurnId>) -> Rewind {
        Rewind {
            id: f.id(),
            dialogue: self.id(),
            world: self.open.dialogue.world.clone(),
            epoch: self.open.epoch,
            closed_too: false,
            to,
            replacement: None,
            replacing: None,
            paused: None,
            key: None,
            also: Vec::new(),
            unless_joined: None,
            others: Vec::new(),
            seq: 100,
            edit: f.edit("session.rewind"),
        }
    }

    /// Cuts the last turn to `heard`; the turn that stands in its place.
    pub(super) async fn cut<S: Subject>(&mut self, f: &Fixture<S>, whole: &Turn, heard: &str) -> TurnId {
        let turn = Turn {
            id: f.id(),
            status: TurnStatus::Interrupted,
            reply_text: heard.to_owned(),
            ..whole.clone()
        };
        let id = turn.id;
        let before = self.turns.iter().find(|turn| turn.number + 1 == whole.number);
        let rewind = Rewind {
            replacement: Some(Replacement {
                of: whole.id,
                turn,
                jobs: Vec::new(),
                uncut: Some((whole.reply_text.clone(), f.now() + chrono::Duration::seconds(30))),
            }),
            ..self.move_to(f, before.map(|turn| turn.id))
        };
        self.rewind(f, &rewind).await;
        id
    }

    pub(super) async fn rewind<S: Subject>(&mut self, f: &Fixture<S>, rewind: &Rewind) -> Rewound {
        f.tick();
        match f.ledger().rewinds.rewind(&f.scope, rewind).await.unwrap() {
            RewindOutcome::Done(rewound) => {
                assert_eq!(rewound.epoch, self.open.epoch + 1);
                self.open.epoch = rewound.epoch;
                *rewound
            }
            other => panic!("not moved: {other:?}"),
        }
    }

    pub(super) async fn back<S: Subject>(&mut self, f: &Fixture<S>, to: Option<TurnId>) -> Rewound {
        let rewind = self.move_to(f, to);
        self.rewind(f, &rewind).await
    }

    /// Everything that can be seen of it, ids included.
    pub(super) async fn seen<S: Subject>(&self, f: &Fixture<S>, facts: &[FactId]) -> BTreeMap<&'static str, String> {
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
                format!("{:?}", ledger.dialogues.turns(scope, id, 1, 99).await.unwrap()),
            ),
            ("facts", format!("{shown:?}")),
            (
                "summaries",
                format!("{:?}", ledger.summaries.kept(scope, id).await.unwrap()),
            ),
            (
                "state",
                format!("{:?}", ledger.state.since(scope, &f.world, 0).await.unwrap().changes),
            ),
            ("jobs", ledger.jobs.pending(scope, id).await.unwrap().to_string()),
            (
                "head",
                ledger
                    .dialogues
                    .get(scope, id)
                    .await
                    .unwrap()
                    .unwrap()
                    .head_turn
                    .to_string(),
            ),
        ])
    }
}
