//! Whether a node is reached at its own `node.url`: it asks itself there before the others hear of it. With a wrong URL they
//! would send its requests to somebody else, or nowhere.
//!
//! The question is a hop to this node's id, which is new with each process: no other node believes it, and nobody else
//! knows what to answer. An answer also shows that nothing on the way changes a path or drops the header.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use reqwest::{Method, StatusCode, header};
use tokio::time::{sleep, timeout};

use super::{NodeClient, node_auth};
use crate::http::{
    errors::{Code, Problem},
    health,
};

const SELF_CHECK_PATH: &str = "/internal/v1/self";
/// How long a node may take to be reached at its URL: a proxy or a name server may only just have heard of it.
const SELF_CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// One try, and the time between two that failed.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPT_PAUSE: Duration = Duration::from_millis(250);
/// How many answers in a row have to be its own, each over a new connection: behind a balancer some are another node's.
const REQUIRED_SUCCESSES: u32 = 5;

/// Why a question did not come back to this node.
#[derive(Debug, thiserror::Error)]
pub enum OwnUrlError {
    /// It will not, however often it is asked.
    #[error("somebody else is there, who answers {0}")]
    OtherServer(StatusCode),
    /// Perhaps not yet.
    #[error("{0}")]
    Unreachable(String),
}

/// What a node answers before it is one of the others: that question, that it lives, and that it is not ready.
pub fn configure_own_url(cfg: &mut web::ServiceConfig) {
    cfg.route(SELF_CHECK_PATH, web::get().to(answer_self_check))
        .service(health::healthz)
        .default_service(web::to(starting_error));
}

impl NodeClient {
    /// Returns once this node has reached itself at its URL. Somebody has to serve [`configure_own_url`] meanwhile.
    ///
    /// # Errors
    /// Somebody else is there, or nobody was for ten seconds.
    pub async fn verify_own_url(&self) -> Result<(), OwnUrlError> {
        let began = self.clock.monotonic_now();
        let mut in_a_row = 0;
        while in_a_row < REQUIRED_SUCCESSES {
            match self.request_itself().await {
                Ok(()) => in_a_row += 1,
                Err(why @ OwnUrlError::OtherServer(_)) => return Err(why),
                Err(why) if self.clock.monotonic_now().saturating_duration_since(began) >= SELF_CHECK_TIMEOUT => {
                    return Err(why);
                }
                Err(why) => {
                    tracing::info!(url = %self.own_url, %why, "this node is not reached at node.url yet");
                    in_a_row = 0;
                    sleep(ATTEMPT_PAUSE).await;
                }
            }
        }
        Ok(())
    }

    async fn request_itself(&self) -> Result<(), OwnUrlError> {
        let own = self.neighbours.own_id();
        let question = self
            .signed_request(own, Method::GET, SELF_CHECK_PATH, None, Bytes::new())
            .await;
        let question = question.map_err(|problem| OwnUrlError::Unreachable(problem.to_string()))?;
        let question = question.header(header::CONNECTION, "close");
        let asked = timeout(ATTEMPT_TIMEOUT, async {
            let answer = question.send().await?;
            Ok::<_, reqwest::Error>((answer.status(), answer.text().await?))
        });
        let nobody = match asked.await {
            Ok(Ok((StatusCode::OK, id))) if id == own.to_string() => return Ok(()),
            Ok(Ok((status, _))) if status.is_server_error() => format!("what is there answers {status}"),
            Ok(Ok((status, _))) => return Err(OwnUrlError::OtherServer(status)),
            Ok(Err(error)) if error.is_connect() => "no connection can be opened".to_owned(),
            Ok(Err(_)) => "what is there does not speak HTTP".to_owned(),
            Err(_elapsed) => format!("there is no answer within {} s", ATTEMPT_TIMEOUT.as_secs()),
        };
        Err(OwnUrlError::Unreachable(nobody))
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
