//! npc
