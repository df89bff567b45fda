//! Keyword terms of a text and how much of a query a fact has (ALGORITHMS §2, PARTS "Korean keywords").
//!
//! Owns tokens and their weights. Korean words lose particles and endings and become pairs of
//! syllables; English words become stems; anything mixed is split where the script changes. Words that
//! say little anywhere ("the", "tell") are in a fixed table; how rare a word is among the facts of one
//! memory is counted there ([`TermStatistics`]).
//!
//! Two scores: [`coverage`], the share of a text's words that another has, which knows no other text;
//! and [`bm25`], the keyword factor of recall.

mod bm25;
mod korean;
mod names;
mod pointing;
mod telling;
mod words;

use std::collections::BTreeMap;

use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfkc_quick};

pub use korean::with_particle;

pub use bm25::{TermStatistics, bm25, bm25_by, fact_terms, saturated, search_terms};
pub use names::{is_name, proper_nouns, without_name};
pub use pointing::is_pointing;
pub use telling::{is_small_talk, telling_terms};

pub(crate) use korean::{ends_in_l, is_hangul, is_past_syllable, stem as korean_stem};
pub(crate) use words::singular;

/// Weighted terms of a text, sorted by term hash, each once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TermWeights(pub Vec<(u64, f32)>);

/// One syllable or ideograph inside a longer word: says little.
const UNIGRAM: f32 = 0.1;
/// A word that is one syllable: says less than a longer one, since many words share it.
const ONE_SYLLABLE: f32 = 0.7;
/// Term saturation: one mention covers 1 / (1 + k) of a term, further ones add ever less.
const SATURATION: f32 = 0.2;
/// A keyword counts as this many mentions.
const KEYWORD_MENTIONS: f32 = 2.0;
/// Longest piece of text that is looked at, in bytes; lines and facts are far shorter.
const MAX_BYTES: usize = 64 * 1024;

/// NFKC, lower case: the form in which texts are compared.
#[must_use]
pub fn normalise(text: &str) -> String {
    if is_nfkc_quick(text.chars()) == IsNormalized::Yes {
        text.to_lowercase()
    } else {
        text.nfkc().collect::<String>().to_lowercase()
    }
}

/// A text without its punctuation and case, for finding the same sentence again.
#[must_use]
pub fn gist(text: &str) -> String {
    normalise(text)
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Terms of a player's line, each with how informative it is, in (0, 1].
#[must_use]
pub fn query_terms(text: &str) -> TermWeights {
    strongest(text, Forms::STEMS)
}

/// As [`query_terms`], English words being whole but for their plural: what the offline embedder's vectors are made of.
#[must_use]
pub fn whole_terms(text: &str) -> TermWeights {
    let forms = Forms {
        stems: false,
        ..Forms::STEMS
    };
    strongest(text, forms)
}

/// Each term once, as informative as where it says most.
fn strongest(text: &str, forms: Forms) -> TermWeights {
    let mut all = BTreeMap::<u64, f32>::new();
    each_term(text, forms, &mut |term, weight, _| {
        let entry = all.entry(term).or_default();
        *entry = entry.max(weight);
    });
    TermWeights(all.into_iter().collect())
}

/// Terms of a fact, each with how well the fact covers it, in (0, 1].
#[must_use]
pub fn document_terms(content: &str, keywords: &[String]) -> TermWeights {
    let forms = Forms {
        all: true,
        ..Forms::STEMS
    };
    TermWeights(
        mentions(content, keywords, forms)
            .0
            .into_iter()
            .map(|(term, count)| (term, count / (count + SATURATION)))
            .collect(),
    )
}

/// How often a fact has each term, and how many informative words it has in all.
fn mentions(content: &str, keywords: &[String], forms: Forms) -> (BTreeMap<u64, f32>, usize) {
    let mut mentions = BTreeMap::<u64, f32>::new();
    let mut words = 0;
    let texts = keywords.iter().map(|keyword| (keyword.as_str(), KEYWORD_MENTIONS));
    for (text, each) in [(content, 1.0)].into_iter().chain(texts) {
        each_term(text, forms, &mut |term, _, begins| {
            *mentions.entry(term).or_default() += each;
            words += usize::from(begins);
        });
    }
    (mentions, words)
}

/// How much of the query's informative terms the document covers, in [0, 1]; 0 for an empty query.
#[must_use]
pub fn coverage(query: &TermWeights, doc: &TermWeights) -> f64 {
    let total: f64 = query.0.iter().map(|(_, weight)| f64::from(*weight)).sum();
    if total > 0.0 {
        (bm25(query, doc) / total).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

/// Scripts that are tokenised differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    Hangul,
    /// Han, Hiragana, Katakana: no spaces between words.
    Unspaced,
    Other,
}

fn script(c: char) -> Option<Script> {
    if korean::is_hangul(c) {
        Some(Script::Hangul)
    } else if matches!(u32::from(c), 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3134F)
    {
        Some(Script::Unspaced)
    } else if c.is_alphanumeric() {
        Some(Script::Other)
    } else {
        None
    }
}

/// In which forms words become terms.
#[derive(Debug, Clone, Copy)]
struct Forms {
    /// English words as stems; else whole but for their plural.
    stems: bool,
    /// A Korean word whose stem is another one is there in both forms: a document is found by either.
    all: bool,
    /// Two informative words next to each other are a term as well.
    phrases: bool,
}

impl Forms {
    const STEMS: Self = Self {
        stems: true,
        all: false,
        phrases: false,
    };
}

/// What a phrase weighs against the lesser of its words.
const PHRASE: f32 = 0.7;
/// Words that say less make no phrases.
const PHRASE_WORD: f32 = 0.5;

/// A word that says something.
struct Word {
    stem: String,
    weight: f32,
}

/// Calls `emit(term, weight, begins)` for every informative term of a text; `begins`: it is the first term of a word.
fn each_term(text: &str, forms: Forms, emit: &mut impl FnMut(u64, f32, bool)) {
    let mut before: Option<Word> = None;
    each_run(text, &mut |run, script, attached| {
        let Some(now) = word(run, script, attached, forms, emit) else {
            return;
        };
        let tells = |word: &Word| word.weight >= PHRASE_WORD;
        if forms.phrases
            && let Some(before) = before.as_ref().filter(|before| tells(before) && tells(&now))
        {
            let phrase = ['\u{3}'].into_iter().chain(before.stem.chars()).chain(['\u{3}']);
            let weight = PHRASE * before.weight.min(now.weight);
            emit(hash(phrase.chain(now.stem.chars())), weight, false);
        }
        before = Some(now);
    });
}

/// Calls `each(run, script, attached)` for every run of one script; `attached`: it stands right behind another one,
/// as "를" in "HP를".
fn each_run(text: &str, each: &mut impl FnMut(&[char], Script, bool)) {
    let text = normalise(clip(text));
    let mut run: Vec<char> = Vec::with_capacity(16);
    let mut kind = None;
    let mut attached = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // "king's" and "don't" are one word.
        let joins = matches!(c, '\'' | '’')
            && kind == Some(Script::Other)
            && chars.peek().copied().and_then(script) == Some(Script::Other);
        let next = if joins { kind } else { script(c) };
        if next != kind {
            if let Some(done) = kind {
                each(&run, done, attached);
            }
            attached = kind.is_some() && next.is_some();
            run.clear();
            kind = next;
        }
        if kind.is_some() {
            run.push(if c == '’' { '\'' } else { c });
        }
    }
    if let Some(done) = kind {
        each(&run, done, attached);
    }
}

/// The terms of one word; `None`: it says nothing.
fn word(
    run: &[char],
    script: Script,
    attached: bool,
    forms: Forms,
    emit: &mut impl FnMut(u64, f32, bool),
) -> Option<Word> {
    let whole: String = run.iter().collect();
    match script {
        Script::Other => {
            let singular = words::singular(&whole);
            let weight = words::english_weight(&whole, &singular);
            if weight <= 0.0 {
                return None;
            }
            let stem = if forms.stems { words::stem(&singular) } else { singular };
            emit(hash(stem.chars()), weight, true);
            Some(Word { stem, weight })
        }
        Script::Hangul => {
            if attached && korean::is_particle(run) {
                return None;
            }
            let stem = korean::stem(run);
            let text: String = stem.iter().collect();
            let weight = words::weight(&text).or_else(|| words::weight(&whole)).unwrap_or(1.0);
            if weight <= 0.0 {
                return None;
            }
            let mut begins = true;
            let mut emit = |term, weight| emit(term, weight, std::mem::take(&mut begins));
            grams(&stem, weight, &mut emit);
            if forms.all && stem.as_slice() != run {
                // Only what the stem does not have: a syllable and the pairs it is part of.
                let from = stem.len().saturating_sub(1).min(run.len());
                if run[from..].len() >= 2 {
                    pairs(&run[from..], weight, &mut emit);
                }
            }
            Some(Word { stem: text, weight })
        }
        Script::Unspaced => {
            let mut begins = true;
            grams(run, 1.0, &mut |term, weight| {
                emit(term, weight, std::mem::take(&mut begins));
            });
            Some(Word {
                stem: whole,
                weight: 1.0,
            })
        }
    }
}

/// Pairs of syllables share the weight of the word; a word of one syllable is a term of its own.
fn grams(word: &[char], weight: f32, emit: &mut impl FnMut(u64, f32)) {
    if let [only] = word {
        emit(hash(['\u{1}', *only]), weight * ONE_SYLLABLE);
    }
    for &c in word {
        emit(hash(['\u{2}', c]), weight * UNIGRAM / count(word.len()));
    }
    if word.len() >= 2 {
        pairs(word, weight, emit);
    }
}

fn pairs(word: &[char], weight: f32, emit: &mut impl FnMut(u64, f32)) {
    let share = weight / count(word.len() - 1);
    for pair in word.windows(2) {
        emit(hash(pair.iter().copied()), share);
    }
}

#[expect(clippy::cast_precision_loss, reason = "words are short")]
fn count(n: usize) -> f32 {
    n.max(1) as f32
}

fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_BYTES)]
}

/// FNV-1a: the same on every machine and in every version, since indexes keep terms.
fn hash(term: impl IntoIterator<Item = char>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut buffer = [0; 4];
    for c in term {
        for byte in c.encode_utf8(&mut buffer).bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[cfg(test)]
mod tests;
