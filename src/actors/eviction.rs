//! Room for a dialogue where there is none: one that is idle leaves memory, as if it had been idle for long. Nothing of
//! it is lost.
//!
//! Whose goes is decided by [`crate::shares::Residents::who_makes_room`], whether it is idle by its own actor.

use std::time::Duration;

use actix::{Handler, Message};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{
    SessionError,
    mailbox::{Mailbox, Posted, send},
    registry::{DialogueEntry, Directory, Live, Node, SessionKey},
};

use crate::{
    ids::{DialogueKind, TenantId},
    shares::NoPlace,
};

/// How long a request waits for room.
const PATIENCE: Duration = Duration::from_millis(250);
/// How soon it looks again.
const AGAIN: Duration = Duration::from_millis(20);
/// So long nobody looks again at a tenant of whose dialogues none was idle: there may be many.
pub(super) const NONE_IDLE_FOR: Duration = Duration::from_millis(50);

/// Leave memory and hand over the place, unless there is something to do or somebody listens. An actor that stays
/// drops the message.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct LeaveIfIdle {
    pub reply: oneshot::Sender<Live>,
}

impl Node {
    /// Has a dialogue spawned; while there is no place for it, waits a little for that of one that is idle.
    pub(super) async fn with_room<T>(
        &self,
        key: &SessionKey,
        spawn: impl Fn(Option<Live>) -> Result<Result<T, NoPlace>, SessionError>,
    ) -> Result<T, SessionError> {
        let tenant = key.0.tenant();
        let mut none = match spawn(None)? {
            Ok(spawned) => return Ok(spawned),
            Err(none) => none,
        };
        let waiting = async {
            loop {
                let place = self.place_of_idle(tenant).await;
                match spawn(place.map(|place| place.pass_to(tenant, key.clone())))? {
                    Ok(spawned) => return Ok(spawned),
                    Err(still_none) => none = still_none,
                }
                sleep(AGAIN).await;
            }
        };
        let spawned = timeout(PATIENCE, waiting).await;
        spawned.unwrap_or_else(|_| {
            self.live.count_refusal();
            Err(none.into())
        })
    }

    /// The place of an idle dialogue that makes room for one of `tenant`.
    async fn place_of_idle(&self, tenant: &TenantId) -> Option<Live> {
        for (holder, has) in self.live.who_makes_room(tenant) {
            if self.none_idle.contains_key(&holder) {
                continue;
            }
            for _ in 0..has {
                let Some(key) = self.live.least_recently_used(&holder) else {
                    break;
                };
                let place = match key.1.kind() {
                    DialogueKind::Session => self.left(&self.sessions, &key).await,
                    DialogueKind::NpcConversation => self.left(&self.conversations, &key).await,
                };
                if place.is_some() {
                    return place;
                }
            }
            self.none_idle.insert(holder, ());
        }
        None
    }

    /// The place of this dialogue, if it was idle. It has left then.
    async fn left<A>(&self, directory: &Directory<SessionKey, DialogueEntry<A>>, key: &SessionKey) -> Option<Live>
    where
        A: Mailbox + Handler<Posted<LeaveIfIdle>>,
    {
        let addr = directory.unattended(key)?;
        let (reply, place) = oneshot::channel();
        send(self, &addr, LeaveIfIdle { reply }).await.ok()?;
        place.await.ok()
    }
}
