//! The wire form of facts and their history. Flat.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use colloquy_core::ids::{DialogueId, EditId, FactId, LoreId, NpcId, PlayerId, ScenarioId, WorldId};
use colloquy_dialogue::game_time::WorldDays;
use colloquy_memory::{
    disclosure::locks::DisclosureLocks,
    fact::{Cause, Fact, FactKind, Importance, InvalidReason, Invalidation, Polarity, Tense},
    trace::ScoreParts,
};
use colloquy_ports::ledger::facts::{Contradiction, FactHistoryEntry};

/// A fact with all valid duplicates and edits applied.
#[derive(Debug, Serialize, ToSchema)]
pub struct FactView {
    #[schema(value_type = String)]
    id: FactId,
    #[schema(value_type = String)]
    world_id: WorldId,
    /// The person or thing that the fact is about. A player is `player:<id>`, a player's relation `player:<id>'s …`
    /// (`player:<id>의 …` in Korean).
    subject: String,
    predicate: String,
    object: String,
    content: String,
    keywords: Vec<String>,
    /// Who stated the fact: `player:<id>`, an NPC's name, or `author`.
    speaker: String,
    kind: FactKind,
    #[schema(value_type = u8, minimum = 1, maximum = 10)]
    importance: Importance,
    pinned: bool,
    polarity: Polarity,
    tense: Tense,
    /// Who may know the fact: `npc:<id>`, `faction:<id>` or `world`.
    knowers: Vec<String>,
    /// Set: the fact is used only in dialogues with this player.
    #[schema(value_type = Option<String>)]
    private_to: Option<PlayerId>,
    /// Scenarios that the fact is based on. The fact is used only with players who have unlocked all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    locked_by: Vec<LockView>,
    /// Set: the fact comes from NPCs' dialogues that only these players could hear. Other players get the fact only if
    /// the world has `gossip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    heard_by: Option<BTreeSet<PlayerId>>,
    valid_at: DateTime<Utc>,
    /// `valid_at` by the clock of the world, such as `1024-03-05 14:30`. Only in lists, and only if the world has a clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    game_time: Option<String>,
    invalid_at: Option<DateTime<Utc>>,
    invalid_reason: Option<InvalidReason>,
    /// The fact that replaced this fact.
    #[schema(value_type = Option<String>)]
    invalid_by: Option<FactId>,
    /// Newer facts of other audiences. They replace this fact for callers that may know both, while the newer facts are
    /// valid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    replaced_by: Vec<FactId>,
    expires_at: Option<DateTime<Utc>>,
    cause: CauseView,
    /// The session and turn that the fact came from.
    #[schema(value_type = Option<String>)]
    source_dialogue_id: Option<DialogueId>,
    source_turn: Option<u32>,
    #[schema(value_type = Vec<String>)]
    derived_from: Vec<FactId>,
    /// Kinds of personal data found in the fact.
    pii: Vec<String>,
    /// Written by a person: contradictions flag the fact and do not invalidate it.
    authored: bool,
    /// Set: a person corrected the statement or the dates of that fact, and this fact replaced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    corrects: Option<FactId>,
    /// The `ETag`, without its quotes.
    version: u32,
    /// Only with `?flagged=true`: the contradicting facts about which no person has decided, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contradicted_by: Vec<ContradictionView>,
    /// Only with `?q=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<ScoreParts>,
}

/// A memory of an NPC's past (`scenario`), or an entry of the lore with conditions (`lore`).
#[derive(Debug, Serialize, ToSchema)]
pub struct LockView {
    #[schema(value_type = String)]
    npc: NpcId,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    scenario: Option<ScenarioId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    lore: Option<LoreId>,
}

fn lock_views(locks: &DisclosureLocks) -> Vec<LockView> {
    let scenarios = locks.scenario_keys().map(|(npc, scenario)| LockView {
        npc: npc.clone(),
        scenario: Some(scenario.clone()),
        lore: None,
    });
    let lore = locks.lore_keys().map(|(npc, entry)| LockView {
        npc: npc.clone(),
        scenario: None,
        lore: Some(entry.clone()),
    });
    scenarios.chain(lore).collect()
}

/// A contradicting fact.
#[derive(Debug, Serialize, ToSchema)]
pub struct ContradictionView {
    #[schema(value_type = String)]
    id: FactId,
    content: String,
    /// When the contradiction was found.
    #[serde(rename = "at")]
    found_at: DateTime<Utc>,
}

/// The cause of a row.
#[derive(Debug, Serialize, ToSchema)]
pub struct CauseView {
    /// `turn`, `edit`, `event` or `job`.
    kind: &'static str,
    id: String,
}

impl From<Cause> for CauseView {
    fn from(cause: Cause) -> Self {
        let (kind, id) = cause.to_columns();
        Self { kind, id }
    }
}

impl From<Fact> for FactView {
    fn from(fact: Fact) -> Self {
        Self {
            id: fact.id,
            world_id: fact.world,
            subject: fact.statement.subject,
            predicate: fact.statement.predicate,
            object: fact.statement.object,
            content: fact.view.content,
            keywords: fact.view.keywords,
            speaker: fact.statement.speaker,
            kind: fact.statement.kind,
            importance: fact.view.importance,
            pinned: fact.view.pinned,
            polarity: fact.statement.polarity,
            tense: fact.statement.tense,
            knowers: fact
                .audience
                .knowers
                .iter()
                .map(colloquy_memory::disclosure::audience::Knower::store_key)
                .collect(),
            private_to: fact.audience.private_to,
            locked_by: lock_views(&fact.locks),
            heard_by: fact.locks.common_hearers(),
            valid_at: fact.valid_at,
            game_time: None,
            invalid_at: fact.invalid.as_ref().map(|invalid| invalid.ended_at),
            invalid_reason: fact.invalid.as_ref().map(|invalid| invalid.reason),
            invalid_by: fact.invalid.and_then(|invalid| invalid.ended_by),
            replaced_by: fact.replaced_by,
            expires_at: fact.expires_at,
            cause: fact.cause.into(),
            source_dialogue_id: fact.source.map(|(dialogue, _)| dialogue),
            source_turn: fact.source.map(|(_, turn)| turn),
            derived_from: fact.derived_from,
            pii: fact.pii,
            authored: fact.authored,
            corrects: fact.corrects,
            version: fact.version,
            contradicted_by: Vec::new(),
            score: None,
        }
    }
}

impl FactView {
    /// The view at a moment: a fact whose retention has ended by then is invalid with the reason `expired`.
    pub fn new_at(fact: Fact, now: DateTime<Utc>) -> Self {
        let is_kept = fact.view.pinned && !fact.is_conclusion();
        let expired_at = fact.expires_at.filter(|end| *end <= now && !is_kept);
        let mut view = Self::from(fact);
        if let Some(end) = expired_at.filter(|end| view.invalid_at.is_none_or(|invalid_at| invalid_at > *end)) {
            view.invalid_at = Some(end);
            view.invalid_reason = Some(InvalidReason::Expired);
        }
        view
    }
    /// Adds the contradicting facts.
    pub fn with_contradictions(mut self, contradictions: Vec<Contradiction>) -> Self {
        let view = |contradiction: Contradiction| ContradictionView {
            id: contradiction.statement,
            content: contradiction.content,
            found_at: contradiction.flagged_at,
        };
        self.contradicted_by = contradictions.into_iter().map(view).collect();
        self
    }
    /// Adds the time of the game.
    pub fn with_game_time(mut self, days: &WorldDays<'_>) -> Self {
        self.game_time = days.game_time_text(self.valid_at);
        self
    }
    pub fn with_score(mut self, score: ScoreParts) -> Self {
        self.score = Some(score);
        self
    }
}

/// One entry of a fact's history, oldest first. The set fields depend on `what`.
#[derive(Debug, Serialize, ToSchema)]
pub struct HistoryView {
    /// `created`, `invalidated`, `edited`, `merged`, `flagged`, or `replaced` (this fact invalidated another fact).
    #[serde(rename = "what")]
    event: &'static str,
    #[serde(rename = "at")]
    happened_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<InvalidReason>,
    /// The other fact.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    fact_id: Option<FactId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<CauseView>,
    /// Set when the invalidation no longer counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    lifted_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    edit_id: Option<EditId>,
    /// The fields that an edit set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    patch: Option<serde_json::Value>,
}

impl HistoryView {
    fn new(event: &'static str, happened_at: DateTime<Utc>) -> Self {
        Self {
            event,
            happened_at,
            reason: None,
            fact_id: None,
            cause: None,
            lifted_at: None,
            edit_id: None,
            patch: None,
        }
    }
    /// The time of the entry.
    pub fn happened_at(&self) -> DateTime<Utc> {
        self.happened_at
    }
    /// The creation of the fact. A fact from a dialogue has effect from the moment of its turn, although the job learns
    /// the fact a little later.
    pub fn creation_entry(fact: &Fact) -> Self {
        let created_at = match fact.cause {
            Cause::Turn(_) if fact.corrects.is_none() => fact.valid_at,
            _ => fact.id.made_at(),
        };
        Self {
            cause: Some(fact.cause.into()),
            ..Self::new("created", created_at)
        }
    }
    /// The invalidation of another fact by this fact.
    pub fn replacement_entry(row: &Invalidation) -> Self {
        Self {
            reason: Some(row.reason),
            fact_id: Some(row.fact),
            cause: Some(row.cause.into()),
            lifted_at: row.lifted_at,
            ..Self::new("replaced", row.ended_at)
        }
    }
}

impl From<FactHistoryEntry> for HistoryView {
    fn from(entry: FactHistoryEntry) -> Self {
        match entry {
            FactHistoryEntry::Invalidated(row) => Self {
                reason: Some(row.reason),
                fact_id: row.ended_by,
                cause: Some(row.cause.into()),
                lifted_at: row.lifted_at,
                ..Self::new("invalidated", row.ended_at)
            },
            FactHistoryEntry::Edited {
                edit,
                at: edited_at,
                patch,
            } => Self {
                edit_id: Some(edit),
                patch: Some(patch),
                ..Self::new("edited", edited_at)
            },
            FactHistoryEntry::Merged {
                from: duplicate,
                at: merged_at,
            } => Self {
                fact_id: Some(duplicate),
                ..Self::new("merged", merged_at)
            },
            FactHistoryEntry::Flagged {
                by: other_fact,
                at: flagged_at,
            } => Self {
                fact_id: Some(other_fact),
                ..Self::new("flagged", flagged_at)
            },
        }
    }
}
