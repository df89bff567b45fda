//! The kinds of knowledge of a prompt. Each kind has a row in the table below, and a file or folder of its own, with
//! everything about it: how a turn finds it, who may hear it, how a prompt shows it, and how a verification reads it again.

pub mod actions;
mod corrections;
mod entries;
mod episodes;
mod found_facts;
mod identity;
mod insights;
mod kind;
pub mod lore;
mod overheard;
pub mod scenarios;
mod scene_notes;
mod section;
mod standing_facts;
mod story;
mod summaries;
mod traced_fact;
mod turn_memory;
mod world_lines;

#[cfg(test)]
pub(crate) use self::episodes::EpisodeHit;
pub(crate) use self::{
    actions::TurnActions,
    corrections::Corrections,
    episodes::{EpisodeCache, Episodes, greeting_episode, plain_episode},
    found_facts::FoundFacts,
    identity::{Identity, player_own_names},
    insights::Insights,
    kind::{EarlyReading, KindOfKnowledge, LineSearch, Rereading},
    lore::Lore,
    overheard::Overheard,
    scenarios::Scenarios,
    scene_notes::SceneNotes,
    section::{RenderedValues, Section, SectionSize, SectionSizes, TemplateValues, ToldParts},
    standing_facts::{StandingFacts, trace_standing_facts},
    story::Story,
    summaries::Summaries,
    turn_memory::MemoryOfTurn,
    world_lines::WorldLines,
};
use crate::{
    disclosure::Disclosures,
    prompt::{FRAME_TOKENS, HEADING_TOKENS, HistoryWindow, PromptContext},
    turn::{TurnError, TurnInput},
};
use colloquy_memory::trace::{PromptSources, TurnTrace};

/// The maximum number of headings for the sections before the history.
const MAX_HEADINGS: u32 = 10;

/// Declares the kinds of knowledge, in the order in which their sections get room in a prompt. `dropped` is the place of
/// a section in the order in which a prompt that is too long drops content: section 1 goes first.
macro_rules! kinds_of_knowledge {
    (
        first { $($first:ident: $First:ty, dropped $first_rank:literal;)+ }
        before_history { $($early:ident: $Early:ty, dropped $early_rank:literal;)+ }
        after_history { $($late:ident: $Late:ty, dropped $late_rank:literal;)+ }
    ) => {
        kinds_of_knowledge! {
            $($first: $First, $first_rank;)+ $($early: $Early, $early_rank;)+ $($late: $Late, $late_rank;)+
        }

        impl GatheredKnowledge {
            /// Selects what fits `remaining_tokens`, the tokens of the prompt without its fixed parts. `select_history` gets
            /// the tokens that are left for the raw turns, and the tokens of the parts that may change with every turn.
            ///
            /// # Errors
            /// A template that cannot be rendered.
            #[allow(unused_assignments, reason = "nothing is left for a section after the last one")]
            pub(crate) fn select<'a>(
                &'a self,
                context: &'a PromptContext<'a>,
                mut remaining_tokens: u32,
                select_history: impl FnOnce(u32, u32) -> Result<HistoryWindow, TurnError>,
            ) -> Result<(SelectedKnowledge<'a>, HistoryWindow), TurnError> {
                let mut told_parts = ToldParts { has_episodes: !self.episodes.is_empty(), ..ToldParts::default() };
                let mut changing_tokens = 0;
                $(
                    let $first = self.$first.select(context, &told_parts, remaining_tokens)?;
                    remaining_tokens = remaining_tokens.saturating_sub($first.tokens());
                    changing_tokens += $first.changing_tokens();
                )+
                let mut early_tokens = remaining_tokens.saturating_sub(MAX_HEADINGS * (HEADING_TOKENS + FRAME_TOKENS));
                $(
                    let $early = self.$early.select(context, &told_parts, early_tokens)?;
                    early_tokens = early_tokens.saturating_sub($early.taken_tokens());
                    changing_tokens += $early.changing_tokens();
                    $early.add_told(&mut told_parts);
                )+
                remaining_tokens = remaining_tokens.saturating_sub(0 $(+ $early.framed_tokens())+);
                let history = select_history(remaining_tokens, changing_tokens)?;
                remaining_tokens = remaining_tokens.saturating_sub(history.tokens());
                told_parts.history = Some(&history);
                $(
                    let $late = self.$late.select(context, &told_parts, remaining_tokens)?;
                    remaining_tokens = remaining_tokens.saturating_sub($late.framed_tokens());
                    $late.add_told(&mut told_parts);
                )+
                Ok((SelectedKnowledge { $($first,)+ $($early,)+ $($late,)+ }, history))
            }
        }
    };
    ($($kind:ident: $Kind:ty, $rank:literal;)+) => {
        /// What a turn found of each kind.
        #[derive(Default)]
        pub(crate) struct GatheredKnowledge {
            $(pub $kind: $Kind,)+
        }

        /// What a turn read of each kind before its intent was known.
        #[derive(Clone, Default)]
        pub(crate) struct EarlyReads<'a> {
            $(pub $kind: <$Kind as KindOfKnowledge>::Read<'a>,)+
        }

        impl<'a> EarlyReads<'a> {
            /// Reads all kinds at once.
            pub(crate) async fn read_all(reading: &EarlyReading<'a>) -> Result<Self, TurnError> {
                let ($($kind,)+) = tokio::try_join!($(<$Kind>::read(reading),)+)?;
                Ok(Self { $($kind,)+ })
            }
        }

        impl GatheredKnowledge {
            /// Finds all kinds at once.
            pub(crate) async fn find_all(search: &LineSearch<'_>, reads: EarlyReads<'_>) -> Result<Self, TurnError> {
                let ($($kind,)+) = tokio::try_join!($(<$Kind>::find(search, reads.$kind),)+)?;
                Ok(Self { $($kind,)+ })
            }

            /// Reads again what a trace names of all kinds.
            pub(crate) async fn reread_all(
                rereading: &Rereading<'_>,
                changes: &mut Vec<String>,
            ) -> Result<Self, TurnError> {
                Ok(Self { $($kind: <$Kind>::reread(rereading, changes).await?,)+ })
            }

            /// Adds the rows that a later reading of the same knowledge needs.
            pub(crate) fn add_sources(&self, sources: &mut PromptSources) {
                $(self.$kind.add_sources(sources);)+
            }

            /// Returns the locked and the private content in the prompt with this trace.
            pub(crate) fn disclosures(&self, input: &TurnInput, trace: &TurnTrace) -> Disclosures {
                let mut disclosures = Disclosures::default();
                $(self.$kind.add_disclosures(input, trace, &mut disclosures);)+
                disclosures
            }
        }

        /// The sections of a prompt, one of each kind.
        pub(crate) struct SelectedKnowledge<'a> {
            $(pub $kind: <$Kind as KindOfKnowledge>::Section<'a>,)+
        }

        impl SelectedKnowledge<'_> {
            /// Returns the sections in the order of the table.
            pub(crate) fn sections(&self) -> Vec<&dyn Section> {
                vec![$(&self.$kind,)+]
            }
            /// Returns the sections, each with its place in the order in which content is dropped.
            pub(crate) fn ranked_sections(&mut self) -> Vec<(u8, &mut dyn Section)> {
                vec![$(($rank, &mut self.$kind),)+]
            }
        }
    };
}

/// The place of the raw turns in the order in which content is dropped.
pub(crate) const HISTORY_RANK: u8 = 6;

kinds_of_knowledge! {
    first {
        scenarios: Scenarios, dropped 10;
    }
    before_history {
        identity: Identity, dropped 12;
        standing_facts: StandingFacts, dropped 13;
        corrections: Corrections, dropped 11;
        scene_notes: SceneNotes, dropped 14;
        world_lines: WorldLines, dropped 8;
        actions: TurnActions, dropped 7;
        overheard: Overheard, dropped 9;
    }
    after_history {
        found_facts: FoundFacts, dropped 5;
        summaries: Summaries, dropped 3;
        episodes: Episodes, dropped 4;
        insights: Insights, dropped 2;
        lore: Lore, dropped 1;
        story: Story, dropped 0;
    }
}
