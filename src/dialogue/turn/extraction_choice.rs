//! Whether facts and state are extracted from a turn, by what its reply's state block says or leaves out.

use super::{input::TurnInput, speak::Reply};
use crate::{Services, state_blocks::ReplyBlock};
use colloquy_memory::{keywords, state::StateChange, state_block::ParsedStateBlock, turn::Turn};

/// True if a reply lacks the state block that it was asked for, and its model is known to leave blocks out.
pub(super) fn is_block_omitted(services: &Services, turn: &Turn, reply: &Reply, notes: &mut Vec<String>) -> bool {
    let settings = &services.settings;
    // The scripted model writes a block whenever something changes; an authored greeting has no model.
    if !settings.prompt.ask_for_state || reply.call.offline {
        return false;
    }
    let model = &reply.call.model;
    let habits = &services.memory_cache.block_habits;
    let min_replies = settings.turn.replies_without_block;
    let block = habits.record_reply(model, turn.id, reply.began_block, min_replies);
    services.models.metrics().record_reply_block(model, block.as_str());
    match block {
        ReplyBlock::Given | ReplyBlock::Unneeded => false,
        ReplyBlock::Missing => {
            notes.push(format!(
                "no state block, and `{model}` seldom writes one: what this turn changed is not looked for, because the \
                 latest extractions found nothing"
            ));
            false
        }
        ReplyBlock::Extracted { is_news } => {
            if is_news {
                tracing::warn!(
                    model,
                    "the model seldom ends its replies with a state block: what they change is extracted by a job, at a \
                     call each"
                );
            }
            notes.push(format!(
                "no state block, and `{model}` seldom writes one: the state is extracted from the turn"
            ));
            true
        }
    }
}

/// True if the reply's state block says `nothing_new`, and that counts. A reply that ended at a limit had more to tell,
/// a block that tells of events contradicts itself, and a request to forget is always heeded.
pub(super) fn skips_extraction(
    services: &Services,
    input: &TurnInput,
    block: &ParsedStateBlock,
    reply: &Reply,
    notes: &mut Vec<String>,
) -> bool {
    let prompt = &services.settings.prompt;
    let is_asked = prompt.ask_for_state && prompt.ask_if_nothing_new && input.player.is_some();
    let tells = |change: &StateChange| matches!(change, StateChange::Happened { .. } | StateChange::Note { .. });
    // The block of a reply that goes on tells only of the new words.
    let is_whole_turn = input
        .continuation
        .as_ref()
        .is_none_or(|unfinished| !unfinished.is_whole);
    let skips = is_asked
        && is_whole_turn
        && block.nothing_new
        && !reply.at_limit
        && !block.changes.iter().any(tells)
        && !keywords::asks_to_forget(&input.line);
    if skips {
        notes.push("the state block says `nothing_new`: no facts are extracted from the turn".to_owned());
    }
    skips
}
