//! The dead of a world, as texts of a prompt name them.

use chrono::{DateTime, Utc};

use colloquy_memory::{
    lore::{is_named_in, names_person},
    party,
    state::WorldState,
};

/// A dead character of a world.
#[derive(Debug)]
pub(crate) struct DeadCharacter<'a> {
    pub(crate) name: &'a str,
    /// The [key](party::subject_key) of the name.
    key: String,
    /// `None`: unknown.
    died_at: Option<DateTime<Utc>>,
}

impl<'a> DeadCharacter<'a> {
    /// Collects the dead of a world, once for all texts of a prompt.
    pub(crate) fn find_in(state: &'a WorldState) -> Vec<Self> {
        let dead = state.dead_names().map(|name| Self {
            name,
            key: party::subject_key(name),
            died_at: state.characters.get(name).and_then(|character| character.status_since),
        });
        dead.collect()
    }

    /// True if the character is the subject, given with its key. "Bram's brother" is somebody else than Bram.
    pub(crate) fn is_subject(&self, subject: &str, key: &str) -> bool {
        self.key == key || is_named_in(subject, self.name) && !is_named_in(party::owner_part(subject), self.name)
    }

    /// True if a text names the character, not only as an owner ("Bram's finches").
    pub(crate) fn is_party_in(&self, text: &str) -> bool {
        // Most texts name nobody who is dead.
        if !text.contains(self.name) {
            return false;
        }
        let possessives = ["'s", "\u{2019}s", "의"].map(|mark| format!("{}{mark}", self.name));
        let rest = possessives
            .iter()
            .fold(text.to_owned(), |rest, possessive| rest.replace(possessive, " "));
        names_person(&rest, self.name)
    }

    pub(crate) fn lived_at(&self, moment: DateTime<Utc>) -> bool {
        self.died_at.is_none_or(|died_at| moment < died_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_word_names_nobody_who_is_dead() {
        let dead = DeadCharacter {
            name: "Will",
            key: party::subject_key("Will"),
            died_at: None,
        };
        for (text, is_party) in [
            ("The player brings Will salt.", true),
            ("The player will feed Will's finches.", false),
            ("The player will walk with Willow.", false),
        ] {
            assert_eq!(dead.is_party_in(text), is_party, "{text}");
        }
    }
}
