//! Facts in a prompt without a search: pinned facts, and the current state.
//!
//! Only reliable statements are included: statements of authors and of the game, and statements of the player and the
//! NPC about themselves. All other statements are hearsay, which only a search can bring into a prompt.

use std::{cell::LazyCell, cmp::Reverse, collections::HashSet, sync::Arc};

use chrono::{DateTime, Utc};
use minijinja::{Value, context};

use super::{
    found_facts::FoundFacts,
    kind::{KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts},
    traced_fact::{is_promise_to_end, reread_fact, shown_facts},
};
use crate::{
    disclosure::{Disclosable, Disclosures},
    prompt::{
        Attribution, ContentHash, FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS, PromptContext, Remark, attribute_to,
        render_statement,
    },
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_core::ids::{FactId, PlayerId};
use colloquy_memory::{
    agreement::{self, days_in},
    fact::{Cause, Fact, InvalidReason},
    party,
    reconcile::StatementFeatures,
    trace::{CandidateFate, CandidateTrace, ScoreParts, TurnTrace},
};

/// The score of a fact that is in the prompt without a search, except its importance.
const UNSCORED: ScoreParts = ScoreParts {
    recency: 0.0,
    importance: 0.0,
    relevance: 0.0,
    keyword: 0.0,
    total: 0.0,
    cosine: 0.0,
};
/// The characters of a list item besides its text: the bullet, its age, the line end.
const FRAME_CHARS: usize = 16;
/// The most ended promises in a prompt, the last that ended.
const MAX_ENDED_PROMISES: usize = 4;
/// The ended promises that go before open promises of less importance: "Which promises have we kept?" needs some.
const LEADING_ENDED_PROMISES: usize = 2;
/// The most important open promises, which go before these.
const LEADING_OPEN_PROMISES: usize = 2;
/// An open promise that is overdue for more days is among the last of the open ones: nobody speaks of it any more.
const MAX_DAYS_OVERDUE: i64 = 7;
/// One in this many characters of the state block is reserved for promises and goals.
const PROMISE_SHARE: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateSection {
    /// Statements of the authors and of the game.
    Canon,
    /// Open promises and goals of the player or the NPC.
    Promises,
    /// What the NPC told the player to do, and is still to be done.
    Duties,
    /// The last promises and goals that ended: kept, given up, or not kept in time.
    EndedPromises,
    /// Statements of the player about itself.
    AboutPlayer,
    /// Statements of the NPC about itself.
    AboutNpc,
}

impl StateSection {
    const ALL: [Self; 6] = [
        Self::Canon,
        Self::Promises,
        Self::Duties,
        Self::EndedPromises,
        Self::AboutPlayer,
        Self::AboutNpc,
    ];

    const fn has_promises(self) -> bool {
        matches!(self, Self::Promises | Self::Duties | Self::EndedPromises)
    }
}

/// A fact that may be in the prompt without a search.
type StandingFact = Disclosable<Fact>;

struct PinnedItem {
    fact: FactId,
    text: Disclosable<String>,
    tokens: u32,
}

struct StateEntry {
    fact: FactId,
    block: StateSection,
    text: Disclosable<String>,
    /// The time of the statement, or of the end of a promise; `None` if undated.
    said_at: Option<DateTime<Utc>>,
    /// True for an open promise whose day has passed.
    is_overdue: bool,
    /// How a promise ended.
    end: Option<InvalidReason>,
    tokens: u32,
}

impl StateEntry {
    /// Returns the characters of the entry in the block.
    fn char_count(&self) -> usize {
        self.text.chars().count() + FRAME_CHARS
    }
}

/// Pinned facts and facts of mutable-state kinds, most important first.
#[derive(Default)]
pub(crate) struct StandingFacts(pub Arc<Vec<Disclosable<Fact>>>);

/// The selected standing facts.
#[derive(Default)]
pub(crate) struct StandingSection {
    pinned: Vec<PinnedItem>,
    /// The state entries, most important first.
    state: Vec<StateEntry>,
    /// Open promises in whose place a later one stands. No section has them.
    redated_ids: HashSet<FactId>,
    pinned_dropped: usize,
    state_dropped: usize,
}

/// The remaining room for statements.
struct SectionRoom {
    chars: usize,
    tokens: u32,
}

impl SectionRoom {
    fn try_take(&mut self, chars: usize, tokens: u32) -> bool {
        let fits = chars <= self.chars && tokens <= self.tokens;
        if fits {
            self.chars -= chars;
            self.tokens -= tokens;
        }
        fits
    }
}

impl KindOfKnowledge for StandingFacts {
    type Read<'a> = ();
    type Section<'a> = StandingSection;

    async fn find(search: &LineSearch<'_>, (): ()) -> Result<Self, TurnError> {
        Ok(Self(Arc::clone(search.standing)))
    }

    /// Reads the standing facts of the prompt, most important first.
    async fn reread(rereading: &Rereading<'_>, changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let mut standing = Vec::new();
        let candidates = rereading.trace.candidates.iter();
        let shown_candidates = candidates.filter(|traced| traced.fate.is_in_prompt());
        for traced in shown_candidates.filter(|traced| traced.fate != CandidateFate::Used) {
            if let Some(fact) = reread_fact(rereading, traced, changes).await? {
                standing.push((traced.score.importance, fact));
            }
        }
        standing.sort_by(|(importance, fact), (other_importance, other)| {
            let by_time = (Reverse(fact.valid_at), fact.id).cmp(&(Reverse(other.valid_at), other.id));
            other_importance.total_cmp(importance).then(by_time)
        });
        let facts = standing.into_iter().map(|(_, fact)| fact);
        Ok(Self(Arc::new(facts.collect())))
    }

    /// Selects facts within the budgets of the pinned slot and of the state block, most important first.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        _told_parts: &ToldParts<'_>,
        mut remaining_tokens: u32,
    ) -> Result<StandingSection, TurnError> {
        let mut section = StandingSection::default();
        section.select_pinned(context, &self.0, &mut remaining_tokens)?;
        section.select_state(context, &self.0, remaining_tokens)?;
        Ok(section)
    }

    fn add_disclosures(&self, _input: &TurnInput, trace: &TurnTrace, disclosures: &mut Disclosures) {
        let shown_ids = shown_facts(trace);
        for fact in self.0.iter().filter(|fact| shown_ids.contains(&fact.id)) {
            disclosures.add_text(&fact.view.content, &fact.locks);
            if fact.audience.private_to.is_some() {
                disclosures.confided.add_text(&fact.view.content);
            }
        }
    }
}

impl StandingSection {
    fn select_pinned(
        &mut self,
        context: &PromptContext<'_>,
        facts: &[StandingFact],
        remaining_tokens: &mut u32,
    ) -> Result<(), TurnError> {
        let mut slot = context.settings.prompt.pinned_tokens.min(*remaining_tokens);
        let reader = context.reader();
        let may_be = |fact: &&StandingFact| fact.view.pinned && fact.invalid.is_none() && can_be_pinned(context, fact);
        for fact in facts.iter().filter(may_be) {
            let word = reader.attribution_of_fact(fact);
            let subject = &fact.statement.subject;
            let sentence = fact.as_ref().map(|fact| fact.view.content.as_str());
            let text = sentence.try_map(|text| attribute_to(context.templates, reader, word, subject, text))?;
            let text = text.try_map(|text| remark_on(context, fact).add_to(context, text))?;
            let tokens = context.count(&text) + ITEM_TOKENS;
            if tokens > slot {
                self.pinned_dropped += 1;
                continue;
            }
            slot -= tokens;
            *remaining_tokens -= tokens;
            self.pinned.push(PinnedItem {
                fact: fact.id,
                text,
                tokens,
            });
        }
        Ok(())
    }

    fn select_state(
        &mut self,
        context: &PromptContext<'_>,
        facts: &[StandingFact],
        remaining_tokens: u32,
    ) -> Result<(), TurnError> {
        let budgets = &context.settings.prompt;
        let chars = if budgets.state_block {
            budgets.fixed.state_chars
        } else {
            0
        };
        let mut room = SectionRoom {
            chars: chars / PROMISE_SHARE,
            tokens: remaining_tokens,
        };
        let pinned_ids: HashSet<FactId> = self.pinned.iter().map(|item| item.fact).collect();
        // Promises go first, so that other facts cannot take their room. Each group may use room that the other
        // leaves.
        let (mut promises, other_facts): (Vec<_>, Vec<_>) = facts
            .iter()
            .filter(|fact| !pinned_ids.contains(&fact.id))
            .filter_map(|fact| Some((fact, section_of(context, fact)?)))
            .partition(|(_, block)| block.has_promises());
        let mut ended_promises: Vec<_> = promises
            .extract_if(.., |(_, block)| *block == StateSection::EndedPromises)
            .collect();
        remove_put_off(&mut ended_promises, &promises);
        self.redated_ids = remove_redated(&mut promises, &ended_promises);
        let promises = order_promises(context, promises, ended_promises);
        let mut chosen = Vec::new();
        let mut postponed = Vec::new();
        // A shown conclusion stands for its premises, which are less important and come later. A search still finds them.
        let mut concluded: HashSet<FactId> = HashSet::new();
        for (facts, extra_chars) in [(promises, chars - chars / PROMISE_SHARE), (other_facts, 0)] {
            for (fact, block) in facts {
                if concluded.contains(&fact.id) {
                    continue;
                }
                let entry = render_entry(context, fact, block)?;
                if room.try_take(entry.char_count(), entry.tokens) {
                    concluded.extend(fact.derived_from.iter().filter(|_| fact.is_conclusion()));
                    chosen.push((fact.view.importance, fact.valid_at, entry));
                } else {
                    postponed.push((fact.view.importance, fact.valid_at, entry));
                }
            }
            room.chars += extra_chars;
        }
        for (importance, valid_at, entry) in postponed {
            if room.try_take(entry.char_count(), entry.tokens) {
                chosen.push((importance, valid_at, entry));
            } else {
                self.state_dropped += 1;
            }
        }
        chosen.sort_by_key(|(importance, valid_at, _)| Reverse((*importance, *valid_at)));
        self.state = chosen.into_iter().map(|(.., entry)| entry).collect();
        Ok(())
    }

    fn pinned_tokens(&self) -> u32 {
        self.pinned.iter().map(|item| item.tokens).sum()
    }

    /// Adds the state entries to a hash, in the order of the template.
    fn add_state(&self, hash: &mut ContentHash) {
        let mut entries: Vec<&StateEntry> = self.state.iter().collect();
        entries.sort_by_key(|entry| (entry.block as u32, entry.said_at, entry.fact));
        for entry in entries {
            hash.add_number(entry.block as u32);
            hash.add_text(&entry.text);
            if let Some(said_at) = entry.said_at {
                hash.add_time(said_at);
            }
            hash.add_number(u32::from(entry.is_overdue));
            hash.add_text(entry.end.map(InvalidReason::as_str).unwrap_or_default());
        }
    }

    /// Returns the entries of a part of the state block, the newest last.
    fn block_values(
        &self,
        context: &PromptContext<'_>,
        block: StateSection,
    ) -> Result<Disclosable<Vec<Value>>, TurnError> {
        let mut entries: Vec<&StateEntry> = self.state.iter().filter(|entry| entry.block == block).collect();
        entries.sort_by_key(|entry| (entry.said_at, entry.fact));
        let values = entries.into_iter().map(|entry| {
            let describe_age = |said_at| context.ages().describe_age(context.templates, said_at);
            let ago = entry.said_at.map(describe_age).transpose()?;
            let end = entry.end.map(InvalidReason::as_str).unwrap_or_default();
            let overdue = entry.is_overdue;
            let values =
                |text: &String| context! { text => text.as_str(), overdue, end, ago => ago.unwrap_or_default() };
            Ok(entry.text.as_ref().map(values))
        });
        values.collect()
    }
}

impl Section for StandingSection {
    fn tokens(&self) -> u32 {
        self.pinned_tokens() + self.changing_tokens()
    }
    fn framed_tokens(&self) -> u32 {
        let blocks = StateSection::ALL.map(|block| self.state.iter().any(|entry| entry.block == block));
        let headings = blocks.into_iter().map(u32::from).sum::<u32>() + u32::from(!self.pinned.is_empty());
        self.tokens() + headings * (HEADING_TOKENS + FRAME_TOKENS)
    }
    fn changing_tokens(&self) -> u32 {
        self.state.iter().map(|item| item.tokens).sum()
    }
    /// Drops the least important fact; pinned facts go last.
    fn drop_least(&mut self) -> bool {
        let is_state = self.state.pop().is_some();
        let is_pinned = !is_state && self.pinned.pop().is_some();
        self.state_dropped += usize::from(is_state);
        self.pinned_dropped += usize::from(is_pinned);
        is_state || is_pinned
    }
    fn is_dated(&self) -> bool {
        self.state.iter().any(|entry| entry.said_at.is_some())
    }

    fn add_told(&self, told_parts: &mut ToldParts<'_>) {
        let state = self.state.iter().map(|entry| (entry.fact, CandidateFate::InStateBlock));
        told_parts.standing_facts.extend(state);
        let pinned = self.pinned.iter().map(|item| (item.fact, CandidateFate::Pinned));
        told_parts.standing_facts.extend(pinned);
        told_parts.redated_facts.extend(&self.redated_ids);
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        let pinned = self.pinned.iter().map(|item| item.text.as_ref());
        let pinned = pinned.map(|text| text.map(|text| context! { text => text.as_str() }));
        values.add_lasting("pinned", pinned.collect::<Disclosable<Vec<Value>>>());
        for (name, block) in [
            ("canon", StateSection::Canon),
            ("promises", StateSection::Promises),
            ("duties", StateSection::Duties),
            ("ended", StateSection::EndedPromises),
            ("told", StateSection::AboutPlayer),
            ("own", StateSection::AboutNpc),
        ] {
            values.add_changing(name, self.block_values(values.context, block)?);
        }
        Ok(())
    }

    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let dropped = self.pinned_dropped;
        let size = SectionSize::new(
            "pinned",
            self.pinned_tokens(),
            budgets.pinned_tokens,
            dropped,
            "pinned facts",
        );
        sizes.add(size, |hash| {
            self.pinned.iter().for_each(|item| hash.add_text(&item.text));
        });
        let size = SectionSize::new(
            "state",
            self.changing_tokens(),
            budgets.fixed.state_tokens(),
            self.state_dropped,
            "less important entries",
        );
        sizes.add(size, |hash| self.add_state(hash));
    }

    fn add_notes(&self, notes: &mut Vec<String>) {
        let dropped = self.pinned_dropped;
        notes.extend((dropped > 0).then(|| format!("{dropped} pinned facts did not fit their slot")));
    }
}

/// Returns the trace of the standing facts in a prompt, without those that the search has scored.
pub(crate) fn trace_standing_facts(
    context: &PromptContext<'_>,
    told_parts: &ToldParts<'_>,
    found_facts: &FoundFacts,
) -> Vec<CandidateTrace> {
    let scored: HashSet<FactId> = found_facts.hits.iter().map(|hit| hit.body.id).collect();
    let unscored = context.standing.iter().filter(|fact| !scored.contains(&fact.id));
    let traced = unscored.filter_map(|fact| {
        Some(CandidateTrace {
            fact: fact.id,
            subject: fact.statement.subject.clone(),
            speaker: context.reader().speaker_of(fact).to_owned(),
            content: fact.view.content.clone(),
            score: ScoreParts {
                importance: fact.view.importance.factor(),
                ..UNSCORED
            },
            fate: *told_parts.standing_facts.get(&fact.id)?,
            promise: fact.invalid.is_none() && is_promise_to_end(&fact.statement),
            over: fact.invalid.is_some(),
        })
    });
    traced.collect()
}

/// True if a pinned fact may be in every prompt. Statements about other people are found only by a search. A player's
/// statement about somebody of its own (a child's allergy) counts as its own.
fn can_be_pinned(context: &PromptContext<'_>, fact: &Fact) -> bool {
    let statement = &fact.statement;
    let owner = party::owner_id(&statement.subject);
    match context.reader().attribution_of_fact(fact) {
        Attribution::Canon => true,
        Attribution::Player => {
            statement.subject == statement.speaker || (owner.is_some() && owner == party::owner_id(&statement.speaker))
        }
        Attribution::NpcItself => statement.subject == statement.speaker,
        Attribution::AnotherPlayer(_) | Attribution::Character(_) => false,
    }
}

/// Returns the fact's section, or `None` if only a search may bring the fact into a prompt.
fn section_of(context: &PromptContext<'_>, fact: &Fact) -> Option<StateSection> {
    let statement = &fact.statement;
    let is_mutable = statement.kind.is_mutable_state();
    let is_promise = statement.is_open_promise();
    let reader = context.reader();
    let word = reader.attribution_of_fact(fact);
    let is_of_reader = |name: &str| party::owner_id(name) == reader.player.map(PlayerId::as_str);
    if let Some(end) = &fact.invalid {
        let is_between_both = matches!(word, Attribution::Player | Attribution::NpcItself)
            && statement.is_promise_of_maker()
            && (!party::is_player(&statement.subject) || is_of_reader(&statement.subject));
        return (is_between_both && InvalidReason::ENDS_OF_PROMISES.contains(&end.reason))
            .then_some(StateSection::EndedPromises);
    }
    match word {
        Attribution::NpcItself if statement.is_promise_of_maker() && statement.subject != statement.speaker => {
            is_of_reader(&statement.subject).then_some(StateSection::Duties)
        }
        Attribution::Canon => is_mutable.then_some(StateSection::Canon),
        Attribution::Player | Attribution::NpcItself if !statement.is_about_speaker_alone() => None,
        Attribution::Player | Attribution::NpcItself if is_promise => Some(StateSection::Promises),
        Attribution::Player if is_mutable => Some(StateSection::AboutPlayer),
        Attribution::NpcItself if is_mutable => Some(StateSection::AboutNpc),
        _ => None,
    }
}

/// Removes the promises that were given up and are open in other words since: with another day, for instance.
fn remove_put_off(ended_promises: &mut Vec<(&StandingFact, StateSection)>, promises: &[(&StandingFact, StateSection)]) {
    let features_of = |fact: &Fact| StatementFeatures::from_statement(&fact.statement);
    let open = LazyCell::new(|| {
        let open = promises.iter().map(|(fact, _)| (*fact, features_of(fact)));
        open.collect::<Vec<_>>()
    });
    ended_promises.retain(|(fact, _)| {
        let end = fact.invalid.as_ref();
        let Some(end) = end.filter(|end| end.reason == InvalidReason::GivenUp) else {
            return true;
        };
        let given_up = features_of(fact);
        // The turn that puts a promise off makes the new one.
        let is_made_instead =
            |open: &Fact| open.statement.subject == fact.statement.subject && open.valid_at >= end.ended_at;
        !open
            .iter()
            .any(|(promise, features)| is_made_instead(promise) && features.promises_like(&given_up))
    });
}

/// Removes the open promises and duties for which a later one, open or `ended_promises`, has a later day, if the later
/// one has locks of its own. The earlier one is not ended, because it stays for those who may not hear the later one.
/// Returns the removed facts.
fn remove_redated(
    promises: &mut Vec<(&StandingFact, StateSection)>,
    ended_promises: &[(&StandingFact, StateSection)],
) -> HashSet<FactId> {
    let replaces = |later: &Fact, earlier: &Fact| {
        let new = &later.statement;
        let old = &earlier.statement;
        later.valid_at > earlier.valid_at
            && !later.locks.are_subset_of(&earlier.locks)
            && (&new.subject, &new.speaker) == (&old.subject, &old.speaker)
            && last_day_in(later).is_some_and(|new_day| last_day_in(earlier).is_some_and(|old_day| old_day < new_day))
            && StatementFeatures::from_statement(new).promises_like(&StatementFeatures::from_statement(old))
    };
    let facts: Vec<&StandingFact> = promises.iter().chain(ended_promises).map(|(fact, _)| *fact).collect();
    let is_redated =
        |(earlier, _): &mut (&StandingFact, StateSection)| facts.iter().any(|later| replaces(later, earlier));
    promises.extract_if(.., is_redated).map(|(fact, _)| fact.id).collect()
}

/// Returns the last day that a fact names.
fn last_day_in(fact: &Fact) -> Option<&str> {
    days_in(&fact.view.content).max()
}

fn remark_on(context: &PromptContext<'_>, fact: &Fact) -> Remark {
    let remark = context.remark_for_knowers(&fact.audience.knowers);
    let statement = &fact.statement;
    remark.with_dead(&context.dead, &statement.subject, statement.tense, fact.valid_at)
}

/// Returns the promises in the order in which they get room: the most important open ones, the last ended ones, the
/// other open ones, and more ended ones. `open_promises` has the most important first, `ended_promises` the last first.
fn order_promises<'f>(
    context: &PromptContext<'_>,
    mut open_promises: Vec<(&'f StandingFact, StateSection)>,
    mut ended_promises: Vec<(&'f StandingFact, StateSection)>,
) -> Vec<(&'f StandingFact, StateSection)> {
    ended_promises.sort_by_key(|(fact, _)| Reverse((fact.invalid.as_ref().map(|end| end.ended_at), fact.id)));
    let limit = context.ages().date_days_ago(MAX_DAYS_OVERDUE);
    let is_last = |fact: &Fact| is_due_before(context, fact, &limit) || context.dead_party_of(fact).is_some();
    open_promises.sort_by_cached_key(|(fact, _)| is_last(fact));
    let less_important = open_promises.split_off(open_promises.len().min(LEADING_OPEN_PROMISES));
    let mut ended_promises = ended_promises.into_iter().take(MAX_ENDED_PROMISES);
    open_promises.extend(ended_promises.by_ref().take(LEADING_ENDED_PROMISES));
    open_promises.extend(less_important);
    open_promises.extend(ended_promises);
    open_promises
}

/// True if the last day that a promise names is before `day`, by the clock of the world.
fn is_due_before(context: &PromptContext<'_>, promise: &Fact, day: &str) -> bool {
    let made_on = context.ages().date_in_numbers(promise.valid_at);
    agreement::is_overdue(&promise.view.content, &made_on, day)
}

fn render_entry(
    context: &PromptContext<'_>,
    fact: &StandingFact,
    block: StateSection,
) -> Result<StateEntry, TurnError> {
    let templates = context.templates;
    let reader = context.reader();
    let subject = &fact.statement.subject;
    let sentence = fact.as_ref().map(|fact| fact.view.content.as_str());
    let text = sentence.try_map(|sentence| match block {
        // The headings of these sections name the source.
        StateSection::Canon | StateSection::AboutPlayer | StateSection::AboutNpc | StateSection::Duties => {
            render_statement(templates, reader, subject, sentence)
        }
        StateSection::Promises | StateSection::EndedPromises => {
            attribute_to(templates, reader, reader.attribution_of_fact(fact), subject, sentence)
        }
    })?;
    let dead_party = context.dead_party_of(fact).filter(|_| block.has_promises());
    let remark = remark_on(context, fact).with_dead_party(dead_party);
    let text = text.try_map(|text| remark.add_to(context, text))?;
    let is_overdue = || is_due_before(context, fact, &context.ages().today_in_numbers());
    // An author's statement holds regardless of its date.
    let is_dated = block != StateSection::Canon || matches!(fact.cause, Cause::Event(_));
    Ok(StateEntry {
        fact: fact.id,
        block,
        tokens: context.count(&text) + ITEM_TOKENS,
        text,
        said_at: is_dated.then_some(fact.invalid.as_ref().map_or(fact.valid_at, |end| end.ended_at)),
        is_overdue: fact.invalid.is_none() && block.has_promises() && dead_party.is_none() && is_overdue(),
        end: fact.invalid.as_ref().map(|end| end.reason),
    })
}
