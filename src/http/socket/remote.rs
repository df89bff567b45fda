//! Dialogues of other nodes on a socket: messages go through a tunnel to the owner, and the owner's events come back
//! unchanged.
//!
//! A socket at the end of a tunnel opens no tunnels. Unknown dialogues are errors there.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::socket_state::SocketState;
use crate::{
    errors::{Code, Problem},
    nodes::{NodeClient, Tunnel, TunnelEnd, Tunnels},
    refusals::catch_up,
    socket::player_socket::{SocketConnection, close_code},
};
use colloquy_core::{
    ids::{DialogueId, NodeId},
    scope::Principal,
};

/// Messages that open a dialogue, and may therefore start at the owner as well as here.
const OPENING_MESSAGES: [&str; 3] = ["session.resume", "npc_conversation.watch", "npc_conversation.interrupt"];

/// The dialogue of a message.
#[derive(Deserialize)]
struct MessageSubject {
    session_id: Option<DialogueId>,
    conversation_id: Option<DialogueId>,
}

impl MessageSubject {
    fn dialogue_of_message(text: &str) -> Option<DialogueId> {
        let target: Self = serde_json::from_str(text).ok()?;
        target.session_id.or(target.conversation_id)
    }
}

/// The fields of an owner's event that this node reads.
#[derive(Deserialize)]
struct RelayedEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    dialogue_id: Option<DialogueId>,
    error: Option<RelayedError>,
}

#[derive(Deserialize)]
struct RelayedError {
    code: String,
}

impl SocketState {
    /// Returns the owner of a message's dialogue if its messages already go through a tunnel.
    pub(super) fn routed_owner(&self, text: &str) -> Option<(DialogueId, NodeId)> {
        let tunnels = self.tunnels.lock();
        if tunnels.routes.is_empty() {
            return None;
        }
        let dialogue = MessageSubject::dialogue_of_message(text)?;
        tunnels.routes.get(&dialogue).map(|owner| (dialogue, *owner))
    }

    /// Returns the owner for a message that failed here because another node owns the dialogue.
    pub(super) fn remote_owner(&self, kind: &str, text: &str, problem: &Problem) -> Option<(DialogueId, NodeId)> {
        let owner = problem.owner.as_deref()?;
        if self.is_forwarded || !OPENING_MESSAGES.contains(&kind) {
            return None;
        }
        Some((MessageSubject::dialogue_of_message(text)?, *owner))
    }

    /// Forwards a message to the owner of its dialogue.
    pub(super) async fn send_to_owner(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        dialogue: DialogueId,
        owner: NodeId,
        text: &str,
    ) -> Result<(), Problem> {
        let Some(nodes) = &self.state.nodes else {
            return Err(Problem::wrong_node());
        };
        let existing = self.tunnels.lock().open.get(&owner).cloned();
        let tunnel = if let Some(tunnel) = existing {
            tunnel
        } else {
            let opened = self.open_tunnel(nodes, connection, principal, owner).await;
            let outcome = if opened.is_ok() { "answered" } else { "unreachable" };
            let counter = &self.state.metrics.forwarded;
            counter.with_label_values(&["socket", outcome]).inc();
            if opened.is_err() {
                nodes.forget_owner_of(&principal.scope(), dialogue).await;
            }
            let tunnel = opened?;
            self.tunnels.lock().open.insert(owner, tunnel.clone());
            tunnel
        };
        let opened = self.open.lock().remove(&dialogue);
        if let Some(opened) = opened {
            // The dialogue belonged to this node before.
            self.state
                .sessions
                .detach_listener(&principal.scope(), dialogue, opened.listener);
        }
        self.tunnels.lock().routes.insert(dialogue, owner);
        if connection.is_gone() {
            // `on_close` ran before these tunnels existed.
            *self.tunnels.lock() = Tunnels::default();
            return Ok(());
        }
        tunnel.send(text)
    }

    async fn open_tunnel(
        self: &Arc<Self>,
        nodes: &NodeClient,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        owner: NodeId,
    ) -> Result<Tunnel, Problem> {
        let principal = without_expiry(principal);
        let for_messages = Arc::downgrade(self);
        let for_end = Arc::downgrade(self);
        let for_text = connection.clone();
        let for_close = connection.clone();
        let on_message = move |text: &str| {
            if let Some(inner) = for_messages.upgrade() {
                inner.on_owner_message(owner, text);
            }
            // A connection that is gone drops its tunnels.
            let _ = for_text.send_text(text.to_owned());
        };
        let on_end = move |end| match (for_end.upgrade(), end) {
            (Some(inner), TunnelEnd::Refused) => inner.on_owner_refusal(for_close, owner),
            (Some(inner), end) => inner.on_tunnel_ended(&for_close, owner, end),
            (None, _) => {}
        };
        let path = format!("/v1/ws?coalesce_ms={}", self.coalesce_ms);
        nodes.open_tunnel(owner, &principal, &path, on_message, on_end).await
    }

    /// Sends a message about the whole socket to every owner.
    pub(super) fn send_to_owners(self: &Arc<Self>, connection: &Arc<SocketConnection>, text: &str) {
        let open_tunnels: Vec<(NodeId, Tunnel)> = {
            let tunnels = self.tunnels.lock();
            tunnels
                .open
                .iter()
                .map(|(owner, tunnel)| (*owner, tunnel.clone()))
                .collect()
        };
        for (owner, tunnel) in open_tunnels {
            if tunnel.send(text).is_err() {
                self.on_tunnel_ended(connection, owner, TunnelEnd::Lost);
            }
        }
    }

    /// Reads the owner's events that change the route of later messages.
    fn on_owner_message(&self, owner: NodeId, text: &str) {
        // Few events matter, so most are not even parsed.
        if !text.contains("session.created") && !text.contains("wrong_node") {
            return;
        }
        let Ok(event) = serde_json::from_str::<RelayedEvent<'_>>(text) else {
            return;
        };
        let Some(dialogue) = event.dialogue_id else { return };
        match event.kind {
            "session.created" => {
                self.tunnels.lock().routes.insert(dialogue, owner);
            }
            "error" if event.error.is_some_and(|error| error.code == Code::WrongNode.as_str()) => {
                self.tunnels.lock().routes.remove(&dialogue);
            }
            _ => {}
        }
    }

    /// Handles an owner that no longer accepts the caller. After catching up on revocations, this node usually refuses
    /// the caller too. Otherwise the owner had not yet received a newer token.
    fn on_owner_refusal(self: Arc<Self>, connection: Arc<SocketConnection>, owner: NodeId) {
        actix_web::rt::spawn(async move {
            if let Err(error) = catch_up(&self.state).await {
                tracing::info!(%error, "revocations could not be read after an owner refused a caller");
            }
            if !self.close_if_refused() {
                self.on_tunnel_ended(&connection, owner, TunnelEnd::Lost);
            }
        });
    }

    fn on_tunnel_ended(&self, connection: &SocketConnection, owner: NodeId, end: TunnelEnd) {
        let lost_dialogues: Vec<DialogueId> = {
            let mut tunnels = self.tunnels.lock();
            tunnels.open.remove(&owner);
            let lost_dialogues = tunnels.routes.iter().filter(|(_, node)| **node == owner);
            let lost_dialogues: Vec<DialogueId> = lost_dialogues.map(|(id, _)| *id).collect();
            tunnels.routes.retain(|_, node| *node != owner);
            lost_dialogues
        };
        if lost_dialogues.is_empty() {
            return;
        }
        match end {
            TunnelEnd::Replaced => {
                let is_done = self.open.lock().is_empty()
                    && self.tunnels.lock().routes.is_empty()
                    && self.watched_worlds.lock().is_empty();
                if is_done {
                    connection.close_after_flush(close_code::REPLACED, "replaced by a newer connection");
                }
            }
            TunnelEnd::Lost | TunnelEnd::Refused => {
                for dialogue in lost_dialogues {
                    self.send_error(connection, &dialogue_moved_error(), None, Some(dialogue));
                }
                connection.close_after_flush(close_code::DRAINING, MOVED_CLOSE_REASON);
            }
        }
    }
}

/// The caller of a socket, for the owners of its dialogues. This node closes the socket when the token expires; the
/// owners need no expiry.
pub fn without_expiry(principal: &Principal) -> Principal {
    Principal {
        expires_at: DateTime::<Utc>::MAX_UTC,
        ..principal.clone()
    }
}

/// The close reason when a dialogue of the socket moved to another node.
pub(super) const MOVED_CLOSE_REASON: &str = "a dialogue moved to another node; connect and resume";

pub(super) fn dialogue_moved_error() -> Problem {
    Problem::new(
        Code::WrongNode,
        "the dialogue moved to another node; connect again and resume",
    )
}
