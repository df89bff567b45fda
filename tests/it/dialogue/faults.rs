//! Faults of stores and models, and the losses that they cause.

use std::sync::{Arc, atomic::AtomicBool};

use colloquy::{
    dialogue::{jobs, remember, remember::ManualFact, turn::Cut},
    ids::TenantId,
    memory::{
        disclosure::audience::{Audience, Knower},
        fact::{FactKind, Importance},
    },
    ports::{StoreError, clock::Clock as _, ledger::jobs::JobKind, llm::Task},
    tenancy::TenantScope,
};
use serde_json::json;

use super::{QueuedAnswer, Stage, liking_fact, rejecting_index::RejectingIndex, verdicts};
use crate::support::run;

#[test]
fn facts_of_a_truncated_answer_are_stored() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let whole =
            json!({ "facts": [liking_fact("grapes", &["fruit"]), liking_fact("rain", &[]), liking_fact("soup", &[])] })
                .to_string();
        let broken = &whole[..whole.len() - 20];
        stage.llm.queue_text(Task::Extraction, broken);
        stage.llm.queue_text(Task::Extraction, broken);
        let committed = talk.say_line("I like grapes, rain and soup.").await;
        let report = stage.run_job(&committed.jobs[0]).await.unwrap();
        assert_eq!(report.memory.len(), 2);
        let mut valid = stage.valid_contents().await;
        valid.sort();
        assert_eq!(valid, ["The player likes grapes.", "The player likes rain."]);
    });
}

#[test]
fn null_fields_change_nothing() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        stage
            .llm
            .queue_text(Task::Reply, "Come along.\n```state\nwe are somewhere\n```");
        let committed = talk.say_line("Shall we go?").await;
        let job = committed.jobs.iter().find(|job| job.kind == JobKind::ExtractState);
        let answer = json!({
            "location": null, "location_moved": null, "hp_change": -3, "items_gained": null, "items_lost": null,
            "npc_met": null, "npc_separated": null, "relationship_changes": null, "mood": null, "events": null,
            "notes": null,
        });
        stage.llm.queue_text(Task::Extraction, answer.to_string());
        assert_eq!(stage.run_job(job.unwrap()).await.unwrap().state.len(), 1);
    });
}

#[test]
fn known_fact_in_other_words_is_no_news() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        let before = stage.valid_contents().await;
        let mut echo = liking_fact("red grapes", &["fruit"]);
        echo["speaker"] = json!("Mira");
        stage.llm.queue_text(Task::Judge, verdicts("same"));
        let reports = talk.say_and_learn("What fruit do I like?", &json!([echo])).await;
        assert_eq!(
            stage.llm.prompts_of(Task::Judge).len(),
            1,
            "it is near enough to be asked about"
        );
        assert!(reports[0].memory.is_empty(), "{:?}", reports[0].memory);
        assert_eq!(stage.valid_contents().await, before);
    });
}

#[test]
fn cue_of_an_unheard_part_is_not_given() {
    run(async {
        let stage = Stage::prepare().await;
        for (heard, cues) in [(Some(6), 1), (None, 2)] {
            let mut talk = stage.session("p1").await;
            let pieces = ["<smile>Once ", "upon <smile>a ", "time"].map(str::to_owned).to_vec();
            stage.llm.queue_answer(Task::Reply, QueuedAnswer::Silent(pieces));
            *talk.feed.cut_after.lock() = Some((
                2,
                Cut {
                    heard_chars: heard,
                    ..Cut::default()
                },
            ));
            let committed = talk.say_line("Tell me a story").await;
            assert_eq!(committed.turn.cues.len(), cues, "{:?}", committed.turn.reply_text);
        }
    });
}

#[test]
fn block_without_end_ends_the_reply() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let mut pieces = vec!["Well.\n```state\n".to_owned()];
        pieces.resize(300, "nonsense ".repeat(100));
        stage.llm.queue_answer(Task::Reply, QueuedAnswer::Pieces(pieces));
        let committed = talk.say_line("Hello").await;
        assert_eq!(committed.turn.reply_text, "Well.");
        let notes = talk.trace(1).await.notes;
        assert!(notes.iter().any(|note| note.contains("did not stop")), "{notes:?}");
    });
}

#[test]
fn state_of_a_reply_with_an_unclosed_block_is_extracted_from_the_turn() {
    run(async {
        let stage = Stage::prepare().await;
        let (whole, begun) = (
            r#"{"hp_change": -3, "nothing_new": true}"#,
            r#"{"hp_change": -3, "mood": "ca"#,
        );
        for block in [whole, begun] {
            let mut talk = stage.session("p1").await;
            stage.llm.queue_text(Task::Reply, format!("Ouch.\n```state\n{block}"));
            let committed = talk.say_line("I fall.").await;
            assert_eq!(committed.turn.reply_text, "Ouch.");
            assert!(committed.state.is_empty(), "{:?}", committed.state);
            let kinds: Vec<JobKind> = committed.jobs.iter().map(|job| job.kind).collect();
            assert_eq!(kinds, [JobKind::ExtractFacts, JobKind::ExtractState], "{block}");
            let notes = talk.trace(1).await.notes;
            let is_told = |note: &String| note.starts_with("the state block was not closed");
            assert!(notes.iter().any(is_told), "{notes:?}");
        }
    });
}

#[test]
fn summary_leaves_overflow_to_the_next_one() {
    run(async {
        let stage = Stage::prepare_with(
            |settings| {
                settings.summaries.force_tokens = 170;
                settings.summaries.first_after_turns = 3;
            },
            colloquy::memory::authored::WorldSettings::default(),
        )
        .await;
        let mut talk = stage.session("p1").await;
        let long = "and on and on it goes ".repeat(10);
        let mut due = None;
        for _ in 0..3 {
            let committed = talk.say_line(&long).await;
            due = committed.jobs.into_iter().find(|job| job.kind == JobKind::Summarise);
        }
        assert!(stage.run_job(&due.unwrap()).await.unwrap().summaries_changed);
        let summaries = &stage.services.ledger.summaries;
        let kept = summaries
            .load_summaries(&stage.scope, talk.open.dialogue.id)
            .await
            .unwrap();
        assert_eq!((kept[0].from_turn, kept[0].to_turn), (1, 2));
        let prompt = stage.llm.prompts_of(Task::Summary).pop().unwrap();
        assert_eq!(prompt.matches("goes and on").count(), 2 * 9);
    });
}

#[test]
fn tenant_with_a_failing_index_blocks_no_other_tenant() {
    run(async {
        let mut stage = Stage::prepare().await;
        let sound = stage.scope.clone();
        stage.scope = TenantScope::new("poor".parse().unwrap());
        stage.author_world().await;
        let troubled = std::mem::replace(&mut stage.scope, sound);
        stage.services.index = Arc::new(RejectingIndex {
            index: stage.services.index.clone(),
            refused: troubled.clone(),
            with: StoreError::Unavailable("no room".to_owned()),
            refuses: AtomicBool::new(true),
        });
        let note = ManualFact {
            world: stage.world.id.clone(),
            audience: Audience {
                knowers: [Knower::World].into(),
                private_to: None,
            },
            subject: "Mira".to_owned(),
            predicate: "own".to_owned(),
            object: "a boat".to_owned(),
            content: "Mira owns a boat.".to_owned(),
            keywords: vec![],
            kind: FactKind::Profile,
            importance: Importance::DEFAULT,
            pinned: false,
            valid_at: Some(stage.clock.now()),
        };
        let edit = stage.edit("fact.create");
        remember::write_manual_fact(&stage.services, &troubled, note, &edit)
            .await
            .unwrap();
        // Its row stays in the outbox. Turns of the other tenant are still remembered.
        let mut talk = stage.session("p1").await;
        let reports = talk
            .say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        assert_eq!(reports[0].memory.len(), 1);
        assert_eq!(jobs::relay_outbox(&stage.services).await.unwrap(), 0);
        let left = stage.services.ledger.facts.load_outbox(9).await.unwrap();
        let tenants: Vec<&TenantId> = left.iter().map(|row| &row.tenant).collect();
        assert_eq!(tenants, [troubled.tenant()]);
        talk.say_line("What fruit do I like?").await;
        assert!(stage.llm.last_context().contains("The player likes grapes."));
    });
}
