use colloquy::{
    ids::WorldId,
    memory::{
        calendar::GameTime,
        fact::Cause,
        game_clock::ClockSegments,
        state::{StateChange, fold_changes},
    },
    ports::ledger::{jobs::JobKind, state::NewStateChange},
};
use serde_json::json;

use super::{LedgerSubject, fixture::Fixture};

pub(super) fn location_change<S: LedgerSubject>(f: &Fixture<S>, to: &str) -> NewStateChange {
    NewStateChange {
        id: f.id(),
        world: f.world.clone(),
        dialogue: None,
        change: StateChange::Location {
            who: "player".to_owned(),
            to: to.to_owned(),
        },
        cause: Cause::Turn(f.id()),
        changed_at: f.now(),
    }
}

pub async fn standing_changes_are_in_order<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let mut commit = f.sample_commit(&open, 1, None);
    // The ids do not rise. The order is the order of writing.
    let (mut first, mut second) = (
        location_change(f, "the \"dark\" forest"),
        location_change(f, "어두운 숲"),
    );
    std::mem::swap(&mut first.id, &mut second.id);
    second.dialogue = Some(open.dialogue.id);
    commit.state = vec![first.clone(), second.clone()];
    f.commit_turn(&commit).await;

    let (_, fence) = f.sample_job_fence(JobKind::ExtractState).await;
    let third = location_change(f, "the keep");
    assert!(
        f.ledger()
            .state
            .commit_changes(&f.scope, &fence, std::slice::from_ref(&third), &[])
            .await
            .unwrap()
    );

    let standing = f
        .ledger()
        .state
        .load_changes_since(&f.scope, &f.world, 0)
        .await
        .unwrap()
        .changes;
    assert_eq!(standing.len(), 3);
    for (stored, written) in standing.iter().zip([first, second, third]) {
        assert_eq!(
            (
                stored.id,
                stored.dialogue,
                &stored.change,
                stored.cause,
                stored.changed_at
            ),
            (
                written.id,
                written.dialogue,
                &written.change,
                written.cause,
                written.changed_at
            )
        );
    }
    let elsewhere = "elsewhere".parse().unwrap();
    assert!(
        f.ledger()
            .state
            .load_changes_since(&f.scope, &elsewhere, 0)
            .await
            .unwrap()
            .changes
            .is_empty()
    );
}

pub async fn state_is_read_on_from_the_last_position<S: LedgerSubject>(f: &Fixture<S>) {
    let state = &f.ledger().state;
    assert!(
        state
            .load_changes_since(&f.scope, &f.world, 0)
            .await
            .unwrap()
            .changes
            .is_empty()
    );
    let early = location_change(f, "what a job reads late");
    f.advance_clock();
    let (_, fence) = f.sample_job_fence(JobKind::ExtractState).await;
    let later = [location_change(f, "a"), location_change(f, "b")];
    assert!(state.commit_changes(&f.scope, &fence, &later, &[]).await.unwrap());
    let read = state.load_changes_since(&f.scope, &f.world, 0).await.unwrap().changes;
    assert_eq!(
        read.iter().map(|row| row.id).collect::<Vec<_>>(),
        [later[0].id, later[1].id]
    );
    assert!(0 < read[0].seq && read[0].seq < read[1].seq);
    let seen = read[1].seq;
    assert!(
        state
            .load_changes_since(&f.scope, &f.world, seen)
            .await
            .unwrap()
            .changes
            .is_empty()
    );

    let (_, fence) = f.sample_job_fence(JobKind::ExtractState).await;
    assert!(
        state
            .commit_changes(&f.scope, &fence, std::slice::from_ref(&early), &[])
            .await
            .unwrap()
    );
    let fresh = state
        .load_changes_since(&f.scope, &f.world, seen)
        .await
        .unwrap()
        .changes;
    assert_eq!(fresh.iter().map(|row| row.id).collect::<Vec<_>>(), [early.id]);
    assert!(fresh[0].seq > seen);
    assert!(
        state
            .load_changes_since(&f.other, &f.world, 0)
            .await
            .unwrap()
            .changes
            .is_empty()
    );
    // Changes that were written later do not count.
    let ids_until = async |scope, seq| {
        let changes = state.load_changes_until(scope, &f.world, seq, None).await.unwrap();
        changes.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(ids_until(&f.scope, seen).await, [later[0].id, later[1].id]);
    assert_eq!(
        ids_until(&f.scope, fresh[0].seq).await,
        [early.id, later[0].id, later[1].id]
    );
    assert_eq!(ids_until(&f.other, fresh[0].seq).await, []);
    // This change happened before the others but was written after them.
    let standing = state.load_changes_since(&f.scope, &f.world, 0).await.unwrap().changes;
    assert_eq!(
        standing.iter().map(|row| row.id).collect::<Vec<_>>(),
        [early.id, later[0].id, later[1].id]
    );
}

pub async fn fenced_state_change_writes_nothing<S: LedgerSubject>(f: &Fixture<S>) {
    let (_, fence) = f.sample_job_fence(JobKind::ExtractState).await;
    let state = &f.ledger().state;
    let mut cut_since = fence;
    cut_since.text_version += 1;
    assert!(
        !state
            .commit_changes(&f.scope, &cut_since, &[location_change(f, "a")], &[])
            .await
            .unwrap()
    );
    assert!(
        state
            .commit_changes(&f.scope, &fence, &[location_change(f, "b")], &[])
            .await
            .unwrap()
    );
    // The job is done. Running the same job again writes nothing.
    assert!(
        !state
            .commit_changes(&f.scope, &fence, &[location_change(f, "c")], &[])
            .await
            .unwrap()
    );
    assert_eq!(
        state
            .load_changes_since(&f.scope, &f.world, 0)
            .await
            .unwrap()
            .changes
            .len(),
        1
    );
}

pub async fn state_of_another_tenant_is_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    let (_, fence) = f.sample_job_fence(JobKind::ExtractState).await;
    let state = &f.ledger().state;
    assert!(
        !state
            .commit_changes(&f.other, &fence, &[location_change(f, "a")], &[])
            .await
            .unwrap()
    );
    assert!(
        state
            .commit_changes(&f.scope, &fence, &[location_change(f, "a")], &[])
            .await
            .unwrap()
    );
    assert!(
        state
            .load_changes_since(&f.other, &f.world, 0)
            .await
            .unwrap()
            .changes
            .is_empty()
    );
}

/// Returns the clock of a world, and the number of its changes.
pub(super) async fn load_clock<S: LedgerSubject>(f: &Fixture<S>, world: &WorldId) -> (ClockSegments, usize) {
    let stored = f.ledger().state.load_changes_since(&f.scope, world, 0).await.unwrap();
    let changes = stored.changes.iter().map(|stored| (&stored.change, stored.changed_at));
    let all = changes
        .clone()
        .filter(|(change, _)| matches!(change, StateChange::Time { .. } | StateChange::TimePassed { .. }));
    (fold_changes(changes).clock, all.count())
}

/// Writes the fixture's world with a clock that starts 100 days after the beginning.
pub(super) async fn put_clock<S: LedgerSubject>(f: &Fixture<S>, ratio: f64) {
    let mut world = f.sample_world(f.world.as_str());
    world.settings.clock = Some(serde_json::from_value(json!({"start": "0001-04-11", "ratio": ratio})).unwrap());
    let edit = f.audit_edit("world.put");
    let written = f.ledger().authored.put_world(&f.scope, &world, None, &edit).await;
    written.unwrap();
}

/// Reports that days of the game have passed.
pub(super) async fn pass_days<S: LedgerSubject>(f: &Fixture<S>, days: i64) {
    let seconds = days * 86_400;
    let change = NewStateChange {
        change: StateChange::TimePassed {
            seconds,
            start: 0.into(),
            ratio: 0.0,
        },
        cause: Cause::Event(f.id()),
        ..location_change(f, "")
    };
    let (state, edit) = (&f.ledger().state, f.audit_edit("world.events"));
    state
        .record_changes(&f.scope, &f.world, &[change], &edit)
        .await
        .unwrap();
}

pub async fn clock_goes_on_after_a_change_of_its_ratio<S: LedgerSubject>(f: &Fixture<S>) {
    let start = 100 * 86_400;
    let now = async || {
        let (clock, changes) = load_clock(f, &f.world).await;
        (clock.time_at(f.now()).map(|time| time.seconds() - start), changes)
    };
    f.put_world(f.world.as_str()).await;
    assert_eq!(now().await, (None, 0), "no clock");
    put_clock(f, 0.0).await;
    f.advance_clock();
    assert_eq!(now().await, (Some(0), 1));
    put_clock(f, 0.0).await;
    assert_eq!(now().await, (Some(0), 1), "an equal ratio changes nothing");
    put_clock(f, 60.0).await;
    assert_eq!(now().await, (Some(0), 2));
    f.advance_clock();
    assert_eq!(now().await, (Some(60), 2));
    pass_days(f, 1).await;
    put_clock(f, 10.0).await;
    assert_eq!(now().await, (Some(86_460), 4));
    f.advance_clock();
    assert_eq!(now().await, (Some(86_470), 4));
    // A world that loses its clock for a while goes on.
    f.put_world(f.world.as_str()).await;
    f.advance_clock();
    put_clock(f, 10.0).await;
    assert_eq!(now().await, (Some(86_480), 4));
}

pub async fn clock_changes_follow_those_of_a_node_whose_time_is_ahead<S: LedgerSubject>(f: &Fixture<S>) {
    put_clock(f, 60.0).await;
    let change = |change, at| NewStateChange {
        change,
        changed_at: at,
        ..location_change(f, "anywhere")
    };
    let record = async |new: NewStateChange| {
        let (state, edit) = (&f.ledger().state, f.audit_edit("world.events"));
        state.record_changes(&f.scope, &f.world, &[new], &edit).await.unwrap();
    };
    let day = |count: i64| GameTime::from(count * 86_400);
    let ahead = f.now() + chrono::Duration::seconds(2);
    record(change(
        StateChange::Time {
            to: day(200),
            ratio: 0.0,
        },
        ahead,
    ))
    .await;
    let passed = StateChange::TimePassed {
        seconds: 3_600,
        start: day(1),
        ratio: 0.0,
    };
    record(change(passed, f.now())).await;
    let (clock, _) = load_clock(f, &f.world).await;
    let last = clock.last().unwrap();
    assert_eq!(
        (last.from, last.game.seconds()),
        (ahead, day(200).seconds() + 3_600),
        "no report is lost"
    );
    assert!(
        (last.ratio - 60.0).abs() < f64::EPSILON,
        "a clock that is set keeps its ratio"
    );
}
