//! Replies cut mid-stream: the streamed text is sealed and later continued.

use std::{sync::Arc, time::Duration};

use colloquy::{
    dialogue::{
        heard::HeardLength,
        requester::Requester,
        rewind::{RewindError, RewindResponse, RewindTarget},
        turn::{Cut, PartialReply},
    },
    memory::turn::TurnStatus,
    ports::{
        clock::Clock as _,
        ledger::jobs::{Job, JobKind},
        llm::{ChatRole, Task},
    },
    tenancy::{Principal, Role},
};

use super::{QueuedAnswer, Stage, TestDialogue, streamed_answer};
use crate::support::run;

fn owned_texts(pieces: &[&str]) -> Vec<String> {
    pieces.iter().map(|piece| (*piece).to_owned()).collect()
}

/// Cuts the reply to a line after `after` pieces, and then rewinds the turn as a resume does.
pub(super) async fn cut_and_resume(
    talk: &mut TestDialogue<'_>,
    line: &str,
    after: usize,
    heard: Option<usize>,
) -> PartialReply {
    let stage = talk.stage;
    let cut = Cut {
        heard_chars: heard,
        requesters: vec![Requester {
            who: player_principal(stage),
            key: Some("cut".to_owned()),
            action: "session.interrupt",
        }],
    };
    *talk.feed.cut_after.lock() = Some((after, cut));
    let (before, number) = (talk.open.head, talk.open.dialogue.head_turn);
    let history = talk.history.clone();
    let checkpoint = talk.open.checkpoint.clone();
    talk.say_line(line).await;
    *talk.feed.cut_after.lock() = None;
    let requester = Requester {
        who: player_principal(stage),
        key: None,
        action: "session.resume",
    };
    let uncounted = RewindTarget::Resume { may_continue: false };
    let refused = talk.rewind_for(uncounted, requester.clone(), 50).await;
    assert!(matches!(refused, Err(RewindError::NothingToResume)), "{refused:?}");
    let counted = RewindTarget::Resume { may_continue: true };
    let moved = talk.rewind_for(counted, requester, 50).await.unwrap();
    let RewindResponse::Done(done) = moved else {
        panic!("{moved:?}")
    };
    assert_eq!((done.rewound.head, done.rewound.head_turn), (before, number));
    talk.open.epoch = done.rewound.epoch;
    talk.open.head = before;
    talk.open.dialogue.head_turn = number;
    talk.open.checkpoint = checkpoint;
    talk.history = history;
    done.unfinished.unwrap()
}

fn player_principal(stage: &Stage) -> Principal {
    Principal {
        subject: "somebody".to_owned(),
        tenant: stage.scope.tenant().clone(),
        role: Role::Player,
        player: Some("p1".parse().unwrap()),
        world: None,
        issued: colloquy::tenancy::TokenIdentity::default(),
        expires_at: stage.clock.now(),
    }
}

#[test]
fn cut_reply_is_continued_from_all_streamed_text() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        stage.llm.queue_answer(
            Task::Reply,
            QueuedAnswer::Silent(owned_texts(&["<smile>Once ", "upon a ", "time there was a mi"])),
        );
        let unfinished = cut_and_resume(&mut talk, "Tell me a story", 3, Some(6)).await;
        assert_eq!(unfinished.turn.reply_text, "Once u");
        assert_eq!(unfinished.text, "Once upon a time there was a mi");
        assert_eq!(talk.transcript().await, []);

        stage.llm.queue_answer(
            Task::Reply,
            streamed_answer(&["mill", " by the river.\n```state\n", r#"{"mood":"glad"}"#, "\n```"]),
        );
        let mut input = talk.turn_input("Tell me a story").await;
        input.continuation = Some(Arc::new(unfinished));
        let committed = talk.run_turn(input, false).await.unwrap();
        let whole = "Once upon a time there was a mill by the river.";
        assert_eq!(committed.turn.reply_text, whole);
        assert_eq!(committed.turn.status, TurnStatus::Completed);
        assert_eq!(committed.state.len(), 1, "its state block is the reply's own");
        assert_eq!(
            (talk.feed.text().as_str(), talk.feed.reply_end().text.as_str()),
            (whole, whole)
        );
        let deltas = talk.feed.deltas.lock().clone();
        assert_eq!(deltas[0], (0, "Once upon a time there was a".to_owned()), "at once");
        assert!(
            deltas
                .windows(2)
                .all(|two| two[1].0 == two[0].0 + two[0].1.chars().count())
        );
        let asked = stage.llm.messages(Task::Reply).pop().unwrap();
        let [.., line, said, request] = asked.as_slice() else {
            panic!("{asked:?}")
        };
        assert!(line.content.contains("Tell me a story"), "{line:?}");
        assert_eq!(
            (said.role, said.content.as_str()),
            (ChatRole::Assistant, "Once upon a time there was a")
        );
        assert!(request.role == ChatRole::User && request.content.starts_with("[Go on]"));
        let trace = talk.trace(1).await;
        assert!(trace.prompt_tokens <= stage.services.settings.prompt.total_tokens);

        // Later prompts have one reply, without traces of the cut.
        stage.llm.queue_answer(Task::Reply, streamed_answer(&["Yes."]));
        talk.say_line("And then?").await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        assert!(prompt.contains(whole) && !prompt.contains("[Go on]"), "{prompt}");
        assert_eq!(prompt.matches("Once upon").count(), 1);
    });
}

#[test]
fn reply_is_unchanged_when_the_model_adds_nothing() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        stage
            .llm
            .queue_answer(Task::Reply, QueuedAnswer::Silent(owned_texts(&["Good ", "morning."])));
        let unfinished = cut_and_resume(&mut talk, "Hello", 2, None).await;
        stage.llm.queue_answer(Task::Reply, streamed_answer(&["\n"]));
        let mut input = talk.turn_input("Hello").await;
        input.continuation = Some(Arc::new(unfinished));
        let committed = talk.run_turn(input, false).await.unwrap();
        assert_eq!(committed.turn.reply_text, "Good morning.");
        assert_eq!(committed.turn.status, TurnStatus::Completed);
    });
}

#[test]
fn sealed_text_is_invisible_and_expires() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        stage.llm.queue_answer(
            Task::Reply,
            QueuedAnswer::Silent(owned_texts(&["Well, ", "the treasure ", "lies under the oak"])),
        );
        let cut = Cut {
            heard_chars: Some(5),
            ..Cut::default()
        };
        *talk.feed.cut_after.lock() = Some((3, cut));
        let committed = talk.say_line("Where is it?").await;
        *talk.feed.cut_after.lock() = None;
        let head = committed.turn.id;
        let rewinds = &stage.services.ledger.rewinds;
        let sealed = rewinds
            .load_sealed_reply(&stage.scope, head, stage.clock.now())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (sealed.whole, sealed.text.as_str()),
            (None, "Well, the treasure lies under the oak")
        );
        let ledger = &stage.services.ledger;
        let turns = ledger
            .dialogues
            .load_turns(&stage.scope, talk.open.dialogue.id, 1, 9)
            .await
            .unwrap();
        let buffer = stage
            .services
            .buffers
            .load_buffer(&stage.scope, talk.open.dialogue.id)
            .await
            .unwrap();
        let seen = format!("{turns:?} {buffer:?} {:?}", talk.trace(1).await);
        assert!(!seen.contains("treasure"), "{seen}");
        let learns = |job: &&Job| job.kind == JobKind::ExtractFacts;
        for job in committed.jobs.iter().filter(learns) {
            stage.run_job(job).await.unwrap();
        }
        stage.llm.queue_answer(Task::Reply, streamed_answer(&["Hm."]));
        talk.say_line("Go on").await;
        for task in [Task::Reply, Task::Extraction] {
            let asked = stage.llm.prompts_of(task).join("\n");
            assert!(!asked.contains("treasure"), "{asked}");
        }
        let over = stage.clock.now() + Duration::from_secs(31);
        assert_eq!(rewinds.load_sealed_reply(&stage.scope, head, over).await.unwrap(), None);
        assert_eq!(rewinds.delete_expired_seals(&stage.scope, over).await.unwrap(), 1);
    });
}

#[test]
fn earlier_reply_is_cut_at_the_heard_length_in_the_units_of_the_client() {
    run(async {
        for (heard, expected) in [
            (HeardLength::Chars(6), "Well 😀"),
            (HeardLength::Utf16(7), "Well 😀"),
            // Between the two units of a character.
            (HeardLength::Utf16(6), "Well"),
        ] {
            let stage = Stage::prepare().await;
            let mut talk = stage.session("p1").await;
            stage.llm.queue_text(Task::Reply, "Well 😀, come in.");
            talk.say_line("Hello").await;
            talk.rewind_at(1, Some(heard)).await;
            let cut = (1, TurnStatus::Interrupted, expected.to_owned());
            assert_eq!(talk.transcript().await, [cut], "{heard:?}");
        }
    });
}
