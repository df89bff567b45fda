//! Facts told to an NPC in one company and changed in another.

use std::time::Duration;

use colloquy::{
    dialogue::{
        recall,
        remember::{self, ManualFact, reconcile_dirty_memories},
    },
    memory::{
        disclosure::audience::{Audience, Knower, Viewpoint},
        fact::{FactKind, Importance},
    },
    ports::clock::Clock as _,
};
use serde_json::json;

use super::{Stage, liking_fact, statement};
use crate::support::run;

/// Returns the contents that recall finds for grapes.
async fn found_contents(stage: &Stage, viewpoint: &Viewpoint) -> Vec<String> {
    let now = stage.clock.now();
    let found = recall::search_facts(&stage.services, &stage.scope, &stage.world, viewpoint, "grapes", now, 9);
    let mut found: Vec<String> = found
        .await
        .unwrap()
        .0
        .into_iter()
        .map(|hit| hit.into_fact().view.content)
        .collect();
    found.sort();
    found
}

fn player_viewpoint(stage: &Stage, player: Option<&str>) -> Viewpoint {
    Viewpoint {
        player: player.map(|player| player.parse().unwrap()),
        sees_all_players: false,
        ..stage.viewpoint()
    }
}

/// Returns the viewpoint of Tom with the player.
fn tom_viewpoint(stage: &Stage) -> Viewpoint {
    Viewpoint {
        npc: "tom".parse().unwrap(),
        ..player_viewpoint(stage, Some("p1"))
    }
}

const LIKES: &str = "The player likes grapes.";
const HATES: &str = "The player hates grapes.";

#[test]
fn private_fact_changed_before_witnesses_is_newer_for_knowers_of_both() {
    run(async {
        let stage = Stage::prepare().await;
        let mut alone = stage.session("p1").await;
        alone
            .say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        stage.clock.advance(Duration::from_mins(1));
        let mut before_tom = stage.session_with_witnesses("p1", &["tom"]).await;
        before_tom
            .say_and_learn(
                "No more grapes for me",
                &json!([statement("hate", "grapes", HATES, "negative", &["fruit"])]),
            )
            .await;

        // Mira heard both statements, and Tom only the later.
        assert_eq!(
            found_contents(&stage, &player_viewpoint(&stage, Some("p1"))).await,
            [HATES]
        );
        let tom = tom_viewpoint(&stage);
        assert_eq!(found_contents(&stage, &tom).await, [HATES]);
        let older = stage.facts().await.into_iter().find(|fact| fact.view.content == LIKES);
        let older = older.unwrap();
        assert!(older.invalid.is_none() && older.replaced_by.len() == 1, "{older:?}");
        let (facts, player) = (&stage.services.ledger.facts, player_viewpoint(&stage, Some("p1")));
        let standing = facts
            .load_standing(&stage.scope, &player, false, stage.clock.now(), 9)
            .await
            .unwrap();
        assert!(standing.facts.iter().all(|fact| fact.id != older.id));

        // An unsaid statement has no effect.
        before_tom.rewind(0, None).await;
        reconcile_dirty_memories(&stage.services, &stage.scope).await.unwrap();
        assert_eq!(
            found_contents(&stage, &player_viewpoint(&stage, Some("p1"))).await,
            [LIKES]
        );
    });
}

#[test]
fn fact_changed_in_private_stands_for_its_earlier_listeners() {
    run(async {
        let stage = Stage::prepare().await;
        let mut before_tom = stage.session_with_witnesses("p1", &["tom"]).await;
        before_tom
            .say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        stage.clock.advance(Duration::from_mins(1));
        let mut alone = stage.session("p1").await;
        alone
            .say_and_learn(
                "Between us: I hate grapes",
                &json!([statement("hate", "grapes", HATES, "negative", &["fruit"])]),
            )
            .await;
        assert_eq!(
            found_contents(&stage, &player_viewpoint(&stage, Some("p1"))).await,
            [HATES]
        );
        let tom = tom_viewpoint(&stage);
        assert_eq!(found_contents(&stage, &tom).await, [LIKES]);
    });
}

#[test]
fn manual_fact_replaces_a_learned_one() {
    run(async {
        for private_to in [None, Some("p1".parse().unwrap())] {
            let stage = Stage::prepare().await;
            stage
                .session("p1")
                .await
                .say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
                .await;
            stage.clock.advance(Duration::from_mins(1));
            let fact = ManualFact {
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
            remember::write_manual_fact(&stage.services, &stage.scope, fact, &edit)
                .await
                .unwrap();
            assert_eq!(
                reconcile_dirty_memories(&stage.services, &stage.scope).await.unwrap(),
                1
            );
            assert_eq!(
                found_contents(&stage, &player_viewpoint(&stage, Some("p1"))).await,
                [HATES]
            );
            // A repeated statement is flagged for a person. The authored fact stays valid.
            stage.clock.advance(Duration::from_mins(1));
            stage
                .session("p1")
                .await
                .say_and_learn("I like grapes!", &json!([liking_fact("grapes", &["fruit"])]))
                .await;
            let flagged = stage.flagged_contents().await;
            assert_eq!(flagged, [HATES]);
        }
    });
}
