use std::{collections::BTreeSet, time::Duration};

use colloquy::{
    ids::FactId,
    memory::{
        disclosure::audience::{Audience, Knower, Viewpoint},
        fact::{Fact, FactKind, FoldedFact, InvalidReason, NewFact},
        timeline::FactReplacement,
    },
    ports::ledger::facts::{ConfirmedFact, FactEditOutcome, FactFilter, FactPatch},
};

use super::{
    LedgerSubject,
    fixture::{Fixture, importance, page},
};

pub(super) async fn confirmed_ids<S: LedgerSubject>(
    f: &Fixture<S>,
    viewpoint: &Viewpoint,
    ids: &[FactId],
) -> Vec<FactId> {
    let rows = f
        .ledger()
        .facts
        .confirm_facts(&f.scope, viewpoint, ids, f.now())
        .await
        .unwrap();
    assert!(rows.locked.is_empty());
    rows.open.into_iter().map(|row| row.fact).collect()
}

pub async fn created_fact_round_trips_whole<S: LedgerSubject>(f: &Fixture<S>) {
    let premise: FactId = f.id();
    let mut new = f.sample_fact("the player's \"mail\" is 비밀");
    new.audience.knowers.insert(Knower::World);
    new.audience.private_to = Some(f.player.clone());
    new.statement.pinned = true;
    new.expires_at = Some(f.now() + chrono::Duration::days(30));
    new.source = Some((f.sample_dialogue().id, 4));
    new.derived_from = vec![premise];
    new.pii = vec!["email".to_owned()];
    new.authored = true;
    new.locks = "scenario:ergen/fire;scenario:mira/well;hearers:p7+p8".parse().unwrap();
    let id = f.create_fact(new.clone()).await;
    let wanted = Fact {
        id,
        world: new.world,
        audience: new.audience,
        locks: new.locks,
        replaced_by: Vec::new(),
        view: FoldedFact::from_statement(&new.statement),
        statement: new.statement,
        valid_at: new.valid_at,
        invalid: None,
        expires_at: new.expires_at,
        cause: new.cause,
        source: new.source,
        derived_from: new.derived_from,
        pii: new.pii,
        authored: true,
        corrects: None,
        earlier_wordings: Vec::new(),
        version: 1,
    };
    assert_eq!(f.fact(id).await, wanted);
    assert_eq!(f.ledger().facts.load_fact(&f.scope, f.id()).await.unwrap(), None);
    assert!(f.ledger().facts.load_history(&f.scope, id).await.unwrap().is_empty());
}

pub async fn fact_confirmation_checks_validity_audience_and_privacy<S: LedgerSubject>(f: &Fixture<S>) {
    let known_to = |knower: Knower, private_to: Option<&str>| NewFact {
        audience: Audience {
            knowers: BTreeSet::from([knower]),
            private_to: private_to.map(|player| player.parse().unwrap()),
        },
        ..f.sample_fact("something")
    };
    let mut everywhere = known_to(Knower::World, None);
    everywhere.audience.knowers.insert(Knower::Npc(f.npc.clone()));
    everywhere
        .audience
        .knowers
        .insert(Knower::Faction("guild".parse().unwrap()));
    let everywhere = f.create_fact(everywhere).await;
    let guild = f
        .create_fact(known_to(Knower::Faction("guild".parse().unwrap()), None))
        .await;
    let own = f.create_fact(known_to(Knower::Npc(f.npc.clone()), Some("p7"))).await;
    let hers = f.create_fact(known_to(Knower::Npc(f.npc.clone()), Some("p8"))).await;
    let foreign_npc = f
        .create_fact(known_to(Knower::Npc("ergen".parse().unwrap()), None))
        .await;
    let thieves = f
        .create_fact(known_to(Knower::Faction("thieves".parse().unwrap()), None))
        .await;
    let elsewhere = f
        .create_fact(NewFact {
            world: "elsewhere".parse().unwrap(),
            ..known_to(Knower::World, None)
        })
        .await;
    let gone = f.create_fact(known_to(Knower::World, None)).await;
    f.ledger()
        .facts
        .remove_fact(&f.scope, gone, None, &f.audit_edit("fact.remove"))
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
    assert_eq!(confirmed_ids(f, &player, &ids).await, [guild, own, everywhere]);
    let nobody = Viewpoint {
        player: None,
        ..f.viewpoint()
    };
    assert_eq!(confirmed_ids(f, &nobody, &ids).await, [guild, everywhere]);
    let designer = Viewpoint {
        sees_all_players: true,
        ..nobody.clone()
    };
    assert_eq!(confirmed_ids(f, &designer, &ids).await, [guild, hers, own, everywhere]);
    let outsider = Viewpoint {
        npc: "ergen".parse().unwrap(),
        factions: Vec::new(),
        ..nobody
    };
    assert_eq!(confirmed_ids(f, &outsider, &ids).await, [foreign_npc, everywhere]);
    assert!(confirmed_ids(f, &player, &[]).await.is_empty());
    // An id proposed twice is confirmed once.
    ids.push(guild);
    assert_eq!(confirmed_ids(f, &player, &ids).await, [guild, own, everywhere]);
}

pub async fn fact_confirmation_uses_the_given_moment<S: LedgerSubject>(f: &Fixture<S>) {
    let start = f.now();
    let mut new = f.sample_fact("a festival is on");
    new.valid_at = start + chrono::Duration::seconds(10);
    new.expires_at = Some(start + chrono::Duration::seconds(30));
    let id = f.create_fact(new).await;
    f.clock.advance(Duration::from_secs(20));
    f.ledger()
        .facts
        .remove_fact(&f.scope, id, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    let at = |seconds| {
        let (moment, viewpoint) = (start + chrono::Duration::seconds(seconds), f.viewpoint());
        let facts = &f.ledger().facts;
        let scope = &f.scope;
        async move {
            facts
                .confirm_facts(scope, &viewpoint, &[id], moment)
                .await
                .unwrap()
                .open
        }
    };
    assert!(at(9).await.is_empty());
    assert_eq!(at(10).await, [ConfirmedFact { fact: id, version: 2 }]);
    assert_eq!(at(19).await.len(), 1);
    assert!(at(20).await.is_empty());
    // The restored fact ends at its expiry.
    f.ledger()
        .facts
        .restore_fact(&f.scope, id, None, &f.audit_edit("fact.restore"))
        .await
        .unwrap();
    assert_eq!(at(29).await, [ConfirmedFact { fact: id, version: 3 }]);
    assert!(at(30).await.is_empty());
}

pub async fn replaced_fact_stays_replaced_when_its_replacement_is_repeated<S: LedgerSubject>(f: &Fixture<S>) {
    let mut alone = f.sample_fact("likes grapes");
    alone.audience.private_to = Some(f.player.clone());
    let older = f.create_fact(alone).await;
    f.advance_clock();
    let newer = f.sample_fact("hates grapes");
    let mut plan = f.sample_plan().await;
    plan.replaced.push(FactReplacement {
        fact: older,
        successor: newer.id,
    });
    let mut ids = vec![older, newer.id];
    plan.facts.push(newer);
    f.reconcile_plan(&plan).await;
    assert_eq!(confirmed_ids(f, &f.viewpoint(), &ids).await, ids[1..]);
    for again in ["cannot stand grapes", "never liked grapes"] {
        f.advance_clock();
        let last = ids[ids.len() - 1];
        ids.push(
            f.learn_fact(f.sample_fact(again), &[(last, InvalidReason::Duplicate)])
                .await,
        );
        assert_eq!(confirmed_ids(f, &f.viewpoint(), &ids).await, ids[ids.len() - 1..]);
    }
    // Before the last replacement, the third fact was valid.
    let (facts, then) = (&f.ledger().facts, f.now() - Duration::from_secs(1));
    let rows = facts.confirm_facts(&f.scope, &f.viewpoint(), &ids, then).await.unwrap();
    assert_eq!(rows.open.iter().map(|row| row.fact).collect::<Vec<_>>(), ids[2..3]);
    // After its removal, no fact states the replacement.
    f.advance_clock();
    facts
        .remove_fact(&f.scope, ids[3], None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    assert_eq!(confirmed_ids(f, &f.viewpoint(), &ids).await, ids[..1]);
}

pub async fn removed_fact_is_reported_to_viewpoints_that_could_know_it<S: LedgerSubject>(f: &Fixture<S>) {
    let facts = &f.ledger().facts;
    let told = async |viewpoint: &Viewpoint, limit| -> Vec<String> {
        let standing = facts
            .load_standing(&f.scope, viewpoint, false, f.now(), limit)
            .await
            .unwrap();
        standing.taken_out.into_iter().map(|gone| gone.content).collect()
    };
    let of = |content: &str, private_to: Option<&str>| {
        let mut fact = f.sample_fact(content);
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
        let id = f.create_fact(fact).await;
        f.advance_clock();
        if !is_valid {
            facts
                .remove_fact(&f.scope, id, None, &f.audit_edit("fact.remove"))
                .await
                .unwrap();
        }
    }
    for reason in [InvalidReason::Superseded, InvalidReason::Forgotten] {
        f.advance_clock();
        let id = f.learn_fact(of(reason.as_str(), Some("p7")), &[]).await;
        f.learn_fact(f.sample_fact("something"), &[(id, reason)]).await;
    }
    assert_eq!(told(&f.viewpoint(), 9).await, ["forgotten", "everybody's"]);
    f.advance_clock();
    let another = f.create_fact(of("another", Some("p7"))).await;
    f.advance_clock();
    let edit = f.audit_edit("fact.remove");
    facts.remove_fact(&f.scope, another, None, &edit).await.unwrap();
    // The query returns the latest removed fact of each privacy.
    assert_eq!(told(&f.viewpoint(), 1).await, ["another", "everybody's"]);
    facts
        .restore_fact(&f.scope, another, None, &f.audit_edit("fact.restore"))
        .await
        .unwrap();
    assert_eq!(told(&f.viewpoint(), 1).await, ["forgotten", "everybody's"]);
    let nobody = Viewpoint {
        player: None,
        ..f.viewpoint()
    };
    assert_eq!(told(&nobody, 9).await, ["everybody's"]);
    let elsewhere = facts
        .load_standing(&f.other, &f.viewpoint(), false, f.now(), 9)
        .await
        .unwrap();
    assert!(elsewhere.taken_out.is_empty());
}

pub async fn ended_promises_are_reported_latest_first<S: LedgerSubject>(f: &Fixture<S>) {
    let facts = &f.ledger().facts;
    let ended = async |viewpoint: &Viewpoint| -> Vec<String> {
        let standing = facts
            .load_standing(&f.scope, viewpoint, false, f.now(), 9)
            .await
            .unwrap();
        assert!(standing.taken_out.is_empty(), "no promise was removed");
        let promises = standing.ended_promises.into_iter();
        promises.map(|promise| promise.view.content).collect()
    };
    let of = |content: &str, private_to: Option<&str>| {
        let mut fact = f.sample_fact(content);
        fact.audience.private_to = private_to.map(|player| player.parse().unwrap());
        fact.statement.kind = colloquy::memory::fact::FactKind::Goal;
        fact
    };
    for (content, private_to, reason) in [
        ("given up", Some("p7"), InvalidReason::GivenUp),
        ("hers", Some("p8"), InvalidReason::Fulfilled),
        ("replaced", Some("p7"), InvalidReason::Superseded),
        ("kept", Some("p7"), InvalidReason::Fulfilled),
        ("overdue", Some("p7"), InvalidReason::Overdue),
    ] {
        f.advance_clock();
        let id = f.learn_fact(of(content, private_to), &[]).await;
        f.learn_fact(f.sample_fact("something"), &[(id, reason)]).await;
    }
    f.advance_clock();
    assert_eq!(ended(&f.viewpoint()).await, ["overdue", "kept", "given up"]);
    let nobody = Viewpoint {
        player: None,
        ..f.viewpoint()
    };
    assert!(ended(&nobody).await.is_empty());
    let elsewhere = facts
        .load_standing(&f.other, &f.viewpoint(), false, f.now(), 9)
        .await
        .unwrap();
    assert!(elsewhere.ended_promises.is_empty());
}

pub async fn fact_bodies_carry_view_and_embedding<S: LedgerSubject>(f: &Fixture<S>) {
    let id = f.create_fact(f.sample_fact("the player likes grapes")).await;
    let patch = FactPatch {
        content: Some("the player loves grapes".to_owned()),
        embedding: Some(vec![0.0, 0.0, 1.0]),
        ..FactPatch::default()
    };
    let facts = &f.ledger().facts;
    let first = facts.load_bodies(&f.scope, &[id, f.id()]).await.unwrap();
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
        .edit_fact(&f.scope, id, &patch, None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    let second = facts.load_bodies(&f.scope, &[id]).await.unwrap();
    assert_eq!(
        (second[0].version, second[0].view.content.as_str()),
        (2, "the player loves grapes")
    );
    assert_eq!(second[0].embedding.as_ref(), [0.0, 0.0, 1.0]);
    assert!(facts.load_bodies(&f.scope, &[]).await.unwrap().is_empty());
}

pub(super) async fn standing_ids<S: LedgerSubject>(f: &Fixture<S>, viewpoint: &Viewpoint, limit: u32) -> Vec<FactId> {
    let facts = f
        .ledger()
        .facts
        .load_standing(&f.scope, viewpoint, false, f.now(), limit)
        .await
        .unwrap();
    facts.facts.into_iter().map(|fact| fact.id).collect()
}

fn fact_with_importance<S: LedgerSubject>(f: &Fixture<S>, kind: FactKind, weight: u8, pinned: bool) -> NewFact {
    let mut fact = f.sample_fact("something that stands");
    fact.statement.kind = kind;
    fact.statement.importance = importance(weight);
    fact.statement.pinned = pinned;
    fact
}

pub async fn expiring_fact_stands_until_its_expiry<S: LedgerSubject>(f: &Fixture<S>) {
    let goal = f.create_fact(fact_with_importance(f, FactKind::Goal, 4, false)).await;
    let until = f.now() + chrono::Duration::minutes(10);
    let mut fact = fact_with_importance(f, FactKind::Goal, 9, true);
    fact.expires_at = Some(until);
    let ending = f.create_fact(fact).await;
    let designer = Viewpoint {
        sees_all_players: true,
        ..f.viewpoint()
    };
    for viewpoint in [f.viewpoint(), designer] {
        let facts = &f.ledger().facts;
        let standing = async |at, limit| {
            let found = facts
                .load_standing(&f.scope, &viewpoint, false, at, limit)
                .await
                .unwrap();
            found.facts.iter().map(|fact| fact.id).collect::<Vec<_>>()
        };
        let just_before = until - chrono::Duration::microseconds(1);
        assert_eq!(standing(just_before, 9).await, [ending, goal]);
        assert_eq!(standing(just_before, 1).await, [ending]);
        assert_eq!(standing(until, 9).await, [goal]);
    }
}

pub async fn standing_facts_are_ranked_and_limited<S: LedgerSubject>(f: &Fixture<S>) {
    let background = f
        .create_fact(fact_with_importance(f, FactKind::Preference, 10, false))
        .await;
    let goal = f.create_fact(fact_with_importance(f, FactKind::Goal, 4, false)).await;
    let habit = f.create_fact(fact_with_importance(f, FactKind::Habit, 4, false)).await;
    f.advance_clock();
    let newer = f.create_fact(fact_with_importance(f, FactKind::Event, 4, false)).await;
    let allergy = f
        .create_fact(fact_with_importance(f, FactKind::Constraint, 9, true))
        .await;
    let mut both = fact_with_importance(f, FactKind::Opinion, 8, true);
    both.audience.knowers.insert(Knower::World);
    both.audience.private_to = Some(f.player.clone());
    let both = f.create_fact(both).await;
    let mut private = fact_with_importance(f, FactKind::Goal, 10, true);
    private.audience.private_to = Some("p8".parse().unwrap());
    let private = f.create_fact(private).await;
    let gone = f.create_fact(fact_with_importance(f, FactKind::Goal, 10, true)).await;
    f.ledger()
        .facts
        .remove_fact(&f.scope, gone, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();

    // Order: most important first, then newest, then by id.
    assert_eq!(
        standing_ids(f, &f.viewpoint(), 9).await,
        [allergy, both, newer, goal, habit]
    );
    // The limit allows two pinned facts and two facts of mutable kinds.
    assert_eq!(standing_ids(f, &f.viewpoint(), 2).await, [allergy, both, newer]);
    assert_eq!(standing_ids(f, &f.viewpoint(), 1).await, [allergy, both]);
    assert!(!standing_ids(f, &f.viewpoint(), 9).await.contains(&background));
    let hers = Viewpoint {
        player: Some("p8".parse().unwrap()),
        ..f.viewpoint()
    };
    assert_eq!(standing_ids(f, &hers, 9).await, [private, allergy, newer, goal, habit]);
    let before = f.now() - chrono::Duration::seconds(1);
    let earlier = f
        .ledger()
        .facts
        .load_standing(&f.scope, &f.viewpoint(), false, before, 9)
        .await
        .unwrap();
    assert_eq!(
        earlier.facts.iter().map(|fact| fact.id).collect::<Vec<_>>(),
        [goal, habit]
    );
}

pub async fn designer_sees_facts_private_to_any_player<S: LedgerSubject>(f: &Fixture<S>) {
    let mut facts = Vec::new();
    for player in ["p7", "p8"] {
        let mut fact = fact_with_importance(f, FactKind::Goal, 5, true);
        fact.audience.knowers.insert(Knower::World);
        fact.audience.private_to = Some(player.parse().unwrap());
        facts.push(f.create_fact(fact).await);
    }
    let designer = Viewpoint {
        player: None,
        sees_all_players: true,
        ..f.viewpoint()
    };
    assert_eq!(standing_ids(f, &designer, 9).await, facts);
    assert_eq!(standing_ids(f, &designer, 1).await, facts[..1]);
    assert_eq!(standing_ids(f, &f.viewpoint(), 9).await, facts[..1]);
}

pub(super) fn match_all_filter<S: LedgerSubject>(f: &Fixture<S>) -> FactFilter {
    FactFilter {
        viewpoint: f.viewpoint(),
        subject: None,
        kind: None,
        from: None,
        to: None,
        as_of: f.now(),
        include_invalid: false,
        flagged: false,
    }
}

pub(super) async fn listed_ids<S: LedgerSubject>(f: &Fixture<S>, filter: &FactFilter) -> Vec<FactId> {
    let page = f
        .ledger()
        .facts
        .list_facts(&f.scope, filter, &page(200, None))
        .await
        .unwrap();
    page.items.into_iter().map(|fact| fact.id).collect()
}

pub async fn facts_are_listed_newest_first_in_pages<S: LedgerSubject>(f: &Fixture<S>) {
    let mut ids = Vec::new();
    for number in 0..7 {
        let mut fact = f.sample_fact("one of several");
        // A fact known in several ways is listed once.
        match number % 3 {
            0 => drop(fact.audience.knowers.insert(Knower::World)),
            1 => fact.audience.knowers = BTreeSet::from([Knower::Faction("guild".parse().unwrap())]),
            _ => {}
        }
        ids.insert(0, f.create_fact(fact).await);
        if number % 2 == 0 {
            f.advance_clock();
        }
    }
    let mut got = Vec::new();
    let mut after = None;
    loop {
        let one = f
            .ledger()
            .facts
            .list_facts(&f.scope, &match_all_filter(f), &page(2, after))
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

pub async fn facts_are_listed_by_filter<S: LedgerSubject>(f: &Fixture<S>) {
    let old = f.create_fact(f.sample_fact("old")).await;
    let old_at = f.now();
    f.clock.advance(Duration::from_secs(100));
    let mut goal = f.sample_fact("a goal");
    goal.statement.kind = FactKind::Goal;
    goal.statement.subject = String::from("mira");
    let goal = f.create_fact(goal).await;
    let mut private = f.sample_fact("private");
    private.audience.private_to = Some("p8".parse().unwrap());
    let private = f.create_fact(private).await;
    let gone = f.create_fact(f.sample_fact("gone")).await;
    f.ledger()
        .facts
        .remove_fact(&f.scope, gone, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();

    let all = match_all_filter(f);
    assert_eq!(listed_ids(f, &all).await, [goal, old]);
    let with = |change: &dyn Fn(&mut FactFilter)| {
        let mut filter = all.clone();
        change(&mut filter);
        filter
    };
    let invalid_too = with(&|filter| filter.include_invalid = true);
    assert_eq!(listed_ids(f, &invalid_too).await, [gone, goal, old]);
    let designer = with(&|filter| filter.viewpoint.sees_all_players = true);
    assert_eq!(listed_ids(f, &designer).await, [private, goal, old]);
    let goals = with(&|filter| filter.kind = Some(FactKind::Goal));
    assert_eq!(listed_ids(f, &goals).await, [goal]);
    let player = with(&|filter| filter.subject = Some("player".to_owned()));
    assert_eq!(listed_ids(f, &player).await, [old]);
    let until = with(&|filter| filter.to = Some(old_at));
    assert_eq!(listed_ids(f, &until).await, [old]);
    let since = with(&|filter| filter.from = Some(old_at + chrono::Duration::seconds(1)));
    assert_eq!(listed_ids(f, &since).await, [goal]);
    let then = with(&|filter| filter.as_of = old_at);
    assert_eq!(listed_ids(f, &then).await, [old]);
    let elsewhere = with(&|filter| filter.viewpoint.world = "elsewhere".parse().unwrap());
    assert!(listed_ids(f, &elsewhere).await.is_empty());
}

pub async fn facts_of_another_tenant_are_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    let id = f.create_fact(fact_with_importance(f, FactKind::Goal, 5, true)).await;
    let facts = &f.ledger().facts;
    let edit = || f.audit_edit("rival");
    let patch = FactPatch {
        pinned: Some(false),
        ..FactPatch::default()
    };
    assert_eq!(facts.load_fact(&f.other, id).await.unwrap(), None);
    assert!(
        facts
            .confirm_facts(&f.other, &f.viewpoint(), &[id], f.now())
            .await
            .unwrap()
            .open
            .is_empty()
    );
    assert!(facts.load_bodies(&f.other, &[id]).await.unwrap().is_empty());
    assert!(
        facts
            .load_standing(&f.other, &f.viewpoint(), false, f.now(), 9)
            .await
            .unwrap()
            .facts
            .is_empty()
    );
    assert!(
        facts
            .list_facts(&f.other, &match_all_filter(f), &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert_eq!(
        facts.edit_fact(&f.other, id, &patch, None, &edit()).await.unwrap(),
        FactEditOutcome::NotFound
    );
    assert_eq!(
        facts.remove_fact(&f.other, id, None, &edit()).await.unwrap(),
        FactEditOutcome::NotFound
    );
    assert_eq!(
        facts.restore_fact(&f.other, id, None, &edit()).await.unwrap(),
        FactEditOutcome::NotFound
    );
    facts
        .remove_fact(&f.scope, id, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    assert!(facts.load_history(&f.other, id).await.unwrap().is_empty());
    assert!(facts.list_invalidated_by(&f.other, id).await.unwrap().is_empty());
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
