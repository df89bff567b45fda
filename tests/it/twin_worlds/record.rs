//! What the observers of a world see, and the comparison of two worlds.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::{Captures, Regex};

use super::program::Secret;

/// Generated ids.
static IDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(?:[a-z]+_)?[0-7][0-9A-HJKMNP-TV-Z]{25}\b").unwrap());
/// Durations that a stopwatch has measured, tokens and ids of requests; and a named channel of explanations, the positions
/// in the log of all states.
static MEASURED: LazyLock<Regex> = LazyLock::new(|| {
    regex_of_fields(
        "[a-z_]*_ms|[a-z_]*millis|resume_token|timings|request_id|state_seq|state_generation",
        "",
    )
});
/// Named channels of an unsaid turn: versions and tags of facts, the time of its session's last change, the tokens of the
/// provider's cache, and that the state was rewound.
static CHANGED_BY_UNSAID_TURNS: LazyLock<Regex> = LazyLock::new(|| {
    regex_of_fields(
        "version|updated_at|unchanged_tokens",
        r#"|^200 "[^"]*"|"changes of the world's state were taken back[^"]*",?"#,
    )
});
/// The beginnings of the channels that have them.
const UNSAID_CHANNELS: [&str; 5] = [
    "GET session",
    "studio explanation",
    "studio fact",
    "studio preview",
    "studio search",
];
/// The observer of all prompts.
pub const MODEL: &str = "model";
/// The shown characters around a difference.
const SHOWN_CHARS: usize = 240;

/// Matches JSON fields with these keys, or `others`.
fn regex_of_fields(keys: &str, others: &str) -> Regex {
    Regex::new(&format!(r#""(?:{keys})":(?:[0-9.e-]+|"[^"]*"|\{{[^}}]*\}}),?{others}"#)).unwrap()
}

/// Returns the text without generated ids, to sort by.
pub fn without_ids(text: &str) -> String {
    IDS.replace_all(text, "").into_owned()
}

/// The place of a text: step, observer and channel.
type Place = (usize, String, String);

/// The texts of all observers, in order.
pub struct Record {
    secret: Secret,
    /// The step that is performed.
    pub step: usize,
    texts: BTreeMap<Place, Vec<String>>,
    /// The places, by their first text.
    places: Vec<Place>,
    /// The number of each id, by the first appearance before the same observer.
    ids: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Record {
    pub fn of_secret(secret: Secret) -> Self {
        Self {
            secret,
            step: 0,
            texts: BTreeMap::new(),
            places: Vec::new(),
            ids: BTreeMap::new(),
        }
    }

    pub fn add(&mut self, observer: &str, channel: &str, text: &str) {
        let text = self.with_numbered_ids(observer, channel, text);
        let place = (self.step, observer.to_owned(), channel.to_owned());
        if !self.texts.contains_key(&place) {
            self.places.push(place.clone());
        }
        self.texts.entry(place).or_default().push(text);
    }

    /// Adds texts whose order has no meaning.
    pub fn add_unordered(&mut self, observer: &str, channel: &str, mut texts: Vec<String>) {
        texts.sort_by_cached_key(|text| without_ids(text));
        for text in texts {
            self.add(observer, channel, &text);
        }
    }

    /// Replaces each id by a number, and measured durations by nothing.
    fn with_numbered_ids(&mut self, observer: &str, channel: &str, text: &str) -> String {
        let numbers = self.ids.entry(observer.to_owned()).or_default();
        let mut text = MEASURED.replace_all(text, "").into_owned();
        if self.secret == Secret::UnsaidTurn && UNSAID_CHANNELS.iter().any(|named| channel.starts_with(named)) {
            text = CHANGED_BY_UNSAID_TURNS.replace_all(&text, "").into_owned();
        }
        let numbered = IDS.replace_all(&text, |id: &Captures<'_>| {
            let next = numbers.len();
            format!("#{}", numbers.entry(id[0].to_owned()).or_insert(next))
        });
        numbered.into_owned()
    }

    pub fn len(&self) -> usize {
        self.texts.values().map(Vec::len).sum()
    }

    /// Returns the first place at which two worlds differ.
    pub fn first_difference(&self, other: &Self) -> Option<Difference> {
        let no_texts = Vec::new();
        // The prompts of a step come before what the model's answers changed.
        let mut places: Vec<&Place> = self.places.iter().chain(&other.places).collect();
        places.sort_by_key(|(step, observer, _)| (*step, observer != MODEL));
        places.into_iter().find_map(|place| {
            let first = self.texts.get(place).unwrap_or(&no_texts);
            let second = other.texts.get(place).unwrap_or(&no_texts);
            let index = (0..first.len().max(second.len())).find(|index| first.get(*index) != second.get(*index))?;
            let text = |texts: &Vec<String>| texts.get(index).cloned().unwrap_or_else(|| "(nothing)".to_owned());
            Some(Difference {
                place: place.clone(),
                first: text(first),
                second: text(second),
            })
        })
    }
}

/// A text that differs.
pub struct Difference {
    place: Place,
    first: String,
    second: String,
}

impl Difference {
    /// Returns the observer and the channel.
    pub fn channel(&self) -> String {
        format!("{}: {}", self.place.1, self.place.2)
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (step, observer, channel) = &self.place;
        writeln!(f, "step {step}, {observer}, {channel}:")?;
        let pairs = self.first.chars().zip(self.second.chars());
        let same = pairs.take_while(|(one, other)| one == other).count();
        let start = same.saturating_sub(SHOWN_CHARS);
        for (side, text) in [("first", &self.first), ("second", &self.second)] {
            let shown: String = text.chars().skip(start).take(2 * SHOWN_CHARS).collect();
            writeln!(f, "--- {side}, from character {start}, differs at {same}\n{shown}")?;
        }
        Ok(())
    }
}
