//! The last prompts of dialogues: how much of the next prompt a provider's cache can serve.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use moka::{policy::EvictionPolicy, sync::Cache};

use super::assembled_prompt::Prompt;
use colloquy_core::ids::{DialogueId, NpcId};
use colloquy_ports::llm::ChatMessage;

/// The number of last prompts that the node keeps: about 300 bytes each.
const MAX_PROMPTS: u64 = 50_000;

/// Hashes of the messages of the last prompt of each NPC in each dialogue, if this node sent it, and the model.
pub(crate) struct SentPrompts(Cache<(DialogueId, NpcId), Arc<SentPrompt>>);

struct SentPrompt {
    model: String,
    messages: Vec<u64>,
}

impl Default for SentPrompts {
    fn default() -> Self {
        let builder = Cache::builder().max_capacity(MAX_PROMPTS);
        Self(builder.eviction_policy(EvictionPolicy::lru()).build())
    }
}

impl SentPrompts {
    /// Keeps a prompt that `model` has answered, in place of the previous one. Returns the tokens of the messages at its
    /// beginning that the previous prompt shares. `None`: the node does not know the previous prompt, or another model
    /// answered it.
    pub(crate) fn record_prompt(&self, dialogue: DialogueId, npc: &NpcId, model: &str, prompt: &Prompt) -> Option<u32> {
        let key = (dialogue, npc.clone());
        let sent = Arc::new(SentPrompt {
            model: model.to_owned(),
            messages: prompt.messages.iter().map(hash_message).collect(),
        });
        let previous = self.0.get(&key);
        self.0.insert(key, Arc::clone(&sent));
        let previous = previous.filter(|previous| previous.model == model)?;
        let pairs = sent.messages.iter().zip(&previous.messages);
        let shared = pairs.take_while(|(message, previous)| message == previous);
        Some(shared.zip(&prompt.message_tokens).map(|(_, tokens)| tokens).sum())
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
            ..Prompt::default()
        }
    }

    #[test]
    fn unchanged_tokens_end_at_the_first_other_message() {
        let sent = SentPrompts::default();
        let dialogue = DialogueId::new(DialogueKind::Session, ulid::Ulid(7));
        let mira: NpcId = "mira".parse().unwrap();
        let tom: NpcId = "tom".parse().unwrap();
        let next = |npc, messages: &[_]| sent.record_prompt(dialogue, npc, "mock", &prompt(messages));
        let first = [(System, "You are Mira.", 50), (User, "Hello.", 5)];
        assert_eq!(next(&mira, &first), None);
        assert_eq!(next(&mira, &first), Some(55));
        let second = [first[0], first[1], (Assistant, "Good day.", 6), (User, "A room?", 7)];
        assert_eq!(next(&mira, &second), Some(55));
        // The role counts, and so does the order.
        assert_eq!(next(&mira, &[first[0], (Assistant, "Hello.", 5), second[2]]), Some(50));
        assert_eq!(next(&mira, &[first[1], first[0]]), Some(0));
        assert_eq!(next(&tom, &first), None);
        assert_eq!(sent.record_prompt(dialogue, &tom, "other", &prompt(&first)), None);
    }
}
