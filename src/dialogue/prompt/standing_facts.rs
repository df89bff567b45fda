//! Facts in a prompt without a search: pinned facts, and the current state.
//!
//! Only reliable statements are included: statements of authors and of the game, and statements of the player and the
//! NPC about themselves. All other statements are hearsay, which only a search can bring into a prompt.

use std::{cell::LazyCell, collections::HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use minijinja::{Value, context};

use super::{
    ages::AgeFormatter,
    attribution::{Attribution, attribute_to, render_statement},
    company::Remark,
    content_hash::ContentHash,
    frame_tokens::ITEM_TOKENS,
    material::PromptMaterial,
    templates::Templates,
};
use crate::{settings::PromptSettings, turn::TurnError};
use colloquy_core::ids::{FactId, PlayerId};
use colloquy_memory::{
    agreement::{self, days_in},
    calendar::GameMoment,
    fact::{Cause, Fact, InvalidReason},
    party,
    reconcile::StatementFeatures,
    trace::CandidateFate,
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

struct PinnedItem {
    fact: FactId,
    text: String,
    tokens: u32,
}

struct StateEntry {
    fact: FactId,
    block: StateSection,
    text: String,
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

#[derive(Default)]
pub(super) struct StandingFacts {
    pinned: Vec<PinnedItem>,
    /// The state entries, most important first.
    state: Vec<StateEntry>,
    pub(super) pinned_ids: HashSet<FactId>,
    pub(super) state_ids: HashSet<FactId>,
    /// Open promises in whose place a later one stands. No section has them.
    pub(super) redated_ids: HashSet<FactId>,
    pub(super) pinned_dropped: usize,
    pub(super) state_dropped: usize,
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

impl StandingFacts {
    /// Selects facts within the budgets of the pinned slot and of the state block, most important first.
    /// `remaining_tokens` is the remaining tokens of the whole prompt; the function subtracts the used tokens.
    pub(super) fn select_fitting(
        templates: &Templates,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        remaining_tokens: &mut u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<Self, TurnError> {
        let mut standing = Self::default();
        standing.select_pinned(templates, material, budgets.pinned_tokens, remaining_tokens, count)?;
        let chars = if budgets.state_block { budgets.state_chars } else { 0 };
        let mut room = SectionRoom {
            chars: chars / PROMISE_SHARE,
            tokens: *remaining_tokens,
        };
        // Promises go first, so that other facts cannot take their room. Each group may use room that the other
        // leaves.
        let (mut promises, other_facts): (Vec<_>, Vec<_>) = material
            .standing
            .iter()
            .filter(|fact| !standing.pinned_ids.contains(&fact.id))
            .filter_map(|fact| Some((fact, section_of(material, fact)?)))
            .partition(|(_, block)| block.has_promises());
        let mut ended_promises: Vec<_> = promises
            .extract_if(.., |(_, block)| *block == StateSection::EndedPromises)
            .collect();
        remove_put_off(&mut ended_promises, &promises);
        standing.redated_ids = remove_redated(&mut promises, &ended_promises);
        let promises = order_promises(material, promises, ended_promises);
        let mut chosen = Vec::new();
        let mut postponed = Vec::new();
        // A shown conclusion stands for its premises, which are less important and come later. A search still finds them.
        let mut concluded: HashSet<FactId> = HashSet::new();
        for (facts, extra_chars) in [(promises, chars - chars / PROMISE_SHARE), (other_facts, 0)] {
            for (fact, block) in facts {
                if concluded.contains(&fact.id) {
                    continue;
                }
                let entry = render_entry(templates, material, fact, block, count)?;
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
                standing.state_dropped += 1;
            }
        }
        chosen.sort_by_key(|(importance, valid_at, _)| std::cmp::Reverse((*importance, *valid_at)));
        standing.state = chosen.into_iter().map(|(.., entry)| entry).collect();
        standing.state_ids = standing.state.iter().map(|entry| entry.fact).collect();
        *remaining_tokens = room.tokens;
        Ok(standing)
    }

    fn select_pinned(
        &mut self,
        templates: &Templates,
        material: &PromptMaterial<'_>,
        slot: u32,
        remaining_tokens: &mut u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<(), TurnError> {
        let mut slot = slot.min(*remaining_tokens);
        let reader = material.reader();
        let may_be = |fact: &&Fact| fact.view.pinned && fact.invalid.is_none() && can_be_pinned(material, fact);
        for fact in material.standing.iter().filter(may_be) {
            let word = reader.attribution_of_fact(fact);
            let text = attribute_to(templates, reader, word, &fact.statement.subject, &fact.view.content)?;
            let text = remark_on(material, fact).add_to(templates, material, text)?;
            let tokens = count(&text) + ITEM_TOKENS;
            if tokens > slot {
                self.pinned_dropped += 1;
                continue;
            }
            slot -= tokens;
            *remaining_tokens -= tokens;
            self.pinned_ids.insert(fact.id);
            self.pinned.push(PinnedItem {
                fact: fact.id,
                text,
                tokens,
            });
        }
        Ok(())
    }

    pub(super) fn pinned_tokens(&self) -> u32 {
        self.pinned.iter().map(|item| item.tokens).sum()
    }
    pub(super) fn state_tokens(&self) -> u32 {
        self.state.iter().map(|item| item.tokens).sum()
    }
    /// Returns the number of headings.
    pub(super) fn heading_count(&self) -> u32 {
        let blocks = StateSection::ALL.map(|block| self.state.iter().any(|entry| entry.block == block));
        let blocks = blocks.into_iter().map(u32::from).sum::<u32>();
        blocks + u32::from(!self.pinned.is_empty())
    }
    /// True if any entry shows its age.
    pub(super) fn is_dated(&self) -> bool {
        self.state.iter().any(|entry| entry.said_at.is_some())
    }

    /// Drops the least important fact; pinned facts go last. Returns `false` if no fact is left.
    pub(super) fn drop_least_important(&mut self) -> bool {
        if let Some(entry) = self.state.pop() {
            self.state_ids.remove(&entry.fact);
            self.state_dropped += 1;
        } else if let Some(entry) = self.pinned.pop() {
            self.pinned_ids.remove(&entry.fact);
            self.pinned_dropped += 1;
        } else {
            return false;
        }
        true
    }

    /// Returns how a fact is included without a search; `None` if the fact is not included.
    pub(super) fn fate_of(&self, fact: FactId) -> Option<CandidateFate> {
        if self.pinned_ids.contains(&fact) {
            Some(CandidateFate::Pinned)
        } else {
            self.state_ids.contains(&fact).then_some(CandidateFate::InStateBlock)
        }
    }

    pub(super) fn pinned_values(&self) -> Vec<Value> {
        let texts = self.pinned.iter().map(|item| item.text.as_str());
        texts.map(|text| context! { text }).collect()
    }

    /// Adds the pinned facts to a hash.
    pub(super) fn add_pinned(&self, hash: &mut ContentHash) {
        for item in &self.pinned {
            hash.add_text(&item.text);
        }
    }
    /// Adds the state entries to a hash, in the order of the template.
    pub(super) fn add_state(&self, hash: &mut ContentHash) {
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

    /// Returns the sections for the template, each with its newest entry last.
    pub(super) fn state_values(&self, templates: &Templates, ages: AgeFormatter<'_>) -> Result<Value, TurnError> {
        let values = |block| {
            let mut entries: Vec<&StateEntry> = self.state.iter().filter(|entry| entry.block == block).collect();
            entries.sort_by_key(|entry| (entry.said_at, entry.fact));
            entries
                .into_iter()
                .map(|entry| {
                    let ago = entry
                        .said_at
                        .map(|said_at| ages.describe_age(templates, said_at))
                        .transpose()?;
                    let end = entry.end.map(InvalidReason::as_str).unwrap_or_default();
                    let text = entry.text.as_str();
                    let overdue = entry.is_overdue;
                    Ok(context! { text, overdue, end, ago => ago.unwrap_or_default() })
                })
                .collect::<Result<Vec<Value>, TurnError>>()
        };
        Ok(context! {
            canon => values(StateSection::Canon)?,
            promises => values(StateSection::Promises)?,
            duties => values(StateSection::Duties)?,
            ended => values(StateSection::EndedPromises)?,
            told => values(StateSection::AboutPlayer)?,
            own => values(StateSection::AboutNpc)?,
        })
    }
}

/// True if a pinned fact may be in every prompt. Statements about other people are found only by a search. A player's
/// statement about somebody of its own (a child's allergy) counts as its own.
fn can_be_pinned(material: &PromptMaterial<'_>, fact: &Fact) -> bool {
    let statement = &fact.statement;
    let owner = party::owner_id(&statement.subject);
    match material.reader().attribution_of_fact(fact) {
        Attribution::Canon => true,
        Attribution::Player => {
            statement.subject == statement.speaker || (owner.is_some() && owner == party::owner_id(&statement.speaker))
        }
        Attribution::NpcItself => statement.subject == statement.speaker,
        Attribution::AnotherPlayer(_) | Attribution::Character(_) => false,
    }
}

/// Returns the fact's section, or `None` if only a search may bring the fact into a prompt.
fn section_of(material: &PromptMaterial<'_>, fact: &Fact) -> Option<StateSection> {
    let statement = &fact.statement;
    let is_mutable = statement.kind.is_mutable_state();
    let is_promise = statement.is_open_promise();
    let reader = material.reader();
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
fn remove_put_off(ended_promises: &mut Vec<(&Fact, StateSection)>, promises: &[(&Fact, StateSection)]) {
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
    promises: &mut Vec<(&Fact, StateSection)>,
    ended_promises: &[(&Fact, StateSection)],
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
    let facts: Vec<&Fact> = promises.iter().chain(ended_promises).map(|(fact, _)| *fact).collect();
    let is_redated = |(earlier, _): &mut (&Fact, StateSection)| facts.iter().any(|later| replaces(later, earlier));
    promises.extract_if(.., is_redated).map(|(fact, _)| fact.id).collect()
}

/// Returns the last day that a fact names.
fn last_day_in(fact: &Fact) -> Option<&str> {
    days_in(&fact.view.content).max()
}

fn remark_on(material: &PromptMaterial<'_>, fact: &Fact) -> Remark {
    let remark = material.remark_for_knowers(&fact.audience.knowers);
    let statement = &fact.statement;
    remark.with_dead(&material.dead, &statement.subject, statement.tense, fact.valid_at)
}

/// Returns the promises in the order in which they get room: the most important open ones, the last ended ones, the
/// other open ones, and more ended ones. `open_promises` has the most important first, `ended_promises` the last first.
fn order_promises<'f>(
    material: &PromptMaterial<'_>,
    mut open_promises: Vec<(&'f Fact, StateSection)>,
    mut ended_promises: Vec<(&'f Fact, StateSection)>,
) -> Vec<(&'f Fact, StateSection)> {
    ended_promises.sort_by_key(|(fact, _)| std::cmp::Reverse((fact.invalid.as_ref().map(|end| end.ended_at), fact.id)));
    let limit = long_overdue_before(material);
    let is_last = |fact: &Fact| is_due_before(material, fact, &limit) || material.dead_party_of(fact).is_some();
    open_promises.sort_by_cached_key(|(fact, _)| is_last(fact));
    let less_important = open_promises.split_off(open_promises.len().min(LEADING_OPEN_PROMISES));
    let mut ended_promises = ended_promises.into_iter().take(MAX_ENDED_PROMISES);
    open_promises.extend(ended_promises.by_ref().take(LEADING_ENDED_PROMISES));
    open_promises.extend(less_important);
    open_promises.extend(ended_promises);
    open_promises
}

/// Returns the day [`MAX_DAYS_OVERDUE`] days ago, by the clock of the world, as the texts of promises write it.
fn long_overdue_before(material: &PromptMaterial<'_>) -> String {
    let ages = material.ages();
    match ages.clock {
        Some(clock) => {
            let now = clock.game_time_now(ages.now);
            let time = now.time.plus_seconds(-MAX_DAYS_OVERDUE * 86_400);
            GameMoment { time, ..now }.date_text()
        }
        None => (ages.now - TimeDelta::days(MAX_DAYS_OVERDUE))
            .format("%Y-%m-%d")
            .to_string(),
    }
}

/// True if the last day that a promise names is before `day`, by the clock of the world.
fn is_due_before(material: &PromptMaterial<'_>, promise: &Fact, day: &str) -> bool {
    let made_on = material.ages().date_in_numbers(promise.valid_at);
    agreement::is_overdue(&promise.view.content, &made_on, day)
}

fn render_entry(
    templates: &Templates,
    material: &PromptMaterial<'_>,
    fact: &Fact,
    block: StateSection,
    count: &dyn Fn(&str) -> u32,
) -> Result<StateEntry, TurnError> {
    let reader = material.reader();
    let subject = &fact.statement.subject;
    let content = &fact.view.content;
    let text = match block {
        // The headings of these sections name the source.
        StateSection::Canon | StateSection::AboutPlayer | StateSection::AboutNpc | StateSection::Duties => {
            render_statement(templates, reader, subject, content)?
        }
        StateSection::Promises | StateSection::EndedPromises => {
            attribute_to(templates, reader, reader.attribution_of_fact(fact), subject, content)?
        }
    };
    let dead_party = material.dead_party_of(fact).filter(|_| block.has_promises());
    let remark = remark_on(material, fact).with_dead_party(dead_party);
    let text = remark.add_to(templates, material, text)?;
    let is_overdue = || is_due_before(material, fact, &material.ages().today_in_numbers());
    // An author's statement holds regardless of its date.
    let is_dated = block != StateSection::Canon || matches!(fact.cause, Cause::Event(_));
    Ok(StateEntry {
        fact: fact.id,
        block,
        tokens: count(&text) + ITEM_TOKENS,
        text,
        said_at: is_dated.then_some(fact.invalid.as_ref().map_or(fact.valid_at, |end| end.ended_at)),
        is_overdue: fact.invalid.is_none() && block.has_promises() && dead_party.is_none() && is_overdue(),
        end: fact.invalid.as_ref().map(|end| end.reason),
    })
}
