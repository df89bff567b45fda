//! Between the nodes of one server: a request that came to the wrong one goes to the right one, once.
//!
//! Owns how nodes talk: `hop` the signed header by which one believes another, `forward` REST and its
//! streams, `tunnel` the messages of a socket, `notices` what one node tells the others, `own_url` what a node
//! asks itself before it is one of them. All of it is the public API of the other node, called with a hop in place of the
//! caller's token; only notices, tickets and that question have paths of their own. Who owns a dialogue is not decided here: a
//! request is handled where it came to, and goes on only if that node finds that the dialogue is another's.

mod forward;
mod node_auth;
mod notices;
mod own_url;
mod tunnel;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use reqwest::{Client, Method, Response, Url};
use secrecy::{ExposeSecret as _, SecretString};

#[cfg(feature = "fuzzing")]
pub(super) use self::node_auth::decode_forward_token;
pub(super) use self::{
    forward::{RawBody, add_owner_header, dialogue_of, forward_if_remote},
    node_auth::{FORWARD_TOKEN_HEADER, check_body_hash, forward_token},
    notices::{configure_internal_routes, redeem_any_ticket},
    tunnel::{Tunnel, TunnelEnd, Tunnels},
};
pub use self::{
    node_auth::ForwardToken,
    own_url::{OwnUrlError, configure_own_url},
};
use super::errors::Problem;
use crate::{
    actors::membership::Neighbours,
    ids::NodeId,
    ports::{clock::Clock, owners::OwnerCache, peers::LocalIndex},
    tenancy::Principal,
};

/// How long opening a connection to another node may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an unused connection is kept: for less time than the other node keeps it, or a request would meet its end.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const _: () = assert!(POOL_IDLE_TIMEOUT.as_secs() < crate::transport::KEEP_ALIVE.as_secs());

/// The way to the other nodes. Cheap to clone.
#[derive(Clone)]
pub struct NodeClient {
    pub(super) neighbours: Arc<Neighbours>,
    pub(super) owners: Option<Arc<dyn OwnerCache>>,
    /// What this node's own index holds, if it has one of its own: others tell it what they know.
    pub(super) index: Option<Arc<dyn LocalIndex>>,
    keys: Arc<node_auth::NodeKeys>,
    client: Client,
    clock: Arc<dyn Clock>,
    /// Where this node is reached.
    own_url: String,
}

/// Why there is no answer.
enum NodeSendError {
    /// It never got there.
    NotSent(Problem),
    /// It may have got there.
    MaybeSent(Problem),
}

impl From<NodeSendError> for Problem {
    fn from(unsent: NodeSendError) -> Self {
        match unsent {
            NodeSendError::NotSent(problem) | NodeSendError::MaybeSent(problem) => problem,
        }
    }
}

impl NodeClient {
    /// `secret` is the same on every node; what is signed with the `previous` one is believed as well.
    ///
    /// # Errors
    /// The HTTP client cannot be made.
    pub fn new(
        neighbours: Arc<Neighbours>,
        owners: Option<Arc<dyn OwnerCache>>,
        index: Option<Arc<dyn LocalIndex>>,
        secret: &SecretString,
        previous: Option<&SecretString>,
        clock: Arc<dyn Clock>,
        own_url: String,
    ) -> reqwest::Result<Self> {
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .tcp_nodelay(true)
            // A socket begins as a request that is upgraded, which HTTP/2 has no word for.
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("colloquy-node/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self {
            neighbours,
            owners,
            index,
            keys: Arc::new(node_auth::NodeKeys::new(
                secret.expose_secret().as_bytes(),
                previous.map(|previous| previous.expose_secret().as_bytes()),
            )),
            client,
            clock,
            own_url,
        })
    }

    /// A request to another node, with a hop for `who` and a body, which may be empty. The path begins with a slash and has
    /// its query.
    async fn signed_request(
        &self,
        node: NodeId,
        method: Method,
        path: &str,
        who: Option<&Principal>,
        body: Bytes,
    ) -> Result<reqwest::RequestBuilder, Problem> {
        let url = if node == self.neighbours.own_id() {
            self.own_url.clone()
        } else {
            let url = self.neighbours.url_of(node).await?;
            url.ok_or_else(Problem::wrong_node)?
        };
        let url = Url::parse(&format!("{url}{path}")).map_err(|error| Problem::internal_error(&error))?;
        // As it goes out: some characters are escaped by now.
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let hop = ForwardToken {
            from: self.neighbours.own_id(),
            to: node,
            request: format!("{method} {path}"),
            body: node_auth::body_hash(&body),
            who: who.cloned(),
        };
        let signed = self.keys.sign_token(&hop, self.clock.now())?;
        let request = self.client.request(method, url).header(FORWARD_TOKEN_HEADER, signed);
        Ok(if body.is_empty() { request } else { request.body(body) })
    }

    /// Sends it, and gives up as soon as the node is dead to this one: one that is frozen takes connections
    /// and never answers.
    async fn send_request(&self, node: NodeId, request: reqwest::RequestBuilder) -> Result<Response, Problem> {
        Ok(self.try_send_request(node, request).await?)
    }

    async fn try_send_request(
        &self,
        node: NodeId,
        request: reqwest::RequestBuilder,
    ) -> Result<Response, NodeSendError> {
        let own = node == self.neighbours.own_id();
        let answer = tokio::select! {
            answer = request.send() => answer,
            () = self.neighbours.wait_until_dead(node), if !own => {
                tracing::info!(owner = %node, "a node died while it was asked");
                return Err(NodeSendError::MaybeSent(Problem::wrong_node()));
            }
        };
        answer.map_err(|error| {
            tracing::info!(owner = %node, %error, "a node could not be asked");
            if error.is_connect() {
                NodeSendError::NotSent(Problem::wrong_node())
            } else {
                NodeSendError::MaybeSent(Problem::wrong_node())
            }
        })
    }
}
