//! The numbers of docs/algorithms.md, named. Defaults are in `config/default.toml`; every one can be
//! set by file or by `COLLOQUY__SECTION__KEY`.

use serde::{Deserialize, Serialize};

use crate::memory::scoring::RecallWeights;

/// Limits and numbers of the dialogue use cases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DialogueSettings {
    pub turn: TurnSettings,
    pub prompt: PromptSettings,
    pub recall: RecallSettings,
    pub scenarios: ScenarioSettings,
    pub summaries: SummarySettings,
    pub jobs: JobSettings,
    pub retention: RetentionSettings,
    pub saves: SaveSettings,
    pub conversation: ConversationSettings,
}

/// How NPCs talk with each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversationSettings {
    /// Lines after which a conversation ends when nobody says otherwise; 20.
    pub max_turns: u32,
    /// The pause between two lines of a conversation that goes on by itself, in ms; 800.
    pub pause_ms: u64,
    /// What is added per character of the line that was said, in ms, for reading it; 30.
    pub reading_ms_per_char: u64,
    /// The longest pause with all that is added, in ms; 6,000.
    pub longest_pause_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnSettings {
    /// Longest player line, in Unicode scalar values; 2,000.
    pub max_line_chars: usize,
    /// Turns that may wait behind the running one, per session; 4.
    pub max_queued: usize,
    /// How long a turn waits for the previous turn's extraction, in ms; 300.
    pub wait_for_memory_ms: u64,
    /// Longest a whole turn may take, in ms; 120,000.
    pub timeout_ms: u64,
    /// Raw turns shown to the intent classifier; 3.
    pub intent_turns: usize,
    /// How long what was cut off a reply is kept sealed, so that it may be taken up again, in seconds; 30.
    pub seal_s: u32,
    /// How long a turn of a session with `playback: "ack"` waits for being played until it counts as
    /// heard, in seconds; 60.
    pub playback_timeout_s: u32,
}

/// Token budgets of the prompt's sections (docs/algorithms.md#prompt-assembly).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptSettings {
    /// Hard limit of the whole prompt; 8,000.
    pub total_tokens: u32,
    /// Who the player is: its name, when it was met last, and what about; 300.
    pub acquaintance_tokens: u32,
    /// Pinned facts; 400.
    pub pinned_tokens: u32,
    /// Summaries; 1,200.
    pub summary_tokens: u32,
    /// Raw turns; 6,000 (more forces a summary).
    pub history_tokens: u32,
    /// What NPCs said to each other, when a turn is about it; 600.
    pub overheard_tokens: u32,
    /// What an NPC may tell of its past, when a turn is about it; 1,000.
    pub scenario_tokens: u32,
    /// One scenario of it; 400.
    pub scenario_item_tokens: u32,
    /// Retrieved facts in all; 1,200.
    pub memory_tokens: u32,
    /// One retrieved fact; 150.
    pub memory_item_tokens: u32,
    /// The state block, in characters; 1,500.
    pub state_chars: usize,
    /// Inject the state block; true.
    pub state_block: bool,
    /// Ask the model to end its reply with a state block; true.
    pub ask_for_state: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallSettings {
    pub weights: RecallWeights,
    /// λ of recency, per day; 0.002.
    pub recency_lambda_per_day: f64,
    /// Facts packed into the prompt; 8.
    pub top_k: usize,
    /// Candidates per leg; 30, 30, 10, 10.
    pub dense: usize,
    pub sparse: usize,
    pub important: usize,
    pub recent: usize,
    /// Candidates this similar (raw cosine) merge; 0.95.
    pub near_duplicate_cosine: f32,
    /// How much a fact that resembles a better one gives way to one that does not, 0 (not at all) to 1; 0.
    pub diversity: f64,
    /// Retrieved facts whose relevance and keyword, by their weights, come to less stay out of the prompt; 0.05.
    pub min_score: f64,
    /// Search before it is known whether the line's intent needs it; true.
    pub speculative: bool,
}

/// What an NPC may tell of its own past (docs/algorithms.md#scenarios).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioSettings {
    /// Scenarios in a prompt; 3.
    pub top_k: usize,
    /// Scenarios below this score stay out of the prompt, unless the line points at one; 0.15.
    pub min_score: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummarySettings {
    /// Turns until the first summary; 10.
    pub first_after_turns: u32,
    /// Turns until each further one; 20.
    pub then_every_turns: u32,
    /// Or this long after the last, in seconds; 3,600.
    pub then_every_s: u64,
    /// Unsummarised raw turns that force one; 30.
    pub force_turns: u32,
    /// Unsummarised tokens that force one; 6,000.
    pub force_tokens: u32,
    /// Summaries kept per dialogue; 5.
    pub keep: usize,
    /// Turns that stay in the buffer whatever is summarised; 8.
    pub buffer_min_turns: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaveSettings {
    /// Saves that a world may have; 100.
    pub max_per_world: u32,
}

/// How long is kept what only explains or saves work, and what was taken back, in days; 0: for ever. What
/// NPCs know, and what was said and stands, is not among it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionSettings {
    /// After-turn jobs that are done; 90.
    pub done_jobs_d: u32,
    /// Traces of turns; 90.
    pub traces_d: u32,
    /// Verdicts about pairs of statements. A pair that comes up again is judged again; 90.
    pub verdicts_d: u32,
    /// Turns that were taken back and that no save has, with all they had taught; 30.
    pub unsaid_d: u32,
    /// Sessions in which nothing was ever said, and answers to those who took nothing back; 1.
    pub unchanged_d: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSettings {
    /// Attempts before a job that fails for no outage is dead; 8.
    pub max_attempts: u32,
    /// Attempts before a job whose model answers, and whose answers are of no use, is dead; 2.
    pub max_useless: u32,
    /// How long after it was written a job is still tried again when a model or the store could not
    /// be reached, in seconds, and `max_attempts` times in any case; 86,400.
    pub give_up_after_s: u64,
    /// How long a job may run before another may take it, in seconds; 120.
    pub lease_s: u64,
    /// First delay after a failure, in seconds, doubling; 2.
    pub retry_base_s: u64,
    /// Jobs of one tenant running at once; by default as many as may call models, 48.
    pub concurrency: usize,
    /// How often the curator looks for jobs left behind, in seconds; 5.
    pub poll_s: u64,
    /// Tokens of a judge call about what a turn taught, prompt and answer together; 0: no judge is asked; 800.
    pub judge_tokens: u32,
}
