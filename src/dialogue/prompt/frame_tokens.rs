//! Token counts of the frames around the texts of a prompt.

/// The tokens of a message's frame in every chat format.
pub(crate) const FRAME_TOKENS: u32 = 4;
/// The tokens of a list item besides its text: the bullet, a date, the line end.
pub(crate) const ITEM_TOKENS: u32 = 12;
/// The tokens of a list's heading.
pub(crate) const HEADING_TOKENS: u32 = 12;
