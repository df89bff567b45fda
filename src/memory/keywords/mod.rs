//! Keyword terms of a text and how much of a query a fact covers (ALGORITHMS §2, PARTS "Korean keywords").
//!
//! Owns tokens, their weights and the coverage score. Korean words lose particles and endings and
//! become pairs of syllables; English words stay whole but for their plural; anything mixed is split
//! where the script changes. How informative a word is comes from a fixed table, never from the store.

mod korean;
mod pointing;
mod words;

use std::collections::BTreeMap;

use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfkc_quick};

pub use pointing::is_pointing;

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

/// Terms of any text, each with how informative it is, in (0, 1]; the same as [`query_terms`].
#[must_use]
pub fn terms(text: &str) -> TermWeights {
    query_terms(text)
}

/// Terms of a player's line, each with how informative it is, in (0, 1].
#[must_use]
pub fn query_terms(text: &str) -> TermWeights {
    let mut all = BTreeMap::<u64, f32>::new();
    each_term(text, false, &mut |term, weight| {
        let entry = all.entry(term).or_default();
        *entry = entry.max(weight);
    });
    TermWeights(all.into_iter().collect())
}

/// Terms of a fact, each with how well the fact covers it, in (0, 1].
#[must_use]
pub fn document_terms(content: &str, keywords: &[String]) -> TermWeights {
    let mut mentions = BTreeMap::<u64, f32>::new();
    each_term(content, true, &mut |term, _| *mentions.entry(term).or_default() += 1.0);
    for keyword in keywords {
        each_term(keyword, true, &mut |term, _| {
            *mentions.entry(term).or_default() += KEYWORD_MENTIONS;
        });
    }
    TermWeights(
        mentions
            .into_iter()
            .map(|(term, count)| (term, count / (count + SATURATION)))
            .collect(),
    )
}

/// How much of the query's informative terms the document covers, in [0, 1]; 0 for an empty query.
#[must_use]
pub fn coverage(query: &TermWeights, doc: &TermWeights) -> f64 {
    let mut doc = doc.0.as_slice();
    // Both are sorted: what is behind us need not be searched again.
    coverage_by(query, |term| match doc.binary_search_by_key(&term, |entry| entry.0) {
        Ok(at) => {
            let weight = doc[at].1;
            doc = &doc[at + 1..];
            Some(weight)
        }
        Err(at) => {
            doc = &doc[at..];
            None
        }
    })
}

/// [`coverage`] by a document whose terms lie elsewhere: `weight_of` is asked for each term of the query,
/// in order.
#[must_use]
pub fn coverage_by(query: &TermWeights, mut weight_of: impl FnMut(u64) -> Option<f32>) -> f64 {
    let (mut covered, mut total) = (0.0, 0.0);
    for &(term, weight) in &query.0 {
        total += f64::from(weight);
        if let Some(of_document) = weight_of(term) {
            covered += f64::from(weight) * f64::from(of_document);
        }
    }
    if total > 0.0 {
        (covered / total).clamp(0.0, 1.0)
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

/// Calls `emit(term, weight)` for every informative term of a text. With `all_forms` a word whose
/// stem is another one is there in both forms: a document is found by either.
fn each_term(text: &str, all_forms: bool, emit: &mut impl FnMut(u64, f32)) {
    let text = normalise(clip(text));
    let mut run: Vec<char> = Vec::with_capacity(16);
    let mut kind = None;
    // The run stands right behind another one, as "를" in "HP를".
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
                word(&run, done, attached, all_forms, emit);
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
        word(&run, done, attached, all_forms, emit);
    }
}

fn word(run: &[char], script: Script, attached: bool, all_forms: bool, emit: &mut impl FnMut(u64, f32)) {
    match script {
        Script::Other => {
            let whole: String = run.iter().collect();
            let stem = words::singular(&whole);
            // The parts of "don't" and the like are in the table by their beginning.
            let known = words::weight(&stem)
                .or_else(|| words::weight(&whole))
                .or_else(|| words::weight(stem.split('\'').next().unwrap_or("")));
            let weight = known.unwrap_or(1.0);
            if weight > 0.0 {
                emit(hash(stem.chars()), weight);
            }
        }
        Script::Hangul => {
            if attached && korean::is_particle(run) {
                return;
            }
            let stem = korean::stem(run);
            let text: String = stem.iter().collect();
            let weight = words::weight(&text)
                .or_else(|| words::weight(&run.iter().collect::<String>()))
                .unwrap_or(1.0);
            if weight > 0.0 {
                grams(&stem, weight, emit);
                if all_forms && stem.as_slice() != run {
                    // Only what the stem does not have: a syllable and the pairs it is part of.
                    let from = stem.len().saturating_sub(1).min(run.len());
                    if run[from..].len() >= 2 {
                        pairs(&run[from..], weight, emit);
                    }
                }
            }
        }
        Script::Unspaced => grams(run, 1.0, emit),
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
