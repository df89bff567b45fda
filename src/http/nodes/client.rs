//! The client for the other nodes.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use reqwest::{Client, Method, Response, Url};
use secrecy::{ExposeSecret as _, SecretString};

use super::node_keys::{FORWARD_TOKEN_HEADER, ForwardToken, NodeKeys, body_hash};
use crate::errors::Problem;
use colloquy_actors::membership::Neighbours;
use colloquy_core::{ids::NodeId, scope::Principal};
use colloquy_ports::{clock::Clock, owners::OwnerCache, peers::LocalIndex};

/// Timeout for opening a connection to another node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Idle time of a pooled connection. Shorter than the server's keep-alive, or a request would meet a closing
/// connection.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const _: () = assert!(POOL_IDLE_TIMEOUT.as_secs() < colloquy_transport::KEEP_ALIVE.as_secs());

/// Client for the other nodes. Cheap to clone.
#[derive(Clone)]
pub struct NodeClient {
    pub(crate) neighbours: Arc<Neighbours>,
    pub(crate) owners: Option<Arc<dyn OwnerCache>>,
    /// This node's own search index, if any. Other nodes announce changed facts for the index.
    pub(crate) index: Option<Arc<dyn LocalIndex>>,
    pub(super) keys: Arc<NodeKeys>,
    pub(super) client: Client,
    pub(super) clock: Arc<dyn Clock>,
    /// The URL of this node.
    pub(super) own_url: String,
}

/// Why an attempt got no answer.
pub(super) enum NodeSendError {
    /// The request never reached the node.
    NotSent(Problem),
    /// The request may have reached the node.
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
    /// Creates the client. `secret` is the same on every node; tokens signed with `previous` are accepted too.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
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
            // A socket starts as an upgraded request, and HTTP/2 has no such upgrade.
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("colloquy-node/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self {
            neighbours,
            owners,
            index,
            keys: Arc::new(NodeKeys::new(
                secret.expose_secret().as_bytes(),
                previous.map(|previous| previous.expose_secret().as_bytes()),
            )),
            client,
            clock,
            own_url,
        })
    }

    /// Builds a request to another node, with a forward token for `principal`. The path begins with a slash and
    /// includes the query. The body may be empty.
    pub(super) async fn signed_request(
        &self,
        node: NodeId,
        method: Method,
        path: &str,
        principal: Option<&Principal>,
        body: Bytes,
    ) -> Result<reqwest::RequestBuilder, Problem> {
        let url = if node == self.neighbours.own_id() {
            self.own_url.clone()
        } else {
            let url = self.neighbours.url_of(node).await?;
            url.ok_or_else(Problem::wrong_node)?
        };
        let url = Url::parse(&format!("{url}{path}")).map_err(|error| Problem::internal_error(&error))?;
        // The path as sent: `Url` has escaped some characters.
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let hop = ForwardToken {
            from: self.neighbours.own_id(),
            to: node,
            request: format!("{method} {path}"),
            body: body_hash(&body),
            principal: principal.cloned(),
        };
        let token = self.keys.sign_token(&hop, self.clock.now())?;
        let request = self.client.request(method, url).header(FORWARD_TOKEN_HEADER, token);
        Ok(if body.is_empty() { request } else { request.body(body) })
    }

    /// Sends a request, and stops waiting once the node counts as dead. A frozen node accepts connections but never
    /// answers.
    pub(super) async fn send_request(
        &self,
        node: NodeId,
        request: reqwest::RequestBuilder,
    ) -> Result<Response, Problem> {
        Ok(self.try_send_request(node, request).await?)
    }

    pub(super) async fn try_send_request(
        &self,
        node: NodeId,
        request: reqwest::RequestBuilder,
    ) -> Result<Response, NodeSendError> {
        let is_own = node == self.neighbours.own_id();
        let answer = tokio::select! {
            answer = request.send() => answer,
            () = self.neighbours.wait_until_dead(node), if !is_own => {
                tracing::info!(owner = %node, "a node died during a request");
                return Err(NodeSendError::MaybeSent(Problem::wrong_node()));
            }
        };
        answer.map_err(|error| {
            tracing::info!(owner = %node, %error, "a request to a node failed");
            if error.is_connect() {
                NodeSendError::NotSent(Problem::wrong_node())
            } else {
                NodeSendError::MaybeSent(Problem::wrong_node())
            }
        })
    }
}
