//! Lore in a prompt: what the NPC knows of the world, and what it keeps to itself, within a separate budget.

use minijinja::{Value, context};

use super::{
    super::{
        entries::{Entries, Entry},
        kind::{KindOfKnowledge, LineSearch, Rereading},
        section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts},
    },
    FoundLore, LoreHit, LoreNow, LoreOfTurn,
};
use crate::{
    disclosure::{Disclosable, Disclosures, OpenLore, has_hangul, open_lore},
    prompt::{FRAME_TOKENS, HEADING_TOKENS, PromptContext, Template, escape_untrusted},
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_memory::{
    authored::Language,
    disclosure::{
        locks::{DisclosureLock, DisclosureLocks},
        secrecy::Secrecy,
    },
    packing::PackingBudget,
    party::{self, PLAYER},
    trace::{LoreFate, LoreTrace, TurnTrace},
    vocabulary,
};

/// The lore that the turn found, if the world has lore.
#[derive(Default)]
pub(crate) struct Lore(Option<FoundLore>);

/// The selected entries, best first. The detail of an entry is true if the text is the entry's tell.
pub(crate) struct LoreSection<'a> {
    hits: &'a [LoreHit],
    entries: Entries<bool, LoreFate>,
}

impl Lore {
    /// True if a tell is among the entries for the prompt.
    pub(crate) fn has_tell(&self) -> bool {
        self.0.as_ref().is_some_and(FoundLore::has_tell)
    }
}

impl KindOfKnowledge for Lore {
    type Read<'a> = Option<LoreOfTurn<'a>>;
    type Section<'a> = LoreSection<'a>;

    async fn find<'a>(search: &LineSearch<'a>, prepared: Option<LoreOfTurn<'a>>) -> Result<Self, TurnError> {
        let is_about_something = search.classified.is_about_something();
        Ok(Self(
            prepared.map(|prepared| prepared.find(is_about_something, search.standing)),
        ))
    }

    async fn reread(rereading: &Rereading<'_>, changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let traced = &rereading.trace.lore;
        let is_used = |traced: &&LoreTrace| traced.fate == LoreFate::Used;
        if !traced.iter().any(|traced| is_used(&traced)) {
            return Ok(Self(None));
        }
        let lore = FoundLore::reread(rereading.services, rereading.input, rereading.state, traced).await?;
        for traced in traced.iter().filter(is_used) {
            let hit = lore.hits.iter().find(|hit| hit.trace.entry == traced.entry);
            match hit.map(|hit| lore.entry(hit)) {
                None => changes.push(format!("the entry `{}` of the lore was deleted", traced.entry)),
                Some(entry) if entry.updated_at > rereading.started_at => {
                    changes.push(format!("the entry `{}` of the lore was edited", traced.entry));
                }
                Some(_) => {}
            }
        }
        Ok(Self(Some(lore)))
    }

    /// Selects the best entries that fit.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        _told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<LoreSection<'a>, TurnError> {
        let Some(lore) = &self.0 else {
            return Ok(LoreSection {
                hits: &[],
                entries: Entries::default(),
            });
        };
        let budgets = &context.settings.prompt;
        let fates: Vec<LoreFate> = lore.hits.iter().map(|hit| hit.trace.fate).collect();
        let usable = (0..fates.len()).filter(|index| fates[*index] == LoreFate::Used);
        let open = usable.filter_map(|index| {
            let hit = &lore.hits[index];
            Some((index, open_lore(&lore.entry(hit).text, hit.verdict)?))
        });
        let texts = open.map(|(index, open)| {
            let text = open.try_map(|open| render_entry(context, open, &lore.hits[index]))?;
            Ok((index, text))
        });
        let texts = texts.collect::<Result<Vec<(usize, Disclosable<String>)>, TurnError>>()?;
        let headings = 2 * (HEADING_TOKENS + FRAME_TOKENS);
        let budget = PackingBudget {
            top_k: usize::MAX,
            total_tokens: budgets.lore_tokens.min(remaining_tokens.saturating_sub(headings)),
            item_tokens: budgets.fixed.lore_item_tokens,
        };
        let is_tell = |index: usize| lore.hits[index].verdict.secrecy() == Secrecy::Guarded;
        Ok(LoreSection {
            hits: &lore.hits,
            entries: Entries::pack(context, fates, &texts, budget, is_tell),
        })
    }

    /// Adds the entries with conditions that the prompt tells. An entry about a death of which no line asked counts as
    /// told only by a text that shares a word with the entry.
    fn add_disclosures(&self, input: &TurnInput, trace: &TurnTrace, disclosures: &mut Disclosures) {
        let Some(lore) = &self.0 else { return };
        let is_told = |traced: &&LoreTrace| traced.shown_text.is_some() && traced.secrecy == Secrecy::Open;
        let told_lore = trace.lore.iter().filter(is_told);
        for traced in told_lore.filter(|traced| lore.is_conditional(&traced.entry)) {
            let lock = DisclosureLock::Lore {
                npc: input.npc.id.clone(),
                entry: traced.entry.clone(),
            };
            let locks: DisclosureLocks = [lock].into_iter().collect();
            match text_of_unasked_death(input, lore, traced) {
                Some(text) => disclosures.add_text(&text, &locks),
                None => disclosures.told_at_once.extend_with(&locks),
            }
        }
    }
}

/// Returns the whole text of an entry about a death of which no line asked. `None` also for an entry in another script
/// than the NPC's, which can share no word with a reply.
fn text_of_unasked_death(input: &TurnInput, lore: &FoundLore, traced: &LoreTrace) -> Option<String> {
    let is_korean = input.npc.language == Language::Ko;
    let text = lore
        .whole_text(&traced.entry)
        .filter(|_| lore.is_unasked_death(traced))?;
    (has_hangul(&text) == is_korean).then_some(text)
}

impl LoreSection<'_> {
    /// Returns the tells, or the texts that may be told.
    fn shown_texts(&self, are_tells: bool) -> impl Iterator<Item = Disclosable<String>> {
        let entries = self.entries.items.iter().filter(move |entry| entry.detail == are_tells);
        entries.map(|entry: &Entry<bool>| entry.text.clone())
    }
}

impl Section for LoreSection<'_> {
    fn tokens(&self) -> u32 {
        self.entries.tokens()
    }
    fn drop_least(&mut self) -> bool {
        self.entries.drop_last()
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        values.add_changing("lore", self.shown_texts(false).collect::<Disclosable<Vec<String>>>());
        values.tells.extend(self.shown_texts(true));
        Ok(())
    }

    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let dropped = self.entries.dropped;
        let size = SectionSize::new(
            "lore",
            self.tokens(),
            budgets.lore_tokens,
            dropped,
            "entries of the lore",
        );
        sizes.add_if_any(size, |hash| {
            for entry in &self.entries.items {
                hash.add_number(u32::from(entry.detail));
                hash.add_text(&entry.text);
            }
        });
    }

    fn add_trace(&self, trace: &mut TurnTrace) {
        let considered = self.hits.iter().zip(&self.entries.fates).enumerate();
        let traced = considered.map(|(index, (hit, fate))| LoreTrace {
            fate: *fate,
            shown_text: self.entries.shown_text(index),
            ..hit.trace.clone()
        });
        trace.lore = traced.collect();
    }
}

/// Renders what the prompt says of an entry: its content with the present state, or its tell.
fn render_entry(context: &PromptContext<'_>, open: OpenLore<'_>, hit: &LoreHit) -> Result<String, TurnError> {
    let text = match open {
        OpenLore::Whole(text) => text,
        OpenLore::Tell(tell) => return Ok(escape_untrusted(tell)),
    };
    let display_name = |name: &str| {
        if party::is_player(name) {
            PLAYER.to_owned()
        } else {
            escape_untrusted(name)
        }
    };
    let language = context.language();
    let optional = |text: &Option<String>| text.as_deref().map(escape_untrusted);
    let label = |word: &str| escape_untrusted(vocabulary::display_label(word, language));
    let now = hit.now.iter().map(|now| match now {
        LoreNow::Character { name, place, status } => context! {
            who => display_name(name), place => optional(place), status => status.as_deref().map(label), item => (),
        },
        LoreNow::Item { item, holder } => context! {
            who => display_name(holder), place => (), status => (), item => escape_untrusted(item),
        },
    });
    let now: Vec<Value> = now.collect();
    let remark = context.remark_for_knowers(&text.known_by.knowers());
    let entry_text = remark.add_to(context, escape_untrusted(&text.content))?;
    let values = context! { name => escape_untrusted(&text.name), content => entry_text, now };
    Ok(context.templates.render(language, Template::Lore, values)?)
}
