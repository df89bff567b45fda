//! Conversations that a restart has stopped, and who has them go on.

use std::sync::Arc;

use super::world::{Ear, World};
use crate::{actors::Listener, ids::DialogueId};

impl World {
    pub(super) async fn watch(&self, id: DialogueId, last_seq: Option<u64>) -> Arc<Ear> {
        self.watch_as(true, id, last_seq).await
    }

    async fn watch_as(&self, wakes: bool, id: DialogueId, last_seq: Option<u64>) -> Arc<Ear> {
        let ear = Ear::new();
        let listener: Arc<dyn Listener> = Arc::<Ear>::clone(&ear);
        let talks = self.talks();
        talks.attach(&self.scope, id, listener, last_seq, wakes).await.unwrap();
        ear
    }
}

#[actix::test]
async fn one_that_is_only_watched_sleeps_until_somebody_else_comes() {
    let killed = World::new().await;
    let id = killed.talk("hold", 3, true).await;
    killed.begun(1).await;
    let world = killed.restarted();
    world.fake.go.add_permits(10);
    let viewer = world.watch_as(false, id, Some(1)).await;
    let again = world.watch_as(false, id, Some(1)).await;
    assert!(world.fake.spoken.lock().is_empty());
    assert_eq!(world.lines(id).await.len(), 0);
    let player = world.watch(id, Some(1)).await;
    for ear in [viewer, again, player] {
        ear.hears("ended 3 max_turns").await;
    }
    world.end().await;
}
