use std::{collections::BTreeSet, time::Duration};

use colloquy::{
    ids::FactId,
    memory::{
        fact::{Audience, Fact, FactKind, FactView, InvalidReason, Knower, NewFact, Viewpoint},
        timeline::Replaced,
    },
    ports::ledger::facts::{Confirmed, FactEdit, FactFilter, FactPatch},
};

use super::{
    Subject,
    fixture::{Fixture, importance, page},
};

pub(super) async fn confirmed<S: Subject>(f: &Fixture<S>, viewpoint: &Viewpoint, ids: &[FactId]) -> Vec<FactId> {
    let rows = f
        .ledger()
        .facts
        .confirm(&f.scope, viewpoint, ids, f.now())
        .await
        .unwrap();
    assert!(rows.locked.is_empty());
    rows.open.into_iter().map(|row| row.fact).collect()
}

pub async fn a_created_fact_reads_back_whole<S: Subject>(f: &Fixture<S>) {
    let premise: FactId = f.id();
    let mut new = f.a_fact("the player's \"mail\" is 비밀");
    new.audience.knowers.insert(Knower::World);
    new.audience.private_to = Some(f.player.clone());
    new.statement.pinned = true;
    new.expires_at = Some(f.now() + chrono::Duration::days(30));
    new.source = Some((f.a_dialogue().id, 4));
    new.derived_from = vec![premise];
    new.pii = vec!["email".to_owned()];
    new.authored = true;
    new.locks = "scenario:ergen/fire;scenario:mira/well;hearers:p7+p8".parse().unwrap();
    let id = f.create(new.clone()).await;
    let wanted = Fact {
        id,
        world: new.world,
        audience: new.audience,
        locks: new.locks,
        replaced_by: Vec::new(),
        view: FactView::of(&new.statement),
        statement: new.statement,
        valid_at: new.valid_at,
        invalid: None,
        expires_at: new.expires_at,
        cause: new.cause,
        source: new.source,
        derived_from: new.derived_from,
        pii: new.pii,
        authored: true,
        version: 1,
    };
    assert_eq!(f.fact(id).await, wanted);
    assert_eq!(f.ledger().facts.get(&f.scope, f.id()).await.unwrap(), None);
    assert!(f.ledger().facts.history(&f.scope, id).await.unwrap().is_empty());
}

pub async fn confirm_checks_validity_audience_and_privacy<S: Subject>(f: &Fixture<S>) {
    let known_to = |knower: Knower, private_to: Option<&str>| NewFact {
        audience: Audience {
            knowers: BTreeSet::from([knower]),
            private_to: private_to.map(|player| player.parse().unwrap()),
        },
        ..f.a_fact("something")
    };
    let mut everywhere = known_to(Knower::World, None);
    everywhere.audience.knowers.insert(Knower::Npc(f.npc.clone()));
    everywhere
        .audience
        .knowers
        .insert(Knower::Faction("guild".parse().unwrap()));
    let everywhere = f.create(everywhere).await;
    let guild = f
        .create(known_to(Knower::Faction("guild".parse().unwrap()), None))
        .await;
    let own = f.create(known_to(Knower::Npc(f.npc.clone()), Some("p7"))).await;
    let hers = f.create(known_to(Knower::Npc(f.npc.clone()), Some("p8"))).await;
    let foreign_npc = f.create(known_to(Knower::Npc("ergen".parse().unwrap()), None)).await;
    let thieves = f
        .create(known_to(Knower::Faction("thieves".parse().unwrap()), None))
        .await;
    let elsewhere = f
        .create(NewFact {
            world: "elsewhere".parse().unwrap(),
            ..known_to(Knower::World, None)
        })
        .await;
    let gone = f.create(known_to(Knower::World, None)).await;
    f.ledger()
        .facts
        .remove(&f.scope, gone, None, &f.edit("fact.remove"))
        .await
        .unwrap();
    let mut ids = vec![
        gone,
        guild,
        hers,
        elsewhere,
        own,
        thieves,
        foreign_npc,
        everywhere,
        f.id(),
    ];

    let player = f.viewpoint();
    assert_eq!(confirmed(f, &player, &ids).await, [guild, own, everywhere]);
    let nobody = Viewpoint {
        player: None,
        ..f.viewpoint()
    };
    assert_eq!(confirmed(f, &nobody, &ids).await, [guild, everywhere]);
    let designer = Viewpoint {
        sees_all_players: true,
        ..nobody.clone()
    };
    assert_eq!(confirmed(f, &designer, &ids).await, [guild, hers, own, everywhere]);
    let outsider = Viewpoint {
        npc: "ergen".parse().unwrap(),
        factions: Vec::new(),
        ..nobody
    };
    assert_eq!(confirmed(f, &outsider, &ids).await, [foreign_npc, everywhere]);
    assert!(confirmed(f, &player, &[]).await.is_empty());
    // An id proposed twice is confirmed once.
    ids.push(guild);
    assert_eq!(confirmed(f, &player, &ids).await, [guild, own, everywhere]);
}

pub async fn confirm_asks_about_the_moment_given<S: Subject>(f: &Fixture<S>) {
    let start = f.now();
    let mut new = f.a_fact("a festival is on");
    new.valid_at = start + chrono::Duration::seconds(10);
    new.expires_at = Some(start + chrono::Duration::seconds(30));
    let id = f.create(new).await;
    f.clock.advance(Duration::from_secs(20));
    f.ledger()
        .facts
        .remove(&f.scope, id, None, &f.edit("fact.remove"))
        .await
        .unwrap();
    let at = |seconds| {
        let (moment, viewpoint) = (start + chrono::Duration::seconds(seconds), f.viewpoint());
        let facts = &f.ledger().facts;
        let scope = &f.scope;
        async move { facts.confirm(scope, &viewpoint, &[id], moment).await.unwrap().open }
    };
    assert!(at(9).await.is_empty());
    assert_eq!(at(10).await, [Confirmed { fact: id, version: 2 }]);
    assert_eq!(at(19).await.len(), 1);
    assert!(at(20).await.is_empty());
    // Put back, it ends where it expires.
    f.ledger()
        .facts
        .restore(&f.scope, id, None, &f.edit("fact.restore"))
        .await
        .unwrap();
    assert_eq!(at(29).await, [Confirmed { fact: id, version: 3 }]);
    assert!(at(30).await.is_empty());
}

pub async fn what_is_replaced_stays_so_when_that_is_said_again<S: Subject>(f: &Fixture<S>) {
    let mut alone = f.a_fact("likes grapes");
    alone.audience.private_to = Some(f.player.clone());
    let older = f.create(alone).await;
    f.tick();
    let newer = f.a_fact("hates grapes");
    let mut plan = f.a_plan().await;
    plan.replaced.push(Replaced {
        fact: older,
        by: newer.id,
    });
    let mut ids = vec![older, newer.id];
    plan.facts.push(newer);
    f.reconcile(&plan).await;
    assert_eq!(confirmed(f, &f.viewpoint(), &ids).await, ids[1..]);
    for again in ["cannot stand grapes", "never liked grapes"] {
        f.tick();
        let last = ids[ids.len() - 1];
        ids.push(f.learn(f.a_fact(again), &[(last, InvalidReason::Duplicate)]).await);
        assert_eq!(confirmed(f, &f.viewpoint(), &ids).await, ids[ids.len() - 1..]);
    }
    // As it was before that.
    let (facts, then) = (&f.ledger().facts, f.now() - Duration::from_secs(1));
    let rows = facts.confirm(&f.scope, &f.viewpoint(), &ids, then).await.unwrap();
    assert_eq!(rows.open.iter().map(|row| row.fact).collect::<Vec<_>>(), ids[2..3]);
    // Nothing is left that says so.
    f.tick();
    facts
        .remove(&f.scope, ids[3], None, &f.edit("fact.remove"))
        .await
        .unwrap();
    assert_eq!(confirmed(f, &f.viewpoint(), &ids).await, ids[..1]);
}

pub async fn what_was_taken_out_is_told_to_who_might_have_used_it<S: Subject>(f: &Fixture<S>) {
    let facts = &f.ledger().facts;
    let told = async |viewpoint: &Viewpoint, limit| -> Vec<String> {
        let standing = facts
            .standing(&f.scope, viewpoint, false, f.now(), limit)
            .await
            .unwrap();
        standing.taken_out.into_iter().map(|gone| gone.content).collect()
    };
    let of = |content: &str, private_to: Option<&str>| {
        let mut fact = f.a_fact(content);
        fact.audience.private_to = private_to.map(|player| player.parse().unwrap());
        fact
    };
    let mut foreign = of("of another NPC", Some("p7"));
    foreign.audience.knowers = [Knower::Npc("ergen".parse().unwrap())].into();
    for fact in [
        of("hers", Some("p8")),
        of("everybody's", None),
        foreign,
        of("still valid", Some("p7")),
    ] {
        let is_valid = fact.statement.content == "still valid";
        let id = f.create(fact).await;
        f.tick();
        if !is_valid {
            facts.remove(&f.scope, id, None, &f.edit("fact.remove")).await.unwrap();
        }
    }
    for reason in [InvalidReason::Superseded, InvalidReason::Forgotten] {
        f.tick();
        let id = f.learn(of(reason.as_str(), Some("p7")), &[]).await;
        f.learn(f.a_fact("something"), &[(id, reason)]).await;
    }
    assert_eq!(told(&f.viewpoint(), 9).await, ["forgotten", "everybody's"]);
    f.tick();
    let another = f.create(of("another", Some("p7"))).await;
    f.tick();
    let edit = f.edit("fact.remove");
    facts.remove(&f.scope, another, None, &edit).await.unwrap();
    // The latest of each privacy.
    assert_eq!(told(&f.viewpoint(), 1).await, ["another", "everybody's"]);
    facts
        .restore(&f.scope, another, None, &f.edit("fact.restore"))
        .await
        .unwrap();
    assert_eq!(told(&f.viewpoint(), 1).await, ["forgotten", "everybody's"]);
    let nobody = Viewpoint {
        player: None,
        ..f.viewpoint()
    };
    assert_eq!(told(&nobody, 9).await, ["everybody's"]);
    let elsewhere = facts
        .standing(&f.other, &f.viewpoint(), false, f.now(), 9)
        .await
        .unwrap();
    assert!(elsewhere.taken_out.is_empty());
}

pub async fn bodies_carry_view_and_embedding<S: Subject>(f: &Fixture<S>) {
    let id = f.create(f.a_fact("the player likes grapes")).await;
    let patch = FactPatch {
        content: Some("the player loves grapes".to_owned()),
        embedding: Some(vec![0.0, 0.0, 1.0]),
        ..FactPatch::default()
    };
    let facts = &f.ledger().facts;
    let first = facts.bodies(&f.scope, &[id, f.id()]).await.unwrap();
    assert_eq!(first.len(), 1);
    assert_eq!((first[0].id, first[0].version), (id, 1));
    assert_eq!(first[0].embedding.as_ref(), [0.6, -0.8, 0.0]);
    assert_eq!(
        (
            first[0].subject.as_str(),
            first[0].predicate.as_str(),
            first[0].speaker.as_str()
        ),
        ("player", "likes", "player")
    );
    facts
        .edit(&f.scope, id, &patch, None, &f.edit("fact.edit"))
        .await
        .unwrap();
    let second = facts.bodies(&f.scope, &[id]).await.unwrap();
    assert_eq!(
        (second[0].version, second[0].view.content.as_str()),
        (2, "the player loves grapes")
    );
    assert_eq!(second[0].embedding.as_ref(), [0.0, 0.0, 1.0]);
    assert!(facts.bodies(&f.scope, &[]).await.unwrap().is_empty());
}

pub(super) async fn standing<S: Subject>(f: &Fixture<S>, viewpoint: &Viewpoint, limit: u32) -> Vec<FactId> {
    let facts = f
        .ledger()
        .facts
        .standing(&f.scope, viewpoint, false, f.now(), limit)
        .await
        .unwrap();
    facts.facts.into_iter().map(|fact| fact.id).collect()
}

fn weighted<S: Subject>(f: &Fixture<S>, kind: FactKind, weight: u8, pinned: bool) -> NewFact {
    let mut fact = f.a_fact("something that stands");
    fact.statement.kind = kind;
    fact.statement.importance = importance(weight);
    fact.statement.pinned = pinned;
    fact
}

pub async fn what_is_to_end_stands_until_then<S: Subject>(f: &Fixture<S>) {
    let goal = f.create(weighted(f, FactKind::Goal, 4, false)).await;
    let until = f.now() + chrono::Duration::minutes(10);
    let mut fact = weighted(f, FactKind::Goal, 9, true);
    fact.expires_at = Some(until);
    let ending = f.create(fact).await;
    let designer = Viewpoint {
        sees_all_players: true,
        ..f.viewpoint()
    };
    for viewpoint in [f.viewpoint(), designer] {
        let facts = &f.ledger().facts;
        let standing = async |at, limit| {
            let found = facts.standing(&f.scope, &viewpoint, false, at, limit).await.unwrap();
            found.facts.iter().map(|fact| fact.id).collect::<Vec<_>>()
        };
        let just_before = until - chrono::Duration::microseconds(1);
        assert_eq!(standing(just_before, 9).await, [ending, goal]);
        assert_eq!(standing(just_before, 1).await, [ending]);
        assert_eq!(standing(until, 9).await, [goal]);
    }
}

pub async fn standing_facts_are_ranked_and_limited<S: Subject>(f: &Fixture<S>) {
    let background = f.create(weighted(f, FactKind::Preference, 10, false)).await;
    let goal = f.create(weighted(f, FactKind::Goal, 4, false)).await;
    let habit = f.create(weighted(f, FactKind::Habit, 4, false)).await;
    f.tick();
    let newer = f.create(weighted(f, FactKind::Event, 4, false)).await;
    let allergy = f.create(weighted(f, FactKind::Constraint, 9, true)).await;
    let mut both = weighted(f, FactKind::Opinion, 8, true);
    both.audience.knowers.insert(Knower::World);
    both.audience.private_to = Some(f.player.clone());
    let both = f.create(both).await;
    let mut private = weighted(f, FactKind::Goal, 10, true);
    private.audience.private_to = Some("p8".parse().unwrap());
    let private = f.create(private).await;
    let gone = f.create(weighted(f, FactKind::Goal, 10, true)).await;
    f.ledger()
        .facts
        .remove(&f.scope, gone, None, &f.edit("fact.remove"))
        .await
        .unwrap();

    // Most important first, then newest, then by id.
    assert_eq!(
        standing(f, &f.viewpoint(), 9).await,
        [allergy, both, newer, goal, habit]
    );
    // At most two pinned ones and two of mutable kinds.
    assert_eq!(standing(f, &f.viewpoint(), 2).await, [allergy, both, newer]);
    assert_eq!(standing(f, &f.viewpoint(), 1).await, [allergy, both]);
    assert!(!standing(f, &f.viewpoint(), 9).await.contains(&background));
    let hers = Viewpoint {
        player: Some("p8".parse().unwrap()),
        ..f.viewpoint()
    };
    assert_eq!(standing(f, &hers, 9).await, [private, allergy, newer, goal, habit]);
    let before = f.now() - chrono::Duration::seconds(1);
    let earlier = f
        .ledger()
        .facts
        .standing(&f.scope, &f.viewpoint(), false, before, 9)
        .await
        .unwrap();
    assert_eq!(
        earlier.facts.iter().map(|fact| fact.id).collect::<Vec<_>>(),
        [goal, habit]
    );
}

pub async fn a_designer_sees_what_is_private_to_any_player<S: Subject>(f: &Fixture<S>) {
    let mut facts = Vec::new();
    for player in ["p7", "p8"] {
        let mut fact = weighted(f, FactKind::Goal, 5, true);
        fact.audience.knowers.insert(Knower::World);
        fact.audience.private_to = Some(player.parse().unwrap());
        facts.push(f.create(fact).await);
    }
    let designer = Viewpoint {
        player: None,
        sees_all_players: true,
        ..f.viewpoint()
    };
    assert_eq!(standing(f, &designer, 9).await, facts);
    assert_eq!(standing(f, &designer, 1).await, facts[..1]);
    assert_eq!(standing(f, &f.viewpoint(), 9).await, facts[..1]);
}

pub(super) fn everything<S: Subject>(f: &Fixture<S>) -> FactFilter {
    FactFilter {
        viewpoint: f.viewpoint(),
        subject: None,
        kind: None,
        from: None,
        to: None,
        at: f.now(),
        include_invalid: false,
        flagged: false,
    }
}

pub(super) async fn listed<S: Subject>(f: &Fixture<S>, filter: &FactFilter) -> Vec<FactId> {
    let page = f.ledger().facts.list(&f.scope, filter, &page(200, None)).await.unwrap();
    page.items.into_iter().map(|fact| fact.id).collect()
}

pub async fn facts_are_listed_newest_first_in_pages<S: Subject>(f: &Fixture<S>) {
    let mut ids = Vec::new();
    for number in 0..7 {
        let mut fact = f.a_fact("one of several");
        // Known in several ways: still listed once.
        match number % 3 {
            0 => drop(fact.audience.knowers.insert(Knower::World)),
            1 => fact.audience.knowers = BTreeSet::from([Knower::Faction("guild".parse().unwrap())]),
            _ => {}
        }
        ids.insert(0, f.create(fact).await);
        if number % 2 == 0 {
            f.tick();
        }
    }
    let mut got = Vec::new();
    let mut after = None;
    loop {
        let one = f
            .ledger()
            .facts
            .list(&f.scope, &everything(f), &page(2, after))
            .await
            .unwrap();
        assert!(one.items.len() <= 2);
        got.extend(one.items.into_iter().map(|fact| fact.id));
        after = one.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(got, ids);
}

pub async fn facts_are_listed_by_filter<S: Subject>(f: &Fixture<S>) {
    let old = f.create(f.a_fact("old")).await;
    let old_at = f.now();
    f.clock.advance(Duration::from_secs(100));
    let mut goal = f.a_fact("a goal");
    goal.statement.kind = FactKind::Goal;
    goal.statement.subject = String::from("mira");
    let goal = f.create(goal).await;
    let mut private = f.a_fact("private");
    private.audience.private_to = Some("p8".parse().unwrap());
    let private = f.create(private).await;
    let gone = f.create(f.a_fact("gone")).await;
    f.ledger()
        .facts
        .remove(&f.scope, gone, None, &f.edit("fact.remove"))
        .await
        .unwrap();

    let all = everything(f);
    assert_eq!(listed(f, &all).await, [goal, old]);
    let with = |change: &dyn Fn(&mut FactFilter)| {
        let mut filter = all.clone();
        change(&mut filter);
        filter
    };
    let invalid_too = with(&|filter| filter.include_invalid = true);
    assert_eq!(listed(f, &invalid_too).await, [gone, goal, old]);
    let designer = with(&|filter| filter.viewpoint.sees_all_players = true);
    assert_eq!(listed(f, &designer).await, [private, goal, old]);
    let goals = with(&|filter| filter.kind = Some(FactKind::Goal));
    assert_eq!(listed(f, &goals).await, [goal]);
    let player = with(&|filter| filter.subject = Some("player".to_owned()));
    assert_eq!(listed(f, &player).await, [old]);
    let until = with(&|filter| filter.to = Some(old_at));
    assert_eq!(listed(f, &until).await, [old]);
    let since = with(&|filter| filter.from = Some(old_at + chrono::Duration::seconds(1)));
    assert_eq!(listed(f, &since).await, [goal]);
    let then = with(&|filter| filter.at = old_at);
    assert_eq!(listed(f, &then).await, [old]);
    let elsewhere = with(&|filter| filter.viewpoint.world = "elsewhere".parse().unwrap());
    assert!(listed(f, &elsewhere).await.is_empty());
}

pub async fn facts_of_another_tenant_are_not_found<S: Subject>(f: &Fixture<S>) {
    let id = f.create(weighted(f, FactKind::Goal, 5, true)).await;
    let facts = &f.ledger().facts;
    let edit = || f.edit("rival");
    let patch = FactPatch {
        pinned: Some(false),
        ..FactPatch::default()
    };
    assert_eq!(facts.get(&f.other, id).await.unwrap(), None);
    assert!(
        facts
            .confirm(&f.other, &f.viewpoint(), &[id], f.now())
            .await
            .unwrap()
            .open
            .is_empty()
    );
    assert!(facts.bodies(&f.other, &[id]).await.unwrap().is_empty());
    assert!(
        facts
            .standing(&f.other, &f.viewpoint(), false, f.now(), 9)
            .await
            .unwrap()
            .facts
            .is_empty()
    );
    assert!(
        facts
            .list(&f.other, &everything(f), &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert_eq!(
        facts.edit(&f.other, id, &patch, None, &edit()).await.unwrap(),
        FactEdit::NotFound
    );
    assert_eq!(
        facts.remove(&f.other, id, None, &edit()).await.unwrap(),
        FactEdit::NotFound
    );
    assert_eq!(
        facts.restore(&f.other, id, None, &edit()).await.unwrap(),
        FactEdit::NotFound
    );
    facts.remove(&f.scope, id, None, &f.edit("fact.remove")).await.unwrap();
    assert!(facts.history(&f.other, id).await.unwrap().is_empty());
    assert!(facts.invalidated_by(&f.other, id).await.unwrap().is_empty());
    assert_eq!(
        facts
            .memory_position(&f.other, &f.world, std::slice::from_ref(&f.npc))
            .await
            .unwrap()
            .seq,
        0
    );
    assert_eq!(f.fact(id).await.version, 2);
}
