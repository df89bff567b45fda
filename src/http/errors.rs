//! The only mapping from errors to client messages: a problem document over REST (RFC 9457), an `error` event on the
//! socket. The codes are the same in REST and on the socket.

use std::{fmt, time::Duration};

use actix_web::{
    HttpResponse, HttpResponseBuilder, ResponseError,
    http::{
        StatusCode,
        header::{self, HeaderValue},
    },
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use colloquy_actors::DialogueError;
use colloquy_core::{ids::NodeId, shares::NoCapacity};
use colloquy_dialogue::{remember::ManualEditError, turn::TurnError};
use colloquy_ports::{StoreError, ledger::usage::OverBudget, llm::LlmError};
use colloquy_tenancy::{
    auth::{AuthError, MintError},
    limits::{LimitExceeded, RateLimited, TooManyAtOnce},
};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:ident, $title:literal;)+) => {
        /// Every error code, with its stable name, status and title.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $name,)+ }

        impl Code {
            /// Every code, for the documents.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
            /// The stable, machine-readable name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }
            /// A fixed sentence, the same for every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }
        }
    };
}

codes! {
    MalformedJson = "malformed_json", BAD_REQUEST, "The body is not JSON";
    MalformedRequest = "malformed_request", BAD_REQUEST, "The request cannot be read";
    UnknownType = "unknown_type", BAD_REQUEST, "There is no such message type";
    ValidationFailed = "validation_failed", UNPROCESSABLE_ENTITY, "Some fields are not valid";
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The body must be application/json";
    PayloadTooLarge = "payload_too_large", PAYLOAD_TOO_LARGE, "The body is too large";
    Unauthenticated = "unauthenticated", UNAUTHORIZED, "A valid token is needed";
    TokenExpired = "token_expired", UNAUTHORIZED, "The token has expired";
    TokenRevoked = "token_revoked", UNAUTHORIZED, "The token was revoked";
    Forbidden = "forbidden", FORBIDDEN, "The caller may not do this";
    WrongResumeToken = "wrong_resume_token", FORBIDDEN, "The resume token is wrong";
    NotFound = "not_found", NOT_FOUND, "The object does not exist";
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "The method is not allowed for this path";
    VersionMismatch = "version_mismatch", PRECONDITION_FAILED, "The stored version is another one";
    IdempotencyMismatch = "idempotency_mismatch", UNPROCESSABLE_ENTITY, "The idempotency key was used for another request";
    IdempotencyInFlight = "idempotency_in_flight", CONFLICT, "The same request is being handled";
    ActionAnswered = "action_answered", CONFLICT, "The action has another answer";
    ActionExpired = "action_expired", CONFLICT, "The action has expired";
    ActionUndone = "action_undone", CONFLICT, "The action was taken back with its turn";
    SessionClosed = "session_closed", CONFLICT, "The session is closed";
    ConversationEnded = "conversation_ended", CONFLICT, "The conversation has ended";
    TurnInProgress = "turn_in_progress", CONFLICT, "A reply is running";
    TurnUnsaid = "turn_unsaid", CONFLICT, "The line or its turn was taken back";
    TurnNotRunning = "turn_not_running", CONFLICT, "The turn is not running";
    NpcDead = "npc_dead", CONFLICT, "The NPC is dead";
    TurnCut = "turn_cut", CONFLICT, "The turn was cut before the reply began";
    StaleHead = "stale_head", CONFLICT, "The dialogue has another last turn";
    NothingToResume = "nothing_to_resume", CONFLICT, "There is no cut reply to resume";
    NothingToRegenerate = "nothing_to_regenerate", CONFLICT, "There is no reply to regenerate";
    FactUnsaid = "fact_unsaid", CONFLICT, "The turn of the fact was taken back";
    FactEnded = "fact_ended", CONFLICT, "The fact has ended";
    JobNotDead = "job_not_dead", CONFLICT, "The job is not dead";
    TenantExists = "tenant_exists", CONFLICT, "The tenant exists already";
    TooManyRevocations = "too_many_revocations", CONFLICT, "The tenant has the maximum number of revoked tokens";
    TooManySaves = "too_many_saves", CONFLICT, "The world has the maximum number of saves";
    TooManyScenarios = "too_many_scenarios", CONFLICT, "The NPC has the maximum number of scenarios";
    TooManyDirectives = "too_many_directives", CONFLICT, "The world has the maximum number of directives";
    TooManyWebhooks = "too_many_webhooks", CONFLICT, "The tenant has the maximum number of webhooks";
    WebhookDisabled = "webhook_disabled", CONFLICT, "The webhook is disabled";
    TooManyLoreEntries = "too_many_lore_entries", CONFLICT, "The world has the maximum number of lore entries";
    KeyTaken = "key_taken", CONFLICT, "The key belongs to another turn";
    Replaced = "replaced", CONFLICT, "A newer connection has taken over the session";
    ResumeExpired = "resume_expired", CONFLICT, "The missed events are no longer available";
    LineTooLong = "line_too_long", UNPROCESSABLE_ENTITY, "The line is too long";
    LineEmpty = "line_empty", UNPROCESSABLE_ENTITY, "The line is empty";
    PromptTooLarge = "prompt_too_large", UNPROCESSABLE_ENTITY, "Persona and rules exceed the prompt budget";
    TooManySessions = "too_many_sessions", TOO_MANY_REQUESTS, "This socket has too many sessions open";
    BudgetSpent = "budget_spent", TOO_MANY_REQUESTS, "The tenant has used up a budget";
    PlayerBudgetSpent = "player_budget_spent", TOO_MANY_REQUESTS, "The player has used up its share of a budget";
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "Too many requests";
    QueueFull = "queue_full", TOO_MANY_REQUESTS, "The queue of lines is full";
    NotSupported = "not_supported", NOT_IMPLEMENTED, "This server does not support this";
    ModelFailed = "model_failed", BAD_GATEWAY, "The language model failed";
    ModelTimeout = "model_timeout", GATEWAY_TIMEOUT, "The language model did not answer in time";
    ModelUnavailable = "model_unavailable", SERVICE_UNAVAILABLE, "The language model cannot be reached";
    EmbedderUnavailable = "embedder_unavailable", SERVICE_UNAVAILABLE, "The embedder cannot be reached";
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "The server is at its limit";
    Draining = "draining", SERVICE_UNAVAILABLE, "The server is shutting down";
    TurnLost = "turn_lost", SERVICE_UNAVAILABLE, "The turn was lost with the server that ran it";
    WrongNode = "wrong_node", SERVICE_UNAVAILABLE, "The session belongs to another node";
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE, "A store cannot be reached";
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT, "The request did not arrive in time";
    LedgerNotWritable = "ledger_not_writable", SERVICE_UNAVAILABLE, "Nothing can be written to the ledger";
    ClockOff = "clock_off", SERVICE_UNAVAILABLE, "The clock of this node is wrong";
    Idle = "idle", REQUEST_TIMEOUT, "The client was silent for too long";
    SlowConsumer = "slow_consumer", SERVICE_UNAVAILABLE, "The client does not keep up";
    Internal = "internal", INTERNAL_SERVER_ERROR, "An internal error occurred";
}

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Path of the field, as `persona.boundaries[2]`.
    pub param: String,
    /// What is wrong with the field.
    pub detail: String,
}

/// An error for a client. Becomes a problem document or an `error` event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub code: Code,
    pub detail: String,
    pub param: Option<String>,
    pub errors: Vec<FieldError>,
    pub retry_after: Option<Duration>,
    /// For `method_not_allowed`: the allowed methods.
    pub allow: Option<Box<str>>,
    /// For `wrong_node`: the node that owns the dialogue. Not shown to clients.
    pub owner: Option<Box<NodeId>>,
}

/// The body of an error response (`application/problem+json`).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProblemBody {
    /// `about:blank`: the kind of error is in `code`.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    /// Stable, machine-readable error code.
    pub code: String,
    /// The invalid field, if there is exactly one.
    pub param: Option<String>,
    /// The request's id, also in `X-Request-Id` and in the server's log.
    pub request_id: Option<String>,
    /// Every invalid field, for `validation_failed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

impl ProblemBody {
    /// The document of a problem.
    #[must_use]
    pub fn new(problem: &Problem, request_id: Option<&str>) -> Self {
        Self {
            kind: "about:blank".to_owned(),
            title: problem.code.title().to_owned(),
            status: problem.code.status().as_u16(),
            detail: problem.detail.clone(),
            code: problem.code.as_str().to_owned(),
            param: problem.param.clone(),
            request_id: request_id.map(str::to_owned),
            errors: problem.errors.clone(),
        }
    }

    /// The problem of a document of another node. `None`: the code is one of a newer server.
    #[must_use]
    pub fn into_problem(self) -> Option<Problem> {
        let code = Code::ALL.iter().find(|code| code.as_str() == self.code)?;
        Some(Problem {
            param: self.param,
            errors: self.errors,
            ..Problem::new(*code, self.detail)
        })
    }
}

impl Problem {
    /// A problem with only a code and a sentence.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            param: None,
            errors: Vec::new(),
            retry_after: None,
            allow: None,
            owner: None,
        }
    }
    #[must_use]
    pub fn invalid_field(param: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::invalid_fields(vec![FieldError {
            param: param.into(),
            detail: detail.into(),
        }])
    }
    #[must_use]
    pub fn invalid_fields(errors: Vec<FieldError>) -> Self {
        let detail = errors
            .iter()
            .map(|error| format!("{}: {}", error.param, error.detail))
            .collect::<Vec<_>>()
            .join("; ");
        Self {
            param: match errors.as_slice() {
                [only] => Some(only.param.clone()),
                _ => None,
            },
            errors,
            ..Self::new(Code::ValidationFailed, detail)
        }
    }
    /// The answer for an unknown object, or an object of another tenant.
    #[must_use]
    pub fn not_found(object_kind: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no such {object_kind}"))
    }
    /// Hides an internal error: the client gets an opaque id that is also in the log.
    #[must_use]
    pub fn internal_error(error: &dyn fmt::Display) -> Self {
        let id = format!("err_{:016x}", rand::random::<u64>());
        tracing::error!(error_id = %id, %error, "internal error");
        Self::new(
            Code::Internal,
            format!("an internal error; the server's log has it as {id}"),
        )
    }
    /// The dialogue is on another node, which does not answer or no longer owns the dialogue.
    #[must_use]
    pub fn wrong_node() -> Self {
        Self::new(Code::WrongNode, "the dialogue lives on another node; try again")
    }
    /// Adds a time to wait.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }
    /// Adds the name of the invalid field.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Builds the response. The middleware, which knows the request id, passes `request_id`.
    #[must_use]
    pub fn to_response(&self, request_id: Option<&str>) -> HttpResponse {
        let status = self.code.status();
        let mut builder = HttpResponseBuilder::new(status);
        if let Some(delay) = self.retry_delay() {
            // Whole seconds, rounded up, at least one: zero would invite a busy loop.
            let seconds = delay.as_millis().div_ceil(1_000).max(1);
            builder.insert_header((header::RETRY_AFTER, seconds.to_string()));
        }
        if status == StatusCode::UNAUTHORIZED {
            builder.insert_header((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        }
        if let Some(allow) = &self.allow {
            builder.insert_header((header::ALLOW, &**allow));
        }
        builder
            .content_type("application/problem+json")
            .json(ProblemBody::new(self, request_id))
    }

    /// The time to wait, if waiting helps. 429 and 503 always have a time.
    #[must_use]
    pub fn retry_delay(&self) -> Option<Duration> {
        self.retry_after.or_else(|| {
            matches!(
                self.code.status(),
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
            )
            .then_some(Duration::from_secs(1))
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.detail)
    }
}
impl std::error::Error for Problem {}
impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.code.status()
    }
    fn error_response(&self) -> HttpResponse {
        self.to_response(None)
    }
}

impl From<DialogueError> for Problem {
    fn from(error: DialogueError) -> Self {
        let detail = error.to_string();
        match error {
            DialogueError::NotFound => Self::new(Code::NotFound, detail),
            DialogueError::NoWorld(_) => Self::new(Code::NotFound, detail).with_param("world_id"),
            DialogueError::NoNpc(_) => Self::new(Code::NotFound, detail).with_param("npc_id"),
            DialogueError::TakesNoPart(_) => Self::invalid_field("to", detail),
            DialogueError::Closed => Self::new(Code::SessionClosed, detail),
            DialogueError::Ended => Self::new(Code::ConversationEnded, detail),
            DialogueError::LineTooLong { .. } => Self::new(Code::LineTooLong, detail).with_param("text"),
            DialogueError::LineEmpty => Self::new(Code::LineEmpty, detail).with_param("text"),
            DialogueError::TurnInProgress { retry_after } => {
                Self::new(Code::TurnInProgress, detail).with_retry_after(retry_after)
            }
            DialogueError::QueueFull { retry_after, .. } => {
                Self::new(Code::QueueFull, detail).with_retry_after(retry_after)
            }
            DialogueError::Overloaded { retry_after } => {
                Self::new(Code::Overloaded, detail).with_retry_after(retry_after)
            }
            DialogueError::OverShare(over_share) => over_share.into(),
            DialogueError::OverBudget(over_budget) => over_budget.into(),
            DialogueError::Draining => Self::new(Code::Draining, detail),
            // The owner's id is of no use to a client.
            DialogueError::NotOwner { node } => Self {
                owner: Some(Box::new(node)),
                ..Self::wrong_node()
            },
            DialogueError::KeyReused => Self::new(Code::IdempotencyMismatch, detail).with_param("key"),
            DialogueError::TurnUnsaid => Self::new(Code::TurnUnsaid, detail).with_param("key"),
            DialogueError::NotRunning { .. } => Self::new(Code::TurnNotRunning, detail).with_param("turn"),
            DialogueError::NoSuchTurn { .. } => Self::new(Code::NotFound, detail).with_param("turn"),
            DialogueError::StaleHead { .. } => Self::new(Code::StaleHead, detail).with_param("if_head"),
            DialogueError::NpcDead(_) => Self::new(Code::NpcDead, detail),
            DialogueError::NothingToResume => Self::new(Code::NothingToResume, detail),
            DialogueError::NothingToRegenerate => Self::new(Code::NothingToRegenerate, detail),
            DialogueError::ResumeExpired { .. } => Self::new(Code::ResumeExpired, detail).with_param("last_seq"),
            DialogueError::Store(error) => error.into(),
        }
    }
}

impl From<NoCapacity> for Problem {
    fn from(no_capacity: NoCapacity) -> Self {
        let code = match no_capacity {
            NoCapacity::TenantShare(_) => Code::RateLimited,
            NoCapacity::Full(_) => Code::Overloaded,
        };
        Self::new(code, no_capacity.to_string()).with_retry_after(Duration::from_secs(1))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            error @ (StoreError::Unavailable(_) | StoreError::Collided(_) | StoreError::Disconnected(_)) => {
                tracing::warn!(%error, "a store is unavailable");
                Self::new(Code::StoreUnavailable, "a store cannot be reached; try again")
            }
            StoreError::NotWritable(cause) => {
                tracing::warn!(why = %cause, "a store is not writable");
                Self::new(Code::StoreUnavailable, "nothing can be stored at the moment; try again")
            }
            StoreError::OverBudget(of) => OverBudget {
                owner: "tenant",
                budget: of,
                retry_after: Duration::from_hours(1),
            }
            .into(),
            damage @ (StoreError::Corrupt(_) | StoreError::Rejected(_)) => Self::internal_error(&damage),
        }
    }
}

impl From<OverBudget> for Problem {
    fn from(over_budget: OverBudget) -> Self {
        let code = if over_budget.of_player() {
            Code::PlayerBudgetSpent
        } else {
            Code::BudgetSpent
        };
        Self::new(code, over_budget.to_string()).with_retry_after(over_budget.retry_after)
    }
}

impl From<LlmError> for Problem {
    fn from(error: LlmError) -> Self {
        if !matches!(error, LlmError::OverBudget(_)) {
            tracing::warn!(%error, "the model failed");
        }
        match error {
            LlmError::Timeout => Self::new(Code::ModelTimeout, "the language model did not answer in time"),
            LlmError::Unavailable(_) => Self::new(Code::ModelUnavailable, "the language model cannot be reached"),
            LlmError::RateLimited { retry_after } => {
                let problem = Self::new(Code::ModelUnavailable, "the language model limits requests");
                match retry_after {
                    Some(delay) => problem.with_retry_after(delay),
                    None => problem,
                }
            }
            // The endpoint's message may quote the prompt or name the account, and therefore stays in the log.
            LlmError::Refused(_) => Self::new(Code::ModelFailed, "the language model refused the request"),
            LlmError::Broken(_) => Self::new(Code::ModelFailed, "the language model's answer broke off"),
            LlmError::OverBudget(over_budget) => over_budget.into(),
        }
    }
}

impl From<&TurnError> for Problem {
    fn from(error: &TurnError) -> Self {
        match error {
            TurnError::OverBudget(over_budget) => (*over_budget).into(),
            TurnError::Model(error) => error.clone().into(),
            TurnError::Store(error) => error.clone().into(),
            TurnError::Fenced => Self::new(Code::WrongNode, error.to_string()),
            TurnError::Closed => Self::new(Code::SessionClosed, error.to_string()),
            TurnError::KeyTaken => Self::new(Code::KeyTaken, error.to_string()).with_param("key"),
            TurnError::Unsaid => Self::new(Code::TurnUnsaid, error.to_string()),
            TurnError::StaleHead => Self::new(Code::StaleHead, error.to_string()),
            TurnError::CutBeforeReply | TurnError::CalledTools(_) => Self::new(Code::TurnCut, error.to_string()),
            TurnError::TimedOut => Self::new(Code::ModelTimeout, error.to_string()),
            TurnError::NpcDead => Self::new(Code::NpcDead, "the NPC is dead, and does not answer in this world"),
            TurnError::PromptTooLarge { .. } => Self::new(Code::PromptTooLarge, error.to_string()),
            TurnError::Template(error) => Self::internal_error(error),
        }
    }
}

impl From<ManualEditError> for Problem {
    fn from(error: ManualEditError) -> Self {
        match error {
            ManualEditError::Store(error) => error.into(),
            ManualEditError::Embedder(LlmError::OverBudget(over_budget)) => over_budget.into(),
            ManualEditError::Embedder(error) => {
                tracing::warn!(%error, "the embedder failed");
                Self::new(
                    Code::EmbedderUnavailable,
                    "the embedder failed, and without an embedding the fact could not be found again",
                )
            }
        }
    }
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Store(error) => error.into(),
            AuthError::Expired => Self::new(Code::TokenExpired, error.to_string()),
            AuthError::Revoked => Self::new(Code::TokenRevoked, error.to_string()),
            other => Self::new(Code::Unauthenticated, other.to_string()),
        }
    }
}

impl From<MintError> for Problem {
    fn from(error: MintError) -> Self {
        match error {
            MintError::NoSecret => Self::new(Code::NotSupported, error.to_string()),
            MintError::PlayerMismatch => Self::invalid_field("player_id", error.to_string()),
            MintError::Signing => Self::internal_error(&error),
        }
    }
}

impl From<RateLimited> for Problem {
    fn from(error: RateLimited) -> Self {
        Self::new(Code::RateLimited, error.to_string()).with_retry_after(error.retry_after)
    }
}

impl From<TooManyAtOnce> for Problem {
    fn from(error: TooManyAtOnce) -> Self {
        Self::new(Code::RateLimited, error.to_string())
    }
}

impl From<LimitExceeded> for Problem {
    fn from(error: LimitExceeded) -> Self {
        match error {
            LimitExceeded::TooMany(error) => error.into(),
            LimitExceeded::NoPlace(error) => error.into(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use actix_web::body::to_bytes;

    use super::*;

    fn header_of<'a>(response: &'a HttpResponse, name: &str) -> &'a str {
        response.headers().get(name).unwrap().to_str().unwrap()
    }

    #[test]
    fn error_codes_are_distinct() {
        let names: std::collections::HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
    }

    #[actix_web::test]
    async fn problem_names_its_fields_and_retry_delay() {
        let problem = Problem::invalid_fields(vec![
            FieldError {
                param: "name".into(),
                detail: "is empty".into(),
            },
            FieldError {
                param: "rules[3]".into(),
                detail: "is too long".into(),
            },
        ]);
        let response = problem.to_response(Some("r1"));
        assert_eq!(response.status(), 422);
        assert_eq!(header_of(&response, "content-type"), "application/problem+json");
        let body: ProblemBody = serde_json::from_slice(&to_bytes(response.into_body()).await.unwrap()).unwrap();
        assert_eq!(body.errors.len(), 2);
        assert_eq!((body.param, body.request_id.as_deref()), (None, Some("r1")));

        let limited = Problem::new(Code::RateLimited, "slow down").with_retry_after(Duration::from_millis(1_200));
        assert_eq!(header_of(&limited.to_response(None), "retry-after"), "2");
        let draining = Problem::new(Code::Draining, "").to_response(None);
        assert_eq!(header_of(&draining, "retry-after"), "1");
    }

    #[test]
    fn problem_hides_messages_of_stores_and_models() {
        let secret = "password=hunter2";
        for problem in [
            Problem::from(StoreError::Unavailable(secret.into())),
            Problem::from(StoreError::Collided(secret.into())),
            Problem::from(StoreError::Disconnected(secret.into())),
            Problem::from(StoreError::NotWritable(secret.into())),
            Problem::from(StoreError::Corrupt(secret.into())),
            Problem::from(StoreError::Rejected(secret.into())),
            Problem::from(LlmError::Unavailable(secret.into())),
            Problem::from(LlmError::Refused(secret.into())),
            Problem::from(LlmError::Broken(secret.into())),
        ] {
            assert!(!problem.detail.contains("hunter2"), "{problem}");
        }
    }
}
