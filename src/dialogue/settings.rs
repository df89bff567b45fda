//! The numbers of docs/algorithms.md as settings. Defaults are in `config/default.toml`. A file or
//! `COLLOQUY__SECTION__KEY` can set each.

use std::{path::PathBuf, time::Duration};

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use colloquy_memory::{
    authored::IntentClassification,
    scoring::{RecallPreset, RecallWeights},
    summary::SummaryRules,
    tiers::TaskModels,
};

/// Settings of the dialogue use cases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DialogueSettings {
    pub turn: TurnSettings,
    pub prompt: PromptSettings,
    pub recall: RecallSettings,
    #[serde(skip)]
    pub scenarios: ScenarioSettings,
    pub summaries: SummarySettings,
    pub curation: CurationSettings,
    pub jobs: JobSettings,
    pub retention: RetentionSettings,
    pub saves: SaveSettings,
    pub conversation: ConversationSettings,
    /// Models per task that tiers name; the configuration has none.
    #[serde(skip)]
    pub models: TaskModels,
}

/// Settings of NPC conversations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversationSettings {
    /// The number of lines in a conversation unless the request sets another; 20.
    pub max_turns: u32,
    /// The pause between two lines of a running conversation, in ms; 800.
    pub pause_ms: u64,
    /// The extra pause per character of the last line, for reading time, in ms; 30.
    pub reading_ms_per_char: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnSettings {
    /// The longest player line, in Unicode scalar values; 2,000.
    pub max_line_chars: usize,
    /// The maximum number of turns queued behind the running turn, per session; 4.
    pub max_queued: usize,
    /// How long any turn waits for the previous turn's extraction, in ms; 0.
    pub wait_for_memory_ms: u64,
    /// How long a turn waits if its line points at the previous turn, in ms; 1,500. At least `wait_for_memory_ms` counts.
    pub longest_wait_for_memory_ms: u64,
    /// When the intent of a line is classified, unless a tier says otherwise; `beside_reply`.
    pub intent_classification: IntentClassification,
    /// After so many replies of a model, most of them without a state block, the state is extracted from replies without
    /// a block; 4. 0: never.
    pub replies_without_block: u32,
    /// The longest duration of a whole turn, in ms; 120,000.
    pub timeout_ms: u64,
    /// How long the unheard rest of a reply stays sealed, so that the reply can be resumed, in seconds; 30.
    pub seal_s: u32,
    /// How long nothing is learned from a cut or resumed reply, unless a line follows or the dialogue ends, in seconds;
    /// 30. Meanwhile the reply may be resumed or cut again. After a few cuts of a turn, a day.
    pub cut_hold_s: u32,
    /// How long a turn of a session with `playback: "ack"` waits for its playback before the whole reply counts as
    /// heard, in seconds; 60.
    pub playback_timeout_s: u32,
}

impl TurnSettings {
    /// Returns the time in which a cut reply can be resumed.
    #[must_use]
    pub fn seal_time(&self) -> TimeDelta {
        TimeDelta::seconds(i64::from(self.seal_s))
    }

    /// Returns how long the jobs of a cut or resumed reply wait.
    #[must_use]
    pub fn cut_hold(&self) -> TimeDelta {
        TimeDelta::seconds(i64::from(self.cut_hold_s))
    }
}

/// Token budgets of the prompt's sections (docs/algorithms.md#prompt-assembly).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptSettings {
    /// Hard limit of the whole prompt; 8,000.
    pub total_tokens: u32,
    /// Pinned facts; 400.
    pub pinned_tokens: u32,
    /// Summaries; 1,200.
    pub summary_tokens: u32,
    /// Raw turns; 6,000 (more forces a summary).
    pub history_tokens: u32,
    /// Lines that NPCs said to each other, if a turn is about them; 600.
    pub overheard_tokens: u32,
    /// Notes of a chat program about the scene; 400.
    pub scene_note_tokens: u32,
    /// Scenarios of the NPC's past, if a turn is about the past; 1,000.
    pub scenario_tokens: u32,
    /// Lore of the world; 800.
    pub lore_tokens: u32,
    /// All retrieved facts; 1,200.
    pub memory_tokens: u32,
    /// Episodes; 300.
    pub episode_tokens: u32,
    /// Insights; 200.
    pub insight_tokens: u32,
    #[serde(skip)]
    pub fixed: FixedBudgets,
    /// Whether prompts contain the state block; true.
    pub state_block: bool,
    /// Whether the model is asked to end its reply with a state block; true.
    pub ask_for_state: bool,
    /// Whether the state block may say that a turn holds nothing to learn, so that no facts are extracted; true.
    pub ask_if_nothing_new: bool,
    /// The folder of templates that replace the built-in templates; unset.
    pub templates_dir: Option<PathBuf>,
}

/// Budgets that the configuration does not set. The sections around them have settings.
#[derive(Debug, Clone, PartialEq)]
pub struct FixedBudgets {
    /// The player's identity, in tokens: the name, the time of the last meeting, and the last whole sentences of the last
    /// summary that fit; 300, a quarter of the summaries.
    pub acquaintance_tokens: u32,
    /// One scenario, in tokens; 400, so that two whole scenarios fit into the section.
    pub scenario_item_tokens: u32,
    /// One entry of the lore, in tokens; 250, so that three whole entries fit into the section.
    pub lore_item_tokens: u32,
    /// One retrieved fact, in tokens; 150, an eighth of the section, which has at most eight facts.
    pub memory_item_tokens: u32,
    /// The state block, in characters; 1,500, about 500 tokens.
    pub state_chars: usize,
}

impl Default for FixedBudgets {
    fn default() -> Self {
        Self {
            acquaintance_tokens: 300,
            scenario_item_tokens: 400,
            lore_item_tokens: 250,
            memory_item_tokens: 150,
            state_chars: 1_500,
        }
    }
}

impl FixedBudgets {
    /// Returns about how many tokens the state block may have.
    #[must_use]
    pub fn state_tokens(&self) -> u32 {
        u32::try_from(self.state_chars / 3).unwrap_or(u32::MAX)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallSettings {
    /// Replaces `weights`, if set.
    pub preset: Option<RecallPreset>,
    pub weights: RecallWeights,
    /// The decay λ of recency, per day; 0.002.
    pub recency_lambda_per_day: f64,
    /// The maximum number of found facts in the prompt; 8.
    pub top_k: usize,
    /// How far a fact that resembles a better fact moves behind dissimilar facts, 0 (not at all) to 1; 0.
    pub diversity: f64,
    /// The minimum of weighted relevance plus weighted keyword score for a retrieved fact; 0.05.
    pub min_score: f64,
    /// Whether the search starts before the line's intent is known; true.
    pub speculative: bool,
}

impl RecallSettings {
    /// Returns the weights: of `preset`, else of the configured preset, else the configured weights.
    #[must_use]
    pub fn weights_for(&self, preset: Option<RecallPreset>) -> RecallWeights {
        preset.or(self.preset).map_or(self.weights, RecallPreset::weights)
    }
}

/// Limits of an NPC's own past (docs/algorithms.md#scenarios). No settings of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioSettings {
    /// The maximum number of scenarios in a prompt; 3, of which two fit whole.
    pub top_k: usize,
    /// The minimum score of a scenario, unless the line points at the scenario; 0.15, three times the minimum of a fact:
    /// a scenario has several times the tokens.
    pub min_score: f64,
}

impl Default for ScenarioSettings {
    fn default() -> Self {
        Self {
            top_k: 3,
            min_score: 0.15,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummarySettings {
    /// Turns before the first summary; 10.
    pub first_after_turns: u32,
    /// Turns between summaries; 20.
    pub then_every_turns: u32,
    /// Seconds since the last summary that also trigger a summary; 3,600.
    pub then_every_s: u64,
    /// Seconds of silence after a turn that trigger a summary; 0: no summary after a silence; 3,600.
    pub after_silence_s: u64,
    /// Fewer unsummarised turns get no summary because of time alone; 4.
    pub min_turns: u32,
    /// Unsummarised raw turns that force a summary; 30.
    pub force_turns: u32,
    /// Unsummarised tokens that force a summary; 3,600.
    pub force_tokens: u32,
    /// Summaries retained per dialogue; 5.
    pub keep: usize,
    /// Turns that stay in the buffer even after a summary; 6.
    pub buffer_min_turns: u32,
}

impl SummarySettings {
    /// Returns the numbers as the rules that decide when a summary is due.
    #[must_use]
    pub fn rules(&self) -> SummaryRules {
        SummaryRules {
            first_after_turns: self.first_after_turns,
            then_every_turns: self.then_every_turns,
            then_every: Duration::from_secs(self.then_every_s),
            after_silence: (self.after_silence_s > 0).then(|| Duration::from_secs(self.after_silence_s)),
            min_turns: self.min_turns,
            force_turns: self.force_turns,
            force_tokens: self.force_tokens,
        }
    }
}

/// Settings of curation passes (docs/algorithms.md#curation).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurationSettings {
    /// Turns of a dialogue from one pass to the next; 0: no passes; 10.
    pub every_turns: u32,
    /// Unread turns of a silent or ended dialogue that get a pass; 4. Fewer turns of an ended session are shown to the next
    /// pass of the same player and NPCs.
    pub min_turns: u32,
    #[serde(skip)]
    pub limits: PassLimits,
    /// Days from one look for facts to consolidate to the next; 0: only on demand; 7.
    pub consolidate_every_d: u32,
    /// Days after the end of a week until its facts are consolidated; 0: all facts; 7.
    pub consolidate_after_d: u32,
    /// Passes over sessions of one player in an hour; 0: no limit; 12.
    pub player_passes_per_hour: u32,
    /// Calls per tenant and day (UTC), of which a player has a tenth; 0: no limit; 0.
    pub calls_per_day: u64,
    /// Tokens of prompts and answers per tenant and day (UTC); 0: no limit; 0.
    pub tokens_per_day: u64,
}

/// Limits of a curation pass. No settings of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassLimits {
    /// Answers of the model; 4. A pass usually has one; the others mend refused parts.
    pub max_steps: u32,
    /// Tokens of lines that a pass reads; 12,000: all 60 turns that a pass reads, with 200 tokens each. Later turns wait
    /// for the next pass.
    pub max_turn_tokens: u32,
    /// Characters of the notes about a dialogue; 4,000, about two pages.
    pub memory_chars: usize,
}

impl Default for PassLimits {
    fn default() -> Self {
        Self {
            max_steps: 4,
            max_turn_tokens: 12_000,
            memory_chars: 4_000,
        }
    }
}

impl CurationSettings {
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.every_turns > 0
    }

    /// True if a pass is due after the turn with this number.
    #[must_use]
    pub const fn is_due_after(&self, turn: u32) -> bool {
        self.is_on() && turn > 0 && turn.is_multiple_of(self.every_turns)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaveSettings {
    /// The maximum number of saves of a world; 100.
    pub max_per_world: u32,
}

/// Retention of explanatory or work-saving data and of unsaid turns, in days; 0: forever. NPC memories and standing
/// turns are always retained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionSettings {
    /// Completed after-turn jobs; 90.
    pub done_jobs_d: u32,
    /// Traces of turns; 90.
    pub traces_d: u32,
    /// Verdicts about pairs of statements. A pair that recurs later is judged again; 90.
    pub verdicts_d: u32,
    /// Usage by NPC; 400.
    pub npc_usage_d: u32,
    /// Lines of the audit log, at least 30; 400.
    pub audit_d: u32,
    /// Unsaid turns that no save contains, with everything learned from them; 30.
    pub unsaid_d: u32,
    /// Sessions without a turn, and answers to rewinds that changed nothing; 1.
    pub unchanged_d: u32,
    /// Messages of webhooks, and attempts; 30.
    pub webhooks_d: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSettings {
    /// Attempts of a failing job before it counts as dead, outages aside; 8.
    pub max_attempts: u32,
    /// Attempts of a job with unusable model answers before the job counts as dead; 2.
    pub max_useless: u32,
    /// How long after its creation a job is retried during an outage of a model or the store, in seconds. At least
    /// `max_attempts` attempts are made; 86,400.
    pub give_up_after_s: u64,
    /// How long a job may run before another node may take it, in seconds; 120.
    pub lease_s: u64,
    /// The first delay after a failure, doubling, in seconds; 2.
    pub retry_base_s: u64,
    /// Concurrent jobs of one tenant; by default the model calls allowed to jobs, 48.
    pub concurrency: usize,
    /// How often the curator looks for abandoned jobs, in seconds; 5.
    pub poll_s: u64,
    /// Tokens of the judge call after a turn, prompt and answer together; 0 disables the judge; 800.
    pub judge_tokens: u32,
}
