//! Facts that are in a prompt without having been searched for: pinned ones, and how things stand.
//!
//! Only what somebody may vouch for stands here: what authors and the game say, and what the player and the
//! NPC each say of themselves. Whatever else was said is hearsay, which is found by a search or not at all.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use minijinja::{Value, context};

use super::{
    ages::Ages,
    assembly::{ITEM_TOKENS, Material},
    attribution::{Word, attributed_to, told},
    templates::Templates,
};
use crate::{
    dialogue::{settings::PromptSettings, turn::TurnError},
    ids::FactId,
    memory::{
        fact::{Cause, Fact},
        party,
    },
};

/// Characters of a list item beside its text: the bullet, its age, the line end.
const FRAME_CHARS: usize = 16;
/// Of the characters of the state block, one in so many is kept for promises and goals.
const PROMISE_SHARE: usize = 3;

/// Where a fact of the state block stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// The authors' and the game's word.
    Canon,
    /// What is still to be done, by the player or the NPC.
    Promises,
    /// What the player says of itself.
    Told,
    /// What the NPC has told of itself.
    Own,
}

struct Pinned {
    fact: FactId,
    text: String,
    tokens: u32,
}

struct Entry {
    fact: FactId,
    block: Block,
    text: String,
    /// When it was said. `None`: it is not dated.
    said_at: Option<DateTime<Utc>>,
    tokens: u32,
}

impl Entry {
    /// What it takes of the block.
    fn chars(&self) -> usize {
        self.text.chars().count() + FRAME_CHARS
    }
}

/// Facts that are in every prompt.
#[derive(Default)]
pub(super) struct StandingFacts {
    pinned: Vec<Pinned>,
    /// Most important first.
    state: Vec<Entry>,
    pub(super) pinned_ids: HashSet<FactId>,
    pub(super) state_ids: HashSet<FactId>,
    pub(super) pinned_dropped: usize,
    pub(super) state_dropped: usize,
}

/// What a statement may take.
struct Room {
    chars: usize,
    tokens: u32,
}

impl Room {
    fn take(&mut self, chars: usize, tokens: u32) -> bool {
        let fits = chars <= self.chars && tokens <= self.tokens;
        if fits {
            self.chars -= chars;
            self.tokens -= tokens;
        }
        fits
    }
}

impl StandingFacts {
    /// Takes what fits the budgets of the pinned slot and of the state block, most important first. `left`:
    /// tokens that are left of the whole prompt, in and out.
    pub(super) fn select(
        templates: &Templates,
        material: &Material<'_>,
        budgets: &PromptSettings,
        left: &mut u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<Self, TurnError> {
        let mut standing = Self::default();
        standing.pin(templates, material, budgets.pinned_tokens, left, count)?;
        let chars = if budgets.state_block { budgets.state_chars } else { 0 };
        let mut room = Room {
            chars: chars / PROMISE_SHARE,
            tokens: *left,
        };
        // Promises first, so that nothing else takes their room. What they leave is for the others, and the other way round.
        let (promises, others): (Vec<_>, Vec<_>) = material
            .standing
            .iter()
            .filter(|fact| !standing.pinned_ids.contains(&fact.id))
            .filter_map(|fact| Some((fact, block_of(material, fact)?)))
            .partition(|(_, block)| *block == Block::Promises);
        let (mut kept, mut put_off) = (Vec::new(), Vec::new());
        for (facts, more) in [(promises, chars - chars / PROMISE_SHARE), (others, 0)] {
            for (fact, block) in facts {
                let entry = entry_of(templates, material, fact, block, count)?;
                if room.take(entry.chars(), entry.tokens) {
                    kept.push((fact.view.importance, fact.valid_at, entry));
                } else {
                    put_off.push((fact.view.importance, fact.valid_at, entry));
                }
            }
            room.chars += more;
        }
        for (importance, valid_at, entry) in put_off {
            if room.take(entry.chars(), entry.tokens) {
                kept.push((importance, valid_at, entry));
            } else {
                standing.state_dropped += 1;
            }
        }
        kept.sort_by_key(|(importance, valid_at, _)| std::cmp::Reverse((*importance, *valid_at)));
        standing.state = kept.into_iter().map(|(.., entry)| entry).collect();
        standing.state_ids = standing.state.iter().map(|entry| entry.fact).collect();
        *left = room.tokens;
        Ok(standing)
    }

    fn pin(
        &mut self,
        templates: &Templates,
        material: &Material<'_>,
        slot: u32,
        left: &mut u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<(), TurnError> {
        let mut slot = slot.min(*left);
        let reader = material.reader();
        let may_be = |fact: &&Fact| fact.view.pinned && may_be_pinned(material, fact);
        for fact in material.standing.iter().filter(may_be) {
            let word = reader.word_of_fact(fact);
            let text = attributed_to(templates, reader, word, &fact.statement.subject, &fact.view.content)?;
            let tokens = count(&text) + ITEM_TOKENS;
            if tokens > slot {
                self.pinned_dropped += 1;
                continue;
            }
            slot -= tokens;
            *left -= tokens;
            self.pinned_ids.insert(fact.id);
            self.pinned.push(Pinned {
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
    /// How many headings it takes.
    pub(super) fn headings(&self) -> u32 {
        let blocks = [Block::Canon, Block::Promises, Block::Told, Block::Own];
        let blocks = blocks.map(|block| self.state.iter().any(|entry| entry.block == block));
        let blocks = blocks.into_iter().map(u32::from).sum::<u32>();
        blocks + u32::from(!self.pinned.is_empty())
    }
    /// Whether anything of it says how long ago it was said.
    pub(super) fn is_dated(&self) -> bool {
        self.state.iter().any(|entry| entry.said_at.is_some())
    }

    /// Leaves out the least important fact, of the pinned ones last. `false`: there is none.
    pub(super) fn shrink(&mut self) -> bool {
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

    pub(super) fn pinned_values(&self) -> Vec<Value> {
        let texts = self.pinned.iter().map(|item| item.text.as_str());
        texts.map(|text| context! { text }).collect()
    }

    /// The blocks as the template takes them, each with the newest of it last.
    pub(super) fn state_values(&self, templates: &Templates, ages: Ages) -> Result<Value, TurnError> {
        let values = |block| {
            let mut entries: Vec<&Entry> = self.state.iter().filter(|entry| entry.block == block).collect();
            entries.sort_by_key(|entry| (entry.said_at, entry.fact));
            entries
                .into_iter()
                .map(|entry| {
                    let ago = entry.said_at.map(|at| ages.of(templates, at)).transpose()?;
                    Ok(context! { text => entry.text.as_str(), ago => ago.unwrap_or_default() })
                })
                .collect::<Result<Vec<Value>, TurnError>>()
        };
        Ok(context! {
            canon => values(Block::Canon)?,
            promises => values(Block::Promises)?,
            told => values(Block::Told)?,
            own => values(Block::Own)?,
        })
    }
}

/// Whether a pinned fact may stand in every prompt: what anybody says of others is found by a search. What a player
/// says of those who are its own (a child's allergy) is of its own life.
fn may_be_pinned(material: &Material<'_>, fact: &Fact) -> bool {
    let statement = &fact.statement;
    let own = party::owner(&statement.subject);
    match material.reader().word_of_fact(fact) {
        Word::Canon => true,
        Word::Player => {
            statement.subject == statement.speaker || (own.is_some() && own == party::owner(&statement.speaker))
        }
        Word::Own => statement.subject == statement.speaker,
        Word::AnotherPlayer(_) | Word::Character(_) => false,
    }
}

/// Where it stands in the prompt, if it stands in it without a search.
fn block_of(material: &Material<'_>, fact: &Fact) -> Option<Block> {
    let statement = &fact.statement;
    let is_mutable = statement.kind.is_mutable_state();
    let is_promise = statement.kind.is_open_promise(statement.tense);
    let word = material.reader().word_of_fact(fact);
    match word {
        Word::Canon => is_mutable.then_some(Block::Canon),
        Word::Player | Word::Own if !statement.is_of_oneself() => None,
        Word::Player | Word::Own if is_promise => Some(Block::Promises),
        Word::Player if is_mutable => Some(Block::Told),
        Word::Own if is_mutable => Some(Block::Own),
        _ => None,
    }
}

fn entry_of(
    templates: &Templates,
    material: &Material<'_>,
    fact: &Fact,
    block: Block,
    count: &dyn Fn(&str) -> u32,
) -> Result<Entry, TurnError> {
    let (reader, subject, content) = (material.reader(), &fact.statement.subject, &fact.view.content);
    let text = match block {
        // Their headings say whose word it is.
        Block::Canon | Block::Told | Block::Own => told(templates, reader, subject, content)?,
        Block::Promises => attributed_to(templates, reader, reader.word_of_fact(fact), subject, content)?,
    };
    // What an author wrote holds whenever it was written.
    let is_dated = block != Block::Canon || matches!(fact.cause, Cause::Event(_));
    Ok(Entry {
        fact: fact.id,
        block,
        tokens: count(&text) + ITEM_TOKENS,
        text,
        said_at: is_dated.then_some(fact.valid_at),
    })
}
