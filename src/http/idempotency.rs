//! `Idempotency-Key`: a repeated POST gets the first answer, even if the connection broke.
//!
//! Answers are stored for a day, so a stored answer must contain no secret. An answer with a secret is stored without
//! the secret ([`IdempotentResponse::with_stored_body`]). A repeated request gets a new secret
//! ([`run_once_with_replay`]).

use std::future::Future;

use actix_web::{
    HttpMessage as _, HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web,
};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{
    AppState,
    errors::{Code, Problem},
    uncancelled::run_uncancelled,
};
use colloquy_core::scope::{Principal, Role};
use colloquy_memory::text::to_hexadecimal;
use colloquy_ports::ledger::idempotency::KeyState;

/// The answer of a creating POST.
pub struct IdempotentResponse {
    status: StatusCode,
    body: String,
    location: Option<String>,
    /// The body to store, if different from `body`.
    stored_body: Option<String>,
}

impl IdempotentResponse {
    /// 200 with the result.
    ///
    /// # Errors
    /// As [`Self::created`].
    pub fn done(body: &impl Serialize) -> Result<Self, Problem> {
        Ok(Self {
            status: StatusCode::OK,
            body: serde_json::to_string(body).map_err(|error| Problem::internal_error(&error))?,
            location: None,
            stored_body: None,
        })
    }
    /// 201 with the new object and its location.
    ///
    /// # Errors
    /// The body cannot be written as JSON: a defect.
    pub fn created(body: &impl Serialize, location: String) -> Result<Self, Problem> {
        Ok(Self {
            status: StatusCode::CREATED,
            body: serde_json::to_string(body).map_err(|error| Problem::internal_error(&error))?,
            location: Some(location),
            stored_body: None,
        })
    }
    /// Stores `body` for repeated requests in place of the current body.
    ///
    /// # Errors
    /// As [`Self::created`].
    pub fn with_stored_body(mut self, body: &impl Serialize) -> Result<Self, Problem> {
        self.stored_body = Some(serde_json::to_string(body).map_err(|error| Problem::internal_error(&error))?);
        Ok(self)
    }
    /// The stored body.
    pub fn body(&self) -> &str {
        &self.body
    }
    /// Replaces the body.
    ///
    /// # Errors
    /// As [`Self::created`].
    pub fn with_body(mut self, body: &impl Serialize) -> Result<Self, Problem> {
        self.body = serde_json::to_string(body).map_err(|error| Problem::internal_error(&error))?;
        Ok(self)
    }
    fn into_response(self) -> HttpResponse {
        let mut builder = HttpResponse::build(self.status);
        if let Some(location) = self.location {
            builder.insert_header((header::LOCATION, location));
        }
        builder.content_type("application/json").body(self.body)
    }
}

/// Runs `work` once per key of this caller and route. The work finishes even if the client hangs up, so a retry finds
/// the answer.
///
/// # Errors
/// The errors of `work`. Also if the key was used with another body, or is still in flight.
pub async fn run_once<F>(
    state: &web::Data<AppState>,
    principal: &Principal,
    request: &HttpRequest,
    raw: &[u8],
    work: F,
) -> Result<HttpResponse, Problem>
where
    F: Future<Output = Result<IdempotentResponse, Problem>> + 'static,
{
    run_once_with_replay(state, principal, request, raw, work, |stored_body| {
        std::future::ready(Ok(stored_body))
    })
    .await
}

/// As [`run_once`], for an answer that is stored in part: `replay` completes the answer for a repeated request.
///
/// # Errors
/// As [`run_once`], and the errors of `replay`.
pub async fn run_once_with_replay<F, A, B>(
    state: &web::Data<AppState>,
    principal: &Principal,
    request: &HttpRequest,
    raw: &[u8],
    work: F,
    replay: A,
) -> Result<HttpResponse, Problem>
where
    F: Future<Output = Result<IdempotentResponse, Problem>> + 'static,
    A: FnOnce(IdempotentResponse) -> B,
    B: Future<Output = Result<IdempotentResponse, Problem>> + 'static,
{
    let reservation = match idempotency_key(request)? {
        None => None,
        Some(key) => {
            // Hashed: clients choose the parts, and the parts have any length.
            let caller = (&principal.subject, principal.role, &principal.player);
            let bound = principal.world.as_ref().filter(|_| principal.role != Role::Player);
            let bound = bound.map_or_else(String::new, |world| format!("{world}\n"));
            let key = to_hexadecimal(&Sha256::digest(format!("{}\n{caller:?}\n{bound}{key}", request.path())));
            match Reservation::reserve_key(state, principal, key, raw).await? {
                ReservationOutcome::Acquired(reservation) => Some(reservation),
                ReservationOutcome::Answered(stored) => {
                    return run_uncancelled(replay(stored))
                        .await
                        .map(IdempotentResponse::into_response);
                }
            }
        }
    };
    run_uncancelled(async move {
        let outcome = work.await;
        if let Some(reservation) = reservation {
            reservation.store_or_release(outcome.as_ref().ok()).await;
        }
        outcome
    })
    .await
    .map(IdempotentResponse::into_response)
}

struct Reservation {
    state: web::Data<AppState>,
    scope: colloquy_core::scope::TenantScope,
    key: String,
}

enum ReservationOutcome {
    Acquired(Reservation),
    Answered(IdempotentResponse),
}

/// The stored form of an answer, with the location for a replay.
#[derive(Serialize, serde::Deserialize)]
struct StoredResponse {
    location: Option<String>,
    body: String,
}

impl Reservation {
    async fn reserve_key(
        state: &web::Data<AppState>,
        principal: &Principal,
        key: String,
        raw: &[u8],
    ) -> Result<ReservationOutcome, Problem> {
        let scope = principal.scope();
        let fingerprint: [u8; 32] = Sha256::digest(raw).into();
        let store = &state.services.ledger.idempotency;
        let now = state.services.clock.now();
        Ok(match store.reserve_key(&scope, &key, &fingerprint, now).await? {
            KeyState::Reserved => ReservationOutcome::Acquired(Self {
                state: state.clone(),
                scope,
                key,
            }),
            KeyState::InFlight => {
                return Err(Problem::new(
                    Code::IdempotencyInFlight,
                    "the same request is being handled; try again",
                )
                .with_retry_after(std::time::Duration::from_secs(1)));
            }
            KeyState::Mismatch => {
                return Err(Problem::new(
                    Code::IdempotencyMismatch,
                    "this Idempotency-Key was used with another body",
                )
                .with_param("Idempotency-Key"));
            }
            KeyState::Answered { status, body } => {
                let record: StoredResponse =
                    serde_json::from_str(&body).map_err(|error| Problem::internal_error(&error))?;
                ReservationOutcome::Answered(IdempotentResponse {
                    status: StatusCode::from_u16(status).unwrap_or(StatusCode::OK),
                    body: record.body,
                    location: record.location,
                    stored_body: None,
                })
            }
        })
    }

    /// Stores a successful answer. Otherwise frees the key, so that the client may correct or repeat the request.
    async fn store_or_release(self, answer: Option<&IdempotentResponse>) {
        let store = &self.state.services.ledger.idempotency;
        let result = match answer {
            None => store.release_key(&self.scope, &self.key).await,
            Some(answer) => {
                let record = StoredResponse {
                    location: answer.location.clone(),
                    body: answer.stored_body.as_ref().unwrap_or(&answer.body).clone(),
                };
                let text = serde_json::to_string(&record).unwrap_or_default();
                store
                    .record_answer(&self.scope, &self.key, answer.status.as_u16(), &text)
                    .await
            }
        };
        if let Err(error) = result {
            tracing::warn!(%error, "an idempotency key could not be updated; it expires in a minute");
        }
    }
}

/// Marks a request whose handler has accepted its key: a second execution has the same result.
#[derive(Debug, Clone, Copy)]
struct KeyedRequest;

/// True if the handler has accepted a key from the header or the body. A header that no handler reads makes no request
/// safe.
pub fn has_idempotency_key(request: &HttpRequest) -> bool {
    request.extensions().contains::<KeyedRequest>()
}

/// The request's `Idempotency-Key`.
///
/// # Errors
/// The key is empty, longer than 128 characters, or not printable ASCII.
pub fn idempotency_key(request: &HttpRequest) -> Result<Option<String>, Problem> {
    let Some(header_value) = request.headers().get("idempotency-key") else {
        return Ok(None);
    };
    let text = header_value.to_str().unwrap_or_default();
    if (1..=128).contains(&text.len()) && text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        request.extensions_mut().insert(KeyedRequest);
        Ok(Some(text.to_owned()))
    } else {
        Err(Problem::invalid_field(
            "Idempotency-Key",
            "must be 1 to 128 printable ASCII characters",
        ))
    }
}

/// The key of a request that may also have a key in its body.
///
/// # Errors
/// As [`idempotency_key`]; also if the two keys differ.
pub fn header_or_body_key(request: &HttpRequest, in_body: Option<String>) -> Result<Option<String>, Problem> {
    match (idempotency_key(request)?, in_body) {
        (Some(header), Some(body)) if header != body => Err(Problem::invalid_field(
            "key",
            "is another than that of the Idempotency-Key header",
        )),
        (header, body) => {
            if body.is_some() {
                request.extensions_mut().insert(KeyedRequest);
            }
            Ok(body.or(header))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn idempotency_key_counts_only_after_its_handler_read_it() {
        let request = TestRequest::post()
            .insert_header(("idempotency-key", "k1"))
            .to_http_request();
        assert!(!has_idempotency_key(&request), "nobody has read it");
        assert_eq!(header_or_body_key(&request, None).unwrap().as_deref(), Some("k1"));
        assert!(has_idempotency_key(&request));

        let request = TestRequest::post().to_http_request();
        assert_eq!(header_or_body_key(&request, None).unwrap(), None);
        assert!(!has_idempotency_key(&request), "there is none");
        assert_eq!(
            header_or_body_key(&request, Some("k2".into())).unwrap().as_deref(),
            Some("k2")
        );
        assert!(has_idempotency_key(&request));
    }
}
