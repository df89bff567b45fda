//! The intent of a line (docs/algorithms.md#intent-and-follow-ups): a small model call that never delays recall.

use minijinja::context;

use super::{
    Services,
    models::ModelRequest,
    prompt::{Template, escape_untrusted},
    scenarios::KnownScenarios,
    turn::TurnInput,
};
use colloquy_memory::{trace::CallTrace, turn::Intent};
use colloquy_ports::llm::{ChatMessage, ChatRole, JsonSchema, Task};

/// The value of [`ClassifiedIntent::source`] for an answer of the classifier.
pub(super) const INTENT_SOURCE_MODEL: &str = "model";

/// The answer of the classifier, or the assumption in its place.
#[derive(Debug, Clone)]
pub(super) struct ClassifiedIntent {
    pub intent: Intent,
    /// [`INTENT_SOURCE_MODEL`], or the reason why the classifier's answer was not used.
    pub source: String,
    /// True if the intent is unknown. The turn then leaves out no memory.
    pub in_full: bool,
    pub call: Option<CallTrace>,
}

impl ClassifiedIntent {
    /// False for small talk, which is not compared by meaning.
    pub fn is_about_something(&self) -> bool {
        self.in_full || self.intent != Intent::Chat
    }

    /// Returns an intent that recalls in full, because a failed classifier must not hide memories.
    fn assume_full_recall(why: impl std::fmt::Display, call: Option<CallTrace>) -> Self {
        Self {
            intent: Intent::Memory,
            source: format!("recall in full: {why}"),
            in_full: true,
            call,
        }
    }
}

/// Classifies the line of a turn. `known` has the scenarios that were lately unlocked or told. The route's timeout
/// limits the call. The call cannot fail a turn.
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
        model: services.named_model(Task::Intent),
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

/// Allows a single intent and no other text. Fits the classifier's few output tokens.
fn intent_schema() -> JsonSchema {
    let intent = serde_json::json!({ "type": "string", "enum": Intent::ALL });
    JsonSchema::for_object("intent", serde_json::json!({ "intent": intent }))
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
        for (intent, name) in Intent::ALL.iter().zip(allowed) {
            let answer = serde_json::json!({ "intent": name }).to_string();
            assert_eq!(Intent::find_in(&answer), Some(*intent), "{answer}");
        }
    }
}
