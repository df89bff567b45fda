//! The REST API in the role of the game's backend.

use std::time::Duration;

use anyhow::bail;
use reqwest::{Method, Url};
use serde_json::Value;

use colloquy_models::openai::install_crypto;

/// The longest wait for an answer. Ctrl-C does not interrupt the wait.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct RestClient {
    http: reqwest::Client,
    base: String,
    /// The backend token; `None` if only a player's token was given.
    backend: Option<String>,
}

impl RestClient {
    pub(super) fn new(base: String, backend: Option<String>) -> anyhow::Result<Self> {
        install_crypto();
        Ok(Self {
            http: reqwest::Client::builder().timeout(TIMEOUT).build()?,
            base,
            backend,
        })
    }

    pub(super) async fn get_json(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        self.request_json(Method::GET, path, query, None).await
    }

    pub(super) async fn post_json(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.request_json(Method::POST, path, &[], Some(body)).await
    }

    async fn request_json(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let Some(token) = &self.backend else {
            bail!("this needs a backend token, and only a player's was given");
        };
        let mut url = Url::parse(&format!("{}{path}", self.base))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.http.request(method, url).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let status = response.status();
        let answer: Value = response.json().await.unwrap_or_default();
        if !status.is_success() {
            let detail = answer["detail"].as_str().unwrap_or("the server said no more");
            match answer["code"].as_str() {
                Some(code) => bail!("{detail} [{code}]"),
                None => bail!("{status}: {detail}"),
            }
        }
        Ok(answer)
    }
}
