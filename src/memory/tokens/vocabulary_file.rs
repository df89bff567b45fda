//! Vocabularies in Hugging Face's `tokenizer.json` format, which open models come with.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use tokenizers::Tokenizer;

use super::{estimate, split_pieces};

/// Texts that need tokens in every vocabulary: both languages, line breaks, marks, and characters that no vocabulary
/// has.
const PROBE_TEXTS: [&str; 3] = ["Who are you?\n- Mira, 42.", "누구세요? 미라예요.", "🙂 \u{e000}"];

/// Why a `tokenizer.json` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VocabularyError {
    #[error("it is no tokenizer.json: {0}")]
    Unreadable(String),
    #[error("it has no tokens for `{text}`: {why}")]
    Incomplete { text: &'static str, why: String },
}

/// The vocabulary of one file. Two vocabularies are equal if they are the same object.
pub struct FileVocabulary {
    tokenizer: Tokenizer,
}

impl FileVocabulary {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// The file has another format, or the vocabulary has no tokens for a probe text.
    pub fn parse(json: &[u8]) -> Result<Self, VocabularyError> {
        let unreadable = |error: tokenizers::Error| VocabularyError::Unreadable(error.to_string());
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(unreadable)?;
        // A file may contain the truncation and padding of its training; every count would then be that length.
        tokenizer.with_truncation(None).map_err(unreadable)?;
        tokenizer.with_padding(None);
        tokenizer.set_encode_special_tokens(true);
        for text in PROBE_TEXTS {
            let reason = match tokenizer.encode_fast(text, false) {
                Ok(tokens) if !tokens.is_empty() => continue,
                Ok(_) => "none come out".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(VocabularyError::Incomplete { text, why: reason });
        }
        Ok(Self { tokenizer })
    }

    /// Tokens of `text`, without the tokens of a chat template.
    pub(super) fn count_tokens(&self, text: &str) -> usize {
        split_pieces(text)
            .map(|piece| match self.tokenizer.encode_fast(piece, false) {
                Ok(tokens) => tokens.len(),
                Err(_) => estimate::estimate_tokens(piece),
            })
            .sum()
    }

    /// The byte in `text` at which the first token beyond `max_tokens` begins, or the end of `text`. If a character
    /// takes several tokens, each of them begins at the character.
    pub(super) fn end_within(&self, text: &str, max_tokens: usize) -> usize {
        let mut remaining = max_tokens;
        let mut end = 0;
        for piece in split_pieces(text) {
            let Ok(tokens) = self.tokenizer.encode(piece, false) else {
                return end + estimate::end_within(piece, remaining);
            };
            if let Some((begins, _)) = tokens.get_offsets().get(remaining) {
                return (end + begins).min(text.len() - 1);
            }
            remaining -= tokens.len();
            end += piece.len();
        }
        debug_assert!(end == text.len(), "the pieces of a text are the whole text");
        end
    }
}

impl PartialEq for FileVocabulary {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for FileVocabulary {}

impl Hash for FileVocabulary {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

impl fmt::Debug for FileVocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a vocabulary of {}", self.tokenizer.get_vocab_size(true))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use crate::tokens::TokenCounter;

    /// The word pattern of Llama 3 and Qwen, with a look-ahead that plain regular expressions lack.
    const WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    /// A vocabulary like Llama 3's: every byte, and the words `the` and ` the` only ("Ġ" is a blank).
    fn small() -> Value {
        let mut bytes: Vec<char> = ByteLevel::alphabet().into_iter().collect();
        bytes.sort_unstable();
        let tokens = bytes.iter().map(char::to_string);
        let tokens = tokens.chain(["th", "the", "Ġthe"].map(str::to_owned));
        let vocabulary: serde_json::Map<String, Value> = tokens.zip(0..).map(|(t, id)| (t, json!(id))).collect();
        json!({
            "version": "1.0", "normalizer": null, "post_processor": null,
            "truncation": { "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0 },
            "padding": {
                "strategy": { "Fixed": 64 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                "pad_type_id": 0, "pad_token": "!",
            },
            "added_tokens": [{
                "id": 300, "content": "<|eot_id|>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            }],
            "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
                { "type": "Split", "pattern": { "Regex": WORDS }, "behavior": "Isolated", "invert": false },
                { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
            ]},
            "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
                "vocab": vocabulary, "merges": [["t", "h"], ["th", "e"], ["Ġ", "the"]],
            },
        })
    }

    fn counter() -> TokenCounter {
        static COUNTER: std::sync::OnceLock<TokenCounter> = std::sync::OnceLock::new();
        *COUNTER.get_or_init(|| TokenCounter::from_file(small().to_string().as_bytes()).unwrap())
    }

    #[test]
    fn tokens_match_the_vocabulary_file_for_any_trained_length() {
        for (text, tokens) in [
            ("", 0),
            ("the", 1),
            ("the the the the the the", 6),
            ("then", 2),
            ("the  the", 3),
            ("미라", 6),
            ("🙂", 4),
            // Players cannot write special tokens.
            ("<|eot_id|>", 10),
        ] {
            assert_eq!(counter().count_tokens(text), tokens, "{text}");
        }
        assert_eq!(counter().truncate_to("the the the the", 2), "the the");
        assert_eq!(counter().truncate_to("미라", 5), "미");
        // A character that fits only in part is left out.
        assert_eq!(counter().truncate_to("미", 2), "");
        assert_eq!(counter().truncate_to("미라", 0), "");
    }

    #[test]
    fn hostile_texts_are_counted() {
        for text in [
            " ".repeat(100_000) + "x",
            "a".repeat(100_000),
            "\n \t".repeat(4_000),
            "가".repeat(4_000),
        ] {
            assert!(counter().count_tokens(&text) > 0);
            assert!(counter().count_tokens(counter().truncate_to(&text, 10)) <= 10);
        }
    }

    #[test]
    fn vocabulary_file_that_cannot_count_every_text_is_rejected() {
        let words = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
            "model": { "type": "WordLevel", "vocab": { "the": 0 }, "unk_token": "[UNK]" },
        });
        for (json, told) in [
            ("", "no tokenizer.json"),
            ("{}", "no tokenizer.json"),
            ("{\"version\": \"1.0\", ", "no tokenizer.json"),
            (
                &small().to_string().replace("ignore_merges", "ignored")[..900],
                "no tokenizer.json",
            ),
            (&words.to_string(), "no tokens for `Who are you?"),
        ] {
            let error = TokenCounter::from_file(json.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(told), "{json:.40}: {error}");
        }
    }

    #[test]
    fn vocabulary_files_make_distinct_counters() {
        let other = TokenCounter::from_file(small().to_string().as_bytes()).unwrap();
        assert_ne!(other, counter());
        assert_eq!(counter(), counter());
        assert_eq!(TokenCounter::for_model("qwen3-8b").or_if_estimated(other), other);
        assert_eq!(
            TokenCounter::for_model("gpt-4o").or_if_estimated(other),
            TokenCounter::O200k
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn cut_text_fits_and_is_a_prefix(text in "\\PC{0,60}|(the| |then|미라){0,30}", max in 0_u32..40) {
            let cut = counter().truncate_to(&text, max);
            prop_assert!(text.starts_with(cut));
            prop_assert!(counter().count_tokens(cut) <= max);
            if counter().count_tokens(&text) <= max {
                prop_assert_eq!(cut, text.as_str());
            }
        }
    }
}
