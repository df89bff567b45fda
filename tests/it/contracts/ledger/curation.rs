//! Curation passes, their findings and decisions.

use std::collections::BTreeMap;

use colloquy::{
    memory::{
        curation::{CurationPass, Decision, Finding, FindingKind, PassMethod, StandingDecision},
        disclosure::locks::DisclosureLocks,
        state::StateChange,
        timeline::JudgeBudgetShare,
    },
    ports::ledger::{
        PruneBefore,
        curation::{
            CarriedCuration, CarriedSentence, DialogueCuration, FindingFilter, ModelDecision, PassCommit,
            PersonDecision, PlayerPasses,
        },
        facts::Extraction,
        jobs::{JobFence, JobKind},
        state::NewStateChange,
    },
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
    rewind_fixtures::{RewindFixture, dialogue_with_turns},
    saves::put_default_world,
};

/// Returns a finding of turn `number` with the model's decision.
fn sample_finding<S: LedgerSubject>(
    f: &Fixture<S>,
    told: &RewindFixture,
    number: usize,
    decision: Decision,
) -> Finding {
    let turn = &told.turns[number - 1];
    Finding {
        id: f.id(),
        world: f.world.clone(),
        dialogue: turn.dialogue,
        kind: FindingKind::Contradiction,
        text: format!("\"안나\" is dead, and speaks in turn {number}."),
        turns: vec![turn.number],
        found_at: turn.committed_at,
        decided: StandingDecision {
            decision,
            reason: "Nobody noticed.".to_owned(),
            decided_by: None,
            decided_at: turn.committed_at,
        },
    }
}

/// Returns a pass over these turns, by the extraction job of the last turn.
pub(super) fn sample_pass<S: LedgerSubject>(f: &Fixture<S>, told: &RewindFixture, turns: (u32, u32)) -> PassCommit {
    let at = turns.1 as usize - 1;
    let (turn, job) = (&told.turns[at], &told.extractions[at]);
    PassCommit {
        fence: JobFence {
            job: job.id,
            turn: turn.id,
            text_version: turn.text_version,
        },
        cause: turn.id,
        calls: vec![],
        player: Some(f.player.clone()),
        pass: CurationPass {
            id: f.id(),
            world: f.world.clone(),
            dialogue: turn.dialogue,
            from_turn: turns.0,
            to_turn: turns.1,
            method: PassMethod::Edits,
            steps: 2,
            memory: format!("notes up to {}", turns.1),
            last_turn_at: turn.committed_at,
        },
        findings: vec![],
        decisions: vec![],
        insights: vec![],
    }
}

/// Returns a pass over these turns, with findings of turns.
pub(super) fn pass_with<S: LedgerSubject>(
    f: &Fixture<S>,
    told: &RewindFixture,
    turns: (u32, u32),
    findings: &[(usize, Decision)],
) -> PassCommit {
    let mut commit = sample_pass(f, told, turns);
    for (number, decision) in findings {
        let mut finding = sample_finding(f, told, *number, *decision);
        finding.found_at = commit.pass.last_turn_at;
        finding.decided.decided_at = commit.pass.last_turn_at;
        commit.findings.push(finding);
    }
    commit
}

impl<S: LedgerSubject> Fixture<S> {
    pub(super) async fn commit_pass(&self, commit: &PassCommit) -> bool {
        self.ledger().curation.commit_pass(&self.scope, commit).await.unwrap()
    }
    async fn curation_of(&self, told: &RewindFixture) -> DialogueCuration {
        let curation = &self.ledger().curation;
        curation
            .load_dialogue_curation(&self.scope, told.id(), 9)
            .await
            .unwrap()
    }
    async fn decide(&self, finding: &Finding, decision: Decision) -> Option<Finding> {
        let (edit, reason) = (self.audit_edit("finding.decide"), "as planned");
        let decided = PersonDecision { decision, reason };
        let curation = &self.ledger().curation;
        curation
            .decide_finding(&self.scope, &self.world, finding.id, decided, &edit)
            .await
            .unwrap()
    }
}

pub async fn pass_is_stored_once_with_its_findings<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 3).await;
    assert_eq!(f.curation_of(&told).await, DialogueCuration::default());
    let first = pass_with(f, &told, (1, 2), &[(1, Decision::Open), (2, Decision::Intended)]);
    assert!(f.commit_pass(&first).await);
    let stored = DialogueCuration {
        last_pass: Some(first.pass.clone()),
        findings: first.findings.clone(),
    };
    assert_eq!(f.curation_of(&told).await, stored);

    let named = async |scope, number| {
        let curation = &f.ledger().curation;
        curation
            .list_findings_of_turn(scope, told.id(), number, 9)
            .await
            .unwrap()
    };
    assert_eq!(named(&f.scope, 1).await, &first.findings[..1]);
    assert_eq!(named(&f.scope, 2).await, &first.findings[1..]);
    for (scope, number) in [(&f.scope, 3), (&f.scope, 12), (&f.other, 1)] {
        assert_eq!(named(scope, number).await, [], "{number}");
    }

    assert!(!f.commit_pass(&first).await, "its job is done");
    let overlapping = sample_pass(f, &told, (2, 3));
    assert!(!f.commit_pass(&overlapping).await, "turn 2 has been read");
    assert_eq!(f.curation_of(&told).await, stored);
}

/// Stores the extraction of a turn that asked to forget something.
async fn ask_to_forget<S: LedgerSubject>(f: &Fixture<S>, told: &RewindFixture, number: usize) {
    let turn = &told.turns[number - 1];
    let mut plan = told.fact_plan(f, number, "", &[]).await;
    plan.facts.clear();
    plan.extractions.push(Extraction {
        turn: turn.id,
        dialogue: told.id(),
        number: turn.number,
        npc: f.npc.clone(),
        audience: f.audience(),
        said_at: turn.committed_at,
        player: Some(f.player.clone()),
        forget: vec!["the bell".to_owned()],
        injected: vec![],
        ends: vec![],
        quoted: vec![],
        room: JudgeBudgetShare::WHOLE,
    });
    f.reconcile_plan(&plan).await;
}

pub async fn open_findings_notes_and_short_sessions_are_carried<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let mut first = dialogue_with_turns(f, 2).await;
    let commit = pass_with(f, &first, (1, 2), &[(1, Decision::Open), (2, Decision::Intended)]);
    assert!(f.commit_pass(&commit).await);
    f.advance_clock();
    let mut told = first.turn_commit(f, 3);
    let place = told.state[0].clone();
    told.state.extend((1..=6).map(|n| NewStateChange {
        id: f.id(),
        change: StateChange::Happened {
            text: format!("bell {n}"),
        },
        ..place.clone()
    }));
    f.commit_turn(&told).await;
    first.extractions.push(told.jobs[0].clone());
    first.turns.push(told.turn);
    let mut short = dialogue_with_turns(f, 0).await;
    f.advance_clock();
    let mut told = short.turn_commit(f, 1);
    let told_locks: DisclosureLocks = "scenario:mira/well".parse().unwrap();
    told.checkpoint.locks = Some("scenario:mira/well;lore:mira/ruin".parse().unwrap());
    told.checkpoint.told_locks = Some(told_locks.clone());
    f.commit_turn(&told).await;
    short.turns.push(told.turn);
    let (dialogues, now) = (&f.ledger().dialogues, f.now());
    let (id, epoch) = (short.open.dialogue.id, short.open.epoch);
    dialogues.close_dialogue(&f.scope, id, epoch, now).await.unwrap();
    let next = dialogue_with_turns(f, 1).await;
    let until = next.turns[0].committed_at;

    let store = &f.ledger().curation;
    let carried = async |scope, last_pass| {
        let of_next = &next.open.dialogue;
        store
            .load_carried_curation(scope, of_next, until, last_pass)
            .await
            .unwrap()
    };
    let of_first = CarriedCuration {
        findings: vec![commit.findings[0].clone()],
        passes: vec![commit.pass.clone()],
        turns: vec![short.turns[0].clone()],
        sentences: (2..=6)
            .map(|n| CarriedSentence {
                dialogue: first.id(),
                turn: 3,
                text: format!("bell {n}"),
            })
            .collect(),
        told_locks: BTreeMap::from([(short.id(), told_locks)]),
    };
    assert_eq!(carried(&f.scope, None).await, of_first);
    let after_a_pass = carried(&f.scope, Some(until)).await;
    assert_eq!(
        (after_a_pass.turns, after_a_pass.passes),
        (vec![], of_first.passes.clone())
    );
    assert_eq!(carried(&f.other, None).await, CarriedCuration::default());

    // Of the session itself, nothing is carried; a decision of another session settles the finding.
    let mut settled = sample_pass(f, &next, (1, 1));
    settled.decisions = vec![ModelDecision {
        finding: commit.findings[0].id,
        decision: Decision::Fixed,
        reason: "It was brought.".to_owned(),
    }];
    assert!(f.commit_pass(&settled).await);
    let left = carried(&f.scope, None).await;
    assert_eq!((left.findings, left.sentences), (vec![], of_first.sentences));

    // The turn with the sentences asked to forget something.
    ask_to_forget(f, &first, 3).await;
    assert_eq!(carried(&f.scope, None).await.sentences, []);
    first.rewind_to(f, None).await;
    let left = carried(&f.scope, None).await;
    assert_eq!((left.findings, left.passes, left.sentences), (vec![], vec![], vec![]));

    let passes = store.count_player_passes(&f.scope, &f.player, f.now()).await.unwrap();
    assert_eq!(
        (passes.last_hour, passes.answers_today),
        (2, 4),
        "also those that were taken back"
    );
    assert_eq!(passes.first_at, Some(commit.pass.last_turn_at));
    let of_other = store.count_player_passes(&f.other, &f.player, f.now()).await.unwrap();
    assert_eq!(of_other, PlayerPasses::default());
    f.clock.advance(std::time::Duration::from_hours(2));
    let later = store.count_player_passes(&f.scope, &f.player, f.now()).await.unwrap();
    assert_eq!((later.last_hour, later.first_at), (0, None));
}

pub async fn decisions_of_persons_stay<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 3).await;
    let first = pass_with(f, &told, (1, 1), &[(1, Decision::Open); 3]);
    assert!(f.commit_pass(&first).await);
    let by_person = f.decide(&first.findings[0], Decision::Open).await.unwrap();
    assert_eq!(by_person.decided.decision, Decision::Open);
    assert_eq!(by_person.decided.reason, "as planned");
    assert!(by_person.decided.decided_by.is_some());

    let decided = |at: usize, decision: Decision| ModelDecision {
        finding: first.findings[at].id,
        decision,
        reason: "It was told.".to_owned(),
    };
    let mut second = sample_pass(f, &told, (2, 2));
    second.decisions = vec![decided(0, Decision::Fixed), decided(1, Decision::Fixed)];
    assert!(f.commit_pass(&second).await);
    let mut third = sample_pass(f, &told, (3, 3));
    third.decisions = vec![decided(1, Decision::Intended)];
    assert!(f.commit_pass(&third).await);
    let found = f.curation_of(&told).await.findings;
    let decisions: Vec<Decision> = found.iter().map(|finding| finding.decided.decision).collect();
    assert_eq!(decisions, [Decision::Open, Decision::Fixed, Decision::Open]);

    // A person overrules the model, and then the person.
    for decision in [Decision::Intended, Decision::Open, Decision::Fixed] {
        let found = f.decide(&first.findings[1], decision).await.unwrap();
        assert_eq!(found.decided.decision, decision);
    }
}

pub async fn pass_is_unsaid_and_stands_again_with_its_turn<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 3).await;
    let first = pass_with(f, &told, (1, 2), &[(1, Decision::Open)]);
    assert!(f.commit_pass(&first).await);
    let mut second = pass_with(f, &told, (3, 3), &[(3, Decision::Open)]);
    second.decisions = vec![ModelDecision {
        finding: first.findings[0].id,
        decision: Decision::Fixed,
        reason: String::new(),
    }];
    assert!(f.commit_pass(&second).await);
    let whole = f.curation_of(&told).await;
    assert_eq!(whole.findings[0].decided.decision, Decision::Fixed);
    assert_eq!(whole.last_pass.as_ref().map(|pass| pass.to_turn), Some(3));

    let (kept, last) = (told.turn(2), told.turn(3));
    told.rewind_to(f, Some(kept)).await;
    let left = f.curation_of(&told).await;
    assert_eq!(left.last_pass.as_ref(), Some(&first.pass));
    assert_eq!(left.findings, first.findings, "open again, and alone");
    assert_eq!(
        f.decide(&second.findings[0], Decision::Fixed).await,
        None,
        "it was taken back"
    );
    f.decide(&first.findings[0], Decision::Intended).await.unwrap();

    told.rewind_to(f, Some(last)).await;
    let again = f.curation_of(&told).await;
    assert_eq!(again.last_pass, whole.last_pass);
    let decisions: Vec<Decision> = again.findings.iter().map(|finding| finding.decided.decision).collect();
    assert_eq!(
        decisions,
        [Decision::Intended, Decision::Open],
        "the person's decision is an edit"
    );
}

pub async fn pass_is_queued_for_the_last_turn<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 2).await;
    let (curation, now) = (&f.ledger().curation, f.now());
    let job = f.id();
    assert!(curation.queue_pass(&f.scope, told.id(), job, now).await.unwrap());
    assert!(
        !curation.queue_pass(&f.scope, told.id(), f.id(), now).await.unwrap(),
        "pending"
    );
    assert!(!curation.queue_pass(&f.other, told.id(), f.id(), now).await.unwrap());
    let listed = f
        .ledger()
        .jobs
        .list_jobs(&f.scope, None, &page(9, None))
        .await
        .unwrap()
        .items;
    let queued = listed.iter().find(|listed| listed.kind == JobKind::Curate).unwrap();
    assert_eq!((queued.id, queued.turn), (job, told.turn(2)));
    f.ledger().jobs.finish_job(&f.scope, job, &[]).await.unwrap();
    assert!(
        curation.queue_pass(&f.scope, told.id(), f.id(), now).await.unwrap(),
        "again after its end"
    );
    told.rewind_to(f, None).await;
    assert!(
        !curation.queue_pass(&f.scope, told.id(), f.id(), now).await.unwrap(),
        "no turn stands"
    );
}

pub async fn findings_and_passes_are_listed_in_pages<S: LedgerSubject>(f: &Fixture<S>) {
    let (told, other) = (dialogue_with_turns(f, 2).await, dialogue_with_turns(f, 1).await);
    let mut commits = [
        sample_pass(f, &told, (1, 1)),
        sample_pass(f, &told, (2, 2)),
        sample_pass(f, &other, (1, 1)),
    ];
    for (commit, told) in commits.iter_mut().zip([&told, &told, &other]) {
        commit.findings = vec![sample_finding(f, told, commit.pass.to_turn as usize, Decision::Open)];
        assert!(f.commit_pass(commit).await);
    }
    f.decide(&commits[1].findings[0], Decision::Intended).await.unwrap();
    let (curation, world) = (&f.ledger().curation, &f.world);
    let list = async |filter: FindingFilter, limit: u32, after: Option<String>| {
        let page = page(limit, after);
        curation.list_findings(&f.scope, world, filter, &page).await.unwrap()
    };
    let ids = |found: &[Finding]| found.iter().map(|finding| finding.id).collect::<Vec<_>>();
    let all: Vec<_> = commits.iter().rev().map(|commit| commit.findings[0].id).collect();
    let first = list(FindingFilter::default(), 2, None).await;
    assert_eq!(ids(&first.items), all[..2]);
    let rest = list(FindingFilter::default(), 2, first.next).await;
    assert_eq!((ids(&rest.items), rest.next), (all[2..].to_vec(), None));
    for (filter, wanted) in [
        (
            FindingFilter {
                decision: Some(Decision::Intended),
                ..FindingFilter::default()
            },
            vec![all[1]],
        ),
        (
            FindingFilter {
                dialogue: Some(told.id()),
                ..FindingFilter::default()
            },
            all[1..].to_vec(),
        ),
        (
            FindingFilter {
                kind: Some(FindingKind::Event),
                ..FindingFilter::default()
            },
            vec![],
        ),
        (
            FindingFilter {
                kind: Some(FindingKind::Contradiction),
                ..FindingFilter::default()
            },
            all.clone(),
        ),
    ] {
        assert_eq!(ids(&list(filter, 9, None).await.items), wanted, "{filter:?}");
    }
    let passes = async |dialogue, limit, after: Option<String>| {
        let page = page(limit, after);
        curation.list_passes(&f.scope, world, dialogue, &page).await.unwrap()
    };
    let newest = passes(None, 2, None).await;
    assert_eq!(newest.items, [commits[2].pass.clone(), commits[1].pass.clone()]);
    assert_eq!(passes(None, 2, newest.next).await.items, [commits[0].pass.clone()]);
    assert_eq!(passes(Some(other.id()), 9, None).await.items, [commits[2].pass.clone()]);
}

pub async fn curation_of_unsaid_turns_is_pruned<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 2).await;
    let commit = pass_with(f, &told, (1, 2), &[(2, Decision::Open)]);
    assert!(f.commit_pass(&commit).await);
    let first = told.turn(1);
    told.rewind_to(f, Some(first)).await;
    f.clock.advance(std::time::Duration::from_hours(48));
    let before = PruneBefore {
        unsaid: Some(f.now() - chrono::Duration::hours(24)),
        ..PruneBefore::default()
    };
    let maintenance = &f.ledger().maintenance;
    assert!(maintenance.prune_expired(&f.scope, &before, 9).await.unwrap() > 0);
    assert_eq!(f.curation_of(&told).await, DialogueCuration::default());
}

pub async fn curation_of_another_tenant_or_world_is_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 1).await;
    let commit = pass_with(f, &told, (1, 1), &[(1, Decision::Open)]);
    let curation = &f.ledger().curation;
    assert!(!curation.commit_pass(&f.other, &commit).await.unwrap());
    assert!(f.commit_pass(&commit).await);
    let elsewhere = "elsewhere".parse().unwrap();
    for (scope, world) in [(&f.other, &f.world), (&f.scope, &elsewhere)] {
        let edit = f.audit_edit("finding.decide");
        let decided = PersonDecision {
            decision: Decision::Fixed,
            reason: "",
        };
        let finding = commit.findings[0].id;
        assert_eq!(
            curation
                .decide_finding(scope, world, finding, decided, &edit)
                .await
                .unwrap(),
            None
        );
        let found = curation
            .list_findings(scope, world, FindingFilter::default(), &page(9, None))
            .await
            .unwrap();
        assert!(found.items.is_empty());
        let passes = curation.list_passes(scope, world, None, &page(9, None)).await.unwrap();
        assert!(passes.items.is_empty());
    }
    let found = curation.load_dialogue_curation(&f.other, told.id(), 9).await.unwrap();
    assert_eq!(found, DialogueCuration::default());
    assert_eq!(f.curation_of(&told).await.findings, commit.findings);
}
