//! The raw turns of a prompt: rendered in the same form every time, trimmed in blocks.

use minijinja::context;

use super::{
    context::PromptContext, frame_tokens::FRAME_TOKENS, template_error::TemplateError, templates::Template,
    untrusted::escape_untrusted,
};
use colloquy_ports::llm::{ChatMessage, ChatRole};

/// The history starts at a turn after a multiple of this. Trimming then moves the start only once in this many turns,
/// and the prompt's prefix stays the same in between.
const TURNS_PER_BLOCK: u32 = 8;

#[derive(Debug, Clone)]
pub(super) struct RenderedTurn {
    number: u32,
    messages: Vec<ChatMessage>,
    tokens: u32,
    /// The cue for the NPC's own line, sent first if the history begins with this turn. Many endpoints reject a
    /// prompt whose first message after the system message is the assistant's. With the cue's tokens.
    lead: Option<(ChatMessage, u32)>,
}

/// Returns the message that must precede an assistant message at the start of a scene, with its tokens.
fn render_lead(
    context: &PromptContext<'_>,
    messages: &[ChatMessage],
    number: u32,
) -> Result<Option<(ChatMessage, u32)>, TemplateError> {
    let Some(scene) = context.scene else { return Ok(None) };
    if messages.first().is_none_or(|first| first.role != ChatRole::Assistant) {
        return Ok(None);
    }
    let cue = scene.render_earlier_cue(context.templates, &context.input.npc, number)?;
    let tokens = context.count(&cue) + FRAME_TOKENS;
    Ok(Some((ChatMessage::new(ChatRole::User, cue), tokens)))
}

/// Renders turns in the order of their numbers. The NPC's lines become assistant messages, all other lines user
/// messages.
pub(super) fn render_turns(context: &PromptContext<'_>) -> Result<Vec<RenderedTurn>, TemplateError> {
    let templates = context.templates;
    let language = context.language();
    let npc = &context.input.npc.id;
    let mut previous_at = None;
    context
        .input
        .history
        .iter()
        .map(|turn| {
            let gap = (
                std::mem::replace(&mut previous_at, turn.committed_at),
                turn.committed_at,
            );
            let mut messages = Vec::with_capacity(2);
            // In a session, a player's message precedes every reply, even if the player only came up.
            if context.input.player.is_some() {
                let line = if turn.player_text.is_empty() {
                    templates.render_unsaid_line(language, turn.number > 1)?
                } else {
                    templates.render_line(language, &turn.player_text, false)?
                };
                let line = match gap {
                    (Some(previous_at), next_at @ Some(_)) => {
                        context.ages().mark_gap(templates, previous_at, next_at, line)?
                    }
                    _ => line,
                };
                messages.push(ChatMessage::new(ChatRole::User, &*line));
            }
            messages.push(match context.scene {
                Some(scene) if turn.npc != *npc => {
                    let values =
                        context! { name => scene.name_of(&turn.npc), text => escape_untrusted(&turn.reply_text) };
                    let line = templates.render(language, Template::ConversationLine, values)?;
                    ChatMessage::new(ChatRole::User, line)
                }
                _ => ChatMessage::new(ChatRole::Assistant, turn.reply_text.clone()),
            });
            Ok(RenderedTurn {
                lead: render_lead(context, &messages, turn.number)?,
                number: turn.number,
                tokens: messages
                    .iter()
                    .map(|message| context.count(&message.content) + FRAME_TOKENS)
                    .sum(),
                messages,
            })
        })
        .collect()
}

/// The turns in the prompt: always the latest turns, without a gap.
#[derive(Debug, Clone)]
pub(crate) struct HistoryWindow {
    turns: Vec<RenderedTurn>,
    /// The first and last number of the dropped turns.
    dropped: Option<(u32, u32)>,
}

impl HistoryWindow {
    /// The messages of a chat program, as they came. Messages of one turn stay together.
    pub(super) fn from_own_prompt(history: &[(u32, ChatMessage)], count: &dyn Fn(&str) -> u32) -> Self {
        let turns = history
            .chunk_by(|one, next| one.0 == next.0)
            .map(|of_turn| RenderedTurn {
                number: of_turn[0].0,
                messages: of_turn.iter().map(|(_, message)| message.clone()).collect(),
                tokens: of_turn
                    .iter()
                    .map(|(_, message)| count(&message.content) + FRAME_TOKENS)
                    .sum(),
                lead: None,
            });
        Self {
            turns: turns.collect(),
            dropped: None,
        }
    }

    /// Selects the longest run of latest turns that starts a block and fits the room. `room` gets the tokens of all
    /// turns. If not even the last block fits, smaller blocks are tried.
    pub(super) fn fit_to_room(turns: Vec<RenderedTurn>, room: impl Fn(u32) -> u32) -> Self {
        debug_assert!(
            turns.is_sorted_by(|earlier, later| earlier.number < later.number),
            "the turns of a history are in order"
        );
        let mut window = Self { turns, dropped: None };
        let mut suffix = vec![0_u32; window.turns.len() + 1];
        for index in (0..window.turns.len()).rev() {
            suffix[index] = suffix[index + 1].saturating_add(window.turns[index].tokens);
        }
        let room = room(suffix[0]);
        if suffix[0] > room {
            let begins =
                |index: &usize, block: u32| window.turns[*index].number.saturating_sub(1).is_multiple_of(block);
            let start = [TURNS_PER_BLOCK, TURNS_PER_BLOCK / 2, TURNS_PER_BLOCK / 4, 1]
                .into_iter()
                .find_map(|block| (0..window.turns.len()).find(|index| begins(index, block) && suffix[*index] <= room))
                .unwrap_or(window.turns.len());
            window.drop_before(start);
        }
        debug_assert!(
            window.turns.iter().map(|turn| turn.tokens).sum::<u32>() <= room,
            "the selected turns fit their room"
        );
        window
    }

    pub(crate) fn tokens(&self) -> u32 {
        let lead = self.lead_message().map_or(0, |(_, tokens)| *tokens);
        self.turns.iter().map(|turn| turn.tokens).sum::<u32>() + lead
    }
    fn lead_message(&self) -> Option<&(ChatMessage, u32)> {
        self.turns.first().and_then(|turn| turn.lead.as_ref())
    }
    pub(crate) fn has_turn(&self, number: u32) -> bool {
        self.turns.iter().any(|turn| turn.number == number)
    }
    /// Returns the first and last number of the dropped turns, if any.
    pub(super) const fn dropped_turns(&self) -> Option<(u32, u32)> {
        self.dropped
    }

    /// Drops the oldest block. Returns `false` if the history is already empty.
    pub(super) fn drop_block(&mut self) -> bool {
        if self.turns.is_empty() {
            return false;
        }
        let next = (1..self.turns.len())
            .find(|index| {
                self.turns[*index]
                    .number
                    .saturating_sub(1)
                    .is_multiple_of(TURNS_PER_BLOCK)
            })
            .unwrap_or(1);
        self.drop_before(next);
        true
    }

    fn drop_before(&mut self, start: usize) {
        let dropped: Vec<RenderedTurn> = self.turns.drain(..start).collect();
        if let (Some(first), Some(last)) = (dropped.first(), dropped.last()) {
            let from = self.dropped.map_or(first.number, |(from, _)| from);
            self.dropped = Some((from, last.number));
        }
    }

    /// Returns the messages, with a cache mark in the middle (end of the last whole block) and at the end.
    pub(super) fn messages(&self) -> Vec<ChatMessage> {
        let middle = self
            .turns
            .iter()
            .rposition(|turn| turn.number.is_multiple_of(TURNS_PER_BLOCK))
            .filter(|index| index + 1 < self.turns.len());
        let mut messages = Vec::with_capacity(self.turns.len() * 2 + 1);
        messages.extend(self.lead_message().map(|(message, _)| message.clone()));
        for (index, turn) in self.turns.iter().enumerate() {
            messages.extend(turn.messages.iter().cloned());
            if (Some(index) == middle || index + 1 == self.turns.len())
                && let Some(last) = messages.last_mut()
            {
                last.cache_breakpoint = true;
            }
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(numbers: std::ops::RangeInclusive<u32>, tokens: u32) -> Vec<RenderedTurn> {
        numbers
            .map(|number| RenderedTurn {
                number,
                messages: vec![ChatMessage::new(ChatRole::Assistant, number.to_string())],
                tokens,
                lead: None,
            })
            .collect()
    }
    fn numbers(window: &HistoryWindow) -> Vec<u32> {
        window.turns.iter().map(|turn| turn.number).collect()
    }

    #[test]
    fn history_stays_whole_while_it_fits() {
        let window = HistoryWindow::fit_to_room(turns(3..=20, 10), |_| 180);
        assert_eq!((window.turns.len(), window.dropped_turns()), (18, None));
    }

    #[test]
    fn history_start_moves_in_blocks() {
        let mut beginnings = Vec::new();
        for head in 8..40 {
            let window = HistoryWindow::fit_to_room(turns(1..=head, 10), |_| 120);
            assert!(window.tokens() <= 120);
            beginnings.push(numbers(&window)[0]);
        }
        beginnings.dedup();
        assert_eq!(beginnings, [1, 9, 17, 25, 33]);
    }

    #[test]
    fn long_turns_fall_back_to_smaller_blocks() {
        assert_eq!(
            numbers(&HistoryWindow::fit_to_room(turns(1..=14, 100), |_| 450)),
            [13, 14]
        );
        assert_eq!(numbers(&HistoryWindow::fit_to_room(turns(1..=8, 100), |_| 100)), [8]);
        let none = HistoryWindow::fit_to_room(turns(1..=8, 100), |_| 99);
        assert_eq!((numbers(&none), none.dropped_turns()), (vec![], Some((1, 8))));
    }

    #[test]
    fn history_may_drop_all_blocks() {
        let mut window = HistoryWindow::fit_to_room(turns(6..=20, 1), |_| 100);
        let mut beginnings = vec![];
        while window.drop_block() {
            beginnings.extend(numbers(&window).first().copied());
        }
        assert_eq!(beginnings, [9, 17, 18, 19, 20]);
        assert_eq!(window.dropped_turns(), Some((6, 20)));
    }

    #[test]
    fn cache_marks_stand_at_the_last_whole_block_and_at_the_end() {
        let marked = |last| {
            HistoryWindow::fit_to_room(turns(1..=last, 1), |_| 100)
                .messages()
                .iter()
                .filter(|message| message.cache_breakpoint)
                .map(|message| message.content.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(marked(5), ["5"]);
        assert_eq!(marked(8), ["8"]);
        assert_eq!(marked(13), ["8", "13"]);
        assert_eq!(marked(17), ["16", "17"]);
    }
}
