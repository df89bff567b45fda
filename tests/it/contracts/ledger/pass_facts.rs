//! The facts that a curation pass reads.

use std::collections::BTreeSet;

use colloquy::{
    memory::{
        disclosure::{audience::Knower, locks::DisclosureLock},
        fact::{Cause, Fact, Importance, InvalidReason, NewFact},
    },
    ports::ledger::curation::{PassFactQuery, PassFacts},
};

use super::{
    LedgerSubject,
    fixture::Fixture,
    rewind_fixtures::{RewindFixture, dialogue_with_turns},
    saves::put_default_world,
};

/// Returns the facts for a pass over turns of a dialogue, by the NPC of the fixture.
async fn facts_for_pass<S: LedgerSubject>(f: &Fixture<S>, told: &RewindFixture, turns: (u32, u32)) -> PassFacts {
    let last = &told.turns[turns.1 as usize - 1];
    let query = PassFactQuery {
        world: f.world.clone(),
        dialogue: told.id(),
        turns,
        player: last.player.clone(),
        knowers: vec![Knower::Npc(f.npc.clone()), Knower::World],
        said_at: last.committed_at,
        now: f.now(),
        limit: 9,
    };
    let curation = &f.ledger().curation;
    let of_other = curation.load_pass_facts(&f.other, &query).await.unwrap();
    assert_eq!(of_other, PassFacts::default(), "another tenant");
    curation.load_pass_facts(&f.scope, &query).await.unwrap()
}

fn contents(facts: &[Fact]) -> Vec<&str> {
    facts.iter().map(|fact| fact.view.content.as_str()).collect()
}

pub async fn facts_for_a_pass_rest_on_its_dialogue<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 5).await;
    let other = dialogue_with_turns(f, 3).await;
    let mut taught = Vec::new();
    for (number, content) in [(1, "plums"), (2, "figs"), (3, "nuts")] {
        taught.push(told.learn_fact(f, number, content, &[]).await);
    }
    told.learn_fact(f, 4, "no figs", &taught[1..2]).await;
    assert_eq!(
        contents(&facts_for_pass(f, &told, (4, 4)).await.learned),
        ["nuts", "plums", "no figs"],
        "those of the turns before come first"
    );
    assert_eq!(
        contents(&facts_for_pass(f, &told, (1, 3)).await.learned),
        ["nuts", "figs", "plums"],
        "turn 4 is not read yet"
    );

    // Another dialogue replaces a fact, and has another one forgotten.
    other.learn_fact(f, 1, "no plums", &taught[..1]).await;
    let mut plan = other.fact_plan(f, 2, "forgetful", &taught[2..]).await;
    plan.invalidations[0].reason = InvalidReason::Forgotten;
    f.reconcile_plan(&plan).await;
    let mut plan = told.fact_plan(f, 5, "vital", &[]).await;
    plan.facts[0].statement.importance = Importance::new(9).unwrap();
    let mut secret = f.sample_fact("of another player");
    secret.cause = plan.facts[0].cause;
    secret.audience.private_to = Some("stranger".parse().unwrap());
    let mut expired = f.sample_fact("expired");
    (expired.cause, expired.expires_at) = (plan.facts[0].cause, Some(f.now()));
    plan.facts.extend([secret, expired]);
    f.reconcile_plan(&plan).await;
    let learned = facts_for_pass(f, &told, (5, 5)).await.learned;
    assert_eq!(contents(&learned), ["no figs", "plums", "vital"]);
    let one_stretch = facts_for_pass(f, &told, (1, 5)).await.learned;
    assert_eq!(contents(&one_stretch), ["vital", "no figs", "plums"]);

    let kept = told.turn(2);
    told.rewind_to(f, Some(kept)).await;
    assert_eq!(
        contents(&facts_for_pass(f, &told, (2, 2)).await.learned),
        ["plums", "figs"],
        "turn 4 no longer replaces the figs"
    );
}

pub async fn authored_facts_for_a_pass_are_open_to_its_player<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let told = dialogue_with_turns(f, 1).await;
    let authored = |content: &str, change: &dyn Fn(&mut NewFact)| {
        let mut fact = f.sample_fact(content);
        (fact.authored, fact.valid_at) = (true, told.turns[0].committed_at);
        fact.audience.private_to = None;
        change(&mut fact);
        fact
    };
    let of_world = |fact: &mut NewFact| fact.audience.knowers = [Knower::World].into();
    let private =
        |player: &'static str| move |fact: &mut NewFact| fact.audience.private_to = Some(player.parse().unwrap());
    let player = f.player.clone();
    let written = [
        authored("open", &|_| {}),
        authored("of everybody", &of_world),
        authored("vital", &|fact| fact.statement.importance = Importance::new(9).unwrap()),
        authored("confided", &|fact| fact.audience.private_to = Some(player.clone())),
        authored("of another player", &private("stranger")),
        authored("of another NPC", &|fact| {
            fact.audience.knowers = [Knower::Npc("nobody".parse().unwrap())].into();
        }),
        authored("locked", &|fact| {
            fact.locks = [DisclosureLock::Hearers(BTreeSet::new())].into_iter().collect();
        }),
        authored("later", &|fact| fact.valid_at += chrono::Duration::hours(1)),
        authored("removed", &|_| {}),
    ];
    let mut ids = Vec::new();
    for mut fact in written {
        let edit = f.audit_edit("fact.create");
        fact.cause = Cause::Edit(edit.id);
        ids.push(fact.id);
        let facts = &f.ledger().facts;
        facts.create_fact(&f.scope, &fact, false, &edit).await.unwrap();
    }
    let (facts, removal) = (&f.ledger().facts, f.audit_edit("fact.remove"));
    facts.remove_fact(&f.scope, ids[8], None, &removal).await.unwrap();
    // A fact that the dialogue taught is none of them.
    told.learn_fact(f, 1, "plums", &[]).await;
    let facts = facts_for_pass(f, &told, (1, 1)).await;
    assert_eq!(contents(&facts.authored), ["vital", "confided", "of everybody", "open"]);
    assert_eq!(contents(&facts.learned), ["plums"]);
}
