//! An episode that a turn found.

use std::sync::Arc;

use crate::disclosure::Disclosable;
use colloquy_memory::episode::Episode;

/// An episode that the prompt of a turn may have: it stands, it is open to the player, and it tells nothing that was taken
/// out of memory.
#[derive(Debug, Clone)]
pub(crate) struct EpisodeHit {
    pub episode: Disclosable<Episode>,
    /// The calibrated similarity with the line, in [0, 1], if it reaches the minimum.
    pub similarity: Option<f64>,
    /// A unit vector; empty if there is none.
    pub vector: Arc<[f32]>,
    /// True if a statement was cut from the text.
    pub redacted: bool,
}
