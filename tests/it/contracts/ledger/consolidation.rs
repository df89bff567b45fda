//! Consolidation: conclusions, and the facts that they stand for.

use chrono::{DateTime, Utc};
use colloquy::{
    ids::{FactId, JobId},
    memory::{
        consolidation::{FactGroup, Week},
        fact::{Cause, Fact, InvalidReason, NewFact},
    },
    ports::ledger::{
        PruneBefore,
        consolidation::{ConsolidationCommit, ConsolidationOutcome, GroupKey, ScanPlace},
        facts::FactPatch,
        jobs::JobFence,
    },
};

use super::{
    LedgerSubject,
    fixture::{Fixture, importance},
    rewind_fixtures::{RewindFixture, dialogue_with_turns},
    saves::put_default_world,
};

/// Three facts of the turns 1, 2 and 3.
async fn three_facts<S: LedgerSubject>(f: &Fixture<S>, told: &RewindFixture) -> [FactId; 3] {
    put_default_world(f).await;
    let mut facts = Vec::new();
    for (number, content) in [(1, "likes figs"), (2, "likes \"사과\""), (3, "likes plums")] {
        facts.push(told.learn_fact(f, number, content, &[]).await);
    }
    facts.try_into().expect("three facts")
}

impl<S: LedgerSubject> Fixture<S> {
    async fn taught(&self) -> Vec<Fact> {
        let (store, audience) = (&self.ledger().consolidation, self.audience());
        store
            .list_facts_of_week(&self.scope, &self.world, &audience, Week::of(self.now()))
            .await
            .unwrap()
    }

    async fn group(&self) -> FactGroup {
        let groups = FactGroup::from_facts(self.taught().await, self.now());
        groups.into_iter().next().expect("enough facts")
    }

    /// Queues the consolidation of the facts of a turn, and returns the fence of its job.
    async fn consolidation_fence(&self, told: &RewindFixture, number: usize) -> JobFence {
        let (store, turn) = (&self.ledger().consolidation, told.turn(number));
        let job: JobId = self.id();
        assert!(
            store
                .queue_consolidation(&self.scope, turn, job, self.now())
                .await
                .unwrap()
        );
        JobFence {
            job,
            turn,
            text_version: 1,
        }
    }

    /// Returns a commit of one conclusion from all facts of the week.
    async fn conclusion_of(&self, fence: JobFence, premises: &[FactId], content: &str) -> ConsolidationCommit {
        let group = self.group().await;
        let fact = NewFact {
            cause: Cause::Job(fence.job),
            derived_from: premises.to_vec(),
            ..self.sample_fact(content)
        };
        ConsolidationCommit {
            fence,
            world: self.world.clone(),
            audience: self.audience(),
            week: group.week,
            about: group.about.clone(),
            material: group.material_hash(),
            facts: vec![fact],
            ends: self.id(),
        }
    }

    async fn consolidate(&self, commit: &ConsolidationCommit) -> ConsolidationOutcome {
        let store = &self.ledger().consolidation;
        store.commit_consolidation(&self.scope, commit).await.unwrap()
    }

    /// Concludes one fact from `premises`.
    async fn conclude(&self, told: &RewindFixture, premises: &[FactId]) -> FactId {
        self.conclude_for(told, 3, premises).await
    }

    /// Concludes one fact from `premises`, by a job of turn `number`.
    async fn conclude_for(&self, told: &RewindFixture, number: usize, premises: &[FactId]) -> FactId {
        let fence = self.consolidation_fence(told, number).await;
        let commit = self.conclusion_of(fence, premises, "likes fruit").await;
        assert_eq!(self.consolidate(&commit).await, ConsolidationOutcome::Committed);
        self.ledger()
            .jobs
            .finish_job(&self.scope, fence.job, &[])
            .await
            .unwrap();
        commit.facts[0].id
    }

    async fn importance_of(&self, fact: FactId) -> u8 {
        self.fact(fact).await.view.importance.get()
    }

    async fn end_of(&self, fact: FactId) -> Option<(InvalidReason, DateTime<Utc>)> {
        self.fact(fact).await.invalid.map(|end| (end.reason, end.ended_at))
    }
}

pub async fn conclusion_stands_for_its_premises<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 3).await;
    let [first, second, third] = three_facts(f, &told).await;
    let before = f.fact(first).await;
    let seq = f.memory_seq().await;
    f.drain_outbox().await;
    let conclusion = f.conclude(&told, &[first, second]).await;
    assert!(f.memory_seq().await > seq, "plans from before are refused");

    let stored = f.fact(conclusion).await;
    assert!(stored.is_conclusion());
    assert_eq!((&stored.derived_from, &stored.invalid), (&vec![first, second], &None));
    assert_eq!(stored.view.importance, importance(5));
    for premise in [first, second] {
        assert_eq!(f.importance_of(premise).await, 3, "half of 5, rounded up");
        assert_eq!(f.end_of(premise).await, None);
    }
    assert_eq!(f.importance_of(third).await, 5);
    assert!(f.fact(first).await.version > before.version);
    let mut indexed = f.drain_outbox().await;
    indexed.sort();
    indexed.dedup();
    let mut wanted = vec![first, second, conclusion];
    wanted.sort();
    assert_eq!(indexed, wanted);
    assert_eq!(f.taught().await.len(), 3, "a conclusion is no premise");
}

pub async fn conclusion_falls_with_a_premise<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 3).await;
    let [first, second, third] = three_facts(f, &told).await;
    let conclusion = f.conclude(&told, &[first, second]).await;

    told.commit_turn(f, 4).await;
    let newer = told.learn_fact(f, 4, "hates figs", &[first]).await;
    let end = f.fact(first).await.invalid.unwrap();
    assert_eq!(
        f.end_of(conclusion).await,
        Some((InvalidReason::PremiseGone, end.ended_at))
    );
    assert_eq!(f.fact(conclusion).await.invalid.unwrap().ended_by, Some(first));
    assert_eq!(f.importance_of(second).await, 5, "nothing stands for it any more");
    assert_eq!(f.importance_of(third).await, 5);

    // The premise is valid again without the turn that ended it.
    let (last, whole) = (told.turn(4), told.turn(3));
    told.rewind_to(f, Some(whole)).await;
    assert_eq!(f.end_of(conclusion).await, None);
    assert_eq!((f.importance_of(first).await, f.importance_of(second).await), (3, 3));
    told.rewind_to(f, Some(last)).await;
    assert!(f.end_of(conclusion).await.is_some() && f.end_of(newer).await.is_none());
}

pub async fn conclusion_of_an_unsaid_premise_was_never_valid<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 3).await;
    let [first, second, third] = three_facts(f, &told).await;
    let conclusion = f.conclude(&told, &[first, second, third]).await;
    let begin = f.fact(conclusion).await.valid_at;
    let (one, all) = (told.turn(1), told.turn(3));
    told.rewind_to(f, Some(one)).await;
    assert_eq!(f.end_of(conclusion).await, Some((InvalidReason::PremiseGone, begin)));
    assert_eq!(f.importance_of(first).await, 5);
    told.rewind_to(f, Some(all)).await;
    assert_eq!(f.end_of(conclusion).await, None);
    assert_eq!(f.importance_of(first).await, 3);

    told.rewind_to(f, Some(one)).await;
    f.clock.advance(std::time::Duration::from_hours(48));
    let before = PruneBefore {
        unsaid: Some(f.now() - chrono::Duration::hours(24)),
        ..PruneBefore::default()
    };
    let maintenance = &f.ledger().maintenance;
    assert!(maintenance.prune_expired(&f.scope, &before, 9).await.unwrap() > 0);
    let facts = &f.ledger().facts;
    for gone in [second, third, conclusion] {
        assert_eq!(facts.load_fact(&f.scope, gone).await.unwrap(), None);
    }
    assert_eq!(f.importance_of(first).await, 5);
}

pub async fn conclusion_falls_if_a_person_rewords_a_premise<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 3).await;
    let [first, second, _] = three_facts(f, &told).await;
    let conclusion = f.conclude(&told, &[first, second]).await;
    let patch_fact = async |id: FactId, patch: FactPatch| {
        let edit = f.audit_edit("fact.edit");
        f.ledger()
            .facts
            .edit_fact(&f.scope, id, &patch, None, &edit)
            .await
            .unwrap();
    };
    let weight = FactPatch {
        importance: Some(importance(8)),
        ..FactPatch::default()
    };
    patch_fact(first, weight).await;
    assert_eq!(f.importance_of(first).await, 8, "a person's importance counts");
    assert_eq!(f.end_of(conclusion).await, None);
    let words = FactPatch {
        content: Some("likes dried figs".to_owned()),
        ..FactPatch::default()
    };
    patch_fact(second, words).await;
    assert_eq!(
        f.end_of(conclusion).await.map(|end| end.0),
        Some(InvalidReason::PremiseGone)
    );
    assert_eq!(f.importance_of(second).await, 5);
}

pub async fn group_is_consolidated_again_after_a_change<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 3).await;
    let [first, second, third] = three_facts(f, &told).await;
    let fence = f.consolidation_fence(&told, 3).await;
    let planned = f.conclusion_of(fence, &[first, second], "likes fruit").await;
    told.commit_turn(f, 4).await;
    told.learn_fact(f, 4, "likes pears", &[]).await;
    assert_eq!(f.consolidate(&planned).await, ConsolidationOutcome::FactsChanged);
    let facts = &f.ledger().facts;
    assert_eq!(facts.load_fact(&f.scope, planned.facts[0].id).await.unwrap(), None);

    let earlier = f.conclusion_of(fence, &[first, second], "likes fruit").await;
    assert_eq!(f.consolidate(&earlier).await, ConsolidationOutcome::Committed);
    let store = &f.ledger().consolidation;
    let known = store.load_consolidated(&f.scope, &f.world).await.unwrap();
    let key = GroupKey {
        audience: f.audience().audience_key(),
        week: Week::of(f.now()),
        about: earlier.about.clone(),
    };
    assert_eq!(known.get(&key), Some(&earlier.material));
    let material = store.load_material(&f.scope, &f.world, &key).await.unwrap();
    assert_eq!(material, Some(earlier.material.clone()));

    told.commit_turn(f, 5).await;
    told.learn_fact(f, 5, "likes nuts", &[]).await;
    let later = f.conclusion_of(fence, &[third, second], "likes much").await;
    assert_eq!(f.consolidate(&later).await, ConsolidationOutcome::Committed);
    let [old, new] = [&earlier, &later].map(|commit| commit.facts[0].id);
    assert_eq!(f.end_of(old).await.map(|end| end.0), Some(InvalidReason::PremiseGone));
    assert_eq!(f.end_of(new).await, None);
    assert_eq!((f.importance_of(first).await, f.importance_of(third).await), (5, 3));
}

pub async fn expired_conclusion_gives_importance_back<S: LedgerSubject>(f: &mut Fixture<S>) {
    let told = dialogue_with_turns(f, 3).await;
    let [first, second, _] = three_facts(f, &told).await;
    let fence = f.consolidation_fence(&told, 3).await;
    let mut commit = f.conclusion_of(fence, &[first, second], "likes fruit").await;
    commit.facts[0].expires_at = Some(f.now() + chrono::Duration::days(1));
    assert_eq!(f.consolidate(&commit).await, ConsolidationOutcome::Committed);
    assert_eq!(f.consolidate(&commit).await, ConsolidationOutcome::FactsChanged, "once");
    let store = &f.ledger().consolidation;
    let end = async || {
        store
            .end_expired_conclusions(&f.scope, &f.world, f.id(), f.now())
            .await
            .unwrap();
    };
    end().await;
    assert_eq!(
        (f.end_of(commit.facts[0].id).await, f.importance_of(first).await),
        (None, 3)
    );
    f.clock.advance(std::time::Duration::from_hours(48));
    end().await;
    end().await;
    assert_eq!(
        f.end_of(commit.facts[0].id).await.map(|end| end.0),
        Some(InvalidReason::Expired)
    );
    assert_eq!((f.importance_of(first).await, f.importance_of(second).await), (5, 5));
}

pub async fn conclusion_that_a_person_has_changed_stays<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 3).await;
    let [first, second, third] = three_facts(f, &told).await;
    let conclusion = f.conclude(&told, &[first, second]).await;
    let patch = FactPatch {
        pinned: Some(true),
        ..FactPatch::default()
    };
    let (facts, edit) = (&f.ledger().facts, f.audit_edit("fact.edit"));
    facts
        .edit_fact(&f.scope, conclusion, &patch, None, &edit)
        .await
        .unwrap();
    let left: Vec<FactId> = f.taught().await.iter().map(|fact| fact.id).collect();
    assert_eq!(left, [third], "its premises are consolidated no more");

    for number in [4, 5] {
        told.commit_turn(f, number).await;
        told.learn_fact(f, number as usize, &format!("likes nut {number}"), &[])
            .await;
    }
    let other = f.conclude_for(&told, 5, &[third]).await;
    assert_eq!((f.end_of(conclusion).await, f.end_of(other).await), (None, None));
    let edit = f.audit_edit("fact.remove");
    facts.remove_fact(&f.scope, conclusion, None, &edit).await.unwrap();
    assert_eq!(f.taught().await.len(), 3, "nothing is concluded from them again");
}

pub async fn consolidation_of_an_unsaid_turn_is_not_written<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 4).await;
    let [first, second, _] = three_facts(f, &told).await;
    let fence = f.consolidation_fence(&told, 4).await;
    let commit = f.conclusion_of(fence, &[first, second], "likes fruit").await;
    let (three, four) = (told.turn(3), told.turn(4));
    told.rewind_to(f, Some(three)).await;
    assert_eq!(f.consolidate(&commit).await, ConsolidationOutcome::Fenced);
    let store = &f.ledger().consolidation;
    let queued = store
        .queue_consolidation(&f.scope, four, f.id(), f.now())
        .await
        .unwrap();
    assert!(!queued, "the turn does not stand");
    let queued = store
        .queue_consolidation(&f.other, three, f.id(), f.now())
        .await
        .unwrap();
    assert!(!queued, "a foreign turn");
}

pub async fn taught_facts_are_read_in_pages_and_worlds_once_a_period<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 3).await;
    let facts = three_facts(f, &told).await;
    let authored = NewFact {
        authored: true,
        cause: Cause::Edit(f.id()),
        ..f.sample_fact("likes ale")
    };
    f.create_fact(authored).await;
    let store = &f.ledger().consolidation;
    let until = f.now() + chrono::Duration::days(1);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = store
            .list_taught_facts(&f.scope, &f.world, after.as_ref(), until, 2)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        after = Some(ScanPlace {
            audience: last.audience.audience_key(),
            valid_at: last.valid_at,
            fact: last.id,
        });
        seen.extend(page.iter().map(|fact| fact.id));
    }
    assert_eq!(seen.len(), 3, "the author's fact is left out");
    assert!(facts.iter().all(|fact| seen.contains(fact)));
    let begin = f.fact(facts[0]).await.valid_at;
    for (scope, until) in [(&f.other, until), (&f.scope, begin)] {
        let found = store.list_taught_facts(scope, &f.world, None, until, 9).await.unwrap();
        assert!(found.is_empty());
    }
    let of_turn = store.list_facts_of_turn(&f.scope, told.turn(2)).await.unwrap();
    assert_eq!(of_turn.iter().map(|fact| fact.id).collect::<Vec<_>>(), [facts[1]]);

    let due = async |at: DateTime<Utc>| store.list_worlds_to_scan(&f.scope, at, 9).await.unwrap();
    assert!(due(f.now()).await.contains(&f.world), "never looked through");
    store.mark_scanned(&f.scope, &f.world, f.now()).await.unwrap();
    assert!(!due(f.now() - chrono::Duration::seconds(1)).await.contains(&f.world));
    assert!(due(f.now()).await.contains(&f.world));
    let later = f.now() + chrono::Duration::days(1);
    store.mark_scanned(&f.scope, &f.world, later).await.unwrap();
    assert!(!due(f.now()).await.contains(&f.world));
}
