//! Compares two sentences about one person under different names.

use super::NameAliases;
use crate::{keywords, party};

/// Replaces the names of the sentence's subject.
const SUBJECT_MARK: &str = "\u{1}";
/// Particles that depend on the sound before them, and the common form.
const PARTICLE_FORMS: [(&str, &str); 5] = [("은", "는"), ("이", "가"), ("을", "를"), ("과", "와"), ("으로", "로")];

impl NameAliases {
    /// A [`keywords::sentence_key`] in which all names of the subject are equal. "Anna lives in Thornwick" and "The
    /// player's sister lives in Thornwick" give the same key.
    #[must_use]
    pub fn sentence_key_for(&self, subject: &str, text: &str) -> String {
        let gist = keywords::sentence_key(text);
        let key = party::subject_key(subject);
        let Some(group) = self.0.iter().find(|group| group.contains_key(&key)) else {
            return gist;
        };
        let mut names: Vec<String> = group
            .values()
            .map(|name| keywords::sentence_key(&party::plain_name(name)))
            .collect();
        // A longer name may begin with a shorter name.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let words: Vec<&str> = gist.split(' ').collect();
        let mut key_words: Vec<String> = Vec::with_capacity(words.len());
        let mut rest = words.as_slice();
        while let Some((word, tail)) = rest.split_first() {
            let name_match = names.iter().find_map(|name| split_after_name(rest, name));
            if let Some((particle, tail)) = name_match {
                key_words.push(format!("{SUBJECT_MARK}{particle}"));
                rest = tail;
            } else {
                key_words.push((*word).to_owned());
                rest = tail;
            }
        }
        key_words.join(" ")
    }
}

/// The particle of a name at the start of `words`, and the words after the name.
fn split_after_name<'w, 's>(words: &'w [&'s str], name: &str) -> Option<(&'s str, &'w [&'s str])> {
    let name: Vec<&str> = name.split(' ').collect();
    let (last, first) = name.split_last()?;
    if name.len() > words.len() || words[..first.len()] != *first {
        return None;
    }
    let word = words[first.len()];
    let tail = &words[name.len()..];
    let particle = word.strip_prefix(last)?;
    let is_name = particle.is_empty() || keywords::matches_name(word, last);
    is_name.then(|| (unified_particle(particle), tail))
}

/// The form of a particle after any name: 서연이가 and 누나가 give the same particle.
fn unified_particle(particle: &str) -> &str {
    // After a consonant, a name itself takes 이.
    let bare = particle
        .strip_prefix('이')
        .filter(|bare| !bare.is_empty())
        .unwrap_or(particle);
    PARTICLE_FORMS
        .iter()
        .find_map(|(form, other)| (*form == bare).then_some(*other))
        .unwrap_or(bare)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{NameAssertion, tests::told},
        *,
    };

    #[test]
    fn sentences_about_one_person_are_equal_under_any_name() {
        let names = NameAliases::from_assertions(&[
            told("player:p7's sister", "Anna"),
            told("player:p7의 누나", "서연"),
            NameAssertion {
                authored: true,
                ..told("Captain Vale", "the crow")
            },
        ]);
        for (subject, sentence, other) in [
            (
                "Anna",
                "Anna lives in Thornwick.",
                "The player's sister lives in Thornwick",
            ),
            (
                "player:p7's sister",
                "Anna's shop is near.",
                "The player\u{2019}s sister's shop is near.",
            ),
            ("서연", "서연은 부산에 산다.", "플레이어의 누나는 부산에 산다."),
            ("서연", "에르겐은 서연이를 안다.", "에르겐은 플레이어의 누나를 안다"),
            ("the crow", "The crow stole it.", "Captain Vale stole it."),
        ] {
            assert_eq!(
                names.sentence_key_for(subject, sentence),
                names.sentence_key_for(subject, other),
                "{sentence}"
            );
        }
        for (subject, sentence, other) in [
            ("Anna", "Anna lives in Thornwick.", "Annabel lives in Thornwick."),
            ("Clara", "Anna lives here.", "The player's sister lives here."),
            ("서연", "서연이 에르겐을 안다.", "에르겐은 누나를 안다."),
            ("Anna", "Anna knows Captain Vale.", "Anna knows the crow."),
        ] {
            assert_ne!(
                names.sentence_key_for(subject, sentence),
                names.sentence_key_for(subject, other),
                "{sentence}"
            );
        }
    }
}
