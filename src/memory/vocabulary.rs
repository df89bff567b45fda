//! The lists of words in a world's state: moods, kinds of relationships, and statuses.
//!
//! Everybody in a world sees the same state. A mood in free words ("worried: Alice is pregnant") would show all players
//! the private words of one player. A relationship in free words would become many relationships. State therefore has
//! only words of a list. The text of a model is mapped to the list, or left out.

mod words;

use std::collections::BTreeMap;

use super::{authored::WorldSettings, keywords::normalise_text, language::Language};

/// Limits of one list: its words, and Unicode scalar values of a word.
pub const MAX_WORDS: usize = 40;
pub const MAX_WORD_CHARS: usize = 32;
/// Most synonyms of one world.
pub const MAX_SYNONYMS: usize = 200;
/// The default kind of a relationship, if the world lists this kind.
const PLAIN_KIND: &str = "affection";
/// The status of the dead, who are near nobody and do not act. In the list of every world.
pub const DEAD: &str = "dead";
/// The status of a character before the first change.
pub const ALIVE: &str = "alive";

/// The lists of one world. Words are stored normalised: lower case, one blank between words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary {
    moods: Vec<String>,
    kinds: Vec<String>,
    /// With [`DEAD`].
    statuses: Vec<String>,
    /// The world's own synonyms, from a word to a mood or a kind. They have precedence over the built-in synonyms.
    synonyms: BTreeMap<String, String>,
}

impl Default for Vocabulary {
    fn default() -> Self {
        Self::from_settings(&WorldSettings::default())
    }
}

impl Vocabulary {
    /// The lists that a world sets, or the defaults.
    #[must_use]
    pub fn from_settings(settings: &WorldSettings) -> Self {
        let words_or_default = |list: &Option<Vec<String>>, default: &[words::VocabularyWord]| match list {
            Some(list) => list.iter().map(|word| normalise_word(word)).collect(),
            None => default.iter().map(|word| word.key.to_owned()).collect(),
        };
        let synonyms = settings.synonyms.iter().flatten();
        let mut statuses: Vec<String> = words_or_default(&settings.statuses, &words::STATUSES);
        if !statuses.iter().any(|status| status == DEAD) {
            statuses.push(DEAD.to_owned());
        }
        Self {
            statuses,
            moods: words_or_default(&settings.moods, &words::MOODS),
            kinds: words_or_default(&settings.relationship_kinds, &words::KINDS),
            synonyms: synonyms
                .map(|(from, to)| (normalise_word(from), normalise_word(to)))
                .collect(),
        }
    }

    /// The first listed mood that `text` names. The result contains no other part of `text`.
    #[must_use]
    pub fn mood_named(&self, text: &str) -> Option<&str> {
        self.first_named(&self.moods, &words::MOODS, text)
    }

    /// The listed status that is the whole of `text`, or that a single word means. "Almost dead" is no status.
    #[must_use]
    pub fn status_named(&self, text: &str) -> Option<&str> {
        let word = normalise_word(text);
        let is_whole = self.statuses.contains(&word) || self.synonyms.contains_key(&word) || !word.contains(' ');
        is_whole.then(|| self.first_named(&self.statuses, &words::STATUSES, &word))?
    }

    #[must_use]
    pub fn kind_named(&self, text: &str) -> Option<&str> {
        self.first_named(&self.kinds, &words::KINDS, text)
    }

    /// The kind of a relationship without a stated kind.
    #[must_use]
    pub fn default_kind(&self) -> Option<&str> {
        let default_kind = self.kinds.iter().find(|kind| *kind == PLAIN_KIND);
        default_kind.or_else(|| self.kinds.first()).map(String::as_str)
    }

    /// The list of moods as a prompt in `language` shows it.
    #[must_use]
    pub fn moods_in(&self, language: Language) -> Vec<&str> {
        self.moods.iter().map(|mood| display_label(mood, language)).collect()
    }

    /// The list of statuses as a prompt in `language` shows it.
    #[must_use]
    pub fn statuses_in(&self, language: Language) -> Vec<&str> {
        let statuses = self.statuses.iter();
        statuses.map(|status| display_label(status, language)).collect()
    }

    /// The kinds of relationships as a prompt in `language` shows them.
    #[must_use]
    pub fn kinds_in(&self, language: Language) -> Vec<&str> {
        self.kinds.iter().map(|kind| display_label(kind, language)).collect()
    }

    /// True if a list contains `word`, ignoring case.
    #[must_use]
    pub fn contains_word(&self, word: &str) -> bool {
        let word = normalise_word(word);
        [&self.moods, &self.kinds, &self.statuses]
            .into_iter()
            .any(|list| list.contains(&word))
    }

    fn first_named<'a>(
        &'a self,
        list: &'a [String],
        built_in: &[words::VocabularyWord],
        text: &str,
    ) -> Option<&'a str> {
        let text = normalise_word(text);
        if let Some(exact) = list.iter().find(|word| **word == text) {
            return Some(exact);
        }
        let text_words: Vec<&str> = text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        (0..text_words.len())
            .filter(|index| !is_denied(&text_words, *index))
            .find_map(|index| self.listed_prefix(list, built_in, &text_words[index..]))
    }

    fn listed_prefix<'a>(
        &'a self,
        list: &'a [String],
        built_in: &[words::VocabularyWord],
        text_words: &[&str],
    ) -> Option<&'a str> {
        let listed = |key: &str| list.iter().find(|word| *word == key);
        let synonym = self
            .synonyms
            .iter()
            .filter(|(word, _)| starts_with_word(text_words, word));
        // The longest synonym is the most specific.
        let synonym = synonym
            .max_by_key(|(word, _)| word.len())
            .and_then(|(_, key)| listed(key));
        let listed_word = || {
            list.iter()
                .filter(|word| starts_with_word(text_words, word))
                .max_by_key(|word| word.len())
        };
        let built_in = || {
            built_in
                .iter()
                .find(|word| word.is_meant_by(text_words))
                .and_then(|word| listed(word.key))
        };
        synonym.or_else(listed_word).or_else(built_in).map(String::as_str)
    }
}

/// A kind of relationship as stored in state: in lower case, with common Korean words as the matching English words.
/// Unlisted words stay unchanged, because older builds stored the words of models.
#[must_use]
pub fn stored_kind(kind: &str) -> String {
    let kind = normalise_word(kind);
    if kind.is_ascii() {
        return kind;
    }
    let kind_word = words::KINDS.iter().find(|word| word.korean.contains(&kind.as_str()));
    kind_word.map_or(kind, |word| word.key.to_owned())
}

/// A built-in word as a prompt in `language` shows it. Other words are shown unchanged.
#[must_use]
pub fn display_label(word: &str, language: Language) -> &str {
    let label_word = || {
        words::MOODS
            .iter()
            .chain(&*words::KINDS)
            .chain(&*words::STATUSES)
            .find(|entry| entry.key == word)
    };
    match language {
        Language::En => word,
        Language::Ko => label_word()
            .and_then(|entry| entry.korean.first().copied())
            .unwrap_or(word),
    }
}

fn normalise_word(word: &str) -> String {
    let word = normalise_text(word);
    let words = word
        .split(|c: char| c.is_whitespace() || c == '_')
        .filter(|part| !part.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// True if `text_words` begins with the word or words of `word`. Korean words may have endings.
fn starts_with_word(text_words: &[&str], word: &str) -> bool {
    let mut text_words = text_words.iter();
    let mut parts = word
        .split(|c: char| !c.is_alphanumeric())
        .filter(|part| !part.is_empty())
        .peekable();
    parts.peek().is_some()
        && parts.all(|part| {
            text_words
                .next()
                .is_some_and(|next| *next == part || (!part.is_ascii() && next.starts_with(part)))
        })
}

/// True if the word at `index` is denied: "not happy", "isn't happy", "안 기쁘다", "기쁘지 않다", "걱정 없음".
fn is_denied(text_words: &[&str], index: usize) -> bool {
    let before = index.checked_sub(1).map(|before| text_words[before]);
    let after = text_words.get(index + 1);
    let denied = |next: &&str| {
        next.starts_with("없")
            || (text_words[index].ends_with('지') && (next.starts_with("않") || next.starts_with("못")))
    };
    before.is_some_and(|word| matches!(word, "not" | "no" | "never" | "hardly" | "without" | "t" | "안" | "못"))
        || after.is_some_and(denied)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn world(change: impl FnOnce(&mut WorldSettings)) -> Vocabulary {
        let mut settings = WorldSettings::default();
        change(&mut settings);
        Vocabulary::from_settings(&settings)
    }

    #[test]
    fn mood_is_a_word_of_the_list() {
        let vocabulary = Vocabulary::default();
        for (said, mood) in [
            ("worried", Some("worried")),
            ("Worried: alice is secretly pregnant", Some("worried")),
            ("alice is secretly pregnant", None),
            ("a little worried about the player's debt", Some("worried")),
            ("glad", Some("happy")),
            ("not happy, rather sad", Some("sad")),
            ("isn't angry", None),
            ("warm and curious", Some("happy")),
            ("걱정스러움: 앨리스가 임신했다", Some("worried")),
            ("앨리스가 임신했다", None),
            ("기쁨", Some("happy")),
            ("기뻐하며 들떠 있음", Some("happy")),
            ("기쁘지 않다", None),
            ("걱정 없음", None),
            ("안 무섭다", None),
            ("차분함", Some("calm")),
            ("", None),
        ] {
            assert_eq!(vocabulary.mood_named(said), mood, "{said}");
        }
    }

    #[test]
    fn status_is_a_whole_word_of_the_list() {
        let vocabulary = Vocabulary::default();
        for (said, status) in [
            ("Dead", Some("dead")),
            ("killed", Some("dead")),
            ("죽었다", Some("dead")),
            ("almost dead", None),
            ("죽은 척", None),
            ("left wounded", None),
            ("purple", None),
        ] {
            assert_eq!(vocabulary.status_named(said), status, "{said}");
        }
        let own = world(|settings| settings.statuses = Some(vec!["Turned to stone".to_owned()]));
        assert_eq!(own.status_named("turned to stone"), Some("turned to stone"));
        assert_eq!(own.status_named("dead"), Some(DEAD), "in every world");
    }

    #[test]
    fn kind_is_one_in_any_spelling() {
        let vocabulary = Vocabulary::default();
        for (said, kind) in [
            ("trust", Some("trust")),
            ("Trust", Some("trust")),
            ("신뢰", Some("trust")),
            ("신뢰도", Some("trust")),
            ("호감", Some("affection")),
            ("호감도", Some("affection")),
            ("애정", Some("affection")),
            ("affinity", Some("affection")),
            ("hostile", Some("hostility")),
            ("빚", Some("debt")),
            ("knows that alice is pregnant", None),
            ("앨리스의 비밀", None),
        ] {
            assert_eq!(vocabulary.kind_named(said), kind, "{said}");
        }
        assert_eq!(vocabulary.default_kind(), Some("affection"));
    }

    #[test]
    fn world_has_its_own_lists_and_synonyms() {
        let own = world(|settings| {
            settings.moods = Some(vec!["Deeply moved".to_owned(), "무덤덤".to_owned()]);
            settings.relationship_kinds = Some(vec!["Honor".to_owned(), "trust".to_owned()]);
            let synonyms = [("명예", "honor"), ("touched", "deeply moved"), ("신뢰", "honor")];
            settings.synonyms = Some(synonyms.map(|(from, to)| (from.to_owned(), to.to_owned())).into());
        });
        assert_eq!(own.mood_named("so deeply moved by it"), Some("deeply moved"));
        assert_eq!(own.mood_named("touched"), Some("deeply moved"));
        assert_eq!(own.mood_named("무덤덤하다"), Some("무덤덤"));
        assert_eq!(own.mood_named("happy"), None, "not in this world");
        assert_eq!(own.kind_named("명예심"), Some("honor"));
        assert_eq!(own.kind_named("신뢰"), Some("honor"), "the world's word comes first");
        assert_eq!(own.kind_named("love"), None);
        assert_eq!(own.default_kind(), Some("honor"));
        assert!(own.contains_word("HONOR") && !own.contains_word("fear"));
    }

    #[test]
    fn stored_kind_folds_case_and_korean_without_loss() {
        for (written, kept) in [
            ("Trust", "trust"),
            ("trust ", "trust"),
            ("신뢰", "trust"),
            ("Blood_Oath", "blood oath"),
            ("피의 맹세", "피의 맹세"),
            ("affinity", "affinity"),
        ] {
            assert_eq!(stored_kind(written), kept);
            assert_eq!(stored_kind(kept), kept, "again");
        }
    }

    #[test]
    fn builtin_words_are_distinct_and_round_trip() {
        let vocabulary = Vocabulary::default();
        for word in &*words::MOODS {
            assert_eq!(
                vocabulary.mood_named(display_label(word.key, Language::Ko)),
                Some(word.key)
            );
            for said in word.english.iter().chain(&word.korean) {
                assert_eq!(vocabulary.mood_named(said), Some(word.key), "{said}");
            }
        }
        for word in &*words::STATUSES {
            for said in word.english.iter().chain(&word.korean) {
                assert_eq!(vocabulary.status_named(said), Some(word.key), "{said}");
            }
        }
        for word in &*words::KINDS {
            for said in word.english.iter().chain(&word.korean) {
                assert_eq!(vocabulary.kind_named(said), Some(word.key), "{said}");
            }
        }
    }
}
