//! Notes of a chat program about the scene, as far as they fit their slot. The latest notes come first.

use super::{
    content_hash::ContentHash,
    frame_tokens::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS},
    untrusted::escape_untrusted,
};

/// The notes in a prompt, in their order.
#[derive(Debug, Default)]
pub(super) struct ShownSceneNotes {
    texts: Vec<String>,
    tokens: u32,
    dropped: usize,
}

impl ShownSceneNotes {
    /// Selects the latest notes that fit the budget and the room that is left.
    pub(super) fn select_fitting(
        notes: &[String],
        budget: u32,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Self {
        let heading = HEADING_TOKENS + FRAME_TOKENS;
        let mut slot = budget.min(remaining_tokens.saturating_sub(heading));
        let mut selected = Self::default();
        for note in notes.iter().rev() {
            let text = escape_untrusted(note);
            let tokens = count(&text) + ITEM_TOKENS;
            if tokens > slot {
                selected.dropped += 1;
                continue;
            }
            slot -= tokens;
            selected.tokens += tokens;
            selected.texts.push(text);
        }
        selected.texts.reverse();
        if !selected.texts.is_empty() {
            selected.tokens += heading;
        }
        selected
    }

    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    pub(super) const fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Returns the number of notes that did not fit.
    pub(super) const fn dropped_count(&self) -> usize {
        self.dropped
    }

    pub(super) fn add_content(&self, hash: &mut ContentHash) {
        self.texts.iter().for_each(|text| hash.add_text(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_notes_fit_first_and_keep_their_order() {
        let notes = ["one two three".to_owned(), "four".to_owned(), "five".to_owned()];
        let count = |text: &str| u32::try_from(text.split(' ').count()).unwrap_or(u32::MAX);
        let shown = ShownSceneNotes::select_fitting(&notes, 2 * (ITEM_TOKENS + 1), 1_000, &count);
        assert_eq!((shown.texts(), shown.dropped_count()), (&notes[1..], 1));
        let none = ShownSceneNotes::select_fitting(&[], 100, 1_000, &count);
        assert_eq!((none.tokens(), none.dropped_count()), (0, 0));
    }
}
