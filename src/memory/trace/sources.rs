//! What a prompt was assembled from.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use colloquy_core::ids::{DialogueId, FactId, ScenarioId, SummaryId};

/// What a prompt was assembled from, beside the rest of its trace. `?verify=1` reads the same rows again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PromptSources {
    /// The versions of the world and of the NPC (their `ETag`).
    pub world_version: u32,
    pub npc_version: u32,
    /// The first 8 hexadecimal digits of the SHA-256 of templates, prompt settings and the model's token counter.
    pub templates: String,
    pub settings: String,
    /// The position of the world's state: the `seq` of the last change, and the number of rewinds that moved changes.
    pub state_seq: i64,
    pub state_generation: i64,
    /// The number of the first turn that was read for the history.
    pub history_from: u32,
    /// The summaries of the dialogue in the prompt, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub summaries: Vec<SummaryId>,
    /// The last meeting with the player in another session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meeting: Option<MeetingTrace>,
    /// The lines of another dialogue that the NPC heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overheard: Option<OverheardTrace>,
    /// The scenarios that had just opened to the player, and whose titles the prompt has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub opened: Vec<ScenarioId>,
    /// Facts removed from memory whose content was cut from summaries and episodes of the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub redacted: Vec<FactId>,
    /// The Unicode scalar values of the reply that were said before a cut, and that the prompt repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_chars: Option<u32>,
    /// True if that part is a whole reply, which went on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continued_whole: bool,
    /// Notes of a chat program about the scene, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scene_notes: Vec<String>,
    /// True if the prompt had the messages of a chat program, which are not stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_prompt: bool,
}

/// The NPC's last meeting with the player in another session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeetingTrace {
    /// When the last turn of the meeting was committed, and when its session began.
    #[serde(rename = "at")]
    pub last_turn_at: DateTime<Utc>,
    pub since: DateTime<Utc>,
    /// The newest summary of their sessions, and when the session of the summary began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub summary: Option<SummaryId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_since: Option<DateTime<Utc>>,
}

/// Lines of another dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverheardTrace {
    #[schema(value_type = String)]
    pub dialogue: DialogueId,
    /// The numbers of the first and the last line.
    pub from: u32,
    pub to: u32,
}
