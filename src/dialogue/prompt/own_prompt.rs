//! Room in a prompt for the messages of a chat program that describes the character.

use std::borrow::Cow;

use super::{frame_tokens::FRAME_TOKENS, material::PromptMaterial, templates::Templates};
use crate::settings::DialogueSettings;

/// Returns the tokens of a chat program's messages, without those of the history.
pub(super) fn own_prompt_tokens(material: &PromptMaterial<'_>, count: &dyn Fn(&str) -> u32) -> u32 {
    let messages = material
        .own_prompt
        .iter()
        .flat_map(|own_prompt| own_prompt.head.iter().chain(&own_prompt.last));
    messages.map(|message| count(&message.content) + FRAME_TOKENS).sum()
}

/// Returns the settings with room for the messages of a chat program, which come on top of what the server adds.
pub(super) fn enlarge_for_own_prompt<'s>(
    settings: &'s DialogueSettings,
    templates: &Templates,
    material: &PromptMaterial<'_>,
) -> Cow<'s, DialogueSettings> {
    let Some(own_prompt) = material.own_prompt else {
        return Cow::Borrowed(settings);
    };
    let count = |text: &str| templates.count_tokens(material.counter, text);
    let history = own_prompt
        .history
        .iter()
        .map(|(_, message)| count(&message.content) + FRAME_TOKENS);
    let history: u32 = history.sum();
    let mut enlarged = settings.clone();
    enlarged.prompt.total_tokens += history + own_prompt_tokens(material, &count);
    enlarged.prompt.history_tokens = enlarged.prompt.history_tokens.max(history);
    Cow::Owned(enlarged)
}
