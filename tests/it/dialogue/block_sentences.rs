//! Events and notes of state blocks, from which the facts and the episode of a turn are learned.

use std::time::Duration;

use colloquy::ports::{
    clock::Clock as _,
    ledger::jobs::{Job, JobKind},
    llm::Task,
};
use serde_json::{Value, json};

use super::{Stage, TestDialogue};
use crate::support::run;

const LINE: &str = "What was that?";
const EVENT: &str = "<event>The bell \u{2039}of Harrow\u{203a} broke.</event>";
const NOTE: &str = "<note>The player seems to be afraid.</note>";

fn last_extraction(stage: &Stage) -> String {
    stage.llm.prompts_of(Task::Extraction).pop().unwrap()
}

fn job_of(jobs: &[Job], kind: JobKind) -> Job {
    jobs.iter().find(|job| job.kind == kind).unwrap().clone()
}

/// Says a line that the NPC answers with an event and a note in the state block, and that teaches `facts`. Returns the
/// prompt of the extraction.
async fn say_with_sentences(talk: &mut TestDialogue<'_>, line: &str, facts: &Value) -> String {
    let stage = talk.stage;
    let block = json!({
        "events": ["The bell <of Harrow> broke."], "notes": ["The player seems to be afraid."], "nothing_new": true,
    });
    let reply = format!("Hear that?\n```state\n{block}\n```");
    stage.llm.queue_text(Task::Reply, reply);
    talk.say_and_learn(line, facts).await;
    last_extraction(stage)
}

#[test]
fn extraction_is_shown_the_events_and_notes_of_the_reply() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let broke = json!({
            "subject": "the bell of Harrow", "predicate": "break", "object": "", "content": "The bell of Harrow broke.",
            "keywords": ["bell"], "speaker": "the character", "kind": "event", "importance": 6, "polarity": "positive",
            "tense": "past",
        });
        let prompt = say_with_sentences(&mut talk, LINE, &json!([broke])).await;
        assert!(prompt.ends_with(&format!("</npc_reply>\n{EVENT}\n{NOTE}")), "{prompt}");
        let facts = stage.facts().await;
        assert_eq!(
            (facts.len(), facts[0].statement.speaker.as_str()),
            (1, stage.npc.name.as_str())
        );
        // What is learned comes into the prompts that it concerns.
        stage.session("p1").await.say_line("How is the bell of Harrow?").await;
        let context = stage.llm.last_context();
        assert!(context.contains("The bell of Harrow broke."), "{context}");
        // The next turn has none.
        talk.say_and_learn(LINE, &json!([])).await;
        let prompt = last_extraction(&stage);
        assert!(prompt.ends_with("</npc_reply>"), "{prompt}");
    });
}

#[test]
fn turn_that_asks_to_forget_gives_the_extraction_no_events_and_notes() {
    run(async {
        let stage = Stage::prepare().await;
        for line in ["Please forget what I said about my knee.", "내 무릎 얘기는 잊어 줘."] {
            let mut talk = stage.session("p1").await;
            let prompt = say_with_sentences(&mut talk, line, &json!([])).await;
            assert!(prompt.ends_with("</npc_reply>"), "{prompt}");
        }
    });
}

#[test]
fn notes_are_left_out_if_others_learn_the_facts_of_the_turn() {
    run(async {
        let stage = Stage::prepare().await;
        let mut ergen = stage.npc.clone();
        (ergen.id, ergen.name) = ("ergen".parse().unwrap(), "Ergen".to_owned());
        let (authored, edit) = (&stage.services.ledger.authored, stage.edit("npc.put"));
        authored.put_npc(&stage.scope, &ergen, None, &edit).await.unwrap();
        for mut talk in [
            stage.session_with("p1", &[&ergen], &[]).await,
            stage.session_with_witnesses("p1", &["ergen"]).await,
        ] {
            let prompt = say_with_sentences(&mut talk, LINE, &json!([])).await;
            assert!(prompt.ends_with(&format!("</npc_reply>\n{EVENT}")), "{prompt}");
        }
    });
}

#[test]
fn events_and_notes_of_a_reply_that_was_cut_are_taken_back() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        say_with_sentences(&mut talk, LINE, &json!([])).await;
        talk.rewind(1, Some(4)).await;
        let now = stage.clock.now() + stage.services.settings.turn.cut_hold();
        let until = now + Duration::from_mins(1);
        let jobs = &stage.services.ledger.jobs;
        let leased = jobs.lease_due_jobs(&stage.scope, stage.services.ids.next_id(), now, until, 99);
        let job = job_of(&leased.await.unwrap(), JobKind::ExtractFacts);
        stage.run_job(&job).await.unwrap();
        let prompt = last_extraction(&stage);
        assert!(prompt.ends_with("Hear\u{2014}\n</npc_reply>"), "{prompt}");
    });
}

#[test]
fn events_that_a_job_found_in_the_reply_are_not_shown() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        // The block is not closed.
        stage
            .llm
            .queue_text(Task::Reply, "Hear that?\n```state\n{\"events\": [\"A bell");
        let committed = talk.say_line(LINE).await;
        let found = json!({ "events": ["The bell broke."] });
        stage.llm.queue_text(Task::Extraction, found.to_string());
        let job = job_of(&committed.jobs, JobKind::ExtractState);
        assert_eq!(stage.run_job(&job).await.unwrap().state.len(), 1);
        let job = job_of(&committed.jobs, JobKind::ExtractFacts);
        stage.run_job(&job).await.unwrap();
        let prompt = last_extraction(&stage);
        assert!(prompt.ends_with("</npc_reply>"), "{prompt}");
    });
}
