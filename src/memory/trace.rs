//! The reasons for an NPC's reply, stored with every turn (ARCHITECTURE.md#invariants).

mod sources;

pub use self::sources::{MeetingTrace, OverheardTrace, PromptSources};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use super::scoring::ScoreParts;
use super::{
    directive::DirectiveTrace,
    disclosure::{locks::DisclosureLocks, private_terms::PrivateTerms, secrecy::Secrecy},
    fact::Importance,
    lore::{LoreLayer, LoreScore},
    scenario::{ScenarioNews, ScenarioScore},
    turn::{Intent, Usage},
    unlock_rule::Progress,
};
use colloquy_core::ids::{ActionId, DialogueId, FactId, InsightId, LoreId, ScenarioId, TurnId};

/// How closely a found fact must match the line of a turn (docs/algorithms.md#recall).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TopicGate {
    /// No check: the line has no informative word (a greeting, a line between NPCs), or asks for all known facts.
    Open,
    /// The line asks for memories, so a weak relation suffices.
    Asked,
    /// All other lines, including small talk.
    Strict,
}

/// The outcome for a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CandidateFate {
    /// In the prompt.
    Used,
    /// Merged into a better candidate (cosine ≥ 0.95).
    NearDuplicate,
    /// Better candidates filled the top places.
    BeyondTopK,
    /// Did not fit the token budget.
    OverBudget,
    /// The total is below `recall.min_score`; with the gate `asked` or `strict`, also if relevance and keyword alone are.
    TooWeak,
    /// Only important or recent: the fact does not match the line as closely as `topic_gate` requires.
    OffTopic,
    /// Already in the prompt as a pinned fact.
    Pinned,
    /// Already in the prompt in the state block.
    InStateBlock,
    /// In an NPC conversation: the fact was learned from a line that the prompt shows.
    InHistory,
}

impl CandidateFate {
    /// True if the prompt contains the candidate.
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
    /// The person or thing that the fact describes; a player is `player:<id>`.
    pub subject: String,
    /// The speaker: `player:<id>`, an NPC's name, or `author` for a written fact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub speaker: String,
    pub content: String,
    pub score: ScoreParts,
    pub fate: CandidateFate,
    /// True for a promise or a goal, which the turn's lines may end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub promise: bool,
    /// True for a promise that is over. The same promise made again is news.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
}

/// One considered scenario that the NPC may tell, or of which it may show the tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScenarioTrace {
    #[schema(value_type = String)]
    pub scenario: ScenarioId,
    pub title: String,
    /// `open`, or `guarded`: the prompt may have the tell alone.
    #[serde(default = "open_secrecy")]
    pub secrecy: Secrecy,
    /// Zero for a tell, which a name or a word of the scenario in the line brings.
    pub score: ScenarioScore,
    /// True if the scenario was unlocked or told in one of the last five turns.
    pub recent: bool,
    /// Whether the scenario had just opened to the player, or had been told in the dialogue before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub news: Option<ScenarioNews>,
    pub fate: CandidateFate,
    /// The text of the scenario in the prompt, if any.
    #[serde(rename = "shown", default, skip_serializing_if = "Option::is_none")]
    pub shown_text: Option<String>,
}

/// The secrecy in traces of earlier builds, which had no tells.
const fn open_secrecy() -> Secrecy {
    Secrecy::Open
}

impl ScenarioTrace {
    /// The title and the content of the scenario in the prompt, if any, without the remark before them. A tell is no content.
    #[must_use]
    pub fn shown_content(&self) -> Option<&str> {
        let text = self.shown_text.as_deref().filter(|_| self.secrecy == Secrecy::Open)?;
        Some(text.find(&self.title).map_or(text, |start| &text[start..]))
    }
}

/// How a turn found an entry of the lore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoreSource {
    /// The author wants the entry in every prompt.
    Always,
    /// The line has a name of the entry.
    Name,
    /// The line has a keyword of the entry.
    Keyword,
    /// The line names a character of the entry, or speaks of dying and a character is dead. Shows no tell.
    Character,
    /// The line points back ("what is that?"), and the last turn had a name of the entry.
    PointedAt,
    /// A line of the last turns had a name or a keyword, and the entry stays.
    Sticky,
    /// The entry's place is where the player is.
    Place,
    /// One of the ten entries most similar to the line.
    Meaning,
    /// Another entry leads to it.
    Related,
}

/// The outcome for an entry of the lore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoreFate {
    /// In the prompt.
    Used,
    /// Not mentioned for longer than its layer allows.
    Decayed,
    /// In its cooldown.
    Resting,
    /// Another entry of its group is better.
    Outranked,
    /// Did not fit the token budget.
    OverBudget,
}

/// One considered entry of the lore that the NPC may tell, or of which it may show the tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoreTrace {
    #[schema(value_type = String)]
    pub entry: LoreId,
    pub name: String,
    /// The layer in this turn.
    pub layer: LoreLayer,
    pub secrecy: Secrecy,
    pub found_by: LoreSource,
    pub score: LoreScore,
    pub fate: LoreFate,
    /// The text in the prompt, if any.
    #[serde(rename = "shown", default, skip_serializing_if = "Option::is_none")]
    pub shown_text: Option<String>,
}

/// The stage of recall that found an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EpisodeStage {
    /// One of the newest.
    Recent,
    /// One of the most important.
    Important,
    /// One of the most similar to the line.
    Similar,
}

/// The outcome for an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EpisodeFate {
    /// In the prompt.
    Used,
    /// The prompt has the lines of the turn.
    InHistory,
    /// A summary in the prompt tells it.
    InSummary,
    /// Found facts of the same turn tell it.
    InFacts,
    /// A chosen episode tells the same.
    NearDuplicate,
    /// Did not fit the token budget.
    OverBudget,
}

/// One considered episode of the NPC with the player.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EpisodeTrace {
    #[schema(value_type = String)]
    pub turn_id: TurnId,
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    /// The number of the turn in its dialogue.
    pub turn: u32,
    /// The first stage that considered the episode.
    pub stage: EpisodeStage,
    #[schema(value_type = u8, minimum = 1, maximum = 10)]
    pub importance: Importance,
    /// The calibrated similarity with the line, in [0, 1], if it reaches the minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similarity: Option<f64>,
    pub fate: EpisodeFate,
    /// The text in the prompt, if any.
    #[serde(rename = "shown", default, skip_serializing_if = "Option::is_none")]
    pub shown_text: Option<String>,
}

/// The outcome for an insight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InsightFate {
    /// In the prompt.
    Used,
    /// The prompt has the lines that the insight is from.
    InHistory,
    /// A newer insight says the same.
    Repeated,
    /// Did not fit the token budget.
    OverBudget,
}

/// One considered insight of the NPC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InsightTrace {
    #[schema(value_type = String)]
    pub insight: InsightId,
    /// `player:<id>`, or the name of an NPC, a place or another thing.
    pub entity: String,
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    /// The number of the last turn that the insight rests on.
    pub turn: u32,
    /// When this turn was committed.
    #[serde(rename = "at")]
    pub committed_at: DateTime<Utc>,
    pub fate: InsightFate,
    /// The text in the prompt, if any.
    #[serde(rename = "shown", default, skip_serializing_if = "Option::is_none")]
    pub shown_text: Option<String>,
}

/// What a line of the story is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoryPart {
    /// A line of the narrative memory of a curation pass.
    Note,
    /// An open finding of the kind.
    Contradiction,
    Foreshadowing,
    Event,
}

impl StoryPart {
    pub const ALL: [Self; 4] = [Self::Note, Self::Contradiction, Self::Foreshadowing, Self::Event];

    /// The name in prompts, traces and the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Contradiction => "contradiction",
            Self::Foreshadowing => "foreshadowing",
            Self::Event => "event",
        }
    }
}

/// One considered line of the story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoryTrace {
    pub part: StoryPart,
    /// The dialogue of the curation pass.
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    /// When the last turn of the pass was committed.
    #[serde(rename = "at")]
    pub noted_at: DateTime<Utc>,
    /// The line, without what was removed from memory.
    pub text: String,
    /// `used` or `over_budget`.
    pub fate: CandidateFate,
}

/// Size of one prompt section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SectionTrace {
    pub name: String,
    pub tokens: u32,
    pub budget: u32,
    /// True if the section uses at least four fifths of its budget: a warning before content is left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub near_budget: bool,
    /// Content left out to stay within the budget, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// The first 8 hexadecimal digits of the SHA-256 of the section's content. Empty without content, and in traces of
    /// earlier builds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}

/// The actions in the prompt of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActionsTrace {
    /// The names of the actions that the prompt offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<String>,
    /// The earlier actions whose outcome the prompt tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<OutcomeTrace>,
    /// Offers and outcomes that did not fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

impl ActionsTrace {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An earlier action of the NPC, as the prompt tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutcomeTrace {
    #[schema(value_type = String)]
    pub action: ActionId,
    pub name: String,
    /// The status at the start of the turn: `requested`, `done`, `refused` or `expired`.
    pub status: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One model or embedder call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallTrace {
    /// `reply`, `intent`, `extraction`, `judge`, `summary`, `curation`, `embedding`.
    pub task: String,
    pub model: String,
    /// True if the scripted model or the offline embedder answered instead of a real model.
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

/// The calls to models for one task, and their tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskUsage {
    /// As in [`CallTrace::task`].
    pub task: String,
    /// Calls that reached a model, repeated ones included.
    pub calls: u32,
    pub usage: Usage,
}

impl TaskUsage {
    /// Adds to the entry of `task`, or creates the entry. Saturating: an endpoint may report any number.
    pub fn add_usage(sums: &mut Vec<Self>, task: &str, calls: u32, usage: Usage) {
        let place = sums.iter().position(|sum| sum.task == task).unwrap_or_else(|| {
            sums.push(Self {
                task: task.to_owned(),
                calls: 0,
                usage: Usage::default(),
            });
            sums.len() - 1
        });
        debug_assert!(
            sums.iter().filter(|sum| sum.task == task).count() == 1,
            "each task has one entry"
        );
        let sum = &mut sums[place];
        sum.calls = sum.calls.saturating_add(calls);
        sum.usage += usage;
    }
}

/// A job that a turn started, and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobTrace {
    /// `extract_facts`, `extract_state`, `summarise`, `curate` or `consolidate`.
    pub kind: String,
    /// `pending`, `done`, or `dead`: given up.
    pub status: String,
    /// Attempts that failed.
    pub failed_attempts: u32,
    /// The error of the last failed attempt. `unsaid`: the turn was rewound first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The model calls of all attempts.
    pub calls: Vec<TaskUsage>,
}

/// The wait of a turn for the extraction of facts and state from the previous turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryWaitTrace {
    pub waited_ms: f64,
    /// The longest wait that was allowed.
    pub limit_ms: u64,
    /// Why the limit is what it is: `points_at_last_turn` (the line points at what the previous turn said) or `any_line`.
    pub reason: MemoryWaitReason,
    /// True if the extraction was still missing at the end of the wait.
    pub gave_up: bool,
}

/// Why a turn waits for the extraction of the previous turn as long as it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryWaitReason {
    /// Every line waits for `turn.wait_for_memory_ms`.
    AnyLine,
    /// The line points at what the previous turn said: `turn.longest_wait_for_memory_ms`.
    PointsAtLastTurn,
}

/// Milliseconds spent per phase of a turn, up to its `reply.done`.
///
/// The commit is not included, because the commit writes this trace. The metric
/// `colloquy_turn_phase_seconds{phase="commit"}` has its duration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timings {
    pub queue: f64,
    /// Waiting for the previous turn's extraction (see `memory_wait` of the trace).
    pub memory_wait: f64,
    pub embed: f64,
    pub recall: f64,
    /// May overlap the phases after it: the reply is asked for while the intent is classified.
    pub intent: f64,
    pub assemble: f64,
    /// From the call of the reply model to the first visible character. May include a wait for the intent.
    pub first_token: f64,
    pub reply: f64,
    /// From `player.say` to `reply.done`, less the time in which a model or the embedder was asked. Waits for memory, in
    /// queues and for a place at a model are included.
    pub added: f64,
}

/// The words of a text that some players may not hear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockedWords {
    /// 32-bit hashes of words.
    #[schema(value_type = Vec<u32>)]
    pub words: PrivateTerms,
    /// The locks of the text, in the format of the trace's `locks`.
    #[schema(value_type = String)]
    pub locks: DisclosureLocks,
}

/// The whole trace of one turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TurnTrace {
    #[serde(rename = "at")]
    pub traced_at: DateTime<Utc>,
    /// The key of the NPC in the dialogue: `world:<world>:npc:<npc>:session:<id>`, or `…:conversation:<id>`. Empty in
    /// traces of earlier builds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    pub intent: Intent,
    /// `model`; `model, for the replaced turn`; or the reason why the classifier was not asked or not believed.
    pub intent_source: String,
    /// The sources of knowledge that were not searched, each with the reason, such as `scenarios: not searched, intent chat`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_searched: Vec<String>,
    /// The wait for what the previous turn taught, if the turn waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_wait: Option<MemoryWaitTrace>,
    pub query: String,
    /// How closely a found fact must match the line. Absent in traces of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_gate: Option<TopicGate>,
    pub candidates: Vec<CandidateTrace>,
    /// Further found facts, which `candidates` does not list. None of them is in the prompt: better facts filled the places.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlisted_facts: u32,
    /// The scenarios of the NPC, if the turn searched for scenarios; best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<ScenarioTrace>,
    /// The considered lore, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lore: Vec<LoreTrace>,
    /// The considered episodes: first those to use, then the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub episodes: Vec<EpisodeTrace>,
    /// The directives for the dialogue, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directives: Vec<DirectiveTrace>,
    /// The considered insights, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub insights: Vec<InsightTrace>,
    /// The considered lines of the story: open findings and notes of curation passes, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub story: Vec<StoryTrace>,
    /// The actions in the prompt.
    #[serde(default, skip_serializing_if = "ActionsTrace::is_empty")]
    pub actions: ActionsTrace,
    /// Where the player was before the turn, or else the NPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The player's progress with the NPC, if the turn searched for scenarios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub progress: Option<Progress>,
    /// Those of the previous five turns with a scenario of the NPC in the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told_in: Vec<u32>,
    /// The locked content in the prompts of the dialogue so far, as
    /// `scenario:<npc>/<scenario>;lore:<npc>/<entry>;hearers:<player>+<player>`. Facts that are learned from this turn and are private to
    /// no player get these locks.
    #[serde(default, skip_serializing_if = "DisclosureLocks::is_empty")]
    #[schema(value_type = String)]
    pub locks: DisclosureLocks,
    /// The part of `locks` that the dialogue may have told. Private facts learned from this turn get these
    /// locks; those of lore only if the fact has a word of the entry. Absent: the same for all locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub told_locks: Option<DisclosureLocks>,
    /// Locked memories and summaries in the prompt that share no word with the turn's text. A private fact learned from
    /// the turn gets a text's locks if the fact has a word of the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locked: Vec<LockedWords>,
    /// Private content of the player in the prompt of this turn, as 32-bit hashes of words. Summaries already in an
    /// earlier turn are left out. An NPC's statement about itself is shared with other players only if the statement
    /// has no such word of the dialogue so far. Absent: unknown, and no statement is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<u32>>)]
    pub confided: Option<PrivateTerms>,
    pub sections: Vec<SectionTrace>,
    pub prompt_tokens: u32,
    /// The tokens of the messages at the beginning of the prompt that the NPC's previous prompt in the dialogue shares. A
    /// provider's cache can serve these. Absent: the node does not know the previous prompt, another model answered it,
    /// or no model was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchanged_tokens: Option<u32>,
    /// SHA-256 of the assembled prompt, hexadecimal.
    pub prompt_hash: String,
    /// What the prompt was assembled from. Absent in traces of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<PromptSources>,
    pub calls: Vec<CallTrace>,
    pub timings: Timings,
    /// Anomalies in words: a state block that did not parse, recall without vectors, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// True if the reply began a state block, ended or not. A block with `nothing_new` alone does not count.
    #[serde(default)]
    pub state_block: bool,
}
