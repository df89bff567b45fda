//! Insights: what an NPC has learned from earlier dialogues, by curation passes. A turn gets those about its player
//! and about what the line names (docs/algorithms.md#insights). The closest to the turn are chosen, and stand with the
//! newest last.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use minijinja::{Value, context};

use super::{
    entries::{Entries, Entry, Fate as _},
    kind::{EarlyReading, KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts, room_under_heading},
};
use crate::{
    disclosure::{Disclosable, Disclosures, Gate, redact_insights, shown_before},
    prompt::{ITEM_TOKENS, PromptContext, escape_untrusted},
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_core::ids::InsightId;
use colloquy_memory::{
    disclosure::locks::DisclosureLocks,
    insight::{EarlierInsight, Insight, MAX_INSIGHT_LINES, TurnSubjects},
    keywords::sentence_key,
    trace::{InsightFate, InsightTrace, TurnTrace},
};

/// The insights that the prompt may have, closest first.
#[derive(Default)]
pub(crate) struct Insights(pub Vec<Disclosable<Insight>>);

/// The first insights that fit, closest first.
pub(crate) struct InsightSection<'a> {
    insights: &'a [Disclosable<Insight>],
    entries: Entries<(), InsightFate>,
}

impl KindOfKnowledge for Insights {
    type Read<'a> = Vec<EarlierInsight>;
    type Section<'a> = InsightSection<'a>;

    /// Reads the NPC's insights from its sessions with the player and from NPC conversations, newest first.
    async fn read(reading: &EarlyReading<'_>) -> Result<Vec<EarlierInsight>, TurnError> {
        Ok(reading.memory.take(|memory| &mut memory.insights).await?)
    }

    /// Returns the insights about the turn that are open to its hearers. First what the line names, then the player; the
    /// newest first. An insight in whose place another of them stands is left out.
    async fn find(search: &LineSearch<'_>, earlier_insights: Vec<EarlierInsight>) -> Result<Self, TurnError> {
        let LineSearch { services, input, .. } = *search;
        let line = input.heard_text();
        let npc = &input.npc;
        let entities = earlier_insights.iter().map(|earlier| earlier.insight.entity.as_str());
        let subjects = TurnSubjects::new(input.player.as_ref(), &npc.id, &npc.name, &line, entities);
        let told_insights = earlier_insights.into_iter();
        let told_insights = told_insights.filter(|earlier| !earlier.insight.text.is_empty());
        let ranked = told_insights.filter_map(|earlier| {
            let closeness = subjects.closeness_of(&earlier.insight.entity)?;
            Some((closeness, earlier))
        });
        let mut ranked: Vec<_> = ranked.collect();
        // The sort is stable: of equally close insights, the newest stay first.
        ranked.sort_by_key(|(closeness, _)| *closeness);
        let ranked = ranked.into_iter().map(|(_, earlier)| earlier);
        let open = Gate::of_turn(services, input).open_insights(ranked.collect()).await?;
        Ok(Self(redact_insights(search.removals, open)))
    }

    /// Returns the insights of the prompt. The trace has their whole text.
    async fn reread(rereading: &Rereading<'_>, _changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let input = rereading.input;
        let insights = rereading.trace.insights.iter().filter_map(|traced| {
            let insight = Insight {
                id: traced.insight,
                world: input.world.id.clone(),
                npc: input.npc.id.clone(),
                player: input.player.clone(),
                dialogue: traced.dialogue_id,
                number: traced.turn,
                entity: traced.entity.clone(),
                day: String::new(),
                text: traced.shown_text.clone()?,
                turns: Vec::new(),
                rests_on: Vec::new(),
                locks: DisclosureLocks::default(),
                last_turn_at: traced.committed_at,
            };
            shown_before(rereading.trace, insight)
        });
        Ok(Self(insights.collect()))
    }

    /// Selects the first insights that fit, of the first [`MAX_INSIGHT_LINES`].
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<InsightSection<'a>, TurnError> {
        let budget = context.settings.prompt.insight_tokens;
        let mut room = room_under_heading(budget, remaining_tokens);
        let mut entries = Entries::default();
        let mut shown_sentences = HashSet::new();
        for (index, insight) in self.0.iter().take(MAX_INSIGHT_LINES).enumerate() {
            let remark = context.remark_for_dialogue(insight.dialogue);
            let shown_text = insight.as_ref().map(|insight| escape_untrusted(&insight.text));
            let text = shown_text.try_map(|text| remark.add_to(context, text))?;
            let fate = if told_parts.shows_turn(context, insight.dialogue, insight.number) {
                InsightFate::InHistory
            } else if !shown_sentences.insert(sentence_key(&insight.text)) {
                InsightFate::Repeated
            } else {
                let tokens = context.count(&text) + ITEM_TOKENS;
                let entry = Entry {
                    index,
                    text,
                    tokens,
                    detail: (),
                };
                entries.fit(entry, &mut room)
            };
            entries.fates.push(fate);
        }
        Ok(InsightSection {
            insights: &self.0,
            entries,
        })
    }

    fn add_disclosures(&self, _input: &TurnInput, trace: &TurnTrace, disclosures: &mut Disclosures) {
        let used = trace.insights.iter().filter(|traced| traced.fate == InsightFate::USED);
        let used: HashSet<InsightId> = used.map(|traced| traced.insight).collect();
        for insight in self.0.iter().filter(|insight| used.contains(&insight.id)) {
            disclosures.add_text(&insight.text, &insight.locks);
            if insight.player.is_some() {
                disclosures.confided.add_text(&insight.text);
            }
        }
    }
}

impl Section for InsightSection<'_> {
    fn tokens(&self) -> u32 {
        self.entries.tokens()
    }
    /// Drops the least close.
    fn drop_least(&mut self) -> bool {
        self.entries.drop_last()
    }
    fn is_dated(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Adds the lines, newest last, as all memories in a prompt.
    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        let context = values.context;
        let mut entries: Vec<&Entry> = self.entries.items.iter().collect();
        entries.sort_by_key(|entry| (self.insights[entry.index].last_turn_at, Reverse(entry.index)));
        let lines = entries.into_iter().map(|entry| {
            let ago = context
                .ages()
                .describe_age(context.templates, self.insights[entry.index].last_turn_at)?;
            Ok(entry.text.as_ref().map(|text| context! { ago, text => text.as_str() }))
        });
        let lines = lines.collect::<Result<Disclosable<Vec<Value>>, TurnError>>()?;
        values.add_changing("insights", lines);
        Ok(())
    }

    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let dropped = self.entries.dropped;
        let size = SectionSize::new("insights", self.tokens(), budgets.insight_tokens, dropped, "insights");
        sizes.add_if_any(size, |hash| {
            for entry in &self.entries.items {
                hash.add_time(self.insights[entry.index].last_turn_at);
                hash.add_text(&entry.text);
            }
        });
    }

    fn add_trace(&self, trace: &mut TurnTrace) {
        let shown_entries = self.entries.items.iter();
        let shown_texts: HashMap<usize, &str> = shown_entries.map(|entry| (entry.index, entry.text.as_str())).collect();
        let considered = self.insights.iter().zip(&self.entries.fates).enumerate();
        let traced = considered.map(|(index, (insight, &fate))| InsightTrace {
            insight: insight.id,
            entity: insight.entity.clone(),
            dialogue_id: insight.dialogue,
            turn: insight.number,
            committed_at: insight.last_turn_at,
            fate,
            shown_text: shown_texts.get(&index).map(|text| (*text).to_owned()),
        });
        trace.insights = traced.collect();
    }
}
