//! The extraction prompt of a turn, and the answers other than facts.

use std::sync::Arc;

use colloquy::{
    dialogue::events::MemoryOp,
    memory::{
        authored::{Language, WorldSettings},
        fact::InvalidReason,
    },
    ports::llm::Task,
};
use serde_json::json;

use super::{Stage, TestDialogue, statement};
use crate::support::run;

fn promise_fact() -> serde_json::Value {
    let mut promise = statement(
        "bring",
        "salt",
        "The player promises to bring Mira salt.",
        "positive",
        &["salt", "promise"],
    );
    promise["kind"] = json!("goal");
    promise["tense"] = json!("future");
    promise
}

/// Says a line. The extraction answers with facts and `ends`.
async fn say_with_extraction(
    talk: &mut TestDialogue<'_>,
    line: &str,
    facts: &serde_json::Value,
    ends: &serde_json::Value,
) -> Vec<MemoryOp> {
    let answer = json!({ "facts": facts, "forget": [], "ends": ends }).to_string();
    talk.stage.llm.queue_text(Task::Extraction, answer);
    let committed = talk.say_line(line).await;
    let mut ops = Vec::new();
    for job in &committed.jobs {
        let report = talk.stage.run_job(job).await.unwrap();
        ops.extend(report.memory.iter().map(|change| change.op));
    }
    ops
}

fn last_extraction(stage: &Stage) -> String {
    stage.llm.prompts_of(Task::Extraction).pop().unwrap()
}

#[test]
fn turn_is_extracted_with_its_two_predecessors() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        for line in [
            "Hello there",
            "What bread have you got?",
            "Which would you take?",
            "The dark one",
        ] {
            talk.say_and_learn(line, &json!([])).await;
        }
        let prompt = last_extraction(&stage);
        let earlier: Vec<&str> = prompt
            .lines()
            .filter(|line| line.starts_with("<earlier>player: "))
            .collect();
        assert_eq!(
            earlier,
            [
                "<earlier>player: What bread have you got?</earlier>",
                "<earlier>player: Which would you take?</earlier>"
            ]
        );
        assert_eq!(prompt.matches("<earlier>").count(), 4, "with what the NPC said");
        // The common part of the prompt comes first.
        let first = &stage.llm.prompts_of(Task::Extraction)[0];
        let same = first.bytes().zip(prompt.bytes()).take_while(|(a, b)| a == b).count();
        assert!(prompt[..same].contains("<npc_name>"), "{}", &prompt[same..]);
    });
}

#[test]
fn lines_are_extracted_under_their_speaker_s_name() {
    for language in [Language::En, Language::Ko] {
        run(async {
            let mut stage = Stage::prepare_with(
                |settings| {
                    settings.summaries.first_after_turns = 3;
                },
                WorldSettings::default(),
            )
            .await;
            stage.npc.language = language;
            let mut ergen = stage.npc.clone();
            (ergen.id, ergen.name) = ("ergen".parse().unwrap(), "Ergen".to_owned());
            let authored = &stage.services.ledger.authored;
            for npc in [&stage.npc, &ergen] {
                let edit = stage.edit("npc.put");
                authored.put_npc(&stage.scope, npc, None, &edit).await.unwrap();
            }
            let mut talk = stage.session_with("p1", &[&ergen], &[]).await;
            // The dialogue begins with a greeting, so the first turn has no player line.
            for (line, npc, reply) in [
                ("", &stage.npc, "Well met."),
                ("And you?", &ergen, "The frost was here."),
                ("Bread, please.", &stage.npc, "Here it is."),
            ] {
                stage.llm.queue_text(Task::Reply, reply);
                let mut input = talk.turn_input(line).await;
                input.npc = Arc::new(npc.clone());
                let committed = talk.run_turn(input, false).await.unwrap();
                for job in &committed.jobs {
                    stage.run_job(job).await.unwrap();
                }
            }
            let player = match language {
                Language::En => "player",
                Language::Ko => "플레이어",
            };
            let prompt = last_extraction(&stage);
            let earlier: Vec<&str> = prompt.lines().filter(|line| line.starts_with("<earlier>")).collect();
            assert_eq!(
                earlier,
                [
                    "<earlier>Mira: Well met.</earlier>".to_owned(),
                    format!("<earlier>{player}: And you?</earlier>"),
                    "<earlier>Ergen: The frost was here.</earlier>".to_owned(),
                ]
            );
            let prompt = stage.llm.prompts_of(Task::Summary).pop().unwrap();
            let told: Vec<&str> = prompt
                .lines()
                .filter(|line| line.starts_with("<player>") || line.starts_with("<npc "))
                .collect();
            assert_eq!(
                told,
                [
                    "<npc from=\"Mira\">Well met.</npc>",
                    "<player>And you?</player>",
                    "<npc from=\"Ergen\">The frost was here.</npc>",
                    "<player>Bread, please.</player>",
                    "<npc from=\"Mira\">Here it is.</npc>",
                ]
            );
        });
    }
}

#[test]
fn fulfilled_promise_ends_and_returns_if_that_is_unsaid() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I will bring you salt, I promise", &json!([promise_fact()]))
            .await;
        let brought = statement("bring", "salt", "The player brought Mira salt.", "positive", &["salt"]);
        let ends = json!([{"number": 1, "how": "fulfilled"}, {"number": 7, "how": "fulfilled"}]);
        let ops = say_with_extraction(&mut talk, "Here is the salt I promised", &json!([brought]), &ends).await;
        let prompt = last_extraction(&stage);
        let open = prompt
            .lines()
            .find(|line| line.starts_with("<open number=\"1\">"))
            .unwrap();
        assert!(
            open.ends_with("The player promises to bring Mira salt.</open>"),
            "{open}"
        );
        assert_eq!(ops, [MemoryOp::Added, MemoryOp::Invalidated]);
        assert_eq!(stage.valid_contents().await, ["The player brought Mira salt."]);
        let ended = stage.facts().await.into_iter().find_map(|fact| fact.invalid);
        assert_eq!(ended.unwrap().reason, InvalidReason::Fulfilled);
        // The promise is no longer in prompts, nor listed as open.
        talk.say_and_learn("And now?", &json!([])).await;
        assert!(!last_extraction(&stage).contains("<open "));

        talk.rewind(1, None).await;
        assert_eq!(
            stage.valid_contents().await,
            ["The player promises to bring Mira salt."]
        );
    });
}

async fn assert_promise_ends_without_witness(stage: Stage) {
    let mut before_tom = stage.session_with_witnesses("p1", &["tom"]).await;
    before_tom
        .say_and_learn("I will bring you salt, I promise", &json!([promise_fact()]))
        .await;
    let mut alone = stage.session("p1").await;
    let ends = json!([{"number": 1, "how": "fulfilled"}]);
    say_with_extraction(&mut alone, "Here you are.", &json!([]), &ends).await;
    assert_eq!(stage.valid_contents().await, [""; 0]);
    let ended = stage.facts().await.into_iter().find_map(|fact| fact.invalid);
    assert_eq!(ended.unwrap().reason, InvalidReason::Fulfilled);
    before_tom.say_and_learn("And now?", &json!([])).await;
    assert!(!last_extraction(&stage).contains("<open "));
    alone.rewind(0, None).await;
    assert_eq!(
        stage.valid_contents().await,
        ["The player promises to bring Mira salt."]
    );
}

#[test]
fn promise_witnessed_by_another_npc_ends_in_its_absence() {
    run(async { Box::pin(assert_promise_ends_without_witness(Stage::prepare().await)).await });
}

#[test]
fn promise_witnessed_by_another_npc_ends_in_its_absence_on_postgres() {
    run(async {
        let stage = Stage::prepare_on_postgres(|_| {}, WorldSettings::default()).await;
        Box::pin(assert_promise_ends_without_witness(stage)).await;
    });
}

#[test]
fn person_with_two_names_is_one_person() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let about = |subject: &str, predicate: &str, object: &str, content: &str| {
            let mut fact = statement(predicate, object, content, "positive", &[]);
            fact["subject"] = json!(subject);
            fact["kind"] = json!("personal_info");
            fact
        };
        let sister = "the player's sister";
        let facts = json!([
            about(
                sister,
                "live in",
                "Rivermouth",
                "The player's sister lives in Rivermouth."
            ),
            about(sister, "be called", "Anna", "The player's sister is called Anna."),
        ]);
        talk.say_and_learn("My sister Anna lives in Rivermouth", &facts).await;
        let again = json!([about(
            "Anna",
            "live in",
            "Rivermouth",
            "The player's sister lives in Rivermouth."
        )]);
        talk.say_and_learn("Anna lives in Rivermouth, I said", &again).await;
        assert!(last_extraction(&stage).contains("<known_subjects>the player's sister</known_subjects>"));
        let valid = stage.valid_contents().await;
        assert_eq!(valid.len(), 2, "{valid:?}");
        // A name given to the NPC by the player does not identify the NPC.
        let spy = json!([about("Mira", "be called", "the spy", "Mira is called the spy.")]);
        talk.say_and_learn("You are the spy", &spy).await;
        let facts = stage.facts().await;
        let named = facts.iter().find(|fact| fact.statement.object == "the spy").unwrap();
        assert_eq!(named.statement.predicate, "call");
    });
}
