//! How facts are remembered, found and superseded by newer statements.

use std::time::Duration;

use colloquy::{
    dialogue::{
        events::MemoryOp,
        jobs, recall,
        remember::{self, FactCorrection, ManualFact},
    },
    memory::{
        authored::WorldSettings,
        disclosure::audience::{Audience, Knower},
        fact::{Fact, FactKind, Importance, InvalidReason},
        scoring::RecallPreset,
        tiers::WorldRecall,
        trace::CandidateFate,
    },
    ports::{
        clock::Clock as _,
        ledger::facts::FactEditOutcome,
        llm::{LlmError, Task},
    },
};
use serde_json::json;

use super::{QueuedAnswer, Stage, liking_fact, statement, verdicts};
use crate::support::run;

#[test]
fn fact_is_found_in_another_session() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let reports = talk
            .say_and_learn(
                "I like grapes",
                &json!([liking_fact("grapes", &["grape", "fruit", "food"])]),
            )
            .await;
        assert_eq!(reports[0].memory.len(), 1);
        assert_eq!(reports[0].memory[0].op, MemoryOp::Added);
        let mut later = stage.session("p1").await;
        later.say_line("What fruit do I like?").await;
        assert!(stage.llm.last_context().contains("The player likes grapes."));
        let trace = later.trace(1).await;
        let used = trace.candidates.iter().find(|c| c.fate == CandidateFate::Used).unwrap();
        assert!(used.score.keyword > 0.0 && used.score.cosine > 0.0 && used.score.total <= 1.0);
        // A private fact of one player is not used with another.
        let mut other = stage.session("p2").await;
        other.say_line("What fruit do I like?").await;
        assert!(!stage.llm.last_context().contains("grapes"));
    });
}

#[test]
fn facts_of_a_former_embedder_are_found_by_words_and_reembedded() {
    run(async {
        let mut stage = Stage::prepare().await;
        stage
            .session("p1")
            .await
            .say_and_learn(
                "I like grapes",
                &json!([liking_fact("grapes", &["grape", "fruit", "food"])]),
            )
            .await;
        stage.change_embedder("second").await;
        let mut talk = stage.session("p1").await;
        talk.say_line("What fruit do I like?").await;
        let used = |trace: colloquy::memory::trace::TurnTrace| {
            let mut candidates = trace.candidates.into_iter();
            candidates.find(|c| c.fate == CandidateFate::Used).unwrap().score
        };
        let score = used(talk.trace(1).await);
        assert!(score.keyword > 0.0 && score.cosine == 0.0, "{score:?}");

        // A failure loses no data. After the work is done, no facts are left.
        stage.break_embedder(true);
        assert!(jobs::embed_missing(&stage.services, &stage.scope).await.is_err());
        let all_of = |tenants| jobs::embed_missing_of_tenants(&stage.services, tenants);
        let behind = all_of(None).await.unwrap();
        assert_eq!(behind, [stage.scope.tenant().clone()]);
        stage.break_embedder(false);
        assert_eq!(all_of(Some(behind)).await.unwrap(), []);
        assert_eq!(jobs::embed_missing(&stage.services, &stage.scope).await.unwrap(), 0);
        talk.say_line("And what fruit do I like now?").await;
        let score = used(talk.trace(2).await);
        assert!(score.cosine > 0.0, "{score:?}");
    });
}

#[test]
fn text_rejected_by_the_embedder_blocks_no_other_text() {
    run(async {
        let mut stage = Stage::prepare().await;
        let fruits = ["grapes", "plums", "pears", "figs"].map(|fruit| liking_fact(fruit, &[]));
        stage
            .session("p1")
            .await
            .say_and_learn("I like fruit", &json!(fruits))
            .await;
        stage.change_embedder("second").await;
        *stage.embedder.refuses.lock() = Some("plums");
        let missing = async |stage: &Stage| {
            let facts = &stage.services.ledger.facts;
            facts.list_unembedded(&stage.scope, None, 9).await.unwrap().len()
        };
        assert!(jobs::embed_missing(&stage.services, &stage.scope).await.is_err());
        assert_eq!(missing(&stage).await, 1);
        *stage.embedder.refuses.lock() = None;
        assert_eq!(jobs::embed_missing(&stage.services, &stage.scope).await.unwrap(), 1);
        assert_eq!(missing(&stage).await, 0);
    });
}

#[test]
fn world_may_share_facts_between_players() {
    run(async {
        let stage = Stage::prepare_with(|_| {}, shared_world_settings()).await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        stage.session("p2").await.say_line("Who likes fruit?").await;
        assert!(stage.llm.last_context().contains("grapes"));
    });
}

pub(super) fn shared_world_settings() -> WorldSettings {
    WorldSettings {
        share_between_players: Some(true),
        ..WorldSettings::default()
    }
}

#[test]
fn duplicate_fact_is_stored_once() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let fact = liking_fact("grapes", &["fruit"]);
        // The fact comes twice in one answer, and again in another session.
        talk.say_and_learn("I like grapes", &json!([fact, fact])).await;
        assert_eq!(stage.facts().await.len(), 1);
        let mut later = stage.session("p1").await;
        later.say_and_learn("Did I say I like grapes?", &json!([fact])).await;
        let facts = stage.facts().await;
        let echoes = facts.iter().filter_map(|fact| fact.invalid.as_ref());
        let echoes: Vec<_> = echoes.map(|invalid| invalid.reason).collect();
        assert_eq!(
            echoes,
            [InvalidReason::Echo],
            "it was in the prompt when it was said again"
        );
        assert_eq!(stage.valid_contents().await, ["The player likes grapes."]);
        assert!(stage.llm.prompts_of(Task::Judge).is_empty());
    });
}

#[test]
fn prompt_memories_are_not_extracted_again() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        let before = stage.valid_contents().await;
        // The same sentence, and the NPC's own wording.
        let mut echo = liking_fact("grapes", &["fruit"]);
        echo["speaker"] = json!("Mira");
        echo["content"] = json!("The player likes, yes, grapes!");
        let reports = talk
            .say_and_learn(
                "What fruit do I like?",
                &json!([liking_fact("grapes", &["fruit"]), echo]),
            )
            .await;
        assert!(reports[0].memory.is_empty(), "{:?}", reports[0].memory);
        assert_eq!(stage.valid_contents().await, before);
        let prompt = stage.llm.prompts_of(Task::Extraction).pop().unwrap();
        assert!(
            prompt.contains("<known>The player says: The player likes grapes.</known>"),
            "{prompt}"
        );
    });
}

pub(super) fn hating_fact() -> serde_json::Value {
    statement(
        "like",
        "grapes",
        "The player likes grapes no longer, since the harvest.",
        "negative",
        &["fruit"],
    )
}

#[test]
fn changed_taste_is_superseded_and_its_verdict_stored() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        stage
            .llm
            .queue_text(Task::Judge, format!("So:\n```json\n{}\n```", verdicts("contradicts")));
        let reports = talk.say_and_learn("No more grapes", &json!([hating_fact()])).await;
        let ops: Vec<MemoryOp> = reports[0].memory.iter().map(|change| change.op).collect();
        assert_eq!(ops, [MemoryOp::Added, MemoryOp::Invalidated]);
        assert_eq!(
            stage.valid_contents().await,
            ["The player likes grapes no longer, since the harvest."]
        );
        let old = stage.facts().await.remove(0);
        assert_eq!(old.invalid.unwrap().reason, InvalidReason::Superseded);
        assert!(!{
            talk.say_line("What fruit do I like?").await;
            stage.llm.last_context().contains("likes grapes.")
        });
        // The verdict is reused for another player's facts.
        let mut other = stage.session("p2").await;
        other
            .say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        other.say_and_learn("No more grapes", &json!([hating_fact()])).await;
        assert_eq!(stage.llm.prompts_of(Task::Judge).len(), 1);
        assert_eq!(stage.valid_contents().await.len(), 2);
    });
}

#[test]
fn clear_pairs_need_no_judge() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        let no_more = statement(
            "like",
            "grapes",
            "The player no longer likes grapes.",
            "negative",
            &["fruit"],
        );
        let facts = json!([no_more, liking_fact("plums", &["fruit"])]);
        talk.say_and_learn("No more grapes. Plums!", &facts).await;
        assert_eq!(
            stage.valid_contents().await,
            ["The player no longer likes grapes.", "The player likes plums."]
        );
        assert!(stage.llm.prompts_of(Task::Judge).is_empty());
    });
}

#[test]
fn failing_judge_changes_nothing() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        stage
            .llm
            .queue_answer(Task::Judge, QueuedAnswer::Fails(LlmError::Refused("no".to_owned())));
        talk.say_and_learn("No more grapes", &json!([hating_fact()])).await;
        assert_eq!(stage.valid_contents().await.len(), 2);
    });
}

#[test]
fn late_job_of_an_earlier_turn_does_not_override_a_later_turn() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let first = talk.say_line("I like grapes").await;
        stage.clock.advance(Duration::from_mins(1));
        talk.say_and_learn("No more grapes", &json!([hating_fact()])).await;
        stage.llm.queue_text(Task::Judge, verdicts("contradicts"));
        stage.llm.queue_text(
            Task::Extraction,
            json!({ "facts": [liking_fact("grapes", &["fruit"])] }).to_string(),
        );
        let report = stage.run_job(&first.jobs[0]).await.unwrap();
        assert!(report.memory.is_empty());
        assert_eq!(
            stage.valid_contents().await,
            ["The player likes grapes no longer, since the harvest."]
        );
    });
}

#[test]
fn safety_facts_are_pinned_and_protected() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let mut allergy = statement(
            "be allergic to",
            "nuts",
            "The player is allergic to nuts.",
            "positive",
            &["nut"],
        );
        allergy["kind"] = json!("constraint");
        talk.say_and_learn("I am allergic to nuts", &json!([allergy])).await;
        talk.say_line("Hello again").await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        assert!(
            prompt.contains("[Always keep in mind]\n- The player says: The player is allergic to nuts."),
            "{prompt}"
        );
        assert_eq!(
            prompt.matches("allergic to nuts").count(),
            1 + usize::from(prompt.contains("I am allergic"))
        );
        let mut over = statement(
            "be allergic to",
            "nuts",
            "The player is not allergic to nuts.",
            "negative",
            &["nut"],
        );
        over["kind"] = json!("constraint");
        stage.llm.queue_text(Task::Judge, verdicts("contradicts"));
        let reports = talk.say_and_learn("I am not", &json!([over])).await;
        assert!(
            reports[0].memory.iter().any(|change| change.op == MemoryOp::Flagged),
            "{:?}",
            reports[0]
        );
        assert!(
            stage
                .valid_contents()
                .await
                .contains(&"The player is allergic to nuts.".to_owned())
        );
    });
}

#[test]
fn job_of_a_done_turn_writes_once() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let committed = talk.say_line("I like grapes").await;
        for _ in 0..2 {
            stage.llm.queue_text(
                Task::Extraction,
                json!({ "facts": [liking_fact("grapes", &["fruit"])] }).to_string(),
            );
        }
        assert_eq!(stage.run_job(&committed.jobs[0]).await.unwrap().memory.len(), 1);
        assert!(stage.run_job(&committed.jobs[0]).await.unwrap().memory.is_empty());
        assert_eq!(stage.facts().await.len(), 1);
        assert_eq!(jobs::relay_outbox(&stage.services).await.unwrap(), 0);
    });
}

#[test]
fn concurrent_jobs_lose_nothing() {
    run(async {
        let stage = Stage::prepare().await;
        let mut ready = Vec::new();
        for n in 0..6 {
            let mut talk = stage.session("p1").await;
            ready.push(talk.say_line(&format!("I like thing{n}")).await.jobs[0].clone());
        }
        for n in 0..6 {
            let fact = statement(
                "like",
                &format!("thing{n}"),
                &format!("thing{n} pleases"),
                "positive",
                &[],
            );
            stage
                .llm
                .queue_text(Task::Extraction, json!({ "facts": [fact] }).to_string());
        }
        let reports = futures_util::future::join_all(ready.iter().map(|job| stage.run_job(job))).await;
        for report in reports {
            assert_eq!(report.unwrap().memory.len(), 1);
        }
        let mut valid = stage.valid_contents().await;
        valid.sort();
        assert_eq!(valid.len(), 6, "{valid:?}");
    });
}

/// Writes the manual fact "Mira owns a boat.".
async fn boat_fact(stage: &Stage) -> Fact {
    let boat = ManualFact {
        world: stage.world.id.clone(),
        audience: Audience {
            knowers: [Knower::Npc(stage.npc.id.clone())].into(),
            private_to: None,
        },
        subject: "Mira".to_owned(),
        predicate: "own".to_owned(),
        object: "a boat".to_owned(),
        content: "Mira owns a boat.".to_owned(),
        keywords: vec!["ship".to_owned()],
        kind: FactKind::Profile,
        importance: Importance::DEFAULT,
        pinned: false,
        valid_at: None,
    };
    let edit = stage.edit("fact.create");
    remember::write_manual_fact(&stage.services, &stage.scope, boat, &edit)
        .await
        .unwrap()
}

#[test]
fn manual_facts_are_written_corrected_and_searched() {
    run(async {
        let stage = Stage::prepare().await;
        let written = boat_fact(&stage).await;
        assert!(written.authored);
        let before = stage.clock.now();
        stage.clock.advance(Duration::from_hours(1));
        let search = async |query: &str, at| {
            let found = recall::search_facts(
                &stage.services,
                &stage.scope,
                &stage.world,
                &stage.viewpoint(),
                query,
                at,
                5,
            )
            .await;
            let (hits, calls) = found.unwrap();
            assert_eq!(calls.len(), 1);
            hits.into_iter()
                .map(|hit| (hit.fact().view.content.clone(), hit.score))
                .collect::<Vec<_>>()
        };
        let now = search("boat", stage.clock.now()).await;
        assert_eq!(now[0].0, "Mira owns a boat.");
        assert!(now[0].1.keyword > 0.0 && now[0].1.cosine > 0.0);
        // A search at the time of writing finds the fact. An earlier search finds no fact.
        assert_eq!(search("boat", before).await[0].0, "Mira owns a boat.");
        assert!(search("boat", before - Duration::from_mins(1)).await.is_empty());

        let correction = FactCorrection {
            content: Some("Mira owns a cart.".to_owned()),
            keywords: Some(vec![]),
            ..FactCorrection::default()
        };
        let edit = stage.edit("fact.edit");
        let outdated = remember::correct_fact(
            &stage.services,
            &stage.scope,
            written.id,
            correction.clone(),
            Some(99),
            &edit,
        )
        .await;
        assert!(matches!(outdated.unwrap(), FactEditOutcome::VersionMismatch { .. }));
        let edit = stage.edit("fact.edit");
        let version = Some(written.version);
        let done = remember::correct_fact(&stage.services, &stage.scope, written.id, correction, version, &edit).await;
        assert!(matches!(done.unwrap(), FactEditOutcome::Done(_)));
        let hits = search("cart", stage.clock.now()).await;
        assert_eq!(hits[0].0, "Mira owns a cart.");
        assert!(hits[0].1.cosine > 0.0, "embedded anew");
    });
}

#[test]
fn concurrent_edit_during_a_correction_survives() {
    run(async {
        let stage = Stage::prepare().await;
        let written = boat_fact(&stage).await;
        // Another person changes the importance meanwhile.
        let correct = async |content: &str, version, importance| {
            let correction = FactCorrection {
                content: Some(content.to_owned()),
                ..FactCorrection::default()
            };
            let weighed = FactCorrection {
                importance: Importance::new(importance),
                ..FactCorrection::default()
            };
            let (edit, other) = (stage.edit("fact.edit"), stage.edit("fact.edit"));
            let (services, scope, fact) = (&stage.services, &stage.scope, written.id);
            stage.embedder.holds.send_replace(Some("Mira"));
            let (outcome, ()) = tokio::join!(
                biased;
                remember::correct_fact(services, scope, fact, correction, version, &edit),
                async {
                    let weighed = remember::correct_fact(services, scope, fact, weighed, None, &other).await;
                    assert!(matches!(weighed.unwrap(), FactEditOutcome::Done(_)));
                    stage.embedder.holds.send_replace(None);
                }
            );
            (
                outcome.unwrap(),
                services.ledger.facts.load_fact(scope, fact).await.unwrap().unwrap(),
            )
        };
        let (outcome, now) = correct("Mira owns a raft.", None, 7).await;
        assert!(matches!(outcome, FactEditOutcome::Done(_)));
        assert_eq!(
            (now.view.content.as_str(), now.view.importance.get()),
            ("Mira owns a raft.", 7)
        );
        let (outcome, now) = correct("Mira owns a mule.", Some(now.version), 8).await;
        assert!(matches!(outcome, FactEditOutcome::VersionMismatch { .. }));
        assert_eq!(now.view.content, "Mira owns a raft.");
    });
}

#[test]
fn lost_index_is_rebuilt_without_the_embedder() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        stage.break_embedder(true);
        stage.services.index.clear_tenant(&stage.scope).await.unwrap();
        assert_eq!(jobs::reindex_tenant(&stage.services, &stage.scope).await.unwrap(), None);
        assert_eq!(jobs::expected_points(&stage.services, &stage.scope).await.unwrap(), 1);
        talk.say_line("What fruit do I like?").await;
        assert!(stage.llm.last_context().contains("The player likes grapes."));
    });
}

#[test]
fn world_sets_its_memory_weights() {
    run(async {
        let settings = WorldSettings {
            recall: Some(WorldRecall {
                preset: Some(RecallPreset::Rag),
                ..WorldRecall::default()
            }),
            ..WorldSettings::default()
        };
        let stage = Stage::prepare_with(|_| {}, settings).await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        stage.session("p1").await.say_line("What fruit do I like?").await;
        talk.say_line("What fruit do I like?").await;
        let candidate = talk.trace(2).await.candidates.remove(0);
        let score = candidate.score;
        assert!(score.keyword > 0.0 && score.relevance > 0.0, "{score:?}");
        let matter = 0.60 * score.relevance + 0.25 * score.keyword;
        let rag = matter + 0.10 * score.recency + 0.05 * score.importance;
        assert!((score.total - rag).abs() < 1e-9, "{score:?}");
    });
}
