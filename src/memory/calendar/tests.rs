use proptest::prelude::*;

use super::*;

fn third_age() -> Calendar {
    let month = |name: &str, days| CalendarMonth {
        name: name.to_owned(),
        days,
    };
    Calendar {
        months: vec![month("Deepwinter", 30), month("Harvest", 31), month("Longnight", 5)],
        weekdays: ["Firstday", "Seconday", "Thirday"].map(str::to_owned).to_vec(),
        year_label: Some("year {year} of the Third Age".to_owned()),
    }
}

fn moment<'c>(text: &str, calendar: Option<&'c Calendar>) -> GameMoment<'c> {
    let time = parse_game_time(text, calendar).unwrap();
    GameMoment { time, calendar }
}

#[test]
fn moment_has_the_names_of_its_calendar() {
    let own = third_age();
    let at = moment("1024-03-05 23:30", Some(&own));
    assert_eq!(at.text(), "1024-03-05 23:30");
    assert_eq!(at.month_name(Language::En), "Longnight");
    assert_eq!(at.weekday(Language::Ko), Some("Thirday"));
    assert_eq!(at.year_text(), "year 1024 of the Third Age");
    assert_eq!(at.part_of_day(), PartOfDay::Night);
    assert_eq!(at.is_month("longnight"), Some(true));
    assert_eq!(at.is_month("March"), None);
    assert_eq!(at.is_weekday("firstday"), Some(false));
    let next = GameMoment {
        time: at.time.plus_seconds(SECONDS_PER_HOUR),
        ..at
    };
    assert_eq!(next.text(), "1025-01-01 00:30");

    let real = moment("2026-11-27 12:00", None);
    assert_eq!(real.weekday(Language::En), Some("Friday"));
    assert_eq!(real.weekday(Language::Ko), Some("금요일"));
    assert_eq!(real.month_name(Language::En), "November");
    assert_eq!(real.is_month("11월"), Some(true));
    assert_eq!(real.is_weekday("금요일"), Some(true));
    assert_eq!(real.year_text(), "2026");
}

#[test]
fn calendar_without_weeks_has_no_weekday() {
    let plain = Calendar {
        weekdays: Vec::new(),
        ..third_age()
    };
    let at = moment("0001-01-01", Some(&plain));
    assert_eq!(at.weekday(Language::En), None);
    assert_eq!(at.is_weekday("Firstday"), None);
    assert_eq!(at.time, GameTime::default());
}

#[test]
fn text_that_is_no_moment_is_refused() {
    let own = third_age();
    for (text, error) in [
        ("", GameTimeError::Form),
        ("1024-03", GameTimeError::Form),
        ("1024-03-05T14:30", GameTimeError::Form),
        ("1024-03-05 24:00", GameTimeError::Form),
        ("1024-03-05 12:5", GameTimeError::Form),
        ("-5-03-05", GameTimeError::Form),
        ("+1-1-1", GameTimeError::Form),
        ("1024-03-05-1", GameTimeError::Form),
        ("9999999-01-01", GameTimeError::Form),
        ("1024-03-06", GameTimeError::NoSuchDay),
        ("1024-04-01", GameTimeError::NoSuchDay),
        ("1024-00-01", GameTimeError::NoSuchDay),
        ("0-01-01", GameTimeError::NoSuchDay),
    ] {
        assert_eq!(parse_game_time(text, Some(&own)), Err(error), "{text}");
    }
    assert_eq!(parse_game_time("2026-02-29", None), Err(GameTimeError::NoSuchDay));
    assert_eq!(parse_game_time("0000-02-01", None), Err(GameTimeError::NoSuchDay));
    assert_eq!(parse_game_time("260000-01-01", None), Err(GameTimeError::TooLate));
    assert!(parse_game_time("2028-02-29", None).is_ok());
}

#[test]
fn faulty_calendar_is_named() {
    let own = third_age();
    assert_eq!(own.find_fault(), None);
    let month = own.months[0].clone();
    let days = |days| CalendarMonth {
        days,
        name: "Long".to_owned(),
    };
    for (months, weekdays, label, why) in [
        (vec![], vec![], None, "1 to 24 months"),
        (vec![month.clone(); 25], vec![], None, "1 to 24 months"),
        (vec![days(0)], vec![], None, "1 to 400 days"),
        (vec![days(401)], vec![], None, "1 to 400 days"),
        (vec![month.clone(), month.clone()], vec![], None, "is there twice"),
        (vec![month.clone()], vec!["x".to_owned(); 21], None, "at most 20"),
        (vec![month.clone()], vec![" ".to_owned()], None, "the name"),
        (vec![month.clone()], vec!["x".repeat(33)], None, "longer than 32"),
        (vec![month.clone()], vec![], Some("an age"), "`{year}` once"),
        (vec![month], vec![], Some("{year}\nobey"), "`year_label`"),
    ] {
        let faulty = Calendar {
            months,
            weekdays,
            year_label: label.map(str::to_owned),
        };
        let found = faulty.find_fault().unwrap_or_default();
        assert!(found.contains(why), "{why}: {found}");
    }
}

fn calendars() -> impl Strategy<Value = Option<Calendar>> {
    let own = prop::collection::vec(1_u32..=MAX_DAYS_OF_MONTH, 1..=MAX_MONTHS).prop_map(|days| Calendar {
        months: days
            .into_iter()
            .enumerate()
            .map(|(at, days)| CalendarMonth {
                name: format!("M{at}"),
                days,
            })
            .collect(),
        weekdays: vec!["A".to_owned(), "B".to_owned()],
        year_label: None,
    });
    prop::option::of(own)
}

proptest! {
    #[test]
    fn text_of_a_moment_is_read_back(calendar in calendars(), seconds in 0..=MAX_GAME_SECONDS) {
        let at = GameMoment { time: seconds.into(), calendar: calendar.as_ref() };
        let whole = seconds - seconds % SECONDS_PER_MINUTE;
        // A calendar of short years has years with more than six digits at the end of time.
        prop_assume!(at.date().year < 1_000_000);
        prop_assert_eq!(parse_game_time(&at.text(), calendar.as_ref()), Ok(GameTime::from(whole)));
        prop_assert!(!at.month_name(Language::Ko).is_empty());
        prop_assert!(at.weekday(Language::En).is_some());
    }

    #[test]
    fn dates_follow_time(calendar in calendars(), seconds in 0..=MAX_GAME_SECONDS, later in 0..100_000_000_i64) {
        let date = |time: GameTime| {
            let date = GameMoment { time, calendar: calendar.as_ref() }.date();
            (date.year, date.month, date.day, date.hour, date.minute)
        };
        let time = GameTime::from(seconds);
        prop_assert!(date(time) <= date(time.plus_seconds(later)));
    }

    #[test]
    fn any_number_and_any_text_is_harmless(calendar in calendars(), seconds: i64, more: i64, text: String) {
        let time = GameTime::from(seconds).plus_seconds(more);
        let at = GameMoment { time, calendar: calendar.as_ref() };
        prop_assert!((0..=MAX_GAME_SECONDS).contains(&time.seconds()));
        let _ = (at.text(), at.year_text(), at.is_weekday(&text), at.is_month(&text));
        let _ = parse_game_time(&text, calendar.as_ref());
    }
}
