//! Ages of statements in words.

use std::{ops::Range, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use minijinja::context;

use super::{
    template_error::TemplateError,
    templates::{Template, Templates},
};
use colloquy_memory::{
    authored::Language,
    calendar::{GameMoment, parse_game_time},
    game_clock::GameClock,
};

/// The form of a date in numbers; `0` stands for any digit.
const DATE_FORM: &[u8] = b"0000-00-00";

/// Returns where the first date in numbers stands, in bytes.
fn find_date(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let has_form = |window: &[u8]| {
        let mut pairs = window.iter().zip(DATE_FORM);
        pairs.all(|(byte, form)| {
            if *form == b'0' {
                byte.is_ascii_digit()
            } else {
                byte == form
            }
        })
    };
    let is_joined = |index: Option<usize>| {
        index
            .and_then(|index| bytes.get(index))
            .is_some_and(u8::is_ascii_alphanumeric)
    };
    let starts = bytes.windows(DATE_FORM.len()).enumerate();
    let mut dates = starts.filter(|(index, window)| {
        has_form(window) && !is_joined(index.checked_sub(1)) && !is_joined(Some(index + DATE_FORM.len()))
    });
    dates.next().map(|(index, _)| index..index + DATE_FORM.len())
}

/// The time and language of a prompt. Days begin at midnight of the world's clock, or at midnight UTC without a clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgeFormatter<'a> {
    pub language: Language,
    pub now: DateTime<Utc>,
    pub clock: Option<GameClock<'a>>,
}

impl AgeFormatter<'_> {
    /// Returns the date, such as `2026-11-25`. With a clock of the world: the date with its names, and the time of day.
    pub(crate) fn today(self, templates: &Templates) -> Result<String, TemplateError> {
        match self.clock {
            Some(clock) => render_moment(templates, self.language, clock.game_time_now(self.now)),
            None => Ok(self.now.format("%Y-%m-%d").to_string()),
        }
    }

    /// Returns today's date in numbers, such as `2026-11-25`, in the calendar of the world.
    pub(crate) fn today_in_numbers(self) -> String {
        match self.clock {
            Some(clock) => clock.game_time_now(self.now).date_text(),
            None => self.now.format("%Y-%m-%d").to_string(),
        }
    }

    /// Returns the date `days` days ago, as [`Self::today_in_numbers`].
    pub(crate) fn date_days_ago(self, days: i64) -> String {
        match self.clock {
            Some(clock) => {
                let now = clock.game_time_now(self.now);
                let time = now.time.plus_seconds(-days * 86_400);
                GameMoment { time, ..now }.date_text()
            }
            None => (self.now - TimeDelta::days(days)).format("%Y-%m-%d").to_string(),
        }
    }

    /// Returns the date of a moment in numbers, as [`Self::today_in_numbers`].
    pub(crate) fn date_in_numbers(self, moment: DateTime<Utc>) -> String {
        match self.clock {
            Some(clock) => clock.game_time_at(moment).date_text(),
            None => moment.format("%Y-%m-%d").to_string(),
        }
    }

    /// Returns the number of a day. Later days have higher numbers.
    pub(crate) fn day_of(self, moment: DateTime<Utc>) -> i64 {
        GameClock::day_at(self.clock, moment)
    }

    fn days_since(self, moment: DateTime<Utc>) -> i64 {
        (GameClock::today(self.clock, self.now) - self.day_of(moment)).max(0)
    }

    /// Returns an age such as "3 days ago". A date in the future counts as today.
    pub(crate) fn describe_age(self, templates: &Templates, moment: DateTime<Utc>) -> Result<String, TemplateError> {
        let days = self.days_since(moment);
        templates.render(self.language, Template::Ago, context! { days })
    }

    /// Returns an age as [`Self::describe_age`], or nothing for today.
    pub(crate) fn describe_age_in_days(
        self,
        templates: &Templates,
        moment: DateTime<Utc>,
    ) -> Result<Option<String>, TemplateError> {
        (self.days_since(moment) > 0)
            .then(|| self.describe_age(templates, moment))
            .transpose()
    }

    /// Writes the dates of a text (`2026-11-25`) in the words of the world's calendar, each with its distance from
    /// today.
    pub(crate) fn word_dates(self, templates: &Templates, text: String) -> Result<String, TemplateError> {
        let (calendar, now) = if let Some(clock) = self.clock {
            (clock.calendar(), clock.game_time_now(self.now))
        } else {
            let time = parse_game_time(&self.now.format("%Y-%m-%d").to_string(), None).unwrap_or_default();
            (None, GameMoment { time, calendar: None })
        };
        let mut worded = String::new();
        let mut rest = text.as_str();
        while let Some(range) = find_date(rest) {
            let text_before = &rest[..range.start];
            let date = &rest[range.clone()];
            match parse_game_time(date, calendar) {
                Ok(time) => {
                    let moment = GameMoment { time, calendar };
                    let weekday = moment.weekday(self.language).unwrap_or_default();
                    worded.push_str(without_last_word(text_before, weekday));
                    worded.push_str(&self.describe_day(templates, moment, now)?);
                }
                Err(_) => worded.extend([text_before, date]),
            }
            rest = &rest[range.end..];
        }
        if worded.is_empty() {
            return Ok(text);
        }
        worded.push_str(rest);
        Ok(worded)
    }

    fn describe_day(
        self,
        templates: &Templates,
        moment: GameMoment<'_>,
        now: GameMoment<'_>,
    ) -> Result<String, TemplateError> {
        let year = (moment.date().year != now.date().year).then(|| moment.year_text());
        let values = context! {
            weekday => moment.weekday(self.language).unwrap_or_default(),
            day => moment.date().day,
            month => moment.month_name(self.language),
            year => year.unwrap_or_default(),
            has_year_label => has_year_label(moment),
            days => moment.time.day() - now.time.day(),
        };
        templates.render(self.language, Template::Day, values)
    }

    /// Writes the days since `previous_at` in front of a line, for example "[3 days later]". `next_at` is the time of
    /// the line; `None`: now. A line of the same day stays as it is.
    pub(crate) fn mark_gap(
        self,
        templates: &Templates,
        previous_at: DateTime<Utc>,
        next_at: Option<DateTime<Utc>>,
        line: Arc<str>,
    ) -> Result<Arc<str>, TemplateError> {
        let days = match next_at {
            Some(next_at) => self.day_of(next_at) - self.day_of(previous_at),
            None => self.days_since(previous_at),
        };
        if days < 1 {
            return Ok(line);
        }
        let gap = templates.render(self.language, Template::Later, context! { days })?;
        Ok(format!("{}\n{line}", gap.trim()).into())
    }
}

/// Returns the text without the word at its end, and without a comma after the word. A text that ends with other words
/// stays as it is. The words of a day name its weekday again. The word is empty in a calendar without weeks.
fn without_last_word<'t>(text: &'t str, word: &str) -> &'t str {
    if word.is_empty() {
        return text;
    }
    let trimmed = text.trim_end_matches([' ', ',']);
    let split = trimmed
        .len()
        .checked_sub(word.len())
        .and_then(|index| trimmed.split_at_checked(index));
    match split {
        Some((head, last)) if last.eq_ignore_ascii_case(word) && !head.ends_with(char::is_alphanumeric) => head,
        _ => text,
    }
}

fn has_year_label(moment: GameMoment<'_>) -> bool {
    moment.calendar.is_some_and(|calendar| calendar.year_label.is_some())
}

/// Returns the hour as people say it, 1 to 12.
const fn hour_of_half_day(hour: i64) -> i64 {
    match hour % 12 {
        0 => 12,
        hour => hour,
    }
}

/// Renders the date of a game with its names, and the time of day.
fn render_moment(templates: &Templates, language: Language, moment: GameMoment<'_>) -> Result<String, TemplateError> {
    let part: &str = moment.part_of_day().into();
    let values = context! {
        weekday => moment.weekday(language).unwrap_or_default(),
        day => moment.date().day,
        month => moment.month_name(language),
        year => moment.year_text(),
        has_year_label => has_year_label(moment),
        date => moment.date_text(),
        time => moment.clock_text(),
        hour => hour_of_half_day(moment.date().hour),
        minute => moment.date().minute,
        // Everybody knows the week of the Gregorian calendar.
        week => moment.calendar.map(|calendar| calendar.weekdays.clone()).unwrap_or_default(),
        part,
    };
    let text = templates.render(language, Template::GameTime, values)?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_memory::{authored::WorldSettings, state::WorldState};

    #[test]
    fn ages_read_naturally() {
        let templates = Templates::load(None).unwrap();
        let now: DateTime<Utc> = "2026-11-25T00:10:00Z".parse().unwrap();
        for (at, english, korean) in [
            ("2026-11-26T00:00:00Z", "earlier today", "오늘"),
            ("2026-11-25T00:00:00Z", "earlier today", "오늘"),
            ("2026-11-24T23:59:00Z", "yesterday", "어제"),
            ("2026-11-23T01:00:00Z", "2 days ago", "그저께"),
            ("2026-11-12T01:00:00Z", "13 days ago", "13일 전"),
            ("2026-11-11T01:00:00Z", "2 weeks ago", "2주 전"),
            ("2026-09-26T01:00:00Z", "2 months ago", "2달 전"),
            ("2024-11-20T01:00:00Z", "2 years ago", "2년 전"),
        ] {
            for (language, expected) in [(Language::En, english), (Language::Ko, korean)] {
                let ages = AgeFormatter {
                    language,
                    now,
                    clock: None,
                };
                assert_eq!(
                    ages.describe_age(&templates, at.parse().unwrap()).unwrap(),
                    expected,
                    "{at}"
                );
            }
        }
    }

    #[test]
    fn lines_of_another_day_begin_with_the_days_between() {
        let templates = Templates::load(None).unwrap();
        let at = |text: &str| format!("{text}:00Z").parse().unwrap();
        for (before, later, english, korean) in [
            (at("2026-11-25T00:01"), Some(at("2026-11-25T23:00")), "", ""),
            (
                at("2026-11-24T23:59"),
                Some(at("2026-11-25T00:00")),
                "[The next day]\n",
                "[다음 날]\n",
            ),
            (at("2026-11-20T12:00"), None, "[5 days later]\n", "[5일 뒤]\n"),
            (at("2026-10-16T12:00"), None, "[5 weeks later]\n", "[5주 뒤]\n"),
            // The clock of another node.
            (at("2026-11-26T12:00"), None, "", ""),
        ] {
            for (language, expected) in [(Language::En, english), (Language::Ko, korean)] {
                let ages = AgeFormatter {
                    language,
                    now: "2026-11-25T10:00:00Z".parse().unwrap(),
                    clock: None,
                };
                let marked = ages.mark_gap(&templates, before, later, "Hello".into()).unwrap();
                assert_eq!(*marked, format!("{expected}Hello"), "{before:?} {later:?}");
            }
        }
    }

    #[test]
    fn dates_are_words_of_the_calendar_with_their_distance_from_today() {
        let templates = Templates::load(None).unwrap();
        let now: DateTime<Utc> = "2026-11-25T10:00:00Z".parse().unwrap();
        let own: WorldSettings = serde_json::from_value(serde_json::json!({"clock": {
            "calendar": {"months": [{"name": "Thaw", "days": 30}, {"name": "Frost", "days": 30}],
                "weekdays": ["Ashday", "Oakday"], "year_label": "year {year} of the Owl"},
            "start": "0007-02-02 14:30"}}))
        .unwrap();
        let mut state = WorldState::default();
        state.clock.set_time(now, own.clock.as_ref().unwrap().start_time(), 0.0);
        let word = |clock, language, text: &str| {
            let ages = AgeFormatter { language, now, clock };
            ages.word_dates(&templates, text.to_owned()).unwrap()
        };
        for (language, text, expected) in [
            (
                Language::En,
                "She brings it on 0007-02-01.",
                "She brings it on Ashday, 1 Frost (yesterday).",
            ),
            (
                Language::En,
                "due 0008-01-01",
                "due Ashday, 1 Thaw, year 8 of the Owl (in 29 days)",
            ),
            (
                Language::En,
                "no day: 0007-13-01, 10007-02-01",
                "no day: 0007-13-01, 10007-02-01",
            ),
            (
                Language::En,
                "She brings it on Ashday, 0007-02-01, to Oakdayton 0007-02-04.",
                "She brings it on Ashday, 1 Frost (yesterday), to Oakdayton Oakday, 4 Frost (in 2 days).",
            ),
            (
                Language::Ko,
                "0007-02-04에 가져온다.",
                "Frost 4일 Oakday(모레)에 가져온다.",
            ),
        ] {
            assert_eq!(word(GameClock::new(&own, &state), language, text), expected);
        }
        for (language, text, expected) in [
            (Language::En, "by 2026-11-25", "by Wednesday, 25 November (today)"),
            (Language::Ko, "2026-11-21에 온다", "11월 21일 토요일(4일 전)에 온다"),
            (Language::Ko, "2027-01-02까지", "2027년 1월 2일 토요일(38일 뒤)까지"),
        ] {
            assert_eq!(word(None, language, text), expected);
        }
    }

    #[test]
    fn date_of_a_calendar_without_weeks_leaves_the_text_before_it() {
        let templates = Templates::load(None).unwrap();
        let now: DateTime<Utc> = "2026-11-25T10:00:00Z".parse().unwrap();
        let settings: WorldSettings = serde_json::from_value(serde_json::json!({"clock": {
            "calendar": {"months": [{"name": "Thaw", "days": 30}, {"name": "Frost", "days": 30}]},
            "start": "0007-02-02 14:30"}}))
        .unwrap();
        let state = WorldState::default();
        for (language, text, expected) in [
            (Language::En, "due: 0007-02-01", "due: 1 Frost (yesterday)"),
            (Language::Ko, "기한: 0007-02-01", "기한: Frost 1일(어제)"),
        ] {
            let clock = GameClock::new(&settings, &state);
            let ages = AgeFormatter { language, now, clock };
            assert_eq!(ages.word_dates(&templates, text.to_owned()).unwrap(), expected);
        }
    }

    #[test]
    fn ages_and_the_date_follow_the_clock_of_the_world() {
        let templates = Templates::load(None).unwrap();
        let settings: WorldSettings = serde_json::from_value(serde_json::json!({"clock": {
            "calendar": {"months": [{"name": "Thaw", "days": 30}, {"name": "Frost", "days": 30}],
                "weekdays": ["Ashday", "Oakday"], "year_label": "year {year} of the Owl"},
            "start": "0007-02-02 14:30"}}))
        .unwrap();
        let told: DateTime<Utc> = "2026-11-25T10:00:00Z".parse().unwrap();
        let now: DateTime<Utc> = "2026-11-25T10:05:00Z".parse().unwrap();
        let mut state = WorldState::default();
        let start = settings.clock.as_ref().unwrap().start_time();
        state.clock.set_time(told, start, 0.0);
        state.clock.pass_time(now, 3 * 86_400, start, 0.0);
        let real: WorldSettings =
            serde_json::from_value(serde_json::json!({"clock": {"start": "2026-11-28 04:00"}})).unwrap();
        let texts = |settings: &WorldSettings, state: &WorldState, language| {
            let ages = AgeFormatter {
                language,
                now,
                clock: GameClock::new(settings, state),
            };
            [
                ages.today(&templates).unwrap(),
                ages.describe_age(&templates, told).unwrap(),
            ]
        };
        for (language, today, age) in [
            (
                Language::En,
                "Ashday, 5 Frost, year 7 of the Owl (0007-02-05). It is 14:30, in the afternoon. The days of a week: \
                 Ashday, Oakday",
                "3 days ago",
            ),
            (
                Language::Ko,
                "year 7 of the Owl Frost 5일 Ashday(0007-02-05), 지금은 오후 2시 30분(14:30), 한 주는 Ashday, Oakday",
                "3일 전",
            ),
        ] {
            assert_eq!(texts(&settings, &state, language), [today, age]);
        }
        let state = WorldState::default();
        for (language, today, age) in [
            (
                Language::En,
                "Saturday, 28 November 2026 (2026-11-28). It is 04:00, at night",
                "earlier today",
            ),
            (
                Language::Ko,
                "2026년 11월 28일 토요일(2026-11-28), 지금은 새벽 4시(04:00)",
                "오늘",
            ),
        ] {
            assert_eq!(texts(&real, &state, language), [today, age]);
        }
    }
}
