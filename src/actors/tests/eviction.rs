//! Where there is no room in memory, what is idle makes room.

use std::time::Duration;

use super::world::{World, author, dialogue_settings, outcome, settings};
use crate::{
    actors::{ActorSettings, SessionError},
    ids::DialogueId,
};

/// Of which one tenant may have four.
const PLACES: usize = 5;

async fn small_world() -> World {
    let small = ActorSettings {
        max_sessions: PLACES,
        ..settings()
    };
    World::with(small, dialogue_settings()).await
}

impl World {
    async fn talked(&self, count: usize) -> Vec<DialogueId> {
        let mut sessions = Vec::new();
        for _ in 0..count {
            let id = self.session().await;
            self.turn(id, "hello").await;
            sessions.push(id);
        }
        sessions
    }

    fn in_memory(&self, ids: &[DialogueId]) -> usize {
        let sessions = &self.sessions.node_for_test().sessions;
        let lives = |id: &&DialogueId| sessions.live(&(self.scope.clone(), **id)).is_some();
        ids.iter().filter(lives).count()
    }
}

#[actix::test]
async fn the_session_that_was_idle_longest_goes_and_nothing_of_it_is_lost() {
    let world = small_world().await;
    let mut sessions = world.talked(4).await;
    let first = sessions[0];
    world.turn(first, "I am here still").await;
    sessions.extend(world.talked(1).await);
    assert_eq!(world.in_memory(&sessions), 4);
    assert_eq!(
        world.in_memory(&sessions[1..2]),
        0,
        "the second was used before all others"
    );
    let turn = world.turn(sessions[1], "and I am back").await;
    assert_eq!(turn.number, 2);
    assert_eq!(world.in_memory(&sessions[2..3]), 0);
    world.end().await;
}

#[actix::test]
async fn whoever_holds_most_makes_room_for_others() {
    let mut world = small_world().await;
    let studio = world.scope.clone();
    let of_studio = world.talked(4).await;
    let other = author(&world.ports, "other").await;
    let mut of_other = Vec::new();
    for (theirs, of_both) in [(1, (1, 4)), (2, (2, 3)), (3, (3, 2)), (4, (3, 2))] {
        world.scope = other.clone();
        of_other.extend(world.talked(1).await);
        assert_eq!(of_other.len(), theirs);
        let of_other = world.in_memory(&of_other);
        world.scope = studio.clone();
        assert_eq!((of_other, world.in_memory(&of_studio)), of_both);
    }
    world.end().await;
}

#[actix::test]
async fn what_is_in_use_stays_and_only_then_nobody_else_is_let_in() {
    let world = small_world().await;
    let listened_to = world.session().await;
    let ear = world.listen(listened_to).await;
    let speaking = world.session().await;
    let running = world.say(speaking, "hold").await;
    world.talk("hold", 3, true).await;
    let stepped = world.talk("hold", 3, false).await;
    let stepping = world.talks().step(&world.scope, stepped).await;
    world.begun(3).await;
    let late = world.session().await;
    let refused = world.say(late, "hello").await.unwrap_err();
    assert!(matches!(refused, SessionError::OverShare(_)), "{refused:?}");

    // One of them ends while the next one waits.
    let (let_in, ()) = tokio::join!(world.say(late, "hello"), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.fake.go.add_permits(1_000);
        outcome(running).await.unwrap();
    });
    outcome(let_in).await.unwrap();
    assert_eq!(world.in_memory(&[listened_to, late]), 2);
    assert_eq!(world.sessions.live(), PLACES - 1);
    assert!(ear.story().is_empty());
    drop(stepping);
    world.end().await;
}
