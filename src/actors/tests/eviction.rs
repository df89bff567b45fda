//! Eviction of idle dialogues when memory is full.

use std::time::Duration;

use super::world::{TestWorld, test_actor_settings, test_dialogue_settings, wait_for_turn, write_authored};
use crate::{ActorSettings, DialogueError};
use colloquy_core::ids::DialogueId;

/// A single tenant may have four.
const MAX_SESSIONS: usize = 5;

async fn small_world() -> TestWorld {
    let small = ActorSettings {
        max_sessions: MAX_SESSIONS,
        ..test_actor_settings()
    };
    TestWorld::with_settings(small, test_dialogue_settings()).await
}

impl TestWorld {
    async fn new_used_sessions(&self, count: usize) -> Vec<DialogueId> {
        let mut sessions = Vec::new();
        for _ in 0..count {
            let id = self.new_session().await;
            self.say_and_wait(id, "hello").await;
            sessions.push(id);
        }
        sessions
    }

    fn count_in_memory(&self, ids: &[DialogueId]) -> usize {
        let sessions = &self.sessions.node_for_test().sessions;
        let lives = |id: &&DialogueId| sessions.find_live(&(self.scope.clone(), **id)).is_some();
        ids.iter().filter(lives).count()
    }
}

#[actix::test]
async fn session_idle_longest_is_evicted_without_loss() {
    let world = small_world().await;
    let mut sessions = world.new_used_sessions(4).await;
    let first = sessions[0];
    world.say_and_wait(first, "I am here still").await;
    sessions.extend(world.new_used_sessions(1).await);
    assert_eq!(world.count_in_memory(&sessions), 4);
    assert_eq!(
        world.count_in_memory(&sessions[1..2]),
        0,
        "the second was used before all others"
    );
    let turn = world.say_and_wait(sessions[1], "and I am back").await;
    assert_eq!(turn.number, 2);
    assert_eq!(world.count_in_memory(&sessions[2..3]), 0);
    world.shut_down().await;
}

#[actix::test]
async fn tenant_with_most_sessions_is_evicted_first() {
    let mut world = small_world().await;
    let studio = world.scope.clone();
    let of_studio = world.new_used_sessions(4).await;
    let other = write_authored(&world.ports, "other").await;
    let mut of_other = Vec::new();
    for (theirs, of_both) in [(1, (1, 4)), (2, (2, 3)), (3, (3, 2)), (4, (3, 2))] {
        world.scope = other.clone();
        of_other.extend(world.new_used_sessions(1).await);
        assert_eq!(of_other.len(), theirs);
        let of_other = world.count_in_memory(&of_other);
        world.scope = studio.clone();
        assert_eq!((of_other, world.count_in_memory(&of_studio)), of_both);
    }
    world.shut_down().await;
}

#[actix::test]
async fn busy_sessions_stay_and_newcomers_are_refused() {
    let world = small_world().await;
    let listened_to = world.new_session().await;
    let ear = world.attach_recorder(listened_to).await;
    let speaking = world.new_session().await;
    let running = world.say_line(speaking, "hold").await;
    world.new_conversation("hold", 3, true).await;
    let stepped = world.new_conversation("hold", 3, false).await;
    let stepping = world.sessions.say_next_line(&world.scope, stepped).await;
    world.wait_for_begun(3).await;
    let late = world.new_session().await;
    let refused = world.say_line(late, "hello").await.unwrap_err();
    assert!(matches!(refused, DialogueError::OverShare(_)), "{refused:?}");

    // A session becomes idle while the newcomer waits.
    let (let_in, ()) = tokio::join!(world.say_line(late, "hello"), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.fake.go.add_permits(1_000);
        wait_for_turn(running).await.unwrap();
    });
    wait_for_turn(let_in).await.unwrap();
    assert_eq!(world.count_in_memory(&[listened_to, late]), 2);
    assert_eq!(world.sessions.live_count(), MAX_SESSIONS - 1);
    assert!(ear.event_labels().is_empty());
    drop(stepping);
    world.shut_down().await;
}
