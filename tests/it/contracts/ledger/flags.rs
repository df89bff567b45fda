//! Flagged facts, and the decisions of persons about them.

use colloquy::{
    ids::FactId,
    memory::{
        disclosure::audience::Knower,
        fact::{Fact, InvalidReason, NewFact},
        flags::{FlagDecision, FlagEntry, FlagKind},
        timeline::FlaggedFact,
    },
    ports::ledger::{
        PruneBefore,
        facts::{FactEditOutcome, FactFilter, FactPatch, ReplacementFact},
        flags::{FactChange, FlagDecisionWrite, FlagFilter, FlagOutcome},
    },
    tenancy::Role,
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
    rewind_fixtures::{RewindFixture, dialogue_with_turns},
};

fn decision(flag: FlagKind, decision: FlagDecision) -> FlagDecisionWrite {
    FlagDecisionWrite {
        flag,
        decision,
        reason: "as written".to_owned(),
        change: None,
        if_version: None,
    }
}

impl<S: LedgerSubject> Fixture<S> {
    /// Writes a fact of a person.
    async fn authored_fact(&self, content: &str) -> FactId {
        let mut fact = self.sample_fact(content);
        fact.authored = true;
        let id = self.create_fact(fact).await;
        self.advance_clock();
        id
    }
    /// Turn `number` states a fact that contradicts `fact`.
    async fn contradict(&self, told: &RewindFixture, number: usize, content: &str, fact: FactId) -> FactId {
        let mut plan = told.fact_plan(self, number, content, &[]).await;
        let by = plan.facts[0].id;
        let turn = told.turn(number);
        plan.flags = vec![FlaggedFact {
            fact,
            statement: by,
            turn,
        }];
        self.reconcile_plan(&plan).await;
        by
    }
    async fn flags(&self, filter: &FlagFilter) -> Vec<FlagEntry> {
        let facts = &self.ledger().facts;
        let found = facts
            .list_flags(&self.scope, &self.world, filter, &page(50, None))
            .await;
        found.unwrap().items
    }
    async fn open_flags(&self) -> Vec<(FactId, FlagKind, Vec<FactId>)> {
        let found = self.flags(&FlagFilter::default()).await.into_iter();
        found
            .map(|entry| (entry.fact.id, entry.flag, statement_ids(&entry)))
            .collect()
    }
    async fn decided_flags(&self) -> Vec<(FactId, FlagKind, FlagDecision)> {
        let filter = FlagFilter {
            decided: true,
            ..FlagFilter::default()
        };
        let found = self.flags(&filter).await.into_iter();
        found
            .map(|entry| (entry.fact.id, entry.flag, entry.decided.unwrap().decision))
            .collect()
    }
    async fn decide_flag(&self, fact: FactId, write: &FlagDecisionWrite) -> FlagOutcome {
        let edit = self.audit_edit("flag.decide");
        let facts = &self.ledger().facts;
        facts
            .decide_flag(&self.scope, &self.world, fact, write, &edit)
            .await
            .unwrap()
    }
    async fn decided_flag(&self, fact: FactId, write: &FlagDecisionWrite) -> FlagEntry {
        match self.decide_flag(fact, write).await {
            FlagOutcome::Decided(entry) => *entry,
            other => panic!("not decided: {other:?}"),
        }
    }
    async fn audit_rows(&self) -> usize {
        let rows = self.ledger().audit.list_audit_rows(&self.scope, &page(200, None)).await;
        rows.unwrap().items.len()
    }
    /// The corrected form of a fact, with another object.
    fn replacement_of(&self, fact: &Fact, object: &str) -> ReplacementFact {
        let mut new = NewFact {
            audience: fact.audience.clone(),
            locks: fact.locks.clone(),
            cause: fact.cause,
            valid_at: fact.valid_at,
            source: fact.source,
            authored: fact.authored,
            statement: fact.statement.clone(),
            ..self.sample_fact("")
        };
        object.clone_into(&mut new.statement.object);
        new.statement.content = format!("likes {object}");
        ReplacementFact {
            fact: new,
            invalid_at: None,
        }
    }
}

fn statement_ids(entry: &FlagEntry) -> Vec<FactId> {
    entry.statements.iter().map(|statement| statement.id).collect()
}

pub async fn dismissed_contradiction_stays_decided<S: LedgerSubject>(f: &Fixture<S>) {
    use FlagKind::Contradicted;
    let told = dialogue_with_turns(f, 3).await;
    let fact = f.authored_fact("is allergic to nuts").await;
    let by = f.contradict(&told, 1, "eats nuts", fact).await;
    let [entry] = &f.flags(&FlagFilter::default()).await[..] else {
        panic!("not one flag")
    };
    assert_eq!(
        (entry.fact.id, entry.flag, statement_ids(entry)),
        (fact, Contradicted, vec![by])
    );
    assert_eq!((entry.flagged_at, &entry.decided), (f.now(), &None));
    f.advance_clock();
    let rows = f.audit_rows().await;
    let dismissed = decision(Contradicted, FlagDecision::Dismissed);
    let entry = f.decided_flag(fact, &dismissed).await;
    let decided = entry.decided.clone().unwrap();
    assert_eq!(
        (
            decided.decision,
            decided.reason.as_str(),
            decided.decided_by.as_str(),
            decided.role,
            decided.decided_at
        ),
        (
            FlagDecision::Dismissed,
            "as written",
            "designer",
            Role::Backend,
            f.now()
        )
    );
    assert_eq!(statement_ids(&entry), [by]);
    assert_eq!(f.fact(fact).await.invalid, None);
    assert_eq!(f.open_flags().await, []);
    // A repeated decision writes nothing.
    f.advance_clock();
    assert_eq!(f.decided_flag(fact, &dismissed).await, entry);
    assert_eq!(f.audit_rows().await, rows + 1);
    let facts = &f.ledger().facts;
    assert_eq!(facts.list_contradictions(&f.scope, &[fact], f.now()).await.unwrap(), []);
    let flagged = FactFilter {
        flagged: true,
        ..super::facts::match_all_filter(f)
    };
    assert!(super::facts::listed_ids(f, &flagged).await.is_empty());
    // The same words open no flag. Other words do.
    f.contradict(&told, 2, "eats nuts", fact).await;
    assert_eq!(f.open_flags().await, []);
    assert!(super::facts::listed_ids(f, &flagged).await.is_empty());
    let other = f.contradict(&told, 3, "bakes with nuts", fact).await;
    assert_eq!(f.open_flags().await, [(fact, Contradicted, vec![other])]);
    assert_eq!(f.decided_flags().await, [(fact, Contradicted, FlagDecision::Dismissed)]);
    assert_eq!(super::facts::listed_ids(f, &flagged).await, [fact]);
}

pub async fn accepted_contradiction_ends_the_fact_while_it_is_said<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let fact = f.authored_fact("lives in Oakford").await;
    let by = f.contradict(&told, 2, "lives in Greystone", fact).await;
    f.drain_outbox().await;
    f.advance_clock();
    let seq = f.memory_seq().await;
    let accepted = decision(FlagKind::Contradicted, FlagDecision::Accepted);
    let entry = f.decided_flag(fact, &accepted).await;
    let ended = entry.fact.invalid.clone().unwrap();
    assert_eq!(
        (ended.reason, ended.ended_by, ended.ended_at),
        (InvalidReason::Superseded, Some(by), f.now())
    );
    assert_eq!(f.drain_outbox().await, [fact]);
    assert_eq!(f.memory_seq().await, seq + 1);
    assert_eq!(f.fact(by).await.invalid, None);
    assert_eq!(f.open_flags().await, []);
    let shown = [(fact, FlagKind::Contradicted, FlagDecision::Accepted)];
    assert_eq!(f.decided_flags().await, shown);

    // The flag, its decision and the end of the fact go with the turn, and come back with it.
    told.rewind_to(f, Some(told.turn(1))).await;
    assert_eq!(f.fact(fact).await.invalid, None);
    assert_eq!((f.open_flags().await, f.decided_flags().await), (vec![], vec![]));
    assert_eq!(f.decide_flag(fact, &accepted).await, FlagOutcome::NotFound);
    told.rewind_to(f, Some(told.turn(2))).await;
    assert_eq!(f.fact(fact).await.invalid.unwrap().ended_by, Some(by));
    assert_eq!(f.decided_flags().await, shown);

    // The last decision counts.
    f.advance_clock();
    f.decided_flag(fact, &decision(FlagKind::Contradicted, FlagDecision::Dismissed))
        .await;
    assert_eq!(f.fact(fact).await.invalid, None);
    f.advance_clock();
    f.decided_flag(fact, &accepted).await;
    assert_eq!(f.fact(fact).await.invalid.unwrap().ended_at, f.now());
    // An end of another cause stays.
    let facts = &f.ledger().facts;
    facts
        .remove_fact(&f.scope, fact, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    let dismissed = decision(FlagKind::Contradicted, FlagDecision::Dismissed);
    assert_eq!(
        f.decide_flag(fact, &dismissed).await,
        FlagOutcome::Ended { by: Some(by) }
    );
}

pub async fn corrected_fact_is_replaced_and_unsaid_with_its_turn<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let mut plan = told.fact_plan(f, 1, "likes apples", &[]).await;
    plan.facts[0].statement.pinned = true;
    let old = plan.facts[0].id;
    f.reconcile_plan(&plan).await;
    f.contradict(&told, 2, "hates apples", old).await;
    f.drain_outbox().await;
    f.advance_clock();
    let replacement = f.replacement_of(&f.fact(old).await, "pears");
    let new = replacement.fact.id;
    let mut corrected = decision(FlagKind::Contradicted, FlagDecision::Corrected);
    corrected.change = Some(FactChange::Replacement(Box::new(replacement.clone())));
    corrected.if_version = Some(7);
    assert_eq!(
        f.decide_flag(old, &corrected).await,
        FlagOutcome::VersionMismatch { stored: 1 }
    );
    corrected.if_version = Some(1);
    let entry = f.decided_flag(old, &corrected).await;
    let ended = entry.fact.invalid.unwrap();
    assert_eq!(
        (ended.reason, ended.ended_by, ended.ended_at),
        (InvalidReason::Superseded, Some(new), f.now())
    );
    let mut touched = f.drain_outbox().await;
    touched.sort_unstable();
    touched.dedup();
    let mut both = [old, new];
    both.sort_unstable();
    assert_eq!(touched, both);
    let stored = f.fact(new).await;
    assert_eq!(
        (stored.corrects, stored.cause, &stored.invalid),
        (Some(old), plan.facts[0].cause, &None)
    );
    assert_eq!(stored.statement.object, "pears");
    // A repetition has nothing to change, and another decision comes too late.
    corrected.change = None;
    assert_eq!(
        f.decided_flag(old, &corrected).await.fact.invalid.unwrap().ended_by,
        Some(new)
    );
    let dismissed = decision(FlagKind::Contradicted, FlagDecision::Dismissed);
    assert_eq!(
        f.decide_flag(old, &dismissed).await,
        FlagOutcome::Ended { by: Some(new) }
    );
    // A fact that has ended cannot be replaced.
    let edit = f.audit_edit("fact.edit");
    let again = f
        .ledger()
        .facts
        .replace_fact(&f.scope, old, &replacement, None, &edit)
        .await;
    assert_eq!(again.unwrap(), FactEditOutcome::Ended { by: Some(new) });

    told.rewind_to(f, None).await;
    for fact in [old, new] {
        assert_eq!(f.fact(fact).await.invalid.unwrap().reason, InvalidReason::Unsaid);
    }
    assert_eq!(f.decide_flag(old, &dismissed).await, FlagOutcome::Unsaid);
    told.rewind_to(f, Some(told.turn(2))).await;
    assert_eq!(f.fact(new).await.invalid, None);
    assert_eq!(f.fact(old).await.invalid.unwrap().ended_by, Some(new));
}

pub async fn corrected_dates_are_kept_and_past_facts_end<S: LedgerSubject>(f: &Fixture<S>) {
    let fact = f.authored_fact("lives in Oakford").await;
    let mut replacement = f.replacement_of(&f.fact(fact).await, "Oakford");
    let days = chrono::TimeDelta::days;
    replacement.fact.valid_at = f.now() - days(9);
    replacement.invalid_at = Some(f.now() - days(2));
    let facts = &f.ledger().facts;
    let edit = f.audit_edit("fact.edit");
    let outcome = facts
        .replace_fact(&f.scope, fact, &replacement, Some(1), &edit)
        .await
        .unwrap();
    let FactEditOutcome::Done(new) = outcome else {
        panic!("not done: {outcome:?}")
    };
    let ended = new.invalid.clone().unwrap();
    assert_eq!(
        (ended.reason, ended.ended_at),
        (InvalidReason::Ended, f.now() - days(2))
    );
    assert_eq!((new.valid_at, new.corrects), (f.now() - days(9), Some(fact)));
    let confirmed = async |at| {
        let found = facts
            .confirm_facts(&f.scope, &f.viewpoint(), &[fact, new.id], at)
            .await
            .unwrap();
        found.open.into_iter().map(|found| found.fact).collect::<Vec<_>>()
    };
    assert_eq!(confirmed(f.now() - days(5)).await, [new.id]);
    assert!(confirmed(f.now()).await.is_empty());
}

pub async fn personal_data_is_flagged_until_known<S: LedgerSubject>(f: &Fixture<S>) {
    use FlagKind::Pii;
    let mut fact = f.sample_fact("writes to a@b.example");
    fact.pii = vec!["email".to_owned()];
    let fact = f.learn_fact(fact, &[]).await;
    f.learn_fact(f.sample_fact("likes grapes"), &[]).await;
    assert_eq!(f.open_flags().await, [(fact, Pii, vec![])]);
    let known_to = |knower: &str| FlagFilter {
        knowers: Some(vec![Knower::parse(knower).unwrap(), Knower::World]),
        ..FlagFilter::default()
    };
    assert_eq!(f.flags(&known_to("npc:mira")).await.len(), 1);
    assert_eq!(f.flags(&known_to("npc:ergen")).await.len(), 0);
    f.decided_flag(fact, &decision(Pii, FlagDecision::Accepted)).await;
    assert_eq!(f.open_flags().await, []);
    assert_eq!(f.decided_flags().await, [(fact, Pii, FlagDecision::Accepted)]);
    // A repetition of the fact is known too. Other personal data is flagged again.
    let mut again = f.sample_fact("writes to A@b.example");
    again.pii = vec!["email".to_owned()];
    let again = f.learn_fact(again, &[(fact, InvalidReason::Duplicate)]).await;
    assert_eq!(f.open_flags().await, []);
    let patch = FactPatch {
        content: Some("writes to a@b.example or calls 010-1234-5678".to_owned()),
        embedding: Some(vec![1.0, 0.0, 0.0]),
        pii: Some(vec!["email".to_owned(), "phone".to_owned()]),
        ..FactPatch::default()
    };
    let facts = &f.ledger().facts;
    let edit = f.audit_edit("fact.edit");
    facts.edit_fact(&f.scope, again, &patch, None, &edit).await.unwrap();
    assert_eq!(f.open_flags().await, [(again, Pii, vec![])]);
    let mut corrected = decision(Pii, FlagDecision::Corrected);
    corrected.change = Some(FactChange::Patch(FactPatch {
        content: Some("writes letters".to_owned()),
        embedding: Some(vec![0.0, 1.0, 0.0]),
        pii: Some(vec![]),
        ..FactPatch::default()
    }));
    let entry = f.decided_flag(again, &corrected).await;
    assert_eq!(
        (entry.fact.view.content.as_str(), entry.fact.pii),
        ("writes letters", vec![])
    );
    assert_eq!(f.open_flags().await, []);
    assert_eq!(
        f.decided_flags().await,
        [
            (again, Pii, FlagDecision::Corrected),
            (fact, Pii, FlagDecision::Accepted)
        ]
    );
}

pub async fn merged_statements_are_flagged_until_decided<S: LedgerSubject>(f: &Fixture<S>) {
    use FlagKind::OverMerged;
    let mut last = f.learn_fact(f.sample_fact("likes grapes"), &[]).await;
    let mut said = vec![last];
    let mut repeat = async |content: &str| {
        f.advance_clock();
        last = f
            .learn_fact(f.sample_fact(content), &[(last, InvalidReason::Duplicate)])
            .await;
        said.push(last);
        (last, said.clone())
    };
    repeat("Likes grapes!").await;
    repeat("is fond of grapes").await;
    assert_eq!(f.open_flags().await, [], "two sentences");
    let (third, said) = repeat("loves grapes").await;
    assert_eq!(f.open_flags().await, [(third, OverMerged, said)]);
    f.decided_flag(third, &decision(OverMerged, FlagDecision::Accepted))
        .await;
    assert_eq!(f.open_flags().await, []);
    assert_eq!(f.decided_flags().await, [(third, OverMerged, FlagDecision::Accepted)]);
    // A repetition in the same words opens no flag. A further sentence does.
    repeat("Loves grapes.").await;
    assert_eq!(f.open_flags().await, []);
    let (fourth, said) = repeat("adores grapes").await;
    assert_eq!(f.open_flags().await, [(fourth, OverMerged, said)]);
}

pub async fn statements_of_two_objects_are_flagged_while_said<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let old = f.learn_fact(f.sample_fact("likes fruit"), &[]).await;
    f.advance_clock();
    let mut plan = told.fact_plan(f, 2, "likes red fruit", &[]).await;
    let new = plan.facts[0].id;
    "red grapes".clone_into(&mut plan.facts[0].statement.object);
    let mut merge = f.sample_invalidation(old, InvalidReason::Duplicate, Some(new));
    merge.cause = plan.facts[0].cause;
    plan.invalidations = vec![merge];
    f.reconcile_plan(&plan).await;
    let flagged = [(new, FlagKind::OverMerged, vec![old, new])];
    assert_eq!(f.open_flags().await, flagged);
    told.rewind_to(f, Some(told.turn(1))).await;
    assert_eq!(f.open_flags().await, []);
    let dismissed = decision(FlagKind::OverMerged, FlagDecision::Dismissed);
    assert_eq!(f.decide_flag(new, &dismissed).await, FlagOutcome::Unsaid);
    told.rewind_to(f, Some(told.turn(2))).await;
    assert_eq!(f.open_flags().await, flagged);
    f.decided_flag(new, &dismissed).await;
    assert_eq!(f.open_flags().await, []);
}

pub async fn flags_are_listed_in_pages<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 1).await;
    let mut expected = Vec::new();
    for number in 0..3 {
        let mut fact = f.sample_fact(&format!("fact {number}"));
        fact.pii = vec!["email".to_owned()];
        fact.authored = true;
        let id = f.create_fact(fact).await;
        expected.insert(0, (id, FlagKind::Pii));
    }
    let first = expected[2].0;
    f.contradict(&told, 1, "no fact 0", first).await;
    expected.insert(2, (first, FlagKind::Contradicted));
    let facts = &f.ledger().facts;
    for limit in 1..=4 {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = page(limit, after);
            let found = facts
                .list_flags(&f.scope, &f.world, &FlagFilter::default(), &page)
                .await
                .unwrap();
            assert!(found.items.len() <= limit as usize);
            listed.extend(found.items.into_iter().map(|entry| (entry.fact.id, entry.flag)));
            after = found.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(listed, expected, "in pages of {limit}");
    }
    let only = FlagFilter {
        flag: Some(FlagKind::Contradicted),
        ..FlagFilter::default()
    };
    assert_eq!(f.flags(&only).await.len(), 1);
}

pub async fn concurrent_decisions_leave_one_end<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 1).await;
    let fact = f.authored_fact("lives in Oakford").await;
    f.contradict(&told, 1, "lives in Greystone", fact).await;
    let accepted = decision(FlagKind::Contradicted, FlagDecision::Accepted);
    let dismissed = decision(FlagKind::Contradicted, FlagDecision::Dismissed);
    let writes = [&accepted, &dismissed, &accepted, &dismissed];
    let outcomes = futures_util::future::join_all(writes.map(|write| f.decide_flag(fact, write))).await;
    for outcome in outcomes {
        assert!(matches!(outcome, FlagOutcome::Decided(_)), "{outcome:?}");
    }
    let [(_, _, last)] = f.decided_flags().await[..] else {
        panic!("not one decision")
    };
    let is_ended = f.fact(fact).await.invalid.is_some();
    assert_eq!(is_ended, last == FlagDecision::Accepted);
}

pub async fn flags_of_another_tenant_or_world_are_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 1).await;
    let fact = f.authored_fact("lives in Oakford").await;
    f.contradict(&told, 1, "lives in Greystone", fact).await;
    let facts = &f.ledger().facts;
    let elsewhere = "elsewhere".parse().unwrap();
    let write = decision(FlagKind::Contradicted, FlagDecision::Accepted);
    for (scope, world) in [(&f.other, &f.world), (&f.scope, &elsewhere)] {
        let found = facts
            .list_flags(scope, world, &FlagFilter::default(), &page(9, None))
            .await;
        assert!(found.unwrap().items.is_empty());
        let edit = f.audit_edit("flag.decide");
        let outcome = facts.decide_flag(scope, world, fact, &write, &edit).await.unwrap();
        assert_eq!(outcome, FlagOutcome::NotFound);
    }
    assert_eq!(f.decide_flag(f.id(), &write).await, FlagOutcome::NotFound);
    let other = decision(FlagKind::Pii, FlagDecision::Accepted);
    assert_eq!(f.decide_flag(fact, &other).await, FlagOutcome::NotFound);
    assert_eq!(f.fact(fact).await.invalid, None);
}

pub async fn decisions_about_unsaid_turns_are_pruned<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let fact = f.authored_fact("lives in Oakford").await;
    f.contradict(&told, 2, "lives in Greystone", fact).await;
    f.decided_flag(fact, &decision(FlagKind::Contradicted, FlagDecision::Accepted))
        .await;
    told.rewind_to(f, Some(told.turn(1))).await;
    f.advance_clock();
    let before = PruneBefore {
        unsaid: Some(f.now()),
        ..PruneBefore::default()
    };
    let maintenance = &f.ledger().maintenance;
    assert!(maintenance.prune_expired(&f.scope, &before, 9).await.unwrap() > 0);
    assert_eq!(f.fact(fact).await.invalid, None);
    assert_eq!((f.open_flags().await, f.decided_flags().await), (vec![], vec![]));
}
