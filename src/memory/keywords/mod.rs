//! Keyword terms of a text, and the share of a query in a fact (docs/algorithms.md#recall,
//! docs/algorithms.md#korean-keywords).
//!
//! Owns tokens and their weights. Korean words lose particles and endings and become pairs of syllables. English words
//! become stems. Mixed words are split where the script changes. A fixed table has words that say little everywhere
//! ("the", "tell"). [`TermStatistics`] counts how rare a word is among the facts of one memory.
//!
//! There are two scores. [`query_coverage`] is the share of one text's words in another text, without further texts.
//! [`bm25_score`] is the base of the keyword factor of recall.

mod asking;
mod bm25;
mod expected_intent;
mod forgetting;
mod informative;
mod korean;
mod name_words;
mod normal_text;
mod owned;
mod references;
mod words;

use std::collections::BTreeMap;

pub use korean::{is_hangul, with_particle};

pub use asking::asks_nothing;
pub use bm25::{FactTexts, TermStatistics, bm25_score, bm25_score_by, fact_terms, keyword_factor, search_terms};
pub use expected_intent::expected_intent;
pub use forgetting::asks_to_forget;
pub use informative::{informative_terms, informative_words, is_small_talk, is_small_talk_word};
pub use name_words::{
    is_family_syllable, korean_given_name, matches_name, proper_nouns, short_names_of, without_listener_name,
};
pub use owned::{LineOwner, OwnedTerms};
pub use references::{points_at, refers_back};

pub use self::normal_text::normalise_text;
pub(crate) use korean::{ends_in_l, is_only_particles, is_past_syllable, stem_korean as korean_stem};
pub(crate) use words::singular_of;

/// Weighted terms of a text, sorted by term hash, each once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TermWeights(pub Vec<(u64, f32)>);

/// Weight of one syllable or ideograph inside a longer word, which says little.
const UNIGRAM_WEIGHT: f32 = 0.1;
/// Weight of a word of one syllable. Many words share a syllable, so the word says less than a longer word.
const ONE_SYLLABLE_WEIGHT: f32 = 0.7;
/// Term saturation: one mention covers 1 / (1 + k) of a term, and further mentions add less and less.
const COVERAGE_SATURATION: f32 = 0.2;
/// The number of mentions that a keyword counts as.
const KEYWORD_MENTIONS: f32 = 2.0;
/// The longest text that is tokenised, in bytes. Lines and facts are far shorter.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// A text without punctuation and case, for finding the same sentence again.
#[must_use]
pub fn sentence_key(text: &str) -> String {
    normalise_text(text)
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Terms of a player's line, each with its information weight, in (0, 1].
#[must_use]
pub fn query_terms(text: &str) -> TermWeights {
    strongest_terms(text, TermForms::STEMS)
}

/// Like [`query_terms`], but with whole English words without plural endings. The offline embedder makes vectors from
/// them.
#[must_use]
pub fn whole_terms(text: &str) -> TermWeights {
    let forms = TermForms {
        stems: false,
        ..TermForms::STEMS
    };
    strongest_terms(text, forms)
}

/// Each term once, with its highest weight.
fn strongest_terms(text: &str, forms: TermForms) -> TermWeights {
    let mut weights = BTreeMap::<u64, f32>::new();
    for_each_term(text, forms, &mut |term, weight, _| {
        let entry = weights.entry(term).or_default();
        *entry = entry.max(weight);
    });
    debug_assert!(
        weights.values().all(|weight| *weight > 0.0 && *weight <= 1.0),
        "the weight of a term is in (0, 1]"
    );
    TermWeights(weights.into_iter().collect())
}

/// Terms of a fact, each with its coverage by the fact, in (0, 1].
#[must_use]
pub fn document_terms(content: &str, keywords: &[String]) -> TermWeights {
    let forms = TermForms {
        all: true,
        ..TermForms::STEMS
    };
    TermWeights(
        count_mentions(content, keywords, forms)
            .0
            .into_iter()
            .map(|(term, count)| (term, count / (count + COVERAGE_SATURATION)))
            .collect(),
    )
}

/// How often a fact has each term, and the number of its informative words.
fn count_mentions(content: &str, keywords: &[String], forms: TermForms) -> (BTreeMap<u64, f32>, usize) {
    let mut mentions = BTreeMap::<u64, f32>::new();
    let mut words = 0;
    let texts = keywords.iter().map(|keyword| (keyword.as_str(), KEYWORD_MENTIONS));
    for (text, mention_weight) in [(content, 1.0)].into_iter().chain(texts) {
        for_each_term(text, forms, &mut |term, _, begins| {
            *mentions.entry(term).or_default() += mention_weight;
            words += usize::from(begins);
        });
    }
    (mentions, words)
}

/// The share of the query's informative terms in the document, in [0, 1]; 0 for an empty query.
#[must_use]
pub fn query_coverage(query: &TermWeights, doc: &TermWeights) -> f64 {
    let total: f64 = query.0.iter().map(|(_, weight)| f64::from(*weight)).sum();
    if total > 0.0 {
        (bm25_score(query, doc) / total).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

/// Scripts with different tokenisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextScript {
    Hangul,
    /// Han, Hiragana, Katakana: no spaces between words.
    Unspaced,
    Other,
}

fn script_of(c: char) -> Option<TextScript> {
    if korean::is_hangul(c) {
        Some(TextScript::Hangul)
    } else if matches!(u32::from(c), 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3134F)
    {
        Some(TextScript::Unspaced)
    } else if c.is_alphanumeric() {
        Some(TextScript::Other)
    } else {
        None
    }
}

/// The forms in which words become terms.
#[derive(Debug, Clone, Copy)]
struct TermForms {
    /// English words as stems; otherwise whole, without plural endings.
    stems: bool,
    /// A Korean word that differs from its stem has both forms, so that either form finds a document.
    all: bool,
    /// Two adjacent informative words are also a term.
    phrases: bool,
}

impl TermForms {
    const STEMS: Self = Self {
        stems: true,
        all: false,
        phrases: false,
    };
}

/// Weight of a phrase, relative to the lighter of its words.
const PHRASE_WEIGHT: f32 = 0.7;
/// Words with less weight form no phrases.
const MIN_PHRASE_WORD_WEIGHT: f32 = 0.5;

/// A word with information.
struct InformativeWord {
    stem: String,
    weight: f32,
}

/// Calls `emit(term, weight, begins)` for every informative term of a text. `begins`: the term is the first of its
/// word.
fn for_each_term(text: &str, forms: TermForms, emit: &mut impl FnMut(u64, f32, bool)) {
    let mut before: Option<InformativeWord> = None;
    for_each_run(text, &mut |run, script, attached| {
        let Some(now) = word_terms(run, script, attached, forms, emit) else {
            return;
        };
        let is_informative = |word: &InformativeWord| word.weight >= MIN_PHRASE_WORD_WEIGHT;
        if forms.phrases
            && let Some(before) = before
                .as_ref()
                .filter(|before| is_informative(before) && is_informative(&now))
        {
            let phrase = ['\u{3}'].into_iter().chain(before.stem.chars()).chain(['\u{3}']);
            let weight = PHRASE_WEIGHT * before.weight.min(now.weight);
            emit(hash_term(phrase.chain(now.stem.chars())), weight, false);
        }
        before = Some(now);
    });
}

/// Calls `each(run, script, attached)` for every run of one script. `attached`: the run follows another run directly,
/// as "를" in "HP를".
fn for_each_run(text: &str, visit_run: &mut impl FnMut(&[char], TextScript, bool)) {
    let text = normalise_text(clip_bytes(text));
    let mut run: Vec<char> = Vec::with_capacity(16);
    let mut kind = None;
    let mut attached = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // "king's" and "don't" are one word.
        let joins = matches!(c, '\'' | '’')
            && kind == Some(TextScript::Other)
            && chars.peek().copied().and_then(script_of) == Some(TextScript::Other);
        let next = if joins { kind } else { script_of(c) };
        if next != kind {
            if let Some(run_kind) = kind {
                visit_run(&run, run_kind, attached);
            }
            attached = kind.is_some() && next.is_some();
            run.clear();
            kind = next;
        }
        if kind.is_some() {
            run.push(if c == '’' { '\'' } else { c });
        }
    }
    if let Some(run_kind) = kind {
        visit_run(&run, run_kind, attached);
    }
}

/// The terms of one word; `None`: the word has no information.
fn word_terms(
    run: &[char],
    script: TextScript,
    attached: bool,
    forms: TermForms,
    emit: &mut impl FnMut(u64, f32, bool),
) -> Option<InformativeWord> {
    let word: String = run.iter().collect();
    match script {
        TextScript::Other => {
            let singular = words::singular_of(&word);
            let weight = words::english_weight(&word, &singular);
            if weight <= 0.0 {
                return None;
            }
            let stem = if forms.stems {
                words::stem_english(&singular)
            } else {
                singular
            };
            emit(hash_term(stem.chars()), weight, true);
            Some(InformativeWord { stem, weight })
        }
        TextScript::Hangul => {
            if attached && korean::is_particle(run) {
                return None;
            }
            let stem = korean::stem_korean(run);
            let text: String = stem.iter().collect();
            let weight = words::word_weight(&text)
                .or_else(|| words::word_weight(&word))
                .unwrap_or(1.0);
            if weight <= 0.0 {
                return None;
            }
            let mut begins = true;
            let mut emit = |term, weight| emit(term, weight, std::mem::take(&mut begins));
            emit_grams(&stem, weight, &mut emit);
            if forms.all && stem.as_slice() != run {
                // Only pairs that the stem lacks: the removed syllables and the stem's last syllable.
                let from = stem.len().saturating_sub(1).min(run.len());
                if run[from..].len() >= 2 {
                    emit_pairs(&run[from..], weight, &mut emit);
                }
            }
            Some(InformativeWord { stem: text, weight })
        }
        TextScript::Unspaced => {
            let mut begins = true;
            emit_grams(run, 1.0, &mut |term, weight| {
                emit(term, weight, std::mem::take(&mut begins));
            });
            Some(InformativeWord {
                stem: word,
                weight: 1.0,
            })
        }
    }
}

/// Pairs of syllables share the weight of the word; a word of one syllable is a separate term.
fn emit_grams(word: &[char], weight: f32, emit: &mut impl FnMut(u64, f32)) {
    if let [syllable] = word {
        emit(hash_term(['\u{1}', *syllable]), weight * ONE_SYLLABLE_WEIGHT);
    }
    for &c in word {
        emit(
            hash_term(['\u{2}', c]),
            weight * UNIGRAM_WEIGHT / count_as_f32(word.len()),
        );
    }
    if word.len() >= 2 {
        emit_pairs(word, weight, emit);
    }
}

fn emit_pairs(word: &[char], weight: f32, emit: &mut impl FnMut(u64, f32)) {
    let share = weight / count_as_f32(word.len() - 1);
    for pair in word.windows(2) {
        emit(hash_term(pair.iter().copied()), share);
    }
}

#[expect(clippy::cast_precision_loss, reason = "words are short")]
fn count_as_f32(n: usize) -> f32 {
    n.max(1) as f32
}

fn clip_bytes(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

/// FNV-1a: equal on every machine and in every version, because indexes store terms.
fn hash_term(term: impl IntoIterator<Item = char>) -> u64 {
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
