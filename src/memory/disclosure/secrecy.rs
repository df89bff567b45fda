//! Secrets of authored content: what an NPC may say of a scenario or of an entry of the lore
//! (docs/algorithms.md#scenarios, docs/algorithms.md#lore).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    condition::{Condition, ConditionContext, MAX_CONDITIONS},
    text::{check_name, check_prose, check_visible},
};

/// What an NPC may say of authored content, in one dialogue and state of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Secrecy {
    /// The prompt may have the content.
    Open,
    /// The prompt may have the tell alone.
    Guarded,
    /// No prompt may have anything.
    Locked,
}

impl Secrecy {
    /// What the NPC may say, if `may_be_told` says whether the content may be told.
    #[must_use]
    pub fn decide(may_be_told: bool, tell: Option<&Tell>, context: &ConditionContext<'_>) -> Self {
        match tell {
            _ if may_be_told => Self::Open,
            Some(tell) if context.all_hold(&tell.when) => Self::Guarded,
            _ => Self::Locked,
        }
    }
}

/// What an NPC shows of content that it keeps to itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tell {
    /// One sentence, for example "She looks away when the well is named." At most 300 characters.
    #[schema(min_length = 1, max_length = 300)]
    pub text: String,
    /// At most 8 conditions; all must hold. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub when: Vec<Condition>,
}

impl Tell {
    /// All faults, each with its field.
    #[must_use]
    pub fn find_faults(&self) -> Vec<(&'static str, String)> {
        let text = fault_of_prose(&self.text, 300).map(|fault| ("tell.text", fault));
        let conditions = fault_of_conditions(&self.when).map(|fault| ("tell.when", fault));
        text.into_iter().chain(conditions).collect()
    }
}

pub(crate) fn fault_of_length(length: usize, max: usize) -> Option<String> {
    (length > max).then(|| format!("takes at most {max}"))
}

pub(crate) fn fault_of_label(text: &str, max_chars: usize) -> Option<String> {
    let fault = check_name(text).err();
    fault
        .map(|fault| fault.to_string())
        .or_else(|| (text.chars().count() > max_chars).then(|| format!("takes at most {max_chars} characters")))
}

pub(crate) fn fault_of_prose(text: &str, max_chars: usize) -> Option<String> {
    let fault = check_visible(text).and_then(|()| check_prose(text)).err();
    fault
        .map(|fault| fault.to_string())
        .or_else(|| (text.chars().count() > max_chars).then(|| format!("takes at most {max_chars} characters")))
}

pub(crate) fn fault_of_conditions(conditions: &[Condition]) -> Option<String> {
    fault_of_length(conditions.len(), MAX_CONDITIONS).or_else(|| conditions.iter().find_map(Condition::find_fault))
}
