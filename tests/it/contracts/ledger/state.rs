use colloquy::{
    memory::{fact::Cause, state::StateChange},
    ports::ledger::{jobs::JobKind, state::NewStateChange},
};

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
        at: f.now(),
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
            (stored.id, &stored.change, stored.cause, stored.at),
            (written.id, &written.change, written.cause, written.at)
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
