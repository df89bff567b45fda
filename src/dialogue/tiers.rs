//! The settings of a dialogue's tiers in place of the configuration.

use std::{borrow::Cow, sync::Arc};

use serde_json::{Value, json};

use super::{Services, settings::DialogueSettings};
use colloquy_memory::authored::{IntentClassification, Npc, WorldSettings};
use colloquy_ports::llm::Task;

/// Replaces the fields of `$to` for which `$from` has a value.
macro_rules! overlay {
    ($to:expr, $from:ident: $($field:ident),+) => {
        $($to.$field = $from.$field.unwrap_or($to.$field);)+
    };
}

impl Services {
    /// Returns the services with the settings of a world's tiers, already merged
    /// ([`World::for_npc`](colloquy_memory::authored::World::for_npc)).
    #[must_use]
    pub fn tuned_by(&self, settings: &WorldSettings) -> Cow<'_, Self> {
        match self.settings.tuned_by(settings) {
            None => Cow::Borrowed(self),
            Some(tuned) => Cow::Owned(Self {
                settings: Arc::new(tuned),
                ..self.clone()
            }),
        }
    }

    /// Returns the NPC's own model, or else the model that the tiers name, if the operator allows the model.
    #[must_use]
    pub fn reply_model(&self, npc: &Npc) -> Option<String> {
        let own_model = self.models.allowed_npc_model(npc).map(str::to_owned);
        own_model.or_else(|| self.named_model(Task::Reply))
    }

    /// Returns when the intents of lines are classified.
    pub(super) fn intent_classification(&self, settings: &WorldSettings) -> IntentClassification {
        let configured = self.settings.turn.intent_classification;
        settings.intent_classification.unwrap_or(configured)
    }

    /// Returns the model that the tiers name for a task, if the operator allows the model.
    #[must_use]
    pub fn named_model(&self, task: Task) -> Option<String> {
        let configured_model = self.settings.models.model_for(task.as_str());
        configured_model
            .filter(|model| self.models.is_model_allowed(model))
            .map(str::to_owned)
    }
}

impl DialogueSettings {
    /// Returns these settings with the values of `settings`. `None`: `settings` has no such value.
    pub(super) fn tuned_by(&self, settings: &WorldSettings) -> Option<Self> {
        let WorldSettings {
            recall,
            prompt,
            summaries,
            curation,
            models,
            ..
        } = settings;
        if recall.is_none() && prompt.is_none() && summaries.is_none() && curation.is_none() && models.is_none() {
            return None;
        }
        let mut tuned = self.clone();
        if let Some(recall) = recall {
            let to = &mut tuned.recall;
            if let Some(weights) = recall.weights {
                (to.preset, to.weights) = (None, weights);
            }
            to.preset = recall.preset.or(to.preset);
            overlay!(to, recall: diversity, min_score);
            to.top_k = recall
                .top_k
                .and_then(|top| usize::try_from(top).ok())
                .unwrap_or(to.top_k);
        }
        if let Some(prompt) = prompt {
            overlay!(
                tuned.prompt, prompt: pinned_tokens, summary_tokens, history_tokens, overheard_tokens, scenario_tokens,
                lore_tokens, memory_tokens, episode_tokens, insight_tokens, state_block, ask_for_state, ask_if_nothing_new
            );
        }
        if let Some(summaries) = summaries {
            let to = &mut tuned.summaries;
            overlay!(to, summaries: first_after_turns, then_every_turns, force_turns, force_tokens);
            // Turns that stay raw anyway need no summary.
            to.force_turns = to.force_turns.max(to.buffer_min_turns.saturating_add(1));
        }
        // Otherwise turns would leave the prompt before a summary has them.
        tuned.summaries.force_tokens = tuned.summaries.force_tokens.min(tuned.prompt.history_tokens);
        if let Some(curation) = curation {
            overlay!(tuned.curation, curation: every_turns);
        }
        if let Some(models) = models {
            tuned.models = models.clone();
        }
        Some(tuned)
    }

    /// Returns the values of the configuration that tiers can override, in the form of a tier's settings.
    #[must_use]
    pub fn tier_defaults(&self) -> Value {
        let prompt = &self.prompt;
        let recall = &self.recall;
        let summaries = &self.summaries;
        let mut weights = json!({
            "diversity": recall.diversity, "top_k": recall.top_k, "min_score": recall.min_score,
        });
        match recall.preset {
            Some(preset) => weights["preset"] = json!(preset),
            None => weights["weights"] = json!(recall.weights),
        }
        json!({
            "recency_lambda_per_day": recall.recency_lambda_per_day,
            "longest_wait_for_memory_ms": self.turn.longest_wait_for_memory_ms,
            "intent_classification": self.turn.intent_classification,
            "recall": weights,
            "prompt": {
                "pinned_tokens": prompt.pinned_tokens, "summary_tokens": prompt.summary_tokens,
                "history_tokens": prompt.history_tokens, "overheard_tokens": prompt.overheard_tokens,
                "scenario_tokens": prompt.scenario_tokens, "lore_tokens": prompt.lore_tokens,
                "memory_tokens": prompt.memory_tokens, "episode_tokens": prompt.episode_tokens, "insight_tokens": prompt.insight_tokens,
                "state_block": prompt.state_block, "ask_for_state": prompt.ask_for_state,
                "ask_if_nothing_new": prompt.ask_if_nothing_new,
            },
            "summaries": {
                "first_after_turns": summaries.first_after_turns, "then_every_turns": summaries.then_every_turns,
                "force_turns": summaries.force_turns, "force_tokens": summaries.force_tokens,
            },
            "curation": {"every_turns": self.curation.every_turns},
        })
    }
}
