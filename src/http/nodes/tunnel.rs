//! Tunnels: sockets to other nodes for a client's dialogues there, as the same caller. Messages and events pass
//! unchanged.
//!
//! The client's socket stays on this node. Sequence numbers need no rewriting: they belong to the dialogue, and the
//! owner assigns them.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::{Method, Response, StatusCode, Upgraded, header};
use tokio::sync::mpsc;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::client::generate_key, protocol::Role},
};

use super::client::NodeClient;
use crate::{
    errors::{Code, Problem, ProblemBody},
    socket::player_socket::close_code,
};
use colloquy_core::{
    ids::{DialogueId, NodeId},
    scope::Principal,
};

/// Messages that may wait for the other node.
const MAX_TUNNEL_QUEUE: usize = 256;

/// Why a tunnel ended that this side did not close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelEnd {
    /// A newer connection took over the tunnel's last dialogue.
    Replaced,
    /// The other node no longer accepts the caller.
    Refused,
    /// The other node is gone, stops, or has closed the tunnel.
    Lost,
}

/// A connection to one other node. Closes when dropped.
#[derive(Debug, Clone)]
pub struct Tunnel(mpsc::Sender<String>);

impl Tunnel {
    /// Forwards a message.
    ///
    /// # Errors
    /// The tunnel has ended, or the other node does not keep up.
    pub fn send(&self, text: &str) -> Result<(), Problem> {
        self.0.try_send(text.to_owned()).map_err(|_| Problem::wrong_node())
    }
}

/// The tunnels of one client's socket, and the owner of each tunnelled dialogue.
#[derive(Debug, Default)]
pub struct Tunnels {
    pub open: HashMap<NodeId, Tunnel>,
    pub routes: HashMap<DialogueId, NodeId>,
}

impl NodeClient {
    /// Opens a socket at another node as `principal`. `path` begins with a slash and includes the query. `on_message`
    /// gets each message from the node. `on_end` runs unless this side dropped the tunnel first.
    ///
    /// # Errors
    /// The node cannot be reached, or refuses.
    pub async fn open_tunnel(
        &self,
        node: NodeId,
        principal: &Principal,
        path: &str,
        on_message: impl FnMut(&str) + 'static,
        on_end: impl FnOnce(TunnelEnd) + 'static,
    ) -> Result<Tunnel, Problem> {
        let request = self
            .signed_request(node, Method::GET, path, Some(principal), Bytes::new())
            .await?
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, generate_key());
        let answer = self.send_request(node, request).await?;
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            return Err(rate_limited_error(answer).await);
        }
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            tracing::info!(owner = %node, status = %answer.status(), "a node refused a tunnel");
            return Err(Problem::wrong_node());
        }
        let upgraded = answer.upgrade().await.map_err(|error| {
            tracing::info!(owner = %node, %error, "a tunnel could not be opened");
            Problem::wrong_node()
        })?;
        let mut socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await;
        let (outbound, mut waiting) = mpsc::channel::<String>(MAX_TUNNEL_QUEUE);
        let neighbours = self.neighbours.clone();
        actix_web::rt::spawn(async move {
            let peer_death = neighbours.wait_until_dead(node);
            let end = relay_messages(&mut socket, &mut waiting, on_message, peer_death).await;
            drop(waiting);
            if let Some(end) = end {
                on_end(end);
            }
        });
        Ok(Tunnel(outbound))
    }
}

/// Passes messages on in both directions. `None`: this side dropped the tunnel.
async fn relay_messages(
    socket: &mut WebSocketStream<Upgraded>,
    waiting: &mut mpsc::Receiver<String>,
    mut on_message: impl FnMut(&str),
    peer_death: impl Future<Output = ()>,
) -> Option<TunnelEnd> {
    tokio::pin!(peer_death);
    loop {
        tokio::select! {
            text = waiting.recv() => {
                let Some(text) = text else {
                    // If the close frame is lost, the other node still sees the connection end.
                    let _ = socket.close(None).await;
                    return None;
                };
                if socket.send(Message::text(text)).await.is_err() {
                    return Some(TunnelEnd::Lost);
                }
            }
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => on_message(text.as_str()),
                Some(Ok(Message::Close(frame))) => {
                    let code = frame.map_or(0, |frame| u16::from(frame.code));
                    return Some(match code {
                        close_code::REPLACED => TunnelEnd::Replaced,
                        close_code::UNAUTHENTICATED => TunnelEnd::Refused,
                        _ => TunnelEnd::Lost,
                    });
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Some(TunnelEnd::Lost),
            },
            () = &mut peer_death => return Some(TunnelEnd::Lost),
        }
    }
}

/// The error for a player who has reached the limit of sockets at the owner.
async fn rate_limited_error(answer: Response) -> Problem {
    let wait = answer.headers().get(header::RETRY_AFTER);
    let wait = wait.and_then(|wait| wait.to_str().ok()?.parse().ok());
    let detail = answer.json::<ProblemBody>().await.map(|problem| problem.detail);
    let detail = detail.unwrap_or_else(|_| "too many requests".to_owned());
    let problem = Problem::new(Code::RateLimited, detail);
    match wait {
        Some(seconds) => problem.with_retry_after(Duration::from_secs(seconds)),
        None => problem,
    }
}
