//! The state of a socket.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use actix_web::{rt::task::JoinHandle, web};
use bytestring::ByteString;
use parking_lot::Mutex;

use super::subscription::DialogueSubscription;
use crate::{
    AppState,
    nodes::Tunnels,
    open_streams::{ClosableStream, OpenStreamGuard},
};
use colloquy_core::{
    ids::{DialogueId, PlayerId, WorldId},
    scope::Principal,
};
use colloquy_tenancy::limits::{SocketLimit, SocketSeat};

pub(super) struct SocketState {
    pub(super) state: web::Data<AppState>,
    pub(super) principal: Mutex<Principal>,
    pub(super) limit: Mutex<SocketLimit>,
    pub(super) inbox: Mutex<Inbox>,
    pub(super) open: Mutex<HashMap<DialogueId, OpenedDialogue>>,
    /// The watched worlds, each with the task that sends its changes.
    pub(super) watched_worlds: Mutex<HashMap<WorldId, JoinHandle<()>>>,
    /// The socket's seat among the sockets of its player, until the socket closes.
    pub(super) seat: Mutex<Option<SocketSeat>>,
    /// The socket's place among the open streams, until the socket closes.
    pub(super) place: Mutex<Option<(OpenStreamGuard, Arc<dyn ClosableStream>)>>,
    /// Closes the socket when its token expires.
    pub(super) expiry: Mutex<Option<JoinHandle<()>>>,
    /// The tunnels to the owners of dialogues on other nodes.
    pub(super) tunnels: Mutex<Tunnels>,
    pub(super) coalesce_ms: u64,
    /// True for the end of another node's tunnel. That node has counted the messages for the tenant.
    pub(super) is_forwarded: bool,
}

#[derive(Default)]
pub(super) struct Inbox {
    pub(super) waiting: VecDeque<ByteString>,
    /// True while a task handles messages.
    pub(super) busy: bool,
}

/// A dialogue to which this socket is subscribed.
pub(super) struct OpenedDialogue {
    pub(super) listener: u64,
    pub(super) subscription: Arc<DialogueSubscription>,
    pub(super) player: Option<PlayerId>,
}
