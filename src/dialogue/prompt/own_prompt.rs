//! Room in a prompt for the messages of a chat program that describes the character.

use std::borrow::Cow;

use super::frame_tokens::FRAME_TOKENS;
use crate::{settings::DialogueSettings, turn::OwnPrompt};

/// Returns the tokens of a chat program's messages, without those of the history.
pub(super) fn own_prompt_tokens(own_prompt: &OwnPrompt, count: &dyn Fn(&str) -> u32) -> u32 {
    let messages = own_prompt.head.iter().chain(&own_prompt.last);
    messages.map(|message| count(&message.content) + FRAME_TOKENS).sum()
}

/// Returns the settings with room for the messages of a chat program, which come on top of what the server adds.
pub(crate) fn enlarge_for_own_prompt<'s>(
    settings: &'s DialogueSettings,
    own_prompt: Option<&OwnPrompt>,
    count: &dyn Fn(&str) -> u32,
) -> Cow<'s, DialogueSettings> {
    let Some(own_prompt) = own_prompt else {
        return Cow::Borrowed(settings);
    };
    let history = own_prompt
        .history
        .iter()
        .map(|(_, message)| count(&message.content) + FRAME_TOKENS);
    let history: u32 = history.sum();
    let mut enlarged = settings.clone();
    enlarged.prompt.total_tokens += history + own_prompt_tokens(own_prompt, count);
    enlarged.prompt.history_tokens = enlarged.prompt.history_tokens.max(history);
    Cow::Owned(enlarged)
}
