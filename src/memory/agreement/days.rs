//! The days that texts name, written as `2026-11-25`: deadlines, and days from which something holds.

/// The days of a text, written as `2026-11-25`, in order. A year may have more digits.
pub fn days_in(text: &str) -> impl Iterator<Item = &str> {
    let runs = text.split(|c: char| !c.is_ascii_digit() && c != '-');
    runs.filter(|run| {
        let parts: Vec<usize> = run.split('-').map(str::len).collect();
        matches!(parts.as_slice(), [year, 2, 2] if *year >= 4)
    })
}

/// True for a word such as "2026-11-25", "4월" or "16일에".
#[must_use]
pub fn is_date_word(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_korean = unit.len() < word.len() && unit.starts_with(['년', '월', '일', '시', '분']);
    is_korean || days_in(word).next().is_some()
}

/// True if the last day in the text of a promise is before `today`. Days are written as `2026-11-25`. A day before
/// `made_on`, when the promise was made, is no last day ("the coat lent on 2026-11-24"). A day from which something
/// holds ("from 2026-11-25", "2026-11-25부터") is none either.
#[must_use]
pub fn is_overdue(text: &str, made_on: &str, today: &str) -> bool {
    // Years have four digits or more.
    let order = |day: &str| (day.len(), day.to_owned());
    let made_on = order(made_on);
    let days = days_in(text).filter(|day| !is_first_day(text, day)).map(order);
    let last = days.filter(|day| *day >= made_on).max();
    last.is_some_and(|last| last < order(today))
}

/// True if something holds from a day of a text on. A deed that begins on the day ("2026-11-25부터 시작하기로 했다") is due
/// on the day, and so is a deed that lasts some hours of the day.
fn is_first_day(text: &str, day: &str) -> bool {
    let Some((before, after)) = text.split_once(day) else {
        return false;
    };
    // A weekday may stand between: "from Tuesday, 2026-11-24".
    let mut words_before = before.split_whitespace().rev().skip_while(|word| word.ends_with(','));
    let previous_word = words_before.next().unwrap_or_default();
    let is_from = ["from", "since", "after"].contains(&previous_word.to_lowercase().as_str());
    // "2026-11-24 아침부터"
    let word_after = after.split_whitespace().next().unwrap_or_default();
    let is_later = ["이후", "뒤로"].iter().any(|word| word_after.starts_with(word));
    is_from || is_later || word_after.contains("부터") && !text.contains("시작") && !begins_with_hours(after)
}

/// True for the text after the day in "2026-11-25 아침부터 저녁까지".
fn begins_with_hours(after: &str) -> bool {
    const HOURS: [&str; 10] = [
        "오전", "오후", "새벽", "아침", "점심", "정오", "저녁", "밤", "자정", "시",
    ];
    let is_hour = |word: &str| HOURS.iter().any(|hour| word.ends_with(hour));
    let are_hours = |text: &str| !text.trim().is_empty() && text.split_whitespace().all(is_hour);
    // "2026-11-25 아침부터 저녁까지 매일" goes on after the day.
    let is_repeated = ["매일", "날마다", "매주"].iter().any(|word| after.contains(word));
    let span = after.split_once("부터").filter(|_| !is_repeated);
    span.is_some_and(|(start, rest)| {
        let end = rest.split_once("까지").map_or("", |(end, _)| end);
        are_hours(start) && are_hours(end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_before_a_promise_or_from_which_something_holds_is_no_deadline() {
        for (text, overdue) in [
            ("The player brings salt by 2026-11-24.", true),
            ("The player lives at the Moon House from 2026-11-24.", false),
            ("The player works from 2026-11-20 until 2026-11-24.", true),
            ("플레이어는 2026-11-24부터 뒷방에 세 들어 산다.", false),
            ("플레이어는 2026-11-24 아침부터 방앗간에서 일한다.", false),
            ("플레이어는 2026-11-24 아침부터 저녁까지 방앗간에서 일한다.", true),
            ("플레이어는 2026-11-24 9시부터 오후 5시까지 방앗간에서 일한다.", true),
            (
                "플레이어는 2026-11-24부터 매일 아침부터 저녁까지 방앗간에서 일한다.",
                false,
            ),
            ("플레이어는 2026-11-24 아침부터 저녁까지 매일 방앗간에서 일한다.", false),
            ("플레이어는 2026-11-24 아침부터 봄까지 방앗간에서 일한다.", false),
            ("플레이어는 2026-11-20부터 2026-11-24까지 방앗간에서 일한다.", true),
            ("The player works at the mill from Tuesday, 2026-11-24.", false),
            ("플레이어는 2026-11-24부터 지붕을 고치기 시작하기로 했다.", true),
            ("플레이어는 2026-11-24까지 책을 돌려준다.", true),
            ("The player brings salt by 2026-11-25.", false),
            ("The player returns the coat lent on 2026-11-19.", false),
            ("The coat lent on 2026-11-19 is due on 2026-11-24.", true),
            ("플레이어는 2026-11-19에 빌린 외투를 돌려준다.", false),
            ("2026-11-19에 빌린 외투를 2026-11-24까지 돌려준다.", true),
        ] {
            assert_eq!(is_overdue(text, "2026-11-20", "2026-11-25"), overdue, "{text}");
        }
    }

    #[test]
    fn last_day_of_a_promise_is_its_deadline() {
        for (text, overdue) in [
            ("Voss sails on 0212-02-14.", true),
            ("Voss sails on 0212-02-15.", false),
            ("Voss sails on 0212-02-14 or 0212-02-20.", false),
            ("Voss sails.", false),
            ("책을 0212-02-10까지 돌려준다.", true),
        ] {
            assert_eq!(is_overdue(text, "0212-02-01", "0212-02-15"), overdue, "{text}");
        }
        assert_eq!(
            days_in("on 0212-02-15 (until 12024-11-01), 1-2-3").collect::<Vec<_>>(),
            ["0212-02-15", "12024-11-01"]
        );
    }

    #[test]
    fn date_words_are_days_and_units_of_time_and_no_codes() {
        for (word, is_date) in [
            ("2026-11-25", true),
            ("2026-11-25까지", true),
            ("4월", true),
            ("16일에", true),
            ("4711", false),
            ("zqn10zq", false),
            ("일요일", false),
        ] {
            assert_eq!(is_date_word(word), is_date, "{word}");
        }
    }
}
