//! Conversations that a restart has stopped, and the requests that wake them.

use std::sync::Arc;

use super::world::{RecordingListener, TestWorld};
use crate::Listener;
use colloquy_core::ids::DialogueId;

impl TestWorld {
    pub(super) async fn attach_watcher(&self, id: DialogueId, last_seq: Option<u64>) -> Arc<RecordingListener> {
        self.attach_watcher_as(true, id, last_seq).await
    }

    async fn attach_watcher_as(&self, wakes: bool, id: DialogueId, last_seq: Option<u64>) -> Arc<RecordingListener> {
        let ear = RecordingListener::new();
        let listener: Arc<dyn Listener> = Arc::<RecordingListener>::clone(&ear);
        let talks = &self.sessions;
        talks
            .watch_conversation(&self.scope, id, listener, last_seq, wakes)
            .await
            .unwrap();
        ear
    }
}

#[actix::test]
async fn watched_only_conversation_sleeps_until_another_player_joins() {
    let killed = TestWorld::new().await;
    let id = killed.new_conversation("hold", 3, true).await;
    killed.wait_for_begun(1).await;
    let world = killed.restart_process();
    world.fake.go.add_permits(10);
    let viewer = world.attach_watcher_as(false, id, Some(1)).await;
    let again = world.attach_watcher_as(false, id, Some(1)).await;
    assert!(world.fake.spoken.lock().is_empty());
    assert_eq!(world.line_texts(id).await.len(), 0);
    let player = world.attach_watcher(id, Some(1)).await;
    for ear in [viewer, again, player] {
        ear.wait_for_event("ended 3 max_turns").await;
    }
    world.shut_down().await;
}
