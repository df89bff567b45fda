//! The data of the scripted model: words with broader categories, word lists, sentence patterns, question and intent
//! patterns, and phrases. All data are tab-separated files in `config/lexicon/{en,ko}`. This module reads the files,
//! and has no knowledge of a language.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use regex::{Regex, RegexBuilder};

use super::korean;
use colloquy_memory::{
    authored::Language,
    fact::{FactKind, Polarity, Tense},
};

/// A sentence pattern, and the claim which a match yields.
pub(super) struct Pattern {
    /// The class of the claim (`like`, `name`, …). Questions search by class.
    pub class: String,
    pub regex: Regex,
    /// The predicate and the sentence, with placeholders (see `render`).
    pub predicate: String,
    pub content: String,
    pub kind: FactKind,
    pub polarity: Polarity,
    pub tense: Tense,
    pub importance: u8,
    pub keywords: Vec<String>,
    /// Conditions on the object and the subject, checked after the match (see `ClaimReader::is_allowed`).
    pub needs: Vec<String>,
}

/// One language's data.
#[derive(Default)]
pub(super) struct Lexicon {
    pub language: Language,
    /// Word → broader categories, narrowest first.
    terms: HashMap<String, Vec<String>>,
    /// All words that are categories of other words.
    categories: HashSet<String>,
    /// Inflected form → listed form.
    singular: HashMap<String, String>,
    lists: HashMap<String, Vec<String>>,
    macros: HashMap<String, String>,
    replacements: Vec<(Regex, String)>,
    pub patterns: Vec<Pattern>,
    /// Question pattern → classes of claims.
    pub questions: Vec<(Regex, Vec<String>)>,
    /// Intent name → pattern of its lines, in order.
    intents: Vec<(String, Regex)>,
    /// Occasion → pattern of its lines, in order.
    pub occasions: Vec<(&'static str, Regex)>,
    phrases: HashMap<String, Vec<String>>,
    aliases: HashMap<String, String>,
}

macro_rules! data {
    ($language:literal, $file:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../config/lexicon/",
            $language,
            "/",
            $file
        ))
    };
}

macro_rules! sources {
    ($language:literal) => {
        [
            data!($language, "terms.tsv"),
            data!($language, "lists.tsv"),
            data!($language, "patterns.tsv"),
            data!($language, "replacements.tsv"),
            data!($language, "questions.tsv"),
            data!($language, "intents.tsv"),
            data!($language, "occasions.tsv"),
            data!($language, "phrases.tsv"),
        ]
    };
}

static ENGLISH: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::from_sources(Language::En, sources!("en")));
static KOREAN: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::from_sources(Language::Ko, sources!("ko")));

/// Returns the data of one language.
pub(super) fn lexicon_of(language: Language) -> &'static Lexicon {
    match language {
        Language::En => &ENGLISH,
        Language::Ko => &KOREAN,
    }
}

/// Returns the language of a text by its letters: Korean for Hangul syllables, or for Hangul letters without Latin
/// letters. A laugh ("ㅋㅋ") beside English words is therefore English.
pub(super) fn language_of(text: &str) -> Language {
    let latin = || text.chars().any(|c| c.is_ascii_alphabetic());
    if text.chars().any(korean::is_syllable) || text.chars().any(korean::is_hangul) && !latin() {
        Language::Ko
    } else {
        Language::En
    }
}

fn split_rows(source: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    source
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
}

fn split_entries(cell: &str) -> Vec<String> {
    cell.split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .map(str::to_owned)
        .collect()
}

impl Lexicon {
    /// Reads embedded data. A fault in the data is a defect of this build, and every test of this module would show the
    /// fault. The function therefore panics with the file's line instead of continuing with half a lexicon.
    fn from_sources(language: Language, sources: [&'static str; 8]) -> Self {
        let [
            terms,
            lists,
            patterns,
            replacements,
            questions,
            intents,
            occasions,
            phrases,
        ] = sources;
        let mut this = Self {
            language,
            ..Self::default()
        };
        this.read_terms(terms);
        for row in split_rows(lists) {
            match (row[0].strip_prefix("macro."), row.get(1)) {
                (Some(name), Some(value)) => drop(this.macros.insert(name.to_owned(), (*value).to_owned())),
                (None, Some(value)) => drop(this.lists.insert(row[0].to_owned(), split_entries(value))),
                (_, None) => panic!("lists.tsv: `{}` has no entries", row[0]),
            }
        }
        this.aliases = this
            .word_list("aliases")
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .map(|(from, to)| (from.to_owned(), to.to_owned()))
            .collect();
        for row in split_rows(replacements) {
            this.replacements.push((this.compile_regex(row[0]), row[1].to_owned()));
        }
        for row in split_rows(patterns) {
            let pattern = this.parse_pattern(&row);
            this.patterns.push(pattern);
        }
        for row in split_rows(questions) {
            this.questions.push((this.compile_regex(row[0]), split_entries(row[1])));
        }
        for row in split_rows(intents) {
            this.intents.push((row[0].to_owned(), this.compile_regex(row[1])));
        }
        for row in split_rows(occasions) {
            this.occasions.push((row[0], this.compile_regex(row[1])));
        }
        for row in split_rows(phrases) {
            let variants = this.phrases.entry(row[0].to_owned()).or_default();
            variants.push(row[1].to_owned());
        }
        this
    }

    fn read_terms(&mut self, source: &'static str) {
        for row in split_rows(source) {
            let categories = split_entries(row[0]);
            for word in split_entries(row[1]) {
                let (singular, plural) = match word.split_once('/') {
                    Some((singular, plural)) => (singular.to_owned(), Some(plural.to_owned())),
                    None if self.language == Language::En => (word.clone(), Some(plural_of(&word))),
                    None => (word.clone(), None),
                };
                if let Some(plural) = plural.filter(|plural| *plural != singular) {
                    self.singular.entry(plural).or_insert_with(|| singular.clone());
                }
                let known_categories = self.terms.entry(singular).or_default();
                for category in &categories {
                    if !known_categories.contains(category) {
                        known_categories.push(category.clone());
                    }
                }
            }
            self.categories.extend(categories);
        }
        // A listed word is singular, even if it looks like a plural ("glasses").
        self.singular.retain(|plural, _| !self.terms.contains_key(plural));
    }

    fn compile_regex(&self, source: &str) -> Regex {
        let expanded = self.expand_macros(source);
        RegexBuilder::new(&expanded)
            .case_insensitive(self.language == Language::En)
            .build()
            .unwrap_or_else(|error| panic!("lexicon pattern `{source}`: {error}"))
    }

    fn expand_macros(&self, source: &str) -> String {
        regex!(NAME, "@([A-Z]+)");
        let mut text = source.to_owned();
        while NAME.is_match(&text) {
            text = NAME
                .replace_all(&text, |captures: &regex::Captures| {
                    self.macros
                        .get(&captures[1])
                        .unwrap_or_else(|| panic!("lexicon pattern `{source}`: no macro @{}", &captures[1]))
                        .clone()
                })
                .into_owned();
        }
        text
    }

    fn parse_pattern(&self, row: &[&'static str]) -> Pattern {
        assert!(row.len() >= 9, "patterns.tsv: a column is missing in {row:?}");
        Pattern {
            class: row[0].to_owned(),
            regex: self.compile_regex(&format!("^(?:{})$", row[1])),
            predicate: row[2].to_owned(),
            content: row[3].to_owned(),
            kind: FactKind::parse_lenient(row[4]),
            polarity: if row[5] == "-" {
                Polarity::Negative
            } else {
                Polarity::Positive
            },
            tense: match row[6] {
                "past" => Tense::Past,
                "future" => Tense::Future,
                _ => Tense::Present,
            },
            importance: row[7]
                .parse()
                .unwrap_or_else(|_| panic!("patterns.tsv: importance in {row:?}")),
            keywords: split_entries(row[8]),
            needs: row
                .get(9)
                .map(|needs| needs.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
        }
    }

    /// Returns a named word list; empty if the name is unknown.
    pub fn word_list(&self, name: &str) -> &[String] {
        self.lists.get(name).map_or(&[], Vec::as_slice)
    }

    /// True if the list `name` contains `word`.
    pub fn is_in_list(&self, name: &str, word: &str) -> bool {
        self.word_list(name).iter().any(|entry| entry == word)
    }

    /// True if a macro that is a plain enumeration has the word.
    fn is_alternative(&self, name: &str, word: &str) -> bool {
        let alternatives = self.macros.get(name).map_or("", String::as_str);
        alternatives.split('|').any(|form| form == word)
    }

    /// True if a lower-case line has an intent.
    pub fn has_intent(&self, name: &str, line: &str) -> bool {
        let mut intents = self.intents.iter();
        intents.any(|(intent, pattern)| intent == name && pattern.is_match(line))
    }

    /// True if the word is a form of "I" or "me".
    pub fn is_me(&self, word: &str) -> bool {
        self.is_alternative("ME", word)
    }

    /// True if the word is a form of "you".
    pub fn is_you(&self, word: &str) -> bool {
        self.is_alternative("YOU", word)
    }

    /// Returns the variants of a phrase; empty if the name is unknown.
    pub fn phrase_variants(&self, name: &str) -> &[String] {
        self.phrases.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns every phrase of every occasion.
    #[cfg(test)]
    pub fn all_phrases(&self) -> impl Iterator<Item = &str> {
        self.phrases.values().flatten().map(String::as_str)
    }

    /// Expands contractions and corrects common misspellings.
    pub fn normalise_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (pattern, replacement) in &self.replacements {
            if pattern.is_match(&text) {
                text = pattern.replace_all(&text, replacement.as_str()).into_owned();
            }
        }
        text
    }

    /// Returns the listed form of a word ("grapes" → "grape"), or the word itself.
    pub fn listed_form<'a>(&'a self, word: &'a str) -> &'a str {
        let word = self.aliases.get(word).map_or(word, String::as_str);
        self.singular.get(word).map_or(word, String::as_str)
    }

    /// Returns the broader categories of a word, narrowest first.
    pub fn categories_of(&self, word: &str) -> &[String] {
        self.terms.get(self.listed_form(word)).map_or(&[], Vec::as_slice)
    }

    /// True if the word is in one of the categories.
    pub fn is_of(&self, word: &str, categories: &[&str]) -> bool {
        self.categories_of(word)
            .iter()
            .any(|category| categories.contains(&category.as_str()))
    }

    /// True if the word is listed.
    pub fn knows_word(&self, word: &str) -> bool {
        self.terms.contains_key(self.listed_form(word))
    }

    /// True if the word is a category of listed words ("fruit").
    pub fn is_category(&self, word: &str) -> bool {
        self.categories.contains(self.listed_form(word))
    }

    /// Returns every listed word or group of up to three words in `words`, in listed form.
    pub fn terms_in<'a>(&'a self, words: &[String]) -> Vec<&'a str> {
        let mut terms = Vec::new();
        for start in 0..words.len() {
            for length in (1..=3.min(words.len() - start)).rev() {
                let candidate = words[start..start + length].join(" ");
                let base = self.aliases.get(&candidate).unwrap_or(&candidate);
                let base = self.singular.get(base).unwrap_or(base);
                if let Some((term, _)) = self.terms.get_key_value(base) {
                    terms.push(term.as_str());
                }
            }
        }
        terms
    }
}

/// Returns the regular English plural.
fn plural_of(word: &str) -> String {
    let consonant_y = word.ends_with('y') && !["ay", "ey", "oy", "uy"].iter().any(|end| word.ends_with(end));
    if consonant_y {
        format!("{}ies", &word[..word.len() - 1])
    } else if ["s", "x", "z", "ch", "sh"].iter().any(|end| word.ends_with(end)) {
        format!("{word}es")
    } else {
        format!("{word}s")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn words_map_to_their_broader_categories() {
        let en = lexicon_of(Language::En);
        assert_eq!(en.categories_of("grapes"), ["fruit", "food"]);
        assert_eq!(
            en.categories_of("Blackberries".to_lowercase().as_str()),
            ["fruit", "food"]
        );
        assert_eq!(en.categories_of("wolves"), ["animal"]);
        assert_eq!(en.listed_form("cherries"), "cherry");
        assert!(en.is_category("fruits") && !en.is_category("grape"));
        let ko = lexicon_of(Language::Ko);
        assert_eq!(ko.categories_of("포도"), ["과일", "음식"]);
        assert!(ko.is_category("과일") && !ko.knows_word("플레이어"));
    }

    #[test]
    fn patterns_capture_all_names_of_their_sentence() {
        for language in [Language::En, Language::Ko] {
            for pattern in &lexicon_of(language).patterns {
                let groups: Vec<_> = pattern.regex.capture_names().flatten().collect();
                assert!(groups.contains(&"s"), "{} has no subject", pattern.regex);
                assert!(groups.contains(&"o"), "{} has no object", pattern.regex);
                for (token, group) in [("{C", "c"), ("{P", "p"), ("{V", "v"), ("{Q", "q")] {
                    assert!(
                        !pattern.content.contains(token) || groups.contains(&group),
                        "{}",
                        pattern.content
                    );
                }
                assert!((1..=10).contains(&pattern.importance));
                for need in &pattern.needs {
                    if let Some(list) = need.strip_prefix(['!', '@', '-']) {
                        assert!(!lexicon_of(language).word_list(list).is_empty(), "{need}");
                    }
                }
            }
        }
    }
}
