//! Metrics of the time and cost of model calls, for `/metrics`.
//!
//! The number of labels is bounded. Models that only NPCs name share the label `other`. Tenants beyond the configured
//! number of labels share it too.

use std::{
    collections::{HashMap, HashSet},
    str::FromStr,
};

use parking_lot::RwLock;
use prometheus::{CounterVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::routes::RouteTable;
use colloquy_core::ids::TenantId;
use colloquy_memory::{text::to_hexadecimal, turn::Usage};
use colloquy_ports::{
    ledger::usage::Budgeted,
    llm::{LlmError, Task},
};

/// What becomes of the state block of a reply ([`crate::state_blocks::ReplyBlock`]).
const REPLY_BLOCK_OUTCOMES: [&str; 4] = ["given", "unneeded", "missing", "extracted"];
/// What becomes of a reply that was asked for before the intent of its line was known.
const EARLY_REPLY_OUTCOMES: [&str; 2] = ["kept", "asked_again"];
/// The shared label.
const OTHER_LABEL: &str = "other";
const CALL_SECONDS_BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// The price of a model's tokens, per million of each sort, in the operator's currency.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct ModelPrice {
    pub model: String,
    pub prompt: f64,
    /// The price of prompt tokens from the provider's cache.
    pub cached: f64,
    pub completion: f64,
}

impl FromStr for ModelPrice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not `model=prompt/cached/completion` with prices per million tokens, such as small=0.4/0.1/1.6"
            )
        };
        // A model's name may contain `=`, but a price cannot.
        let (model, prices) = text.rsplit_once('=').ok_or_else(wrong)?;
        let prices: Vec<f64> = prices
            .split('/')
            .map(|price| {
                price
                    .trim()
                    .parse::<f64>()
                    .ok()
                    .filter(|price| (0.0..=1e6).contains(price))
            })
            .collect::<Option<_>>()
            .ok_or_else(wrong)?;
        let [prompt, cached, completion] = prices[..] else {
            return Err(wrong());
        };
        let model = model.trim().to_owned();
        if model.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            model,
            prompt,
            cached,
            completion,
        })
    }
}

impl TryFrom<String> for ModelPrice {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl ModelPrice {
    /// Returns the cost of these tokens. Cached tokens are also prompt tokens.
    #[expect(clippy::cast_precision_loss, reason = "money is shown with a few digits")]
    fn cost_of(&self, prompt: u64, cached: u64, completion: u64) -> f64 {
        let uncached = prompt.saturating_sub(cached);
        let sum = uncached as f64 * self.prompt + cached as f64 * self.cached + completion as f64 * self.completion;
        sum / 1e6
    }
}

/// Metrics of model and embedder calls.
pub struct ModelMetrics {
    calls: HistogramVec,
    attempts: IntCounterVec,
    tokens: IntCounterVec,
    cost: CounterVec,
    resting: IntGaugeVec,
    late_first_tokens: IntCounterVec,
    over_budget: IntCounterVec,
    reply_blocks: IntCounterVec,
    early_replies: IntCounterVec,
    /// The models in routes.
    models: HashSet<String>,
    tenants: TenantLabels,
    prices: HashMap<String, ModelPrice>,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        Self::new(0, &[])
    }
}

impl ModelMetrics {
    /// Creates the metrics. At most `tenant_labels` tenants get their own label.
    #[must_use]
    pub fn new(tenant_labels: usize, prices: &[ModelPrice]) -> Self {
        Self::try_new(tenant_labels, prices).expect("the names are constants, and a test makes them")
    }
    fn try_new(tenant_labels: usize, prices: &[ModelPrice]) -> prometheus::Result<Self> {
        Ok(Self {
            calls: HistogramVec::new(
                HistogramOpts::new(
                    "colloquy_model_call_seconds",
                    "Seconds per call with its retries and fall-backs; of a stream, to its first text",
                )
                .buckets(CALL_SECONDS_BUCKETS.to_vec()),
                &["task", "outcome"],
            )?,
            attempts: IntCounterVec::new(
                Opts::new(
                    "colloquy_model_attempts_total",
                    "Attempts that reached a model, by outcome",
                ),
                &["task", "model", "outcome"],
            )?,
            tokens: IntCounterVec::new(
                Opts::new(
                    "colloquy_model_tokens_total",
                    "Tokens used (cached ones are also prompt tokens)",
                ),
                &["tenant", "task", "kind"],
            )?,
            cost: CounterVec::new(
                Opts::new(
                    "colloquy_model_cost_total",
                    "What the tokens cost by llm.prices, in its currency",
                ),
                &["tenant", "task"],
            )?,
            resting: IntGaugeVec::new(
                Opts::new(
                    "colloquy_model_breaker_open",
                    "1: the last call was refused by the model's circuit breaker; 0: it was let through",
                ),
                &["task", "model"],
            )?,
            late_first_tokens: IntCounterVec::new(
                Opts::new(
                    "colloquy_model_late_first_tokens_total",
                    "First tokens later than llm.first_token_deadline_ms, so that the next model was asked too",
                ),
                &["task", "model"],
            )?,
            over_budget: budget_refusals()?,
            reply_blocks: IntCounterVec::new(
                Opts::new(
                    "colloquy_reply_blocks_total",
                    "Replies that were asked for a state block, by what became of the block",
                ),
                &["model", "outcome"],
            )?,
            early_replies: early_replies()?,
            models: HashSet::new(),
            tenants: TenantLabels {
                max_labels: tenant_labels,
                labels: RwLock::default(),
                label_of: TenantId::to_string,
            },
            prices: prices
                .iter()
                .map(|price| (price.model.clone(), price.clone()))
                .collect(),
        })
    }
    /// Adds a model outside all routes that gets its own label: the embedder's model.
    #[must_use]
    pub fn with_known_model(mut self, model: &str) -> Self {
        self.models.insert(model.to_owned());
        self
    }
    /// Uses a hash in place of the name in tenants' labels.
    #[must_use]
    pub fn with_hashed_tenants(mut self) -> Self {
        self.tenants.label_of = hashed_label;
        self
    }
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are already registered.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.calls.clone()))?;
        registry.register(Box::new(self.attempts.clone()))?;
        registry.register(Box::new(self.tokens.clone()))?;
        registry.register(Box::new(self.cost.clone()))?;
        registry.register(Box::new(self.resting.clone()))?;
        registry.register(Box::new(self.late_first_tokens.clone()))?;
        registry.register(Box::new(self.reply_blocks.clone()))?;
        registry.register(Box::new(self.early_replies.clone()))?;
        registry.register(Box::new(self.over_budget.clone()))
    }
    /// Gives the models of these routes their own labels.
    pub(super) fn add_route_models(&mut self, routes: &RouteTable) {
        for task in Task::ALL {
            for route in routes.chain_for(task) {
                self.models.insert(route.model_name(None).to_owned());
            }
        }
        // In advance, so that a rate does not miss the first missing block or the first late token.
        for route in routes.chain_for(Task::Reply) {
            let model = route.model_name(None);
            for outcome in REPLY_BLOCK_OUTCOMES {
                self.reply_blocks.with_label_values(&[model, outcome]);
            }
            self.late_first_tokens.with_label_values(&[Task::Reply.as_str(), model]);
        }
    }
    /// Records the end of a call, after all its attempts.
    pub(super) fn record_call(&self, task: &str, seconds: f64, error: Option<&LlmError>) {
        self.calls
            .with_label_values(&[task, outcome_label(error)])
            .observe(seconds);
    }
    /// Records an attempt within a call; `None` means success. [`Self::record_call`] counts the whole call.
    pub(super) fn record_attempt(&self, task: &str, model: &str, error: Option<&LlmError>) {
        let model = self.label_of(model);
        self.attempts
            .with_label_values(&[task, model, outcome_label(error)])
            .inc();
        self.resting.with_label_values(&[task, model]).set(0);
    }
    /// Records that a breaker refused an attempt.
    pub(super) fn record_breaker_refusal(&self, task: &str, model: &str) {
        self.resting.with_label_values(&[task, self.label_of(model)]).set(1);
    }
    /// Records that the first token of `model` was late, and the next model was asked too.
    pub(super) fn record_late_first_token(&self, task: &str, model: &str) {
        self.late_first_tokens
            .with_label_values(&[task, self.label_of(model)])
            .inc();
    }
    pub(super) fn record_usage(&self, tenant: &TenantId, task: &str, model: &str, usage: Usage) {
        self.tenants.with_label(tenant, |tenant| {
            for (kind, count) in [
                ("prompt", usage.prompt_tokens),
                ("cached", usage.cached_tokens),
                ("completion", usage.completion_tokens),
            ] {
                if count > 0 {
                    self.tokens
                        .with_label_values(&[tenant, task, kind])
                        .inc_by(count.into());
                }
            }
            if let Some(cost) = self.usage_cost(model, usage) {
                self.cost.with_label_values(&[tenant, task]).inc_by(cost);
            }
        });
    }
    /// Returns the cost of a call; `None` if its model has no price.
    pub(super) fn usage_cost(&self, model: &str, usage: Usage) -> Option<f64> {
        let prompt = usage.prompt_tokens.into();
        let cached = usage.cached_tokens.into();
        self.cost_of(model, prompt, cached, usage.completion_tokens.into())
    }
    /// Returns the cost of these tokens by `llm.prices`; `None` if the model has no price.
    pub(super) fn cost_of(&self, model: &str, prompt: u64, cached: u64, completion: u64) -> Option<f64> {
        Some(self.prices.get(model)?.cost_of(prompt, cached, completion))
    }
    pub(super) fn has_price(&self, model: &str) -> bool {
        self.prices.contains_key(model)
    }
    /// Counts a reply that was asked for a state block.
    pub(crate) fn record_reply_block(&self, model: &str, outcome: &str) {
        self.reply_blocks
            .with_label_values(&[self.label_of(model), outcome])
            .inc();
    }
    /// Counts a reply that was asked for before the intent of the line was known. `is_kept`: the intent did not change
    /// the prompt.
    pub(crate) fn record_early_reply(&self, is_kept: bool) {
        let outcome = EARLY_REPLY_OUTCOMES[usize::from(!is_kept)];
        self.early_replies.with_label_values(&[outcome]).inc();
    }
    /// Counts a refusal.
    pub(super) fn record_over_budget(&self, budget: Budgeted) {
        self.over_budget.with_label_values(&[budget.as_str()]).inc();
    }

    fn label_of<'a>(&self, model: &'a str) -> &'a str {
        if self.models.contains(model) {
            model
        } else {
            OTHER_LABEL
        }
    }
}

/// Creates both series in advance, for rates.
fn early_replies() -> prometheus::Result<IntCounterVec> {
    let replies = IntCounterVec::new(
        Opts::new(
            "colloquy_early_replies_total",
            "Replies that were asked for before the intent of their line was known, by what became of the call",
        ),
        &["outcome"],
    )?;
    for outcome in EARLY_REPLY_OUTCOMES {
        replies.with_label_values(&[outcome]);
    }
    Ok(replies)
}

/// Creates the series in advance: a rate over a new series would miss its first refusal.
fn budget_refusals() -> prometheus::Result<IntCounterVec> {
    let refusals = IntCounterVec::new(
        Opts::new(
            "colloquy_budget_refusals_total",
            "Turns, dialogues and model calls refused since the tenant has used up a budget",
        ),
        &["budget"],
    )?;
    // The ledger refuses what exceeds the other budgets, and counts nothing.
    let counted = Budgeted::ALL.into_iter().filter(|budget| !budget.is_authored());
    for budget in counted {
        refusals.with_label_values(&[budget.as_str()]);
    }
    Ok(refusals)
}

fn outcome_label(error: Option<&LlmError>) -> &'static str {
    match error {
        None => "ok",
        Some(LlmError::Timeout) => "timeout",
        Some(LlmError::Unavailable(_)) => "unavailable",
        Some(LlmError::RateLimited { .. }) => "rate_limited",
        Some(LlmError::Refused(_)) => "refused",
        Some(LlmError::Broken(_)) => "broken",
        Some(LlmError::OverBudget(_)) => "over_budget",
    }
}

/// The tenants with a label: the first tenants seen, so that a counter never changes its owner.
struct TenantLabels {
    max_labels: usize,
    /// The labels by tenant.
    labels: RwLock<HashMap<TenantId, String>>,
    label_of: fn(&TenantId) -> String,
}

impl TenantLabels {
    fn with_label(&self, tenant: &TenantId, count: impl FnOnce(&str)) {
        if let Some(label) = self.labels.read().get(tenant) {
            return count(label);
        }
        let mut labels = self.labels.write();
        if labels.len() < self.max_labels || labels.contains_key(tenant) {
            count(labels.entry(tenant.clone()).or_insert_with(|| (self.label_of)(tenant)));
        } else {
            count(OTHER_LABEL);
        }
    }
}

/// Returns the label of a tenant whose name must stay private.
fn hashed_label(tenant: &TenantId) -> String {
    to_hexadecimal(&Sha256::digest(tenant.as_str())[..6])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use prometheus::TextEncoder;

    use super::*;

    fn shown(meters: &ModelMetrics) -> String {
        let registry = Registry::new();
        meters.register(&registry).unwrap();
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn metric_labels_are_limited_to_few_tenants_and_known_models() {
        let price: ModelPrice = "small=1/0.5/4".parse().unwrap();
        let mut meters = ModelMetrics::new(2, &[price]);
        meters.models.insert("small".into());
        let usage = Usage {
            prompt_tokens: 3_000_000,
            cached_tokens: 1_000_000,
            completion_tokens: 1_000_000,
        };
        for tenant in ["a", "b", "c", "d", "a"] {
            meters.record_usage(&tenant.parse().unwrap(), "reply", "small", usage);
        }
        meters.record_attempt("reply", "small", None);
        meters.record_attempt("reply", "of-some-npc", Some(&LlmError::Timeout));
        meters.record_breaker_refusal("intent", "small");
        let text = shown(&meters);
        for line in [
            r#"colloquy_model_tokens_total{kind="prompt",task="reply",tenant="a"} 6000000"#,
            r#"colloquy_model_tokens_total{kind="cached",task="reply",tenant="b"} 1000000"#,
            r#"colloquy_model_tokens_total{kind="completion",task="reply",tenant="other"} 2000000"#,
            // Two million uncached tokens at 1, one million cached at 0.5 and one million completed at 4.
            r#"colloquy_model_cost_total{task="reply",tenant="b"} 6.5"#,
            r#"colloquy_model_cost_total{task="reply",tenant="other"} 13"#,
            r#"colloquy_model_attempts_total{model="small",outcome="ok",task="reply"} 1"#,
            r#"colloquy_model_attempts_total{model="other",outcome="timeout",task="reply"} 1"#,
            r#"colloquy_model_breaker_open{model="small",task="intent"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("tenant=\"c\""), "{text}");
        let hashing = ModelMetrics::new(2, &[]).with_hashed_tenants();
        hashing.record_usage(&"abc".parse().unwrap(), "reply", "small", usage);
        let text = shown(&hashing);
        assert!(
            text.contains(r#"task="reply",tenant="ba7816bf8f01"} 3000000"#),
            "{text}"
        );
        assert!(!text.contains("abc"), "{text}");
        let nobody = ModelMetrics::default();
        nobody.record_usage(&"a".parse().unwrap(), "reply", "small", usage);
        assert!(!shown(&nobody).contains("tenant=\"a\""));
    }

    #[test]
    fn price_is_parsed_or_rejected() {
        let price: ModelPrice = "vendor/m=4.1=0.4/0.1/1.6".parse().unwrap();
        assert_eq!((price.model.as_str(), price.completion), ("vendor/m=4.1", 1.6));
        for wrong in [
            "",
            "small",
            "small=1",
            "small=1/2",
            "small=1/2/3/4",
            "=1/2/3",
            "small=1/x/3",
            "small=-1/0/0",
        ] {
            assert!(wrong.parse::<ModelPrice>().is_err(), "{wrong}");
        }
    }
}
