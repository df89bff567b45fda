//! The lines about the state of the world in a prompt.

use super::{
    entries::{Entries, Entry},
    kind::{KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts},
};
use crate::{
    disclosure::{Disclosable, seen_world, seen_world_again},
    prompt::{ITEM_TOKENS, PromptContext},
    settings::PromptSettings,
    turn::TurnError,
};

/// The maximum length of all lines, in characters.
const MAX_WORLD_CHARS: usize = 600;

/// World state, one line per item, already escaped.
#[derive(Default)]
pub(crate) struct WorldLines(pub Disclosable<Vec<String>>);

/// The selected lines, in their order.
pub(crate) struct WorldSection(Entries);

impl KindOfKnowledge for WorldLines {
    type Read<'a> = ();
    type Section<'a> = WorldSection;

    async fn find(search: &LineSearch<'_>, (): ()) -> Result<Self, TurnError> {
        let templates = &search.services.prompts;
        Ok(Self(seen_world(templates, search.state, search.input)?))
    }

    async fn reread(rereading: &Rereading<'_>, _changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let templates = &rereading.services.prompts;
        Ok(Self(seen_world_again(templates, rereading.state, rereading.input)?))
    }

    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        _told_parts: &ToldParts<'_>,
        mut remaining_tokens: u32,
    ) -> Result<WorldSection, TurnError> {
        let mut chars = MAX_WORLD_CHARS;
        let mut entries = Entries::<()>::default();
        for (index, line) in self.0.entries().enumerate() {
            let length = line.chars().count();
            let tokens = context.count(*line) + ITEM_TOKENS;
            if length > chars || tokens > remaining_tokens {
                entries.dropped += 1;
                continue;
            }
            chars -= length;
            let entry = Entry {
                index,
                text: line.map(String::clone),
                tokens,
                detail: (),
            };
            entries.fit(entry, &mut remaining_tokens);
        }
        Ok(WorldSection(entries))
    }
}

impl Section for WorldSection {
    fn tokens(&self) -> u32 {
        self.0.tokens()
    }
    fn drop_least(&mut self) -> bool {
        self.0.drop_last()
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        values.add_changing("world_state", self.0.texts());
        Ok(())
    }

    /// The lines are a part of the section `state`, whose budget is for the facts.
    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let size = SectionSize::new("state", self.tokens(), budgets.fixed.state_tokens(), 0, "");
        sizes.add(size, |hash| self.0.add_texts(hash));
    }

    fn add_notes(&self, notes: &mut Vec<String>) {
        let dropped = self.0.dropped;
        notes.extend((dropped > 0).then(|| format!("{dropped} lines about the world did not fit")));
    }
}
