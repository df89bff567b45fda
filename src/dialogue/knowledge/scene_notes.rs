//! Notes of a chat program about the scene, as far as they fit their slot. The latest notes come first.

use super::{
    entries::{Entries, Entry},
    kind::{KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts, room_under_heading, with_heading},
};
use crate::{
    disclosure::{self, Disclosable},
    prompt::{ITEM_TOKENS, PromptContext, escape_untrusted},
    settings::PromptSettings,
    turn::TurnError,
};
use colloquy_memory::trace::PromptSources;

/// The notes of the turn's request, oldest first.
#[derive(Default)]
pub(crate) struct SceneNotes(Disclosable<Vec<String>>);

/// The notes in a prompt, in their order.
#[derive(Default)]
pub(crate) struct SceneNoteSection(Entries);

impl KindOfKnowledge for SceneNotes {
    type Read<'a> = ();
    type Section<'a> = SceneNoteSection;

    async fn find(search: &LineSearch<'_>, (): ()) -> Result<Self, TurnError> {
        Ok(Self(disclosure::scene_notes(search.input)))
    }

    async fn reread(rereading: &Rereading<'_>, _changes: &mut Vec<String>) -> Result<Self, TurnError> {
        Ok(Self(disclosure::scene_notes_before(rereading.trace)))
    }

    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        _told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<SceneNoteSection, TurnError> {
        let budget = context.settings.prompt.scene_note_tokens;
        let count = |text: &str| context.count(text);
        Ok(SceneNoteSection::select_latest(
            self.0.clone(),
            budget,
            remaining_tokens,
            &count,
        ))
    }

    fn add_sources(&self, sources: &mut PromptSources) {
        sources.scene_notes.clone_from(&*self.0);
    }
}

impl SceneNoteSection {
    /// Selects the latest notes that fit the budget and the room that is left.
    fn select_latest(
        notes: Disclosable<Vec<String>>,
        budget: u32,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Self {
        let mut room = room_under_heading(budget, remaining_tokens);
        let mut entries = Entries::<()>::default();
        let notes: Vec<Disclosable<String>> = notes.into_entries().collect();
        for (index, note) in notes.into_iter().enumerate().rev() {
            let text = note.map(|note| escape_untrusted(&note));
            let tokens = count(&text) + ITEM_TOKENS;
            let entry = Entry {
                index,
                text,
                tokens,
                detail: (),
            };
            entries.fit(entry, &mut room);
        }
        entries.items.reverse();
        Self(entries)
    }
}

impl Section for SceneNoteSection {
    fn tokens(&self) -> u32 {
        with_heading(self.0.tokens())
    }
    fn framed_tokens(&self) -> u32 {
        self.tokens()
    }
    /// A note that fits its slot stays.
    fn drop_least(&mut self) -> bool {
        false
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        values.add_changing("scene_notes", self.0.texts());
        Ok(())
    }

    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let size = SectionSize::new(
            "scene_notes",
            self.tokens(),
            budgets.scene_note_tokens,
            self.0.dropped,
            "notes of the chat program",
        );
        sizes.add_if_any(size, |hash| self.0.add_texts(hash));
    }

    fn add_notes(&self, notes: &mut Vec<String>) {
        let dropped = self.0.dropped;
        notes.extend((dropped > 0).then(|| format!("{dropped} notes of the chat program did not fit their slot")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_notes_fit_first_and_keep_their_order() {
        let notes = ["one two three".to_owned(), "four".to_owned(), "five".to_owned()];
        let count = |text: &str| u32::try_from(text.split(' ').count()).unwrap_or(u32::MAX);
        let section = SceneNoteSection::select_latest(
            Disclosable::sample(notes.to_vec()),
            2 * (ITEM_TOKENS + 1),
            1_000,
            &count,
        );
        assert_eq!((&section.0.texts()[..], section.0.dropped), (&notes[1..], 1));
        let none = SceneNoteSection::select_latest(Disclosable::sample(Vec::new()), 100, 1_000, &count);
        assert_eq!((none.tokens(), none.0.dropped), (0, 0));
    }
}
