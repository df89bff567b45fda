//! A kind of knowledge: how a turn gathers it, and how its prompt shows it.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::{
    section::{Section, ToldParts},
    turn_memory::MemoryOfTurn,
};
use crate::{
    Services,
    disclosure::{Disclosable, Disclosures, PreparedRemovals, ToldTexts},
    intent::ClassifiedIntent,
    prompt::PromptContext,
    turn::{TurnError, TurnInput},
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    fact::Fact,
    keywords::TermWeights,
    state::WorldState,
    trace::{PromptSources, TurnTrace},
};

/// A kind of knowledge that a prompt may have. The value is what a turn found: rows that this player may hear from this
/// NPC now. The table in `knowledge.rs` has a row for each kind.
pub(crate) trait KindOfKnowledge: Default {
    /// The rows that are read before the intent of the line is known.
    type Read<'a>: Clone + Default;
    /// What a prompt shows of the kind.
    type Section<'a>: Section
    where
        Self: 'a;

    /// Reads rows while the intent of the line is still unknown. Kinds that need the intent read nothing here.
    ///
    /// # Errors
    /// The store's.
    async fn read<'a>(_reading: &EarlyReading<'a>) -> Result<Self::Read<'a>, TurnError> {
        Ok(Self::Read::default())
    }

    /// Finds what the prompt may have: about the line, open to the hearers, and without removed statements.
    ///
    /// # Errors
    /// The store's, or a template that cannot be rendered.
    async fn find<'a>(search: &LineSearch<'a>, early_reads: Self::Read<'a>) -> Result<Self, TurnError>;

    /// Reads the rows that a trace names again, as they were for the turn. `changes` gets what has changed since, in
    /// words.
    ///
    /// # Errors
    /// The store's, or a template that cannot be rendered any more.
    async fn reread(rereading: &Rereading<'_>, changes: &mut Vec<String>) -> Result<Self, TurnError>;

    /// Selects what fits the budget of the section and `remaining_tokens`, without what `told_parts` tell already.
    ///
    /// # Errors
    /// A template that cannot be rendered.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<Self::Section<'a>, TurnError>;

    /// Adds the rows that [`reread`](Self::reread) needs and no other field of the trace names.
    fn add_sources(&self, _sources: &mut PromptSources) {}

    /// Adds the locked and the private content that the prompt of a turn shows. `trace` is the trace of the prompt.
    fn add_disclosures(&self, _input: &TurnInput, _trace: &TurnTrace, _disclosures: &mut Disclosures) {}
}

/// The reads of a turn before the intent of its line is known.
pub(crate) struct EarlyReading<'a> {
    pub services: &'a Services,
    pub input: &'a TurnInput,
    pub memory: MemoryOfTurn<'a>,
}

/// The search of a turn whose intent and standing memory are known.
pub(crate) struct LineSearch<'a> {
    pub services: &'a Services,
    pub input: &'a TurnInput,
    pub state: &'a Arc<WorldState>,
    pub classified: &'a ClassifiedIntent,
    /// The embedding of the line. `None`: the line was not embedded.
    pub embedding: Option<&'a [f32]>,
    /// The informative words of the line.
    pub terms: &'a TermWeights,
    /// Pinned facts and facts of mutable-state kinds, most important first.
    pub standing: &'a Arc<Vec<Disclosable<Fact>>>,
    /// What was removed from memory.
    pub removals: &'a PreparedRemovals<'a>,
    /// The dialogue's own texts without the removed statements.
    pub told_texts: &'a ToldTexts,
}

impl LineSearch<'_> {
    /// Returns the embedding of the line, if the line is about something.
    pub(super) fn compared_embedding(&self) -> Option<&[f32]> {
        self.embedding.filter(|_| self.classified.is_about_something())
    }
}

/// The reading of the rows that the trace of a turn names.
pub(crate) struct Rereading<'a> {
    pub services: &'a Services,
    pub scope: &'a TenantScope,
    pub trace: &'a TurnTrace,
    pub sources: &'a PromptSources,
    /// The start of the turn. Later edits count as changes.
    pub started_at: DateTime<Utc>,
    pub input: &'a TurnInput,
    /// The state of the world at the turn.
    pub state: &'a Arc<WorldState>,
    /// What had been removed from memory by the turn.
    pub removals: &'a PreparedRemovals<'a>,
    /// The dialogue's own texts without the removed statements.
    pub told_texts: &'a ToldTexts,
}
