//! What a line is after (docs/algorithms.md#intent-and-follow-ups): one small call, beside recall and never in its way.

use minijinja::context;

use super::{
    Services,
    models::ModelRequest,
    prompt::{Template, escape_untrusted},
    scenarios::KnownScenarios,
    turn::TurnInput,
};
use crate::{
    memory::{trace::CallTrace, turn::Intent},
    ports::llm::{ChatMessage, ChatRole, JsonSchema, Task},
};

/// [`ClassifiedIntent::source`] when the classifier's answer was used.
pub(super) const INTENT_SOURCE_MODEL: &str = "model";

/// What the classifier said, or what is assumed in its place.
#[derive(Debug, Clone)]
pub(super) struct ClassifiedIntent {
    pub intent: Intent,
    /// [`INTENT_SOURCE_MODEL`], or why the classifier's answer was not used.
    pub source: String,
    /// Nobody could tell what the line is after: nothing is left out for it.
    pub in_full: bool,
    pub call: Option<CallTrace>,
}

impl ClassifiedIntent {
    /// Recall in full: nothing is left out because a classifier failed.
    fn assume_full_recall(why: impl std::fmt::Display, call: Option<CallTrace>) -> Self {
        Self {
            intent: Intent::Memory,
            source: format!("recall in full: {why}"),
            in_full: true,
            call,
        }
    }
}

/// Classifies the line of a turn, `known` being what was unlocked or told of the NPC's past lately. Its route's timeout bounds it; it
/// cannot fail a turn.
pub(super) async fn classify_intent(
    services: &Services,
    input: &TurnInput,
    known: &KnownScenarios,
) -> ClassifiedIntent {
    let shown = input.history.len().saturating_sub(services.settings.turn.intent_turns);
    let turns: Vec<_> = input.history[shown..]
        .iter()
        .map(|turn| context! { player => escape_untrusted(&turn.player_text), npc => escape_untrusted(&turn.reply_text) })
        .collect();
    let [told, ready] = [true, false].map(|told| known.recent_titles(told).map(escape_untrusted).collect::<Vec<_>>());
    let values = context! { turns, titles => told, ready, line => escape_untrusted(&input.line) };
    let prompt = match services.prompts.render(input.npc.language, Template::Intent, values) {
        Ok(prompt) => prompt,
        Err(error) => return ClassifiedIntent::assume_full_recall(error, None),
    };
    let ask = ModelRequest {
        task: Task::Intent,
        messages: vec![ChatMessage::new(ChatRole::User, prompt)],
        json_schema: Some(intent_schema()),
        model: None,
        more_room: false,
    };
    match services.models.request_completion(&input.scope, ask).await {
        (Ok(answer), call) => match Intent::find_in(&answer.text) {
            Some(intent) => ClassifiedIntent {
                intent,
                source: INTENT_SOURCE_MODEL.to_owned(),
                in_full: false,
                call: Some(call),
            },
            None => ClassifiedIntent::assume_full_recall("the classifier named no intent", Some(call)),
        },
        (Err(error), call) => ClassifiedIntent::assume_full_recall(error, Some(call)),
    }
}

/// One of the intents and nothing else. Fits the classifier's few output tokens.
fn intent_schema() -> JsonSchema {
    let intents = Intent::ALL.map(Intent::as_str);
    JsonSchema {
        name: "intent",
        schema: serde_json::json!({
            "type": "object",
            "properties": { "intent": { "type": "string", "enum": intents } },
            "required": ["intent"],
            "additionalProperties": false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intents_allowed_by_the_schema_are_parsed() {
        let schema = intent_schema().schema;
        let allowed = schema["properties"]["intent"]["enum"].as_array();
        let allowed = allowed.map(Vec::as_slice).unwrap_or_default();
        assert_eq!(allowed.len(), Intent::ALL.len());
        for (intent, name) in Intent::ALL.into_iter().zip(allowed) {
            let answer = serde_json::json!({ "intent": name }).to_string();
            assert_eq!(Intent::find_in(&answer), Some(intent), "{answer}");
        }
    }
}
