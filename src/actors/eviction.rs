//! Eviction: an idle dialogue leaves memory to make room, as after a long idle time. No data is lost.
//!
//! [`colloquy_core::shares::Residents::eviction_candidates`] picks the tenant; the dialogue's own actor decides whether the
//! dialogue is idle.

use std::time::Duration;

use actix::Handler;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{
    DialogueError,
    mailbox::{Mailbox, QueuedMessage},
    messages::{DialogueKey, LeaveIfIdle, ResidencyPermit},
    node::send_message,
    registry::{DialogueEntry, Directory, Registry},
};
use colloquy_core::{
    ids::{DialogueKind, TenantId},
    shares::NoCapacity,
};

/// How long a request waits for room.
const ROOM_WAIT_LIMIT: Duration = Duration::from_millis(250);
/// Delay between two attempts to find room.
const ROOM_RETRY_DELAY: Duration = Duration::from_millis(20);

impl Registry {
    /// Spawns a dialogue. If no place is free, waits up to [`ROOM_WAIT_LIMIT`] for the place of an idle dialogue.
    pub(super) async fn spawn_with_room<T>(
        &self,
        key: &DialogueKey,
        spawn: impl Fn(Option<ResidencyPermit>) -> Result<Result<T, NoCapacity>, DialogueError>,
    ) -> Result<T, DialogueError> {
        let tenant = key.0.tenant();
        let mut refusal = match spawn(None)? {
            Ok(spawned) => return Ok(spawned),
            Err(refusal) => refusal,
        };
        let spawning = async {
            loop {
                let place = self.evict_idle_dialogue(tenant).await;
                match spawn(place.map(|place| place.pass_to(tenant, key.clone())))? {
                    Ok(spawned) => return Ok(spawned),
                    Err(next_refusal) => refusal = next_refusal,
                }
                sleep(ROOM_RETRY_DELAY).await;
            }
        };
        let spawned = timeout(ROOM_WAIT_LIMIT, spawning).await;
        spawned.unwrap_or_else(|_| {
            self.residents.count_refusal();
            Err(refusal.into())
        })
    }

    /// Evicts an idle dialogue for a dialogue of `tenant`, and returns the freed place.
    async fn evict_idle_dialogue(&self, tenant: &TenantId) -> Option<ResidencyPermit> {
        for (holder, has) in self.residents.eviction_candidates(tenant) {
            if self.tenants_without_idle.contains_key(&holder) {
                continue;
            }
            for _ in 0..has {
                let Some(key) = self.residents.least_recently_used(&holder) else {
                    break;
                };
                let place = match key.1.kind() {
                    DialogueKind::Session => self.evict_if_idle(&self.sessions, &key).await,
                    DialogueKind::NpcConversation => self.evict_if_idle(&self.conversations, &key).await,
                };
                if place.is_some() {
                    return place;
                }
            }
            self.tenants_without_idle.insert(holder, ());
        }
        None
    }

    /// Evicts the dialogue if idle, and returns the freed place.
    async fn evict_if_idle<A>(
        &self,
        directory: &Directory<DialogueKey, DialogueEntry<A>>,
        key: &DialogueKey,
    ) -> Option<ResidencyPermit>
    where
        A: Mailbox + Handler<QueuedMessage<LeaveIfIdle>>,
    {
        let addr = directory.find_unattended(key)?;
        let (reply, place) = oneshot::channel();
        send_message(&self.node, &addr, LeaveIfIdle { reply }).await.ok()?;
        place.await.ok()
    }
}
