//! Replies that are cut while they are said: what had been said is sealed, and gone on with.

use std::{sync::Arc, time::Duration};

use colloquy::{
    dialogue::{
        rewind::{self, Moved, RewindRequest, Target},
        turn::{Cut, CutBy, Unfinished},
    },
    memory::turn::TurnStatus,
    ports::{
        clock::Clock as _,
        ledger::jobs::{Job, JobKind},
        llm::{ChatRole, Task},
    },
    tenancy::{Principal, Role},
};

use super::{Answer, Stage, Talk, pieces};
use crate::support::run;

fn texts(pieces: &[&str]) -> Vec<String> {
    pieces.iter().map(|piece| (*piece).to_owned()).collect()
}

/// Cuts the reply to a line once `after` pieces of it went out, and takes the head back to before it, as
/// whoever takes it up again does.
pub(super) async fn cut_and_taken_up(
    talk: &mut Talk<'_>,
    line: &str,
    after: usize,
    heard: Option<usize>,
) -> Unfinished {
    let stage = talk.stage;
    let cut = Cut {
        heard_chars: heard,
        by: vec![CutBy {
            who: who(stage),
            key: Some("cut".to_owned()),
            action: "session.interrupt",
        }],
    };
    *talk.feed.cut_after.lock() = Some((after, cut));
    let (before, number) = (talk.open.head, talk.open.dialogue.head_turn);
    let history = talk.history.clone();
    let checkpoint = talk.open.checkpoint.clone();
    talk.say(line).await;
    *talk.feed.cut_after.lock() = None;
    let request = RewindRequest {
        scope: stage.scope.clone(),
        node: stage.node,
        dialogue: talk.open.dialogue.id,
        world: stage.world.id.clone(),
        epoch: talk.open.epoch,
        head_turn: talk.open.dialogue.head_turn,
        head: talk.open.head,
        fence: false,
        target: Target::Uncut,
        paused: None,
        also: Vec::new(),
        others: Vec::new(),
        key: None,
        seq: 50,
        who: who(stage),
        action: "session.resume",
    };
    let moved = rewind::rewind(&stage.services, request).await.unwrap();
    let Moved::Done(done) = moved else { panic!("{moved:?}") };
    assert_eq!((done.rewound.head, done.rewound.head_turn), (before, number));
    talk.open.epoch = done.rewound.epoch;
    talk.open.head = before;
    talk.open.dialogue.head_turn = number;
    talk.open.checkpoint = checkpoint;
    talk.history = history;
    done.unfinished.unwrap()
}

fn who(stage: &Stage) -> Principal {
    Principal {
        subject: "somebody".to_owned(),
        tenant: stage.scope.tenant().clone(),
        role: Role::Player,
        player: Some("p1".parse().unwrap()),
        world: None,
        issued: colloquy::tenancy::Issued::default(),
        expires_at: stage.clock.now(),
    }
}

#[test]
fn a_cut_reply_is_gone_on_with_from_all_that_was_said() {
    run(async {
        let stage = Stage::set().await;
        let mut talk = stage.session("p1").await;
        stage.llm.tell(
            Task::Reply,
            Answer::Silent(texts(&["<smile>Once ", "upon a ", "time there was a mi"])),
        );
        let unfinished = cut_and_taken_up(&mut talk, "Tell me a story", 3, Some(6)).await;
        assert_eq!(unfinished.of.reply_text, "Once u");
        assert_eq!(unfinished.text, "Once upon a time there was a mi");
        assert_eq!(talk.transcript().await, []);

        stage.llm.tell(
            Task::Reply,
            pieces(&["mill", " by the river.\n```state\n", r#"{"mood":"glad"}"#, "\n```"]),
        );
        let mut input = talk.input("Tell me a story").await;
        input.goes_on = Some(Arc::new(unfinished));
        let committed = talk.run(input, false).await.unwrap();
        let whole = "Once upon a time there was a mill by the river.";
        assert_eq!(committed.turn.reply_text, whole);
        assert_eq!(committed.turn.status, TurnStatus::Completed);
        assert_eq!(committed.state.len(), 1, "its state block is the reply's own");
        assert_eq!(
            (talk.feed.text().as_str(), talk.feed.end().text.as_str()),
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

        // What follows knows one reply, and nothing of how it came about.
        stage.llm.tell(Task::Reply, pieces(&["Yes."]));
        talk.say("And then?").await;
        let prompt = stage.llm.asked(Task::Reply).pop().unwrap();
        assert!(prompt.contains(whole) && !prompt.contains("[Go on]"), "{prompt}");
        assert_eq!(prompt.matches("Once upon").count(), 1);
    });
}

#[test]
fn a_model_that_has_nothing_to_add_leaves_the_reply_as_it_was() {
    run(async {
        let stage = Stage::set().await;
        let mut talk = stage.session("p1").await;
        stage
            .llm
            .tell(Task::Reply, Answer::Silent(texts(&["Good ", "morning."])));
        let unfinished = cut_and_taken_up(&mut talk, "Hello", 2, None).await;
        stage.llm.tell(Task::Reply, pieces(&["\n"]));
        let mut input = talk.input("Hello").await;
        input.goes_on = Some(Arc::new(unfinished));
        let committed = talk.run(input, false).await.unwrap();
        assert_eq!(committed.turn.reply_text, "Good morning.");
        assert_eq!(committed.turn.status, TurnStatus::Completed);
    });
}

#[test]
fn what_was_sealed_is_seen_nowhere_and_runs_out() {
    run(async {
        let stage = Stage::set().await;
        let mut talk = stage.session("p1").await;
        stage.llm.tell(
            Task::Reply,
            Answer::Silent(texts(&["Well, ", "the treasure ", "lies under the oak"])),
        );
        let cut = Cut {
            heard_chars: Some(5),
            ..Cut::default()
        };
        *talk.feed.cut_after.lock() = Some((3, cut));
        let committed = talk.say("Where is it?").await;
        *talk.feed.cut_after.lock() = None;
        let head = committed.turn.id;
        let rewinds = &stage.services.ledger.rewinds;
        let sealed = rewinds
            .sealed(&stage.scope, head, stage.clock.now())
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
            .turns(&stage.scope, talk.open.dialogue.id, 1, 9)
            .await
            .unwrap();
        let buffer = stage
            .services
            .buffers
            .load(&stage.scope, talk.open.dialogue.id)
            .await
            .unwrap();
        let seen = format!("{turns:?} {buffer:?} {:?}", talk.trace(1).await);
        assert!(!seen.contains("treasure"), "{seen}");
        let learns = |job: &&Job| job.kind == JobKind::ExtractFacts;
        for job in committed.jobs.iter().filter(learns) {
            stage.run(job).await.unwrap();
        }
        stage.llm.tell(Task::Reply, pieces(&["Hm."]));
        talk.say("Go on").await;
        for task in [Task::Reply, Task::Extraction] {
            let asked = stage.llm.asked(task).join("\n");
            assert!(!asked.contains("treasure"), "{asked}");
        }
        let over = stage.clock.now() + Duration::from_secs(31);
        assert_eq!(rewinds.sealed(&stage.scope, head, over).await.unwrap(), None);
        assert_eq!(rewinds.unseal(&stage.scope, over).await.unwrap(), 1);
    });
}
