//! Tokens of a text as a model counts them, and cutting a text to a number of tokens.
//!
//! Exact where the model's vocabulary is known; elsewhere characters / 4 (ALGORITHMS §9).

use tiktoken_rs::{
    CoreBPE, cl100k_base_singleton, o200k_base_singleton,
    tokenizer::{Tokenizer, get_tokenizer},
};
use unicode_segmentation::GraphemeCursor;

const PIECE_BYTES: usize = 64 * 1024;

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
    ///
    /// Texts over 64 KiB are counted in pieces, so that none can run the vocabulary's pattern into
    /// its limits; each piece may add a token to the exact count.
    #[must_use]
    pub fn count(&self, text: &str) -> u32 {
        let tokens = match self.vocabulary() {
            Some(vocabulary) => pieces(text).map(|piece| vocabulary.count_ordinary(piece)).sum(),
            None => text.chars().count().div_ceil(4),
        };
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// The longest beginning of `text`, in whole graphemes, of at most `max` tokens.
    ///
    /// "Longest" up to a grapheme or so: where the cut falls inside a token, what is left of it may
    /// need more tokens than before, and graphemes are given up until it fits.
    #[must_use]
    pub fn truncate<'a>(&self, text: &'a str, max: u32) -> &'a str {
        let most = max as usize;
        // A token is at least one byte.
        if text.len() <= most {
            return text;
        }
        let Some(vocabulary) = self.vocabulary() else {
            let end = text
                .char_indices()
                .nth(most.saturating_mul(4))
                .map_or(text.len(), |(at, _)| at);
            return &text[..grapheme_floor(text, end)];
        };
        let (mut left, mut end) = (most, 0);
        for piece in pieces(text) {
            let tokens = vocabulary.encode_ordinary(piece);
            if tokens.len() > left {
                end += vocabulary.decode_bytes(&tokens[..left]).map_or(0, |bytes| bytes.len());
                break;
            }
            left -= tokens.len();
            end += piece.len();
        }
        if end >= text.len() {
            return text;
        }
        let mut end = grapheme_floor(text, end);
        while end > 0 && self.count(&text[..end]) > max {
            end = grapheme_floor(text, end - 1);
        }
        &text[..end]
    }

    fn vocabulary(self) -> Option<&'static CoreBPE> {
        match self {
            Self::O200k => Some(o200k_base_singleton()),
            Self::Cl100k => Some(cl100k_base_singleton()),
            Self::CharsPerFour => None,
        }
    }
}

/// A text in pieces of at most [`PIECE_BYTES`].
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The last grapheme boundary at or before byte `end`.
fn grapheme_floor(text: &str, end: usize) -> usize {
    let end = text.floor_char_boundary(end);
    let mut cursor = GraphemeCursor::new(end, text.len(), true);
    match cursor.is_boundary(text, 0) {
        Ok(true) => end,
        _ => cursor.prev_boundary(text, 0).ok().flatten().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::TokenCounter::{self, *};

    #[test]
    fn a_model_has_its_vocabulary() {
        for (name, counter) in [
            ("gpt-4o-mini", O200k),
            ("openai/gpt-4.1", O200k),
            ("gpt-4.1-nano", O200k),
            ("GPT-5-mini", O200k),
            ("o1", O200k),
            ("o3-mini", O200k),
            ("o4-mini", O200k),
            ("gpt-oss-20b", O200k),
            ("gpt-4", Cl100k),
            ("gpt-4-turbo", Cl100k),
            ("gpt-3.5-turbo", Cl100k),
            ("text-embedding-3-small", Cl100k),
            ("llama-3.1-8b", CharsPerFour),
            ("scripted", CharsPerFour),
            ("", CharsPerFour),
        ] {
            assert_eq!(TokenCounter::for_model(name), counter, "{name}");
        }
    }

    #[test]
    fn known_counts() {
        assert_eq!(Cl100k.count("hello world"), 2);
        assert_eq!(O200k.count("hello world"), 2);
        assert_eq!(CharsPerFour.count("hello world"), 3);
        assert_eq!(CharsPerFour.count("안녕하세요"), 2);
        for counter in [O200k, Cl100k, CharsPerFour] {
            assert_eq!(counter.count(""), 0);
        }
        assert!(
            O200k.count("<|endoftext|>") > 1,
            "a player cannot write a special token"
        );
    }

    #[test]
    fn cuts_fall_between_graphemes() {
        let family = "👨\u{200d}👩\u{200d}👧 가족";
        for counter in [O200k, Cl100k, CharsPerFour] {
            for max in 0..20 {
                let cut = counter.truncate(family, max);
                assert!(cut.is_empty() || cut.starts_with("👨\u{200d}👩\u{200d}👧"), "{cut:?}");
            }
        }
    }

    #[test]
    fn texts_meant_to_hurt_are_counted() {
        for text in [
            " ".repeat(100_000) + "x",
            "a".repeat(4_000),
            "!".repeat(4_000),
            "\n \t".repeat(4_000),
            "가".repeat(4_000),
        ] {
            for counter in [O200k, Cl100k, CharsPerFour] {
                let tokens = counter.count(&text);
                assert!(tokens > 0);
                assert!(counter.count(counter.truncate(&text, 10)) <= 10);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_cut_text_fits_and_is_a_beginning(text in "\\PC{0,120}", max in 0_u32..40) {
            for counter in [O200k, Cl100k, CharsPerFour] {
                let cut = counter.truncate(&text, max);
                prop_assert!(text.starts_with(cut));
                prop_assert!(counter.count(cut) <= max);
                if counter.count(&text) <= max {
                    prop_assert_eq!(cut, text.as_str());
                }
            }
        }

        #[test]
        fn a_cut_keeps_most_of_what_may_stay(words in prop::collection::vec("[a-z]{2,6}|[가-힣]{2,4}", 30..60)) {
            let text = words.join(" ");
            for counter in [O200k, Cl100k, CharsPerFour] {
                let max = counter.count(&text) / 2;
                prop_assert!(counter.count(counter.truncate(&text, max)) + 3 >= max);
            }
        }
    }
}
