//! The things that a line gives to its speaker and to its listener: "my brother", "your boat", 내 동생, 당신의 배.

use std::collections::BTreeSet;

use super::{normal_text::normalise_text, query_terms};

/// Words before a thing of the speaker.
const SPEAKER_WORDS: [&str; 5] = ["my", "내", "제", "나의", "저의"];
/// Words before a thing of the listener.
const LISTENER_WORDS: [&str; 11] = [
    "your",
    "네",
    "니",
    "너의",
    "너희",
    "자네",
    "자네의",
    "당신",
    "당신의",
    "그대",
    "그대의",
];
/// Words before a thing that may belong to both.
const WORDS_OF_BOTH: [&str; 5] = ["our", "우리", "저희", "우리의", "저희의"];
/// Words for a thing that another word of the line names: "your brother or mine".
const WORDS_WITHOUT_THING: [&str; 2] = ["mine", "yours"];
/// Words before the noun "mine".
const ARTICLES: [&str; 3] = ["the", "a", "this"];
/// The number of words after an owner that may name the thing: "my dear old sister".
const MAX_NAMING_WORDS: usize = 3;

/// The person of a line who owns a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineOwner {
    Speaker,
    Listener,
}

/// The terms of the things that a line gives to its speaker and to its listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnedTerms {
    of_speaker: BTreeSet<u64>,
    of_listener: BTreeSet<u64>,
}

impl OwnedTerms {
    /// Finds the owned things of a line. A line with "mine" or "yours" has none, because it gives one thing to both.
    #[must_use]
    pub fn find_in(line: &str) -> Self {
        let mut owned_terms = Self::default();
        let mut of_speaker = false;
        let mut of_listener = false;
        let mut words_left = 0;
        let mut before = String::new();
        for token in line.split_whitespace() {
            let word = token.trim_matches(|c: char| !c.is_alphanumeric());
            let lower = normalise_text(word);
            let is = |words: &[&str]| words.contains(&lower.as_str());
            if is(&WORDS_WITHOUT_THING) && !ARTICLES.contains(&before.as_str()) {
                return Self::default();
            }
            // "네, 동생은" begins with "yes": a mark ends what an owner is said of.
            let goes_on = !word.is_empty() && token.ends_with(word);
            let by_both = is(&WORDS_OF_BOTH);
            let by_speaker = by_both || is(&SPEAKER_WORDS);
            let by_listener = by_both || is(&LISTENER_WORDS);
            if by_speaker || by_listener {
                (of_speaker, of_listener) = (by_speaker, by_listener);
                words_left = MAX_NAMING_WORDS;
            } else if words_left > 0 {
                words_left -= 1;
                let terms = query_terms(word).0;
                for (term, _) in terms {
                    if of_speaker {
                        owned_terms.of_speaker.insert(term);
                    }
                    if of_listener {
                        owned_terms.of_listener.insert(term);
                    }
                }
            }
            if !goes_on {
                words_left = 0;
            }
            before = lower;
        }
        owned_terms
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of_speaker.is_empty() && self.of_listener.is_empty()
    }

    /// The terms of `thing` that the line gives to the other person, and never to `owner`.
    #[must_use]
    pub fn of_other_than(&self, owner: LineOwner, thing: &str) -> BTreeSet<u64> {
        let (owner_terms, other_terms) = match owner {
            LineOwner::Speaker => (&self.of_speaker, &self.of_listener),
            LineOwner::Listener => (&self.of_listener, &self.of_speaker),
        };
        let terms = query_terms(thing).0.into_iter().map(|(term, _)| term);
        terms
            .filter(|term| other_terms.contains(term) && !owner_terms.contains(term))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_thing_belongs_to_the_speaker_or_the_listener() {
        for (line, thing, not_speakers, not_listeners) in [
            ("What did the clerk say to your brother?", "brother", true, false),
            ("Is your dear old brother's mill far?", "brother", true, false),
            ("Your BROTHER, where is he?", "brother", true, false),
            ("How is my brother?", "brother", false, true),
            ("How is my brother?", "sister", false, false),
            ("Does my brother know your brother?", "brother", false, false),
            ("Is it your brother or mine?", "brother", false, false),
            ("Is your brother in the mine?", "brother", true, false),
            ("Is our boat dry?", "boat", false, false),
            ("Is that yours? A brother has one.", "brother", false, false),
            ("I like your boat. Brother Oswin does too.", "brother", false, false),
            ("Where is the brother?", "brother", false, false),
            ("네 동생은 어디 살아?", "동생", true, false),
            ("당신의 남동생은 잘 지내나요?", "동생", true, false),
            ("당신 동생 이름이 뭐예요?", "여동생", true, false),
            ("제 여동생 기억하세요?", "동생", false, true),
            ("내 예쁜 동생 얘기야", "동생", false, true),
            ("네 동생이 내 동생을 알아?", "동생", false, false),
            ("우리 동생 말이야", "동생", false, false),
            ("네, 동생은 잘 지내요.", "동생", false, false),
            ("당신은 동생이 있나요?", "동생", false, false),
            ("", "brother", false, false),
        ] {
            let owned = OwnedTerms::find_in(line);
            let is_of_other = |owner| !owned.of_other_than(owner, thing).is_empty();
            assert_eq!(
                (is_of_other(LineOwner::Speaker), is_of_other(LineOwner::Listener)),
                (not_speakers, not_listeners),
                "{line}"
            );
        }
    }
}
