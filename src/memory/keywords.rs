//! Keyword terms of a text and how much of a query a fact covers (ALGORITHMS §2, PARTS "Korean keywords").

use unicode_normalization::UnicodeNormalization as _;

/// Weighted terms of a text, sorted by term hash, each once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TermWeights(pub Vec<(u64, f32)>);

/// Lower case, NFKC.
#[must_use]
pub fn normalise(text: &str) -> String {
    text.nfkc().collect::<String>().to_lowercase()
}

/// Terms of a text with their background weight.
#[must_use]
pub fn terms(text: &str) -> TermWeights {
    let mut all = std::collections::BTreeMap::new();
    for word in normalise(text)
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        all.insert(hash(word), 1.0);
    }
    TermWeights(all.into_iter().collect())
}

/// Terms of a fact, for the index and for [`coverage`].
#[must_use]
pub fn document_terms(content: &str, keywords: &[String]) -> TermWeights {
    terms(&format!("{content} {}", keywords.join(" ")))
}

/// Terms of a player's line, for the index and for [`coverage`].
#[must_use]
pub fn query_terms(text: &str) -> TermWeights {
    terms(text)
}

/// How much of the query's informative terms the document covers, in [0, 1]; 0 for an empty query.
#[must_use]
pub fn coverage(query: &TermWeights, doc: &TermWeights) -> f64 {
    let (mut covered, mut total) = (0.0, 0.0);
    for &(term, weight) in &query.0 {
        total += f64::from(weight);
        if let Ok(at) = doc.0.binary_search_by_key(&term, |entry| entry.0) {
            covered += f64::from(weight) * f64::from(doc.0[at].1);
        }
    }
    if total > 0.0 {
        (covered / total).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

/// Whether a line points at something said before ("then", "what you just said"; 그때, 그거, 방금 말한 거).
#[must_use]
pub fn is_pointing(text: &str) -> bool {
    let text = normalise(text);
    ["그때", "그거", "그게", "방금"].iter().any(|word| text.contains(word))
        || text
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| matches!(word, "then" | "that"))
}

/// FNV-1a: stable over versions and machines, since terms are kept in indexes.
fn hash(term: &str) -> u64 {
    term.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
