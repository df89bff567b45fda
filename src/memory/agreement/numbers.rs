//! Numbers in a text, in digits or words, in Korean and English, as far as facts need them: ages, counts, dates,
//! prices.

use std::sync::LazyLock;

use crate::{
    keywords::{is_hangul, korean_stem},
    text::{WordList, word_list},
};

static ENGLISH_UNITS: WordList = LazyLock::new(|| {
    word_list(
        "zero, one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, \
         fifteen, sixteen, seventeen, eighteen, nineteen",
    )
});
const ENGLISH_TENS: [&str; 8] = [
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
];

/// Native Korean tens and units. The forms in `NATIVE_BOUND` need a counter after them.
const NATIVE_TENS: [(&str, u64); 10] = [
    ("열", 10),
    ("스물", 20),
    ("스무", 20),
    ("서른", 30),
    ("마흔", 40),
    ("쉰", 50),
    ("예순", 60),
    ("일흔", 70),
    ("여든", 80),
    ("아흔", 90),
];
const NATIVE_UNITS: [(&str, u64); 9] = [
    ("하나", 1),
    ("둘", 2),
    ("셋", 3),
    ("넷", 4),
    ("다섯", 5),
    ("여섯", 6),
    ("일곱", 7),
    ("여덟", 8),
    ("아홉", 9),
];
const NATIVE_BOUND: [(&str, u64); 4] = [("한", 1), ("두", 2), ("세", 3), ("네", 4)];

/// Words that count things.
static COUNTERS: WordList = LazyLock::new(|| {
    word_list(
        "살, 명, 개, 마리, 년, 월, 일, 시, 분, 초, 번, 원, 골드, 층, 잔, 병, 권, 장, 대, 송이, 자루, 그루, 켤레, 쌍, \
         달, 주, 가지, 사람, 배, 점, 호, 척, 인, 미터, 킬로, 시간, 세, 냥, 푼, 은화, 금화, 조각, 그릇, 채, 벌, 통, \
         줄, 포기, 방울, 퍼센트",
    )
});
/// Counters after a single Sino-Korean digit. Before other counters such a syllable is usually another word.
const SINO_COUNTERS: [&str; 9] = ["년", "월", "층", "개월", "학년", "인분", "킬로", "미터", "퍼센트"];

/// A piece of a text: a number, or a word for comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TextPiece {
    /// A number in its shortest decimal form.
    Number(String),
    Word(String),
}

/// Splits a normalised text into numbers and words. Particles stay on the words.
pub(super) fn split_pieces(text: &str) -> Vec<TextPiece> {
    let words = split_words(text);
    let mut pieces = Vec::with_capacity(words.len());
    let mut index = 0;
    while index < words.len() {
        let word = words[index].as_str();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            pieces.push(TextPiece::Number(shortest_decimal(word)));
            index += 1;
            // "1st", "2nd"
            if matches!(words.get(index).map(String::as_str), Some("st" | "nd" | "rd" | "th")) {
                index += 1;
            }
        } else if let Some((number, used)) = parse_english_number(&words[index..]) {
            pieces.push(TextPiece::Number(number.to_string()));
            index += used;
        } else if let Some((number, rest)) = parse_korean_number(word, words.get(index + 1).map_or("", String::as_str))
        {
            pieces.push(TextPiece::Number(number.to_string()));
            if !rest.is_empty() {
                pieces.push(TextPiece::Word(rest));
            }
            index += 1;
        } else {
            pieces.push(TextPiece::Word(words[index].clone()));
            index += 1;
        }
    }
    pieces
}

/// Splits a text into words. Digits are separate from letters, and thousands stay together.
fn split_words(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let digit = |index: usize| chars.get(index).is_some_and(char::is_ascii_digit);
    let mut words: Vec<String> = Vec::new();
    let mut index = 0;
    while index < chars.len() {
        let from = index;
        if digit(index) {
            // 1,000 and 3.5 are one number; a comma only before three digits.
            while digit(index)
                || (chars.get(index) == Some(&'.') && digit(index + 1))
                || (chars.get(index) == Some(&',')
                    && digit(index + 1)
                    && digit(index + 2)
                    && digit(index + 3)
                    && !digit(index + 4))
            {
                index += 1;
            }
        } else if chars[index].is_alphanumeric() {
            while chars
                .get(index)
                .is_some_and(|&c| (c.is_alphanumeric() && !c.is_ascii_digit()) || c == '\'')
            {
                index += 1;
            }
        } else {
            index += 1;
            continue;
        }
        words.push(chars[from..index].iter().collect());
    }
    words
}

fn shortest_decimal(digits: &str) -> String {
    let number = digits.replace(',', "");
    let (integer, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let integer = integer.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    let integer = if integer.is_empty() { "0" } else { integer };
    if fraction.is_empty() {
        integer.to_owned()
    } else {
        format!("{integer}.{fraction}")
    }
}

/// "two hundred and five" → (205, 4 words).
fn parse_english_number(words: &[String]) -> Option<(u64, usize)> {
    let mut total = 0_u64;
    let mut group = 0_u64;
    let mut used_words = 0;
    while let Some(word) = words.get(used_words) {
        let word = word.as_str();
        if let Some(unit) = ENGLISH_UNITS.iter().position(|unit_name| *unit_name == word) {
            // "the red one"
            if word == "one" && used_words == 0 && words.len() == 1 {
                return None;
            }
            group += unit as u64;
        } else if let Some(ten) = ENGLISH_TENS.iter().position(|ten_name| *ten_name == word) {
            group += (ten as u64 + 2) * 10;
        } else if word == "dozen" {
            group = group.max(1) * 12;
        } else if used_words > 0 && word == "hundred" {
            group = group.max(1) * 100;
        } else if used_words > 0 && matches!(word, "thousand" | "million") {
            total += group.max(1) * if word == "thousand" { 1_000 } else { 1_000_000 };
            group = 0;
        } else if !(used_words > 0
            && word == "and"
            && words
                .get(used_words - 1)
                .is_some_and(|last| last == "hundred" || last == "thousand"))
        {
            break;
        }
        used_words += 1;
    }
    (used_words > 0).then_some((total + group, used_words))
}

/// The number at the start of a Korean word, and the rest of the word (its counter).
fn parse_korean_number(word: &str, next: &str) -> Option<(u64, String)> {
    if !word.starts_with(is_hangul) || word.starts_with("이번") || word.starts_with("이분") {
        return None;
    }
    let (number, rest, needs_counter) = parse_native_number(word).or_else(|| parse_sino_number(word))?;
    let bare: String = korean_stem(&rest.chars().collect::<Vec<_>>()).into_iter().collect();
    let counted = |text: &str, counters: &[&str]| counters.iter().any(|counter| text.starts_with(counter));
    let fits = match needs_counter {
        RequiredCounter::Nothing => rest.is_empty() || counted(rest, &COUNTERS) || is_ending(rest),
        RequiredCounter::Counter => counted(rest, &COUNTERS) || (rest.is_empty() && counted(next, &COUNTERS)),
        RequiredCounter::SinoCounter => {
            counted(rest, &SINO_COUNTERS) || (rest.is_empty() && counted(next, &SINO_COUNTERS))
        }
    };
    fits.then_some((number, if is_ending(rest) { String::new() } else { bare }))
}

/// The word that must follow a numeral.
#[derive(Debug, Clone, Copy)]
enum RequiredCounter {
    Nothing,
    Counter,
    SinoCounter,
}

/// Particles and the copula after a bare numeral: "둘이다", "셋을".
fn is_ending(rest: &str) -> bool {
    "이 을 를 은 는 가 도 만 이다 다 이야 야 과 와 의 입니다"
        .split(' ')
        .any(|ending| ending == rest)
}

fn parse_native_number(word: &str) -> Option<(u64, &str, RequiredCounter)> {
    let strip = |text: &str, table: &[(&str, u64)]| {
        table
            .iter()
            .find_map(|(name, value)| text.strip_prefix(name).map(|_| (*value, name.len())))
    };
    let (tens, ten_len) = strip(word, &NATIVE_TENS).unwrap_or((0, 0));
    let rest = &word[ten_len..];
    if let Some((unit, len)) = strip(rest, &NATIVE_UNITS) {
        return Some((tens + unit, &rest[len..], RequiredCounter::Nothing));
    }
    if let Some((unit, len)) = strip(rest, &NATIVE_BOUND) {
        return Some((tens + unit, &rest[len..], RequiredCounter::Counter));
    }
    (tens > 0).then_some((tens, rest, RequiredCounter::Counter))
}

fn parse_sino_number(word: &str) -> Option<(u64, &str, RequiredCounter)> {
    let mut total = 0_u64;
    let mut group = 0_u64;
    let mut digit = 0_u64;
    let mut len = 0;
    let mut places = 0;
    for c in word.chars() {
        match c {
            '일' | '이' | '삼' | '사' | '오' | '육' | '칠' | '팔' | '구' if digit == 0 => {
                digit = "일이삼사오육칠팔구".chars().position(|numeral| numeral == c)? as u64 + 1;
            }
            '십' | '백' | '천' => {
                let place = match c {
                    '십' => 10,
                    '백' => 100,
                    _ => 1_000,
                };
                group += digit.max(1) * place;
                digit = 0;
                places += 1;
            }
            '만' => {
                total += (group + digit).max(1) * 10_000;
                (group, digit) = (0, 0);
                places += 1;
            }
            _ => break,
        }
        len += c.len_utf8();
    }
    let numerals = word[..len].chars().count();
    match (numerals, places) {
        (1, 0) => Some((digit, &word[len..], RequiredCounter::SinoCounter)),
        (1, _) => Some((total + group, &word[len..], RequiredCounter::Counter)),
        // No numeral; "이오" and similar words.
        (_, 0) => None,
        // 천사 means "angel" more often than 1004.
        (2, 1) if word.starts_with(['백', '천', '만']) => {
            Some((total + group + digit, &word[len..], RequiredCounter::Counter))
        }
        _ => Some((total + group + digit, &word[len..], RequiredCounter::Nothing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Vec<String> {
        split_pieces(text)
            .into_iter()
            .filter_map(|piece| {
                if let TextPiece::Number(number) = piece {
                    Some(number)
                } else {
                    None
                }
            })
            .collect()
    }

    #[test]
    fn numbers_in_digits_and_words_are_parsed() {
        for (text, expected) in [
            ("3 cats", vec!["3"]),
            ("three cats", vec!["3"]),
            ("twenty-one years", vec!["21"]),
            ("two hundred and five gold", vec!["205"]),
            ("three thousand two hundred", vec!["3200"]),
            ("a dozen eggs", vec!["12"]),
            ("1,000 coins and 3.50", vec!["1000", "3.5"]),
            ("the 2nd of 05", vec!["2", "5"]),
            ("the red one", vec![]),
            ("고양이 세 마리", vec!["3"]),
            ("고양이 3마리", vec!["3"]),
            ("스무 살이다", vec!["20"]),
            ("스물다섯 살", vec!["25"]),
            ("열두명", vec!["12"]),
            ("삼백오십 골드", vec!["350"]),
            ("오만 원", vec!["50000"]),
            ("천 원", vec!["1000"]),
            ("삼 년 전", vec!["3"]),
            ("다섯을 샀다", vec!["5"]),
            ("하나뿐인 친구", vec![]),
        ] {
            assert_eq!(numbers(text), expected, "{text}");
        }
    }

    #[test]
    fn words_that_only_begin_like_numbers_are_not_numbers() {
        for text in [
            "사과를 좋아한다",
            "이번에 만났다",
            "이 사람",
            "오늘",
            "두부",
            "한국",
            "세상",
            "구두",
            "네가",
            "천사",
            "만남",
            "열쇠",
            "사장",
        ] {
            assert_eq!(numbers(text), Vec::<String>::new(), "{text}");
        }
    }
}
