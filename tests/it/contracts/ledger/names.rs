//! Facts that name their subject.

use colloquy::{
    ids::FactId,
    memory::fact::{Knower, NewFact, Polarity, Viewpoint},
};

use super::{Subject, fixture::Fixture};

fn named<S: Subject>(f: &Fixture<S>, name: &str) -> NewFact {
    let mut fact = f.a_fact(&format!("The innkeeper is called {name}."));
    "the innkeeper".clone_into(&mut fact.statement.subject);
    "be named".clone_into(&mut fact.statement.predicate);
    name.clone_into(&mut fact.statement.object);
    fact
}

async fn names<S: Subject>(f: &Fixture<S>, viewpoint: &Viewpoint, limit: u32) -> Vec<FactId> {
    let facts = &f.ledger().facts;
    let names = facts.names(&f.scope, viewpoint, f.now(), limit).await.unwrap();
    names.into_iter().map(|name| name.fact).collect()
}

pub async fn who_is_who_is_told_to_those_who_may_know<S: Subject>(f: &Fixture<S>) {
    let open = f.create(named(f, "Bram")).await;
    f.tick();
    let mut korean = named(f, "브람");
    "이름이다".clone_into(&mut korean.statement.predicate);
    korean.audience.knowers.insert(Knower::World);
    let korean = f.create(korean).await;
    let mut own = named(f, "Old Bram");
    own.audience.private_to = Some(f.player.clone());
    own.locks = "scenario:mira/well".parse().unwrap();
    let own = f.create(own).await;
    let mut hers = named(f, "Bramble");
    hers.audience.private_to = Some("p8".parse().unwrap());
    let hers = f.create(hers).await;
    let mut elsewhere = named(f, "Bran");
    elsewhere.audience.knowers = [Knower::Npc("nobody".parse().unwrap())].into();
    f.create(elsewhere).await;
    let mut denied = named(f, "Brand");
    denied.statement.polarity = Polarity::Negative;
    f.create(denied).await;
    f.create(f.a_fact("The innkeeper is tall.")).await;

    assert_eq!(names(f, &f.viewpoint(), 9).await, [open, korean, own]);
    let nobody = Viewpoint {
        player: None,
        ..f.viewpoint()
    };
    assert_eq!(names(f, &nobody, 9).await, [open, korean]);
    assert_eq!(names(f, &nobody, 1).await, [korean], "the newest");
    let designer = Viewpoint {
        sees_all_players: true,
        ..nobody
    };
    assert_eq!(names(f, &designer, 9).await, [open, korean, own, hers]);
    let facts = &f.ledger().facts;
    let all = facts.names(&f.scope, &f.viewpoint(), f.now(), 9).await.unwrap();
    let name = all.iter().find(|name| name.fact == own).unwrap();
    let read = (name.subject.as_str(), name.name.as_str(), name.locks.to_string());
    assert_eq!(read, ("the innkeeper", "Old Bram", "scenario:mira/well".to_owned()));
    let others = facts.names(&f.other, &f.viewpoint(), f.now(), 9).await.unwrap();
    assert!(others.is_empty());
}

pub async fn a_name_counts_while_its_fact_is_valid<S: Subject>(f: &Fixture<S>) {
    let told = f.now();
    let name = f.create(named(f, "Bram")).await;
    f.tick();
    let between = f.now();
    f.tick();
    let facts = &f.ledger().facts;
    let edit = f.edit("fact.remove");
    facts.remove(&f.scope, name, None, &edit).await.unwrap();
    for (at, known) in [
        (told - chrono::Duration::seconds(1), false),
        (between, true),
        (f.now(), false),
    ] {
        let names = facts.names(&f.scope, &f.viewpoint(), at, 9).await.unwrap();
        assert_eq!(!names.is_empty(), known, "{at}");
    }
    let edit = f.edit("fact.restore");
    facts.restore(&f.scope, name, None, &edit).await.unwrap();
    assert_eq!(names(f, &f.viewpoint(), 9).await, [name]);
}
