//! Settings of tiers: the tenant, a world, an NPC, a session. A lower tier overrides an upper tier, value by value
//! (docs/guides/prompts.md#tiers-of-settings).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    fact::FactKind,
    scoring::{RecallPreset, RecallWeights},
};

/// Longest retention of facts, in days.
const MAX_RETENTION_DAYS: u32 = 36_500;
/// Longest name of a model, in characters.
const MAX_MODEL_CHARS: usize = 200;

/// A setting of tiers, or a group of settings.
pub trait TierValue: Clone {
    /// This value, overridden by the value of a lower tier.
    #[must_use]
    fn overridden_by(&self, lower: &Self) -> Self;
    /// A value out of its range, in words.
    fn find_fault(&self) -> Option<String> {
        None
    }
}

/// Defines a group of optional settings with their ranges, and how a lower tier overrides them. A further method may
/// find faults.
macro_rules! setting_group {
    (
        $(#[$doc:meta])* $name:ident $(checked by $find_fault:ident)? {
            $($(#[$field_doc:meta])* $field:ident: $type:ty $([$min:tt, $max:tt])?,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[$field_doc])*
                $(#[schema(minimum = $min, maximum = $max)])?
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )+
        }
        impl TierValue for $name {
            fn overridden_by(&self, lower: &Self) -> Self {
                Self { $($field: lower.$field.clone().or_else(|| self.$field.clone()),)+ }
            }
            fn find_fault(&self) -> Option<String> {
                $($(
                    if self.$field.is_some_and(|value| !($min..=$max).contains(&value)) {
                        return Some(format!("`{}` must be from {} to {}", stringify!($field), $min, $max));
                    }
                )?)+
                None$(.or_else(|| self.$find_fault()))?
            }
        }
    };
}

setting_group! {
    /// Budgets of a prompt's sections, in tokens, 0 to 100,000; of the history at least 500. Default: the configuration.
    /// The whole prompt is limited by the operator.
    PromptTuning {
        pinned_tokens: u32 [0, 100_000],
        summary_tokens: u32 [0, 100_000],
        // Fewer would make a summary of every turn.
        history_tokens: u32 [500, 100_000],
        overheard_tokens: u32 [0, 100_000],
        scenario_tokens: u32 [0, 100_000],
        lore_tokens: u32 [0, 100_000],
        memory_tokens: u32 [0, 100_000],
        episode_tokens: u32 [0, 100_000],
        insight_tokens: u32 [0, 100_000],
        /// Whether prompts show the state block.
        state_block: bool,
        /// Whether the model is asked to end its reply with a state block.
        ask_for_state: bool,
        /// Whether the state block may say that a turn holds nothing to learn, so that no facts are extracted.
        ask_if_nothing_new: bool,
    }
}

setting_group! {
    /// When a summary is due. Default: the configuration.
    SummaryTuning {
        /// Turns before the first summary, 1 to 10,000.
        first_after_turns: u32 [1, 10_000],
        /// Turns between summaries, 1 to 10,000.
        then_every_turns: u32 [1, 10_000],
        /// Unsummarised turns that force a summary, 1 to 10,000.
        force_turns: u32 [1, 10_000],
        /// Unsummarised tokens that force a summary, 500 to 100,000; at most the budget of the history counts.
        force_tokens: u32 [500, 100_000],
    }
}

setting_group! {
    /// Curation passes. Default: the configuration.
    CurationTuning {
        /// A pass after so many turns, up to 10,000; 0: no passes.
        every_turns: u32 [0, 10_000],
    }
}

setting_group! {
    /// Models per task, from the operator's list (`llm.npc_models`). Default: the operator's routes.
    TaskModels checked by find_name_fault {
        /// An NPC's own `model` comes first.
        #[schema(min_length = 1, max_length = 200)]
        reply: String,
        #[schema(min_length = 1, max_length = 200)]
        intent: String,
        #[schema(min_length = 1, max_length = 200)]
        extraction: String,
        #[schema(min_length = 1, max_length = 200)]
        judge: String,
        #[schema(min_length = 1, max_length = 200)]
        summary: String,
        #[schema(min_length = 1, max_length = 200)]
        curation: String,
    }
}

/// How long NPCs remember what they learn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionTuning {
    /// Days by the kind of a fact, up to 36,500; 0: forever. A fact expires so many days after the line that told it. Pinned
    /// facts and facts that people write do not expire. Default: forever.
    #[schema(value_type = BTreeMap<String, u32>)]
    pub facts_d: BTreeMap<FactKind, u32>,
}

impl RetentionTuning {
    /// Returns the retention of a kind in days. `None`: forever.
    #[must_use]
    pub fn days_of(&self, kind: FactKind) -> Option<u32> {
        self.facts_d.get(&kind).copied().filter(|days| *days > 0)
    }
}

impl TierValue for RetentionTuning {
    /// Kind by kind.
    fn overridden_by(&self, lower: &Self) -> Self {
        let mut facts_d = self.facts_d.clone();
        facts_d.extend(&lower.facts_d);
        Self { facts_d }
    }
    fn find_fault(&self) -> Option<String> {
        let (kind, _) = self.facts_d.iter().find(|(_, days)| **days > MAX_RETENTION_DAYS)?;
        Some(format!(
            "`facts_d.{}` must be at most {MAX_RETENTION_DAYS}",
            kind.as_str()
        ))
    }
}

/// How memories are weighed and chosen. Unset values come from the next tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorldRecall {
    /// `four_factor`: relevance .5, keywords .2, recency .15, importance .15. `rag`: relevance .6, keywords .25,
    /// recency .1, importance .05.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub preset: Option<RecallPreset>,
    /// Weights of your own in place of a preset: four numbers from 0 to 1 with the sum 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub weights: Option<RecallWeights>,
    /// How far a memory that resembles a better memory moves down: 0 (not at all) to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub diversity: Option<f64>,
    /// The most found facts in a prompt, 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 100)]
    pub top_k: Option<u32>,
    /// The minimum score of a found fact, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub min_score: Option<f64>,
}

impl TierValue for WorldRecall {
    /// Weights and presets override each other.
    fn overridden_by(&self, lower: &Self) -> Self {
        let (preset, weights) = match (lower.preset, lower.weights) {
            (None, None) => (self.preset, self.weights),
            chosen => chosen,
        };
        Self {
            preset,
            weights,
            diversity: lower.diversity.or(self.diversity),
            top_k: lower.top_k.or(self.top_k),
            min_score: lower.min_score.or(self.min_score),
        }
    }
    fn find_fault(&self) -> Option<String> {
        let is_share = |value: f64| (0.0..=1.0).contains(&value);
        if self.diversity.is_some_and(|value| !is_share(value)) {
            return Some("`diversity` must be from 0 to 1".to_owned());
        }
        if self.min_score.is_some_and(|value| !is_share(value)) {
            return Some("`min_score` must be from 0 to 1".to_owned());
        }
        if self.top_k.is_some_and(|value| value > 100) {
            return Some("`top_k` must be at most 100".to_owned());
        }
        if self.preset.is_some() && self.weights.is_some() {
            return Some("`preset` and `weights` do not go together".to_owned());
        }
        let weights = self.weights?;
        let weight_values = [weights.recency, weights.importance, weights.relevance, weights.keyword];
        let fits = weight_values.into_iter().all(is_share) && (weight_values.iter().sum::<f64>() - 1.0).abs() < 1e-6;
        (!fits).then(|| "`weights` must be from 0 to 1, with the sum 1".to_owned())
    }
}

impl TaskModels {
    /// Returns the named models, each with its task.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let models = [
            ("reply", &self.reply),
            ("intent", &self.intent),
            ("extraction", &self.extraction),
            ("judge", &self.judge),
            ("summary", &self.summary),
            ("curation", &self.curation),
        ];
        models
            .into_iter()
            .filter_map(|(task, model)| Some((task, model.as_deref()?)))
    }
    /// Returns the model for a task.
    #[must_use]
    pub fn model_for(&self, task: &str) -> Option<&str> {
        self.named().find(|(name, _)| *name == task).map(|(_, model)| model)
    }
    /// A name that is empty or too long, in words.
    fn find_name_fault(&self) -> Option<String> {
        let is_name = |model: &str| !model.trim().is_empty() && model.chars().count() <= MAX_MODEL_CHARS;
        let (task, _) = self.named().find(|(_, model)| !is_name(model))?;
        Some(format!("`{task}` must be a name of 1 to {MAX_MODEL_CHARS} characters"))
    }
}

/// A tier of settings, from the uppermost to the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// The server's configuration.
    Configuration,
    Tenant,
    World,
    Npc,
    Session,
}

/// A value, and the tier from which the value comes.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EffectiveValue {
    #[schema(value_type = Value)]
    pub value: Value,
    pub from: Tier,
}

/// The groups whose values are listed one by one.
const GROUPS: [&str; 6] = ["recall", "prompt", "summaries", "curation", "models", "retention"];

/// Returns each set value by its name, such as `recall.top_k`, from the lowest tier that sets the value. `tiers` are from
/// the uppermost to the lowest.
#[must_use]
pub fn effective_values(tiers: &[(Tier, Value)]) -> BTreeMap<String, EffectiveValue> {
    let mut effective = BTreeMap::new();
    for (tier, settings) in tiers {
        let mut set_value = |name: String, value: &Value| {
            // Weights and presets override each other.
            match name.as_str() {
                "recall.weights" => drop(effective.remove("recall.preset")),
                "recall.preset" => drop(effective.remove("recall.weights")),
                _ => {}
            }
            let value = value.clone();
            effective.insert(name, EffectiveValue { value, from: *tier });
        };
        let empty = Map::new();
        for (key, value) in settings.as_object().unwrap_or(&empty) {
            match value {
                Value::Null => {}
                Value::Object(group) if GROUPS.contains(&key.as_str()) => {
                    let values = group.iter().filter(|(_, value)| !value.is_null());
                    for (name, value) in values {
                        match value.as_object().filter(|_| key == "retention") {
                            Some(kinds) => kinds
                                .iter()
                                .for_each(|(kind, days)| set_value(format!("{key}.{name}.{kind}"), days)),
                            None => set_value(format!("{key}.{name}"), value),
                        }
                    }
                }
                value => set_value(key.clone(), value),
            }
        }
    }
    effective
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lower_tier_overrides_upper_tier_value_by_value() {
        let upper = PromptTuning {
            lore_tokens: Some(100),
            history_tokens: Some(2_000),
            ..PromptTuning::default()
        };
        let own = PromptTuning {
            lore_tokens: Some(0),
            ask_for_state: Some(false),
            ..PromptTuning::default()
        };
        let both = PromptTuning {
            lore_tokens: Some(0),
            history_tokens: Some(2_000),
            ask_for_state: Some(false),
            ..PromptTuning::default()
        };
        assert_eq!(upper.overridden_by(&own), both);
        let preset = WorldRecall {
            preset: Some(RecallPreset::Rag),
            top_k: Some(3),
            ..WorldRecall::default()
        };
        let weights = WorldRecall {
            weights: Some(RecallWeights::FOUR_FACTOR),
            ..WorldRecall::default()
        };
        let merged = preset.overridden_by(&weights);
        assert_eq!(
            (merged.preset, merged.weights, merged.top_k),
            (None, weights.weights, Some(3))
        );
        let merged = weights.overridden_by(&preset);
        assert_eq!((merged.preset, merged.weights), (preset.preset, None));
    }

    #[test]
    fn values_out_of_range_are_named() {
        let fault = |settings: Value| {
            let recall: WorldRecall = serde_json::from_value(settings).ok()?;
            recall.find_fault()
        };
        for (settings, named) in [
            (json!({"diversity": 1.5}), "diversity"),
            (json!({"min_score": -0.1}), "min_score"),
            (json!({"top_k": 101}), "top_k"),
            (
                json!({"preset": "rag", "weights": {"recency": 1, "importance": 0, "relevance": 0, "keyword": 0}}),
                "preset",
            ),
            (
                json!({"weights": {"recency": 1, "importance": 1, "relevance": 0, "keyword": 0}}),
                "weights",
            ),
        ] {
            assert!(fault(settings).is_some_and(|fault| fault.contains(named)), "{named}");
        }
        assert_eq!(fault(json!({"top_k": 100, "diversity": 1})), None);
        let summaries = SummaryTuning {
            force_turns: Some(0),
            ..SummaryTuning::default()
        };
        assert!(
            summaries
                .find_fault()
                .is_some_and(|fault| fault.contains("force_turns"))
        );
        let models = TaskModels {
            judge: Some(" ".to_owned()),
            ..TaskModels::default()
        };
        assert!(models.find_fault().is_some_and(|fault| fault.contains("judge")));
    }

    #[test]
    fn effective_values_name_their_tier() {
        let tiers = [
            (
                Tier::Configuration,
                json!({"recall": {"top_k": 8, "weights": {"recency": 1}}, "models": {}, "gossip": null}),
            ),
            (Tier::Tenant, json!({"gossip": true, "recall": {"top_k": 4}})),
            (
                Tier::World,
                json!({"adjacent": {"mill": ["green"]}, "recall": {"preset": "rag"}}),
            ),
            (Tier::Npc, json!({"gossip": false})),
        ];
        let found = effective_values(&tiers);
        let shown: Vec<_> = found
            .iter()
            .map(|(name, found)| (name.as_str(), &found.value, found.from))
            .collect();
        assert_eq!(
            shown,
            [
                ("adjacent", &json!({"mill": ["green"]}), Tier::World),
                ("gossip", &json!(false), Tier::Npc),
                ("recall.preset", &json!("rag"), Tier::World),
                ("recall.top_k", &json!(4), Tier::Tenant),
            ]
        );
    }
}
