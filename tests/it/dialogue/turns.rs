//! One turn: its output, its commit, and its failures.

use std::time::Duration;

use colloquy::{
    dialogue::{
        jobs::JobError,
        preview,
        turn::{Cut, TurnError},
    },
    memory::{
        authored::WorldSettings,
        state::StateChange,
        turn::{Intent, TurnStatus},
    },
    ports::{
        buffer::BufferHead,
        clock::Clock as _,
        ledger::{
            jobs::{Job, JobKind},
            state::NewStateChange,
        },
        llm::{LlmError, Task},
    },
};

use super::{QueuedAnswer, Stage, streamed_answer};
use crate::support::run;

fn owned_texts(pieces: &[&str]) -> Vec<String> {
    pieces.iter().map(|piece| (*piece).to_owned()).collect()
}

#[test]
fn turn_streams_commits_and_explains_itself() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        stage.llm.queue_answer(
            Task::Reply,
            streamed_answer(&[
                "<sm",
                "ile>Good ",
                "mor",
                "ning.\n``",
                "`state\n{\"mood\": \"glad\"",
                "}\n```",
            ]),
        );
        let committed = talk.say_line("Hello").await;
        assert_eq!(talk.feed.text(), "Good morning.");
        let mut offset = 0;
        for (at, text) in talk.feed.deltas.lock().iter() {
            assert_eq!(*at, offset);
            offset += text.chars().count();
        }
        let done = talk.feed.reply_end();
        assert_eq!(
            (done.status, done.text.as_str()),
            (TurnStatus::Completed, "Good morning.")
        );
        assert_eq!(done.cues, ["smile"]);
        assert_eq!((committed.turn.seqs.done, committed.turn.seqs.committed), (10, 11));
        let mood = StateChange::Mood {
            who: "Mira".to_owned(),
            mood: "happy".to_owned(),
        };
        assert_eq!(committed.state, [mood]);
        assert_eq!(
            talk.transcript().await,
            [(1, TurnStatus::Completed, "Good morning.".to_owned())]
        );

        let trace = talk.trace(1).await;
        let tasks: Vec<&str> = trace.calls.iter().map(|call| call.task.as_str()).collect();
        assert_eq!(tasks, ["embedding", "intent", "reply"]);
        assert_eq!((trace.intent, trace.intent_source.as_str()), (Intent::Memory, "model"));
        assert_eq!(trace.prompt_hash.len(), 64);
        assert!(trace.timings.added >= 0.0 && trace.timings.added < 60_000.0);
        assert!(trace.notes.iter().any(|note| note.contains("offline embedder")));

        let buffer = stage
            .services
            .buffers
            .load_buffer(&stage.scope, committed.turn.dialogue)
            .await
            .unwrap()
            .unwrap();
        let head = BufferHead {
            epoch: talk.open.epoch,
            turn: Some(committed.turn.id),
        };
        assert_eq!((buffer.head, buffer.turns.len()), (head, 1));
        // The state is in the next prompt, and the block is not in the history.
        talk.say_line("And now?").await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        assert!(prompt.contains("mood: happy"), "{prompt}");
        assert_eq!(prompt.matches("Good morning.").count(), 1);
        // The second prompt begins with the whole first prompt, without the three tokens that open the answer.
        let (first, second) = (trace, talk.trace(2).await);
        assert_eq!(first.unchanged_tokens, None);
        assert_eq!(second.unchanged_tokens, Some(first.prompt_tokens - 3), "{second:?}");
    });
}

#[test]
fn cut_reply_ends_where_it_was_heard() {
    run(async {
        let stage = Stage::prepare().await;
        for (heard, wanted) in [(None, "Once upon "), (Some(6), "Once u"), (Some(99), "Once upon ")] {
            let mut talk = stage.session("p1").await;
            stage.llm.queue_answer(
                Task::Reply,
                QueuedAnswer::Silent(owned_texts(&["Once ", "upon ", "a time\n```state\n{"])),
            );
            // The third piece is partly streamed, only after the request to cut.
            *talk.feed.cut_after.lock() = Some((
                2,
                Cut {
                    heard_chars: heard,
                    ..Cut::default()
                },
            ));
            let committed = talk.say_line("Tell me a story").await;
            let done = talk.feed.reply_end();
            let wanted = wanted.trim_end();
            assert_eq!(done.status, TurnStatus::Interrupted);
            assert_eq!(committed.turn.reply_text.trim_end(), wanted);
            assert_eq!(done.text, committed.turn.reply_text);
            assert!(committed.state.is_empty());
            assert_eq!(
                committed.jobs.iter().map(|job| job.kind).collect::<Vec<_>>(),
                [JobKind::ExtractFacts],
                "what never began a state block changes nothing"
            );
            // The model sees the place of the cut.
            *talk.feed.cut_after.lock() = None;
            talk.say_line("Go on").await;
            let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
            assert!(
                prompt.contains(&format!("{}\u{2014}", committed.turn.reply_text)),
                "{prompt}"
            );
        }
    });
}

#[test]
fn turn_cut_before_its_first_character_never_happened() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        // Three cases: before the model was asked, while the model is silent, and with no text heard.
        let outcome = talk.try_say_line("Hello", true).await;
        assert!(matches!(outcome, Err(TurnError::CutBeforeReply)));
        let done = talk.feed.reply_end();
        assert_eq!((done.status, done.text.as_str()), (TurnStatus::Interrupted, ""));
        assert!(done.error.is_none());

        stage
            .llm
            .queue_answer(Task::Reply, QueuedAnswer::Silent(owned_texts(&["Well."])));
        *talk.feed.cut_after.lock() = Some((
            1,
            Cut {
                heard_chars: Some(0),
                ..Cut::default()
            },
        ));
        let outcome = talk.try_say_line("Hello", false).await;
        assert!(matches!(outcome, Err(TurnError::CutBeforeReply)));
        assert_eq!(talk.feed.reply_end().status, TurnStatus::Interrupted);
        assert_eq!(talk.transcript().await, []);
    });
}

#[test]
fn failing_model_leaves_nothing_behind() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        for (answer, code) in [
            (QueuedAnswer::Fails(LlmError::Refused("no".to_owned())), "model_failed"),
            (QueuedAnswer::Broken(owned_texts(&["Half a "])), "model_failed"),
            (QueuedAnswer::Text("  \n".to_owned()), "model_failed"),
            (QueuedAnswer::Text("```state\n{}\n```".to_owned()), "model_failed"),
        ] {
            stage.llm.queue_answer(Task::Reply, answer.clone());
            let outcome = talk.try_say_line("Hello", false).await;
            assert!(matches!(outcome, Err(TurnError::Model(_))), "{answer:?}: {outcome:?}");
            let done = talk.feed.reply_end();
            assert_eq!((done.status, done.text.as_str()), (TurnStatus::Failed, ""));
            assert_eq!(done.error.unwrap().code, code);
        }
        assert_eq!(talk.transcript().await, []);
        talk.say_line("Still there?").await;
        assert_eq!(talk.transcript().await.len(), 1);
    });
}

#[test]
fn turn_has_a_time_limit() {
    run(async {
        let stage = Stage::prepare_with(|settings| settings.turn.timeout_ms = 200, WorldSettings::default()).await;
        let mut talk = stage.session("p1").await;
        stage
            .llm
            .queue_answer(Task::Reply, QueuedAnswer::Silent(owned_texts(&["Hm"])));
        assert!(matches!(
            talk.try_say_line("Hello", false).await,
            Err(TurnError::TimedOut)
        ));
        assert_eq!(talk.feed.reply_end().error.unwrap().code, "model_timeout");
    });
}

#[test]
fn lost_dialogue_writes_nothing() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.open.epoch += 1;
        assert!(matches!(
            talk.try_say_line("Hello", false).await,
            Err(TurnError::Fenced)
        ));
        assert_eq!(talk.feed.reply_end().status, TurnStatus::Completed);
        assert_eq!(talk.transcript().await, []);
    });
}

#[test]
fn classifier_and_embedder_may_fail() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn(
            "I like grapes",
            &serde_json::json!([super::liking_fact("grapes", &["grape", "fruit"])]),
        )
        .await;
        stage.break_embedder(true);
        stage
            .llm
            .queue_answer(Task::Intent, QueuedAnswer::Fails(LlmError::Refused("no".to_owned())));
        talk.say_line("What fruit do I like?").await;
        assert!(stage.llm.last_context().contains("The player likes grapes."));
        let trace = talk.trace(2).await;
        assert!(
            trace.intent_source.starts_with("recall in full"),
            "{}",
            trace.intent_source
        );
        assert!(
            trace.notes.iter().any(|note| note.contains("keywords alone")),
            "{:?}",
            trace.notes
        );
        stage.llm.queue_text(Task::Intent, "I would say: soup");
        talk.say_line("And?").await;
        assert!(talk.trace(3).await.intent_source.contains("named no intent"));
    });
}

#[test]
fn unreadable_state_block_becomes_a_job() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        stage
            .llm
            .queue_text(Task::Reply, "Come along.\n```state\nwe are somewhere\n```");
        let committed = talk.say_line("Shall we go?").await;
        assert!(committed.state.is_empty());
        let job = committed
            .jobs
            .iter()
            .find(|job| job.kind == JobKind::ExtractState)
            .unwrap();
        stage
            .llm
            .queue_text(Task::Extraction, r#"{"location": "the mill", "location_moved": true}"#);
        let report = stage.run_job(job).await.unwrap();
        let moved = StateChange::Location {
            who: "player:p1".to_owned(),
            to: "the mill".to_owned(),
        };
        assert_eq!((report.turn, report.state.as_slice()), (1, &[moved][..]));
        stage
            .llm
            .queue_text(Task::Extraction, r#"{"location": "the moon", "location_moved": true}"#);
        assert!(
            stage.run_job(job).await.unwrap().state.is_empty(),
            "a finished job writes nothing"
        );
        talk.say_line("Where are we?").await;
        assert!(stage.llm.last_context().contains("player; at: the mill"));
        // Another player is not at the mill.
        let mut other = stage.session("p2").await;
        other.say_line("Where am I?").await;
        assert!(!stage.llm.last_context().contains("the mill"));
    });
}

#[test]
fn state_extraction_does_not_depend_on_a_cut() {
    run(async {
        let stage = Stage::prepare().await;
        let kinds = |jobs: &[Job]| jobs.iter().map(|job| job.kind).collect::<Vec<_>>();
        let line = "You hand me the royal sword";
        // A started block would have changed the state. The job reads the heard text instead, without the player's
        // line.
        let mut talk = stage.session("p1").await;
        let begun = owned_texts(&["Here it is. ", "Take it.\n```state\n{", "\"mood\""]);
        stage.llm.queue_answer(Task::Reply, QueuedAnswer::Silent(begun));
        *talk.feed.cut_after.lock() = Some((2, Cut::default()));
        let committed = talk.say_line(line).await;
        assert_eq!(kinds(&committed.jobs), [JobKind::ExtractFacts, JobKind::ExtractState]);
        assert!(talk.trace(1).await.state_block);
        stage.llm.queue_text(Task::Extraction, "{}");
        stage.run_job(&committed.jobs[1]).await.unwrap();
        let prompt = stage.llm.prompts_of(Task::Extraction).pop().unwrap();
        assert!(
            prompt.contains("Here it is.") && !prompt.contains("royal sword"),
            "{prompt}"
        );

        // For a whole reply, the presence of a block is known.
        for (reply, heard, reads) in [
            ("Here it is. Take it.", 12, 0),
            ("Here it is. Take it.\n```state\n{\"mood\": \"calm\"}\n```", 12, 1),
            // Half a sentence tells of no completed act.
            ("Here it is. Take it.\n```state\n{\"mood\": \"calm\"}\n```", 4, 0),
        ] {
            let mut talk = stage.session("p1").await;
            stage.llm.queue_text(Task::Reply, reply);
            talk.say_line(line).await;
            talk.rewind(1, Some(heard)).await;
            let hold = stage.services.settings.turn.cut_hold();
            let (now, jobs) = (stage.clock.now() + hold, &stage.services.ledger.jobs);
            let until = now + std::time::Duration::from_mins(1);
            let leased = jobs
                .lease_due_jobs(&stage.scope, stage.services.ids.next_id(), now, until, 99)
                .await
                .unwrap();
            let of_it = leased.iter().filter(|job| job.dialogue == talk.open.dialogue.id);
            let count = of_it.filter(|job| job.kind == JobKind::ExtractState).count();
            assert_eq!(count, reads, "{heard} characters of {reply}");
        }
    });
}

#[test]
fn state_of_replies_without_a_block_is_extracted_for_a_model_that_writes_none() {
    run(async {
        let stage = Stage::prepare_with(
            |settings| settings.turn.replies_without_block = 2,
            WorldSettings::default(),
        )
        .await;
        let mut talk = stage.session("p1").await;
        let has_job = |jobs: &[Job]| jobs.iter().any(|job| job.kind == JobKind::ExtractState);
        stage.llm.queue_text(Task::Reply, "Good day.");
        assert!(
            !has_job(&talk.say_line("Hello.").await.jobs),
            "too few replies are known"
        );
        stage.llm.queue_text(Task::Reply, "Come, I take you to the mill.");
        let committed = talk.say_line("Shall we go?").await;
        let job = committed
            .jobs
            .iter()
            .find(|job| job.kind == JobKind::ExtractState)
            .unwrap();
        let notes = talk.trace(2).await.notes;
        assert!(
            notes.iter().any(|note| note.starts_with("no state block, and `")),
            "{notes:?}"
        );
        stage
            .llm
            .queue_text(Task::Extraction, r#"{"location": "the mill", "location_moved": true}"#);
        assert_eq!(stage.run_job(job).await.unwrap().state.len(), 1);
        // A model that writes blocks after all costs no further call.
        for (reply, reads) in [
            ("Nothing here.", true),
            ("Sit down.\n```state\n{\"mood\": \"calm\"}\n```", false),
            ("Well.\n```state\n{\"mood\": \"happy\"}\n```", false),
            ("So it is.", false),
        ] {
            stage.llm.queue_text(Task::Reply, reply);
            assert_eq!(has_job(&talk.say_line("And now?").await.jobs), reads, "{reply}");
        }
    });
}

#[test]
fn state_is_not_extracted_when_not_configured() {
    run(async {
        let stage = Stage::prepare_with(
            |settings| settings.prompt.ask_for_state = false,
            WorldSettings::default(),
        )
        .await;
        let mut talk = stage.session("p1").await;
        let unreadable = "Come along.\n```state\nwe are somewhere\n```";
        stage.llm.queue_text(Task::Reply, unreadable);
        let whole = talk.say_line("Shall we go?").await;
        stage.llm.queue_answer(
            Task::Reply,
            QueuedAnswer::Silent(owned_texts(&["Come ", "along.\n```state\nwe are", ""])),
        );
        *talk.feed.cut_after.lock() = Some((2, Cut::default()));
        let cut = talk.say_line("Shall we go now?").await;
        for committed in [whole, cut] {
            assert!(committed.jobs.iter().all(|job| job.kind != JobKind::ExtractState));
        }
    });
}

#[test]
fn late_state_job_does_not_override_later_turns() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        stage
            .llm
            .queue_text(Task::Reply, "Come along.\n```state\nwe are somewhere\n```");
        let unread = talk.say_line("Shall we go?").await;
        let moving = |to: &str| format!("On.\n```state\n{{\"location\": \"{to}\", \"location_moved\": true}}\n```");
        stage.clock.advance(std::time::Duration::from_mins(1));
        stage.llm.queue_text(Task::Reply, moving("the ferry"));
        talk.say_line("And on?").await;
        talk.say_line("Where are we?").await;
        assert!(stage.llm.last_context().contains("player; at: the ferry"));

        // Another session of the same world adds its change once.
        let mut other = stage.session("p2").await;
        stage
            .llm
            .queue_text(Task::Reply, "Ouch.\n```state\n{\"player_hp_delta\": -10}\n```");
        other.say_line("I fell.").await;

        let job = unread
            .jobs
            .iter()
            .find(|job| job.kind == JobKind::ExtractState)
            .unwrap();
        stage
            .llm
            .queue_text(Task::Extraction, r#"{"location": "the mill", "location_moved": true}"#);
        assert_eq!(stage.run_job(job).await.unwrap().state.len(), 1);
        talk.say_line("Where are we now?").await;
        let context = stage.llm.last_context();
        assert!(context.contains("player; at: the ferry"), "{context}");
    });
}

#[test]
fn useless_answers_are_requested_once_more() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let committed = talk.say_line("Hello").await;
        let job = &committed.jobs[0];
        for answer in ["I think nothing.", "{\"fact\": []}"] {
            stage.llm.queue_text(Task::Extraction, answer);
        }
        assert!(matches!(stage.run_job(job).await, Err(JobError::Unusable(_))));
        stage.llm.queue_text(Task::Extraction, "hm");
        assert_eq!(stage.run_job(job).await.unwrap().turn, 1);
        assert_eq!(stage.llm.prompts_of(Task::Extraction).len(), 4);
    });
}

#[test]
fn summaries_are_stored_when_due_and_trim_the_buffer() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        for number in 1..=10 {
            let committed = talk.say_line(&format!("line {number}")).await;
            let due = committed.jobs.iter().find(|job| job.kind == JobKind::Summarise);
            assert_eq!(due.is_some(), number == 10);
            if let Some(job) = due {
                stage.llm.queue_text(
                    Task::Summary,
                    r#"{"summary": "They counted lines.", "importance": "7"}"#,
                );
                assert!(stage.run_job(job).await.unwrap().summaries_changed);
                assert!(!stage.run_job(job).await.unwrap().summaries_changed);
            }
            stage.clock.advance(Duration::from_secs(1));
        }
        let kept = stage
            .services
            .ledger
            .summaries
            .load_summaries(&stage.scope, talk.open.dialogue.id)
            .await
            .unwrap();
        assert_eq!(
            (kept[0].from_turn, kept[0].to_turn, kept[0].importance.get()),
            (1, 10, 7)
        );
        let committed = talk.say_line("and on").await;
        assert_eq!(committed.checkpoint.summarised_through, 10);
        assert_eq!(committed.checkpoint.buffer_from, 5);
        assert!(committed.jobs.iter().all(|job| job.kind != JobKind::Summarise));
        assert!(
            stage
                .llm
                .prompts_of(Task::Reply)
                .pop()
                .unwrap()
                .contains("They counted lines.")
        );
        assert_eq!(talk.history.first().unwrap().number, 5);
    });
}

#[test]
fn preview_calls_no_model() {
    run(async {
        let stage = Stage::prepare().await;
        let talk = stage.session("p1").await;
        let preview = preview::preview_prompt(
            &stage.services,
            &talk.turn_input("Hello").await,
            preview::IntentSource::Assumed,
        )
        .await
        .unwrap();
        assert!(preview.messages.last().unwrap().content.contains("Hello"));
        assert!(preview.prompt_tokens > 0);
        for task in Task::ALL {
            assert!(stage.llm.prompts_of(task).is_empty());
        }
    });
}

#[test]
fn clock_set_back_does_not_reverse_any_order() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let before = talk.say_line("I like grapes").await.turn.committed_at;
        stage.clock.set_back(Duration::from_hours(1));
        let after = talk.say_line("I like grapes no longer").await.turn.committed_at;
        assert_eq!(after, before + chrono::Duration::microseconds(1));
        let last = talk.say_line("And now?").await.turn.committed_at;
        assert_eq!(last, before + chrono::Duration::microseconds(2));
    });
}

#[test]
fn state_block_may_name_only_people_of_the_world() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let block = r#"{"npc_met": ["mira", "Zorg"], "items_gained": ["Zorg's hat"], "location": "Zorgheim",
            "relationship_changes": [{"from": "Mira", "to": "player", "type": "trust", "delta": 1},
                                     {"from": "Zorg", "to": "player", "type": "trust", "delta": 1}]}"#;
        let reply = format!("Good day.\n```state\n{block}\n```");
        stage.llm.queue_text(Task::Reply, &reply);
        let committed = talk.say_line("Hello").await;
        let changed = serde_json::to_string(&committed.state).unwrap();
        assert!(!changed.contains("\"Zorg\""), "{changed}");
        assert!(
            changed.contains("Zorgheim") && changed.contains("Zorg's hat"),
            "places and things may be new: {changed}"
        );
        assert!(
            changed.contains(r#""whom":"Mira""#) && changed.contains("trust"),
            "{changed}"
        );
        let notes = talk.trace(1).await.notes;
        let refused = notes.iter().filter(|note| note.contains("nobody known"));
        assert_eq!(refused.count(), 2, "{notes:?}");

        // People in the world's state count as known.
        let row = NewStateChange {
            id: stage.services.ids.next_id(),
            world: stage.world.id.clone(),
            dialogue: None,
            change: StateChange::Status {
                who: "Zorg".to_owned(),
                status: "awake".to_owned(),
            },
            cause: colloquy::memory::fact::Cause::Turn(committed.turn.id),
            changed_at: committed.turn.committed_at,
        };
        let fence = committed.jobs[0].fence();
        let states = &stage.services.ledger.state;
        assert!(states.commit_changes(&stage.scope, &fence, &[row], &[]).await.unwrap());
        stage.llm.queue_text(Task::Reply, &reply);
        let changed = serde_json::to_string(&talk.say_line("Hello again").await.state).unwrap();
        assert_eq!(changed.matches("\"Zorg\"").count(), 2, "{changed}");
    });
}
