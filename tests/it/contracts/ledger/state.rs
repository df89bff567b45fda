use colloquy::{
    memory::{fact::Cause, state::StateChange},
    ports::ledger::{jobs::JobKind, state::NewStateChange},
};

use super::{Subject, fixture::Fixture};

pub(super) fn moved<S: Subject>(f: &Fixture<S>, to: &str) -> NewStateChange {
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

pub async fn standing_changes_come_in_order<S: Subject>(f: &Fixture<S>) {
    let open = f.open().await;
    let mut commit = f.a_commit(&open, 1, None);
    // Ids that do not rise: the order is that of writing.
    let (mut first, mut second) = (moved(f, "the \"dark\" forest"), moved(f, "어두운 숲"));
    std::mem::swap(&mut first.id, &mut second.id);
    second.dialogue = Some(open.dialogue.id);
    commit.state = vec![first.clone(), second.clone()];
    f.commit(&commit).await;

    let (_, fence) = f.a_fence(JobKind::ExtractState).await;
    let third = moved(f, "the keep");
    assert!(
        f.ledger()
            .state
            .commit(&f.scope, &fence, std::slice::from_ref(&third), &[])
            .await
            .unwrap()
    );

    let standing = f.ledger().state.since(&f.scope, &f.world, 0).await.unwrap().changes;
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
            .since(&f.scope, &elsewhere, 0)
            .await
            .unwrap()
            .changes
            .is_empty()
    );
}

pub async fn state_is_read_on_from_where_it_was_left<S: Subject>(f: &Fixture<S>) {
    let state = &f.ledger().state;
    assert!(state.since(&f.scope, &f.world, 0).await.unwrap().changes.is_empty());
    let early = moved(f, "what a job reads late");
    f.tick();
    let (_, fence) = f.a_fence(JobKind::ExtractState).await;
    let later = [moved(f, "a"), moved(f, "b")];
    assert!(state.commit(&f.scope, &fence, &later, &[]).await.unwrap());
    let read = state.since(&f.scope, &f.world, 0).await.unwrap().changes;
    assert_eq!(
        read.iter().map(|row| row.id).collect::<Vec<_>>(),
        [later[0].id, later[1].id]
    );
    assert!(0 < read[0].seq && read[0].seq < read[1].seq);
    let seen = read[1].seq;
    assert!(state.since(&f.scope, &f.world, seen).await.unwrap().changes.is_empty());

    let (_, fence) = f.a_fence(JobKind::ExtractState).await;
    assert!(
        state
            .commit(&f.scope, &fence, std::slice::from_ref(&early), &[])
            .await
            .unwrap()
    );
    let fresh = state.since(&f.scope, &f.world, seen).await.unwrap().changes;
    assert_eq!(fresh.iter().map(|row| row.id).collect::<Vec<_>>(), [early.id]);
    assert!(fresh[0].seq > seen);
    assert!(state.since(&f.other, &f.world, 0).await.unwrap().changes.is_empty());
    // It happened before the others, though it was written after them.
    let standing = state.since(&f.scope, &f.world, 0).await.unwrap().changes;
    assert_eq!(
        standing.iter().map(|row| row.id).collect::<Vec<_>>(),
        [early.id, later[0].id, later[1].id]
    );
}

pub async fn a_fenced_state_change_writes_nothing<S: Subject>(f: &Fixture<S>) {
    let (_, fence) = f.a_fence(JobKind::ExtractState).await;
    let state = &f.ledger().state;
    let mut cut_since = fence;
    cut_since.text_version += 1;
    assert!(!state.commit(&f.scope, &cut_since, &[moved(f, "a")], &[]).await.unwrap());
    assert!(state.commit(&f.scope, &fence, &[moved(f, "b")], &[]).await.unwrap());
    // The job is done: the same job once more writes nothing.
    assert!(!state.commit(&f.scope, &fence, &[moved(f, "c")], &[]).await.unwrap());
    assert_eq!(state.since(&f.scope, &f.world, 0).await.unwrap().changes.len(), 1);
}

pub async fn state_of_another_tenant_is_not_found<S: Subject>(f: &Fixture<S>) {
    let (_, fence) = f.a_fence(JobKind::ExtractState).await;
    let state = &f.ledger().state;
    assert!(!state.commit(&f.other, &fence, &[moved(f, "a")], &[]).await.unwrap());
    assert!(state.commit(&f.scope, &fence, &[moved(f, "a")], &[]).await.unwrap());
    assert!(state.since(&f.other, &f.world, 0).await.unwrap().changes.is_empty());
}
