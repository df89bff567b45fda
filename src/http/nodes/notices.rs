//! Announcements of one node to the others, and requests between nodes: `/internal/v1/…`, for nodes only.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use async_trait::async_trait;
use futures_util::future::join_all;
use reqwest::Method;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::client::NodeClient;
use crate::{
    AppState,
    errors::{Code, Problem},
    refusals::apply_notice,
    uncancelled::run_uncancelled,
};
use colloquy_core::{
    ids::NodeId,
    scope::{Principal, TenantScope},
};
use colloquy_ports::{
    StoreError, StoreResult,
    peers::{Notice, Peers},
};
use colloquy_tenancy::auth::AuthError;

const NOTICES_PATH: &str = "/internal/v1/notices";
const TICKETS_PATH: &str = "/internal/v1/tickets";
/// How long another node may take to answer a notice or a ticket request.
const NODE_REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest notice in bytes: the restore of a world with very many dialogues.
const MAX_NOTICE_BYTES: usize = 64 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct TicketMessage {
    ticket: String,
}

/// Registers the paths that only nodes use.
pub fn configure_internal_routes(cfg: &mut web::ServiceConfig) {
    cfg.route(NOTICES_PATH, web::post().to(handle_notice))
        .route(TICKETS_PATH, web::post().to(handle_ticket_request));
}

#[async_trait]
impl Peers for NodeClient {
    async fn notify_peers(&self, notice: &Notice) -> StoreResult<()> {
        let neighbours = self.neighbours.refresh_others().await?;
        let notifications = neighbours.iter().map(|node| async {
            let result = tokio::time::timeout(NODE_REQUEST_TIMEOUT, self.notify_node(node.id, notice)).await;
            match result {
                Ok(Ok(())) => Ok(()),
                Ok(Err(problem)) => Err(format!("node {} could not be notified: {problem}", node.id)),
                Err(_elapsed) => Err(format!("node {} does not answer in time", node.id)),
            }
        });
        match join_all(notifications).await.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(cause) => Err(StoreError::Unavailable(cause)),
        }
    }
}

impl NodeClient {
    async fn notify_node(&self, node: NodeId, notice: &Notice) -> Result<(), Problem> {
        let answer = self
            .send_request(node, self.json_request(node, NOTICES_PATH, notice).await?)
            .await?;
        if answer.status().is_success() {
            Ok(())
        } else {
            Err(Problem::new(
                Code::WrongNode,
                format!("it answered {}", answer.status()),
            ))
        }
    }

    /// Builds a JSON request of this node's own.
    async fn json_request<T: Serialize>(
        &self,
        node: NodeId,
        path: &str,
        body: &T,
    ) -> Result<reqwest::RequestBuilder, Problem> {
        let body = serde_json::to_vec(body).map_err(|error| Problem::internal_error(&error))?;
        let request = self.signed_request(node, Method::POST, path, None, body.into()).await?;
        Ok(request.header(reqwest::header::CONTENT_TYPE, "application/json"))
    }

    /// Adds the issuing node to a ticket.
    pub(crate) fn qualify_ticket(&self, ticket: &str) -> String {
        format!("{ticket}.{}", self.neighbours.own_id())
    }

    async fn redeem_ticket_at(&self, node: NodeId, ticket: &str) -> Result<Principal, Problem> {
        let ticket = TicketMessage {
            ticket: ticket.to_owned(),
        };
        let request = self.json_request(node, TICKETS_PATH, &ticket).await?;
        let answer = tokio::time::timeout(NODE_REQUEST_TIMEOUT, self.send_request(node, request))
            .await
            .map_err(|_elapsed| Problem::wrong_node())??;
        if !answer.status().is_success() {
            return Err(AuthError::NoTicket.into());
        }
        answer.json().await.map_err(|error| Problem::internal_error(&error))
    }
}

/// Redeems a ticket of any node. In a cluster, the ticket names the issuing node.
///
/// # Errors
/// The ticket is unknown, used or expired, or the issuing node is gone.
pub async fn redeem_any_ticket(state: &AppState, ticket: &str) -> Result<Principal, Problem> {
    if let Some(nodes) = &state.nodes
        && let Some((local, node)) = ticket.split_once('.')
    {
        let node: NodeId = node.parse().map_err(|_| AuthError::NoTicket)?;
        if node == nodes.neighbours.own_id() {
            return Ok(state.auth.redeem_ticket(local).await?);
        }
        return match nodes.redeem_ticket_at(node, local).await {
            // The tickets of a dead node are gone.
            Err(problem) if problem.code == Code::WrongNode => Err(AuthError::NoTicket.into()),
            redeemed => redeemed,
        };
    }
    Ok(state.auth.redeem_ticket(ticket).await?)
}

/// Requires a forward token for a node's own request; rejects all other callers.
fn require_node_caller(request: &HttpRequest) -> Result<(), Problem> {
    match super::forward_token(request)? {
        Some(hop) if hop.principal.is_none() => Ok(()),
        Some(_) => Err(Problem::new(Code::Forbidden, "this is for nodes only")),
        None => Err(Problem::new(Code::NotFound, "there is nothing here")),
    }
}

async fn handle_ticket_request(
    state: web::Data<AppState>,
    request: HttpRequest,
    body: web::Payload,
) -> Result<HttpResponse, Problem> {
    require_node_caller(&request)?;
    let TicketMessage { ticket } = read_json_body(&request, body).await?;
    let principal = state.auth.redeem_ticket(&ticket).await?;
    Ok(HttpResponse::Ok().json(principal))
}

async fn handle_notice(
    state: web::Data<AppState>,
    request: HttpRequest,
    body: web::Payload,
) -> Result<HttpResponse, Problem> {
    require_node_caller(&request)?;
    let notice: Notice = read_json_body(&request, body).await?;
    run_uncancelled(async move {
        let own_index = state.nodes.as_ref().and_then(|nodes| nodes.index.as_ref());
        let actors = &state.sessions;
        match notice {
            Notice::Restored { tenant, dialogues } => {
                actors.on_world_restored(&TenantScope::new(tenant), dialogues).await;
            }
            Notice::Closed { tenant, sessions } => {
                actors.on_sessions_closed(&TenantScope::new(tenant), sessions).await;
            }
            Notice::Authored { tenant, world } => actors.forget_authored(&TenantScope::new(tenant), &world),
            Notice::Indexed { tenant, facts } => {
                if let Some(index) = own_index {
                    index.refresh_facts(&TenantScope::new(tenant), &facts).await?;
                }
            }
            notice @ (Notice::Tenant { .. } | Notice::Revoked { .. }) => {
                apply_notice(&state, &notice).await;
            }
            Notice::Cleared { tenant } => {
                if let Some(index) = own_index {
                    index.forget_tenant(&TenantScope::new(tenant)).await?;
                }
            }
        }
        Ok(HttpResponse::NoContent().finish())
    })
    .await
}

/// Reads the body after the sender was verified.
async fn read_json_body<T: DeserializeOwned>(request: &HttpRequest, body: web::Payload) -> Result<T, Problem> {
    let body = body
        .to_bytes_limited(MAX_NOTICE_BYTES)
        .await
        .map_err(|_| {
            Problem::new(
                Code::PayloadTooLarge,
                format!("the body is larger than {MAX_NOTICE_BYTES} bytes"),
            )
        })?
        .map_err(|error| Problem::new(Code::MalformedRequest, error.to_string()))?;
    super::check_body_hash(request, &body)?;
    serde_json::from_slice(&body).map_err(|error| Problem::new(Code::MalformedJson, error.to_string()))
}
