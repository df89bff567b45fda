//! Short-term summaries: when one is due, and which are kept (ALGORITHMS §5).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::fact::Importance;
use crate::ids::{DialogueId, SummaryId};

/// A dated digest of turns `from_turn..=to_turn` of one dialogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub id: SummaryId,
    pub dialogue: DialogueId,
    pub from_turn: u32,
    pub to_turn: u32,
    pub text: String,
    /// After the decrements that stand.
    pub importance: Importance,
    pub created_at: DateTime<Utc>,
}
