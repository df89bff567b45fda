//! Actions in a prompt: those for which the NPC may ask, and what became of those for which it asked.

use std::collections::BTreeSet;

use super::{
    super::{
        entries::{Entries, Entry},
        kind::{EarlyReading, KindOfKnowledge, LineSearch, Rereading},
        section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts, with_heading},
    },
    TurnActions, load_outcomes, load_resting_actions,
};
use crate::{
    disclosure::Disclosable,
    prompt::{ITEM_TOKENS, PromptContext},
    settings::PromptSettings,
    turn::TurnError,
};
use colloquy_memory::trace::{ActionsTrace, OutcomeTrace, TurnTrace};
use colloquy_ports::ledger::actions::Action;

/// The maximum length of all lines about possible actions, in characters: a schema alone may have 2,000 bytes.
const MAX_OFFER_CHARS: usize = 3_000;
/// The maximum length of all lines about settled actions, in characters.
const MAX_OUTCOMES_CHARS: usize = 1_200;
/// The budget of both, in tokens.
const ACTION_TOKENS: u32 = 1_400;

/// The actions that a turn reads before its intent is known.
#[derive(Clone, Default)]
pub(crate) struct ActionReads {
    /// The actions that the NPC asked for: those that are settled, and then those that wait.
    requests: Vec<Action>,
    /// The names of actions that rest.
    resting: BTreeSet<String>,
}

/// The lines among which a prompt selects, with remarks on those who hear the prompt.
struct SelectableLines {
    offers: Vec<String>,
    outcomes: Vec<String>,
}

/// The lines that fit. An outcome never takes the place of an offer.
pub(crate) struct ActionSection<'a> {
    actions: &'a TurnActions,
    offers: Entries,
    outcomes: Entries,
}

impl KindOfKnowledge for TurnActions {
    type Read<'a> = ActionReads;
    type Section<'a> = ActionSection<'a>;

    async fn read(reading: &EarlyReading<'_>) -> Result<ActionReads, TurnError> {
        let (requests, resting) = tokio::try_join!(
            load_outcomes(reading.services, reading.input),
            load_resting_actions(reading.services, reading.input),
        )?;
        Ok(ActionReads { requests, resting })
    }

    async fn find(search: &LineSearch<'_>, early_reads: ActionReads) -> Result<Self, TurnError> {
        let LineSearch {
            services, input, state, ..
        } = *search;
        Ok(Self::new(
            services,
            input,
            state,
            early_reads.requests,
            &early_reads.resting,
        )?)
    }

    async fn reread(rereading: &Rereading<'_>, changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let Rereading {
            services, input, state, ..
        } = *rereading;
        let traced = &rereading.trace.actions;
        let action_ids: Vec<_> = traced.outcomes.iter().map(|outcome| outcome.action).collect();
        let rows = if action_ids.is_empty() {
            Vec::new()
        } else {
            let store = &services.ledger.actions;
            store.load_actions(rereading.scope, &action_ids).await?
        };
        if rows.len() < action_ids.len() {
            changes.push("an earlier action of the NPC is gone".to_owned());
        }
        Ok(Self::replay(services, input, state, traced, &rows)?)
    }

    /// Selects the lines that fit. An outcome says which hearers do not know of it.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        _told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<ActionSection<'a>, TurnError> {
        let lines = self.lines.as_ref().try_map(|lines| {
            let outcomes = lines.outcomes.iter().map(|outcome| {
                let remark = context.remark_for_dialogue(outcome.dialogue);
                remark.add_to(context, outcome.line.to_string())
            });
            Ok::<_, TurnError>(SelectableLines {
                offers: lines.offers.iter().map(ToString::to_string).collect(),
                outcomes: outcomes.collect::<Result<Vec<String>, _>>()?,
            })
        })?;
        let count = |text: &str| context.count(text);
        Ok(ActionSection::fit(self, lines, remaining_tokens, &count))
    }
}

impl<'a> ActionSection<'a> {
    fn fit(
        actions: &'a TurnActions,
        lines: Disclosable<SelectableLines>,
        mut remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Self {
        let offers = lines.as_ref().map(|lines| lines.offers.clone());
        let outcomes = lines.map(|lines| lines.outcomes);
        Self {
            actions,
            offers: fit_lines(offers, MAX_OFFER_CHARS, &mut remaining_tokens, count),
            outcomes: fit_lines(outcomes, MAX_OUTCOMES_CHARS, &mut remaining_tokens, count),
        }
    }
}

/// Selects the lines that fit, and takes their tokens from `remaining_tokens`.
fn fit_lines(
    lines: Disclosable<Vec<String>>,
    mut chars: usize,
    remaining_tokens: &mut u32,
    count: &dyn Fn(&str) -> u32,
) -> Entries {
    let mut entries = Entries::default();
    for (index, line) in lines.into_entries().enumerate() {
        let length = line.chars().count();
        if length > chars {
            entries.dropped += 1;
            continue;
        }
        let entry = Entry {
            index,
            tokens: count(&line) + ITEM_TOKENS,
            text: line,
            detail: (),
        };
        let shown_before = entries.items.len();
        entries.fit(entry, remaining_tokens);
        if entries.items.len() > shown_before {
            chars -= length;
        }
    }
    entries
}

impl Section for ActionSection<'_> {
    fn tokens(&self) -> u32 {
        with_heading(self.offers.tokens()) + with_heading(self.outcomes.tokens())
    }
    fn framed_tokens(&self) -> u32 {
        self.tokens()
    }
    fn taken_tokens(&self) -> u32 {
        self.offers.tokens() + self.outcomes.tokens()
    }
    /// Drops the last outcome, and then the last offer.
    fn drop_least(&mut self) -> bool {
        self.outcomes.drop_last() || self.offers.drop_last()
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        for (name, entries) in [("offers", &self.offers), ("outcomes", &self.outcomes)] {
            values.add_changing(name, entries.texts());
        }
        Ok(())
    }

    fn add_sizes(&self, _budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let dropped = self.offers.dropped + self.outcomes.dropped;
        let size = SectionSize::new("actions", self.tokens(), ACTION_TOKENS, dropped, "lines about actions");
        sizes.add_if_any(size, |hash| {
            for entries in [&self.offers, &self.outcomes] {
                hash.add_number(u32::from(entries.is_empty()));
                entries.add_texts(hash);
            }
        });
    }

    fn add_notes(&self, notes: &mut Vec<String>) {
        let dropped = self.offers.dropped + self.outcomes.dropped;
        notes.extend((dropped > 0).then(|| format!("{dropped} lines about actions did not fit")));
    }

    fn add_trace(&self, trace: &mut TurnTrace) {
        let offers = self.offers.items.iter();
        let requests = self
            .outcomes
            .items
            .iter()
            .map(|entry| &self.actions.requests[entry.index]);
        let outcomes = requests.map(|action| OutcomeTrace {
            action: action.id,
            name: action.name.clone(),
            status: action.status.as_str().to_owned(),
        });
        trace.actions = ActionsTrace {
            offered: offers
                .map(|entry| self.actions.eligible[entry.index].name.clone())
                .collect(),
            outcomes: outcomes.collect(),
            left_out: u32::try_from(self.offers.dropped + self.outcomes.dropped).unwrap_or(u32::MAX),
        };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_never_take_the_place_of_offers() {
        let long = |sign: &str, count| vec![sign.repeat(500); count];
        let lines = || {
            Disclosable::sample(SelectableLines {
                offers: long("o", 7),
                outcomes: long("x", 4),
            })
        };
        let count = |text: &str| u32::try_from(text.len()).unwrap();
        let actions = TurnActions::default();
        let shown = |section: &ActionSection<'_>| {
            let positions = |entries: &Entries| entries.items.iter().map(|entry| entry.index).collect::<Vec<_>>();
            (positions(&section.offers), positions(&section.outcomes))
        };
        let mut section = ActionSection::fit(&actions, lines(), 100_000, &count);
        assert_eq!(shown(&section), ((0..6).collect(), vec![0, 1]));
        assert_eq!(section.offers.dropped + section.outcomes.dropped, 3);
        for _ in 0..2 {
            assert!(section.drop_least());
        }
        assert_eq!(shown(&section), ((0..6).collect(), vec![]));
        let section = ActionSection::fit(&actions, lines(), 1_100, &count);
        assert_eq!(shown(&section), (vec![0, 1], vec![]));
    }
}
