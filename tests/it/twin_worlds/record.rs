//! What the observers of a world see, and the comparison of two worlds.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use regex::{Captures, Regex};

/// Generated ids.
static IDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(?:[a-z]+_)?[0-7][0-9A-HJKMNP-TV-Z]{25}\b").unwrap());
/// Durations that a stopwatch has measured, tokens, ids of requests, and two named channels of explanations: the positions
/// in the world's log of the state, which unsaid turns move too.
static MEASURED: LazyLock<Regex> = LazyLock::new(|| {
    let keys = "[a-z_]*_ms|[a-z_]*millis|resume_token|timings|request_id|state_seq|state_generation";
    Regex::new(&format!(r#""(?:{keys})":(?:[0-9.e-]+|"[^"]*"|\{{[^}}]*\}})"#)).unwrap()
});
/// The shown characters around a difference.
const SHOWN_CHARS: usize = 240;

/// The place of a text: step, observer and channel.
type Place = (usize, String, String);

/// The texts of all observers, in order.
#[derive(Default)]
pub struct Record {
    /// The step that is performed.
    pub step: usize,
    texts: BTreeMap<Place, Vec<String>>,
    /// The number of each id, by the first appearance before the same observer.
    ids: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Record {
    pub fn add(&mut self, observer: &str, channel: &str, text: &str) {
        let text = self.with_numbered_ids(observer, text);
        let place = (self.step, observer.to_owned(), channel.to_owned());
        self.texts.entry(place).or_default().push(text);
    }

    /// Adds texts whose order has no meaning.
    pub fn add_unordered(&mut self, observer: &str, channel: &str, mut texts: Vec<String>) {
        texts.sort_by_cached_key(|text| IDS.replace_all(text, "").into_owned());
        for text in texts {
            self.add(observer, channel, &text);
        }
    }

    /// Replaces each id by a number, and measured durations by nothing.
    fn with_numbered_ids(&mut self, observer: &str, text: &str) -> String {
        let numbers = self.ids.entry(observer.to_owned()).or_default();
        let numbered = IDS.replace_all(text, |found: &Captures<'_>| {
            let next = numbers.len();
            format!("#{}", numbers.entry(found[0].to_owned()).or_insert(next))
        });
        MEASURED.replace_all(&numbered, "\"\"").into_owned()
    }

    pub fn len(&self) -> usize {
        self.texts.values().map(Vec::len).sum()
    }

    /// Returns the first place at which two worlds differ.
    pub fn first_difference(&self, other: &Self) -> Option<Difference> {
        let places: BTreeSet<&Place> = self.texts.keys().chain(other.texts.keys()).collect();
        let none = Vec::new();
        places.into_iter().find_map(|place| {
            let first = self.texts.get(place).unwrap_or(&none);
            let second = other.texts.get(place).unwrap_or(&none);
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
