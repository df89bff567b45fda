//! What no insight of a pass may tell, because the pass has not read it: where those are who do not take part, and what
//! they carry of the items that replies do not change. Other items are on everybody, and a word such as "rope" gives
//! nothing away.

use std::collections::BTreeSet;

use super::world_state::participant_check;
use crate::{Services, npc_conversation::SceneMember, turn::backend_names_of};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{authored::Npc, keywords::informative_terms, lore::NameIndex, state::WorldState, turn::Turn};
use colloquy_ports::{StoreError, StoreResult, ledger::jobs::JobInput};

/// Places and items that may be hidden from a pass.
pub(super) struct HiddenValues {
    values: Vec<String>,
    /// Finds the values in a text, by their positions in `values`.
    names: NameIndex,
    /// The values that the lines name as they are written.
    said_values: BTreeSet<usize>,
    /// The informative terms of the lines. They also name "key" if a line has "keys".
    said_terms: BTreeSet<u32>,
}

impl HiddenValues {
    /// Returns the values that nobody who takes part has.
    pub(super) async fn load(
        services: &Services,
        scope: &TenantScope,
        job_input: &JobInput,
        cast: &[(SceneMember, Option<Npc>)],
        present: &WorldState,
        turns: &[Turn],
    ) -> StoreResult<Self> {
        let backend_names = backend_names_of(services, scope, &job_input.world).await?;
        let takes_part = participant_check(job_input, cast);
        let mut known_values: BTreeSet<&str> = BTreeSet::new();
        let mut hidden: BTreeSet<&str> = BTreeSet::new();
        let mut items: BTreeSet<&str> = BTreeSet::new();
        for (name, character) in &present.characters {
            let place = character.location.iter();
            let carried = character.items.keys();
            if takes_part(name) {
                known_values.extend(place.chain(carried).map(String::as_str));
            } else {
                hidden.extend(place.map(String::as_str));
                items.extend(carried.map(String::as_str));
            }
        }
        items.retain(|item| backend_names.has_item(item));
        hidden.append(&mut items);
        hidden.retain(|value| !known_values.contains(value));
        let lines = turns
            .iter()
            .flat_map(|turn| [turn.player_text.as_str(), turn.reply_text.as_str()]);
        Self::new(&hidden, lines)
    }

    fn new<'l>(values: &BTreeSet<&str>, lines: impl Iterator<Item = &'l str>) -> StoreResult<Self> {
        let names = values.iter().enumerate().map(|(index, value)| (*value, index, false));
        let names = NameIndex::build(names).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let mut said_values = BTreeSet::new();
        let mut said_terms = BTreeSet::new();
        for line in lines {
            names.find_in(line, |index, _| {
                said_values.insert(index);
            });
            said_terms.extend(informative_terms(line));
        }
        Ok(Self {
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            names,
            said_values,
            said_terms,
        })
    }

    /// True if a text names a value that no line names.
    pub(super) fn are_told_by(&self, text: &str) -> bool {
        let mut is_told = false;
        self.names.find_in(text, |index, _| is_told |= !self.is_said(index));
        is_told
    }

    fn is_said(&self, index: usize) -> bool {
        let terms = informative_terms(&self.values[index]);
        self.said_values.contains(&index) || !terms.is_empty() && terms.is_subset(&self.said_terms)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn value_that_lines_name_in_any_form_is_not_hidden() {
        let values = BTreeSet::from(["key", "old mill", "swamp", "방앗간"]);
        let lines = ["I keep the keys to the mill.", "It is an old one. 방앗간에서 봐요."];
        let hidden = HiddenValues::new(&values, lines.into_iter()).unwrap();
        for (text, is_told) in [
            ("The player hides a key from the warden.", false),
            ("The player sleeps in the old mill.", false),
            ("Krug hides in the swamp.", true),
            ("Swamps frighten the player.", false),
            ("플레이어는 방앗간을 싫어한다.", false),
            ("", false),
        ] {
            assert_eq!(hidden.are_told_by(text), is_told, "{text}");
        }
    }
}
