//! The intent of a line (docs/algorithms.md#intent-and-follow-ups): a small model call that never delays recall.

mod classified;

use std::sync::LazyLock;

use minijinja::context;

pub(super) use self::classified::ClassifiedIntent;
use self::classified::{INTENT_SOURCE_MODEL, INTENT_SOURCE_REPLACED};
use super::{
    Services,
    knowledge::scenarios::{self, KnownScenarios},
    models::ModelRequest,
    prompt::{Template, escape_untrusted},
    turn::TurnInput,
};
use colloquy_memory::{
    authored::{IntentClassification, ReplyLanguage},
    keywords,
    trace::TurnTrace,
    turn::Intent,
};
use colloquy_ports::llm::{ChatMessage, ChatRole, JsonSchema, Task};

/// The value of [`ClassifiedIntent::source`] for a line that asks nothing.
const INTENT_SOURCE_STATEMENT: &str = "the line asks nothing";
/// Raw turns that the model sees. A line rarely points further back.
const SHOWN_TURNS: usize = 3;

/// Returns the intent in a trace if the classifier named it.
pub(super) fn classified_intent(trace: &TurnTrace) -> Option<Intent> {
    let sources = [INTENT_SOURCE_MODEL, INTENT_SOURCE_REPLACED];
    sources.contains(&trace.intent_source.as_str()).then_some(trace.intent)
}

/// Where a line's intent comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentSource {
    /// The classifier model.
    Model,
    /// A line that asks nothing is small talk, and the classifier is not asked.
    Statement,
    /// The words of the line name the likeliest intent, and the classifier is not asked.
    Rules,
    /// The turn recalls in full, as for a question about memory: it has no line to classify, or the classifier failed.
    Assumed,
    /// The reply was shown before: the turn needs no memory, and the classifier is not asked.
    Shown,
    /// The caller of a preview names the intent, and the classifier is not asked.
    Requested(Intent),
    /// The classifier's answer for the same line in the turn that this turn replaces.
    Replaced(Intent),
}

impl IntentSource {
    /// NPC conversations and greetings always recall in full, because a player's line to classify is missing.
    #[must_use]
    pub fn for_turn(services: &Services, input: &TurnInput) -> Self {
        if input.given_reply().is_some() {
            return Self::Shown;
        }
        let settings = &input.world.settings;
        match (&input.player, input.known_intent) {
            (Some(_), Some(intent)) if !input.is_greeting() => Self::Replaced(intent),
            (Some(_), None) if is_statement(input) => Self::Statement,
            (Some(_), None) if !input.is_greeting() => match services.intent_classification(settings) {
                // The rules know only English and Korean.
                IntentClassification::ByRules if settings.reply_language == Some(ReplyLanguage::Player) => {
                    Self::Assumed
                }
                IntentClassification::ByRules => Self::Rules,
                IntentClassification::BesideReply | IntentClassification::BeforeReply => Self::Model,
            },
            _ => Self::Assumed,
        }
    }
}

/// True if a line asks nothing. Where players choose the language, the answer is false, because only English and Korean
/// questions are recognised.
fn is_statement(input: &TurnInput) -> bool {
    let reply_before = input.history.last().map_or("", |turn| turn.reply_text.as_str());
    input.world.settings.reply_language != Some(ReplyLanguage::Player)
        && keywords::asks_nothing(&input.line, reply_before)
}

/// Which sources of knowledge a turn has searched.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchedSources {
    pub facts: bool,
    pub scenarios: bool,
    pub overheard: bool,
}

impl ClassifiedIntent {
    /// Lists the sources that the turn has not searched because of the intent, in words.
    pub(crate) fn list_unsearched(&self, input: &TurnInput, searched: SearchedSources) -> Vec<String> {
        let intent = self.intent.as_str();
        let can_tell_past = scenarios::can_tell_past(input);
        let is_compared = self.is_about_something();
        let sources = [
            (!searched.facts, "facts: not searched"),
            (
                can_tell_past && !searched.scenarios,
                "scenarios: not searched, the line names no open one",
            ),
            (
                input.world.lore_version > 0 && !is_compared,
                "lore: searched by name alone",
            ),
            (
                input.player.is_some() && !is_compared,
                "episodes: not compared by meaning",
            ),
            (
                input.player.is_some() && self.intent != Intent::Overheard && !searched.overheard,
                "overheard lines: not searched",
            ),
        ];
        let unsearched = sources.into_iter().filter(|(is_unsearched, _)| *is_unsearched);
        unsearched.map(|(_, note)| format!("{note}, intent {intent}")).collect()
    }

    /// Returns a note for the trace if the classifier was asked, and its answer was not used.
    pub(crate) fn note_of_failure(&self, source: IntentSource) -> Option<String> {
        let failed = self.source != INTENT_SOURCE_MODEL && matches!(source, IntentSource::Model);
        failed.then(|| format!("the intent was not classified; {}", self.source))
    }
}

/// Returns the intent of a turn's line.
pub(super) async fn classify_line(
    services: &Services,
    input: &TurnInput,
    source: IntentSource,
    known_scenarios: &KnownScenarios,
) -> ClassifiedIntent {
    let classified = |intent, source: &str, in_full| ClassifiedIntent {
        intent,
        source: source.to_owned(),
        in_full,
        call: None,
    };
    match source {
        IntentSource::Model => classify_intent(services, input, known_scenarios).await,
        IntentSource::Statement => classified(Intent::Chat, INTENT_SOURCE_STATEMENT, false),
        IntentSource::Assumed => classified(Intent::Memory, "not asked", true),
        IntentSource::Shown => classified(Intent::Chat, "the reply was given", false),
        IntentSource::Rules => ClassifiedIntent::by_rules(&input.line),
        IntentSource::Requested(intent) => classified(intent, "named by the request", false),
        IntentSource::Replaced(intent) => classified(intent, INTENT_SOURCE_REPLACED, false),
    }
}

/// Classifies the line of a turn. `known_scenarios` are those that were lately unlocked or told. The route's timeout
/// limits the call. The call cannot fail a turn.
async fn classify_intent(services: &Services, input: &TurnInput, known_scenarios: &KnownScenarios) -> ClassifiedIntent {
    let first_shown = input.history.len().saturating_sub(SHOWN_TURNS);
    let turns: Vec<_> = input.history[first_shown..]
        .iter()
        .map(|turn| context! { player => escape_untrusted(&turn.player_text), npc => escape_untrusted(&turn.reply_text) })
        .collect();
    let [told_titles, untold_titles] = [true, false].map(|is_told| {
        known_scenarios
            .recent_titles(is_told)
            .map(escape_untrusted)
            .collect::<Vec<_>>()
    });
    let line = escape_untrusted(&input.line);
    let values = context! { turns, titles => told_titles, ready => untold_titles, line };
    let prompt = match services.prompts.render(input.npc.language, Template::Intent, values) {
        Ok(prompt) => prompt,
        Err(error) => return ClassifiedIntent::assume_full_recall(error, None),
    };
    let request = ModelRequest {
        task: Task::Intent,
        messages: vec![ChatMessage::new(ChatRole::User, prompt)],
        json_schema: Some(intent_schema()),
        model: services.named_model(Task::Intent),
        more_room: false,
        client: None,
    };
    match services.models.request_completion(&input.scope, request).await {
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
    static SCHEMA: LazyLock<JsonSchema> = LazyLock::new(|| {
        let intent = serde_json::json!({ "type": "string", "enum": Intent::ALL });
        JsonSchema::for_object("intent", serde_json::json!({ "intent": intent }))
    });
    SCHEMA.clone()
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
