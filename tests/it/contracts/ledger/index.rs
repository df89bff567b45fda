use std::collections::BTreeSet;

use colloquy::{
    adapters::in_process::fact_index::{FactIndexOptions, InProcessFactIndex},
    ids::{FactId, PlayerId},
    memory::{
        disclosure::audience::{Audience, Knower, Viewpoint},
        fact::{InvalidReason, NewFact},
        keywords::{self, FactTexts},
        party,
    },
    ports::{
        ledger::facts::{FactPatch, KeywordFact},
        vectors::{FactIndex as _, IndexPoint, MemoryScope, SimilarFactsQuery},
    },
    tenancy::TenantScope,
};

use super::{
    LedgerSubject,
    fixture::{Fixture, importance},
};

fn fact_ids(points: &[IndexPoint]) -> Vec<FactId> {
    points.iter().map(|point| point.fact).collect()
}

/// The keyword search permits exactly the facts that the index permits.
#[expect(clippy::too_many_lines, reason = "a table of facts and of who finds each")]
pub async fn keyword_search_returns_only_permitted_facts<S: LedgerSubject>(f: &Fixture<S>) {
    let known_to = |content: &str, knowers: &[&str], private_to: Option<&str>| NewFact {
        audience: Audience {
            knowers: knowers.iter().map(|key| Knower::parse(key).unwrap()).collect(),
            private_to: private_to.map(|player| player.parse().unwrap()),
        },
        ..f.sample_fact(content)
    };
    let npc = format!("npc:{}", f.npc);
    let player = f.player.to_string();
    let mut all = Vec::new();
    for (content, knowers, private_to) in [
        ("open", vec![npc.as_str()], None),
        ("known to many", vec![npc.as_str(), "faction:guild", "world"], None),
        ("of the guild", vec!["faction:guild"], None),
        ("the player's", vec![npc.as_str()], Some(player.as_str())),
        ("somebody else's", vec![npc.as_str()], Some("somebody-else")),
        ("of thieves", vec!["faction:thieves"], None),
        ("of another", vec!["npc:another"], None),
    ] {
        all.push(f.create_fact(known_to(content, &knowers, private_to)).await);
    }
    let mut elsewhere = known_to("elsewhere", &["world"], None);
    elsewhere.world = "elsewhere".parse().unwrap();
    all.push(f.create_fact(elsewhere).await);
    let mut later = known_to("later", &["world"], None);
    later.valid_at = f.now() + chrono::Duration::days(1);
    all.push(f.create_fact(later).await);
    let mut over = known_to("over", &["world"], None);
    over.expires_at = Some(f.now());
    all.push(f.create_fact(over).await);
    let gone = f.create_fact(known_to("gone", &["world"], None)).await;
    let facts = &f.ledger().facts;
    facts
        .remove_fact(&f.scope, gone, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    all.push(gone);

    let player = f.viewpoint();
    let nobody = Viewpoint {
        player: None,
        ..f.viewpoint()
    };
    let designer = Viewpoint {
        sees_all_players: true,
        ..f.viewpoint()
    };
    for (viewpoint, count) in [(&player, 4), (&nobody, 3), (&designer, 5)] {
        let worded = facts
            .list_keyword_facts(&f.scope, viewpoint, f.now(), 99)
            .await
            .unwrap();
        let mut found: Vec<_> = worded.iter().map(|fact| (fact.fact, fact.version)).collect();
        found.sort_unstable();
        let confirmed = facts
            .confirm_facts(&f.scope, viewpoint, &all, f.now())
            .await
            .unwrap()
            .open;
        let mut allowed: Vec<_> = confirmed.iter().map(|row| (row.fact, row.version)).collect();
        allowed.sort_unstable();
        assert_eq!(found, allowed);
        assert_eq!(found.len(), count);
    }
    let foreign = TenantScope::new("foreign".parse().unwrap());
    assert!(
        facts
            .list_keyword_facts(&foreign, &player, f.now(), 99)
            .await
            .unwrap()
            .is_empty()
    );

    // The search sees the edited view, not the original statement. It returns the newest facts.
    f.advance_clock();
    let newest = f.create_fact(known_to("newest", &[npc.as_str()], None)).await;
    let patch = FactPatch {
        content: Some("corrected".to_owned()),
        keywords: Some(vec!["word".to_owned()]),
        importance: Some(importance(9)),
        embedding: Some(vec![0.0, 1.0, 0.0]),
        ..FactPatch::default()
    };
    facts
        .edit_fact(&f.scope, newest, &patch, None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    let mut limited = facts.list_keyword_facts(&f.scope, &nobody, f.now(), 1).await.unwrap();
    limited.retain(|fact| fact.content == "corrected" || fact.content == "open");
    let fact = f.fact(newest).await;
    let wanted = KeywordFact {
        fact: newest,
        version: fact.version,
        importance: importance(9),
        valid_at: fact.valid_at,
        subject: fact.statement.subject.clone(),
        predicate: fact.statement.predicate.clone(),
        object: fact.statement.object.clone(),
        content: "corrected".to_owned(),
        keywords: vec!["word".to_owned()],
    };
    assert_eq!(limited, [wanted]);
}

pub async fn outbox_names_every_changed_fact<S: LedgerSubject>(f: &Fixture<S>) {
    let facts = &f.ledger().facts;
    let one = f.create_fact(f.sample_fact("one")).await;
    let two = f.learn_fact(f.sample_fact("two"), &[]).await;
    let rows = facts.load_outbox(9).await.unwrap();
    let named: Vec<_> = rows.iter().map(|row| (row.tenant.clone(), row.fact)).collect();
    assert_eq!(
        named,
        [(f.scope.tenant().clone(), one), (f.scope.tenant().clone(), two)]
    );
    assert_eq!(facts.load_outbox(1).await.unwrap(), rows[..1]);

    // Rows are handled out of order and twice. The other row is still there.
    facts.mark_outbox_done(&[rows[1].seq]).await.unwrap();
    facts.mark_outbox_done(&[rows[1].seq]).await.unwrap();
    facts.mark_outbox_done(&[]).await.unwrap();
    assert_eq!(facts.load_outbox(9).await.unwrap(), rows[..1]);
    facts.mark_outbox_done(&[rows[0].seq]).await.unwrap();

    let patch = FactPatch {
        importance: Some(importance(7)),
        ..FactPatch::default()
    };
    facts
        .edit_fact(&f.scope, one, &patch, None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    assert_eq!(f.drain_outbox().await, [one]);
    facts
        .remove_fact(&f.scope, two, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    assert_eq!(f.drain_outbox().await, [two]);
    facts
        .restore_fact(&f.scope, two, None, &f.audit_edit("fact.restore"))
        .await
        .unwrap();
    assert_eq!(f.drain_outbox().await, [two]);
    // A new vector for unchanged words also changes the point.
    let patch = FactPatch {
        embedding: Some(vec![0.0, 1.0, 0.0]),
        ..FactPatch::default()
    };
    facts
        .edit_fact(&f.scope, one, &patch, None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    assert_eq!(f.drain_outbox().await, [one]);
    // A handled row has the ledger's current state, not the state at the time of writing.
    facts
        .remove_fact(&f.scope, two, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    facts
        .restore_fact(&f.scope, two, None, &f.audit_edit("fact.restore"))
        .await
        .unwrap();
    let touched = f.drain_outbox().await;
    assert_eq!(fact_ids(&facts.load_points(&f.scope, &touched).await.unwrap()), [two]);
}

pub async fn index_points_exist_only_for_valid_facts<S: LedgerSubject>(f: &Fixture<S>) {
    let facts = &f.ledger().facts;
    let new = f.sample_fact("the player likes grapes");
    let id = f.create_fact(new.clone()).await;
    let gone = f.create_fact(f.sample_fact("gone")).await;
    facts
        .remove_fact(&f.scope, gone, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    let mut over = f.sample_fact("over");
    over.expires_at = Some(f.now());
    let over = f.create_fact(over).await;
    let mut coming = f.sample_fact("the fair is next week");
    coming.valid_at = f.now() + chrono::Duration::days(7);
    let coming = f.create_fact(coming).await;

    let ids = [id, gone, over, coming, f.id()];
    let points = facts.load_points(&f.scope, &ids).await.unwrap();
    let found: BTreeSet<FactId> = fact_ids(&points).into_iter().collect();
    // A fact that is not yet valid is included, because no later event would add the fact on that day.
    assert_eq!(found, BTreeSet::from([id, coming]));
    let point = points.iter().find(|point| point.fact == id).unwrap();
    let wanted = IndexPoint {
        fact: id,
        version: 1,
        world: new.world,
        audience: new.audience,
        subject: new.statement.subject.clone(),
        importance: new.statement.importance,
        valid_at: new.valid_at,
        is_locked: false,
        embedding: new.embedding,
        terms: keywords::fact_terms(FactTexts {
            content: &new.statement.content,
            keywords: &new.statement.keywords,
            subject: &new.statement.subject,
            predicate: &new.statement.predicate,
            object: &new.statement.object,
        }),
    };
    assert_eq!(*point, wanted);
    assert!(!wanted.terms.0.is_empty());
    assert!(facts.load_points(&f.other, &ids).await.unwrap().is_empty());
    assert!(facts.load_points(&f.scope, &[]).await.unwrap().is_empty());
}

pub async fn index_points_are_paged_by_id<S: LedgerSubject>(f: &Fixture<S>) {
    let facts = &f.ledger().facts;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(f.create_fact(f.sample_fact("one of several")).await);
    }
    facts
        .remove_fact(&f.scope, ids[2], None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    let mut got = Vec::new();
    loop {
        let points = facts.list_all_points(&f.scope, got.last().copied(), 2).await.unwrap();
        if points.is_empty() {
            break;
        }
        got.extend(fact_ids(&points));
    }
    ids.remove(2);
    assert_eq!(got, ids);
    assert!(facts.list_all_points(&f.other, None, 9).await.unwrap().is_empty());
}

pub async fn knower_gets_only_permitted_points<S: LedgerSubject>(f: &Fixture<S>) {
    let own = f.create_fact(f.sample_fact("own")).await;
    let mut private = f.sample_fact("private");
    private.audience.private_to = Some(f.player.clone());
    private.audience.knowers.insert(Knower::World);
    let private = f.create_fact(private).await;
    let mut foreign = f.sample_fact("another NPC's");
    foreign.audience.knowers = BTreeSet::from([Knower::Npc("ergen".parse().unwrap())]);
    let foreign = f.create_fact(foreign).await;
    let mut elsewhere = f.sample_fact("another world's");
    elsewhere.world = "elsewhere".parse().unwrap();
    f.create_fact(elsewhere).await;
    let newer = f
        .learn_fact(f.sample_fact("newer"), &[(own, InvalidReason::Duplicate)])
        .await;

    let source = f.subject.points();
    let of = |knower: Knower| {
        let source = source.clone();
        let (scope, world) = (f.scope.clone(), f.world.clone());
        async move { fact_ids(&source.points_of(&scope, &world, &knower).await.unwrap()) }
    };
    assert_eq!(of(Knower::Npc(f.npc.clone())).await, [private, newer]);
    assert_eq!(of(Knower::Npc("ergen".parse().unwrap())).await, [foreign]);
    assert_eq!(of(Knower::World).await, [private]);
    assert!(of(Knower::Faction("guild".parse().unwrap())).await.is_empty());
    let theirs = source
        .points_of(&f.other, &f.world, &Knower::Npc(f.npc.clone()))
        .await
        .unwrap();
    assert!(theirs.is_empty());
}

/// The ledger's search, compared with an index that has every point.
pub async fn similar_facts_are_those_of_a_complete_index<S: LedgerSubject>(f: &Fixture<S>) {
    let player = Some(f.player.clone());
    let others = Some("p8".parse().unwrap());
    let guild = Knower::Faction("guild".parse().unwrap());
    let npc = Knower::Npc(f.npc.clone());
    let of = |knowers: &[&Knower], private_to: &Option<PlayerId>| Audience {
        knowers: knowers.iter().map(|knower| (*knower).clone()).collect(),
        private_to: private_to.clone(),
    };
    let audiences = [
        of(&[&npc], &None),
        of(&[&npc], &player),
        of(&[&npc], &others),
        of(&[&npc, &guild], &None),
        of(&[&guild], &player),
        of(&[&Knower::World], &None),
    ];
    let vectors = [
        [1.0, 0.0, 0.0],
        [0.8, 0.6, 0.0],
        [0.6, 0.0, 0.8],
        [-1.0, 0.0, 0.0],
        [0.0; 3],
    ];
    for audience in &audiences {
        for (vector, subject) in vectors.iter().zip(["player", "Mira", "player", "the player", "player"]) {
            f.advance_clock();
            let mut fact = f.sample_fact("said");
            fact.valid_at = f.now();
            fact.audience = audience.clone();
            fact.statement.subject = subject.to_owned();
            // A fact that was stored while the embedder was away.
            fact.embedding = if vector.iter().any(|x| *x != 0.0) {
                vector.to_vec()
            } else {
                Vec::new()
            };
            f.create_fact(fact).await;
        }
    }
    let gone = f.create_fact(f.sample_fact("gone")).await;
    let facts = &f.ledger().facts;
    let edit = f.audit_edit("fact.remove");
    facts.remove_fact(&f.scope, gone, None, &edit).await.unwrap();
    let source = f.subject.points();
    let index = InProcessFactIndex::new(source, FactIndexOptions::default());
    let subjects = [party::subject_key("player")];
    let before = f.now() - chrono::Duration::seconds(8);
    let mut found = 0;
    for audience in &audiences {
        for memories in [MemoryScope::Of(audience), MemoryScope::Overlapping(audience)] {
            for (subjects, before, min_cosine, limit) in [
                (None, None, -1.0, 99),
                (Some(&subjects[..]), None, 0.5, 99),
                (Some(&subjects[..]), Some(before), -1.0, 2),
            ] {
                let with = SimilarFactsQuery {
                    world: &f.world,
                    memories,
                    subjects,
                    before,
                    embedding: &[1.0, 0.0, 0.0],
                    min_cosine,
                    limit,
                };
                let expected = index.find_similar(&f.scope, with).await.unwrap();
                let of_ledger = facts.find_similar_facts(&f.scope, with).await.unwrap();
                assert_eq!(of_ledger, expected, "{with:?}");
                assert!(facts.find_similar_facts(&f.other, with).await.unwrap().is_empty());
                found += expected.len();
            }
        }
    }
    assert!(found > 50, "{found}");
}

pub async fn vectors_of_another_embedder_are_not_read<S: LedgerSubject>(f: &mut Fixture<S>) {
    let old = f.create_fact(f.sample_fact("likes grapes")).await;
    f.subject.change_embedder(f.clock.clone(), "second").await;
    let mut new = f.sample_fact("likes plums");
    new.embedding = vec![0.0, 1.0];
    let new = f.create_fact(new).await;

    // Both facts are points on every read path. The old fact has no vector.
    let facts = &f.ledger().facts;
    let expected = vec![(old, Vec::new()), (new, vec![0.0, 1.0])];
    let vectors = |points: Vec<IndexPoint>| -> Vec<(FactId, Vec<f32>)> {
        let mut vectors: Vec<_> = points.into_iter().map(|point| (point.fact, point.embedding)).collect();
        vectors.sort_by_key(|(fact, _)| *fact);
        vectors
    };
    assert_eq!(
        vectors(facts.load_points(&f.scope, &[old, new]).await.unwrap()),
        expected
    );
    assert_eq!(
        vectors(facts.list_all_points(&f.scope, None, 9).await.unwrap()),
        expected
    );
    let source = f.subject.points();
    let knower = Knower::Npc(f.npc.clone());
    let known = source.points_of(&f.scope, &f.world, &knower).await.unwrap();
    assert_eq!(vectors(known), expected);
    let mut bodies = facts.load_bodies(&f.scope, &[old, new]).await.unwrap();
    bodies.sort_by_key(|body| body.id);
    let bodies: Vec<_> = bodies.iter().map(|body| (body.id, body.embedding.to_vec())).collect();
    assert_eq!(bodies, expected);
    // The former embedder finds its own vectors again.
    f.subject.reopen(f.clock.clone()).await;
    let points = f.ledger().facts.load_points(&f.scope, &[old, new]).await.unwrap();
    assert_eq!(vectors(points), [(old, vec![0.6, -0.8, 0.0]), (new, Vec::new())]);
}

pub async fn facts_are_reembedded<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut ids = Vec::new();
    for content in ["one", "two", "three"] {
        ids.push(f.create_fact(f.sample_fact(content)).await);
    }
    assert!(
        f.ledger()
            .facts
            .list_unembedded(&f.scope, None, 9)
            .await
            .unwrap()
            .is_empty()
    );
    f.subject.change_embedder(f.clock.clone(), "second").await;
    let facts = &f.ledger().facts;
    let gone = ids[2];
    facts
        .remove_fact(&f.scope, gone, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    let patch = FactPatch {
        content: Some("won".to_owned()),
        embedding: Some(vec![1.0, 0.0]),
        ..FactPatch::default()
    };
    f.drain_outbox().await;

    // The list comes in pages. A removed fact stays listed, because the fact may be restored.
    let missing = facts.list_unembedded(&f.scope, None, 2).await.unwrap();
    assert_eq!(missing.len(), 2);
    assert_eq!(missing[0].0, ids[0]);
    assert!(missing[0].1.contains("one") && missing[0].1.contains("grape"));
    let rest = facts.list_unembedded(&f.scope, Some(missing[1].0), 2).await.unwrap();
    assert_eq!(rest.iter().map(|(fact, _)| *fact).collect::<Vec<_>>(), [gone]);
    assert!(facts.list_unembedded(&f.other, None, 9).await.unwrap().is_empty());
    let counted = facts.count_by_embedding_model(&f.scope, f.now()).await.unwrap();
    assert_eq!(counted.len(), 1);
    assert_eq!((counted[0].current, counted[0].facts), (false, 2));

    // The first fact is corrected during the embedding. Its vector belongs to the newer text.
    facts
        .edit_fact(&f.scope, ids[0], &patch, None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    f.drain_outbox().await;
    let made: Vec<(FactId, Vec<f32>)> = ids.iter().map(|id| (*id, vec![0.0, 1.0])).collect();
    facts.store_embeddings(&f.other, &made).await.unwrap();
    assert!(f.drain_outbox().await.is_empty());
    assert_eq!(facts.list_unembedded(&f.scope, None, 9).await.unwrap().len(), 2);
    facts.store_embeddings(&f.scope, &made).await.unwrap();
    facts
        .store_embeddings(&f.scope, &[(f.id(), vec![0.0, 1.0])])
        .await
        .unwrap();
    let points = facts.load_points(&f.scope, &ids).await.unwrap();
    let vector = |id: FactId| points.iter().find(|point| point.fact == id).unwrap().embedding.clone();
    assert_eq!((vector(ids[0]), vector(ids[1])), (vec![1.0, 0.0], vec![0.0, 1.0]));
    assert!(f.drain_outbox().await.contains(&ids[1]));
    assert!(facts.list_unembedded(&f.scope, None, 9).await.unwrap().is_empty());
    let counted = facts.count_by_embedding_model(&f.scope, f.now()).await.unwrap();
    assert_eq!(
        counted.iter().map(|row| (row.current, row.facts)).collect::<Vec<_>>(),
        [(true, 2)]
    );
}

/// Facts are embedded without folded-in words, because the folded facts may become unsaid.
pub async fn facts_are_reembedded_in_their_own_words<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut last = f.sample_fact("last");
    last.statement.keywords = vec!["wine".to_owned()];
    let first = f.create_fact(f.sample_fact("first")).await;
    let last = f.learn_fact(last, &[(first, InvalidReason::Duplicate)]).await;
    assert_eq!(f.fact(last).await.view.keywords, ["wine", "grape"]);
    for (content, keywords) in [(Some("second"), None), (None, Some("cider")), (Some("third"), None)] {
        f.advance_clock();
        let patch = FactPatch {
            content: content.map(str::to_owned),
            keywords: keywords.map(|keyword: &str| vec![keyword.to_owned()]),
            embedding: Some(vec![1.0, 0.0, 0.0]),
            ..FactPatch::default()
        };
        let edit = f.audit_edit("fact.edit");
        f.ledger()
            .facts
            .edit_fact(&f.scope, first, &patch, None, &edit)
            .await
            .unwrap();
    }
    f.subject.change_embedder(f.clock.clone(), "second").await;
    let missing = f.ledger().facts.list_unembedded(&f.scope, None, 9).await.unwrap();
    let text = |of: FactId| &missing.iter().find(|(fact, _)| *fact == of).unwrap().1;
    assert!(
        text(first).contains("third") && text(first).contains("cider"),
        "{}",
        text(first)
    );
    assert!(
        text(last).contains("wine") && !text(last).contains("grape"),
        "{}",
        text(last)
    );
}
