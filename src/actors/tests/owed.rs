//! Somebody cuts in, or goes back, while a turn is out only to be said anew or gone on with.

use std::time::Duration;

use super::world::{World, dialogue_settings, outcome, settings, until};
use crate::{
    actors::{Heard, Interrupted, OnBusy, SessionError, TakeBack},
    dialogue::turn::TurnError,
    ids::DialogueId,
    memory::turn::TurnStatus,
};

/// Every line waits a second for what the last one taught, which is never known.
async fn waiting() -> World {
    let mut dialogue = dialogue_settings();
    dialogue.turn.wait_for_memory_ms = 1_000;
    let world = World::with(settings(), dialogue).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    world
}

/// Longer than a line that nobody took away would wait.
async fn wait() {
    tokio::time::sleep(Duration::from_millis(1_500)).await;
}

fn head_turn(told: &Interrupted) -> u32 {
    match told {
        Interrupted::Rewound(rewound) => rewound.head_turn,
        Interrupted::Idle { head_turn } => *head_turn,
        Interrupted::Cut { turn } => *turn,
    }
}

impl World {
    async fn owes(&self, id: DialogueId) -> bool {
        let owing = self.ports.ledger.rewinds.replacing(&self.scope, 9).await;
        owing.unwrap().contains(&id)
    }
}

#[actix::test]
async fn who_goes_back_before_a_reply_is_said_anew_takes_the_turn_away_for_good() {
    let world = waiting().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    world.turn(id, "two").await;
    let anew = world
        .sessions
        .regenerate(&world.scope, id, &world.who(), None, None, None)
        .await;
    assert!(world.owes(id).await);
    let told = world.back(id, 1).await.unwrap();
    assert_eq!(head_turn(&told), 1);
    assert!(!world.owes(id).await, "nothing comes back");
    assert!(matches!(*outcome(anew).await.unwrap_err(), TurnError::Unsaid));
    wait().await;
    assert_eq!(world.fake.spoken.lock().len(), 2);
    assert_eq!(world.said(id).await.len(), 1);
    world.end().await;
}

#[actix::test]
async fn who_goes_back_while_a_reply_is_taken_out_to_be_said_anew_is_served_after_that() {
    let world = waiting().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    world.turn(id, "two").await;
    *world.fake.hold_rewinds.lock() = true;
    let who = world.who();
    let anew = world.sessions.regenerate(&world.scope, id, &who, None, None, None);
    let back = async {
        until("it is taken out", || world.fake.rewinds.lock().len() == 1).await;
        let back = world.back(id, 1);
        world.fake.rewind_go.add_permits(2);
        back.await
    };
    let (anew, told) = tokio::join!(anew, back);
    assert_eq!(head_turn(&told.unwrap()), 1);
    assert!(matches!(*outcome(anew).await.unwrap_err(), TurnError::Unsaid));
    assert!(!world.owes(id).await);
    assert_eq!(world.said(id).await.len(), 1);
    world.end().await;
}

#[actix::test]
async fn a_reply_that_is_cut_before_it_is_gone_on_with_stands_as_it_was_cut() {
    let world = waiting().await;
    let id = world.cut_session().await;
    let before = world.said(id).await;
    let ear = world.listen(id).await;
    for during_the_move in [false, true] {
        *world.fake.hold_rewinds.lock() = during_the_move;
        let moves = world.fake.rewinds.lock().len();
        let up = world.take_up(id, None);
        let cut = async {
            until("it is taken out", || world.fake.rewinds.lock().len() > moves).await;
            world.fake.rewind_go.add_permits(4);
            if !during_the_move {
                until("it is told", || {
                    ear.story().last().is_some_and(|told| told == "rewound 1")
                })
                .await;
            }
            world.interrupt(id, Some(2), None).await
        };
        let (up, cut) = tokio::join!(up, cut);
        assert_eq!(head_turn(&up.unwrap()), 1);
        assert_eq!(head_turn(&cut.unwrap()), 2);
        assert_eq!(world.said(id).await, before, "during the move: {during_the_move}");
    }
    wait().await;
    assert_eq!(world.fake.spoken.lock().len(), 2, "nobody goes on");
    let shorter = world.take_up(id, None).await.unwrap();
    assert_eq!(head_turn(&shorter), 1);
    let heard = Some(Heard::Chars(3));
    let told = world.interrupt(id, Some(2), heard).await.unwrap();
    assert_eq!(head_turn(&told), 2);
    assert_eq!(world.said(id).await[1].reply_text, before[1].reply_text[..3]);
    world.end().await;
}

#[actix::test]
async fn a_line_between_npcs_that_is_cut_before_it_is_gone_on_with_stands_and_they_pause() {
    let world = waiting().await;
    let id = world.talk("hold", 9, true).await;
    let ear = world.watch(id, Some(1)).await;
    world.begun(1).await;
    world.fake.go.add_permits(1);
    world.begun(2).await;
    let cut = world
        .talks()
        .interrupt(&world.scope, id, world.back_to(None))
        .await
        .unwrap();
    assert_eq!(cut, Interrupted::Cut { turn: 2 });
    let before = world.said(id).await;
    for during_the_move in [false, true] {
        *world.fake.hold_rewinds.lock() = during_the_move;
        let moves = world.fake.rewinds.lock().len();
        let (talks, who) = (world.talks(), world.who());
        let up = talks.resume(&world.scope, id, &who);
        let cut = async {
            until("it is taken out", || world.fake.rewinds.lock().len() > moves).await;
            world.fake.rewind_go.add_permits(4);
            if !during_the_move {
                until("it is told", || {
                    ear.story().last().is_some_and(|told| told == "resumed 1")
                })
                .await;
            }
            world.talks().interrupt(&world.scope, id, world.back_to(Some(2))).await
        };
        let (up, cut) = tokio::join!(up, cut);
        up.unwrap();
        assert_eq!(head_turn(&cut.unwrap()), 2);
        assert_eq!(world.said(id).await, before, "during the move: {during_the_move}");
        assert!(!world.owes(id).await);
        let stored = world
            .ports
            .ledger
            .dialogues
            .get(&world.scope, id)
            .await
            .unwrap()
            .unwrap();
        assert!(stored.options.paused, "during the move: {during_the_move}");
    }
    wait().await;
    assert_eq!(world.fake.spoken.lock().len(), 2, "nobody goes on");
    world.end().await;
}

#[actix::test]
async fn a_cut_before_the_first_character_is_told_as_a_cut_and_audited() {
    let world = World::new().await;
    let id = world.session().await;
    let running = world.say(id, "hold back").await;
    world.begun(1).await;
    let wish = world.keyed(None, "cut");
    for again in [false, true] {
        let told = world.sessions.interrupt(&world.scope, id, wish.clone()).await;
        assert_eq!(told.unwrap(), Interrupted::Cut { turn: 1 }, "again: {again}");
    }
    assert!(matches!(
        *outcome(running).await.unwrap_err(),
        TurnError::CutBeforeReply
    ));
    assert_eq!(world.audited("session.interrupt").await.len(), 1);
    assert!(world.said(id).await.is_empty());

    let id = world.talk("hold back", 9, true).await;
    world.begun(2).await;
    let told = world.talks().interrupt(&world.scope, id, world.back_to(None)).await;
    assert_eq!(told.unwrap(), Interrupted::Cut { turn: 1 });
    assert_eq!(world.audited("conversation.interrupt").await.len(), 1);
    world.end().await;
}

#[actix::test]
async fn a_line_that_cuts_before_the_first_character_is_audited() {
    let world = World::new().await;
    let id = world.session().await;
    let running = world.say(id, "hold back").await;
    world.begun(1).await;
    let next = world.say_with(id, "next", None, OnBusy::Interrupt).await;
    assert!(matches!(
        *outcome(running).await.unwrap_err(),
        TurnError::CutBeforeReply
    ));
    assert_eq!(outcome(next).await.unwrap().number, 1);
    // Nobody waits for that, so it may be a moment later.
    for _ in 0..600 {
        if !world.audited("session.interrupt").await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.audited("session.interrupt").await.len(), 1);
    world.end().await;
}

#[actix::test]
async fn a_keyed_cut_finds_the_reply_as_it_was_before_another_is_said_in_its_place() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    let whole = world.turn(id, "two").await;
    *world.fake.hold_rewinds.lock() = true;
    let who = world.who();
    let anew = world.sessions.regenerate(&world.scope, id, &who, None, None, None);
    let cut = async {
        until("it is taken out", || world.fake.rewinds.lock().len() == 1).await;
        let wish = TakeBack {
            heard: Some(Heard::Chars(3)),
            ..world.keyed(Some(2), "cut")
        };
        let cut = world.sessions.interrupt(&world.scope, id, wish);
        world.fake.rewind_go.add_permits(9);
        cut.await
    };
    let (anew, cut) = tokio::join!(anew, cut);
    assert!(matches!(*outcome(anew).await.unwrap_err(), TurnError::Unsaid));
    assert_eq!(head_turn(&cut.unwrap()), 2);
    assert_eq!(world.said(id).await[1].reply_text, whole.reply_text[..3]);
    world.end().await;
}

#[actix::test]
async fn a_reply_may_be_acknowledged_before_it_is_committed() {
    let world = World::new().await;
    *world.fake.with_jobs.lock() = true;
    let id = world.acknowledging_session().await;
    let ear = world.listen(id).await;
    let said = world.say(id, "commit later").await;
    ear.hears("completed 1").await;
    world.sessions.played(&world.scope, id, 1).await.unwrap();
    assert!(world.fake.jobs.lock().is_empty());
    world.fake.go.add_permits(1);
    assert_eq!(outcome(said).await.unwrap().status, TurnStatus::Completed);
    until("it is learned", || world.fake.jobs.lock().len() == 1).await;

    world.say(id, "hold").await.unwrap();
    world.begun(2).await;
    let early = world.sessions.played(&world.scope, id, 2).await;
    assert!(
        matches!(early, Err(SessionError::NoSuchTurn { turn: 2, .. })),
        "{early:?}"
    );
    world.end().await;
}
