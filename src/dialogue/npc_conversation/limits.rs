//! Limits of conversations.

/// The minimum and the maximum number of NPCs in a conversation, or in a scene with a player.
pub const MIN_NPCS: usize = 2;
pub const MAX_NPCS: usize = 8;
/// The hard limit of lines in one conversation.
pub const MAX_TURNS: u32 = 100;
/// The maximum length of a topic, in Unicode scalar values.
pub const MAX_TOPIC_CHARS: usize = 500;
