//! Facts: dated subject–predicate–object statements with a cause (docs/memory.md#a-fact).
//!
//! A fact's own row never changes. Duplicates, contradictions, edits and "forget that" are rows of their own, with
//! their own causes. [`Fact::view`] and [`Fact::invalid`] cache the fold of the rows that stand.

mod promises;
mod reason;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;

pub use self::reason::InvalidReason;
use super::{
    disclosure::{audience::Audience, locks::DisclosureLocks},
    embedded_text::embedded_fact_text,
};
use colloquy_core::ids::{
    ActionId, DialogueId, EditId, EventId, FactId, InvalidationId, JobId, RewindId, TurnId, WorldId,
};

/// The subject area of a fact (docs/algorithms.md#facts).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    IntoStaticStr,
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum FactKind {
    Preference,
    Event,
    Evaluation,
    Relationship,
    Goal,
    Habit,
    Opinion,
    PersonalInfo,
    Constraint,
    Decision,
    Todo,
    Timeline,
    Profile,
    Note,
    Other,
}

impl FactKind {
    /// All kinds, in the order of the documentation.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name on the wire and in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Reads a name. Unknown names give [`FactKind::Other`], because models invent kinds.
    #[must_use]
    pub fn parse_lenient(text: &str) -> Self {
        text.parse().unwrap_or(Self::Other)
    }

    /// True for kinds that describe the present situation. The state block of every prompt contains them, so recall
    /// does not search for them.
    #[must_use]
    pub const fn is_mutable_state(self) -> bool {
        matches!(
            self,
            Self::Relationship | Self::Goal | Self::Event | Self::Habit | Self::Opinion
        )
    }

    /// True if every fact of this kind may be in a prompt without a search.
    const fn is_standing(self) -> bool {
        self.is_mutable_state() || matches!(self, Self::Todo | Self::Decision)
    }

    /// True for the kinds of names, origins and similar facts.
    const fn is_about_oneself(self) -> bool {
        matches!(self, Self::PersonalInfo | Self::Profile)
    }

    /// True if some facts of this kind may be in a prompt without a search.
    #[must_use]
    pub const fn may_stand(self) -> bool {
        self.is_standing() || self.is_about_oneself()
    }
}

/// How much a fact matters, 1 (trivial) to 10 (vital).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
pub struct Importance(u8);

impl Importance {
    /// The middle of the range, for facts without a stated importance.
    pub const DEFAULT: Self = Self(5);

    /// Returns `None` outside 1–10.
    #[must_use]
    pub const fn new(value: u8) -> Option<Self> {
        if value >= 1 && value <= 10 {
            Some(Self(value))
        } else {
            None
        }
    }
    /// Returns the factor of a recall score, 0.1 to 1.
    #[must_use]
    pub fn factor(self) -> f64 {
        debug_assert!((1..=10).contains(&self.0), "an importance is 1 to 10");
        f64::from(self.0) / 10.0
    }
    /// Returns the nearest importance: models answer 0, 11 and 7.5.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 1..=10 first"
    )]
    pub fn from_clamped(value: f64) -> Self {
        if value.is_finite() {
            Self(value.round().clamp(1.0, 10.0) as u8)
        } else {
            Self::DEFAULT
        }
    }
    /// The value, 1–10.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}
impl<'de> Deserialize<'de> for Importance {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = u8::deserialize(d)?;
        Self::new(value).ok_or_else(|| serde::de::Error::custom("importance must be 1 to 10"))
    }
}

/// Whether the statement affirms or denies its predicate ("likes" / "hates", "does not like").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Polarity {
    Positive,
    Negative,
}

/// When the statement holds: "used to like" is `Past`, "likes" `Present`, "will" `Future`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tense {
    Past,
    Present,
    Future,
}

/// The cause of a derived row. Every derived row has exactly one
/// (ARCHITECTURE.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "id", rename_all = "snake_case")]
pub enum Cause {
    /// A line of a turn. The row is unsaid with the turn.
    Turn(TurnId),
    /// A person over REST. The edit lives while the edited row lives.
    Edit(EditId),
    /// An authoritative backend event. Interrupts do not rewind the event.
    Event(EventId),
    /// The backend's answer to an action. The row is unsaid with the turn of the action.
    Action(ActionId),
    /// Consolidation or curation. The job's rows name their sources.
    Job(JobId),
    /// A rewind of a dialogue, which invalidated the fact.
    Rewind(RewindId),
}

impl Cause {
    /// The two columns of a stored cause.
    #[must_use]
    pub fn to_columns(&self) -> (&'static str, String) {
        match self {
            Self::Turn(id) => ("turn", id.to_string()),
            Self::Edit(id) => ("edit", id.to_string()),
            Self::Event(id) => ("event", id.to_string()),
            Self::Action(id) => ("action", id.to_string()),
            Self::Job(id) => ("job", id.to_string()),
            Self::Rewind(id) => ("rewind", id.to_string()),
        }
    }
    /// The inverse of [`Self::to_columns`].
    #[must_use]
    pub fn from_columns(kind: &str, id: &str) -> Option<Self> {
        Some(match kind {
            "turn" => Self::Turn(id.parse().ok()?),
            "edit" => Self::Edit(id.parse().ok()?),
            "event" => Self::Event(id.parse().ok()?),
            "action" => Self::Action(id.parse().ok()?),
            "job" => Self::Job(id.parse().ok()?),
            "rewind" => Self::Rewind(id.parse().ok()?),
            _ => return None,
        })
    }
}

/// The content of a statement, without any data about its storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// The described person or thing: `player`, an NPC's name, a thing. Never confused with the speaker.
    pub subject: String,
    pub predicate: String,
    pub object: String,
    /// One self-contained sentence.
    pub content: String,
    /// Specific keywords and their broader categories ("grape", "fruit", "food").
    pub keywords: Vec<String>,
    /// The speaker: `player`, or an NPC's name.
    pub speaker: String,
    pub kind: FactKind,
    pub importance: Importance,
    pub polarity: Polarity,
    pub tense: Tense,
    /// Always in the prompt, in a separate slot: allergies, taboos, safety limits.
    pub pinned: bool,
}

impl Statement {
    /// True if a player tells the player's own name.
    #[must_use]
    pub fn tells_own_name(&self) -> bool {
        let predicate = self.predicate.to_lowercase();
        let names = ["name", "call", "이름", "별명", "불리", "불린", "부르"];
        (self.kind.is_about_oneself() || super::aliases::states_name(self))
            && self.subject == self.speaker
            && super::party::is_player(&self.subject)
            && self.polarity == Polarity::Positive
            && names.iter().any(|word| predicate.contains(word))
    }

    /// True if the statement may be in a prompt without a search, apart from pinned facts. Canon, and statements of a
    /// speaker about the speaker alone, may; hearsay may not. Among locked statements only promises and goals may,
    /// because a locked statement in a prompt locks all later facts of the dialogue.
    fn may_stand(&self, is_canon: bool, locks: &DisclosureLocks) -> bool {
        let reliable = is_canon || self.is_about_speaker_alone() || self.is_promise_of_maker();
        let is_standing = self.kind.is_standing() && reliable || self.tells_own_name();
        is_standing && (locks.is_empty() || self.is_open_promise())
    }

    /// True if the statement is about its speaker alone. A player's claim about the world is not, and an NPC's event
    /// with the player is not. Promises and goals always belong to the speaker.
    #[must_use]
    pub fn is_about_speaker_alone(&self) -> bool {
        let is_claim = || {
            if super::party::is_player(&self.speaker) {
                super::claims::is_world_claim(self)
            } else {
                self.kind == FactKind::Event && super::party::mentions_player(&self.content)
            }
        };
        self.subject == self.speaker && (self.is_open_promise() || !is_claim())
    }

    /// See [`embedded_fact_text`].
    #[must_use]
    pub fn embedded_text(&self) -> String {
        embedded_fact_text(&self.subject, &self.content, &self.keywords)
    }
}

/// The fact as readers see it: its statement, folded with the standing duplicates and edits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoldedFact {
    /// The newest wording.
    pub content: String,
    /// The union of the duplicates' keywords.
    pub keywords: Vec<String>,
    /// The highest importance of the duplicates.
    pub importance: Importance,
    /// Pinned if any duplicate was pinned.
    pub pinned: bool,
}

impl FoldedFact {
    /// The view of a fact that has no duplicates and no edits.
    #[must_use]
    pub fn from_statement(statement: &Statement) -> Self {
        Self {
            content: statement.content.clone(),
            keywords: statement.keywords.clone(),
            importance: statement.importance,
            pinned: statement.pinned,
        }
    }
}

/// The cached result of a fact's standing invalidations: the earliest invalidation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectiveInvalidation {
    #[serde(rename = "at")]
    pub ended_at: DateTime<Utc>,
    pub reason: InvalidReason,
    /// The replacement fact, for `duplicate` and `superseded`.
    #[serde(rename = "by")]
    pub ended_by: Option<FactId>,
}

/// A sentence of a fact that a person has replaced by another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierWording {
    pub content: String,
    /// When the person replaced the sentence.
    pub until: DateTime<Utc>,
}

/// A fact as stored in the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    pub id: FactId,
    pub world: WorldId,
    pub audience: Audience,
    /// Sources of the fact that some players may not hear.
    #[serde(default, skip_serializing_if = "DisclosureLocks::is_empty")]
    pub locks: DisclosureLocks,
    /// Newer facts of other audiences. While valid, a newer fact replaces this fact for readers who may know both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced_by: Vec<FactId>,
    /// As extracted or authored; never changes.
    pub statement: Statement,
    /// The statement as readers see it.
    pub view: FoldedFact,
    pub valid_at: DateTime<Utc>,
    pub invalid: Option<EffectiveInvalidation>,
    /// The end of retention, if the kind has a retention period. A pinned fact does not expire, unless it is a conclusion.
    pub expires_at: Option<DateTime<Utc>>,
    pub cause: Cause,
    /// The dialogue and turn number of the source, for human readers. Only `cause` decides.
    pub source: Option<(DialogueId, u32)>,
    /// The premises of a conclusion. A conclusion falls with any of them.
    pub derived_from: Vec<FactId>,
    /// Kinds of personal data in the text (`email`, `phone`, …), see [`super::pii`].
    pub pii: Vec<String>,
    /// Written by a person: flagged instead of invalidated automatically.
    pub authored: bool,
    /// Set: a person corrected the statement or the dates of that fact, and this fact replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects: Option<FactId>,
    /// The sentences that people have replaced in place, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_wordings: Vec<EarlierWording>,
    /// Rises with every change of `view` or `invalid`; the `ETag` over REST.
    pub version: u32,
}

impl Fact {
    /// True if the fact held at `as_of`: begun, and neither invalidated nor expired by then.
    #[must_use]
    pub fn is_valid_at(&self, as_of: DateTime<Utc>) -> bool {
        self.valid_at <= as_of
            && self.invalid.as_ref().is_none_or(|invalid| invalid.ended_at > as_of)
            && self
                .expires_at
                .is_none_or(|end| end > as_of || self.view.pinned && !self.is_conclusion())
    }
    /// The sentence of the fact at `as_of`, before later edits by people.
    #[must_use]
    pub fn content_at(&self, as_of: DateTime<Utc>) -> &str {
        let earlier = self.earlier_wordings.iter().find(|wording| wording.until > as_of);
        earlier.map_or(&self.view.content, |wording| &wording.content)
    }
    /// True if consolidation made the fact of its premises.
    #[must_use]
    pub const fn is_conclusion(&self) -> bool {
        matches!(self.cause, Cause::Job(_))
    }
    /// True if authors wrote the fact or the game reported it, for any stated speaker.
    #[must_use]
    pub const fn is_canon(&self) -> bool {
        is_canon(self.authored, &self.cause)
    }
    /// True if the fact may be in a prompt without a search, apart from pinned facts, wherever its locks are open.
    #[must_use]
    pub fn may_stand(&self) -> bool {
        self.statement.may_stand(self.is_canon(), &self.locks)
    }
    /// True for pinned and authored facts. They are only flagged for a person (docs/memory.md#facts-to-check).
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.authored || self.view.pinned || self.statement.pinned
    }
}

/// A fact to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct NewFact {
    pub id: FactId,
    pub world: WorldId,
    pub audience: Audience,
    /// The locks of the sources, as in [`Fact::locks`].
    pub locks: DisclosureLocks,
    pub statement: Statement,
    pub valid_at: DateTime<Utc>,
    pub expires_at: Option<DateTime<Utc>>,
    pub cause: Cause,
    pub source: Option<(DialogueId, u32)>,
    pub derived_from: Vec<FactId>,
    pub pii: Vec<String>,
    pub authored: bool,
    /// The unit vector of [`Statement::embedded_text`].
    pub embedding: Vec<f32>,
}

impl NewFact {
    /// See [`Fact::may_stand`].
    #[must_use]
    pub fn may_stand(&self) -> bool {
        self.statement
            .may_stand(is_canon(self.authored, &self.cause), &self.locks)
    }
}

const fn is_canon(authored: bool, cause: &Cause) -> bool {
    authored || matches!(cause, Cause::Edit(_) | Cause::Event(_))
}

/// An invalidation to be written: a reason why a fact is not valid. A fact may have several.
#[derive(Debug, Clone, PartialEq)]
pub struct NewInvalidation {
    pub id: InvalidationId,
    pub fact: FactId,
    pub reason: InvalidReason,
    pub ended_by: Option<FactId>,
    pub cause: Cause,
    pub ended_at: DateTime<Utc>,
    /// When a person restored the fact. The invalidation counts only until then.
    pub restored_at: Option<DateTime<Utc>>,
}

/// A stored invalidation, for a fact's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Invalidation {
    pub id: InvalidationId,
    pub fact: FactId,
    pub reason: InvalidReason,
    #[serde(rename = "by")]
    pub ended_by: Option<FactId>,
    pub cause: Cause,
    #[serde(rename = "at")]
    pub ended_at: DateTime<Utc>,
    /// Set when the cause was unsaid or a person restored the fact. The invalidation no longer counts.
    pub lifted_at: Option<DateTime<Utc>>,
}
