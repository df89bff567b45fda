//! The index or the embedder is away while players teach: what is told is stored and found meanwhile, and compared as
//! if nothing had been away.

use colloquy::{
    dialogue::{jobs, remember},
    ports::{embedder::Embedder as _, llm::Task, vectors::IndexState},
};
use serde_json::json;

use super::{Stage, TestDialogue, liking_fact, statement};
use crate::support::{QdrantDouble, eventually, run};

const GRAPES: &str = "The player likes grapes.";
const PLUMS: &str = "The player likes plums.";
const ASKS: &str = "What fruit do I like?";

/// Says a line whose extraction is a request to forget.
async fn forget(talk: &mut TestDialogue<'_>, request: &str) {
    let answer = json!({"facts": [], "forget": [request]}).to_string();
    talk.stage.llm.queue_text(Task::Extraction, answer);
    let committed = talk.say_line("Forget that.").await;
    // Two lines of one moment are a microsecond apart, and the later one is not over at that moment.
    talk.stage.clock.advance(std::time::Duration::from_mins(1));
    for job in &committed.jobs {
        talk.stage.run_job(job).await.unwrap();
    }
}

/// Asks, and returns whether the prompt has each fact.
async fn is_recalled<const N: usize>(talk: &mut TestDialogue<'_>, contents: [&str; N]) -> [bool; N] {
    talk.say_line(ASKS).await;
    let prompt = talk.stage.llm.last_context();
    contents.map(|content| prompt.contains(content))
}

/// Teaches two likes, the first of them twice, and the end of the second.
async fn teach_and_repeat(talk: &mut TestDialogue<'_>) {
    let grapes = liking_fact("grapes", &["fruit"]);
    talk.say_and_learn("I like grapes", &json!([grapes])).await;
    talk.say_and_learn("I like plums", &json!([liking_fact("plums", &["fruit"])]))
        .await;
    talk.say_and_learn("I do like grapes", &json!([grapes])).await;
    let end = statement(
        "like",
        "plums",
        "The player does not like plums.",
        "negative",
        &["fruit"],
    );
    talk.say_and_learn("I do not like plums any more", &json!([end])).await;
}

/// Returns the texts of episodes without a vector, in order.
async fn unembedded_episodes(stage: &Stage) -> Vec<String> {
    let (episodes, model) = (&stage.services.ledger.episodes, &stage.embedder.info().model);
    let missing = episodes.list_unembedded(&stage.scope, model, None, 99).await.unwrap();
    let mut texts: Vec<String> = missing.into_iter().map(|(_, text)| text).collect();
    texts.sort();
    texts
}

/// Returns the valid contents, in order.
async fn valid_contents(stage: &Stage) -> Vec<String> {
    let mut valid = stage.valid_contents().await;
    valid.sort();
    valid
}

/// Returns the valid contents of the same story without an outage.
async fn undisturbed_contents() -> Vec<String> {
    let stage = Stage::prepare().await;
    let mut talk = stage.session("p1").await;
    teach_and_repeat(&mut talk).await;
    valid_contents(&stage).await
}

#[test]
fn turns_teach_while_the_index_is_away_and_nothing_is_double_afterwards() {
    run(async {
        let mut double = QdrantDouble::start();
        let stage = Stage::prepare_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        double.stop_serving();
        talk.say_and_learn("I like rain", &json!([liking_fact("rain", &["weather"])]))
            .await;
        teach_and_repeat(&mut talk).await;
        let mut expected = undisturbed_contents().await;
        expected.push("The player likes rain.".to_owned());
        assert_eq!(valid_contents(&stage).await, expected);
        assert_eq!(is_recalled(&mut talk, [GRAPES, PLUMS]).await, [true, false]);

        double.serve_again();
        eventually("the outbox is moved", async || {
            (jobs::relay_outbox(&stage.services).await.unwrap() > 0).then_some(())
        })
        .await;
        assert_eq!(double.points("colloquy"), expected.len());
        talk.say_and_learn("I like grapes!", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        assert_eq!(
            valid_contents(&stage).await,
            expected,
            "the index finds what it did not have"
        );
    });
}

#[test]
fn index_without_the_facts_of_an_outage_is_not_searched() {
    run(async {
        let mut double = QdrantDouble::start();
        let stage = Stage::prepare_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        double.stop_serving();
        talk.say_and_learn("I like plums", &json!([liking_fact("plums", &["fruit"])]))
            .await;
        assert_eq!(stage.services.index.index_state(), IndexState::Away);
        double.serve_again();
        eventually("the index answers", async || {
            stage.services.index.count_points(&stage.scope).await.ok()
        })
        .await;
        assert_eq!(stage.services.index.index_state(), IndexState::Ready);
        assert_eq!(double.points("colloquy"), 0);
        assert_eq!(is_recalled(&mut talk, [PLUMS]).await, [true]);
        let without_index = async |talk: &TestDialogue<'_>| {
            let notes = talk.trace(talk.open.dialogue.head_turn).await.notes;
            notes.iter().any(|note| note.contains("recall in the ledger"))
        };
        assert!(without_index(&talk).await);
        while jobs::relay_outbox(&stage.services).await.unwrap() > 0 {}
        assert_eq!(is_recalled(&mut talk, [PLUMS]).await, [true]);
        assert!(!without_index(&talk).await);
    });
}

#[test]
fn facts_are_stored_without_the_embedder_and_compared_when_it_is_back() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like rain", &json!([liking_fact("rain", &[])]))
            .await;
        stage.embedder.set_away(true);
        teach_and_repeat(&mut talk).await;
        assert_eq!(is_recalled(&mut talk, [GRAPES]).await, [true], "it is found by words");
        forget(&mut talk, "The player likes rain.").await;
        // Nothing can be compared yet, and the marks stay.
        assert!(jobs::embed_backlog(&stage.services).await.is_empty());
        remember::reconcile_dirty_memories(&stage.services, &stage.scope)
            .await
            .unwrap();
        let marks = stage.services.ledger.rewinds.list_dirty_memories(&stage.scope, 9);
        assert_eq!(marks.await.unwrap().len(), 1);
        assert!(!unembedded_episodes(&stage).await.is_empty());
        let side_by_side = valid_contents(&stage).await;
        for content in ["The player does not like plums.", PLUMS, "The player likes rain."] {
            assert!(side_by_side.iter().any(|valid| valid == content), "{side_by_side:?}");
        }

        stage.embedder.set_away(false);
        let scopes = jobs::embed_backlog(&stage.services).await;
        assert_eq!(scopes, std::slice::from_ref(&stage.scope));
        remember::reconcile_dirty_memories(&stage.services, &stage.scope)
            .await
            .unwrap();
        let undisturbed = Stage::prepare().await;
        let mut undisturbed_talk = undisturbed.session("p1").await;
        undisturbed_talk
            .say_and_learn("I like rain", &json!([liking_fact("rain", &[])]))
            .await;
        teach_and_repeat(&mut undisturbed_talk).await;
        forget(&mut undisturbed_talk, "The player likes rain.").await;
        let expected = valid_contents(&undisturbed).await;
        assert!(
            !expected.iter().any(|valid| valid == "The player likes rain."),
            "{expected:?}"
        );
        assert_eq!(valid_contents(&stage).await, expected);
        let ledger = &stage.services.ledger;
        let facts = ledger.facts.list_unembedded(&stage.scope, None, 9).await.unwrap();
        assert!(facts.is_empty(), "{facts:?}");
        assert_eq!(unembedded_episodes(&stage).await, [""; 0]);
        let marks = ledger.rewinds.list_dirty_memories(&stage.scope, 9).await.unwrap();
        assert!(marks.is_empty(), "{marks:?}");
    });
}

#[test]
fn text_of_an_outage_that_the_embedder_refuses_is_tried_once() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        stage.embedder.set_away(true);
        talk.say_and_learn("I like plums", &json!([liking_fact("plums", &["fruit"])]))
            .await;
        talk.say_and_learn("I like rain", &json!([liking_fact("rain", &["weather"])]))
            .await;
        stage.embedder.set_away(false);
        *stage.embedder.refuses.lock() = Some("plums");
        let scopes = jobs::embed_backlog(&stage.services).await;
        assert_eq!(scopes, std::slice::from_ref(&stage.scope));
        assert!(jobs::embed_backlog(&stage.services).await.is_empty(), "no further try");
        let facts = &stage.services.ledger.facts;
        let facts = facts.list_unembedded(&stage.scope, None, 9).await.unwrap();
        let mut texts: Vec<String> = facts.into_iter().map(|(_, text)| text).collect();
        texts.extend(unembedded_episodes(&stage).await);
        assert_eq!(texts.len(), 2, "the fact and the episode: {texts:?}");
        assert!(texts.iter().all(|text| text.contains("plums")), "{texts:?}");
    });
}

#[test]
fn episodes_of_an_outage_get_their_vectors_after_a_restart() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        stage.embedder.set_away(true);
        talk.say_and_learn("Nice weather", &json!([])).await;
        assert_eq!(unembedded_episodes(&stage).await.len(), 1);
        stage.embedder.set_away(false);
        // A server does so in the background from its start on.
        let behind = jobs::embed_missing_of_tenants(&stage.services, None).await;
        assert_eq!(behind.unwrap(), []);
        assert_eq!(unembedded_episodes(&stage).await, [""; 0]);
    });
}

#[test]
fn fact_taught_without_the_embedder_goes_with_its_turn() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like plums", &json!([liking_fact("plums", &["fruit"])]))
            .await;
        stage.embedder.set_away(true);
        teach_and_repeat(&mut talk).await;
        talk.rewind(1, None).await;
        stage.embedder.set_away(false);
        jobs::embed_backlog(&stage.services).await;
        remember::reconcile_dirty_memories(&stage.services, &stage.scope)
            .await
            .unwrap();
        assert_eq!(stage.valid_contents().await, [PLUMS]);
    });
}
