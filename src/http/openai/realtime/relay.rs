//! A connection whose session lives on another node: the client's events go to the owner, and the owner's events come back
//! unchanged.

use std::pin::Pin;

use tokio::{sync::oneshot, time::Sleep};

use super::{
    client_events::Envelope,
    connection::{Connection, next_message},
};
use crate::{
    errors::{Code, Problem},
    nodes::{Tunnel, TunnelEnd},
    refusals::catch_up,
    socket::{player_socket::close_code, without_expiry},
};
use colloquy_core::ids::NodeId;

/// The way to the owner of a session.
pub struct OwnerTunnel {
    pub tunnel: Tunnel,
    /// Gets why the tunnel ended.
    pub end: oneshot::Receiver<TunnelEnd>,
}

/// What a relayed connection does next.
enum RelayStep {
    Shut(Problem),
    Expired,
    Ended(TunnelEnd),
    Message(Option<bytestring::ByteString>),
}

impl Connection {
    /// Opens the way to the owner of the session.
    ///
    /// # Errors
    /// The owner cannot be reached, or refuses.
    pub async fn open_owner_tunnel(&self, owner: NodeId) -> Result<OwnerTunnel, Problem> {
        let (Some(nodes), Some(session)) = (&self.state.nodes, self.session_id()) else {
            return Err(Problem::wrong_node());
        };
        let session = session.to_string();
        let model = self.settings.model.as_str();
        let query = [("session", session.as_str()), ("model", model)];
        let url = reqwest::Url::parse_with_params("http://owner/v1/realtime", query);
        let url = url.map_err(|error| Problem::internal_error(&error))?;
        let path = format!("{}?{}", url.path(), url.query().unwrap_or_default());
        let principal = without_expiry(&self.caller.principal);
        let socket = self.socket();
        let on_message = move |text: &str| {
            // A connection that is gone drops its tunnel.
            let _ = socket.send_text(text.to_owned());
        };
        let (end_sender, end) = oneshot::channel();
        let on_end = move |reason| {
            // A connection that has ended needs no reason.
            let _ = end_sender.send(reason);
        };
        let opened = nodes.open_tunnel(owner, &principal, &path, on_message, on_end).await;
        let outcome = if opened.is_ok() { "answered" } else { "unreachable" };
        let counter = &self.state.metrics.forwarded;
        counter.with_label_values(&["socket", outcome]).inc();
        Ok(OwnerTunnel { tunnel: opened?, end })
    }

    /// Passes the events on until the connection or the tunnel ends. The owner ends the reply of a client that hangs up.
    pub async fn relay_events(&mut self, to_owner: OwnerTunnel, mut expiry: Pin<&mut Sleep>) {
        let OwnerTunnel { tunnel, mut end } = to_owner;
        loop {
            let step = tokio::select! {
                biased;
                Some(problem) = self.shutdown.recv() => RelayStep::Shut(problem),
                () = &mut expiry => RelayStep::Expired,
                reason = &mut end => RelayStep::Ended(reason.unwrap_or(TunnelEnd::Lost)),
                text = next_message(&mut self.inbox, &self.waiting_bytes) => RelayStep::Message(text),
            };
            match step {
                RelayStep::Message(Some(text)) => {
                    let principal = &self.caller.principal;
                    let rate_limit = self
                        .state
                        .limits
                        .check_request(&principal.tenant, principal.player.as_ref());
                    let result = rate_limit.map_err(Problem::from).and_then(|()| tunnel.send(&text));
                    if let Err(problem) = result {
                        let event_id = Envelope::event_id_of(&text);
                        self.send_error(&problem.into(), event_id.as_deref());
                    }
                }
                RelayStep::Message(None) => return,
                RelayStep::Shut(problem) => {
                    return self.close(&problem, close_code::UNAUTHENTICATED, "unauthenticated");
                }
                RelayStep::Expired => return self.close_expired(),
                RelayStep::Ended(reason) => {
                    if reason == TunnelEnd::Refused
                        && let Err(error) = catch_up(&self.state).await
                    {
                        tracing::info!(%error, "revocations could not be read after an owner refused a caller");
                    }
                    if let Err(refusal) = self.state.auth.check_not_refused(&self.caller.principal) {
                        return self.close(&refusal.into(), close_code::UNAUTHENTICATED, "unauthenticated");
                    }
                    let problem = Problem::new(
                        Code::WrongNode,
                        "the session moved to another node; connect again and name the session",
                    );
                    return self.close(&problem, close_code::DRAINING, "the session moved to another node");
                }
            }
        }
    }
}
