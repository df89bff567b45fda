//! Counts the tokens of a text as a model does, and cuts a text to a number of tokens.
//!
//! Counts are exact if the model's vocabulary is known: bundled, or in a file of the operator. Otherwise they are
//! estimates, never below the need of the bundled vocabularies, so that no prompt outgrows a model's context
//! (docs/algorithms.md#prompt-assembly).

mod estimate;
mod vocabulary_file;

use tiktoken_rs::{
    CoreBPE, cl100k_base_singleton, o200k_base_singleton,
    tokenizer::{Tokenizer, get_tokenizer},
};
use unicode_segmentation::GraphemeCursor;

pub use self::vocabulary_file::{FileVocabulary, VocabularyError};

const MAX_PIECE_BYTES: usize = 64 * 1024;

/// Counts tokens for one family of models. Vocabularies are loaded once per process, on first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenCounter {
    /// GPT-4o, 4.1, 5 and the o-series.
    O200k,
    /// GPT-4, 3.5 and the embedding models.
    Cl100k,
    /// The model of the operator's file.
    File(&'static FileVocabulary),
    /// No known vocabulary: each character counts at its usual maximum, see [`estimate`].
    Estimated,
}

impl TokenCounter {
    /// Returns a counter for the vocabulary of a `tokenizer.json`. The file is read once, at start, and the vocabulary
    /// stays in memory until the process ends.
    ///
    /// # Errors
    /// The reason why the file cannot be used.
    pub fn from_file(json: &[u8]) -> Result<Self, VocabularyError> {
        Ok(Self::File(Box::leak(Box::new(FileVocabulary::parse(json)?))))
    }

    /// The counter of a model by its name, with or without a `vendor/` prefix.
    #[must_use]
    pub fn for_model(name: &str) -> Self {
        let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
        match get_tokenizer(&name) {
            Some(Tokenizer::O200kBase | Tokenizer::O200kHarmony) => Self::O200k,
            Some(Tokenizer::Cl100kBase) => Self::Cl100k,
            _ => Self::Estimated,
        }
    }

    /// Returns this counter, or `other` if this counter only estimates.
    #[must_use]
    pub const fn or_if_estimated(self, other: Self) -> Self {
        match self {
            Self::Estimated => other,
            exact => exact,
        }
    }

    /// Tokens of `text`. Special tokens in the text count as plain text.
    ///
    /// Texts over 64 KiB are counted in pieces, so that no text exceeds the limits of the vocabulary's pattern. Each
    /// piece may add a token to the exact count.
    #[must_use]
    pub fn count_tokens(&self, text: &str) -> u32 {
        let tokens = match self {
            Self::O200k => bundled_count(o200k_base_singleton(), text),
            Self::Cl100k => bundled_count(cl100k_base_singleton(), text),
            Self::File(vocabulary) => vocabulary.count_tokens(text),
            Self::Estimated => estimate::estimate_tokens(text),
        };
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// The longest beginning of `text`, in whole graphemes, of at most `max` tokens.
    ///
    /// The result may be about a grapheme too short. A cut inside a token may leave a rest that needs more tokens.
    /// Graphemes are then dropped until the text fits.
    #[must_use]
    pub fn truncate_to<'a>(&self, text: &'a str, max: u32) -> &'a str {
        let max_tokens = max as usize;
        let end = match self {
            Self::File(vocabulary) => vocabulary.end_within(text, max_tokens),
            // In the other vocabularies a token has at least one byte.
            _ if text.len() <= max_tokens => return text,
            Self::O200k => bundled_end(o200k_base_singleton(), text, max_tokens),
            Self::Cl100k => bundled_end(cl100k_base_singleton(), text, max_tokens),
            Self::Estimated => return &text[..grapheme_floor(text, estimate::end_within(text, max_tokens))],
        };
        if end >= text.len() {
            return text;
        }
        let mut end = grapheme_floor(text, end);
        while end > 0 && self.count_tokens(&text[..end]) > max {
            end = grapheme_floor(text, end - 1);
        }
        &text[..end]
    }
}

fn bundled_count(vocabulary: &CoreBPE, text: &str) -> usize {
    split_pieces(text).map(|piece| vocabulary.count_ordinary(piece)).sum()
}

/// The end of the first `max_tokens` tokens of `text`, in bytes, possibly inside a character.
fn bundled_end(vocabulary: &CoreBPE, text: &str, max_tokens: usize) -> usize {
    let mut remaining = max_tokens;
    let mut end = 0;
    for piece in split_pieces(text) {
        let tokens = vocabulary.encode_ordinary(piece);
        if tokens.len() > remaining {
            return end
                + vocabulary
                    .decode_bytes(&tokens[..remaining])
                    .map_or(0, |bytes| bytes.len());
        }
        remaining -= tokens.len();
        end += piece.len();
    }
    debug_assert!(end == text.len(), "the pieces of a text are the whole text");
    end
}

/// Splits a text into pieces of at most [`MAX_PIECE_BYTES`].
fn split_pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(MAX_PIECE_BYTES));
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
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::TokenCounter::{self, *};

    #[test]
    fn model_name_selects_its_vocabulary() {
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
            ("llama-3.1-8b", Estimated),
            ("scripted", Estimated),
            ("", Estimated),
        ] {
            assert_eq!(TokenCounter::for_model(name), counter, "{name}");
        }
    }

    #[test]
    fn token_counts_match_known_values() {
        assert_eq!(Cl100k.count_tokens("hello world"), 2);
        assert_eq!(O200k.count_tokens("hello world"), 2);
        assert_eq!(Estimated.count_tokens("hello world"), 2);
        assert_eq!(Estimated.count_tokens("안녕하세요"), 8);
        for counter in [O200k, Cl100k, Estimated] {
            assert_eq!(counter.count_tokens(""), 0);
        }
        assert!(
            O200k.count_tokens("<|endoftext|>") > 1,
            "a player cannot write a special token"
        );
    }

    const SAMPLES: &[&str] = &[
        "The old mill burned down last night, and nobody in Rivermouth knows who did it. Anna says she saw a lantern by the well.",
        "I'd rather have the dark one. Always! \"Bread,\" she said, \"is what keeps a house together\" — and blackberries, of course.",
        "Rowan promised to bring 12 jars of comfrey salve to Mira before the 25th of November 2026 (3 days from now).",
        "땅콩을 먹으면 목이 부어요. 그러니까 국수에 넣지 말아 주세요.",
        "서연이라고 해요. 강마을에서 왔고, 여동생은 참나무골에 살아요. 어제 그 고약 덕분에 무릎이 훨씬 나아졌어요!",
        "그거 언제까지 발라야 돼? 보름이면 족하네. ㅋㅋㅋ 알겠어~ 고마워 ㅠㅠ",
        "昨日の夜、古い水車小屋が燃えました。誰がやったのか、村の人は誰も知りません。カタカナのメニューもあります。",
        "昨天晚上，老磨坊被烧毁了。村里没有人知道是谁干的。她说她在井边看见了一盏灯笼。",
        "繁體中文：請把藥膏帶給米拉，並告訴她蘋果樹下的祕密。",
        "Mira가 말했다: \"The salve는 쓴 것이지만, 二日後에는 나을 거야.\" 🙂 (HP -15, items_gained: [불꽃 검])",
        "Привет, мир! Žluťoučký kůň. Ça va très bien, merci. ¿Dónde está la biblioteca?",
        r#"{"location": "the Lantern Inn", "hp_change": -5, "relationship_changes": [{"from": "Mira", "to": "player", "type": "trust", "delta": 3}]}"#,
    ];

    #[test]
    fn token_estimate_is_never_low_and_not_far_high_for_english() {
        let templates = ["en", "ko"].into_iter().flat_map(|language| {
            let folder = format!("{}/../../config/prompts/{language}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_dir(folder)
                .unwrap()
                .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        });
        let samples = SAMPLES.iter().map(|&text| text.to_owned()).chain(templates);
        let mut faults = Vec::new();
        for text in samples {
            let estimate = Estimated.count_tokens(&text);
            let o200k = O200k.count_tokens(&text);
            let cl100k = Cl100k.count_tokens(&text);
            let most = o200k.max(cl100k);
            // An estimate counts marks higher than words, and templates are full of marks.
            let is_prose = text.is_ascii() && text.len() > 80 && !text.contains("{%");
            if estimate < most || (is_prose && estimate * 10 > most * 16) {
                faults.push(format!(
                    "{estimate} for {o200k} and {cl100k}: {}",
                    text.chars().take(60).collect::<String>()
                ));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn cuts_fall_between_graphemes() {
        let family = "👨\u{200d}👩\u{200d}👧 가족";
        for counter in [O200k, Cl100k, Estimated] {
            for max in 0..20 {
                let cut = counter.truncate_to(family, max);
                assert!(cut.is_empty() || cut.starts_with("👨\u{200d}👩\u{200d}👧"), "{cut:?}");
            }
        }
    }

    #[test]
    fn hostile_texts_are_counted() {
        for text in [
            " ".repeat(100_000) + "x",
            "a".repeat(4_000),
            "!".repeat(4_000),
            "\n \t".repeat(4_000),
            "가".repeat(4_000),
        ] {
            for counter in [O200k, Cl100k, Estimated] {
                let tokens = counter.count_tokens(&text);
                assert!(tokens > 0);
                assert!(counter.count_tokens(counter.truncate_to(&text, 10)) <= 10);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn cut_text_fits_and_is_a_prefix(text in "\\PC{0,120}", max in 0_u32..40) {
            for counter in [O200k, Cl100k, Estimated] {
                let cut = counter.truncate_to(&text, max);
                prop_assert!(text.starts_with(cut));
                prop_assert!(counter.count_tokens(cut) <= max);
                if counter.count_tokens(&text) <= max {
                    prop_assert_eq!(cut, text.as_str());
                }
            }
        }

        #[test]
        fn cut_text_keeps_most_of_the_allowed_length(words in prop::collection::vec("[a-z]{2,6}|[가-힣]{2,4}", 30..60)) {
            let text = words.join(" ");
            for counter in [O200k, Cl100k, Estimated] {
                let max = counter.count_tokens(&text) / 2;
                prop_assert!(counter.count_tokens(counter.truncate_to(&text, max)) + 3 >= max);
            }
        }
    }
}
