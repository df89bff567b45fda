//! Presets of model providers: the documented facts of their OpenAI-compatible endpoints, in one table.
//!
//! A preset is a layer between the defaults and the settings file, so every explicit setting wins. The same facts stand
//! in docs/guides/real-models.md, which a test compares with this table.

use figment::value::{Dict, Value};
use serde::Deserialize;
use serde_json::{Map, json};

/// The facts of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field that endpoints accept or refuse"
)]
pub struct Preset {
    pub name: &'static str,
    pub base_url: &'static str,
    /// The endpoint refuses requests without an API key.
    pub needs_key: bool,
    pub supports_json_schema: bool,
    /// Counts only without JSON schemas.
    pub supports_json_object: bool,
    /// The endpoint reads `cache_control` marks.
    pub explicit_cache_marks: bool,
    /// The output cap is `max_completion_tokens`, not `max_tokens`.
    pub max_completion_tokens: bool,
    /// The endpoint accepts `stream_options.include_usage`.
    pub stream_usage: bool,
    pub tokenizer: TokenizerName,
    /// How the endpoint is told to think more or less.
    pub reasoning_field: ReasoningField,
    /// The preset's own value of `reasoning`; `None`: the endpoint is told nothing.
    pub reasoning: Option<ReasoningLevel>,
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningLevel {
    Off,
    Low,
    Medium,
    High,
}

impl ReasoningLevel {
    pub const NAMES: [&'static str; 4] = ["off", "low", "medium", "high"];

    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
    /// The word of `reasoning_effort`.
    const fn effort(self) -> &'static str {
        match self {
            Self::Off => "none",
            other => other.as_str(),
        }
    }
}

/// The request's field that tells an endpoint to think more or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningField {
    /// No field: the model or its server decides.
    None,
    /// `reasoning_effort`: `none`, `low`, `medium` or `high`.
    Effort,
    /// `reasoning`: an object with the effort. The thought is left out of the answer.
    Object,
    /// `thinking`: an object with `enabled` or `disabled`, and `reasoning_effort`.
    Thinking,
    /// `chat_template_kwargs.enable_thinking`: true or false.
    Template,
}

impl ReasoningField {
    /// The name of the field in the documentation; `None` without a field.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Effort => Some("reasoning_effort"),
            Self::Object => Some("reasoning"),
            Self::Thinking => Some("thinking"),
            Self::Template => Some("chat_template_kwargs"),
        }
    }

    /// Returns the fields of a request for this level; empty if the endpoint is told nothing.
    #[must_use]
    pub fn fields(self, level: Option<ReasoningLevel>) -> Map<String, serde_json::Value> {
        let thinks = level != Some(ReasoningLevel::Off);
        let fields = match (self, level) {
            (Self::Object, None) => json!({ "reasoning": { "exclude": true } }),
            (Self::None, _) | (_, None) => json!({}),
            (Self::Effort, Some(level)) => json!({ "reasoning_effort": level.effort() }),
            (Self::Object, Some(level)) => json!({ "reasoning": { "effort": level.effort(), "exclude": true } }),
            (Self::Thinking, Some(_)) if !thinks => json!({ "thinking": { "type": "disabled" } }),
            (Self::Thinking, Some(level)) => {
                json!({ "thinking": { "type": "enabled" }, "reasoning_effort": level.effort() })
            }
            (Self::Template, Some(_)) => json!({ "chat_template_kwargs": { "enable_thinking": thinks } }),
        };
        match fields {
            serde_json::Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

/// The vocabulary for models without a vocabulary of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerName {
    /// `llm.tokenizer_file`, or else an estimate.
    Estimate,
    O200k,
    Cl100k,
}

impl TokenizerName {
    pub const NAMES: [&'static str; 3] = ["estimate", "o200k", "cl100k"];

    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Estimate => "estimate",
            Self::O200k => "o200k",
            Self::Cl100k => "cl100k",
        }
    }
}

/// A model server on this machine, without a key: JSON schemas, `max_tokens`, and the usage of streams.
const LOCAL: Preset = Preset {
    name: "",
    base_url: "",
    needs_key: false,
    supports_json_schema: true,
    supports_json_object: false,
    explicit_cache_marks: false,
    max_completion_tokens: false,
    stream_usage: true,
    tokenizer: TokenizerName::Estimate,
    reasoning_field: ReasoningField::None,
    reasoning: None,
};

/// All presets, in the order of their documentation.
pub const PRESETS: [Preset; 10] = [
    Preset {
        name: "ollama",
        base_url: "http://127.0.0.1:11434/v1",
        reasoning_field: ReasoningField::Effort,
        reasoning: Some(ReasoningLevel::Off),
        ..LOCAL
    },
    Preset {
        name: "llama_cpp",
        base_url: "http://127.0.0.1:8080/v1",
        reasoning_field: ReasoningField::Template,
        reasoning: Some(ReasoningLevel::Off),
        ..LOCAL
    },
    Preset {
        name: "openai",
        base_url: "https://api.openai.com/v1",
        needs_key: true,
        max_completion_tokens: true,
        tokenizer: TokenizerName::O200k,
        // Models that do not think refuse the field, so nothing is sent unless it is set.
        reasoning_field: ReasoningField::Effort,
        ..LOCAL
    },
    Preset {
        name: "anthropic",
        base_url: "https://api.anthropic.com/v1",
        needs_key: true,
        // `response_format`, `cache_control` and `reasoning_effort` are ignored. Models think only if asked.
        supports_json_schema: false,
        ..LOCAL
    },
    Preset {
        name: "gemini",
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        needs_key: true,
        // Some models cannot be told not to think, so nothing is sent unless it is set.
        reasoning_field: ReasoningField::Effort,
        ..LOCAL
    },
    Preset {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        needs_key: true,
        explicit_cache_marks: true,
        reasoning_field: ReasoningField::Object,
        ..LOCAL
    },
    Preset {
        name: "vllm",
        base_url: "http://127.0.0.1:8000/v1",
        reasoning_field: ReasoningField::Template,
        reasoning: Some(ReasoningLevel::Off),
        ..LOCAL
    },
    Preset {
        name: "lmstudio",
        base_url: "http://127.0.0.1:1234/v1",
        ..LOCAL
    },
    Preset {
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        needs_key: true,
        // The usage of a stream comes unasked.
        stream_usage: false,
        reasoning_field: ReasoningField::Effort,
        ..LOCAL
    },
    Preset {
        name: "deepseek",
        base_url: "https://api.deepseek.com/v1",
        needs_key: true,
        supports_json_schema: false,
        supports_json_object: true,
        reasoning_field: ReasoningField::Thinking,
        reasoning: Some(ReasoningLevel::Off),
        ..LOCAL
    },
];

/// The names of all presets, in the same order.
pub const PRESET_NAMES: [&str; PRESETS.len()] = {
    let mut names = [""; PRESETS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = PRESETS[index].name;
        index += 1;
    }
    names
};

impl Preset {
    /// Returns the preset of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Returns the settings of the preset, as a section of the configuration has them.
    pub(super) fn settings(&self) -> Dict {
        let switches = [
            ("supports_json_schema", self.supports_json_schema),
            ("supports_json_object", self.supports_json_object),
            ("explicit_cache_marks", self.explicit_cache_marks),
            ("max_completion_tokens", self.max_completion_tokens),
            ("stream_usage", self.stream_usage),
        ];
        let texts = [
            ("base_url", self.base_url),
            ("tokenizer", self.tokenizer.as_str()),
            ("reasoning", self.reasoning.map_or("", ReasoningLevel::as_str)),
        ];
        let switches = switches.map(|(key, value)| (key.to_owned(), Value::from(value)));
        let texts = texts.map(|(key, value)| (key.to_owned(), Value::from(value)));
        switches.into_iter().chain(texts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_names_and_addresses_of_their_own() {
        for (place, preset) in PRESETS.iter().enumerate() {
            assert!(!preset.name.is_empty() && !preset.base_url.ends_with('/'), "{preset:?}");
            assert!(
                PRESETS[..place].iter().all(|other| other.name != preset.name),
                "{preset:?}"
            );
            assert!(
                PRESETS[..place].iter().all(|other| other.base_url != preset.base_url),
                "{preset:?}"
            );
            assert_eq!(preset.needs_key, preset.base_url.starts_with("https://"), "{preset:?}");
            // A preset sets no level that it cannot send.
            assert!(
                preset.reasoning.is_none() || preset.reasoning_field != ReasoningField::None,
                "{preset:?}"
            );
        }
        assert_eq!(Preset::find("ollama").map(|preset| preset.name), Some("ollama"));
        assert_eq!(Preset::find("olama"), None);
    }

    #[test]
    fn reasoning_is_sent_as_the_endpoint_reads_it() {
        let sent = |field: ReasoningField, level| serde_json::Value::Object(field.fields(level));
        let off = Some(ReasoningLevel::Off);
        let low = Some(ReasoningLevel::Low);
        for (field, level, fields) in [
            (ReasoningField::None, off, json!({})),
            (ReasoningField::Effort, None, json!({})),
            (ReasoningField::Effort, off, json!({"reasoning_effort": "none"})),
            (ReasoningField::Effort, low, json!({"reasoning_effort": "low"})),
            (ReasoningField::Object, None, json!({"reasoning": {"exclude": true}})),
            (
                ReasoningField::Object,
                off,
                json!({"reasoning": {"effort": "none", "exclude": true}}),
            ),
            (ReasoningField::Thinking, off, json!({"thinking": {"type": "disabled"}})),
            (
                ReasoningField::Thinking,
                low,
                json!({"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
            ),
            (
                ReasoningField::Template,
                off,
                json!({"chat_template_kwargs": {"enable_thinking": false}}),
            ),
            (
                ReasoningField::Template,
                low,
                json!({"chat_template_kwargs": {"enable_thinking": true}}),
            ),
        ] {
            assert_eq!(sent(field, level), fields, "{field:?} {level:?}");
        }
    }

    #[test]
    fn documented_table_has_the_facts_of_each_preset() {
        let guide = include_str!("../../docs/guides/real-models.md");
        for preset in &PRESETS {
            let json = match preset {
                Preset {
                    supports_json_schema: true,
                    ..
                } => "schema",
                Preset {
                    supports_json_object: true,
                    ..
                } => "object",
                _ => "in words",
            };
            let cap = if preset.max_completion_tokens {
                "`max_completion_tokens`"
            } else {
                "`max_tokens`"
            };
            let marks = if preset.explicit_cache_marks { "yes" } else { "no" };
            let usage = if preset.stream_usage { "yes" } else { "no" };
            let reasoning = match (preset.reasoning_field.name(), preset.reasoning) {
                (None, _) => "–".to_owned(),
                (Some(field), None) => format!("`{field}`"),
                (Some(field), Some(level)) => format!("`{field}`, {}", level.as_str()),
            };
            let row = format!(
                "| `{}` | `{}` | {json} | {cap} | {marks} | {usage} | {} | {reasoning} |",
                preset.name,
                preset.base_url,
                preset.tokenizer.as_str()
            );
            assert!(guide.contains(&row), "docs/guides/real-models.md lacks\n{row}");
        }
    }
}
