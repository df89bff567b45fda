//! The transport under async-openai: one pooled client, one attempt, distinct failures.

use std::{
    future::Future,
    pin::Pin,
    sync::Once,
    task::{Context, Poll},
    time::Duration,
};

use async_openai::{Client, config::OpenAIConfig, error::OpenAIError, middleware::HttpRequestFactory};
use bytes::Bytes;
use futures_util::StreamExt as _;
use reqwest::{
    Response, StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use colloquy_ports::{llm::LlmError, redaction};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The time limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The lifetime of an unused connection.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// The largest answer that is not a stream, in bytes: the most tokens that a setting allows are about a tenth of it.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// The same for embeddings: the most texts of a call with the longest vectors are about a third of it.
const MAX_EMBEDDINGS_BYTES: usize = 64 << 20;
/// The largest part of an error's body that is read, in bytes.
const ERROR_BODY_BYTES: usize = 16 * 1024;

/// Installs *ring* as the process's TLS implementation, once. reqwest has none of its own. Without this call, even a
/// client for plain `http://` cannot be created. A repeated call, or another implementation installed earlier, does no
/// harm.
pub fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that another implementation is already installed, which also serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// The reason why an endpoint is unusable. Contains no secret.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InvalidEndpoint {
    #[error("the base URL `{url}` is not an http(s) URL: {reason}")]
    Url { url: String, reason: String },
    #[error("the API key has characters that a header cannot carry")]
    Key,
    #[error("no model is named")]
    NoModel,
    #[error("the HTTP client cannot be made: {0}")]
    Client(String),
}

/// The connection pool, shared by every endpoint of the process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: reqwest::Client,
    traced: TraceHeaders,
}

/// Returns the current headers that make an endpoint's work part of the caller's trace.
pub type TraceHeaders = fn() -> Vec<(String, String)>;

impl HttpClient {
    /// Returns a pool of HTTP/1.1 keep-alive connections (HTTP/2 where TLS negotiates it). Follows no redirects: a POST
    /// would not survive a redirect, and a key must not travel.
    ///
    /// # Errors
    /// [`InvalidEndpoint::Client`] if the system's certificates or resolver cannot be read.
    pub fn new() -> Result<Self, InvalidEndpoint> {
        install_crypto();
        reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("colloquy/", env!("CARGO_PKG_VERSION")))
            .build()
            .map(|client| Self {
                client,
                traced: Vec::new,
            })
            .map_err(|error| InvalidEndpoint::Client(error.to_string()))
    }
    /// Returns the same pool, which adds these headers to every request.
    #[must_use]
    pub fn with_trace_headers(self, traced: TraceHeaders) -> Self {
        Self { traced, ..self }
    }
    /// Returns the ids of the models that an endpoint lists. `None`: no list comes within `limit`.
    pub async fn list_models(&self, endpoint: &Endpoint, limit: Duration) -> Option<Vec<String>> {
        let url = format!("{}/models", endpoint.base_url.trim_end_matches('/'));
        let mut request = self.client.get(url).timeout(limit);
        if let Some(key) = &endpoint.api_key {
            request = request.bearer_auth(key.expose_secret());
        }
        let answer = request.send().await.ok()?.error_for_status().ok()?;
        let list: Value = answer.json().await.ok()?;
        let ids = list["data"].as_array()?.iter();
        Some(
            ids.filter_map(|model| model["id"].as_str().map(str::to_owned))
                .collect(),
        )
    }
}

/// The address of a model.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Without `/chat/completions` or `/embeddings`; usually ends in `/v1`.
    pub base_url: String,
    /// Sent as a bearer token. Never printed.
    pub api_key: Option<SecretString>,
}

impl Endpoint {
    /// Returns the async-openai client of this endpoint for these answers, on the shared pool.
    pub(super) fn build_client(
        &self,
        http: &HttpClient,
        answers: Answers,
    ) -> Result<Client<OpenAIConfig>, InvalidEndpoint> {
        let base = self.base_url.trim_end_matches('/');
        let invalid = |reason: String| InvalidEndpoint::Url {
            url: redact_url(base),
            reason,
        };
        let url = reqwest::Url::parse(base).map_err(|error| invalid(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(invalid("it needs a scheme and a host".into()));
        }
        let key = self.api_key.as_ref().map_or("", |key| key.expose_secret());
        // async-openai panics on a key that is not a valid header value.
        HeaderValue::from_str(key).map_err(|_| InvalidEndpoint::Key)?;
        let config = OpenAIConfig::default()
            .with_api_base(base)
            .with_api_key(key)
            // The defaults read the environment; only the server's own configuration may count.
            .with_org_id("")
            .with_project_id("");
        Ok(Client::with_config(config).with_http_service(OneAttempt {
            http: http.clone(),
            answers,
        }))
    }
}

/// Returns a base URL for display: without user, password and query, which may be secret. Accepts invalid URLs too.
pub fn redact_url(base_url: &str) -> String {
    let (scheme, rest) = match base_url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), base_url),
    };
    // An unescaped password may contain a slash or a question mark, so the last @ counts.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}{rest}")
}

/// Sends a request once. Turns every answer but a 2xx into an [`LlmError`] while the status and `Retry-After` are still
/// available.
#[derive(Debug, Clone)]
struct OneAttempt {
    http: HttpClient,
    answers: Answers,
}

/// The answers of a client. Whole answers are in memory at once, so they are bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    Whole,
    Embeddings,
    /// The reader of the stream has limits of its own.
    Streamed,
}

impl Answers {
    const fn most_bytes(self) -> Option<usize> {
        match self {
            Self::Whole => Some(MAX_ANSWER_BYTES),
            Self::Embeddings => Some(MAX_EMBEDDINGS_BYTES),
            Self::Streamed => None,
        }
    }
}

/// The same response, whose body fails after `max_bytes` bytes.
fn with_bounded_body(response: Response, max_bytes: usize) -> Response {
    let status = response.status();
    let headers = response.headers().clone();
    let mut remaining_bytes = Some(max_bytes);
    let body = response.bytes_stream().map(move |piece| -> Result<Bytes, BoxError> {
        let piece = piece?;
        remaining_bytes = remaining_bytes.and_then(|remaining_bytes| remaining_bytes.checked_sub(piece.len()));
        remaining_bytes
            .map(|_| piece)
            .ok_or_else(|| format!("the answer has more than {max_bytes} bytes").into())
    });
    let mut bounded = http::Response::new(reqwest::Body::wrap_stream(body));
    *bounded.status_mut() = status;
    *bounded.headers_mut() = headers;
    bounded.into()
}

impl tower_service::Service<HttpRequestFactory> for OneAttempt {
    type Response = Response;
    type Error = OpenAIError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, OpenAIError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, request: HttpRequestFactory) -> Self::Future {
        let http = self.http.client.clone();
        let trace = (self.http.traced)();
        let max_bytes = self.answers.most_bytes();
        Box::pin(async move {
            let mut request = request.build().await?;
            for (name, value) in trace {
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                    request.headers_mut().insert(name, value);
                }
            }
            let request_body = request.body().and_then(reqwest::Body::as_bytes).map(<[u8]>::to_vec);
            let response = http.execute(request).await?;
            if response.status().is_success() {
                Ok(match max_bytes {
                    Some(max_bytes) => with_bounded_body(response, max_bytes),
                    None => response,
                })
            } else {
                let permanent = is_permanent(response.status());
                let error = read_failure(response, &request_body.unwrap_or_default()).await;
                Err(OpenAIError::Boxed(Box::new(CallFailure { error, permanent })))
            }
        })
    }
}

/// A failed call. `permanent` means that the same call fails until a person changes a setting or the endpoint.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(super) struct CallFailure {
    pub(super) error: LlmError,
    pub(super) permanent: bool,
}

/// True for failures that time does not mend: a wrong key, a missing model or path, a refused request.
fn is_permanent(status: StatusCode) -> bool {
    !status.is_server_error() && !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

async fn read_failure(mut response: Response, request_body: &[u8]) -> LlmError {
    let status = response.status();
    if status == StatusCode::TOO_MANY_REQUESTS {
        return LlmError::RateLimited {
            retry_after: retry_after(response.headers()),
        };
    }
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        body.extend_from_slice(&piece);
        if body.len() >= ERROR_BODY_BYTES {
            break;
        }
    }
    let code = serde_json::from_slice(&body)
        .ok()
        .and_then(|body: Value| code_of(&body["error"]));
    // Traces and jobs show their error to the tenant. The endpoint's words may name the operator's account, so only the
    // log gets them.
    let redacted_message =
        redaction::redact_request_words(&message_of(&body), texts_of(request_body).iter().map(String::as_str));
    tracing::warn!(%status, code, said = redacted_message, "a model endpoint refused a call");
    let message = match code {
        Some(code) => format!("{status} ({code})"),
        None => status.to_string(),
    };
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => LlmError::Timeout,
        // A revoked key, a missing model or a proxy: the endpoint is at fault and not the request, and an operator will
        // mend the endpoint.
        StatusCode::UNAUTHORIZED
        | StatusCode::PAYMENT_REQUIRED
        | StatusCode::FORBIDDEN
        | StatusCode::NOT_FOUND
        | StatusCode::CONFLICT => LlmError::Unavailable(message),
        _ if status.is_server_error() => LlmError::Unavailable(message),
        _ => LlmError::Refused(message),
    }
}

/// Returns the delay from the `retry-after-ms` of some endpoints, or else from `retry-after` in seconds. Ignores a
/// date, which is rare and would need a clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms")
        .map(|ms| ms / 1e3)
        .or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Returns the `code` or `type` of an error, if it is a plain name.
pub(super) fn code_of(error: &Value) -> Option<String> {
    let is_plain = |name: &&str| {
        (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'.')
    };
    ["code", "type"]
        .into_iter()
        .find_map(|key| error[key].as_str().filter(is_plain))
        .map(str::to_owned)
}

/// Returns the error for a successful answer with an error inside.
pub(super) fn answer_error(error: &Value) -> LlmError {
    LlmError::Broken(match code_of(error) {
        Some(code) => format!("the answer is an error ({code})"),
        None => "the answer is an error".to_owned(),
    })
}

/// Returns the `error.message` of an error body, or the whole body as text.
fn message_of(body: &[u8]) -> String {
    let message = serde_json::from_slice(body)
        .ok()
        .and_then(|body: Value| match &body["error"] {
            Value::String(text) => Some(text.clone()),
            error => error["message"].as_str().map(str::to_owned),
        });
    message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
}

/// Returns the words of players and prompts in a request: all texts of its messages, or of its input.
fn texts_of(request_body: &[u8]) -> Vec<String> {
    fn gather_texts(value: &Value, texts: &mut Vec<String>) {
        match value {
            Value::String(text) => texts.push(text.clone()),
            Value::Array(values) => values.iter().for_each(|value| gather_texts(value, texts)),
            Value::Object(fields) => fields.values().for_each(|value| gather_texts(value, texts)),
            _ => {}
        }
    }
    let mut texts = Vec::new();
    let request: Value = serde_json::from_slice(request_body).unwrap_or_default();
    gather_texts(&request["messages"], &mut texts);
    gather_texts(&request["input"], &mut texts);
    texts
}

/// Returns the meaning of a failed call.
pub(super) fn classify_error(error: OpenAIError) -> LlmError {
    classify_failure(error).error
}

/// As [`classify_error`], with the information whether a retry is useful.
pub(super) fn classify_failure(error: OpenAIError) -> CallFailure {
    let error = match error {
        OpenAIError::Boxed(error) => match error.downcast::<CallFailure>() {
            Ok(failure) => return *failure,
            Err(other) => LlmError::Unavailable(redaction::to_log_line(&other.to_string())),
        },
        OpenAIError::Reqwest(error) if error.is_connect() => LlmError::Unavailable(root_cause(&error)),
        OpenAIError::Reqwest(error) if error.is_timeout() => LlmError::Timeout,
        OpenAIError::Reqwest(error) if error.is_body() || error.is_decode() => LlmError::Broken(root_cause(&error)),
        OpenAIError::Reqwest(error) => LlmError::Unavailable(root_cause(&error)),
        OpenAIError::JSONDeserialize(error, _) => LlmError::Broken(format!(
            "not the JSON expected: {}",
            redaction::describe_json_error(&error)
        )),
        // The text of either error may contain the whole answer.
        OpenAIError::StreamError(_) => LlmError::Broken("the stream cannot be read".into()),
        OpenAIError::ApiError(error) => LlmError::Unavailable(error.status_code.to_string()),
        // A fault of the request, found before it was sent.
        other => LlmError::Refused(redaction::cut_at_quote(&other.to_string())),
    };
    let permanent = !matches!(error, LlmError::Unavailable(_) | LlmError::Timeout);
    CallFailure { error, permanent }
}

/// Returns the innermost cause: "connection refused" says more than "error sending request". The URL is left out, since
/// it may contain a key.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    redaction::cut_at_quote(&cause.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn endpoint(base_url: &str, key: Option<&str>) -> Result<Client<OpenAIConfig>, InvalidEndpoint> {
        Endpoint {
            base_url: base_url.into(),
            api_key: key.map(Into::into),
        }
        .build_client(&HttpClient::new().unwrap(), Answers::Whole)
    }

    #[test]
    fn endpoint_is_validated_before_use() {
        assert!(endpoint("http://127.0.0.1:9/v1/", None).is_ok());
        for bad in ["", "127.0.0.1:9", "ftp://host/v1", "not a url"] {
            assert!(matches!(endpoint(bad, None), Err(InvalidEndpoint::Url { .. })), "{bad}");
        }
        assert!(matches!(
            endpoint("https://host/v1", Some("a\nb")),
            Err(InvalidEndpoint::Key)
        ));
    }

    #[test]
    fn secrets_are_not_printed() {
        let endpoint = Endpoint {
            base_url: "https://host/v1".into(),
            api_key: Some("sk-secret".into()),
        };
        assert!(!format!("{endpoint:?}").contains("sk-secret"));
    }

    #[test]
    fn url_is_shown_without_its_secrets() {
        for (url, plain) in [
            ("https://host/v1", "https://host/v1"),
            ("https://me:hidden@host:8/v1", "https://host:8/v1"),
            ("http://me:hid/den?@host/v1?key=hidden", "http://host/v1"),
            ("me:hidden@host", "host"),
            ("", ""),
        ] {
            assert_eq!(redact_url(url), plain);
        }
        let error = endpoint("ftp://me:hidden@host/v1", None).err().unwrap().to_string();
        assert!(error.contains("ftp://host/v1") && !error.contains("hidden"), "{error}");
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_milliseconds() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            headers
        };
        assert_eq!(
            retry_after(&headers(&[("retry-after", "2")])),
            Some(Duration::from_secs(2))
        );
        assert_eq!(
            retry_after(&headers(&[("retry-after", "2"), ("retry-after-ms", "150")])),
            Some(Duration::from_millis(150))
        );
        for odd in ["-1", "soon", "inf", "NaN", "Wed, 21 Oct 2026 07:28:00 GMT"] {
            assert_eq!(retry_after(&headers(&[("retry-after", odd)])), None, "{odd}");
        }
        assert_eq!(retry_after(&headers(&[])), None);
    }

    #[test]
    fn error_body_yields_a_code_without_names() {
        let code = |text: &str| code_of(&serde_json::from_str::<Value>(text).unwrap_or_default()["error"]);
        assert_eq!(
            code(r#"{"error":{"code":"insufficient_quota","type":"x"}}"#).as_deref(),
            Some("insufficient_quota")
        );
        assert_eq!(
            code(r#"{"error":{"code":null,"type":"invalid_request_error"}}"#).as_deref(),
            Some("invalid_request_error")
        );
        for none in [
            r#"{"error":{"code":"org-Ab12 is out of credit"}}"#,
            r#"{"error":{"code":"org-ab12"}}"#,
            r#"{"error":"busy"}"#,
            "<html>",
        ] {
            assert_eq!(code(none), None, "{none}");
        }
    }

    #[test]
    fn error_body_yields_its_message() {
        assert_eq!(message_of(br#"{"error":{"message":"no such model"}}"#), "no such model");
        assert_eq!(message_of(br#"{"error":"busy"}"#), "busy");
        assert_eq!(message_of(b"<html>Bad gateway</html>"), "<html>Bad gateway</html>");
        assert_eq!(
            texts_of(br#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#),
            ["hi", "user"]
        );
        assert_eq!(texts_of(br#"{"model":"m","input":["a","b"]}"#), ["a", "b"]);
        assert!(texts_of(b"<").is_empty());
    }
}
