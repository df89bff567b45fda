//! What one node tells the others, and what it asks of one: `/internal/v1/…`, for nodes only.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use async_trait::async_trait;
use futures_util::future::join_all;
use reqwest::Method;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::Nodes;
use crate::{
    http::{
        AppState,
        errors::{Code, Problem},
        standing, to_the_end,
    },
    ids::NodeId,
    ports::{
        StoreError, StoreResult,
        peers::{Notice, Peers},
    },
    tenancy::{Principal, TenantScope, auth::AuthError},
};

const NOTICES: &str = "/internal/v1/notices";
const TICKETS: &str = "/internal/v1/tickets";
/// How long another node may take to do what follows from a notice.
const PATIENCE: Duration = Duration::from_secs(3);
/// Largest notice: a restore of a world with very many dialogues.
const MAX_BYTES: usize = 64 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Ticket {
    ticket: String,
}

/// The paths that only nodes use.
pub fn configure(cfg: &mut web::ServiceConfig) {
    cfg.route(NOTICES, web::post().to(take_notice))
        .route(TICKETS, web::post().to(take_ticket));
}

#[async_trait]
impl Peers for Nodes {
    async fn tell(&self, notice: &Notice) -> StoreResult<()> {
        let others = self.neighbours.others().await?;
        let told = others.iter().map(|node| async {
            let told = tokio::time::timeout(PATIENCE, self.tell_one(node.id, notice)).await;
            match told {
                Ok(Ok(())) => Ok(()),
                Ok(Err(problem)) => Err(format!("node {} could not be told: {problem}", node.id)),
                Err(_elapsed) => Err(format!("node {} does not answer in time", node.id)),
            }
        });
        match join_all(told).await.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(why) => Err(StoreError::Unavailable(why)),
        }
    }
}

impl Nodes {
    async fn tell_one(&self, node: NodeId, notice: &Notice) -> Result<(), Problem> {
        let answer = self.send(node, self.to_a_node(node, NOTICES, notice).await?).await?;
        if answer.status().is_success() {
            Ok(())
        } else {
            Err(Problem::new(
                Code::WrongNode,
                format!("it answered {}", answer.status()),
            ))
        }
    }

    /// A request of this node's own.
    async fn to_a_node<T: Serialize>(
        &self,
        node: NodeId,
        path: &str,
        body: &T,
    ) -> Result<reqwest::RequestBuilder, Problem> {
        let body = serde_json::to_vec(body).map_err(|error| Problem::internal(&error))?;
        let request = self.request(node, Method::POST, path, None, body.into()).await?;
        Ok(request.header(reqwest::header::CONTENT_TYPE, "application/json"))
    }

    /// A ticket that says which node gave it out.
    pub(in crate::http) fn named(&self, ticket: &str) -> String {
        format!("{ticket}.{}", self.neighbours.own())
    }

    async fn redeem_at(&self, node: NodeId, ticket: &str) -> Result<Principal, Problem> {
        let ticket = Ticket {
            ticket: ticket.to_owned(),
        };
        let request = self.to_a_node(node, TICKETS, &ticket).await?;
        let answer = tokio::time::timeout(PATIENCE, self.send(node, request))
            .await
            .map_err(|_elapsed| Problem::wrong_node())??;
        if !answer.status().is_success() {
            return Err(AuthError::NoTicket.into());
        }
        answer.json().await.map_err(|error| Problem::internal(&error))
    }
}

/// Takes a ticket that any node gave out; among several it names the one.
///
/// # Errors
/// It is unknown, used or expired, or the node that gave it out is gone.
pub async fn redeem(state: &AppState, ticket: &str) -> Result<Principal, Problem> {
    if let Some(nodes) = &state.nodes
        && let Some((local, node)) = ticket.split_once('.')
    {
        let node: NodeId = node.parse().map_err(|_| AuthError::NoTicket)?;
        if node == nodes.neighbours.own() {
            return Ok(state.auth.redeem_ticket(local).await?);
        }
        return match nodes.redeem_at(node, local).await {
            // Whoever is dead has taken its tickets along.
            Err(problem) if problem.code == Code::WrongNode => Err(AuthError::NoTicket.into()),
            redeemed => redeemed,
        };
    }
    Ok(state.auth.redeem_ticket(ticket).await?)
}

/// The hop of a node's own request; nobody else may.
fn from_a_node(request: &HttpRequest) -> Result<(), Problem> {
    match super::accepted(request)? {
        Some(hop) if hop.who.is_none() => Ok(()),
        Some(_) => Err(Problem::new(Code::Forbidden, "this is for nodes only")),
        None => Err(Problem::new(Code::NotFound, "there is nothing here")),
    }
}

async fn take_ticket(
    state: web::Data<AppState>,
    request: HttpRequest,
    body: web::Payload,
) -> Result<HttpResponse, Problem> {
    from_a_node(&request)?;
    let Ticket { ticket } = read(&request, body).await?;
    let principal = state.auth.redeem_ticket(&ticket).await?;
    Ok(HttpResponse::Ok().json(principal))
}

async fn take_notice(
    state: web::Data<AppState>,
    request: HttpRequest,
    body: web::Payload,
) -> Result<HttpResponse, Problem> {
    from_a_node(&request)?;
    let notice: Notice = read(&request, body).await?;
    to_the_end(async move {
        let own_index = state.nodes.as_ref().and_then(|nodes| nodes.index.as_ref());
        match notice {
            Notice::Restored { tenant, dialogues } => {
                state.sessions.was_restored(&TenantScope::new(tenant), dialogues).await;
            }
            Notice::Closed { tenant, sessions } => {
                state.sessions.were_closed(&TenantScope::new(tenant), sessions).await;
            }
            Notice::Authored { tenant, world } => state.sessions.forget_authored(&TenantScope::new(tenant), &world),
            Notice::Indexed { tenant, facts } => {
                if let Some(index) = own_index {
                    index.refresh(&TenantScope::new(tenant), &facts).await?;
                }
            }
            notice @ (Notice::Tenant { .. } | Notice::Revoked { .. }) => standing::take(&state, &notice).await,
            Notice::Cleared { tenant } => {
                if let Some(index) = own_index {
                    index.forget(&TenantScope::new(tenant)).await?;
                }
            }
        }
        Ok(HttpResponse::NoContent().finish())
    })
    .await
}

/// The body, once it is known who sends it.
async fn read<T: DeserializeOwned>(request: &HttpRequest, body: web::Payload) -> Result<T, Problem> {
    let body = body
        .to_bytes_limited(MAX_BYTES)
        .await
        .map_err(|_| {
            Problem::new(
                Code::PayloadTooLarge,
                format!("the body is larger than {MAX_BYTES} bytes"),
            )
        })?
        .map_err(|error| Problem::new(Code::MalformedRequest, error.to_string()))?;
    super::check_body(request, &body)?;
    serde_json::from_slice(&body).map_err(|error| Problem::new(Code::MalformedJson, error.to_string()))
}
