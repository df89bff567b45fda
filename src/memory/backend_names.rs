//! Items and places that replies do not change: those that conditions of authored content name. A player can persuade a
//! model to write anything into a state block, and must not open a secret by it
//! (docs/guides/world.md#whose-items).

use std::collections::BTreeSet;

use super::{
    attributes::AttributeAuthor, authored::WorldSettings, condition::Condition, disclosure::secrecy::Tell,
    keywords::normalise_text, unlock_rule::UnlockWhen,
};

/// Names of items and places, normalised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackendNames {
    /// Replies neither give nor take these.
    items: BTreeSet<String>,
    /// Replies bring nobody here.
    places: BTreeSet<String>,
    /// Replies take nobody away from here: a condition holds for those who are elsewhere.
    left_places: BTreeSet<String>,
}

impl BackendNames {
    /// The names in the settings of a world: in conditions of actions, and in rules of progress.
    #[must_use]
    pub fn in_settings(settings: &WorldSettings) -> Self {
        let mut names = Self::default();
        for action in settings.action_rules() {
            names.add_conditions(&action.when);
        }
        for rule in settings.unlock_rules() {
            match &rule.when {
                UnlockWhen::Item { item } => names.add_item(item),
                UnlockWhen::Location { location } => names.add_place(location, false),
                UnlockWhen::Met { .. } | UnlockWhen::Relationship { .. } => {}
            }
        }
        names
    }

    pub fn add_conditions(&mut self, conditions: &[Condition]) {
        for condition in conditions {
            self.add_condition(condition, false);
        }
    }

    /// Adds the conditions of a secret and of its tell.
    pub fn add_secret(&mut self, conditions: &[Condition], tell: Option<&Tell>) {
        self.add_conditions(conditions);
        self.add_conditions(tell.map_or(&[], |tell| tell.when.as_slice()));
    }

    fn add_condition(&mut self, condition: &Condition, is_negated: bool) {
        match condition {
            Condition::Item { item, .. } => self.add_item(item),
            Condition::Location { location, .. } => self.add_place(location, is_negated),
            Condition::Not { not } => self.add_condition(not, !is_negated),
            _ => {}
        }
    }

    fn add_item(&mut self, item: &str) {
        self.items.insert(normalise_text(item.trim()));
    }

    fn add_place(&mut self, place: &str, is_negated: bool) {
        let place = normalise_text(place.trim());
        if is_negated {
            self.left_places.insert(place.clone());
        }
        self.places.insert(place);
    }

    /// Adds the names of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.items.extend(other.items.iter().cloned());
        self.places.extend(other.places.iter().cloned());
        self.left_places.extend(other.left_places.iter().cloned());
    }

    /// Applies `changed_by` of a world, which decides over all conditions.
    pub fn apply_settings(&mut self, settings: &WorldSettings) {
        for (name, author) in settings.changed_by.iter().flatten() {
            let name = normalise_text(name.trim());
            for names in [&mut self.items, &mut self.places, &mut self.left_places] {
                match author {
                    AttributeAuthor::Backend => names.insert(name.clone()),
                    AttributeAuthor::Replies => names.remove(&name),
                };
            }
        }
    }

    #[must_use]
    pub fn has_item(&self, item: &str) -> bool {
        self.items.contains(&normalise_text(item.trim()))
    }

    #[must_use]
    pub fn has_place(&self, place: &str) -> bool {
        self.places.contains(&normalise_text(place.trim()))
    }

    /// True if a reply takes nobody away from the place.
    #[must_use]
    pub fn holds_people_at(&self, place: &str) -> bool {
        self.left_places.contains(&normalise_text(place.trim()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_of_content_actions_and_rules_name_items_and_places() {
        let settings: WorldSettings = serde_json::from_value(json!({
            "actions": [{"name": "open", "description": "Opens.", "when": [{"item": "Cellar Key"}]}],
            "unlocks": [{"npc": "mira", "progress": 1, "when": {"location": "Tower"}},
                {"npc": "mira", "progress": 2, "when": {"met": "Bram"}}],
            "changed_by": {"lantern": "replies", "gold": "backend"},
        }))
        .unwrap();
        let mut names = BackendNames::in_settings(&settings);
        let when: Vec<Condition> = serde_json::from_value(json!([{"item": "lantern"}, {"not": {"location": "Mill"}},
            {"not": {"not": {"location": "Inn"}}}, {"met": "Otto"}]))
        .unwrap();
        let tell: Tell = serde_json::from_value(json!({"text": "You blush.", "when": [{"item": "ring"}]})).unwrap();
        let mut of_content = BackendNames::default();
        of_content.add_secret(&when, Some(&tell));
        assert!(of_content.has_item("lantern"));
        names.extend(&of_content);
        names.apply_settings(&settings);
        for item in ["cellar key", " CELLAR key", "ring", "gold"] {
            assert!(names.has_item(item), "{item}");
        }
        for item in ["lantern", "bram", "otto", "keys"] {
            assert!(!names.has_item(item), "{item}");
        }
        for (place, is_held) in [("tower", false), ("mill", true), ("inn", false)] {
            assert_eq!(names.holds_people_at(place), is_held, "{place}");
        }
        for place in ["Tower", "Mill", "inn", "gold"] {
            assert!(names.has_place(place), "{place}");
        }
    }
}
