//! The script of a story, `tests/plays/<story>/story.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A story: settings of the server, and steps in order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Story {
    /// One sentence about the story, for readers.
    pub about: String,
    /// Settings of the server by their names in the environment, such as `COLLOQUY__SUMMARIES__MIN_TURNS`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What the story may cost at most.
    pub cost: Option<LineCost>,
    #[serde(default)]
    pub precision: PrecisionLimits,
    pub steps: Vec<Step>,
}

/// Calls and prompt tokens of a whole story, jobs included, for each line of a player. An embedder's calls do not count.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineCost {
    pub calls: f64,
    /// By the server's own count.
    pub prompt_tokens: f64,
}

/// What the story's prompts may show at most. A field that is left out is not checked.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrecisionLimits {
    /// Found facts in the prompt of a line with the intent `memory`, on average.
    pub facts_per_question: Option<f64>,
    /// The share of the stored facts that no prompt of a line has shown, in [0, 1].
    pub never_shown: Option<f64>,
}

/// A line of a player, or a request of the backend. After each step, the play waits until all jobs have ended.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The words of a player in `session`.
    pub say: Option<String>,
    /// The variable of the session in which `say` is said.
    pub session: Option<String>,
    /// Method and path, such as `POST /v1/worlds/vale/events`. `{name}` stands for a variable, here and in `body`.
    pub request: Option<String>,
    pub body: Option<Value>,
    /// The expected status of the answer; without this field any status below 300.
    pub status: Option<u16>,
    /// The variable that gets the `id` of the answer. A line sets `{turn}` to the number of its turn.
    pub bind: Option<String>,
    /// What must hold after the step.
    #[serde(default)]
    pub expect: Vec<Expectation>,
}

/// Parts that a prompt or an answer of the server has, and parts that are missing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// A task: the last prompt of this task in this step.
    pub prompt: Option<String>,
    /// A path: the JSON that the server answers to a GET.
    pub get: Option<String>,
    #[serde(default)]
    pub has: Vec<String>,
    #[serde(default)]
    pub lacks: Vec<String>,
}

impl Step {
    /// The words that name the step in recorded answers and in reports.
    pub fn label(&self) -> String {
        let words = self.say.as_deref().or(self.request.as_deref()).unwrap_or_default();
        words.chars().take(80).collect()
    }
}

/// Replaces `{name}` with the values of the variables, in texts at any depth.
pub fn fill_variables(value: &Value, variables: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => Value::String(fill_text(text, variables)),
        Value::Array(values) => values.iter().map(|value| fill_variables(value, variables)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), fill_variables(value, variables)))
            .collect(),
        _ => value.clone(),
    }
}

pub fn fill_text(text: &str, variables: &BTreeMap<String, String>) -> String {
    variables.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}
