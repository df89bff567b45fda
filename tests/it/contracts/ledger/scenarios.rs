use colloquy::{
    memory::{
        fact::Cause,
        progress::Progress,
        scenario::{MAX_SCENARIOS_PER_NPC, Scenario},
        state::StateChange,
    },
    ports::ledger::{
        authored::{DeleteOutcome, PutOutcome},
        scenarios::Embedding,
        state::NewStateChange,
    },
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
};

fn sample_scenario<S: LedgerSubject>(f: &Fixture<S>, id: &str, required: u32) -> Scenario {
    Scenario {
        world: f.world.clone(),
        npc: f.npc.clone(),
        id: id.parse().unwrap(),
        title: format!("The \"{id}\""),
        content: "그녀의 오빠는 우물에 빠졌다.".to_owned(),
        keywords: vec!["우물".to_owned(), "brother".to_owned()],
        synonyms: vec!["sibling".to_owned()],
        required_progress: Progress::new(required).unwrap(),
        when: vec![],
        tell: None,
        version: 0,
        updated_at: f.now(),
    }
}

fn embedding(x: f32) -> Embedding {
    Embedding {
        model: "angles".to_owned(),
        vector: vec![x, -0.5, f32::MIN_POSITIVE],
    }
}

async fn populate_world<S: LedgerSubject>(f: &Fixture<S>) {
    f.put_world("vale").await;
    let (npc, edit) = (f.sample_npc("vale", "mira"), f.audit_edit("npc.put"));
    let authored = &f.ledger().authored;
    authored.put_npc(&f.scope, &npc, None, &edit).await.unwrap();
}

async fn put_scenario<S: LedgerSubject>(f: &Fixture<S>, scenario: &Scenario, version: Option<u32>) -> PutOutcome {
    let refused = put_rejection(f, scenario, version).await;
    let (scenarios, edit) = (&f.ledger().scenarios, f.audit_edit("scenario.put"));
    let put = scenarios
        .put_scenario(&f.scope, scenario, &embedding(0.5), version, &edit)
        .await;
    let put = put.unwrap();
    let written = matches!(put, PutOutcome::Created | PutOutcome::Updated { .. });
    assert_eq!(refused, (!written).then_some(put), "what was said before");
    put
}

async fn scenarios_within<S: LedgerSubject>(f: &Fixture<S>, progress: u32) -> Vec<String> {
    let scenarios = &f.ledger().scenarios;
    let progress = Progress::new(progress).unwrap();
    let found = scenarios
        .list_unlocked_scenarios(&f.scope, &f.world, &f.npc, progress)
        .await
        .unwrap();
    let ids: Vec<String> = found.iter().map(|found| found.scenario.id.to_string()).collect();
    let titles = scenarios
        .list_unlocked_titles(&f.scope, &f.world, &f.npc, progress)
        .await
        .unwrap();
    let by_title: Vec<&str> = titles.iter().map(|titled| titled.id.as_str()).collect();
    assert_eq!(by_title, ids, "the same by their titles");
    ids
}

async fn put_rejection<S: LedgerSubject>(
    f: &Fixture<S>,
    scenario: &Scenario,
    version: Option<u32>,
) -> Option<PutOutcome> {
    let refusal = f.ledger().scenarios.check_put(&f.scope, scenario, version);
    refusal.await.unwrap()
}

pub async fn scenarios_are_created_read_listed_and_versioned<S: LedgerSubject>(f: &Fixture<S>) {
    let scenarios = &f.ledger().scenarios;
    let well = sample_scenario(f, "well", 2);
    assert_eq!(put_scenario(f, &well, None).await, PutOutcome::NoParent);
    populate_world(f).await;
    let npc = async || {
        f.ledger()
            .authored
            .load_npc(&f.scope, &f.world, &f.npc)
            .await
            .unwrap()
            .unwrap()
    };
    assert!(!npc().await.has_scenarios);
    assert_eq!(
        put_scenario(f, &well, Some(1)).await,
        PutOutcome::VersionMismatch { stored: 0 }
    );
    assert_eq!(put_scenario(f, &well, Some(0)).await, PutOutcome::Created);
    assert!(npc().await.has_scenarios);
    let get = async |id: &str| {
        scenarios
            .load_scenario(&f.scope, &f.world, &f.npc, &id.parse().unwrap())
            .await
            .unwrap()
    };
    assert_eq!(
        get("well").await,
        Some(Scenario {
            version: 1,
            ..well.clone()
        })
    );
    assert_eq!(get("tower").await, None);

    f.advance_clock();
    let easier = Scenario {
        required_progress: Progress::NONE,
        updated_at: f.now(),
        ..well.clone()
    };
    assert_eq!(
        put_scenario(f, &easier, Some(0)).await,
        PutOutcome::VersionMismatch { stored: 1 }
    );
    assert_eq!(
        put_scenario(f, &easier, Some(1)).await,
        PutOutcome::Updated { version: 2 }
    );
    assert_eq!(get("well").await, Some(Scenario { version: 2, ..easier }));

    put_scenario(f, &sample_scenario(f, "tower", 0), None).await;
    let list = async |after| {
        scenarios
            .list_scenarios(&f.scope, &f.world, &f.npc, &page(1, after))
            .await
            .unwrap()
    };
    let first = list(None).await;
    assert_eq!(first.items[0].id.as_str(), "tower");
    let second = list(first.next).await;
    assert_eq!((second.items[0].id.as_str(), second.next), ("well", None));
    let elsewhere = scenarios
        .list_scenarios(&f.scope, &f.world, &"ergen".parse().unwrap(), &page(9, None))
        .await;
    assert!(elsewhere.unwrap().items.is_empty());

    let delete = async |version| {
        let edit = f.audit_edit("scenario.delete");
        let id = "well".parse().unwrap();
        let gone = scenarios.delete_scenario(&f.scope, &f.world, &f.npc, &id, version, &edit);
        gone.await.unwrap()
    };
    assert_eq!(delete(Some(1)).await, DeleteOutcome::VersionMismatch { stored: 2 });
    assert_eq!(delete(Some(2)).await, DeleteOutcome::Deleted);
    assert_eq!(delete(None).await, DeleteOutcome::NotFound);
    assert_eq!(get("well").await, None);
    assert_eq!(scenarios_within(f, 9).await, ["tower"]);
    // A deleted scenario can be created again.
    assert_eq!(put_scenario(f, &well, Some(0)).await, PutOutcome::Created);
    let audit = f
        .ledger()
        .audit
        .list_audit_rows(&f.scope, &page(20, None))
        .await
        .unwrap();
    let of = |action: &str| audit.items.iter().filter(|row| row.action == action).count();
    assert_eq!(
        (of("scenario.put"), of("scenario.delete")),
        (4, 1),
        "what was refused is not in it"
    );
}

pub async fn locked_scenarios_are_not_read<S: LedgerSubject>(f: &Fixture<S>) {
    populate_world(f).await;
    for (id, required) in [("a", 0), ("b", 1), ("c", 1), ("d", 1_000_000)] {
        put_scenario(f, &sample_scenario(f, id, required), None).await;
    }
    assert_eq!(scenarios_within(f, 0).await, ["a"]);
    assert_eq!(scenarios_within(f, 1).await, ["a", "b", "c"]);
    assert_eq!(scenarios_within(f, 999_999).await, ["a", "b", "c"]);
    assert_eq!(scenarios_within(f, 1_000_000).await, ["a", "b", "c", "d"]);
    let scenarios = &f.ledger().scenarios;
    let found = scenarios
        .list_unlocked_scenarios(&f.scope, &f.world, &f.npc, Progress::NONE)
        .await
        .unwrap();
    let stored = Scenario {
        version: 1,
        ..sample_scenario(f, "a", 0)
    };
    assert_eq!((&found[0].scenario, &found[0].embedding), (&stored, &embedding(0.5)));
    let titles = scenarios.list_unlocked_titles(&f.scope, &f.world, &f.npc, Progress::new(1).unwrap());
    let b = &titles.await.unwrap()[1];
    assert_eq!(
        (b.id.as_str(), b.title.as_str(), b.required_progress.get()),
        ("b", "The \"b\"", 1)
    );
    assert_eq!((&b.keywords, &b.synonyms), (&stored.keywords, &stored.synonyms));
}

pub async fn scenarios_are_deleted_with_their_npc_and_their_world<S: LedgerSubject>(f: &Fixture<S>) {
    populate_world(f).await;
    let authored = &f.ledger().authored;
    put_scenario(f, &sample_scenario(f, "well", 0), None).await;
    f.advance_clock();
    let gone = authored
        .delete_npc(&f.scope, &f.world, &f.npc, None, &f.audit_edit("npc.delete"))
        .await;
    assert_eq!(gone.unwrap(), DeleteOutcome::Deleted);
    assert!(scenarios_within(f, 9).await.is_empty());
    let (npc, edit) = (f.sample_npc("vale", "mira"), f.audit_edit("npc.put"));
    authored.put_npc(&f.scope, &npc, None, &edit).await.unwrap();
    assert!(
        scenarios_within(f, 9).await.is_empty(),
        "each comes back when it is put again"
    );
    put_scenario(f, &sample_scenario(f, "well", 0), None).await;
    let gone = authored
        .delete_world(&f.scope, &f.world, None, &f.audit_edit("world.delete"))
        .await;
    assert_eq!(gone.unwrap(), DeleteOutcome::Deleted);
    assert!(scenarios_within(f, 9).await.is_empty());
}

pub async fn scenarios_of_an_npc_are_limited<S: LedgerSubject>(f: &Fixture<S>) {
    populate_world(f).await;
    for n in 0..MAX_SCENARIOS_PER_NPC {
        assert_eq!(
            put_scenario(f, &sample_scenario(f, &format!("s{n}"), 0), None).await,
            PutOutcome::Created
        );
    }
    let full = PutOutcome::Full {
        most: MAX_SCENARIOS_PER_NPC,
    };
    assert_eq!(put_scenario(f, &sample_scenario(f, "one-more", 0), None).await, full);
    assert_eq!(
        put_scenario(f, &sample_scenario(f, "s7", 1), None).await,
        PutOutcome::Updated { version: 2 }
    );
    let (scenarios, id) = (&f.ledger().scenarios, "s7".parse().unwrap());
    let gone = scenarios
        .delete_scenario(&f.scope, &f.world, &f.npc, &id, None, &f.audit_edit("scenario.delete"))
        .await;
    gone.unwrap();
    assert_eq!(
        put_scenario(f, &sample_scenario(f, "one-more", 0), None).await,
        PutOutcome::Created
    );
}

pub async fn scenarios_are_reembedded<S: LedgerSubject>(f: &Fixture<S>) {
    populate_world(f).await;
    let scenarios = &f.ledger().scenarios;
    for id in ["a", "b", "c"] {
        put_scenario(f, &sample_scenario(f, id, 0), None).await;
    }
    assert!(
        scenarios
            .list_unembedded(&f.scope, "angles", 9)
            .await
            .unwrap()
            .is_empty()
    );
    let missing = scenarios.list_unembedded(&f.scope, "newer", 2).await.unwrap();
    assert_eq!(missing.len(), 2);
    let newer = Embedding {
        model: "newer".to_owned(),
        vector: vec![1.0],
    };
    // A scenario changed after the read keeps the vector of its new text.
    put_scenario(f, &sample_scenario(f, "b", 0), None).await;
    for scenario in &missing {
        scenarios.store_embedding(&f.scope, scenario, &newer).await.unwrap();
    }
    let left = scenarios.list_unembedded(&f.scope, "newer", 9).await.unwrap();
    assert_eq!(
        left.iter().map(|scenario| scenario.id.as_str()).collect::<Vec<_>>(),
        ["b", "c"]
    );
    let found = scenarios
        .list_unlocked_scenarios(&f.scope, &f.world, &f.npc, Progress::NONE)
        .await
        .unwrap();
    assert_eq!((&found[0].embedding, found[0].scenario.version), (&newer, 1));
    assert!(
        scenarios
            .list_unembedded(&f.other, "newer", 9)
            .await
            .unwrap()
            .is_empty()
    );
}

pub async fn scenarios_of_another_tenant_are_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    populate_world(f).await;
    let (scenarios, well) = (&f.ledger().scenarios, sample_scenario(f, "well", 0));
    put_scenario(f, &well, None).await;
    let edit = f.audit_edit("scenario.put");
    let foreign = scenarios
        .put_scenario(&f.other, &well, &embedding(0.1), None, &edit)
        .await;
    assert_eq!(foreign.unwrap(), PutOutcome::NoParent);
    let (world, npc) = (&f.world, &f.npc);
    assert_eq!(
        scenarios.load_scenario(&f.other, world, npc, &well.id).await.unwrap(),
        None
    );
    assert!(
        scenarios
            .list_scenarios(&f.other, world, npc, &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let most = Progress::new(Progress::MAX).unwrap();
    assert!(
        scenarios
            .list_unlocked_scenarios(&f.other, world, npc, most)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        scenarios
            .list_unlocked_titles(&f.other, world, npc, most)
            .await
            .unwrap()
            .is_empty()
    );
    let refused = scenarios.check_put(&f.other, &well, None).await.unwrap();
    assert_eq!(refused, Some(PutOutcome::NoParent));
    let edit = f.audit_edit("scenario.delete");
    let gone = scenarios
        .delete_scenario(&f.other, world, npc, &well.id, None, &edit)
        .await;
    assert_eq!(gone.unwrap(), DeleteOutcome::NotFound);
    assert_eq!(scenarios_within(f, 0).await, ["well"]);
}

pub async fn backend_reports_of_a_world_are_in_order<S: LedgerSubject>(f: &Fixture<S>) {
    let state = &f.ledger().state;
    let mut written = Vec::new();
    for to in [3, 1] {
        f.advance_clock();
        let edit = f.audit_edit("progress.put");
        let change = NewStateChange {
            id: f.id(),
            world: f.world.clone(),
            dialogue: None,
            change: StateChange::Progress {
                who: "player:p7".to_owned(),
                npc: f.npc.clone(),
                to: Progress::new(to).unwrap(),
            },
            cause: Cause::Edit(edit.id),
            changed_at: f.now(),
        };
        state
            .record_changes(&f.scope, &f.world, std::slice::from_ref(&change), &edit)
            .await
            .unwrap();
        written.push(change);
    }
    let read = state.load_changes_since(&f.scope, &f.world, 0).await.unwrap();
    assert_eq!(read.generation, 0, "nothing was taken back");
    let mut seqs: Vec<i64> = read.changes.iter().map(|change| change.seq).collect();
    assert_eq!(state.load_changes(&f.scope, &seqs).await.unwrap(), read.changes);
    assert!(state.load_changes(&f.other, &seqs).await.unwrap().is_empty());
    seqs.truncate(1);
    assert_eq!(state.load_changes(&f.scope, &seqs).await.unwrap(), read.changes[..1]);
    for (stored, written) in read.changes.iter().zip(&written) {
        assert_eq!(
            (stored.id, &stored.change, stored.cause, stored.changed_at),
            (written.id, &written.change, written.cause, written.changed_at)
        );
    }
    assert_eq!(read.changes.len(), 2);
    let audit = f
        .ledger()
        .audit
        .list_audit_rows(&f.scope, &page(9, None))
        .await
        .unwrap();
    assert_eq!(audit.items.len(), 2);
    assert!(
        state
            .load_changes_since(&f.other, &f.world, 0)
            .await
            .unwrap()
            .changes
            .is_empty()
    );
}
