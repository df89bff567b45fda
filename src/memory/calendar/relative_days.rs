//! Relative days of a text as dates, because "yesterday" and 어제 mean another day to a later reader.

use super::{GameMoment, SECONDS_PER_DAY};
use crate::keywords::{is_hangul, is_only_particles};

/// Stands for the date in [`RELATIVE_DAYS`].
const DATE_MARK: &str = "DATE";

/// Phrases, the days from today, and the words with the date. A phrase comes before its parts.
const RELATIVE_DAYS: [(&str, i64, &str); 17] = [
    ("the day before yesterday", -2, "on DATE"),
    ("yesterday morning", -1, "on the morning of DATE"),
    ("yesterday afternoon", -1, "on the afternoon of DATE"),
    ("yesterday evening", -1, "on the evening of DATE"),
    ("last night", -1, "on the night of DATE"),
    ("yesterday", -1, "on DATE"),
    ("the day after tomorrow", 2, "on DATE"),
    ("tomorrow morning", 1, "on the morning of DATE"),
    ("tomorrow afternoon", 1, "on the afternoon of DATE"),
    ("tomorrow evening", 1, "on the evening of DATE"),
    ("tomorrow night", 1, "on the night of DATE"),
    ("tomorrow", 1, "on DATE"),
    ("그저께", -2, DATE_MARK),
    ("어젯밤", -1, "DATE 밤"),
    ("어제", -1, DATE_MARK),
    ("내일", 1, DATE_MARK),
    ("모레", 2, DATE_MARK),
];

/// Words before a day that leave no room for "on": "since yesterday".
const DAY_PREPOSITIONS: [&str; 12] = [
    "on", "since", "until", "till", "from", "by", "of", "for", "before", "after", "than", "and",
];

/// Returns the text with its relative days as dates in numbers, such as `2026-11-24`, counted from `today`. Words that
/// only begin with such a day, and possessives ("yesterday's"), stay.
#[must_use]
pub fn date_relative_days(text: &str, today: GameMoment<'_>) -> String {
    let mut dated = text.to_owned();
    // Both texts have the same offsets.
    let mut lower = dated.to_ascii_lowercase();
    for (phrase, days, words) in RELATIVE_DAYS {
        let starts = lower.match_indices(phrase).map(|(start, _)| start);
        let starts: Vec<usize> = starts
            .filter(|start| is_whole_word(&lower[..*start], &lower[*start + phrase.len()..]))
            .collect();
        if starts.is_empty() {
            continue;
        }
        let time = today.time.plus_seconds(days * SECONDS_PER_DAY);
        let words = words.replace(DATE_MARK, &GameMoment { time, ..today }.date_text());
        for start in starts.into_iter().rev() {
            let before = lower[..start].split_whitespace().next_back().unwrap_or_default();
            let bare = words.strip_prefix("on ").filter(|_| DAY_PREPOSITIONS.contains(&before));
            dated.replace_range(start..start + phrase.len(), bare.unwrap_or(&words));
        }
        lower = dated.to_ascii_lowercase();
    }
    dated
}

/// True if no letter stands directly before a word, and at most Korean particles directly after it.
fn is_whole_word(before: &str, after: &str) -> bool {
    let ending: Vec<char> = after.chars().take_while(|c| c.is_alphanumeric()).collect();
    let goes_on = before.ends_with(char::is_alphanumeric) || after.starts_with(['\'', '\u{2019}', '-']);
    // "the last night of the fair"
    let is_named = before.ends_with("the ");
    !goes_on && !is_named && ending.iter().copied().all(is_hangul) && is_only_particles(&ending)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::calendar::parse_game_time;

    #[test]
    fn relative_days_become_dates() {
        let time = parse_game_time("2026-11-25", None).unwrap();
        let today = GameMoment { time, calendar: None };
        for (text, expected) in [
            ("The mill burned yesterday.", "The mill burned on 2026-11-24."),
            (
                "The mill burned last night.",
                "The mill burned on the night of 2026-11-24.",
            ),
            ("It rained the day before yesterday.", "It rained on 2026-11-23."),
            (
                "Anna has been ill since yesterday.",
                "Anna has been ill since 2026-11-24.",
            ),
            (
                "The player comes tomorrow morning or the day after tomorrow.",
                "The player comes on the morning of 2026-11-26 or on 2026-11-27.",
            ),
            (
                "The player bought yesterday's bread.",
                "The player bought yesterday's bread.",
            ),
            (
                "It was the last night of the fair.",
                "It was the last night of the fair.",
            ),
            ("플레이어는 어제 발목을 다쳤다.", "플레이어는 2026-11-24 발목을 다쳤다."),
            (
                "플레이어는 내일까지 책을 가져온다.",
                "플레이어는 2026-11-26까지 책을 가져온다.",
            ),
            ("방앗간은 어젯밤에 불탔다.", "방앗간은 2026-11-24 밤에 불탔다."),
            ("모레부터 뒷방에서 산다.", "2026-11-27부터 뒷방에서 산다."),
            ("내일모레 온다고 했다.", "내일모레 온다고 했다."),
            ("플레이어는 포도를 좋아한다.", "플레이어는 포도를 좋아한다."),
        ] {
            assert_eq!(date_relative_days(text, today), expected, "{text}");
        }
    }
}
