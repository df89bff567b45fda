//! Socket messages about worlds: a backend watches the changes of a world.

use std::{sync::Arc, time::Duration};

use actix_web::rt::task::JoinHandle;

use super::{
    events,
    messages::WorldWatch,
    socket_state::SocketState,
    world_changes::{ActionRequested, ActionUndone, WorldChange, WorldChanged, WorldWatched},
};
use crate::{
    actions::ActionView,
    errors::{Code, Problem},
    socket::player_socket::SocketConnection,
};
use colloquy_actors::ListenerGone;
use colloquy_core::{
    ids::WorldId,
    scope::{Principal, Role},
};
use colloquy_dialogue::world_watch::{WorldFollower, WorldNews};
use colloquy_ports::{clock::Clock, ledger::state::StoredStateChange};

/// The time between two reads of a watched world.
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// The same after repeated failures.
const MAX_READ_INTERVAL: Duration = Duration::from_secs(5);
const QUEUE_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Changes in one `world.changed`.
const MAX_CHANGES_PER_EVENT: usize = 100;

impl SocketState {
    /// Watches a world. A repeated watch goes on.
    pub(super) async fn watch_world(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        WorldWatch {
            world_id: world,
            actions: seen_actions,
            ..
        }: WorldWatch,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        if principal.role == Role::Player {
            return Err(Problem::new(Code::Forbidden, "a player does not watch a world"));
        }
        if !self.watched_worlds.lock().contains_key(&world) {
            self.check_session_limit()?;
        }
        let scope = principal.scope();
        let services = &self.state.services;
        let authored = &services.ledger.authored;
        if !principal.can_access_world(&world) || authored.load_world(&scope, &world).await?.is_none() {
            return Err(Problem::not_found("world"));
        }
        // The task of an earlier watch misses and repeats nothing.
        let watched = self.watched_worlds.lock().get(&world).map(JoinHandle::is_finished);
        let follower = match watched {
            Some(false) => None,
            _ => Some(WorldFollower::start(services, scope, world.clone(), &seen_actions).await?),
        };
        let _ = connection.send_text(events::write_event(&WorldWatched { re, world_id: &world }));
        if let Some((follower, actions)) = follower {
            let news = WorldNews {
                actions,
                ..WorldNews::default()
            };
            let state = self.state.clone();
            let connection = Arc::clone(connection);
            let task = actix_web::rt::spawn(send_world_changes(state, connection, follower, news));
            self.watched_worlds.lock().insert(world, task);
        }
        Ok(())
    }

    /// Stops watching a world.
    pub(super) fn unwatch_world(&self, world: &WorldId) -> Result<(), Problem> {
        let task = self.watched_worlds.lock().remove(world);
        task.map(|task| task.abort())
            .ok_or_else(|| Problem::not_found("watched world"))
    }
}

/// Sends the first news, and then the changes and actions of a world, until the connection is gone.
async fn send_world_changes(
    state: actix_web::web::Data<crate::AppState>,
    connection: Arc<SocketConnection>,
    mut follower: WorldFollower,
    first_news: WorldNews,
) {
    let clock = state.services.clock.clone();
    if send_news(&connection, follower.world(), first_news, clock.as_ref())
        .await
        .is_err()
    {
        return;
    }
    let mut pause = READ_INTERVAL;
    loop {
        actix_web::rt::time::sleep(pause).await;
        if connection.is_gone() {
            return;
        }
        match follower.read_news(&state.services).await {
            Ok(news) => {
                pause = READ_INTERVAL;
                if send_news(&connection, follower.world(), news, clock.as_ref())
                    .await
                    .is_err()
                {
                    return;
                }
            }
            // Nothing is lost: the next read returns it.
            Err(error) => {
                tracing::info!(world = %follower.world(), %error, "a watched world cannot be read");
                pause = (pause * 2).min(MAX_READ_INTERVAL);
            }
        }
    }
}

/// Sends the news in parts. Each part waits until the client has got the one before. What was taken back comes first, and
/// an action before the change that its answer causes.
async fn send_news(
    connection: &SocketConnection,
    world: &WorldId,
    news: WorldNews,
    clock: &dyn Clock,
) -> Result<(), ListenerGone> {
    fn changes_to_send(part: &[StoredStateChange]) -> Vec<WorldChange<'_>> {
        part.iter().map(WorldChange::from).collect()
    }
    let changed_event = |taken_back, changes| {
        let event = WorldChanged {
            world_id: world,
            taken_back,
            changes,
        };
        events::write_event(&event)
    };
    for part in news.taken_back.chunks(MAX_CHANGES_PER_EVENT) {
        send_part(connection, changed_event(changes_to_send(part), Vec::new())).await?;
    }
    for action in news.actions.undone {
        let event = ActionUndone {
            world_id: world,
            action_id: action.request.id,
            dialogue_id: action.request.dialogue,
            turn_id: action.request.turn,
            turn: action.request.number,
        };
        send_part(connection, events::write_event(&event)).await?;
    }
    for action in news.actions.requested {
        let event = ActionRequested {
            world_id: world,
            action: ActionView::new(action, clock.now()),
        };
        send_part(connection, events::write_event(&event)).await?;
    }
    for part in news.changes.chunks(MAX_CHANGES_PER_EVENT) {
        send_part(connection, changed_event(Vec::new(), changes_to_send(part))).await?;
    }
    Ok(())
}

async fn send_part(connection: &SocketConnection, event: String) -> Result<(), ListenerGone> {
    while connection.has_queued() && !connection.is_gone() {
        actix_web::rt::time::sleep(QUEUE_CHECK_INTERVAL).await;
    }
    connection.send_text(event)
}
