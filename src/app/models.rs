//! Language models and embedder as configured, or their offline stand-ins.

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use anyhow::Context;

use crate::{
    adapters::{
        offline_embedder::OfflineEmbedder,
        openai::{
            Endpoint, HttpClient, InputType, OpenAiEmbedder, OpenAiEmbedderOptions, OpenAiLlm, OpenAiLlmOptions, shown,
        },
        scripted::ScriptedLlm,
    },
    config::{Config, EmbedderSection, InputTypeName, LlmSection, TaskSection},
    dialogue::models::{Capacity, ModelLimits, ModelMeters, Models, Route, RouteTable},
    memory::tokens::TokenCounter,
    ports::{
        clock::Clock,
        embedder::Embedder,
        llm::{Llm, Task},
    },
};

/// For how long a start waits for an embedder that is away, if it has to ask it for the length of its vectors.
const EMBEDDER_PATIENCE: Duration = Duration::from_mins(1);
/// What a chain calls the scripted model.
const SCRIPTED: &str = "scripted";

/// The routes of every task. `embedder` is the name of the embedder's model.
pub(super) fn models(
    config: &Config,
    http: &HttpClient,
    embedder: &str,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Models> {
    let scripted: Arc<dyn Llm> = Arc::new(ScriptedLlm::new());
    let mut made = Made {
        section: &config.llm,
        http,
        scripted: scripted.clone(),
        by_name: HashMap::new(),
        capacities: HashMap::new(),
    };
    let mut table = RouteTable::uniform(&scripted);
    for (task, (_, section)) in Task::ALL.into_iter().zip(config.llm.tasks.all()) {
        let first = section.model.as_deref().or(config.llm.model.as_deref());
        let first = made.route(first.unwrap_or(SCRIPTED), section)?;
        let fallbacks = section
            .fallback
            .iter()
            .map(|name| made.route(name, section))
            .collect::<anyhow::Result<_>>()?;
        table = table.with_chain(task, first, fallbacks);
    }
    let telemetry = &config.telemetry;
    let mut meters = ModelMeters::new(telemetry.tenant_labels, &config.llm.prices).knowing(embedder);
    if telemetry.hash_tenants {
        meters = meters.hashing_tenants();
    }
    let models = Models::measured(table, limits(config), meters, clock)
        .within(config.budgets)
        .with_models_of_npcs(&config.llm.npc_models);
    Ok(match &config.llm.tokenizer_file {
        Some(path) => models.counting_others_by(vocabulary(path)?),
        None => models,
    })
}

/// The counter of `llm.tokenizer_file`.
///
/// # Errors
/// If the file cannot be read, or is no vocabulary; names the setting and the file.
pub(super) fn vocabulary(path: &Path) -> anyhow::Result<TokenCounter> {
    let json = std::fs::read(path).with_context(|| format!("llm.tokenizer_file: {} cannot be read", path.display()))?;
    TokenCounter::of_file(&json).with_context(|| format!("llm.tokenizer_file: {} cannot be used", path.display()))
}

fn limits(config: &Config) -> ModelLimits {
    let (retry, breaker) = (config.llm.retry, config.llm.breaker);
    ModelLimits {
        retries: retry.retries,
        backoff_min: Duration::from_millis(retry.backoff_min_ms),
        backoff_max: Duration::from_millis(retry.backoff_max_ms),
        retry_after_max: Duration::from_millis(retry.retry_after_max_ms),
        breaker_window: breaker.window,
        breaker_failure_share: breaker.failure_share,
        breaker_timeouts: breaker.timeouts_in_a_row,
        breaker_open: Duration::from_millis(breaker.open_ms),
        breaker_trials: breaker.trials,
        tenant_concurrency: config.llm.tenant_concurrency,
        embed_timeout: Duration::from_millis(config.embedder.timeout_ms),
    }
}

/// The models made so far, one per name, so that a breaker sees every call to its model.
struct Made<'a> {
    section: &'a LlmSection,
    http: &'a HttpClient,
    scripted: Arc<dyn Llm>,
    by_name: HashMap<String, Arc<dyn Llm>>,
    /// By endpoint; `None` is `llm.base_url`.
    capacities: HashMap<Option<String>, Capacity>,
}

impl Made<'_> {
    fn route(&mut self, name: &str, task: &TaskSection) -> anyhow::Result<Route> {
        Ok(Route {
            llm: self.llm(name)?,
            model: None,
            timeout: Duration::from_millis(task.timeout_ms.into()),
            max_output_tokens: task.max_output_tokens,
            temperature: task.temperature,
            capacity: self.capacity(name),
        })
    }

    /// The places of the endpoint that serves the model `name`; the scripted model needs none.
    fn capacity(&mut self, name: &str) -> Option<Capacity> {
        if name == SCRIPTED {
            return None;
        }
        let (endpoint, width) = match self.section.endpoint_of(name).0 {
            Some((endpoint, section)) => (Some(endpoint.to_owned()), section.concurrency),
            None => (None, self.section.concurrency),
        };
        let capacity = self.capacities.entry(endpoint).or_insert_with(|| Capacity::of(width));
        Some(capacity.clone())
    }

    fn llm(&mut self, name: &str) -> anyhow::Result<Arc<dyn Llm>> {
        if name == SCRIPTED {
            return Ok(self.scripted.clone());
        }
        if let Some(llm) = self.by_name.get(name) {
            return Ok(llm.clone());
        }
        let section = self.section;
        let options = match section.endpoint_of(name) {
            (Some((_, endpoint)), model) => OpenAiLlmOptions {
                endpoint: Endpoint {
                    base_url: endpoint.base_url.clone(),
                    api_key: endpoint.api_key.clone(),
                },
                model: model.to_owned(),
                supports_json_schema: endpoint.supports_json_schema,
                explicit_cache_marks: endpoint.explicit_cache_marks,
                max_completion_tokens: endpoint.max_completion_tokens,
            },
            (None, model) => OpenAiLlmOptions {
                endpoint: Endpoint {
                    base_url: section.base_url.clone().unwrap_or_default(),
                    api_key: section.api_key.clone(),
                },
                model: model.to_owned(),
                supports_json_schema: section.supports_json_schema,
                explicit_cache_marks: section.explicit_cache_marks,
                max_completion_tokens: section.max_completion_tokens,
            },
        };
        let llm: Arc<dyn Llm> =
            Arc::new(OpenAiLlm::new(self.http, options).with_context(|| format!("the model `{name}`"))?);
        self.by_name.insert(name.to_owned(), llm.clone());
        Ok(llm)
    }
}

/// The configured embedder. Asks its endpoint for the length of its vectors, unless that is configured.
pub(super) async fn embedder(section: &EmbedderSection, http: &HttpClient) -> anyhow::Result<Arc<dyn Embedder>> {
    match embedder_options(section) {
        None => Ok(Arc::new(OfflineEmbedder::new())),
        Some(mut options) => {
            options.patience = EMBEDDER_PATIENCE;
            let url = shown(&options.endpoint.base_url);
            let embedder = OpenAiEmbedder::connect(http, options)
                .await
                .with_context(|| format!("the embedder at {url}"))?;
            Ok(Arc::new(embedder))
        }
    }
}

/// How the configured endpoint is used; `None`: the offline embedder is.
#[must_use]
pub(super) fn embedder_options(section: &EmbedderSection) -> Option<OpenAiEmbedderOptions> {
    let (base_url, model) = (section.base_url.clone()?, section.model.clone()?);
    Some(OpenAiEmbedderOptions {
        endpoint: Endpoint {
            base_url,
            api_key: section.api_key.clone(),
        },
        model,
        input_type: match section.input_type {
            InputTypeName::None => InputType::None,
            InputTypeName::Field => InputType::Field,
            InputTypeName::Prefix => InputType::Prefix {
                query: section.query_prefix.clone(),
                passage: section.passage_prefix.clone(),
            },
        },
        calibration: section.calibration,
        timeout: Duration::from_millis(section.timeout_ms),
        dimensions: section.dimensions,
        patience: Duration::ZERO,
    })
}

/// As [`embedder`], with cosines that pass unmapped.
pub(super) async fn uncalibrated_embedder(section: &EmbedderSection) -> anyhow::Result<Arc<dyn Embedder>> {
    match embedder_options(section) {
        None => Ok(Arc::new(OfflineEmbedder::new())),
        Some(options) => {
            let http = HttpClient::new()?;
            Ok(Arc::new(OpenAiEmbedder::connect_uncalibrated(&http, options).await?))
        }
    }
}
