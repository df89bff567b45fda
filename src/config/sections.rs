//! The sections of the configuration as values. Units and defaults are in `config/default.toml`.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, de::IntoDeserializer as _};
use serde_json::{Map, Value};

use super::presets::{Preset, ReasoningLevel, TokenizerName};

use colloquy_actors::ActorSettings;
use colloquy_core::ids::TenantId;
use colloquy_dialogue::{
    models::{BudgetSettings, ModelPrice, places_for_jobs},
    settings::{
        ConversationSettings, CurationSettings, DialogueSettings, JobSettings, PromptSettings, RecallSettings,
        RetentionSettings, SaveSettings, ScenarioSettings, SummarySettings, TurnSettings,
    },
};
use colloquy_http::{ChatSettings, HttpSettings, McpSettings, socket::player_socket::SocketSettings};
use colloquy_memory::calibration::Calibration;
use colloquy_telemetry::{LogFormat, TraceExport};
use colloquy_tenancy::{auth::AuthSettings, limits::LimitSettings};
use colloquy_webhooks::WebhookSettings;

/// The complete, valid configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub data_dir: PathBuf,
    pub tenants: Vec<TenantId>,
    pub server: ServerSection,
    pub node: NodeSection,
    pub http: HttpSettings,
    pub chat: ChatSettings,
    pub mcp: McpSettings,
    pub socket: SocketSettings,
    pub ledger: LedgerSection,
    pub buffer: BufferSection,
    pub vectors: VectorsSection,
    pub auth: AuthSettings,
    pub limits: LimitSettings,
    pub budgets: BudgetSettings,
    pub llm: LlmSection,
    pub embedder: EmbedderSection,
    pub turn: TurnSettings,
    pub prompt: PromptSettings,
    pub recall: RecallSettings,
    pub summaries: SummarySettings,
    pub curation: CurationSettings,
    pub jobs: JobSettings,
    pub conversation: ConversationSettings,
    pub retention: RetentionSettings,
    pub saves: SaveSettings,
    pub webhooks: WebhookSettings,
    pub actors: ActorSettings,
    pub telemetry: TelemetrySection,
    pub demo: DemoSection,
}

impl Config {
    /// Returns the settings of the use cases.
    #[must_use]
    pub fn dialogue_settings(&self) -> DialogueSettings {
        DialogueSettings {
            turn: self.turn.clone(),
            prompt: self.prompt.clone(),
            recall: self.recall.clone(),
            scenarios: ScenarioSettings::default(),
            summaries: self.summaries.clone(),
            curation: self.curation.clone(),
            jobs: JobSettings {
                concurrency: self.concurrent_jobs(),
                ..self.jobs.clone()
            },
            conversation: self.conversation.clone(),
            retention: self.retention.clone(),
            saves: self.saves.clone(),
            models: colloquy_memory::tiers::TaskModels::default(),
        }
    }
    /// Returns the concurrent jobs of one tenant. The default equals the number of model calls allowed to jobs, which
    /// are the bottleneck: fewer jobs would only slow down a slow model further.
    fn concurrent_jobs(&self) -> usize {
        match self.jobs.concurrency {
            0 => places_for_jobs(self.llm.tenant_concurrency),
            some => some,
        }
    }
    /// Returns the ledger's URL; the default is `colloquy.db` in `data_dir`.
    #[must_use]
    pub fn ledger_url(&self) -> SecretString {
        self.ledger
            .url
            .clone()
            .unwrap_or_else(|| format!("sqlite://{}", self.data_dir.join("colloquy.db").display()).into())
    }
    /// Returns the ledger's URL for display, without password and without parameters, which may contain a password.
    #[must_use]
    pub fn ledger_name(&self) -> String {
        let url = self.ledger_url();
        let url = url.expose_secret();
        if url.starts_with("sqlite:") {
            return url.to_owned();
        }
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let place = rest.split(['?', '#']).next().unwrap_or_default();
        match place.rsplit_once('@') {
            Some((user, place)) => {
                let user = user.split(':').next().unwrap_or_default();
                format!("{scheme}://{user}@{place}")
            }
            // A `?` or `#` in a password splits the URL there. The text before may be a part of the password.
            None if rest.contains('@') => format!("{scheme}://…"),
            None => format!("{scheme}://{place}"),
        }
    }
}

/// A listen address: an IP address or `localhost`, and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl FromStr for ListenAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let local = text
            .strip_prefix("localhost:")
            .and_then(|port| port.parse::<u16>().ok());
        local
            .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            .or_else(|| text.parse().ok())
            .map(Self)
            .ok_or_else(|| format!("must be an IP address and a port, such as 127.0.0.1:8080, not `{text}`"))
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSection {
    /// Parses as [`ListenAddress`].
    pub listen: String,
    pub workers: usize,
    pub drain_notice_ms: u64,
    pub shutdown_deadline_s: u64,
}

/// This server as a node of a cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSection {
    /// The URL at which the other nodes, and this node itself, reach this node. `None` for a single server.
    pub url: Option<String>,
    pub secret: Option<SecretString>,
    /// The previous secret; its signatures are still accepted.
    pub previous_secret: Option<SecretString>,
    pub heartbeat_ms: u64,
    pub lease_ms: u64,
}

/// SQLite's sync mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// A killed process loses no data.
    Normal,
    /// A power failure loses no data either.
    Full,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerSection {
    /// May contain a password.
    pub url: Option<SecretString>,
    pub synchronous: Synchronous,
    pub readers: u32,
    pub connections: u32,
    pub background_connections: u32,
    pub statement_timeout_ms: u64,
    pub write_queue: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferSection {
    /// May contain a password.
    pub url: SecretString,
    pub cluster: bool,
    pub timeout_ms: u64,
    pub ttl_s: u64,
    pub memory_mib: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorsSection {
    pub url: String,
    pub memory_mib: u64,
    pub api_key: Option<SecretString>,
    pub collection: String,
    pub timeout_ms: u64,
}

impl BufferSection {
    /// Whether buffers are in this process.
    #[must_use]
    pub fn is_in_process(&self) -> bool {
        self.url.expose_secret() == "memory:"
    }
}

impl VectorsSection {
    /// True if the index is in this process.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.url == "embedded:"
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field that endpoints accept or refuse"
)]
pub struct LlmSection {
    /// The name of a [`Preset`], whose settings are already among the others.
    pub preset: Option<String>,
    pub base_url: Option<String>,
    pub api_key: Option<SecretString>,
    pub model: Option<String>,
    pub supports_json_schema: bool,
    pub supports_json_object: bool,
    pub explicit_cache_marks: bool,
    pub max_completion_tokens: bool,
    pub stream_usage: bool,
    pub send_temperature: bool,
    pub tokenizer: TokenizerName,
    pub reasoning: Option<ReasoningLevel>,
    pub reasoning_prefilled: bool,
    pub stop: Vec<String>,
    #[serde(default)]
    pub extra_body: Map<String, Value>,
    pub concurrency: usize,
    pub tenant_concurrency: usize,
    /// 0: no deadline.
    pub first_token_deadline_ms: u64,
    pub prices: Vec<ModelPrice>,
    pub npc_models: Vec<String>,
    /// A `tokenizer.json` for models whose vocabulary is not bundled.
    pub tokenizer_file: Option<PathBuf>,
    pub tasks: TasksSection,
    #[serde(default)]
    pub endpoints: BTreeMap<String, EndpointSection>,
    pub retry: RetrySection,
    pub breaker: BreakerSection,
}

impl LlmSection {
    /// Splits `endpoint:model`. A colon after any other text than an endpoint's name belongs to the model's name.
    #[must_use]
    pub fn endpoint_of<'a>(&'a self, model: &'a str) -> (Option<(&'a str, &'a EndpointSection)>, &'a str) {
        model
            .split_once(':')
            .and_then(|(name, rest)| Some((self.endpoints.get_key_value(name)?, rest)))
            .map_or((None, model), |((name, endpoint), rest)| {
                (Some((name.as_str(), endpoint)), rest)
            })
    }

    /// Returns the endpoint of [`Self::base_url`] in the form of a further endpoint.
    #[must_use]
    pub fn main_endpoint(&self) -> EndpointSection {
        EndpointSection {
            preset: self.preset.clone(),
            base_url: self.base_url.clone().unwrap_or_default(),
            api_key: self.api_key.clone(),
            supports_json_schema: self.supports_json_schema,
            supports_json_object: self.supports_json_object,
            explicit_cache_marks: self.explicit_cache_marks,
            max_completion_tokens: self.max_completion_tokens,
            stream_usage: self.stream_usage,
            send_temperature: self.send_temperature,
            tokenizer: self.tokenizer,
            reasoning: self.reasoning,
            reasoning_prefilled: self.reasoning_prefilled,
            stop: self.stop.clone(),
            extra_body: self.extra_body.clone(),
            concurrency: self.concurrency,
        }
    }

    /// Returns the endpoint of a model of a route, and the model's name there.
    #[must_use]
    pub fn resolve_model<'a>(&self, model: &'a str) -> LlmEndpoint<'a> {
        let (named, name) = match model.split_once(':') {
            Some((endpoint, rest)) if self.endpoints.contains_key(endpoint) => (Some(endpoint), rest),
            _ => (None, model),
        };
        let settings = named.and_then(|named| self.endpoints.get(named)).cloned();
        LlmEndpoint {
            name: named,
            settings: settings.unwrap_or_else(|| self.main_endpoint()),
            model: name,
        }
    }
}

/// The endpoint of a model.
#[derive(Debug, Clone)]
pub struct LlmEndpoint<'a> {
    /// The name in `llm.endpoints`; `None`: `llm.base_url`.
    pub name: Option<&'a str>,
    pub settings: EndpointSection,
    /// The model's name at the endpoint.
    pub model: &'a str,
}

impl LlmEndpoint<'_> {
    /// The section of the endpoint's settings: `llm` or `llm.endpoints.NAME`.
    #[must_use]
    pub fn section(&self) -> String {
        match self.name {
            Some(name) => format!("llm.endpoints.{name}"),
            None => "llm".to_owned(),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TasksSection {
    pub reply: TaskSection,
    pub intent: TaskSection,
    pub extraction: TaskSection,
    pub judge: TaskSection,
    pub summary: TaskSection,
    pub curation: TaskSection,
}

impl TasksSection {
    #[must_use]
    pub fn named_tasks(&self) -> [(&'static str, &TaskSection); 6] {
        [
            ("reply", &self.reply),
            ("intent", &self.intent),
            ("extraction", &self.extraction),
            ("judge", &self.judge),
            ("summary", &self.summary),
            ("curation", &self.curation),
        ]
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSection {
    pub model: Option<String>,
    pub timeout_ms: u32,
    pub max_output_tokens: u32,
    pub temperature: f32,
    pub fallback: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field that endpoints accept or refuse"
)]
pub struct EndpointSection {
    /// The name of a [`Preset`], whose settings are already among the others.
    #[serde(default, deserialize_with = "if_set")]
    pub preset: Option<String>,
    pub base_url: String,
    #[serde(default, deserialize_with = "secret_if_set")]
    pub api_key: Option<SecretString>,
    #[serde(default = "default_true")]
    pub supports_json_schema: bool,
    #[serde(default)]
    pub supports_json_object: bool,
    #[serde(default)]
    pub explicit_cache_marks: bool,
    #[serde(default)]
    pub max_completion_tokens: bool,
    #[serde(default = "default_true")]
    pub stream_usage: bool,
    #[serde(default = "default_true")]
    pub send_temperature: bool,
    #[serde(default = "default_tokenizer")]
    pub tokenizer: TokenizerName,
    #[serde(default, deserialize_with = "if_set")]
    pub reasoning: Option<ReasoningLevel>,
    #[serde(default)]
    pub reasoning_prefilled: bool,
    #[serde(default)]
    pub stop: Vec<String>,
    #[serde(default)]
    pub extra_body: Map<String, Value>,
    #[serde(default = "default_concurrency")]
    pub concurrency: usize,
}

impl EndpointSection {
    /// Returns the preset, if one is named.
    #[must_use]
    pub fn known_preset(&self) -> Option<&'static Preset> {
        Preset::find(self.preset.as_deref()?)
    }

    /// Returns the preset's fields for `reasoning`; empty without a preset.
    #[must_use]
    pub fn reasoning_fields(&self) -> Map<String, Value> {
        let preset = self.known_preset();
        preset.map_or_else(Map::new, |preset| preset.reasoning_field.fields(self.reasoning))
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrySection {
    pub retries: usize,
    pub backoff_min_ms: u64,
    pub backoff_max_ms: u64,
    pub retry_after_max_ms: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakerSection {
    pub failure_share: f32,
    pub window: usize,
    pub timeouts_in_a_row: u32,
    pub open_ms: u64,
    pub trials: usize,
}

/// How the embedder distinguishes a question from a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputTypeName {
    None,
    Field,
    Prefix,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbedderSection {
    pub base_url: Option<String>,
    pub api_key: Option<SecretString>,
    pub model: Option<String>,
    /// 0: the embedder is asked.
    pub dimensions: usize,
    pub timeout_ms: u64,
    pub input_type: InputTypeName,
    pub query_prefix: String,
    pub passage_prefix: String,
    /// Replaces the preset of a known model.
    pub calibration: Option<Calibration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySection {
    pub log: String,
    pub format: LogFormat,
    pub traces_url: Option<String>,
    pub traces_authorization: Option<SecretString>,
    pub traces_share: f64,
    pub service_name: String,
    pub tenant_labels: usize,
    /// Parses as [`ListenAddress`]. If unset, the main address serves `/metrics`.
    pub metrics_listen: Option<String>,
    /// Labels of metrics contain a prefix of the tenant's SHA-256 in place of the tenant's name.
    pub hash_tenants: bool,
}

impl TelemetrySection {
    /// Returns the target of traces, if configured.
    #[must_use]
    pub fn trace_export(&self) -> Option<TraceExport> {
        Some(TraceExport {
            url: self.traces_url.clone()?,
            authorization: self.traces_authorization.clone(),
            share: self.traces_share,
            service: self.service_name.clone(),
        })
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemoSection {
    pub enabled: bool,
    /// The pace of the scripted model in replies to players; 0: at once.
    pub words_per_s: f64,
}

const fn default_true() -> bool {
    true
}

const fn default_tokenizer() -> TokenizerName {
    TokenizerName::Estimate
}

/// The same default as `llm.concurrency`.
const fn default_concurrency() -> usize {
    256
}

/// An endpoint has no default, so an empty text is not removed before ([`super::layers`]).
fn secret_if_set<'de, D: Deserializer<'de>>(d: D) -> Result<Option<SecretString>, D::Error> {
    let text = String::deserialize(d)?;
    Ok((!text.trim().is_empty()).then(|| text.trim().into()))
}

/// The same for other values that a text names.
fn if_set<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(d)?;
    match text.trim() {
        "" => Ok(None),
        text => T::deserialize(text.to_owned().into_deserializer()).map(Some),
    }
}
