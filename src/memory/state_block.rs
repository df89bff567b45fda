//! state_block
