//! The order of events, replays, and the right listeners.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    messages::LastSeq,
    tests::world::{RecordingListener, test_actor_settings},
};
use colloquy_core::{
    ids::{DialogueKind, GeneratedId},
    scope::Role,
};
use colloquy_dialogue::{
    disclosure::EventViewer,
    turn::{TurnError, event_error},
};
use colloquy_ports::clock::SystemClock;

fn new_log() -> (Arc<EventLog>, Arc<RecordingListener>) {
    let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(1));
    let log = Arc::new(EventLog::new(id, &test_actor_settings(), Arc::new(SystemClock)));
    log.on_loaded(ledger_position(1, 1), known_seq(1, 0));
    let ear = RecordingListener::new();
    let listener: Arc<dyn Listener> = Arc::<RecordingListener>::clone(&ear);
    log.attach_listener(listener, None, Vec::new()).unwrap();
    (log, ear)
}

/// Publishes turn 1 up to the reservation of its commit, with an event of an earlier turn in between.
fn publish_spoken_turn(log: &Arc<EventLog>) -> u64 {
    log.publish_turn_started(1, "mira".parse().unwrap(), None);
    let feed = TurnEvents {
        log: Arc::clone(log),
        re: None,
    };
    let mut done = failed_reply(1, "mira".parse().unwrap(), "", "");
    done.status = TurnStatus::Completed;
    feed.send_done(done);
    let reserved = feed.reserve_committed();
    let facts = Vec::new();
    log.publish_event(EventBody::MemoryUpdated { turn: 0, facts }, None);
    reserved
}

#[test]
fn events_during_commit_are_published_after_it() {
    let (log, ear) = new_log();
    let reserved = publish_spoken_turn(&log);
    assert_eq!(ear.event_labels(), ["started 1", "completed 1"]);
    assert_eq!(
        log.head_seq(),
        reserved - 1,
        "a reserved number was not seen by anybody"
    );
    log.publish_committed(1, TurnId::from_ulid(ulid::Ulid(1)), "mira".parse().unwrap(), None);
    assert_eq!(
        ear.event_labels(),
        ["started 1", "completed 1", "committed 1", "memory 0"]
    );
    assert_eq!(ear.heard_seqs(), [2, 3, reserved, reserved + 1]);
}

#[test]
fn events_during_failed_commit_are_published_too() {
    let (log, ear) = new_log();
    publish_spoken_turn(&log);
    let error = EventError {
        code: "store_unavailable",
        message: String::new(),
        retry_after_ms: None,
    };
    log.publish_not_committed(&error);
    assert_eq!(
        ear.event_labels(),
        ["started 1", "completed 1", "error store_unavailable", "memory 0"]
    );
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    log.publish_not_committed(&error);
    assert_eq!(ear.event_labels().len(), 4, "it is told once");
}

#[test]
fn turn_cut_before_first_character_publishes_its_end() {
    let (log, ear) = new_log();
    log.publish_turn_started(1, "mira".parse().unwrap(), None);
    let feed = TurnEvents {
        log: Arc::clone(&log),
        re: None,
    };
    let mut done = failed_reply(1, "mira".parse().unwrap(), "", "");
    done.status = TurnStatus::Interrupted;
    feed.send_done(done);
    let error = EventError {
        code: "turn_cut",
        message: String::new(),
        retry_after_ms: None,
    };
    log.publish_not_committed(&error);
    assert_eq!(ear.event_labels(), ["started 1", "interrupted 1", "error turn_cut"]);
}

#[test]
fn listener_without_optional_events_sees_sequence_gap() {
    struct WithoutOptional(Arc<RecordingListener>);
    impl Listener for WithoutOptional {
        fn viewer(&self) -> EventViewer {
            EventViewer::of_role(Role::Backend)
        }
        fn deliver_event(&self, event: &VisibleEvent) -> Result<(), crate::ListenerGone> {
            self.0.deliver_event(event)
        }
    }
    let (log, all) = new_log();
    let heard = RecordingListener::new();
    log.attach_listener(Arc::new(WithoutOptional(Arc::clone(&heard))), None, Vec::new())
        .unwrap();
    publish_spoken_turn(&log);
    log.publish_committed(1, TurnId::from_ulid(ulid::Ulid(1)), "mira".parse().unwrap(), None);
    log.publish_turn_started(2, "mira".parse().unwrap(), None);
    assert_eq!(all.heard_seqs(), [2, 3, 4, 5, 6]);
    assert_eq!(heard.heard_seqs(), [2, 3, 4, 6]);
    // A resume skips optional events as well.
    let late = RecordingListener::new();
    let (_, replayed, _) = log
        .attach_listener(Arc::new(WithoutOptional(Arc::clone(&late))), Some(3), Vec::new())
        .unwrap();
    assert_eq!((replayed, late.heard_seqs()), (2, vec![4, 6]));
}

/// Returns the deltas that a listener heard, as `turn/offset text`.
fn delta_texts(ear: &RecordingListener) -> Vec<String> {
    let heard = ear.heard.lock();
    let texts = heard.iter().filter_map(|event| match &event.body {
        EventBody::ReplyDelta { turn, offset, text, .. } => Some(format!("{turn}/{offset} {text}")),
        _ => None,
    });
    texts.collect()
}

#[test]
fn listener_joining_mid_reply_hears_it_from_the_start() {
    let (log, first) = new_log();
    let npc: NpcId = "mira".parse().unwrap();
    log.publish_turn_started(1, npc.clone(), None);
    let feed = TurnEvents {
        log: Arc::clone(&log),
        re: None,
    };
    let early = RecordingListener::new();
    log.attach_listener(Arc::<RecordingListener>::clone(&early), Some(1), Vec::new())
        .unwrap();
    assert!(delta_texts(&early).is_empty(), "nothing was said yet");
    feed.send_delta(1, 0, &npc, "Well 😀, ");
    feed.send_delta(1, 8, &npc, "hello ");
    let late = RecordingListener::new();
    let (_, replayed, _) = log
        .attach_listener(Arc::<RecordingListener>::clone(&late), Some(1), Vec::new())
        .unwrap();
    assert_eq!(replayed, 1, "only durable events are counted");
    feed.send_delta(1, 14, &npc, "there.");
    assert_eq!(delta_texts(&late), ["1/0 Well 😀, hello ", "1/14 there."]);
    assert_eq!(delta_texts(&early), delta_texts(&first));
    assert_eq!(log.heard_scalar_count(HeardLength::Utf16(7)), 6);
    let mut done = failed_reply(1, npc, "", "");
    done.status = TurnStatus::Completed;
    feed.send_done(done);
    let after = RecordingListener::new();
    log.attach_listener(Arc::<RecordingListener>::clone(&after), Some(1), Vec::new())
        .unwrap();
    assert!(delta_texts(&after).is_empty(), "the whole text comes with reply.done");
    assert_eq!(after.event_labels(), ["started 1", "completed 1"]);
}

#[test]
fn newer_owner_replaces_previous_owner() {
    #[derive(Default)]
    struct OwnerListener {
        replaced: std::sync::atomic::AtomicU32,
        heard: std::sync::atomic::AtomicU32,
    }
    impl Listener for OwnerListener {
        fn viewer(&self) -> EventViewer {
            EventViewer::of_role(Role::Backend)
        }
        fn deliver_event(&self, _: &VisibleEvent) -> Result<(), crate::ListenerGone> {
            self.heard.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }
        fn is_owner(&self) -> bool {
            true
        }
        fn on_replaced(&self) {
            self.replaced.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let of = |count: &std::sync::atomic::AtomicU32| count.load(std::sync::atomic::Ordering::Relaxed);
    let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(1));
    let few = ActorSettings {
        max_listeners: 2,
        ..test_actor_settings()
    };
    let log = Arc::new(EventLog::new(id, &few, Arc::new(SystemClock)));
    log.on_loaded(ledger_position(1, 1), known_seq(1, 0));
    let watcher = RecordingListener::new();
    log.attach_listener(Arc::<RecordingListener>::clone(&watcher), None, Vec::new())
        .unwrap();
    let (old, new) = (Arc::new(OwnerListener::default()), Arc::new(OwnerListener::default()));
    log.attach_listener(Arc::<OwnerListener>::clone(&old), None, Vec::new())
        .unwrap();
    // All places are taken; the new owner gets the place of the old owner.
    log.attach_listener(Arc::<OwnerListener>::clone(&new), None, Vec::new())
        .unwrap();
    assert!(
        log.attach_listener(RecordingListener::new(), None, Vec::new())
            .is_none(),
        "no watcher takes its place"
    );
    log.publish_turn_started(1, "mira".parse().unwrap(), None);
    assert_eq!((of(&old.replaced), of(&old.heard)), (1, 0));
    assert_eq!((of(&new.replaced), of(&new.heard)), (0, 1));
    assert_eq!(watcher.event_labels(), ["started 1"]);
}

fn ledger_position(ledger_next: u64, epoch: u64) -> LedgerPosition {
    LedgerPosition {
        ledger_next,
        head_turn: 0,
        epoch,
        gap: 100 * epoch,
        among_others: true,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as it is looked up")]
fn known_seq(seq: u64, epoch: u64) -> Option<LastSeq> {
    Some(LastSeq { seq, epoch })
}

#[test]
fn sequence_numbers_of_another_node_are_not_reused() {
    let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(1));
    let fresh = || EventLog::new(id, &test_actor_settings(), Arc::new(SystemClock));
    // The same owner throughout: no number is skipped.
    let log = fresh();
    log.on_loaded(ledger_position(9, 4), known_seq(12, 3));
    assert_eq!((log.head_seq(), log.locate_missed(12)), (12, MissedEvents::InMemory));
    // Another node owned the dialogue in between. The node committed nothing, but may have published events.
    let log = fresh();
    log.on_loaded(ledger_position(9, 5), known_seq(12, 3));
    assert_eq!(log.last_seq(), LastSeq { seq: 508, epoch: 5 });
    assert_eq!(log.locate_missed(300), MissedEvents::Lost);
    // The same where the log outlived its actor.
    let log = fresh();
    log.on_loaded(ledger_position(9, 4), known_seq(12, 3));
    log.set_epoch(5);
    log.on_loaded(ledger_position(9, 6), None);
    assert_eq!(log.head_seq(), 12, "a move of its own");
    log.on_loaded(ledger_position(9, 8), None);
    assert_eq!(log.head_seq(), 808);
}

#[test]
fn sequence_numbers_are_handed_over_only_when_idle() {
    let log = EventLog::new(
        DialogueId::new(DialogueKind::Session, ulid::Ulid(1)),
        &test_actor_settings(),
        Arc::new(SystemClock),
    );
    log.on_loaded(ledger_position(9, 4), known_seq(8, 3));
    let (mira, turn): (NpcId, _) = ("mira".parse().unwrap(), TurnId::from_u128(1));
    log.publish_turn_started(1, mira.clone(), None);
    assert_eq!(log.next_seq_if_quiet(), 0, "a turn may come to nothing");
    log.publish_committed(1, turn, mira, None);
    let committed = log.next_seq_if_quiet();
    assert_eq!(committed, log.head_seq() + 1);
    // The error event of a later refused line is published, and counts.
    log.publish_event(
        EventBody::Error {
            turn: None,
            error: event_error(&TurnError::Fenced),
        },
        None,
    );
    assert_eq!(log.next_seq_if_quiet(), committed + 1);
    // Taken over from a node that may have died in a turn.
    let log = EventLog::new(
        DialogueId::new(DialogueKind::Session, ulid::Ulid(1)),
        &test_actor_settings(),
        Arc::new(SystemClock),
    );
    log.on_loaded(ledger_position(9, 4), None);
    assert_eq!(
        log.next_seq_if_quiet(),
        0,
        "clients may still have to hear of the turn that was lost"
    );
}
