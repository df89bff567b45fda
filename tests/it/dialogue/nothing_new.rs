//! Turns whose reply says in its state block that nothing of them is new: no facts are extracted.

use std::{sync::Arc, time::Duration};

use colloquy::{
    dialogue::turn::Cut,
    memory::{authored::WorldSettings, turn::TurnStatus},
    ports::{
        PageRequest,
        clock::Clock as _,
        ledger::{
            episodes::EpisodePair,
            jobs::{Job, JobKind},
        },
        llm::Task,
    },
};

use super::{QueuedAnswer, Stage, TestDialogue, cuts::cut_and_resume, streamed_answer};
use crate::support::run;

const NOTHING_NEW: &str = "```state\n{\"nothing_new\": true}\n```";

fn is_extracted(jobs: &[Job]) -> bool {
    jobs.iter().any(|job| job.kind == JobKind::ExtractFacts)
}

async fn has_note(talk: &TestDialogue<'_>, number: u32) -> bool {
    let notes = talk.trace(number).await.notes;
    notes.iter().any(|note| note.contains("nothing_new"))
}

#[test]
fn turn_is_extracted_unless_its_whole_reply_says_that_nothing_is_new() {
    run(async {
        let stage = Stage::prepare().await;
        let long = "Well. ".repeat(3_000);
        for (reply, extracted) in [
            ("Good day.".to_owned(), true),
            (format!("Good day.\n{NOTHING_NEW}"), false),
            (
                "Good day.\n```state\n{\"mood\": \"calm\", \"nothing_new\": true}\n```".to_owned(),
                false,
            ),
            ("Good day.\n```state\n{\"mood\": \"calm\"}\n```".to_owned(), true),
            ("Good day.\n```state\n{\"nothing_new\": false}\n```".to_owned(), true),
            // The block tells of what happened.
            (
                "Good day.\n```state\n{\"events\": [\"A bell rang.\"], \"nothing_new\": true}\n```".to_owned(),
                true,
            ),
            // Not closed.
            ("Good day.\n```state\n{\"nothing_new\": true}".to_owned(), true),
            ("Good day.\n```state\nnothing_new, true\n```".to_owned(), true),
            // The last block counts.
            (
                format!("Good day.\n{NOTHING_NEW}\nSo.\n```state\n{{\"mood\": \"calm\"}}\n```"),
                true,
            ),
            // The model does not stop.
            (format!("{NOTHING_NEW}\n{long}"), true),
        ] {
            let mut talk = stage.session("p1").await;
            stage.llm.queue_text(Task::Reply, reply.as_str());
            let committed = talk.say_line("Hello.").await;
            assert_eq!(is_extracted(&committed.jobs), extracted, "{reply}");
            assert_eq!(has_note(&talk, 1).await, !extracted, "{reply}");
        }
    });
}

#[test]
fn request_to_forget_is_extracted_whatever_the_reply_says() {
    run(async {
        let stage = Stage::prepare().await;
        for line in ["Please forget what I said about my knee.", "내 무릎 얘기는 잊어 줘."] {
            let mut talk = stage.session("p1").await;
            stage
                .llm
                .queue_text(Task::Reply, format!("As you wish.\n{NOTHING_NEW}"));
            let committed = talk.say_line(line).await;
            assert!(is_extracted(&committed.jobs), "{line}");
        }
    });
}

#[test]
fn block_that_says_nothing_else_changes_nothing_and_is_a_block() {
    run(async {
        let stage = Stage::prepare_with(
            |settings| settings.turn.replies_without_block = 2,
            WorldSettings::default(),
        )
        .await;
        let mut talk = stage.session("p1").await;
        for _ in 0..4 {
            stage.llm.queue_text(Task::Reply, format!("Good day.\n{NOTHING_NEW}"));
            let committed = talk.say_line("Hello.").await;
            assert_eq!(committed.turn.reply_text, "Good day.");
            assert!(committed.state.is_empty() && committed.jobs.is_empty());
        }
        let (npc, player) = (&stage.npc.id, "p1".parse().unwrap());
        let pair = EpisodePair {
            world: &stage.world.id,
            npc,
            player: &player,
        };
        let page = PageRequest { limit: 9, after: None };
        let episodes = &stage.services.ledger.episodes;
        let listed = episodes.list_episodes(&stage.scope, pair, &page).await.unwrap();
        assert!(listed.items.is_empty());
    });
}

#[test]
fn key_is_neither_asked_for_nor_heeded_when_not_configured() {
    run(async {
        for (asks_state, asks_new) in [(true, true), (true, false), (false, true)] {
            let stage = Stage::prepare_with(
                |settings| {
                    settings.prompt.ask_for_state = asks_state;
                    settings.prompt.ask_if_nothing_new = asks_new;
                },
                WorldSettings::default(),
            )
            .await;
            let mut talk = stage.session("p1").await;
            stage.llm.queue_text(Task::Reply, format!("Good day.\n{NOTHING_NEW}"));
            let committed = talk.say_line("Hello.").await;
            let both = asks_state && asks_new;
            assert_eq!(is_extracted(&committed.jobs), !both, "{asks_state} {asks_new}");
            let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
            assert_eq!(prompt.contains("nothing_new"), both, "{prompt}");
        }
    });
}

#[test]
fn heard_part_of_a_cut_reply_is_extracted_but_changes_no_state() {
    run(async {
        let stage = Stage::prepare().await;
        // Cut while the model writes: the end of the reply is not known.
        let mut talk = stage.session("p1").await;
        let pieces = ["Good day. ", "Come in.\n", NOTHING_NEW].map(str::to_owned);
        stage.llm.queue_answer(Task::Reply, QueuedAnswer::Silent(pieces.into()));
        *talk.feed.cut_after.lock() = Some((2, Cut::default()));
        let committed = talk.say_line("Hello.").await;
        assert_eq!(committed.turn.status, TurnStatus::Interrupted);
        assert!(is_extracted(&committed.jobs));

        // Cut after its end.
        let mut talk = stage.session("p1").await;
        let reply = format!("Good day. Come in.\n{NOTHING_NEW}");
        stage.llm.queue_text(Task::Reply, reply);
        assert!(talk.say_line("Hello.").await.jobs.is_empty());
        talk.rewind(1, Some(9)).await;
        let now = stage.clock.now() + stage.services.settings.turn.cut_hold();
        let until = now + Duration::from_mins(1);
        let leased = (stage.services.ledger.jobs)
            .lease_due_jobs(&stage.scope, stage.services.ids.next_id(), now, until, 99)
            .await
            .unwrap();
        let of_it = leased.into_iter().filter(|job| job.dialogue == talk.open.dialogue.id);
        let of_it: Vec<Job> = of_it.collect();
        assert!(is_extracted(&of_it));
        assert!(of_it.iter().all(|job| job.kind != JobKind::ExtractState));
    });
}

#[test]
fn block_of_a_continued_reply_is_that_of_the_end() {
    run(async {
        for (end, extracted) in [(format!("\n{NOTHING_NEW}"), false), (String::new(), true)] {
            let stage = Stage::prepare().await;
            let mut talk = stage.session("p1").await;
            let begun = ["Good ", "day. "].map(str::to_owned);
            stage.llm.queue_answer(Task::Reply, QueuedAnswer::Silent(begun.into()));
            let unfinished = cut_and_resume(&mut talk, "Hello.", 2, None).await;
            stage
                .llm
                .queue_answer(Task::Reply, streamed_answer(&["Come in.", end.as_str()]));
            let mut input = talk.turn_input("Hello.").await;
            input.continuation = Some(Arc::new(unfinished));
            let committed = talk.run_turn(input, false).await.unwrap();
            assert_eq!(committed.turn.reply_text, "Good day. Come in.");
            assert_eq!(is_extracted(&committed.jobs), extracted, "{end}");
        }
    });
}
