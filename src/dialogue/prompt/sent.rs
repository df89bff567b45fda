//! The last prompts of dialogues: how much of the next prompt a provider's cache can serve.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use moka::sync::Cache;

use super::Prompt;
use colloquy_core::ids::{DialogueId, NpcId};
use colloquy_ports::llm::ChatMessage;

/// The number of dialogues and NPCs whose last prompt is known.
const MAX_PROMPTS: u64 = 10_000;

/// The messages of the last prompt of each NPC in each dialogue, as far as this node sent them.
pub(crate) struct SentPrompts(Cache<(DialogueId, NpcId), Arc<[u64]>>);

impl Default for SentPrompts {
    fn default() -> Self {
        Self(Cache::new(MAX_PROMPTS))
    }
}

impl SentPrompts {
    /// Remembers the prompt in place of the one before. Returns the tokens of the messages at its beginning that the prompt
    /// before had too. `None`: the prompt before is unknown.
    pub(crate) fn record_prompt(&self, dialogue: DialogueId, npc: &NpcId, prompt: &Prompt) -> Option<u32> {
        let key = (dialogue, npc.clone());
        let messages: Arc<[u64]> = prompt.messages.iter().map(hash_message).collect();
        let before = self.0.get(&key);
        self.0.insert(key, Arc::clone(&messages));
        let before = before?;
        let unchanged = messages
            .iter()
            .zip(before.iter())
            .take_while(|(now, before)| now == before);
        Some(unchanged.zip(&prompt.message_tokens).map(|(_, tokens)| tokens).sum())
    }
}

fn hash_message(message: &ChatMessage) -> u64 {
    let mut hasher = DefaultHasher::new();
    std::mem::discriminant(&message.role).hash(&mut hasher);
    message.content.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_core::ids::DialogueKind;
    use colloquy_ports::llm::ChatRole::{self, Assistant, System, User};

    fn prompt(messages: &[(ChatRole, &str, u32)]) -> Prompt {
        Prompt {
            messages: messages
                .iter()
                .map(|(role, text, _)| ChatMessage::new(*role, *text))
                .collect(),
            message_tokens: messages.iter().map(|(_, _, tokens)| *tokens).collect(),
            sections: vec![],
            tokens: 0,
            hash: String::new(),
            candidates: vec![],
            scenarios: vec![],
            lore: vec![],
            offers: vec![],
            outcomes: vec![],
            episodes: vec![],
            notes: vec![],
        }
    }

    #[test]
    fn unchanged_tokens_end_at_the_first_other_message() {
        let sent = SentPrompts::default();
        let dialogue = DialogueId::new(DialogueKind::Session, ulid::Ulid(7));
        let (mira, tom): (NpcId, NpcId) = ("mira".parse().unwrap(), "tom".parse().unwrap());
        let next = |npc, messages: &[(ChatRole, &str, u32)]| sent.record_prompt(dialogue, npc, &prompt(messages));
        let first = [(System, "You are Mira.", 50), (User, "Hello.", 5)];
        assert_eq!(next(&mira, &first), None);
        assert_eq!(next(&mira, &first), Some(55));
        let second = [first[0], first[1], (Assistant, "Good day.", 6), (User, "A room?", 7)];
        assert_eq!(next(&mira, &second), Some(55));
        // The role counts, and so does the order.
        assert_eq!(next(&mira, &[first[0], (Assistant, "Hello.", 5), second[2]]), Some(50));
        assert_eq!(next(&mira, &[first[1], first[0]]), Some(0));
        assert_eq!(next(&tom, &first), None);
    }
}
