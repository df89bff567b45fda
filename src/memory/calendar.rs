//! Calendars of games: texts and dates as seconds of the game, and back (docs/algorithms.md#game-time).
//!
//! A world without a calendar of its own has the Gregorian calendar.

mod named_period;
mod relative_days;

use std::fmt::Write as _;

use chrono::{DateTime, Datelike as _, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use named_period::NamedPeriod;
pub use relative_days::date_relative_days;

use super::{
    keywords::normalise_text,
    language::Language,
    text::{check_label, check_name},
};

/// Most months of a calendar, most days of a month, and most days of a week.
pub const MAX_MONTHS: usize = 24;
pub const MAX_DAYS_OF_MONTH: u32 = 400;
pub const MAX_WEEKDAYS: usize = 20;
/// Most characters of the name of a month or a weekday, and of the label of a year.
pub const MAX_CALENDAR_NAME_CHARS: usize = 32;
pub const MAX_YEAR_LABEL_CHARS: usize = 64;
/// The last moment that a clock can show, in seconds. The Gregorian calendar is then near the year 253,000.
pub const MAX_GAME_SECONDS: i64 = 8_000_000_000_000;

pub const SECONDS_PER_MINUTE: i64 = 60;
pub const SECONDS_PER_HOUR: i64 = 3_600;
pub const SECONDS_PER_DAY: i64 = 86_400;

/// Seconds from the first moment of year 1 to 1970.
const SECONDS_TO_1970: i64 = 62_135_596_800;

/// The place of the number in the label of a year.
const YEAR_MARK: &str = "{year}";

const ENGLISH_MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const KOREAN_MONTHS: [&str; 12] = [
    "1월", "2월", "3월", "4월", "5월", "6월", "7월", "8월", "9월", "10월", "11월", "12월",
];
const ENGLISH_WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const KOREAN_WEEKDAYS: [&str; 7] = ["월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일"];

/// A moment of a game, in seconds since the beginning of the first day of year 1: 0 to [`MAX_GAME_SECONDS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "i64", into = "i64")]
pub struct GameTime(i64);

impl From<i64> for GameTime {
    /// The nearest moment that a clock can show.
    fn from(seconds: i64) -> Self {
        Self(seconds.clamp(0, MAX_GAME_SECONDS))
    }
}

impl From<GameTime> for i64 {
    fn from(time: GameTime) -> Self {
        time.0
    }
}

impl GameTime {
    /// The moment of the Gregorian calendar at a real time: the present of a world without a clock.
    #[must_use]
    pub fn from_real(moment: DateTime<Utc>) -> Self {
        moment.timestamp().saturating_add(SECONDS_TO_1970).into()
    }
    /// Seconds since the beginning.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0
    }
    /// Whole days since the beginning; the first day is 0.
    #[must_use]
    pub const fn day(self) -> i64 {
        self.0 / SECONDS_PER_DAY
    }
    /// Minutes since midnight, 0 to 1,439.
    #[must_use]
    pub const fn minute_of_day(self) -> i64 {
        self.0 % SECONDS_PER_DAY / SECONDS_PER_MINUTE
    }
    /// The moment `seconds` later, or earlier if negative; at most the first or the last moment.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        self.0.saturating_add(seconds).into()
    }
    /// Days from an earlier moment, with fractions; negative if `earlier` is later.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "all seconds of a game fit 52 bits")]
    pub fn days_since(self, earlier: Self) -> f64 {
        (self.0 - earlier.0) as f64 / SECONDS_PER_DAY as f64
    }
}

/// Why a text is no moment of a calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GameTimeError {
    #[error("must be a date such as `1024-03-05`, or a date and a time such as `1024-03-05 14:30`")]
    Form,
    #[error("is no day of the calendar of this world")]
    NoSuchDay,
    #[error("is later than a clock can show")]
    TooLate,
}

/// A month of a calendar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CalendarMonth {
    /// 1 to 32 characters.
    #[schema(min_length = 1, max_length = 32)]
    pub name: String,
    /// 1 to 400.
    #[schema(minimum = 1, maximum = 400)]
    pub days: u32,
}

/// A calendar of a game. Every year has the same months; a day has 24 hours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Calendar {
    /// 1 to 24 months, in their order.
    #[schema(inline, min_items = 1, max_items = 24)]
    pub months: Vec<CalendarMonth>,
    /// The days of the week, at most 20. The first day of year 1 has the first name. Default: no weeks.
    #[serde(default)]
    #[schema(max_items = 20)]
    pub weekdays: Vec<String>,
    /// A year in words, with `{year}` for its number, such as `year {year} of the Third Age`. At most 64 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64)]
    pub year_label: Option<String>,
}

/// A date and the time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GameDate {
    /// From 1.
    pub year: i64,
    /// From 1.
    pub month: u32,
    /// From 1.
    pub day: u32,
    /// 0 to 23.
    pub hour: i64,
    /// 0 to 59.
    pub minute: i64,
}

/// A part of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PartOfDay {
    /// 22:00 to 05:00.
    Night,
    /// 05:00 to 12:00.
    Morning,
    /// 12:00 to 18:00.
    Afternoon,
    /// 18:00 to 22:00.
    Evening,
}

/// A moment, with the calendar of its world. `None`: the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GameMoment<'c> {
    pub time: GameTime,
    pub calendar: Option<&'c Calendar>,
}

impl<'c> GameMoment<'c> {
    /// The moment in a world without a clock.
    #[must_use]
    pub fn from_real(moment: DateTime<Utc>) -> Self {
        Self {
            time: GameTime::from_real(moment),
            calendar: None,
        }
    }
    #[must_use]
    pub fn date(self) -> GameDate {
        let (year, month, day) = match self.calendar {
            Some(calendar) => calendar.date_of_day(self.time.day()),
            None => gregorian_date(self.time.day()),
        };
        let minutes = self.time.minute_of_day();
        GameDate {
            year,
            month,
            day,
            hour: minutes / 60,
            minute: minutes % 60,
        }
    }
    /// The date in numbers, such as `1024-03-05`.
    #[must_use]
    pub fn date_text(self) -> String {
        let GameDate { year, month, day, .. } = self.date();
        format!("{year:04}-{month:02}-{day:02}")
    }
    /// The time of day, such as `14:30`.
    #[must_use]
    pub fn clock_text(self) -> String {
        let GameDate { hour, minute, .. } = self.date();
        format!("{hour:02}:{minute:02}")
    }
    /// Date and time in numbers, such as `1024-03-05 14:30`. [`parse_game_time`] reads the text.
    #[must_use]
    pub fn text(self) -> String {
        format!("{} {}", self.date_text(), self.clock_text())
    }
    /// `None`: the calendar has no weeks.
    #[must_use]
    pub fn weekday(self, language: Language) -> Option<&'c str> {
        let day = self.time.day();
        match self.calendar {
            Some(calendar) => calendar
                .weekdays
                .get(remainder(day, calendar.weekdays.len())?)
                .map(String::as_str),
            None => gregorian_weekdays(language).get(remainder(day, 7)?).copied(),
        }
    }
    #[must_use]
    pub fn month_name(self, language: Language) -> &'c str {
        let month = self.date().month as usize;
        let name = match self.calendar {
            Some(calendar) => calendar.months.get(month - 1).map(|month| month.name.as_str()),
            None => gregorian_months(language).get(month - 1).copied(),
        };
        name.unwrap_or_default()
    }
    /// The year in words; the number alone, if the calendar has no label for years.
    #[must_use]
    pub fn year_text(self) -> String {
        let year = self.date().year.to_string();
        match self.calendar.and_then(|calendar| calendar.year_label.as_ref()) {
            Some(label) => label.replace(YEAR_MARK, &year),
            None => year,
        }
    }
    #[must_use]
    pub fn part_of_day(self) -> PartOfDay {
        match self.time.minute_of_day() / 60 {
            5..12 => PartOfDay::Morning,
            12..18 => PartOfDay::Afternoon,
            18..22 => PartOfDay::Evening,
            _ => PartOfDay::Night,
        }
    }
    /// True if today has this name. `None`: the calendar has no such weekday. Case does not matter; the Gregorian
    /// calendar has English and Korean names.
    #[must_use]
    pub fn is_weekday(self, name: &str) -> Option<bool> {
        let day = self.time.day();
        let (index, length) = match self.calendar {
            Some(calendar) => (find_name(calendar.weekdays.iter(), name)?, calendar.weekdays.len()),
            None => (
                find_name(ENGLISH_WEEKDAYS.iter(), name).or_else(|| find_name(KOREAN_WEEKDAYS.iter(), name))?,
                7,
            ),
        };
        Some(remainder(day, length) == Some(index))
    }
    /// True if the month has this name. `None`: the calendar has no such month. As [`Self::is_weekday`].
    #[must_use]
    pub fn is_month(self, name: &str) -> Option<bool> {
        let index = match self.calendar {
            Some(calendar) => find_name(calendar.months.iter().map(|month| &month.name), name)?,
            None => find_name(ENGLISH_MONTHS.iter(), name).or_else(|| find_name(KOREAN_MONTHS.iter(), name))?,
        };
        Some(self.date().month as usize == index + 1)
    }
}

impl Calendar {
    /// What is wrong with the calendar, if something is.
    #[must_use]
    pub fn find_fault(&self) -> Option<String> {
        if !(1..=MAX_MONTHS).contains(&self.months.len()) {
            return Some(format!("`months` must have 1 to {MAX_MONTHS} months"));
        }
        if self.weekdays.len() > MAX_WEEKDAYS {
            return Some(format!("`weekdays` must have at most {MAX_WEEKDAYS} names"));
        }
        if let Some(month) = self
            .months
            .iter()
            .find(|month| !(1..=MAX_DAYS_OF_MONTH).contains(&month.days))
        {
            return Some(format!("`{}` must have 1 to {MAX_DAYS_OF_MONTH} days", month.name));
        }
        let months: Vec<&str> = self.months.iter().map(|month| month.name.as_str()).collect();
        let weekdays: Vec<&str> = self.weekdays.iter().map(String::as_str).collect();
        if let Some(fault) = find_name_fault(&months).or_else(|| find_name_fault(&weekdays)) {
            return Some(fault);
        }
        let label = self.year_label.as_deref()?;
        if let Err(error) = check_label(label) {
            return Some(format!("`year_label` {error}"));
        }
        if label.chars().count() > MAX_YEAR_LABEL_CHARS {
            return Some(format!("`year_label` is longer than {MAX_YEAR_LABEL_CHARS} characters"));
        }
        (label.matches(YEAR_MARK).count() != 1).then(|| format!("`year_label` must contain `{YEAR_MARK}` once"))
    }

    /// Days of every year; at least 1.
    fn days_of_year(&self) -> i64 {
        let days: i64 = self.months.iter().map(|month| i64::from(month.days)).sum();
        days.max(1)
    }

    /// Year, month and day, all from 1, of the day with this number, from 0.
    fn date_of_day(&self, day: i64) -> (i64, u32, u32) {
        let year = day / self.days_of_year() + 1;
        let mut remaining_days = day % self.days_of_year();
        let mut number = 1;
        for month in &self.months {
            let days = i64::from(month.days);
            if remaining_days < days {
                break;
            }
            remaining_days -= days;
            number += 1;
        }
        let day_of_month = u32::try_from(remaining_days + 1).unwrap_or(u32::MAX);
        debug_assert!(
            self.months.is_empty() || self.day_of_date(year, number, day_of_month) == Some(day),
            "a day and its date name each other"
        );
        (year, number, day_of_month)
    }

    /// The number of a day, from 0. `None`: the calendar has no such day.
    fn day_of_date(&self, year: i64, month: u32, day: u32) -> Option<i64> {
        let before = usize::try_from(month).ok()?.checked_sub(1)?;
        let length = self.months.get(before)?.days;
        if year < 1 || !(1..=length).contains(&day) {
            return None;
        }
        let days: i64 = self.months[..before].iter().map(|month| i64::from(month.days)).sum();
        let days_before_year = (year - 1).checked_mul(self.days_of_year())?;
        days_before_year.checked_add(days + i64::from(day) - 1)
    }

    /// Months with their numbers and lengths, and weekdays in their order, in one line for a model.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (index, month) in self.months.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}{:02} {} ({})", index + 1, month.name, month.days);
        }
        if !self.weekdays.is_empty() {
            let _ = write!(text, "; {}", self.weekdays.join(", "));
        }
        text
    }
}

/// Reads a date, or a date and a time of day, as [`GameMoment::text`] writes them. A date alone is its midnight.
///
/// # Errors
/// The text has another form, the calendar has no such day, or the day is too late.
pub fn parse_game_time(text: &str, calendar: Option<&Calendar>) -> Result<GameTime, GameTimeError> {
    let text = text.trim();
    let (date, time) = match text.split_once(' ') {
        Some((date, time)) => (date, Some(time.trim_start())),
        None => (text, None),
    };
    let mut parts = date.split('-').map(parse_number);
    let (Some(Some(year)), Some(Some(month)), Some(Some(day)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(GameTimeError::Form);
    };
    let minutes = time.map_or(Some(0), parse_time_of_day).ok_or(GameTimeError::Form)?;
    let day_number = match calendar {
        Some(calendar) => calendar.day_of_date(i64::from(year), month, day),
        None => gregorian_day(year, month, day),
    };
    let day_number = day_number.ok_or(GameTimeError::NoSuchDay)?;
    let seconds = day_number
        .checked_mul(SECONDS_PER_DAY)
        .and_then(|seconds| seconds.checked_add(minutes * SECONDS_PER_MINUTE))
        .filter(|seconds| *seconds <= MAX_GAME_SECONDS);
    seconds.map(GameTime::from).ok_or(GameTimeError::TooLate)
}

/// Reads a time of day such as `18:00`, as minutes since midnight. `None`: the text is no time of day.
#[must_use]
pub fn parse_time_of_day(text: &str) -> Option<i64> {
    let (hour, minute) = text.trim().split_once(':')?;
    if minute.len() != 2 || hour.len() > 2 {
        return None;
    }
    let hour = parse_number(hour)?;
    let minute = parse_number(minute)?;
    (hour < 24 && minute < 60).then(|| i64::from(hour) * 60 + i64::from(minute))
}

/// Reads up to six digits.
fn parse_number(text: &str) -> Option<u32> {
    let is_plain_number = (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain_number.then(|| text.parse().ok()).flatten()
}

/// The remainder of a division; `None` by 0.
fn remainder(number: i64, divisor: usize) -> Option<usize> {
    let divisor = i64::try_from(divisor).ok()?;
    number
        .checked_rem_euclid(divisor)
        .and_then(|rest| usize::try_from(rest).ok())
}

fn find_name(mut names: impl Iterator<Item = impl AsRef<str>>, name: &str) -> Option<usize> {
    let normalised_name = normalise_text(name.trim());
    names.position(|name| normalise_text(name.as_ref().trim()) == normalised_name)
}

fn find_name_fault(names: &[&str]) -> Option<String> {
    for (index, name) in names.iter().enumerate() {
        if let Err(error) = check_name(name) {
            return Some(format!("the name `{name}` {error}"));
        }
        if name.chars().count() > MAX_CALENDAR_NAME_CHARS {
            return Some(format!(
                "a name is longer than {MAX_CALENDAR_NAME_CHARS} characters: `{name}`"
            ));
        }
        if find_name(names[..index].iter(), name).is_some() {
            return Some(format!("`{name}` is there twice"));
        }
    }
    None
}

const fn gregorian_months(language: Language) -> &'static [&'static str; 12] {
    match language {
        Language::En => &ENGLISH_MONTHS,
        Language::Ko => &KOREAN_MONTHS,
    }
}

/// The names of the seven weekdays, from Monday.
#[must_use]
pub const fn gregorian_weekdays(language: Language) -> &'static [&'static str; 7] {
    match language {
        Language::En => &ENGLISH_WEEKDAYS,
        Language::Ko => &KOREAN_WEEKDAYS,
    }
}

/// Year, month and day of a number of days since 0001-01-01, a Monday.
fn gregorian_date(day: i64) -> (i64, u32, u32) {
    let days = i32::try_from(day.saturating_add(1)).unwrap_or(i32::MAX);
    let date = NaiveDate::from_num_days_from_ce_opt(days).unwrap_or(NaiveDate::MAX);
    (i64::from(date.year()), date.month(), date.day())
}

fn gregorian_day(year: u32, month: u32, day: u32) -> Option<i64> {
    let year = i32::try_from(year).ok().filter(|year| *year >= 1)?;
    let date = NaiveDate::from_ymd_opt(year, month, day)?;
    Some(i64::from(date.num_days_from_ce()) - 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
