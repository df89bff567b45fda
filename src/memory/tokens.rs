//! Tokens of a text as a model counts them, and cutting a text to a number of tokens.
//!
//! Exact where the model's vocabulary is known; elsewhere characters / 4 (ALGORITHMS §9).

use tiktoken_rs::{
    CoreBPE, cl100k_base_singleton, o200k_base_singleton,
    tokenizer::{Tokenizer, get_tokenizer},
};
use unicode_segmentation::UnicodeSegmentation as _;

/// Counts tokens for one family of models. Vocabularies are loaded once per process, on first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenCounter {
    /// GPT-4o, 4.1, 5 and the o-series.
    O200k,
    /// GPT-4, 3.5 and the embedding models.
    Cl100k,
    /// No vocabulary is known: Unicode scalar values / 4, rounded up.
    CharsPerFour,
}

impl TokenCounter {
    /// The counter of a model by its name, with or without a `vendor/` prefix.
    #[must_use]
    pub fn for_model(name: &str) -> Self {
        let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
        match get_tokenizer(&name) {
            Some(Tokenizer::O200kBase | Tokenizer::O200kHarmony) => Self::O200k,
            Some(Tokenizer::Cl100kBase) => Self::Cl100k,
            _ => Self::CharsPerFour,
        }
    }

    /// Tokens of `text`. Special tokens in it count as the plain text they are.
    #[must_use]
    pub fn count(&self, text: &str) -> u32 {
        let tokens = match self.vocabulary() {
            Some(vocabulary) => vocabulary.count_ordinary(text),
            None => text.chars().count().div_ceil(4),
        };
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// The longest beginning of `text`, in whole graphemes, of at most `max` tokens.
    #[must_use]
    pub fn truncate<'a>(&self, text: &'a str, max: u32) -> &'a str {
        if self.count(text) <= max {
            return text;
        }
        let ends: Vec<usize> = text.grapheme_indices(true).map(|(at, _)| at).collect();
        // Counts rise with length but for a token or so at the cut, so look back from the partition.
        let mut cut = ends.partition_point(|&end| self.count(&text[..end]) <= max);
        loop {
            let end = if cut == 0 { 0 } else { ends[cut - 1] };
            if cut == 0 || self.count(&text[..end]) <= max {
                return &text[..end];
            }
            cut -= 1;
        }
    }

    fn vocabulary(self) -> Option<&'static CoreBPE> {
        match self {
            Self::O200k => Some(o200k_base_singleton()),
            Self::Cl100k => Some(cl100k_base_singleton()),
            Self::CharsPerFour => None,
        }
    }
}
