//! The self-check: a node calls its own `node.url` before the other nodes learn the URL. With a wrong URL, the others
//! would send requests to a foreign server or to no server.
//!
//! The check is a forward token for this node's id, which is new in each process. No other node accepts the token, and
//! no other server knows the right answer. The answer also proves that no proxy changes a path or drops the header.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use reqwest::{Method, StatusCode, header};
use tokio::time::{sleep, timeout};

use super::{client::NodeClient, node_auth};
use crate::{
    errors::{Code, Problem},
    health,
};

const SELF_CHECK_PATH: &str = "/internal/v1/self";
/// How long the URL may be unreachable: a proxy or a name server may learn of the node late.
const SELF_CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of one attempt, and the pause after a failure.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPT_PAUSE: Duration = Duration::from_millis(250);
/// Required number of own answers in a row, each over a new connection. Behind a load balancer, some answers come from
/// other nodes.
const REQUIRED_SUCCESSES: u32 = 5;

/// Why a self-check did not reach this node.
#[derive(Debug, thiserror::Error)]
pub enum OwnUrlError {
    /// Permanent: another server has this URL.
    #[error("another server answers there: {0}")]
    OtherServer(StatusCode),
    /// Perhaps temporary.
    #[error("{0}")]
    Unreachable(String),
}

/// Registers the routes before a node joins: the self-check, `healthz`, and "starting" for all other requests.
pub fn configure_own_url(cfg: &mut web::ServiceConfig) {
    cfg.route(SELF_CHECK_PATH, web::get().to(answer_self_check))
        .service(health::healthz)
        .default_service(web::to(starting_error));
}

impl NodeClient {
    /// Returns after this node has reached itself at its URL. A server with [`configure_own_url`] must run meanwhile.
    ///
    /// # Errors
    /// Another server answers, or no server did for ten seconds.
    pub async fn verify_own_url(&self) -> Result<(), OwnUrlError> {
        let started_at = self.clock.monotonic_now();
        let mut in_a_row = 0;
        while in_a_row < REQUIRED_SUCCESSES {
            match self.request_itself().await {
                Ok(()) => in_a_row += 1,
                Err(error @ OwnUrlError::OtherServer(_)) => return Err(error),
                Err(error)
                    if self.clock.monotonic_now().saturating_duration_since(started_at) >= SELF_CHECK_TIMEOUT =>
                {
                    return Err(error);
                }
                Err(error) => {
                    tracing::info!(url = %self.own_url, why = %error, "this node is not yet reachable at node.url");
                    in_a_row = 0;
                    sleep(ATTEMPT_PAUSE).await;
                }
            }
        }
        Ok(())
    }

    async fn request_itself(&self) -> Result<(), OwnUrlError> {
        let own_id = self.neighbours.own_id();
        let request = self
            .signed_request(own_id, Method::GET, SELF_CHECK_PATH, None, Bytes::new())
            .await;
        let request = request.map_err(|problem| OwnUrlError::Unreachable(problem.to_string()))?;
        let request = request.header(header::CONNECTION, "close");
        let exchange = timeout(ATTEMPT_TIMEOUT, async {
            let answer = request.send().await?;
            Ok::<_, reqwest::Error>((answer.status(), answer.text().await?))
        });
        let cause = match exchange.await {
            Ok(Ok((StatusCode::OK, id))) if id == own_id.to_string() => return Ok(()),
            Ok(Ok((status, _))) if status.is_server_error() => format!("the server there answers {status}"),
            Ok(Ok((status, _))) => return Err(OwnUrlError::OtherServer(status)),
            Ok(Err(error)) if error.is_connect() => "no connection can be opened".to_owned(),
            Ok(Err(_)) => "the server there does not speak HTTP".to_owned(),
            Err(_elapsed) => format!("there is no answer within {} s", ATTEMPT_TIMEOUT.as_secs()),
        };
        Err(OwnUrlError::Unreachable(cause))
    }
}

async fn answer_self_check(nodes: web::Data<NodeClient>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    match node_auth::verify_forwarded(&nodes, &request)? {
        Some(_) => Ok(HttpResponse::Ok().body(nodes.neighbours.own_id().to_string())),
        None => Err(Problem::new(Code::NotFound, "there is nothing here")),
    }
}

async fn starting_error() -> Result<HttpResponse, Problem> {
    Err(Problem::new(Code::Draining, "this server is starting").with_retry_after(Duration::from_secs(1)))
}
