//! Facts that a person should check, and the decisions of persons.

use std::{fmt, str::FromStr};

use async_trait::async_trait;

use super::{
    audit::Edit,
    facts::{FactPatch, ReplacementFact},
};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{FactId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    disclosure::audience::Knower,
    flags::{FlagDecision, FlagEntry, FlagKind},
};

/// Which flags a list has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlagFilter {
    pub flag: Option<FlagKind>,
    /// Only facts with at least one of these knowers.
    pub knowers: Option<Vec<Knower>>,
    /// True: flags with a decision. False: open flags.
    pub decided: bool,
}

/// The place of a flag in a list: newest fact first, then by flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagCursor {
    pub fact: FactId,
    pub flag: FlagKind,
}

impl fmt::Display for FlagCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.fact, self.flag.as_str())
    }
}

/// The text is no cursor of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a fact and a flag")]
pub struct InvalidFlagCursor;

impl FromStr for FlagCursor {
    type Err = InvalidFlagCursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (fact, flag) = text.split_once('/').ok_or(InvalidFlagCursor)?;
        Ok(Self {
            fact: fact.parse().map_err(|_| InvalidFlagCursor)?,
            flag: FlagKind::parse(flag).ok_or(InvalidFlagCursor)?,
        })
    }
}

/// A change of a fact by a person.
#[derive(Debug, Clone, PartialEq)]
pub enum FactChange {
    Patch(FactPatch),
    Replacement(Box<ReplacementFact>),
}

/// A person's decision about a flag of a fact.
#[derive(Debug, Clone, PartialEq)]
pub struct FlagDecisionWrite {
    pub flag: FlagKind,
    pub decision: FlagDecision,
    /// At most [`MAX_REASON_CHARS`](colloquy_memory::flags::MAX_REASON_CHARS) characters; may be empty.
    pub reason: String,
    /// The correction, with [`FlagDecision::Corrected`]. `None`: the fact has the corrected values already.
    pub change: Option<FactChange>,
    /// The version of the fact on which the correction was made.
    pub if_version: Option<u32>,
}

/// The outcome of a decision.
#[derive(Debug, Clone, PartialEq)]
pub enum FlagOutcome {
    Decided(Box<FlagEntry>),
    VersionMismatch {
        stored: u32,
    },
    /// The turn of the fact was taken back.
    Unsaid,
    /// The fact has ended meanwhile, and not by a decision about this flag. `by`: the fact that replaced it.
    Ended {
        by: Option<FactId>,
    },
    /// No such fact in this world, or the fact has no such flag.
    NotFound,
}

/// Flagged facts. Flags follow from the stored facts, so a flag disappears with the turn that caused it. Decisions are
/// edits, which no rewind takes back. Each decision covers the statements of the flag at that time: a later statement
/// opens the flag again, unless it only repeats a decided statement.
#[async_trait]
pub trait FlagStore: Send + Sync {
    /// Returns flags of a world, newest fact first. The cursor is a [`FlagCursor`].
    async fn list_flags(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        filter: &FlagFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<FlagEntry>>;
    /// Stores a person's decision with its effect on the fact and its audit row. A later decision replaces an earlier
    /// one, and takes back the end of a contradicted fact. A repeated decision writes no row.
    async fn decide_flag(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        fact: FactId,
        decision: &FlagDecisionWrite,
        edit: &Edit,
    ) -> StoreResult<FlagOutcome>;
}
