//! The relationships of a state block.

use std::collections::HashMap;

use super::{
    super::{
        flow::BlockValue,
        values::{clean_line, clip_chars, field_text, is_nothing, whole_number},
    },
    StateBlockReader,
};
use crate::state::StateChange;

/// The key of the list in a block.
const KEY: &str = "relationship_changes";

impl StateBlockReader<'_> {
    pub(super) fn read_relationships(&mut self, value: &BlockValue) {
        let listed = if matches!(value, BlockValue::Map(_)) {
            vec![value.clone()]
        } else {
            self.list_items(KEY, value)
        };
        // The limit holds per relationship and turn, over all entries of a block.
        let mut totals: HashMap<(String, String, String), i32> = HashMap::new();
        for change in listed {
            let BlockValue::Map(map) = change else {
                if !matches!(&change, BlockValue::Text(text) if is_nothing(text)) {
                    self.add_rejection(format!("an entry of `{KEY}` must have from, to, type and delta"));
                }
                continue;
            };
            let from = field_text(&map, &["from"]).unwrap_or_else(|| self.speaker.to_owned());
            let to = field_text(&map, &["to"]).unwrap_or_default();
            let kind = field_text(&map, &["type", "kind"]).filter(|kind| !is_nothing(kind));
            let Some(delta) = field_text(&map, &["delta", "change"]).and_then(|text| whole_number(&text)) else {
                self.add_rejection(format!("`delta` in `{KEY}` must be a number"));
                continue;
            };
            let (Some(from), Some(to)) = (self.checked_person(KEY, &from), self.checked_person(KEY, &to)) else {
                continue;
            };
            if self.is_out_of_play(&from) {
                self.add_rejection(format!("`{}` in `{KEY}` is dead", clip_chars(&from, 64)));
                continue;
            }
            let Some(kind) = self.checked_kind(kind.as_deref()) else {
                continue;
            };
            if from == to {
                self.add_rejection(format!("`{from}` cannot have a relationship with itself"));
                continue;
            }
            let key = (from, to, kind);
            let before = totals.get(&key).copied().unwrap_or_default();
            let total = before.saturating_add(delta);
            let after = self.clamp_and_report("delta", total, self.rules.max_relationship_delta);
            totals.insert(key.clone(), after);
            if after != before {
                let (from, to, kind) = key;
                self.out.changes.push(StateChange::Relationship {
                    from,
                    to,
                    kind,
                    delta: after - before,
                });
            }
        }
    }

    /// A kind of relationship of the world; without a kind in the block, the world's default.
    fn checked_kind(&mut self, kind: Option<&str>) -> Option<String> {
        let vocabulary = &self.rules.vocabulary;
        let listed_kind = match kind {
            Some(kind) => vocabulary.kind_named(&clean_line(kind)),
            None => vocabulary.default_kind(),
        };
        let listed_kind = listed_kind.map(str::to_owned);
        if listed_kind.is_none() {
            // The rejection does not repeat the kind's text, which may be private.
            self.add_rejection(format!(
                "the `type` of an entry of `{KEY}` is no kind of relationship of this world"
            ));
        }
        listed_kind
    }
}
