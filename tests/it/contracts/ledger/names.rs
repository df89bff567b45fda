//! Facts that name their subject.

use colloquy::{
    ids::FactId,
    memory::{
        disclosure::audience::{Knower, Viewpoint},
        fact::{NewFact, Polarity},
    },
};

use super::{LedgerSubject, fixture::Fixture};

fn naming_fact<S: LedgerSubject>(f: &Fixture<S>, name: &str) -> NewFact {
    let mut fact = f.sample_fact(&format!("The innkeeper is called {name}."));
    "the innkeeper".clone_into(&mut fact.statement.subject);
    "be named".clone_into(&mut fact.statement.predicate);
    name.clone_into(&mut fact.statement.object);
    fact
}

async fn visible_names<S: LedgerSubject>(f: &Fixture<S>, viewpoint: &Viewpoint, limit: u32) -> Vec<FactId> {
    let facts = &f.ledger().facts;
    let names = facts
        .list_naming_facts(&f.scope, viewpoint, f.now(), limit)
        .await
        .unwrap();
    names.into_iter().map(|name| name.fact).collect()
}

pub async fn names_are_read_by_permitted_viewpoints_only<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.create_fact(naming_fact(f, "Bram")).await;
    f.advance_clock();
    let mut korean = naming_fact(f, "브람");
    "이름이다".clone_into(&mut korean.statement.predicate);
    korean.audience.knowers.insert(Knower::World);
    let korean = f.create_fact(korean).await;
    let mut own = naming_fact(f, "Old Bram");
    own.audience.private_to = Some(f.player.clone());
    own.locks = "scenario:mira/well".parse().unwrap();
    let own = f.create_fact(own).await;
    let mut hers = naming_fact(f, "Bramble");
    hers.audience.private_to = Some("p8".parse().unwrap());
    let hers = f.create_fact(hers).await;
    let mut elsewhere = naming_fact(f, "Bran");
    elsewhere.audience.knowers = [Knower::Npc("nobody".parse().unwrap())].into();
    f.create_fact(elsewhere).await;
    let mut denied = naming_fact(f, "Brand");
    denied.statement.polarity = Polarity::Negative;
    f.create_fact(denied).await;
    f.create_fact(f.sample_fact("The innkeeper is tall.")).await;

    assert_eq!(visible_names(f, &f.viewpoint(), 9).await, [open, korean, own]);
    let nobody = Viewpoint {
        player: None,
        ..f.viewpoint()
    };
    assert_eq!(visible_names(f, &nobody, 9).await, [open, korean]);
    assert_eq!(visible_names(f, &nobody, 1).await, [korean], "the newest");
    let designer = Viewpoint {
        sees_all_players: true,
        ..nobody
    };
    assert_eq!(visible_names(f, &designer, 9).await, [open, korean, own, hers]);
    let facts = &f.ledger().facts;
    let all = facts
        .list_naming_facts(&f.scope, &f.viewpoint(), f.now(), 9)
        .await
        .unwrap();
    let name = all.iter().find(|name| name.fact == own).unwrap();
    let read = (name.subject.as_str(), name.name.as_str(), name.locks.to_string());
    assert_eq!(read, ("the innkeeper", "Old Bram", "scenario:mira/well".to_owned()));
    let others = facts
        .list_naming_facts(&f.other, &f.viewpoint(), f.now(), 9)
        .await
        .unwrap();
    assert!(others.is_empty());
}

pub async fn name_counts_while_its_fact_is_valid<S: LedgerSubject>(f: &Fixture<S>) {
    let told = f.now();
    let name = f.create_fact(naming_fact(f, "Bram")).await;
    f.advance_clock();
    let between = f.now();
    f.advance_clock();
    let facts = &f.ledger().facts;
    let edit = f.audit_edit("fact.remove");
    facts.remove_fact(&f.scope, name, None, &edit).await.unwrap();
    for (at, known) in [
        (told - chrono::Duration::seconds(1), false),
        (between, true),
        (f.now(), false),
    ] {
        let names = facts.list_naming_facts(&f.scope, &f.viewpoint(), at, 9).await.unwrap();
        assert_eq!(!names.is_empty(), known, "{at}");
    }
    let edit = f.audit_edit("fact.restore");
    facts.restore_fact(&f.scope, name, None, &edit).await.unwrap();
    assert_eq!(visible_names(f, &f.viewpoint(), 9).await, [name]);
}
