//! A server with a clock that stands between steps, its model, and the tenants of the histories.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use colloquy::{
    actors::ActorSettings,
    dialogue::{settings::DialogueSettings, summarise::queue_jobs_after_silence},
    http::HttpSettings,
    ports::{
        clock::{Clock as _, ManualClock},
        ledger::tenants::Tenant,
    },
    tenancy::{Role, TenantScope, auth::AuthSettings},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::model::{EchoModel, WordEmbedder};
use crate::{
    http::harness::{HttpTestClient, HttpTestOptions, HttpTestServer},
    support::{PATIENCE, eventually},
};

/// The pause between two looks at unfinished work.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// Seconds after which the curators of earlier histories stop.
const IDLE_S: u64 = 3;
/// Milliseconds between two runs of the chores, which write the usage.
const CHORES_MS: u64 = 100;
/// More sessions and conversations than a history opens.
const MAX_SOCKET_DIALOGUES: usize = 64;
/// How long tokens last: longer than a history.
const TOKEN_TTL: Duration = Duration::from_hours(24 * 365);
/// The time between two histories.
const HISTORY_DAYS: u64 = 100;

/// One of the two servers.
pub struct TwinServer {
    pub server: HttpTestServer,
    pub clock: Arc<ManualClock>,
    pub model: Arc<EchoModel>,
    client: HttpTestClient,
}

/// An answer of the REST API.
pub struct Answer {
    pub status: u16,
    /// The header; empty without it.
    pub etag: String,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|why| panic!("{why}: {} {}", self.status, self.text))
    }
    /// The answer as observers see it.
    pub fn shown(&self) -> String {
        format!("{} {}\n{}", self.status, self.etag, self.text)
    }
}

impl TwinServer {
    pub fn start() -> Self {
        let beginning: DateTime<Utc> = "2026-11-25T12:00:00Z".parse().unwrap();
        let clock = ManualClock::starting_at(beginning);
        let model = Arc::new(EchoModel::default());
        let defaults = HttpTestOptions::default();
        let server = HttpTestServer::with(HttpTestOptions {
            clock: clock.clone(),
            llm: model.clone(),
            embedder: Arc::new(WordEmbedder::new()),
            ask_for_state: true,
            tune,
            http: HttpSettings {
                max_sessions_per_socket: MAX_SOCKET_DIALOGUES,
                ..defaults.http.clone()
            },
            actors: ActorSettings {
                idle_s: IDLE_S,
                chores_ms: CHORES_MS,
                ..defaults.actors.clone()
            },
            auth: AuthSettings {
                max_ttl_s: TOKEN_TTL.as_secs(),
                ..defaults.auth.clone()
            },
            ..defaults
        });
        Self {
            client: server.client(String::new()),
            server,
            clock,
            model,
        }
    }

    /// Moves the clock to the time of a new history. Both servers do so.
    pub fn start_history(&self) {
        self.clock.advance(Duration::from_hours(24 * HISTORY_DAYS));
    }

    pub async fn create_tenant(&self, tenant: &str) {
        let tenant = Tenant {
            id: tenant.parse().unwrap(),
            name: tenant.to_owned(),
            enabled: true,
            budget: None,
            created_at: self.clock.now(),
            version: 1,
        };
        self.server
            .state
            .services
            .ledger
            .tenants
            .ensure_tenant(&tenant)
            .await
            .unwrap();
    }

    pub fn token(&self, tenant: &str, role: Role, player: Option<&str>) -> String {
        self.server.token_for(tenant, role, player, None, TOKEN_TTL)
    }

    pub async fn call(&self, token: &str, method: Method, path: &str, body: Option<&Value>, etag: &str) -> Answer {
        let mut client = self.client.clone();
        token.clone_into(&mut client.token);
        let mut request = client.request(method, path);
        if let Some(body) = body {
            request = request.json(body);
        }
        if !etag.is_empty() {
            request = request.header("if-none-match", etag);
        }
        let response = request.send().await.unwrap();
        let etag = response
            .headers()
            .get("etag")
            .map(|etag| etag.to_str().unwrap().to_owned());
        Answer {
            status: response.status().as_u16(),
            etag: etag.unwrap_or_default(),
            text: response.text().await.unwrap(),
        }
    }

    /// Waits until all jobs of all tenants have ended, and the index knows all facts.
    pub async fn finish_work(&self, tenant: &str) {
        let waiting = async {
            // Between two reads of a look, work may become work of the other kind.
            while self.has_work(tenant).await || self.has_work(tenant).await {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            let backlog = self.server.state.services.ledger.maintenance.load_backlog().await;
            let token = self.token(tenant, Role::Admin, None);
            let jobs = self.call(&token, Method::GET, "/v1/jobs", None, "").await.text;
            panic!("unfinished: {:?} {jobs}", backlog.unwrap());
        }
    }

    /// Waits until the list of the usage has all tokens of the day that the budget counts, and chores write nothing more:
    /// embeddings have calls without tokens.
    pub async fn wait_for_usage(&self, token: &str) {
        eventually("all usage was written", async || {
            let usage = self.call(token, Method::GET, "/v1/usage", None, "").await;
            tokio::time::sleep(Duration::from_millis(3 * CHORES_MS)).await;
            let later = self.call(token, Method::GET, "/v1/usage", None, "").await;
            (usage.text == later.text && self.has_all_tokens(&usage.json())).then_some(())
        })
        .await;
    }

    fn has_all_tokens(&self, usage: &Value) -> bool {
        let budgets = usage["budgets"].as_array().unwrap();
        let is_of_tokens = |budget: &&Value| budget["budget"] == "tokens_per_day";
        let budget = budgets.iter().find(is_of_tokens).unwrap();
        let today = self.clock.now().date_naive().to_string();
        let rows = usage["items"].as_array().unwrap().iter();
        let written_tokens = rows
            .filter(|row| row["day"] == today)
            .map(|row| row["prompt_tokens"].as_f64().unwrap() + row["completion_tokens"].as_f64().unwrap());
        budget["used"] == json!(written_tokens.sum::<f64>())
    }

    async fn has_work(&self, tenant: &str) -> bool {
        let state = &self.server.state;
        let services = &state.services;
        let ledger = &services.ledger;
        let scope = TenantScope::new(tenant.parse().unwrap());
        // Curators look for dialogues that have ended too, but at any later step.
        let now = self.clock.now();
        let looking = queue_jobs_after_silence(ledger, &services.ids, &services.settings, &scope, now);
        looking.await.unwrap();
        let backlog = ledger.maintenance.load_backlog().await.unwrap();
        assert!(backlog.dead.iter().all(|(_, count)| *count == 0), "{:?}", backlog.dead);
        if backlog.outbox.count > 0 || backlog.pending.iter().any(|(_, queue)| queue.count > 0) {
            return true;
        }
        if !ledger.rewinds.list_dirty_memories(&scope, 1).await.unwrap().is_empty() {
            return true;
        }
        let curator = state.sessions.describe_curator(&scope).await.curator;
        curator.is_some_and(|curator| curator.held_jobs > 0)
    }
}

/// Makes summaries and passes come early, and lets no work begin by itself after a time.
fn tune(settings: &mut DialogueSettings) {
    settings.recall.speculative = false;
    // Which models leave blocks out is counted over all tenants.
    settings.turn.replies_without_block = 0;
    settings.turn.cut_hold_s = 0;
    settings.recall.top_k = 4;
    settings.prompt.memory_tokens = 120;
    settings.summaries.first_after_turns = 3;
    settings.summaries.then_every_turns = 3;
    settings.summaries.min_turns = 2;
    settings.summaries.after_silence_s = 0;
    settings.summaries.buffer_min_turns = 2;
    settings.curation.every_turns = 4;
    settings.curation.min_turns = 2;
    settings.curation.consolidate_after_d = 0;
    settings.curation.player_passes_per_hour = 0;
    // Passes of a request are found at once.
    settings.jobs.poll_s = 0;
    settings.jobs.concurrency = 1;
}
