//! Merging of the configuration layers. The type of each key comes from the defaults.

use std::collections::{BTreeMap, BTreeSet};

use figment::{
    Figment, Metadata, Profile, Provider,
    providers::{Format, Toml},
    value::{Dict, Empty, Map, Num, Tag, Value},
};

use super::{
    faults::ConfigFault,
    presets::Preset,
    sources::{ConfigSources, DEFAULTS, ENV_PREFIX},
};

/// The type of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingKind {
    Text,
    Switch,
    Integer,
    Number,
    List,
    /// A table with keys of any name.
    Table,
}

impl SettingKind {
    fn of_value(value: &Value) -> Option<Self> {
        Some(match value {
            Value::String(..) | Value::Char(..) => Self::Text,
            Value::Bool(..) => Self::Switch,
            Value::Num(_, Num::F32(_) | Num::F64(_)) => Self::Number,
            Value::Num(..) => Self::Integer,
            Value::Array(..) => Self::List,
            Value::Dict(..) => Self::Table,
            Value::Empty(..) => return None,
        })
    }
    /// True if a value of type `value_kind` is valid here.
    pub(super) fn accepts_kind(self, value_kind: Self) -> bool {
        self == value_kind || (self == Self::Number && value_kind == Self::Integer)
    }
    pub(super) fn describe_kind(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Switch => "true or false",
            Self::Integer => "a whole number",
            Self::Number => "a number",
            Self::List => "a list",
            Self::Table => "a table, or JSON text of an object in the environment",
        }
    }
}

/// Keys without a default; the defaults file mentions them only in comments. `*` stands for any name.
const KEYS_WITHOUT_DEFAULT: &[(&str, SettingKind)] = &[
    ("auth.issuers.*.iss", SettingKind::Text),
    ("auth.issuers.*.jwks_file", SettingKind::Text),
    ("auth.issuers.*.public_key_file", SettingKind::Text),
    ("auth.issuers.*.public_key_kid", SettingKind::Text),
    ("auth.issuers.*.tenants", SettingKind::List),
    ("auth.issuers.*.roles", SettingKind::List),
    ("llm.extra_body", SettingKind::Table),
    ("llm.endpoints.*.preset", SettingKind::Text),
    ("llm.endpoints.*.base_url", SettingKind::Text),
    ("llm.endpoints.*.api_key", SettingKind::Text),
    ("llm.endpoints.*.supports_json_schema", SettingKind::Switch),
    ("llm.endpoints.*.supports_json_object", SettingKind::Switch),
    ("llm.endpoints.*.explicit_cache_marks", SettingKind::Switch),
    ("llm.endpoints.*.max_completion_tokens", SettingKind::Switch),
    ("llm.endpoints.*.stream_usage", SettingKind::Switch),
    ("llm.endpoints.*.send_temperature", SettingKind::Switch),
    ("llm.endpoints.*.tokenizer", SettingKind::Text),
    ("llm.endpoints.*.reasoning", SettingKind::Text),
    ("llm.endpoints.*.reasoning_prefilled", SettingKind::Switch),
    ("llm.endpoints.*.stop", SettingKind::List),
    ("llm.endpoints.*.extra_body", SettingKind::Table),
    ("llm.endpoints.*.concurrency", SettingKind::Integer),
    ("embedder.calibration.floor", SettingKind::Number),
    ("embedder.calibration.ceiling", SettingKind::Number),
    ("embedder.calibration.answer", SettingKind::Number),
    ("embedder.calibration.same", SettingKind::Number),
    ("embedder.calibration.related", SettingKind::Number),
];

/// A configured value with its dotted key.
#[derive(Debug)]
pub(super) struct SettingValue {
    pub key: String,
    pub value: Value,
    pub kind: Option<SettingKind>,
    pub source: Option<String>,
}

/// The merged layers, and all known keys.
pub(super) struct MergedConfig {
    pub figment: Figment,
    pub known_settings: BTreeMap<String, SettingKind>,
    /// The keys that may be unset: an empty text is their default.
    unsettable: BTreeSet<String>,
    pub leaves: Vec<SettingValue>,
}

impl MergedConfig {
    /// Returns the merged settings, with the defaults in place of `keys`. Unset settings have no value.
    pub(super) fn without_keys(&self, keys: &[String]) -> Figment {
        let remaining_leaves = || self.leaves.iter().filter(|leaf| !keys.contains(&leaf.key));
        let mut settings = self.figment.clone();
        if !keys.is_empty() {
            let mut tree = Dict::new();
            for leaf in remaining_leaves() {
                insert_at_key(&mut tree, &leaf.key, leaf.value.clone());
            }
            settings = Figment::from(Toml::string(DEFAULTS)).merge(EnvLayer(tree));
        }
        let mut unset: BTreeSet<&String> = self.unsettable.iter().collect();
        let mut tree = Dict::new();
        for leaf in remaining_leaves() {
            if let Value::String(tag, text) = &leaf.value
                && !text.trim().is_empty()
                && unset.remove(&leaf.key)
            {
                insert_at_key(&mut tree, &leaf.key, Value::String(*tag, text.trim().to_owned()));
            }
        }
        for key in unset {
            insert_at_key(&mut tree, key, Value::Empty(Tag::Default, Empty::None));
        }
        settings.merge(EnvLayer(tree))
    }
    /// Returns the type of the setting `key`, if the setting exists.
    pub(super) fn kind_of(&self, key: &str) -> Option<SettingKind> {
        kind_of(&self.known_settings, key)
    }
}

fn kind_of(known_settings: &BTreeMap<String, SettingKind>, key: &str) -> Option<SettingKind> {
    known_settings.get(key).copied().or_else(|| {
        KEYS_WITHOUT_DEFAULT
            .iter()
            .find(|(pattern, _)| matches_pattern(pattern, key))
            .map(|(_, kind)| *kind)
    })
}

/// True if the setting `key` is a table with keys of any name, which is a single value here.
fn is_table(key: &str) -> bool {
    kind_of(&BTreeMap::new(), key) == Some(SettingKind::Table)
}

/// True if `key` is a part of such a table.
fn is_in_table(key: &str) -> bool {
    key.match_indices('.').any(|(at, _)| is_table(&key[..at]))
}

pub(super) fn matches_pattern(pattern: &str, key: &str) -> bool {
    let mut parts = pattern.split('.');
    let mut names = key.split('.');
    loop {
        match (parts.next(), names.next()) {
            (None, None) => return true,
            (Some("*"), Some(name)) if !name.is_empty() => {}
            (Some(part), Some(name)) if part == name => {}
            _ => return false,
        }
    }
}

/// Merges the defaults, the files and the environment. Fails only if a file cannot be read as TOML.
pub(super) fn merge_layers(sources: &ConfigSources) -> Result<MergedConfig, ConfigFault> {
    let defaults = Figment::from(Toml::string(DEFAULTS));
    let mut known_settings = BTreeMap::new();
    let mut unsettable = BTreeSet::new();
    let tree = defaults.extract::<Dict>().map_err(|e| unreadable_fault(&e))?;
    flatten_tree("", &tree, &mut |key, value| {
        if value.as_str() == Some("") {
            unsettable.insert(key.clone());
        }
        if let Some(kind) = SettingKind::of_value(value) {
            known_settings.insert(key, kind);
        }
    });

    let merge_explicit = |mut figment: Figment| -> Result<Figment, ConfigFault> {
        if let Some(path) = &sources.file {
            figment = figment.merge(read_toml_file(path)?);
        } else if let Some(path) = sources.optional_file.as_ref().filter(|path| path.exists()) {
            figment = figment.merge(Toml::file_exact(path));
        }
        figment = figment.merge(EnvLayer::new(&sources.env, &known_settings));
        if let Some(path) = &sources.override_file {
            figment = figment.merge(read_toml_file(path)?);
        }
        Ok(figment)
    };
    let mut figment = merge_explicit(defaults.clone())?;
    let tree = figment.extract::<Dict>().map_err(|e| unreadable_fault(&e))?;
    let presets = PresetLayer::of_settings(&tree);
    if !presets.0.is_empty() {
        figment = merge_explicit(defaults.merge(presets.clone()))?;
        // An explicit empty text means "not set", so the preset's text counts.
        let tree = figment.extract::<Dict>().map_err(|e| unreadable_fault(&e))?;
        figment = figment.merge(presets.with_texts_unset_in(&tree));
    }

    let tree = figment.extract::<Dict>().map_err(|e| unreadable_fault(&e))?;
    let mut leaves = Vec::new();
    flatten_tree("", &tree, &mut |key, value| {
        leaves.push(SettingValue {
            kind: SettingKind::of_value(value),
            source: figment.get_metadata(value.tag()).map(source_of),
            value: value.clone(),
            key,
        });
    });
    Ok(MergedConfig {
        figment,
        known_settings,
        unsettable,
        leaves,
    })
}

fn read_toml_file(path: &std::path::Path) -> Result<figment::providers::Data<Toml>, ConfigFault> {
    std::fs::read_to_string(path).map_err(|e| ConfigFault {
        key: String::new(),
        source: None,
        message: format!("cannot read {}: {e}", path.display()),
    })?;
    Ok(Toml::file_exact(path))
}

fn unreadable_fault(error: &figment::Error) -> ConfigFault {
    ConfigFault {
        key: error.path.join("."),
        source: error.metadata.as_ref().map(source_of),
        message: without_source(&error.kind.to_string()),
    }
}

/// Returns a TOML error without the quoted line, which may contain a secret.
fn without_source(text: &str) -> String {
    let is_quoted = |line: &str| {
        let line = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        line.trim_start().starts_with('|')
    };
    let error_lines: Vec<&str> = text
        .lines()
        .filter(|line| !is_quoted(line))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    error_lines.join(": ")
}

/// Describes the source of a value for a person.
pub(super) fn source_of(metadata: &Metadata) -> String {
    match metadata.source.as_ref().and_then(|s| s.file_path()) {
        Some(path) => path.display().to_string(),
        None if metadata.name == EnvLayer::NAME => EnvLayer::NAME.to_owned(),
        None if metadata.name == PresetLayer::NAME => PresetLayer::NAME.to_owned(),
        None => "the defaults".to_owned(),
    }
}

fn flatten_tree(prefix: &str, tree: &Dict, visit: &mut impl FnMut(String, &Value)) {
    for (name, value) in tree {
        let key = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}.{name}")
        };
        match value {
            Value::Dict(_, inner) if !is_table(&key) => flatten_tree(&key, inner, visit),
            _ => visit(key, value),
        }
    }
}

/// The layer of `COLLOQUY__SECTION__KEY` variables. Unlike figment's provider, the layer parses each value by the
/// type of its setting. An API key made of digits thus stays a text.
struct EnvLayer(Dict);

impl EnvLayer {
    const NAME: &'static str = "the environment";

    fn new(env: &[(String, String)], known_settings: &BTreeMap<String, SettingKind>) -> Self {
        let mut root = Dict::new();
        for (name, text) in env {
            let Some(path) = name.strip_prefix(ENV_PREFIX) else {
                continue;
            };
            let key = path.to_lowercase().replace("__", ".");
            let kind = if is_in_table(&key) {
                Some(SettingKind::Table)
            } else {
                kind_of(known_settings, &key)
            };
            let value = parse_as_kind(kind, text);
            insert_at_key(&mut root, &key, value);
        }
        Self(root)
    }
}

fn parse_as_kind(kind: Option<SettingKind>, text: &str) -> Value {
    let trimmed = text.trim();
    match kind {
        Some(SettingKind::Switch) => match trimmed.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Value::from(true),
            "false" | "0" | "no" | "off" => Value::from(false),
            _ => Value::from(text),
        },
        Some(SettingKind::Integer | SettingKind::Number) => trimmed
            .parse::<i64>()
            .map(Value::from)
            .or_else(|_| trimmed.parse::<f64>().map(Value::from))
            .unwrap_or_else(|_| Value::from(text)),
        Some(SettingKind::List) => {
            let inner = trimmed.trim_start_matches('[').trim_end_matches(']');
            let items: Vec<Value> = inner
                .split(',')
                .map(|item| item.trim().trim_matches('"'))
                .filter(|item| !item.is_empty())
                .map(Value::from)
                .collect();
            Value::from(items)
        }
        // A part of a table may have any type, and a text needs no quotation marks.
        Some(SettingKind::Table) => serde_json::from_str::<serde_json::Value>(trimmed)
            .ok()
            .and_then(|json| Value::serialize(json).ok())
            .unwrap_or_else(|| Value::from(text)),
        Some(SettingKind::Text) | None => Value::from(text),
    }
}

fn insert_at_key(tree: &mut Dict, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            tree.insert(key.to_owned(), value);
        }
        Some((head, rest)) => {
            let entry = tree.entry(head.to_owned()).or_insert_with(|| Value::from(Dict::new()));
            if !matches!(entry, Value::Dict(..)) {
                *entry = Value::from(Dict::new());
            }
            if let Value::Dict(_, inner) = entry {
                insert_at_key(inner, rest, value);
            }
        }
    }
}

/// The layer of presets, above the defaults and below everything else.
#[derive(Clone)]
struct PresetLayer(Dict);

impl PresetLayer {
    const NAME: &'static str = "the preset";

    /// Returns the settings of all presets that the merged settings name. An unknown preset sets nothing.
    fn of_settings(tree: &Dict) -> Self {
        let mut settings = Dict::new();
        let mut add = |section: &str, value: Option<&Value>| {
            if let Some(preset) = value.and_then(Value::as_str).and_then(|name| Preset::find(name.trim())) {
                insert_at_key(&mut settings, section, Value::from(preset.settings()));
            }
        };
        let llm = dict_at(tree, "llm");
        let endpoints = llm.and_then(|llm| dict_at(llm, "endpoints"));
        add("llm", llm.and_then(|llm| llm.get("preset")));
        for name in endpoints.into_iter().flat_map(Dict::keys) {
            let endpoint = endpoints.and_then(|endpoints| dict_at(endpoints, name));
            let preset = endpoint.and_then(|endpoint| endpoint.get("preset"));
            add(&format!("llm.endpoints.{name}"), preset);
        }
        Self(settings)
    }

    /// Returns the texts of this layer for which the merged settings have an empty text.
    fn with_texts_unset_in(&self, merged: &Dict) -> Self {
        let mut is_unset = BTreeSet::new();
        flatten_tree("", merged, &mut |key, value| {
            if value.as_str().is_some_and(|text| text.trim().is_empty()) {
                is_unset.insert(key);
            }
        });
        let mut settings = Dict::new();
        flatten_tree("", &self.0, &mut |key, value| {
            if is_unset.contains(&key) {
                insert_at_key(&mut settings, &key, value.clone());
            }
        });
        Self(settings)
    }
}

fn dict_at<'a>(tree: &'a Dict, key: &str) -> Option<&'a Dict> {
    match tree.get(key)? {
        Value::Dict(_, inner) => Some(inner),
        _ => None,
    }
}

impl Provider for PresetLayer {
    fn metadata(&self) -> Metadata {
        Metadata::named(Self::NAME)
    }
    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.0.clone()))
    }
}

impl Provider for EnvLayer {
    fn metadata(&self) -> Metadata {
        Metadata::named(Self::NAME)
    }
    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.0.clone()))
    }
}
