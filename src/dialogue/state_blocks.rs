//! Which models leave out the state block that a reply should end with. Weak models do, and what happened would be lost.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use colloquy_core::ids::TurnId;

/// The models whose replies are counted. Further models are taken for models that give blocks.
const MAX_MODELS: usize = 256;
/// The extractions whose outcome is awaited.
const MAX_AWAITED: usize = 1_024;
/// The longest pause between two extractions that find nothing, in replies without a block.
const MAX_PAUSE: u8 = 16;
/// A model that gives a block in at least one of so many replies leaves a block out only if nothing has changed.
const USUAL_SHARE: u32 = 4;

/// The latest replies of a model.
#[derive(Debug, Clone, Copy)]
struct ModelReplies {
    /// A bit per reply, the latest lowest: 1 for a reply with a block.
    with_block: u32,
    /// The number of counted replies, at most 32.
    count: u32,
    /// Replies without a block since the last extraction.
    without_block: u8,
    /// An extraction is made after so many replies without a block. Doubled by an extraction that finds nothing.
    pause: u8,
    /// True if the model is known for leaving blocks out. A block ends that.
    is_known: bool,
}

/// What a reply that was asked for a state block shows of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyBlock {
    /// The reply has a block.
    Given,
    /// The reply has no block, and its model usually gives one or is not known yet: nothing has changed.
    Unneeded,
    /// The model leaves blocks out, and the latest extractions found nothing: the next extraction comes later.
    Missing,
    /// The model leaves blocks out, so the state is extracted from the turn. `is_news`: the model was not known for that.
    Extracted { is_news: bool },
}

impl ReplyBlock {
    /// The name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Unneeded => "unneeded",
            Self::Missing => "missing",
            Self::Extracted { .. } => "extracted",
        }
    }
}

/// Counts state blocks per model, on this node and since its start.
#[derive(Default)]
pub(crate) struct BlockHabits(Mutex<Habits>);

#[derive(Default)]
struct Habits {
    models: HashMap<String, ModelReplies>,
    /// Turns whose state is being extracted because their reply had no block, with their model; oldest first.
    awaited: VecDeque<(TurnId, String)>,
}

impl BlockHabits {
    /// Records a reply that was asked for a state block. A model is known for leaving blocks out after `min_replies`
    /// replies, 0 for never.
    pub(crate) fn record_reply(&self, model: &str, turn: TurnId, has_block: bool, min_replies: u32) -> ReplyBlock {
        let mut habits = self.0.lock();
        let Habits { models, awaited } = &mut *habits;
        if models.len() >= MAX_MODELS && !models.contains_key(model) {
            return if has_block {
                ReplyBlock::Given
            } else {
                ReplyBlock::Unneeded
            };
        }
        let replies = models.entry(model.to_owned()).or_insert(ModelReplies {
            with_block: 0,
            count: 0,
            without_block: 0,
            pause: 1,
            is_known: false,
        });
        replies.with_block = replies.with_block << 1 | u32::from(has_block);
        replies.count = (replies.count + 1).min(u32::BITS);
        if has_block {
            (replies.without_block, replies.pause, replies.is_known) = (0, 1, false);
            return ReplyBlock::Given;
        }
        let gives_blocks = replies.with_block.count_ones() * USUAL_SHARE >= replies.count;
        if min_replies == 0 || replies.count < min_replies || gives_blocks {
            return ReplyBlock::Unneeded;
        }
        replies.without_block = replies.without_block.saturating_add(1);
        if replies.without_block < replies.pause {
            return ReplyBlock::Missing;
        }
        replies.without_block = 0;
        if awaited.len() >= MAX_AWAITED {
            awaited.pop_front();
        }
        awaited.push_back((turn, model.to_owned()));
        ReplyBlock::Extracted {
            is_news: !std::mem::replace(&mut replies.is_known, true),
        }
    }

    /// Records whether the extraction of a turn found changes. Other turns are left out.
    pub(crate) fn record_extraction(&self, turn: TurnId, has_changes: bool) {
        let mut habits = self.0.lock();
        let Habits { models, awaited } = &mut *habits;
        let Some(index) = awaited.iter().position(|(awaited, _)| *awaited == turn) else {
            return;
        };
        let Some((_, model)) = awaited.remove(index) else {
            return;
        };
        if let Some(replies) = models.get_mut(&model) {
            replies.pause = if has_changes {
                1
            } else {
                replies.pause.saturating_mul(2).min(MAX_PAUSE)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records replies, `1` with a block. Returns the positions of those to extract.
    fn extracted(habits: &BlockHabits, replies: &str, has_changes: bool) -> Vec<usize> {
        let mut positions = Vec::new();
        for (at, reply) in replies.char_indices() {
            let turn = TurnId::from_u128(at as u128);
            if let ReplyBlock::Extracted { .. } = habits.record_reply("m", turn, reply == '1', 4) {
                positions.push(at);
                habits.record_extraction(turn, has_changes);
            }
        }
        positions
    }

    #[test]
    fn state_of_a_model_without_blocks_is_extracted_from_the_fourth_reply_on() {
        assert_eq!(extracted(&BlockHabits::default(), "0000000", true), [3, 4, 5, 6]);
    }

    #[test]
    fn extractions_that_find_nothing_become_rare() {
        let found = extracted(&BlockHabits::default(), &"0".repeat(60), false);
        assert_eq!(found, [3, 5, 9, 17, 33, 49]);
    }

    #[test]
    fn model_that_usually_gives_blocks_costs_nothing_more() {
        assert_eq!(extracted(&BlockHabits::default(), "1001000100010001", false), [0; 0]);
    }

    #[test]
    fn block_ends_the_suspicion_until_blocks_are_rare_again() {
        let habits = BlockHabits::default();
        assert_eq!(extracted(&habits, "00001", true), [3]);
        assert_eq!(extracted(&habits, "0", true), [0], "one block of six replies");
        assert_eq!(extracted(&habits, "110", true), [0; 0]);
    }

    #[test]
    fn setting_of_zero_extracts_nothing() {
        let habits = BlockHabits::default();
        assert!((0..40).all(|n| habits.record_reply("m", TurnId::from_u128(n), false, 0) == ReplyBlock::Unneeded));
    }

    #[test]
    fn model_is_news_once_until_a_block_comes() {
        let habits = BlockHabits::default();
        let mut turn = 0;
        let mut reply = |has_block| {
            turn += 1;
            let found = habits.record_reply("m", TurnId::from_u128(turn), has_block, 2);
            habits.record_extraction(TurnId::from_u128(turn), false);
            found
        };
        assert_eq!(reply(false), ReplyBlock::Unneeded);
        assert_eq!(reply(false), ReplyBlock::Extracted { is_news: true });
        assert_eq!(reply(false), ReplyBlock::Missing);
        assert_eq!(reply(false), ReplyBlock::Extracted { is_news: false });
        assert_eq!(reply(true), ReplyBlock::Given);
        // One block of the last replies makes the model unknown again, until blocks are rare.
        assert_eq!(reply(false), ReplyBlock::Extracted { is_news: true });
    }
}
