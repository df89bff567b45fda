//! Whether two statements say the same: object, polarity, tense and numbers (ALGORITHMS §1).
//!
//! Also the heuristics that read polarity and tense off a sentence when an extractor left them out.

use super::{
    fact::{Polarity, Statement, Tense},
    keywords::normalise,
};

/// Whether object, polarity, tense and numbers of two statements agree.
#[must_use]
pub fn agree(a: &Statement, b: &Statement) -> bool {
    a.polarity == b.polarity && a.tense == b.tense && normalise(a.object.trim()) == normalise(b.object.trim())
}

/// Whether a sentence affirms or denies, read off its words. Korean and English.
#[must_use]
pub fn polarity_of(text: &str) -> Polarity {
    let text = normalise(text);
    let denies = [
        "n't ",
        " not ",
        "hate",
        "dislike",
        "never",
        "싫",
        "안 좋아",
        "않",
        "못 ",
    ];
    if denies.iter().any(|word| text.contains(word)) {
        Polarity::Negative
    } else {
        Polarity::Positive
    }
}

/// When a sentence holds, read off its words. Korean and English.
#[must_use]
pub fn tense_of(text: &str) -> Tense {
    let text = normalise(text);
    if ["used to ", "예전에", "했었"].iter().any(|word| text.contains(word)) {
        Tense::Past
    } else if ["will ", "going to ", "할 거"].iter().any(|word| text.contains(word)) {
        Tense::Future
    } else {
        Tense::Present
    }
}
