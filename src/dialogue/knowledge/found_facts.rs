//! Facts that a search has found, in a prompt: the best that bear on the line, without those that the prompt has already.

use std::{cell::LazyCell, collections::HashSet, sync::Arc};

use minijinja::{Value, context};

use super::{
    entries::Entries,
    kind::{KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts},
    traced_fact::{is_promise_to_end, reread_fact, shown_facts},
};
use crate::{
    disclosure::{Disclosable, Disclosures},
    prompt::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS, PromptContext, attribute_statement},
    recall::{self, MAX_TRACED, RecallHit, TopicRelevance, body_of},
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_core::ids::DialogueId;
use colloquy_memory::{
    agreement::canonical_words,
    fact::{Fact, FactKind},
    packing::PackingBudget,
    party,
    scoring::RecallWeights,
    trace::{CandidateFate, CandidateTrace, TopicGate, TurnTrace},
};
use colloquy_ports::ledger::facts::RecallBody;

/// Found facts, scored and confirmed.
#[derive(Clone)]
pub(crate) struct FoundFacts {
    /// Best first.
    pub hits: Vec<RecallHit>,
    /// The number of found facts, of which `hits` may have only the best.
    pub found_count: usize,
    /// How closely the hits must match the line.
    pub gate: TopicGate,
}

impl Default for FoundFacts {
    /// The facts of an earlier prompt have passed the gate of their turn.
    fn default() -> Self {
        Self {
            hits: Vec::new(),
            found_count: 0,
            gate: TopicGate::Open,
        }
    }
}

/// The packed facts, best first.
pub(crate) struct FoundFactSection<'a> {
    hits: &'a [RecallHit],
    found_count: usize,
    dialogue: DialogueId,
    entries: Entries<(), CandidateFate>,
}

impl KindOfKnowledge for FoundFacts {
    /// Read by the search for the line.
    type Read<'a> = Self;
    type Section<'a> = FoundFactSection<'a>;

    async fn find(_search: &LineSearch<'_>, found_facts: Self) -> Result<Self, TurnError> {
        Ok(found_facts)
    }

    /// Reads the found facts of the prompt, best first.
    async fn reread(rereading: &Rereading<'_>, changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let calibration = rereading.services.embedder.info().calibration;
        let mut reread = Self::default();
        let used = rereading
            .trace
            .candidates
            .iter()
            .filter(|traced| traced.fate == CandidateFate::Used);
        for traced in used {
            let Some(fact) = reread_fact(rereading, traced, changes).await? else {
                continue;
            };
            reread.hits.push(RecallHit {
                body: fact.map(|fact| Arc::new(body_of(&fact, [].into()))),
                score: traced.score,
                topic: TopicRelevance::from_score(&calibration, &RecallWeights::FOUR_FACTOR, &traced.score, None),
            });
        }
        Ok(reread)
    }

    /// Packs the facts that the prompt does not have yet.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<FoundFactSection<'a>, TurnError> {
        let settings = &context.settings;
        let (fates, packable) = self.decide_fates(context, told_parts);
        let diversity = context.input.world.settings.recall.and_then(|recall| recall.diversity);
        let diversity = diversity.unwrap_or(settings.recall.diversity);
        let packable = recall::diversify_hits(&self.hits, packable, diversity);
        let texts = packable
            .into_iter()
            .map(|index| Ok((index, self.render(context, index)?)));
        let texts = texts.collect::<Result<Vec<(usize, Disclosable<String>)>, TurnError>>()?;
        let remaining_tokens = remaining_tokens.saturating_sub(HEADING_TOKENS + FRAME_TOKENS);
        let budgets = &settings.prompt;
        let budget = PackingBudget {
            top_k: settings.recall.top_k,
            total_tokens: budgets.memory_tokens.min(remaining_tokens),
            item_tokens: budgets
                .fixed
                .memory_item_tokens
                .min(budgets.memory_tokens.saturating_sub(ITEM_TOKENS)),
        };
        let mut entries = Entries::pack(context, fates, &texts, budget, |_| ());
        // The section names only the facts that the size of the whole prompt drops.
        entries.dropped = 0;
        Ok(FoundFactSection {
            hits: &self.hits,
            found_count: self.found_count,
            dialogue: context.dialogue(),
            entries,
        })
    }

    fn add_disclosures(&self, _input: &TurnInput, trace: &TurnTrace, disclosures: &mut Disclosures) {
        let shown_ids = shown_facts(trace);
        let bodies = self.hits.iter().map(|hit| &hit.body);
        for body in bodies.filter(|body| shown_ids.contains(&body.id)) {
            disclosures.add_text(&body.view.content, &body.locks);
            if body.is_private {
                disclosures.confided.add_text(&body.view.content);
            }
        }
    }
}

impl FoundFacts {
    /// Decides the fate of every hit. The second list has the positions of hits that may be packed.
    fn decide_fates(
        &self,
        context: &PromptContext<'_>,
        told_parts: &ToldParts<'_>,
    ) -> (Vec<CandidateFate>, Vec<usize>) {
        let settings = &context.settings.recall;
        let mut fates = vec![CandidateFate::BeyondTopK; self.hits.len()];
        let mut packable = Vec::new();
        let mut distinct_bodies: Vec<&RecallBody> = Vec::new();
        let is_standing = |hit: &RecallHit| told_parts.standing_facts.contains_key(&hit.body.id);
        let admitted = recall::admit_hits(&self.hits, self.gate, &context.input.npc.name, &is_standing);
        let shown_sentences = LazyCell::new(|| sentences_of_shown_facts(context, told_parts));
        for (index, hit) in self.hits.iter().enumerate() {
            let body = &hit.body;
            let is_near_duplicate =
                |other: &&RecallBody| recall::is_same_statement(other, body, context.near_duplicate_cosine);
            let fate = if let Some(standing_fate) = told_parts.standing_facts.get(&body.id) {
                *standing_fate
            } else if told_parts.redated_facts.contains(&body.id) {
                CandidateFate::NearDuplicate
            } else if context.input.player.is_none() && is_just_said(context, told_parts, body) {
                CandidateFate::InHistory
            } else if let Some(weakness) = hit.weakness(admitted[index], self.gate, settings.min_score) {
                weakness
            } else if distinct_bodies.len() >= recall::max_packable(settings) {
                CandidateFate::BeyondTopK
            } else if distinct_bodies.iter().any(is_near_duplicate) {
                CandidateFate::NearDuplicate
            } else {
                // Recall stops reading at this number of different facts. It does not know the standing facts, so a repeated
                // standing fact counts.
                distinct_bodies.push(body);
                if !shown_sentences.contains(&comparable_sentence(&body.subject, &body.speaker, &body.view.content)) {
                    packable.push(index);
                    continue;
                }
                CandidateFate::NearDuplicate
            };
            fates[index] = fate;
        }
        debug_assert!(
            packable.len() <= recall::max_packable(settings),
            "packing chooses from a bounded number of hits"
        );
        (fates, packable)
    }

    /// Renders a hit with its speaker.
    fn render(&self, context: &PromptContext<'_>, index: usize) -> Result<Disclosable<String>, TurnError> {
        let body = &self.hits[index].body;
        let reader = context.reader();
        let sentence = body.as_ref().map(|body| body.view.content.as_str());
        let text = sentence.try_map(|sentence| {
            attribute_statement(context.templates, reader, &body.subject, &body.speaker, sentence)
        })?;
        let remark = context.remark_for_knowers(&body.knowers);
        let remark = remark.with_dead(&context.dead, &body.subject, body.tense, body.valid_at);
        Ok(text.try_map(|text| remark.add_to(context, text))?)
    }
}

impl FoundFactSection<'_> {
    /// Returns the facts in the order of time, so that the newer of two conflicting facts is recognisable. Facts of the
    /// same turn keep the order of their ids.
    fn facts_in_order(&self) -> Vec<(&RecallBody, Disclosable<&str>)> {
        let entries = self.entries.items.iter();
        let mut facts: Vec<_> = entries
            .map(|entry| (&**self.hits[entry.index].body, entry.text.as_ref().map(String::as_str)))
            .collect();
        facts.sort_by_key(|(body, _)| (body.valid_at, body.id));
        facts
    }

    fn sources(&self) -> impl Iterator<Item = (DialogueId, u32)> {
        let entries = self.entries.items.iter();
        entries.filter_map(|entry| self.hits[entry.index].body.source)
    }
}

/// True if authors wrote the fact, and the fact is no event: it holds regardless of its date.
fn is_authored(body: &RecallBody) -> bool {
    body.speaker == party::AUTHOR && body.kind != FactKind::Event
}

impl Section for FoundFactSection<'_> {
    fn tokens(&self) -> u32 {
        self.entries.tokens()
    }
    /// The selection has taken the heading from the room already.
    fn framed_tokens(&self) -> u32 {
        self.tokens()
    }
    fn drop_least(&mut self) -> bool {
        self.entries.drop_last()
    }
    fn is_dated(&self) -> bool {
        let mut entries = self.entries.items.iter();
        entries.any(|entry| !is_authored(&self.hits[entry.index].body))
    }

    fn add_told(&self, told_parts: &mut ToldParts<'_>) {
        for entry in &self.entries.items {
            let source = self.hits[entry.index].body.source;
            told_parts
                .found_facts
                .extend(source.map(|source| (source, entry.text.to_string())));
        }
    }
    fn add_dialogues(&self, dialogues: &mut Vec<DialogueId>) {
        dialogues.extend(self.sources().map(|(dialogue, _)| dialogue));
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        let context = values.context;
        let (authored, learned): (Vec<_>, Vec<_>) = self
            .facts_in_order()
            .into_iter()
            .partition(|(body, _)| is_authored(body));
        let authored_texts = authored.iter().map(|(_, text)| text.map(Value::from));
        let authored_texts: Disclosable<Vec<Value>> = authored_texts.collect();
        // The turn that taught a fact of an earlier dialogue is named if the prompt has more of that dialogue: the numbers
        // tell the order within a day.
        let count_of = |dialogue| values.dialogues.iter().filter(|other| **other == dialogue).count();
        let is_named = |(dialogue, _): &(DialogueId, u32)| *dialogue != self.dialogue && count_of(*dialogue) > 1;
        let facts = learned.into_iter().map(|(body, text)| {
            let ago = context.ages().describe_age(context.templates, body.valid_at)?;
            let turn = body.source.filter(is_named).map(|(_, turn)| turn);
            Ok(text.map(|text| context! { text, ago, turn }))
        });
        let facts = facts.collect::<Result<Disclosable<Vec<Value>>, TurnError>>()?;
        values.add_changing("facts", facts);
        values.add_changing("known", authored_texts);
        Ok(())
    }

    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let dropped = self.entries.dropped;
        let noun = "memories, to stay within the whole";
        let size = SectionSize::new("memory", self.tokens(), budgets.memory_tokens, dropped, noun);
        sizes.add(size, |hash| {
            for (body, text) in self.facts_in_order() {
                hash.add_time(body.valid_at);
                hash.add_text(&text);
            }
        });
    }

    fn add_trace(&self, trace: &mut TurnTrace) {
        debug_assert!(self.hits.len() == self.entries.fates.len(), "each hit has a fate");
        let hits = self
            .hits
            .iter()
            .zip(&self.entries.fates)
            .map(|(hit, &fate)| CandidateTrace {
                fact: hit.body.id,
                subject: hit.body.subject.clone(),
                speaker: hit.body.speaker.clone(),
                content: hit.body.view.content.clone(),
                score: hit.score,
                fate,
                promise: is_promise_to_end(&hit.body.statement()),
                over: false,
            });
        // Candidates in the prompt are always traced; of the others, only the best.
        let standing_count = trace.candidates.len();
        let mut remaining_others = MAX_TRACED.saturating_sub(standing_count);
        for candidate in hits {
            if candidate.fate.is_in_prompt() || remaining_others > 0 {
                remaining_others = remaining_others.saturating_sub(1);
                trace.candidates.push(candidate);
            }
        }
        let listed_count = trace.candidates.len() - standing_count;
        trace.unlisted_facts = u32::try_from(self.found_count.saturating_sub(listed_count)).unwrap_or(u32::MAX);
    }
}

/// Subject, speaker and comparable words of a fact.
type ComparableSentence<'f> = (&'f str, &'f str, Vec<String>);

fn comparable_sentence<'f>(subject: &'f str, speaker: &'f str, content: &str) -> ComparableSentence<'f> {
    (subject, speaker, canonical_words(content))
}

/// Returns the sentences of the standing facts in the prompt. What was told once more to others is a fact of its own,
/// with the same sentence.
fn sentences_of_shown_facts<'f>(
    context: &PromptContext<'f>,
    told_parts: &ToldParts<'_>,
) -> HashSet<ComparableSentence<'f>> {
    let is_shown =
        |fact: &&Disclosable<Fact>| fact.invalid.is_none() && told_parts.standing_facts.contains_key(&fact.id);
    let sentences = context.standing.iter().filter(is_shown).map(|fact| {
        let statement = &fact.statement;
        comparable_sentence(&statement.subject, &statement.speaker, &fact.view.content)
    });
    sentences.collect()
}

/// True if the hit was learned from a line in the visible history. NPCs would otherwise repeat the line to each
/// other.
fn is_just_said(context: &PromptContext<'_>, told_parts: &ToldParts<'_>, body: &RecallBody) -> bool {
    body.source
        .is_some_and(|(dialogue, turn)| told_parts.shows_turn(context, dialogue, turn))
}
