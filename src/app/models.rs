//! The configured language models and embedder, or their offline substitutes.

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use anyhow::Context;

use crate::config::{
    Config, EmbedderSection, InputTypeName, LlmEndpoint, LlmSection, TaskSection, presets::TokenizerName,
};
use colloquy_dialogue::models::{CallCapacity, ModelLimits, ModelMetrics, ModelRouter, Route, RouteTable};
use colloquy_memory::tokens::TokenCounter;
use colloquy_models::{
    offline_embedder::OfflineEmbedder,
    openai::{
        Endpoint, HttpClient, InputType, OpenAiEmbedder, OpenAiEmbedderOptions, OpenAiLlm, OpenAiLlmOptions, redact_url,
    },
};
use colloquy_ports::{
    clock::Clock,
    embedder::Embedder,
    llm::{Llm, Task},
};
use colloquy_scripted_model::ScriptedLlm;

/// How long startup waits for an unreachable embedder. Startup waits only if the length of the vectors is not
/// configured.
const EMBEDDER_PATIENCE: Duration = Duration::from_mins(1);
/// The name of the scripted model in a chain.
const SCRIPTED_MODEL: &str = "scripted";

/// Stands for all models in the list of the models of NPCs.
const ANY_MODEL: &str = "*";

/// Builds the routes of every task. `embedder` is the name of the embedder's model.
pub(super) fn build_models(
    config: &Config,
    http: &HttpClient,
    embedder: &str,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<ModelRouter> {
    let scripted: Arc<dyn Llm> = Arc::new(ScriptedLlm::new().with_words_per_second(demo_pace(config)));
    let mut builder = ModelBuilder {
        section: &config.llm,
        http,
        scripted: scripted.clone(),
        by_name: HashMap::new(),
        capacities: HashMap::new(),
        counters: HashMap::new(),
    };
    let mut table = RouteTable::with_single_model(&scripted);
    for (task, (_, section)) in Task::ALL.into_iter().zip(config.llm.tasks.named_tasks()) {
        let primary = section.model.as_deref().or(config.llm.model.as_deref());
        let primary = builder.build_route(primary.unwrap_or(SCRIPTED_MODEL), section)?;
        let fallbacks = section
            .fallback
            .iter()
            .map(|name| builder.build_route(name, section))
            .collect::<anyhow::Result<_>>()?;
        table = table.with_chain(task, primary, fallbacks);
    }
    let telemetry = &config.telemetry;
    let mut meters = ModelMetrics::new(telemetry.tenant_labels, &config.llm.prices).with_known_model(embedder);
    if telemetry.hash_tenants {
        meters = meters.with_hashed_tenants();
    }
    if let Some(counter) = named_counter(config.llm.tokenizer) {
        for name in config.llm.npc_models.iter().filter(|name| *name != ANY_MODEL) {
            builder.counters.insert(name.clone(), counter);
        }
    }
    let models = ModelRouter::with_metrics(table, model_limits(config), meters, clock)
        .with_budgets(config.budgets)
        .with_models_of_npcs(&config.llm.npc_models);
    Ok(match &config.llm.tokenizer_file {
        Some(path) => models.with_fallback_counter(load_vocabulary(path)?),
        None => models.with_counters(builder.counters),
    })
}

/// Loads the token counter of `llm.tokenizer_file`.
///
/// # Errors
/// If the file cannot be read, or is not a vocabulary. The error names the setting and the file.
pub(super) fn load_vocabulary(path: &Path) -> anyhow::Result<TokenCounter> {
    let json = std::fs::read(path).with_context(|| format!("llm.tokenizer_file: {} cannot be read", path.display()))?;
    TokenCounter::from_file(&json).with_context(|| format!("llm.tokenizer_file: {} cannot be used", path.display()))
}

/// Returns the words a second of the scripted model: the demo's pace where no model is configured. As a fallback, the
/// scripted model answers at once.
fn demo_pace(config: &Config) -> f64 {
    let is_demo = config.demo.enabled && config.llm.base_url.is_none();
    if is_demo { config.demo.words_per_s } else { 0.0 }
}

/// Returns the counter of a vocabulary; `None` for an estimate.
const fn named_counter(tokenizer: TokenizerName) -> Option<TokenCounter> {
    match tokenizer {
        TokenizerName::Estimate => None,
        TokenizerName::O200k => Some(TokenCounter::O200k),
        TokenizerName::Cl100k => Some(TokenCounter::Cl100k),
    }
}

fn model_limits(config: &Config) -> ModelLimits {
    let retry = config.llm.retry;
    let breaker = config.llm.breaker;
    ModelLimits {
        retries: retry.retries,
        backoff_min: Duration::from_millis(retry.backoff_min_ms),
        backoff_max: Duration::from_millis(retry.backoff_max_ms),
        retry_after_max: Duration::from_millis(retry.retry_after_max_ms),
        first_token_deadline: (config.llm.first_token_deadline_ms > 0)
            .then(|| Duration::from_millis(config.llm.first_token_deadline_ms)),
        breaker_window: breaker.window,
        breaker_failure_share: breaker.failure_share,
        breaker_timeouts: breaker.timeouts_in_a_row,
        breaker_open: Duration::from_millis(breaker.open_ms),
        breaker_trials: breaker.trials,
        tenant_concurrency: config.llm.tenant_concurrency,
        embed_timeout: Duration::from_millis(config.embedder.timeout_ms),
    }
}

/// Builds each model once per name, so that a breaker sees every call of its model.
struct ModelBuilder<'a> {
    section: &'a LlmSection,
    http: &'a HttpClient,
    scripted: Arc<dyn Llm>,
    by_name: HashMap<String, Arc<dyn Llm>>,
    /// The capacity by endpoint; `None` is `llm.base_url`.
    capacities: HashMap<Option<String>, CallCapacity>,
    /// The counters of models whose endpoint names a vocabulary, by the model's name.
    counters: HashMap<String, TokenCounter>,
}

impl ModelBuilder<'_> {
    fn build_route(&mut self, name: &str, task: &TaskSection) -> anyhow::Result<Route> {
        Ok(Route {
            llm: self.build_llm(name)?,
            model: None,
            timeout: Duration::from_millis(task.timeout_ms.into()),
            max_output_tokens: task.max_output_tokens,
            temperature: task.temperature,
            capacity: self.endpoint_capacity(name),
        })
    }

    /// Returns the capacity of the endpoint for the model `name`; `None` for the scripted model.
    fn endpoint_capacity(&mut self, name: &str) -> Option<CallCapacity> {
        if name == SCRIPTED_MODEL {
            return None;
        }
        let resolved = self.section.resolve_model(name);
        let capacity = self
            .capacities
            .entry(resolved.name.map(str::to_owned))
            .or_insert_with(|| CallCapacity::with_places(resolved.settings.concurrency));
        Some(capacity.clone())
    }

    fn build_llm(&mut self, name: &str) -> anyhow::Result<Arc<dyn Llm>> {
        if name == SCRIPTED_MODEL {
            return Ok(self.scripted.clone());
        }
        if let Some(llm) = self.by_name.get(name) {
            return Ok(llm.clone());
        }
        let resolved = self.section.resolve_model(name);
        if let Some(counter) = named_counter(resolved.settings.tokenizer) {
            self.counters.insert(resolved.model.to_owned(), counter);
        }
        let options = llm_options(&resolved);
        let llm: Arc<dyn Llm> =
            Arc::new(OpenAiLlm::new(self.http, options).with_context(|| format!("the model `{name}`"))?);
        self.by_name.insert(name.to_owned(), llm.clone());
        Ok(llm)
    }
}

/// Returns the options of a model at its endpoint.
#[must_use]
pub fn llm_options(resolved: &LlmEndpoint<'_>) -> OpenAiLlmOptions {
    let endpoint = &resolved.settings;
    OpenAiLlmOptions {
        endpoint: Endpoint {
            base_url: endpoint.base_url.clone(),
            api_key: endpoint.api_key.clone(),
        },
        model: resolved.model.to_owned(),
        supports_json_schema: endpoint.supports_json_schema,
        supports_json_object: endpoint.supports_json_object,
        explicit_cache_marks: endpoint.explicit_cache_marks,
        max_completion_tokens: endpoint.max_completion_tokens,
        stream_usage: endpoint.stream_usage,
        send_temperature: endpoint.send_temperature,
        reasoning_prefilled: endpoint.reasoning_prefilled,
        stop: endpoint.stop.clone(),
        reasoning_fields: endpoint.reasoning_fields(),
        extra_body: endpoint.extra_body.clone(),
    }
}

/// Connects the configured embedder. Asks the endpoint for the length of its vectors, unless configured.
pub(super) async fn connect_embedder(
    section: &EmbedderSection,
    http: &HttpClient,
) -> anyhow::Result<Arc<dyn Embedder>> {
    match embedder_options(section) {
        None => Ok(Arc::new(OfflineEmbedder::new())),
        Some(mut options) => {
            options.patience = EMBEDDER_PATIENCE;
            let url = redact_url(&options.endpoint.base_url);
            let embedder = OpenAiEmbedder::connect(http, options)
                .await
                .with_context(|| format!("the embedder at {url}"))?;
            Ok(Arc::new(embedder))
        }
    }
}

/// Returns the options of the configured endpoint; `None` selects the offline embedder.
fn embedder_options(section: &EmbedderSection) -> Option<OpenAiEmbedderOptions> {
    let base_url = section.base_url.clone()?;
    let model = section.model.clone()?;
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

/// Returns the configured embedder with raw cosines, for calibration.
///
/// # Errors
/// If its endpoint does not answer.
pub async fn uncalibrated_embedder(config: &Config) -> anyhow::Result<Arc<dyn Embedder>> {
    match embedder_options(&config.embedder) {
        None => Ok(Arc::new(OfflineEmbedder::new())),
        Some(options) => {
            let http = HttpClient::new()?;
            Ok(Arc::new(OpenAiEmbedder::connect_uncalibrated(&http, options).await?))
        }
    }
}
