//! Why an NPC said what it said: kept with every turn (docs/design.md#invariants).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    locks::DisclosureLocks,
    private_terms::PrivateTerms,
    progress::Progress,
    scenario::ScenarioScore,
    turn::{Intent, Usage},
};
use crate::ids::{FactId, ScenarioId};

/// The four factors of a recall score, each in [0, 1], and their weighted sum (docs/algorithms.md#recall).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScoreParts {
    pub recency: f64,
    pub importance: f64,
    /// The cosine, calibrated to [0, 1].
    pub relevance: f64,
    pub keyword: f64,
    /// The weighted sum, in [0, 1] for weights that sum to 1.
    pub total: f64,
    /// The raw cosine, in [-1, 1].
    pub cosine: f64,
}

/// What became of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CandidateFate {
    /// It is in the prompt.
    Used,
    /// It merged into a better one (cosine ≥ 0.95).
    NearDuplicate,
    /// Better ones filled the top places.
    BeyondTopK,
    /// It did not fit the token budget.
    OverBudget,
    /// Its total is below `recall.min_score`.
    TooWeak,
    /// Small talk, and the fact is not about the line: only important or recent.
    OffTopic,
    /// It is in the prompt anyway, pinned.
    Pinned,
    /// It is in the prompt anyway, in the state block.
    InStateBlock,
    /// NPCs among themselves: it was learned from a line that the prompt shows.
    InHistory,
}

impl CandidateFate {
    /// Whether the prompt has it.
    #[must_use]
    pub const fn is_in_prompt(self) -> bool {
        matches!(self, Self::Used | Self::Pinned | Self::InStateBlock)
    }
}

/// One fact that recall considered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CandidateTrace {
    #[schema(value_type = String)]
    pub fact: FactId,
    /// Whom or what it is about; a player is `player:<id>`.
    pub subject: String,
    /// Who said it: a player under its key, an NPC by its name, `author` where it was written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub speaker: String,
    pub content: String,
    pub score: ScoreParts,
    pub fate: CandidateFate,
    /// A promise or a goal, which what is said in the turn may end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub promise: bool,
}

/// One scenario that was considered: one that the player may hear of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScenarioTrace {
    #[schema(value_type = String)]
    pub scenario: ScenarioId,
    pub title: String,
    pub score: ScenarioScore,
    /// It was unlocked or told in one of the last five turns.
    pub recent: bool,
    pub fate: CandidateFate,
    /// What the prompt had of it, where it had any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

/// Size of one prompt section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SectionTrace {
    pub name: String,
    pub tokens: u32,
    pub budget: u32,
    /// What was left out to stay within the budget, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
}

/// One model or embedder call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallTrace {
    /// `reply`, `intent`, `extraction`, `judge`, `summary`, `curation`, `embedding`.
    pub task: String,
    pub model: String,
    /// The scripted model or offline embedder answered: no real model was asked.
    pub offline: bool,
    pub attempts: u32,
    pub millis: f64,
    /// Time to the first token of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_millis: Option<f64>,
    pub usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What models were asked for one task, and what that used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskUsage {
    /// As in [`CallTrace::task`].
    pub task: String,
    /// Calls that reached a model, repeated ones included.
    pub calls: u32,
    pub usage: Usage,
}

impl TaskUsage {
    /// Adds to the entry of `task`, or makes it. Saturating: an endpoint may report any number it likes.
    pub fn add_usage(sums: &mut Vec<Self>, task: &str, calls: u32, usage: Usage) {
        let place = sums.iter().position(|sum| sum.task == task).unwrap_or_else(|| {
            sums.push(Self {
                task: task.to_owned(),
                calls: 0,
                usage: Usage::default(),
            });
            sums.len() - 1
        });
        let sum = &mut sums[place];
        sum.calls = sum.calls.saturating_add(calls);
        sum.usage += usage;
    }
}

/// A job that a turn left behind, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobTrace {
    /// `extract_facts`, `extract_state` or `summarise`.
    pub kind: String,
    /// `pending`, `done`, or `dead`: given up.
    pub status: String,
    /// Attempts that failed.
    pub failed_attempts: u32,
    /// Why the last of these failed; `unsaid`: the turn was taken back before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What its attempts used.
    pub calls: Vec<TaskUsage>,
}

/// Milliseconds spent per phase of a turn, up to its `reply.done`.
///
/// The commit is not among them: it writes this very trace. How long it takes is the metric
/// `colloquy_turn_phase_seconds{phase="commit"}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timings {
    pub queue: f64,
    /// Waiting for the previous turn's extraction (at most `turn.wait_for_memory_ms`); not part of added latency.
    pub memory_wait: f64,
    pub embed: f64,
    pub recall: f64,
    pub intent: f64,
    pub assemble: f64,
    pub first_token: f64,
    pub reply: f64,
    /// From `player.say` to `reply.done`, less model and embedder time and `memory_wait`.
    pub added: f64,
}

/// The words of a text that not every player may hear of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockedWords {
    /// 32-bit hashes of words.
    #[schema(value_type = Vec<u32>)]
    pub words: PrivateTerms,
    /// As those of a trace.
    #[schema(value_type = String)]
    pub locks: DisclosureLocks,
}

/// The whole trace of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TurnTrace {
    pub at: DateTime<Utc>,
    pub intent: Intent,
    /// `model`, or why the classifier's answer was not used.
    pub intent_source: String,
    pub query: String,
    pub candidates: Vec<CandidateTrace>,
    /// Of the NPC's past, where the turn looked for it; best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<ScenarioTrace>,
    /// How far the player had come with the NPC, where the turn looked for its past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub progress: Option<Progress>,
    /// Those of the five turns before in whose prompts something of the NPC's past was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told_in: Vec<u32>,
    /// What the dialogue has had in its prompts so far that not every player may hear of, as
    /// `scenario:<npc>/<scenario>;hearers:<player>+<player>`: what was learned from this turn, and is private to no player, is
    /// locked by it.
    #[serde(default, skip_serializing_if = "DisclosureLocks::is_empty")]
    #[schema(value_type = String)]
    pub locks: DisclosureLocks,
    /// Those of `locks` of which the dialogue may have told: what was learned from this turn in private is locked by them.
    /// Absent: by all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub told_locks: Option<DisclosureLocks>,
    /// Memories and summaries in the prompt that not every player may hear of, of which the turn has no word: what was learned
    /// from it in private with a word of theirs is locked as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locked: Vec<LockedWords>,
    /// What the turn had in its prompt that was private to its player and no summary of an earlier turn, as 32-bit hashes of
    /// words: what the NPC tells of itself with none of those of the dialogue so far is told to others. Absent: nobody knows,
    /// and nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<u32>>)]
    pub confided: Option<PrivateTerms>,
    pub sections: Vec<SectionTrace>,
    pub prompt_tokens: u32,
    /// SHA-256 of the assembled prompt, hexadecimal.
    pub prompt_hash: String,
    pub calls: Vec<CallTrace>,
    pub timings: Timings,
    /// Anything unusual, in words: a state block that did not parse, recall without vectors, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The reply began a state block, whether it ended or not.
    #[serde(default)]
    pub state_block: bool,
}
