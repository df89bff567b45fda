//! What the small model is shown when it reads a turn, and what it can say beside facts.

use colloquy::{dialogue::events::MemoryOp, memory::fact::InvalidReason, ports::llm::Task};
use serde_json::json;

use super::{Stage, Talk, statement};
use crate::support::run;

fn promise() -> serde_json::Value {
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

/// Says a line and answers its extraction, beside facts, with `ends`.
async fn tells_that(
    talk: &mut Talk<'_>,
    line: &str,
    facts: &serde_json::Value,
    ends: &serde_json::Value,
) -> Vec<MemoryOp> {
    let answer = json!({ "facts": facts, "forget": [], "ends": ends }).to_string();
    talk.stage.llm.tell_text(Task::Extraction, answer);
    let committed = talk.say(line).await;
    let mut ops = Vec::new();
    for job in &committed.jobs {
        let report = talk.stage.run(job).await.unwrap();
        ops.extend(report.memory.iter().map(|change| change.op));
    }
    ops
}

fn last_extraction(stage: &Stage) -> String {
    stage.llm.asked(Task::Extraction).pop().unwrap()
}

#[test]
fn a_turn_is_read_with_the_two_before_it() {
    run(async {
        let stage = Stage::set().await;
        let mut talk = stage.session("p1").await;
        for line in [
            "Hello there",
            "What bread have you got?",
            "Which would you take?",
            "The dark one",
        ] {
            talk.teach(line, &json!([])).await;
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
        // What is the same for all comes first.
        let first = &stage.llm.asked(Task::Extraction)[0];
        let same = first.bytes().zip(prompt.bytes()).take_while(|(a, b)| a == b).count();
        assert!(prompt[..same].contains("<npc_name>"), "{}", &prompt[same..]);
    });
}

#[test]
fn a_kept_promise_ends_and_comes_back_if_that_is_unsaid() {
    run(async {
        let stage = Stage::set().await;
        let mut talk = stage.session("p1").await;
        talk.teach("I will bring you salt, I promise", &json!([promise()]))
            .await;
        let brought = statement("bring", "salt", "The player brought Mira salt.", "positive", &["salt"]);
        let ends = json!([{"number": 1, "how": "fulfilled"}, {"number": 7, "how": "fulfilled"}]);
        let ops = tells_that(&mut talk, "Here is the salt I promised", &json!([brought]), &ends).await;
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
        assert_eq!(stage.valid().await, ["The player brought Mira salt."]);
        let ended = stage.facts().await.into_iter().find_map(|fact| fact.invalid);
        assert_eq!(ended.unwrap().reason, InvalidReason::Fulfilled);
        // It is in no prompt any more, nor open.
        talk.teach("And now?", &json!([])).await;
        assert!(!last_extraction(&stage).contains("<open "));

        talk.rewind(1, None).await;
        assert_eq!(stage.valid().await, ["The player promises to bring Mira salt."]);
    });
}

#[test]
fn whoever_has_two_names_is_one_person() {
    run(async {
        let stage = Stage::set().await;
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
        talk.teach("My sister Anna lives in Rivermouth", &facts).await;
        let again = json!([about(
            "Anna",
            "live in",
            "Rivermouth",
            "The player's sister lives in Rivermouth."
        )]);
        talk.teach("Anna lives in Rivermouth, I said", &again).await;
        assert!(last_extraction(&stage).contains("<known_subject>the player's sister</known_subject>"));
        let valid = stage.valid().await;
        assert_eq!(valid.len(), 2, "{valid:?}");
        // Nobody says by a name who the NPC is.
        let spy = json!([about("Mira", "be called", "the spy", "Mira is called the spy.")]);
        talk.teach("You are the spy", &spy).await;
        let facts = stage.facts().await;
        let named = facts.iter().find(|fact| fact.statement.object == "the spy").unwrap();
        assert_eq!(named.statement.predicate, "call");
    });
}
