//! The order of events, what is told again, and to whom.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    actors::tests::world::{Ear, settings},
    dialogue::turn::{TurnError, event_error},
    ids::{DialogueKind, GeneratedId},
    ports::clock::SystemClock,
};

fn log() -> (Arc<EventLog>, Arc<Ear>) {
    let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(1));
    let log = Arc::new(EventLog::new(id, &settings(), Arc::new(SystemClock)));
    log.loaded(start(1, 1), known(1, 0));
    let ear = Ear::new();
    let listener: Arc<dyn Listener> = Arc::<Ear>::clone(&ear);
    log.attach(listener, None, Vec::new()).unwrap();
    (log, ear)
}

/// Turn 1 up to the reservation of its commit, with an event of an earlier turn coming in between.
fn spoken(log: &Arc<EventLog>) -> u64 {
    log.turn_started(1, "mira".parse().unwrap(), None);
    let feed = TurnEvents {
        log: Arc::clone(log),
        re: None,
    };
    let mut done = failed(1, "mira".parse().unwrap(), "", "");
    done.status = TurnStatus::Completed;
    feed.done(done);
    let reserved = feed.reserve_committed();
    let facts = Vec::new();
    log.publish(EventBody::MemoryUpdated { turn: 0, facts }, None);
    reserved
}

#[test]
fn what_comes_during_a_commit_goes_out_after_it() {
    let (log, ear) = log();
    let reserved = spoken(&log);
    assert_eq!(ear.story(), ["started 1", "completed 1"]);
    assert_eq!(
        log.head_seq(),
        reserved - 1,
        "a reserved number was not seen by anybody"
    );
    log.committed(1, TurnId::from_ulid(ulid::Ulid(1)), "mira".parse().unwrap(), None);
    assert_eq!(ear.story(), ["started 1", "completed 1", "committed 1", "memory 0"]);
    assert_eq!(ear.seqs(), [2, 3, reserved, reserved + 1]);
}

#[test]
fn what_comes_during_a_commit_that_fails_goes_out_too() {
    let (log, ear) = log();
    spoken(&log);
    let error = EventError {
        code: "store_unavailable",
        message: String::new(),
        retry_after_ms: None,
    };
    log.not_committed(&error);
    assert_eq!(
        ear.story(),
        ["started 1", "completed 1", "error store_unavailable", "memory 0"]
    );
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));
    log.not_committed(&error);
    assert_eq!(ear.story().len(), 4, "it is told once");
}

#[test]
fn a_turn_cut_before_its_first_character_has_an_end() {
    let (log, ear) = log();
    log.turn_started(1, "mira".parse().unwrap(), None);
    let feed = TurnEvents {
        log: Arc::clone(&log),
        re: None,
    };
    let mut done = failed(1, "mira".parse().unwrap(), "", "");
    done.status = TurnStatus::Interrupted;
    feed.done(done);
    let error = EventError {
        code: "turn_cut",
        message: String::new(),
        retry_after_ms: None,
    };
    log.not_committed(&error);
    assert_eq!(ear.story(), ["started 1", "interrupted 1", "error turn_cut"]);
}

#[test]
fn a_listener_that_may_not_see_optional_events_sees_a_jump() {
    struct Plain(Arc<Ear>);
    impl Listener for Plain {
        fn deliver(&self, event: &Arc<Published>) -> Result<(), crate::actors::ListenerGone> {
            self.0.deliver(event)
        }
        fn sees_optional(&self) -> bool {
            false
        }
    }
    let (log, all) = log();
    let heard = Ear::new();
    log.attach(Arc::new(Plain(Arc::clone(&heard))), None, Vec::new())
        .unwrap();
    spoken(&log);
    log.committed(1, TurnId::from_ulid(ulid::Ulid(1)), "mira".parse().unwrap(), None);
    log.turn_started(2, "mira".parse().unwrap(), None);
    assert_eq!(all.seqs(), [2, 3, 4, 5, 6]);
    assert_eq!(heard.seqs(), [2, 3, 4, 6]);
    // A resume skips them as well.
    let late = Ear::new();
    let (_, replayed, _) = log
        .attach(Arc::new(Plain(Arc::clone(&late))), Some(3), Vec::new())
        .unwrap();
    assert_eq!((replayed, late.seqs()), (2, vec![4, 6]));
}

/// What a listener heard of replies, as `turn/offset text`.
fn deltas(ear: &Ear) -> Vec<String> {
    let heard = ear.heard.lock();
    let texts = heard.iter().filter_map(|event| match &event.body {
        EventBody::ReplyDelta { turn, offset, text, .. } => Some(format!("{turn}/{offset} {text}")),
        _ => None,
    });
    texts.collect()
}

#[test]
fn who_comes_in_mid_reply_hears_it_from_its_beginning() {
    let (log, first) = log();
    let npc: NpcId = "mira".parse().unwrap();
    log.turn_started(1, npc.clone(), None);
    let feed = TurnEvents {
        log: Arc::clone(&log),
        re: None,
    };
    let early = Ear::new();
    log.attach(Arc::<Ear>::clone(&early), Some(1), Vec::new()).unwrap();
    assert!(deltas(&early).is_empty(), "nothing was said yet");
    feed.delta(1, 0, &npc, "Well 😀, ");
    feed.delta(1, 8, &npc, "hello ");
    let late = Ear::new();
    let (_, replayed, _) = log.attach(Arc::<Ear>::clone(&late), Some(1), Vec::new()).unwrap();
    assert_eq!(replayed, 1, "only durable events are counted");
    feed.delta(1, 14, &npc, "there.");
    assert_eq!(deltas(&late), ["1/0 Well 😀, hello ", "1/14 there."]);
    assert_eq!(deltas(&early), deltas(&first));
    assert_eq!(log.scalars(Heard::Utf16(7)), 6);
    let mut done = failed(1, npc, "", "");
    done.status = TurnStatus::Completed;
    feed.done(done);
    let after = Ear::new();
    log.attach(Arc::<Ear>::clone(&after), Some(1), Vec::new()).unwrap();
    assert!(deltas(&after).is_empty(), "the whole text comes with reply.done");
    assert_eq!(after.story(), ["started 1", "completed 1"]);
}

#[test]
fn a_newer_owner_takes_the_place_of_the_one_before() {
    #[derive(Default)]
    struct Owner {
        replaced: std::sync::atomic::AtomicU32,
        heard: std::sync::atomic::AtomicU32,
    }
    impl Listener for Owner {
        fn deliver(&self, _: &Arc<Published>) -> Result<(), crate::actors::ListenerGone> {
            self.heard.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }
        fn sees_optional(&self) -> bool {
            false
        }
        fn owns(&self) -> bool {
            true
        }
        fn replaced(&self) {
            self.replaced.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let of = |count: &std::sync::atomic::AtomicU32| count.load(std::sync::atomic::Ordering::Relaxed);
    let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(1));
    let few = ActorSettings {
        max_listeners: 2,
        ..settings()
    };
    let log = Arc::new(EventLog::new(id, &few, Arc::new(SystemClock)));
    log.loaded(start(1, 1), known(1, 0));
    let watcher = Ear::new();
    log.attach(Arc::<Ear>::clone(&watcher), None, Vec::new()).unwrap();
    let (old, new) = (Arc::new(Owner::default()), Arc::new(Owner::default()));
    log.attach(Arc::<Owner>::clone(&old), None, Vec::new()).unwrap();
    // Every seat is taken, and the old one's is free for the new one.
    log.attach(Arc::<Owner>::clone(&new), None, Vec::new()).unwrap();
    assert!(
        log.attach(Ear::new(), None, Vec::new()).is_none(),
        "no watcher takes its place"
    );
    log.turn_started(1, "mira".parse().unwrap(), None);
    assert_eq!((of(&old.replaced), of(&old.heard)), (1, 0));
    assert_eq!((of(&new.replaced), of(&new.heard)), (0, 1));
    assert_eq!(watcher.story(), ["started 1"]);
}

fn start(ledger_next: u64, epoch: u64) -> Start {
    Start {
        ledger_next,
        head_turn: 0,
        epoch,
        gap: 100 * epoch,
        among_others: true,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as it is looked up")]
fn known(seq: u64, epoch: u64) -> Option<LastSeq> {
    Some(LastSeq { seq, epoch })
}

#[test]
fn numbers_that_another_node_may_have_given_out_do_not_come_again() {
    let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(1));
    let fresh = || EventLog::new(id, &settings(), Arc::new(SystemClock));
    // Ours all the time: nothing is left out.
    let log = fresh();
    log.loaded(start(9, 4), known(12, 3));
    assert_eq!((log.head_seq(), log.missed(12)), (12, Missed::Kept));
    // In between it was another node's, which committed nothing but may have told of something.
    let log = fresh();
    log.loaded(start(9, 5), known(12, 3));
    assert_eq!(log.last(), LastSeq { seq: 508, epoch: 5 });
    assert_eq!(log.missed(300), Missed::Lost);
    // The same where the log outlived its actor.
    let log = fresh();
    log.loaded(start(9, 4), known(12, 3));
    log.holds(5);
    log.loaded(start(9, 6), None);
    assert_eq!(log.head_seq(), 12, "a move of its own");
    log.loaded(start(9, 8), None);
    assert_eq!(log.head_seq(), 808);
}

#[test]
fn numbers_are_handed_on_only_where_nothing_is_under_way() {
    let log = EventLog::new(
        DialogueId::new(DialogueKind::Session, ulid::Ulid(1)),
        &settings(),
        Arc::new(SystemClock),
    );
    log.loaded(start(9, 4), known(8, 3));
    let (mira, turn): (NpcId, _) = ("mira".parse().unwrap(), TurnId::from_u128(1));
    log.turn_started(1, mira.clone(), None);
    assert_eq!(log.settled_next(), 0, "a turn may come to nothing");
    log.committed(1, turn, mira, None);
    let committed = log.settled_next();
    assert_eq!(committed, log.head_seq() + 1);
    // A line that was refused since is told, and counts.
    log.publish(
        EventBody::Error {
            turn: None,
            error: event_error(&TurnError::Fenced),
        },
        None,
    );
    assert_eq!(log.settled_next(), committed + 1);
    // Taken over from a node that may have died in a turn.
    let log = EventLog::new(
        DialogueId::new(DialogueKind::Session, ulid::Ulid(1)),
        &settings(),
        Arc::new(SystemClock),
    );
    log.loaded(start(9, 4), None);
    assert_eq!(
        log.settled_next(),
        0,
        "clients may still have to hear of the turn that was lost"
    );
}
