//! What was told to an NPC in one company, and changed in another.

use std::time::Duration;

use colloquy::{
    dialogue::{
        recall,
        remember::{self, HandWritten, settle_all},
    },
    memory::fact::{Audience, FactKind, Importance, Knower, Viewpoint},
    ports::clock::Clock as _,
};
use serde_json::json;

use super::{Stage, likes, statement};
use crate::support::run;

/// What recall finds of grapes.
async fn found(stage: &Stage, viewpoint: &Viewpoint) -> Vec<String> {
    let now = stage.clock.now();
    let found = recall::search(&stage.services, &stage.scope, &stage.world, viewpoint, "grapes", now, 9);
    let mut found: Vec<String> = found
        .await
        .unwrap()
        .0
        .into_iter()
        .map(|hit| hit.fact.view.content)
        .collect();
    found.sort();
    found
}

fn as_player(stage: &Stage, player: Option<&str>) -> Viewpoint {
    Viewpoint {
        player: player.map(|player| player.parse().unwrap()),
        sees_all_players: false,
        ..stage.viewpoint()
    }
}

/// What Tom may tell the player.
fn as_tom(stage: &Stage) -> Viewpoint {
    Viewpoint {
        npc: "tom".parse().unwrap(),
        ..as_player(stage, Some("p1"))
    }
}

const LIKES: &str = "The player likes grapes.";
const HATES: &str = "The player hates grapes.";

#[test]
fn what_was_told_alone_and_changed_before_others_is_the_newer_for_whoever_knows_both() {
    run(async {
        let stage = Stage::set().await;
        let mut alone = stage.session("p1").await;
        alone
            .teach("I like grapes", &json!([likes("grapes", &["fruit"])]))
            .await;
        stage.clock.advance(Duration::from_mins(1));
        let mut before_tom = stage.session_before("p1", &["tom"]).await;
        before_tom
            .teach(
                "No more grapes for me",
                &json!([statement("hate", "grapes", HATES, "negative", &["fruit"])]),
            )
            .await;

        // Mira heard both; Tom the latter alone.
        assert_eq!(found(&stage, &as_player(&stage, Some("p1"))).await, [HATES]);
        let tom = as_tom(&stage);
        assert_eq!(found(&stage, &tom).await, [HATES]);
        let older = stage.facts().await.into_iter().find(|fact| fact.view.content == LIKES);
        let older = older.unwrap();
        assert!(older.invalid.is_none() && older.replaced_by.len() == 1, "{older:?}");
        let (facts, player) = (&stage.services.ledger.facts, as_player(&stage, Some("p1")));
        let standing = facts
            .standing(&stage.scope, &player, false, stage.clock.now(), 9)
            .await
            .unwrap();
        assert!(standing.facts.iter().all(|fact| fact.id != older.id));

        // Unsaid, it changes nothing.
        before_tom.rewind(0, None).await;
        settle_all(&stage.services, &stage.scope).await.unwrap();
        assert_eq!(found(&stage, &as_player(&stage, Some("p1"))).await, [LIKES]);
    });
}

#[test]
fn what_is_changed_alone_stands_for_those_who_were_told_otherwise() {
    run(async {
        let stage = Stage::set().await;
        let mut before_tom = stage.session_before("p1", &["tom"]).await;
        before_tom
            .teach("I like grapes", &json!([likes("grapes", &["fruit"])]))
            .await;
        stage.clock.advance(Duration::from_mins(1));
        let mut alone = stage.session("p1").await;
        alone
            .teach(
                "Between us: I hate grapes",
                &json!([statement("hate", "grapes", HATES, "negative", &["fruit"])]),
            )
            .await;
        assert_eq!(found(&stage, &as_player(&stage, Some("p1"))).await, [HATES]);
        let tom = as_tom(&stage);
        assert_eq!(found(&stage, &tom).await, [LIKES]);
    });
}

#[test]
fn what_a_person_writes_replaces_what_was_told() {
    run(async {
        for private_to in [None, Some("p1".parse().unwrap())] {
            let stage = Stage::set().await;
            stage
                .session("p1")
                .await
                .teach("I like grapes", &json!([likes("grapes", &["fruit"])]))
                .await;
            stage.clock.advance(Duration::from_mins(1));
            let fact = HandWritten {
                world: stage.world.id.clone(),
                audience: Audience {
                    knowers: [Knower::Npc(stage.npc.id.clone())].into(),
                    private_to,
                },
                subject: "player:p1".to_owned(),
                predicate: "hate".to_owned(),
                object: "grapes".to_owned(),
                content: HATES.to_owned(),
                keywords: vec!["fruit".to_owned()],
                kind: FactKind::Preference,
                importance: Importance::DEFAULT,
                pinned: false,
                valid_at: None,
            };
            let edit = stage.edit("fact.create");
            remember::write_by_hand(&stage.services, &stage.scope, fact, &edit)
                .await
                .unwrap();
            assert_eq!(settle_all(&stage.services, &stage.scope).await.unwrap(), 1);
            assert_eq!(found(&stage, &as_player(&stage, Some("p1"))).await, [HATES]);
            // Said again, it is for a person to look at: what authors wrote stands.
            stage.clock.advance(Duration::from_mins(1));
            stage
                .session("p1")
                .await
                .teach("I like grapes!", &json!([likes("grapes", &["fruit"])]))
                .await;
            let flagged = stage.flagged().await;
            assert_eq!(flagged, [HATES]);
        }
    });
}
