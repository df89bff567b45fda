//! Curation of a dialogue: findings, decisions about them, and the narrative memory of the curation model
//! (docs/algorithms.md#curation).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::keywords::sentence_key;
use colloquy_core::ids::{DialogueId, FindingId, PassId, WorldId};

/// Longest text of a finding, in characters.
pub const MAX_FINDING_CHARS: usize = 300;
/// Longest reason of a decision, in characters.
pub const MAX_REASON_CHARS: usize = 300;
/// The most new findings of a pass.
pub const MAX_FINDINGS_PER_PASS: usize = 10;

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Two things that cannot both be true: among the turns, the state of the world and the authored texts.
    Contradiction,
    /// Something that was hinted at or promised, and waits for its pay-off.
    Foreshadowing,
    /// An event that would fit next. Only a backend can make it happen.
    Event,
}

impl FindingKind {
    pub const ALL: [Self; 3] = [Self::Contradiction, Self::Foreshadowing, Self::Event];

    /// The name in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Contradiction => "contradiction",
            Self::Foreshadowing => "foreshadowing",
            Self::Event => "event",
        }
    }
}

/// What becomes of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Meant to be so: a contradiction that the story needs, a riddle that stays, an event that was turned down.
    Intended,
    /// Settled: a contradiction was explained or corrected, foreshadowing was paid off, an event happened.
    Fixed,
    /// Not settled yet.
    Open,
}

impl Decision {
    pub const ALL: [Self; 3] = [Self::Intended, Self::Fixed, Self::Open];

    /// The name in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Fixed => "fixed",
            Self::Open => "open",
        }
    }
}

/// The decision about a finding that counts: a person's before the model's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingDecision {
    pub decision: Decision,
    /// One sentence of at most [`MAX_REASON_CHARS`] characters; may be empty.
    pub reason: String,
    /// The subject of the person's token. `None`: the curation model decided.
    pub decided_by: Option<String>,
    pub decided_at: DateTime<Utc>,
}

/// A finding that stands, with its decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub id: FindingId,
    pub world: WorldId,
    pub dialogue: DialogueId,
    pub kind: FindingKind,
    /// One sentence of at most [`MAX_FINDING_CHARS`] characters.
    pub text: String,
    /// The numbers of the turns that it is about, rising.
    pub turns: Vec<u32>,
    /// When the last turn of the pass was committed.
    pub found_at: DateTime<Utc>,
    pub decided: StandingDecision,
}

impl Finding {
    /// True if the model may still decide: nobody decided otherwise than `open`, and no person did at all. Later passes
    /// keep to a decision.
    #[must_use]
    pub const fn is_open_to_model(&self) -> bool {
        matches!(self.decided.decision, Decision::Open) && self.decided.decided_by.is_none()
    }

    /// True if a text of the same kind says the same, word for word but for case and punctuation.
    #[must_use]
    pub fn is_same(&self, kind: FindingKind, text: &str) -> bool {
        self.kind == kind && sentence_key(&self.text) == sentence_key(text)
    }
}

/// How a pass changed the narrative memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PassMethod {
    /// The model edited the memory step by step.
    Edits,
    /// The steps failed, and the model wrote the whole memory in a single answer.
    Direct,
}

impl PassMethod {
    pub const ALL: [Self; 2] = [Self::Edits, Self::Direct];

    /// The name in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Edits => "edits",
            Self::Direct => "direct",
        }
    }
}

/// A pass of the curation model over some turns of a dialogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurationPass {
    pub id: PassId,
    pub world: WorldId,
    pub dialogue: DialogueId,
    pub from_turn: u32,
    pub to_turn: u32,
    pub method: PassMethod,
    /// The model's answers.
    pub steps: u32,
    /// The narrative memory after the pass.
    pub memory: String,
    /// When the last turn of the pass was committed.
    pub last_turn_at: DateTime<Utc>,
}

/// An edit of the narrative memory by the curation model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryEdit {
    /// Adds a line at the end.
    Append { text: String },
    /// Replaces the only place that has `text`.
    Replace { text: String, by: String },
    /// Removes the only place that has `text`.
    Remove { text: String },
}

/// Why an edit was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EditRefusal {
    #[error("the text is empty")]
    Empty,
    #[error("the memory does not have this text")]
    NotFound,
    #[error("the memory has this text {0} times; give more of it")]
    NotUnique(usize),
    #[error("the memory would have {0} characters too many; remove or shorten something first")]
    TooLong(usize),
}

/// The curation model's notes about a dialogue: a few lines of text. Only the model reads and edits them; backends see
/// them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NarrativeMemory {
    text: String,
    max_chars: usize,
}

impl NarrativeMemory {
    /// A memory of at most `max_chars` characters. A text from a time with a higher limit stays whole until an edit
    /// makes it shorter.
    #[must_use]
    pub const fn new(text: String, max_chars: usize) -> Self {
        Self { text, max_chars }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub fn char_count(&self) -> usize {
        self.text.chars().count()
    }

    /// Replaces the whole memory by the last lines of a text that fit. A last line that is too long is cut.
    pub fn write_anew(&mut self, text: &str) {
        let mut rest = text;
        while rest.chars().count() > self.max_chars
            && let Some((_, later)) = rest.split_once('\n')
        {
            rest = later;
        }
        self.text = rest.chars().take(self.max_chars).collect();
    }

    /// Makes an edit, or none.
    ///
    /// # Errors
    /// Why the edit was not made.
    pub fn apply_edit(&mut self, edit: &MemoryEdit) -> Result<(), EditRefusal> {
        let text = match edit {
            MemoryEdit::Append { text } if text.trim().is_empty() => return Err(EditRefusal::Empty),
            MemoryEdit::Append { text } if self.text.is_empty() => text.trim().to_owned(),
            MemoryEdit::Append { text } => format!("{}\n{}", self.text, text.trim()),
            MemoryEdit::Replace { text, by } => self.replace_once(text, by.trim())?,
            MemoryEdit::Remove { text } => self.replace_once(text, "")?,
        };
        let chars = text.chars().count();
        if chars > self.max_chars && chars > self.char_count() {
            return Err(EditRefusal::TooLong(chars - self.max_chars));
        }
        self.text = text;
        Ok(())
    }

    /// Returns the text with its only place of `text` replaced, without empty lines.
    fn replace_once(&self, text: &str, replacement: &str) -> Result<String, EditRefusal> {
        let text = text.trim();
        if text.is_empty() {
            return Err(EditRefusal::Empty);
        }
        match self.text.matches(text).count() {
            0 => Err(EditRefusal::NotFound),
            1 => {
                let changed = self.text.replacen(text, replacement, 1);
                let lines = changed.lines().map(str::trim).filter(|line| !line.is_empty());
                Ok(lines.collect::<Vec<_>>().join("\n"))
            }
            count => Err(EditRefusal::NotUnique(count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(text: &str) -> MemoryEdit {
        MemoryEdit::Append { text: text.to_owned() }
    }
    fn replace(text: &str, by: &str) -> MemoryEdit {
        MemoryEdit::Replace {
            text: text.to_owned(),
            by: by.to_owned(),
        }
    }
    fn remove(text: &str) -> MemoryEdit {
        MemoryEdit::Remove { text: text.to_owned() }
    }

    #[test]
    fn narrative_memory_is_edited_by_its_own_words() {
        let mut memory = NarrativeMemory::new(String::new(), 40);
        assert_eq!(memory.apply_edit(&append(" The well is dry. ")), Ok(()));
        assert_eq!(memory.apply_edit(&append("Anna lies.")), Ok(()));
        assert_eq!(memory.as_str(), "The well is dry.\nAnna lies.");
        assert_eq!(memory.apply_edit(&replace("is dry", "was dry")), Ok(()));
        assert_eq!(memory.as_str(), "The well was dry.\nAnna lies.");
        assert_eq!(memory.apply_edit(&remove("The well was dry.")), Ok(()));
        assert_eq!(memory.as_str(), "Anna lies.", "no empty line is left");
    }

    #[test]
    fn refused_edit_leaves_the_narrative_memory_as_it_was() {
        let text = "Anna lies. Anna left.";
        let mut memory = NarrativeMemory::new(text.to_owned(), 25);
        for (edit, why) in [
            (append("  "), EditRefusal::Empty),
            (remove(""), EditRefusal::Empty),
            (remove("Bert"), EditRefusal::NotFound),
            (replace("Anna", "Bert"), EditRefusal::NotUnique(2)),
            (append("Bert stays."), EditRefusal::TooLong(8)),
        ] {
            assert_eq!(memory.apply_edit(&edit), Err(why), "{edit:?}");
            assert_eq!(memory.as_str(), text);
        }
    }

    #[test]
    fn narrative_memory_above_its_limit_can_only_become_shorter() {
        let mut memory = NarrativeMemory::new("Anna lies. Bert left.".to_owned(), 10);
        assert_eq!(memory.apply_edit(&append("x")), Err(EditRefusal::TooLong(13)));
        assert_eq!(memory.apply_edit(&replace("Bert left.", "Bert?")), Ok(()));
        assert_eq!(memory.apply_edit(&remove("Anna lies.")), Ok(()));
        assert_eq!(memory.as_str(), "Bert?");
    }

    #[test]
    fn narrative_memory_written_anew_keeps_the_last_lines() {
        let mut memory = NarrativeMemory::new("Old.".to_owned(), 20);
        memory.write_anew("The well is dry.\nAnna lies.\nBert left.");
        assert_eq!(memory.as_str(), "Bert left.");
        memory.write_anew("Anna.\nBert left.");
        assert_eq!(memory.as_str(), "Anna.\nBert left.");
        memory.write_anew("Anna.\nBert has left the village.");
        assert_eq!(memory.as_str(), "Bert has left the vi");
    }

    #[test]
    fn decisions_other_than_open_and_decisions_of_persons_stay() {
        for (decision, person, open) in [
            (Decision::Open, None, true),
            (Decision::Open, Some("ann"), false),
            (Decision::Intended, None, false),
            (Decision::Fixed, None, false),
        ] {
            let finding = Finding {
                id: FindingId::from_u128(1),
                world: "vale".parse().expect("an id"),
                dialogue: "ses_00000000000000000000000001".parse().expect("an id"),
                kind: FindingKind::Contradiction,
                text: "Anna is dead, and speaks.".to_owned(),
                turns: vec![3],
                found_at: DateTime::UNIX_EPOCH,
                decided: StandingDecision {
                    decision,
                    reason: String::new(),
                    decided_by: person.map(str::to_owned),
                    decided_at: DateTime::UNIX_EPOCH,
                },
            };
            assert_eq!(finding.is_open_to_model(), open, "{decision:?} {person:?}");
            assert!(finding.is_same(FindingKind::Contradiction, "anna is dead and speaks"));
            assert!(!finding.is_same(FindingKind::Event, "Anna is dead, and speaks."));
        }
    }
}
