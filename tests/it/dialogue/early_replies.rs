//! Replies that are asked for while the classifier names the intent (`turn.intent_classification`).

use colloquy::{
    dialogue::turn::CommittedTurn,
    memory::{
        authored::{IntentClassification, WorldSettings},
        turn::Intent,
    },
    ports::llm::{LlmError, Task},
};
use serde_json::json;

use super::{Stage, TestDialogue, fakes::QueuedAnswer, liking_fact};
use crate::support::{eventually, run};

/// A question that is likely about the world.
const QUESTION: &str = "Which fruit is the best, say grapes?";
const ASKED_TWICE: &str = "the reply was asked for twice: first with the prompt for another intent";

async fn stage_with_grapes(classification: Option<IntentClassification>) -> Stage {
    let world_settings = WorldSettings {
        intent_classification: classification,
        ..WorldSettings::default()
    };
    Stage::prepare_with(|_| {}, world_settings).await
}

async fn teach_grapes(talk: &mut TestDialogue<'_>) {
    let facts = json!([
        liking_fact("grapes", &["grapes", "fruit"]),
        liking_fact("plums", &["plums"])
    ]);
    talk.say_and_learn("I like grapes and plums.", &facts).await;
}

/// Waits until the model was asked for a task.
async fn eventually_asked(stage: &Stage, task: Task) {
    let is_asked = || async { (!stage.llm.prompts_of(task).is_empty()).then_some(()) };
    eventually("the model is asked", is_asked).await;
}

/// Says a line. The classifier answers after the reply was asked for.
async fn say_with_late_intent(talk: &mut TestDialogue<'_>, line: &str, intent: QueuedAnswer) -> CommittedTurn {
    let llm = &talk.stage.llm;
    llm.queue_answer(Task::Intent, intent);
    llm.holds.send_replace(Some(Task::Intent));
    let replies_before = llm.prompts_of(Task::Reply).len();
    let release = async {
        let is_asked = || async { (llm.prompts_of(Task::Reply).len() > replies_before).then_some(()) };
        eventually("the reply is asked for", is_asked).await;
        llm.holds.send_replace(None);
    };
    let (committed, ()) = tokio::join!(talk.say_line(line), release);
    committed
}

#[test]
fn reply_is_asked_for_once_if_the_intent_does_not_change_the_prompt() {
    run(async {
        let stage = stage_with_grapes(None).await;
        let mut talk = stage.session("p1").await;
        teach_grapes(&mut talk).await;
        for intent in ["world", "chat"] {
            stage.llm.take_requests();
            stage.services.models.take_usage();
            stage.llm.queue_text(Task::Reply, "The small ones.");
            let committed = say_with_late_intent(&mut talk, QUESTION, QueuedAnswer::Text(intent.to_owned())).await;
            assert_eq!(committed.turn.reply_text, "The small ones.");
            assert_eq!(stage.llm.prompts_of(Task::Reply).len(), 1, "{intent}");
            let trace = talk.trace(committed.turn.number).await;
            assert_eq!((trace.intent.as_str(), trace.intent_source.as_str()), (intent, "model"));
            assert_eq!(trace.calls.iter().filter(|call| call.task == "intent").count(), 1);
            assert!(!trace.notes.iter().any(|note| note == ASKED_TWICE), "{:?}", trace.notes);
            assert!(talk.is_verified(committed.turn.number).await);
        }
    });
}

#[test]
fn reply_is_asked_for_again_if_the_intent_changes_the_prompt() {
    run(async {
        let stage = stage_with_grapes(None).await;
        teach_grapes(&mut stage.session("p1").await).await;
        let is_away = LlmError::Unavailable("away".to_owned());
        // Without a classifier, a turn recalls in full.
        for answer in [QueuedAnswer::Text("memory".to_owned()), QueuedAnswer::Fails(is_away)] {
            let mut talk = stage.session("p1").await;
            stage.llm.take_requests();
            stage.services.models.take_usage();
            stage.llm.queue_text(Task::Reply, "That nobody hears.");
            stage.llm.queue_text(Task::Reply, "Your grapes.");
            // Likely a question about the world. A question about memory gets memories without a word to search by.
            let committed = say_with_late_intent(&mut talk, "Mira?", answer).await;
            let prompts = stage.llm.prompts_of(Task::Reply);
            assert_eq!(prompts.len(), 2);
            assert_ne!(prompts[0], prompts[1]);
            assert_eq!(talk.feed.text(), "Your grapes.");
            assert_eq!(committed.turn.reply_text, "Your grapes.");
            let trace = talk.trace(committed.turn.number).await;
            assert_eq!(trace.intent, Intent::Memory);
            assert!(trace.notes.iter().any(|note| note == ASKED_TWICE), "{:?}", trace.notes);
            // Both calls are paid for.
            let usage = stage.services.models.take_usage();
            let replies = usage.iter().filter(|(_, delta)| delta.task == "reply");
            assert_eq!(replies.map(|(_, delta)| delta.calls).sum::<u32>(), 2);
            assert!(talk.is_verified(committed.turn.number).await);
        }
    });
}

#[test]
fn nobody_hears_a_word_before_the_intent_is_known() {
    run(async {
        let stage = stage_with_grapes(None).await;
        let mut talk = stage.session("p1").await;
        stage.llm.holds.send_replace(Some(Task::Intent));
        let asked = eventually_asked(&stage, Task::Reply);
        tokio::select! {
            _ = talk.say_line(QUESTION) => panic!("the turn ended before its intent was known"),
            () = asked => {}
        }
        assert!(talk.feed.deltas.lock().is_empty());
        stage.llm.holds.send_replace(None);
    });
}

#[test]
fn intent_comes_first_or_by_rules_where_the_world_says_so() {
    run(async {
        let stage = stage_with_grapes(Some(IntentClassification::BeforeReply)).await;
        let mut talk = stage.session("p1").await;
        stage.llm.holds.send_replace(Some(Task::Intent));
        let asked = eventually_asked(&stage, Task::Intent);
        tokio::select! {
            _ = talk.say_line(QUESTION) => panic!("the turn ended before its intent was known"),
            () = asked => {}
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(stage.llm.prompts_of(Task::Reply).is_empty());

        let stage = stage_with_grapes(Some(IntentClassification::ByRules)).await;
        let mut talk = stage.session("p1").await;
        for (line, intent) in [(QUESTION, Intent::World), ("What did I tell you?", Intent::Memory)] {
            let committed = talk.say_line(line).await;
            let trace = talk.trace(committed.turn.number).await;
            assert_eq!((trace.intent, trace.intent_source.as_str()), (intent, "by rules"));
        }
        assert!(stage.llm.prompts_of(Task::Intent).is_empty());
    });
}
