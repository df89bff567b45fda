//! The past days that a line names: "last week", "on 8 December 2023", "7월에" (docs/algorithms.md#recall).

use super::{
    Calendar, ENGLISH_MONTHS, GameMoment, GameTime, KOREAN_MONTHS, gregorian_day, normalise_text, parse_game_time,
};
use crate::keywords::matches_name;

/// Days of the past, both included, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedPeriod {
    first: i64,
    last: i64,
}

/// Phrases for past days: the words, the first day before today, the last day before today.
const PAST_DAYS: [(&str, i64, i64); 11] = [
    ("day before yesterday", 2, 2),
    ("yesterday", 1, 1),
    ("last night", 1, 1),
    ("last week", 13, 3),
    ("그저께", 2, 2),
    ("엊그제", 3, 2),
    ("어제", 1, 1),
    ("어젯밤", 1, 1),
    ("지난주", 13, 3),
    ("지난 주", 13, 3),
    ("저번 주", 13, 3),
];
const LAST_MONTH: [&str; 4] = ["last month", "지난달", "지난 달", "저번 달"];
const LAST_YEAR: [&str; 4] = ["last year", "작년", "지난해", "지난 해"];
/// Words before the name of a month, or before a year, that is meant as a time.
const TIME_PREPOSITIONS: [&str; 12] = [
    "in", "of", "last", "since", "during", "early", "late", "mid", "by", "around", "until", "year",
];

impl NamedPeriod {
    /// The first time named in a line that has begun before `today`. Months and days without a year are the latest
    /// past ones. `None`: the line names no past time.
    #[must_use]
    pub fn in_line(line: &str, today: GameMoment<'_>) -> Option<Self> {
        let text = normalise_text(line);
        let now = today.time.day();
        let words: Vec<&str> = text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        let period = numeric_date(&text, today.calendar)
            .or_else(|| words_date(&words, today))
            .or_else(|| relative_days(&words, today))?;
        (period.first <= now).then_some(period)
    }

    /// Days between the period and a moment; 0 within the period.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "all days of a game fit 52 bits")]
    pub fn days_from(&self, time: GameTime) -> f64 {
        let day = time.day();
        (self.first - day).max(day - self.last).max(0) as f64
    }
}

/// A date in numbers, such as `1024-03-05`.
fn numeric_date(text: &str, calendar: Option<&Calendar>) -> Option<NamedPeriod> {
    let day = text.split_whitespace().find_map(|word| {
        let word = word.trim_matches(|c: char| !c.is_ascii_digit());
        parse_game_time(word, calendar).ok().map(GameTime::day)
    })?;
    Some(NamedPeriod { first: day, last: day })
}

fn words_date(words: &[&str], today: GameMoment<'_>) -> Option<NamedPeriod> {
    let word_at = |index: Option<usize>| index.and_then(|index| words.get(index)).copied().unwrap_or_default();
    let own_names: Option<Vec<String>> = today.calendar.map(|calendar| {
        calendar
            .months
            .iter()
            .map(|month| normalise_text(month.name.trim()))
            .collect()
    });
    let named_month = words.iter().enumerate().find_map(|(index, word)| {
        let month = month_of(word, own_names.as_deref())?;
        let before = word_at(index.checked_sub(1));
        // "3rd of Frost"
        let day_before = if before == "of" {
            word_at(index.checked_sub(2))
        } else {
            before
        };
        let after = word_at(Some(index + 1));
        let day = ordinal_of(day_before).or_else(|| ordinal_of(after));
        let year = [before, after, word_at(Some(index + 2))].into_iter().find_map(year_of);
        // A month may be a common word: "may", "march", "frost".
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        let is_time = is_number || day.is_some() || year.is_some() || TIME_PREPOSITIONS.contains(&before);
        is_time.then_some((month, day, year))
    });
    let Some((month, day, year)) = named_month else {
        let year = words.iter().enumerate().find_map(|(index, word)| {
            let is_time = word.contains('년') || TIME_PREPOSITIONS.contains(&word_at(index.checked_sub(1)));
            is_time.then(|| year_of(word)).flatten()
        })?;
        return Some(NamedPeriod {
            first: day_number(today.calendar, year, 1, 1)?,
            last: day_number(today.calendar, year + 1, 1, 1)? - 1,
        });
    };
    let first_day = |year| day_number(today.calendar, year, month, day.unwrap_or(1));
    let year = year.or_else(|| {
        let this_year = today.date().year;
        [this_year, this_year - 1]
            .into_iter()
            .find(|&year| first_day(year).is_some_and(|first| first <= today.time.day()))
    })?;
    let first = first_day(year)?;
    let last = match day {
        Some(_) => first,
        None => first + days_of_month(today.calendar, year, month) - 1,
    };
    Some(NamedPeriod { first, last })
}

fn relative_days(words: &[&str], today: GameMoment<'_>) -> Option<NamedPeriod> {
    let text = format!(" {}", words.join(" "));
    let names = |phrase: &str| text.contains(&format!(" {phrase}"));
    let now = today.time.day();
    if let Some((_, first, last)) = PAST_DAYS.iter().find(|(phrase, ..)| names(phrase)) {
        return Some(NamedPeriod {
            first: now - first,
            last: now - last,
        });
    }
    let date = today.date();
    let this_month = day_number(today.calendar, date.year, date.month, 1)?;
    if LAST_MONTH.iter().any(|phrase| names(phrase)) {
        let last = GameMoment {
            time: GameTime::from((this_month - 1).max(0) * super::SECONDS_PER_DAY),
            ..today
        };
        let month = last.date();
        return Some(NamedPeriod {
            first: day_number(today.calendar, month.year, month.month, 1)?,
            last: this_month - 1,
        });
    }
    if LAST_YEAR.iter().any(|phrase| names(phrase)) {
        return Some(NamedPeriod {
            first: day_number(today.calendar, date.year - 1, 1, 1)?,
            last: day_number(today.calendar, date.year, 1, 1)? - 1,
        });
    }
    None
}

/// The number of a month with this name, from 1. `own_names`: the months of a world's own calendar.
fn month_of(word: &str, own_names: Option<&[String]>) -> Option<u32> {
    let position = match own_names {
        Some(names) => names.iter().position(|name| matches_name(word, name)),
        None => ENGLISH_MONTHS
            .iter()
            .position(|name| name.eq_ignore_ascii_case(word))
            .or_else(|| KOREAN_MONTHS.iter().position(|name| word.starts_with(name))),
    };
    position.and_then(|index| u32::try_from(index + 1).ok())
}

/// A day of a month: 8, 8th, 8일.
fn ordinal_of(word: &str) -> Option<u32> {
    let (number, rest) = leading_number(word)?;
    let is_day = matches!(rest, "" | "st" | "nd" | "rd" | "th") || rest.starts_with('일');
    (is_day && (1..=2).contains(&(word.len() - rest.len()))).then_some(number)
}

/// A year of four digits: 2023, 2023년.
fn year_of(word: &str) -> Option<i64> {
    let (number, rest) = leading_number(word)?;
    let is_year = word.len() - rest.len() == 4 && (rest.is_empty() || rest.starts_with('년'));
    is_year.then(|| i64::from(number))
}

fn leading_number(word: &str) -> Option<(u32, &str)> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (digits, rest) = word.split_at(end);
    Some((digits.parse().ok()?, rest))
}

fn day_number(calendar: Option<&Calendar>, year: i64, month: u32, day: u32) -> Option<i64> {
    match calendar {
        Some(calendar) => calendar.day_of_date(year, month, day),
        None => gregorian_day(u32::try_from(year).ok()?, month, day),
    }
}

fn days_of_month(calendar: Option<&Calendar>, year: i64, month: u32) -> i64 {
    let longest = calendar.map_or(31, |calendar| {
        let index = usize::try_from(month).unwrap_or_default().saturating_sub(1);
        calendar.months.get(index).map_or(1, |month| month.days)
    });
    let last = (1..=longest)
        .rev()
        .find(|&day| day_number(calendar, year, month, day).is_some());
    i64::from(last.unwrap_or(1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::calendar::CalendarMonth;

    fn moment<'c>(date: &str, calendar: Option<&'c Calendar>) -> GameMoment<'c> {
        let time = parse_game_time(date, calendar).unwrap();
        GameMoment { time, calendar }
    }

    #[test]
    fn named_times_become_days() {
        for (line, first, last) in [
            ("What did I tell you in July?", "2023-07-01", "2023-07-31"),
            ("Which book was it on 8th December, 2022?", "2022-12-08", "2022-12-08"),
            ("Where did we go on March 3?", "2023-03-03", "2023-03-03"),
            ("What happened in November?", "2022-11-01", "2022-11-30"),
            ("Who came in 2021?", "2021-01-01", "2021-12-31"),
            ("What was it on 2023-02-28?", "2023-02-28", "2023-02-28"),
            ("what did I say yesterday", "2023-08-14", "2023-08-14"),
            ("the day before yesterday?", "2023-08-13", "2023-08-13"),
            ("Who won last month?", "2023-07-01", "2023-07-31"),
            ("What did I do last year?", "2022-01-01", "2022-12-31"),
            ("last week I saw it", "2023-08-02", "2023-08-12"),
            ("2022년 12월 8일에 뭐 했지?", "2022-12-08", "2022-12-08"),
            ("7월에 어디 갔더라?", "2023-07-01", "2023-07-31"),
            ("어제 누구 만났다고 했지?", "2023-08-14", "2023-08-14"),
            ("작년에는?", "2022-01-01", "2022-12-31"),
            ("2021년에 무슨 일이 있었지?", "2021-01-01", "2021-12-31"),
        ] {
            let found = NamedPeriod::in_line(line, moment("2023-08-15", None));
            let day = |text| moment(text, None).time.day();
            let expected = NamedPeriod {
                first: day(first),
                last: day(last),
            };
            assert_eq!(found, Some(expected), "{line}");
        }
    }

    #[test]
    fn other_lines_name_no_past_time() {
        for line in [
            "May I march in?",
            "I have 2023 coins",
            "I leave in September 2024",
            "일월이가 왔어",
            "방이 12개야",
            "last but not least",
            "",
        ] {
            assert_eq!(NamedPeriod::in_line(line, moment("2023-08-15", None)), None, "{line}");
        }
    }

    #[test]
    fn months_of_a_world_are_known_by_their_names() {
        let month = |name: &str| CalendarMonth {
            name: name.to_owned(),
            days: 20,
        };
        let calendar = Calendar {
            months: vec![month("Frost"), month("Herring"), month("서리달")],
            weekdays: Vec::new(),
            year_label: None,
        };
        let today = moment("0212-03-05", Some(&calendar));
        let days = |line| NamedPeriod::in_line(line, today).map(|found| (found.first, found.last));
        let day = |text| moment(text, Some(&calendar)).time.day();
        let spring = day("0212-02-15");
        assert_eq!(days("What did I promise on 15 Herring?"), Some((spring, spring)));
        assert_eq!(days("Who came in Frost?"), Some((day("0212-01-01"), day("0212-01-20"))));
        let autumn = day("0212-03-02");
        assert_eq!(days("서리달 2일에 뭐라고 했지?"), Some((autumn, autumn)));
        assert_eq!(days("There is frost on the window"), None);
    }

    #[test]
    fn distance_is_zero_within_the_period() {
        let period = NamedPeriod::in_line("in July", moment("2023-08-15", None)).unwrap();
        for (date, days) in [
            ("2023-07-01", 0.0),
            ("2023-07-31", 0.0),
            ("2023-08-10", 10.0),
            ("2023-06-29", 2.0),
        ] {
            assert!(
                (period.days_from(moment(date, None).time) - days).abs() < f64::EPSILON,
                "{date}"
            );
        }
    }
}
