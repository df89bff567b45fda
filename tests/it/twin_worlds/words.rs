//! The words of the histories. Prompts, answers of the model and vectors are made of these words.

/// The words that everybody may know.
pub const PLAIN: [&str; 8] = [
    "barley", "candle", "lantern", "orchard", "kettle", "saddle", "ribbon", "tower",
];
/// The secret words of the first and of the second world. The second ones have more tokens, so budgets differ too.
pub const SECRET: [[&str; 3]; 2] = [
    ["falcon", "cobalt", "walrus"],
    ["chrysanthemum", "quicksilver", "hippopotamus"],
];

/// One of the two worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    First,
    Second,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::First, Self::Second];

    /// A secret word of this world. Every number is valid.
    pub fn secret_word(self, number: u8) -> &'static str {
        let words = SECRET[self as usize];
        words[usize::from(number) % words.len()]
    }

    /// A secret sentence of this world. The sentences of the two worlds also differ in lengths, in the number of sentences
    /// and, with `has_plain_words`, in plain words.
    pub fn secret_sentence(self, number: u8, has_plain_words: bool) -> String {
        let [first, second] = [number, number.wrapping_add(1)].map(|nth| self.secret_word(nth));
        match self {
            Self::First if !has_plain_words => format!("The {first} hid the {second}."),
            Self::Second if !has_plain_words => format!("The {first} of the old keeper grew from {second} for years."),
            Self::First => format!("The {first} hid the {second} under the barley."),
            Self::Second => format!(
                "The {first} of the old keeper grew from {second} beside the candle. The saddle of the {second} was \
                 never found again."
            ),
        }
    }
}

/// A plain word. Every number is valid.
pub fn plain_word(number: u8) -> &'static str {
    PLAIN[usize::from(number) % PLAIN.len()]
}

pub fn is_secret(word: &str) -> bool {
    SECRET.iter().flatten().any(|secret| *secret == word)
}

/// All words, plain words first.
pub fn all_words() -> impl Iterator<Item = &'static str> {
    PLAIN.into_iter().chain(SECRET.into_iter().flatten())
}

/// Returns the words in a text, plain words first.
pub fn words_in(text: &str) -> Vec<&'static str> {
    all_words().filter(|word| text.contains(word)).collect()
}
