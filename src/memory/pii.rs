//! Personal data in a text: found at write and flagged (docs/algorithms.md#personal-data).
//!
//! The patterns check the form where possible (Luhn, dates, check digits), so that a price or a year does not count as
//! a card. Names are not searched for: an NPC has to know names.

use std::{borrow::Cow, ops::Range, sync::LazyLock};

use regex::Regex;

/// The kinds, in the order of [`detect_kinds`]. If two matches overlap, the earlier kind wins.
const PII_KINDS: [&str; 5] = ["email", "national_id", "card", "phone", "address"];

/// Compiled once. Each pattern takes linear time at most.
static PII_PATTERNS: LazyLock<[(&str, Regex); 9]> = LazyLock::new(|| {
    let pattern = |text: &str| Regex::new(text).expect("a constant pattern that the tests compile");
    [
        (
            "email",
            pattern(r"(?i)[a-z0-9][a-z0-9._%+-]{0,63}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,4}\.[a-z]{2,24}"),
        ),
        // Korean resident registration number; US social security number.
        ("national_id", pattern(r"[0-9]{6}[ -]?[1-8][0-9]{6}")),
        ("national_id", pattern(r"[0-9]{3}-[0-9]{2}-[0-9]{4}")),
        ("card", pattern(r"[2-6][0-9]{3}(?:[ -]?[0-9]){9,15}")),
        // +82 10-1234-5678, +1 (415) 555-0100
        (
            "phone",
            pattern(r"\+[0-9]{1,3}[ .-]?(?:\([0-9]{1,4}\)[ .-]?)?[0-9]{1,4}(?:[ .-]?[0-9]{2,4}){2,4}"),
        ),
        // Korean mobile, area and internet numbers; North American numbers.
        (
            "phone",
            pattern(r"(?:01[016789]|02|0[3-6][1-5]|070|050[0-9])[ .-]?[0-9]{3,4}[ .-]?[0-9]{4}"),
        ),
        (
            "phone",
            pattern(r"(?:\([0-9]{3}\) ?|[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}"),
        ),
        (
            "address",
            pattern(concat!(
                r"(?:[가-힣]{1,6}(?:특별자치시|특별자치도|특별시|광역시|시|도|군|구)\s{1,2}){1,3}",
                r"(?:[가-힣0-9]{1,10}(?:읍|면)\s{1,2})?[가-힣0-9]{1,12}(?:대로|로|길|동|리)\s{0,2}",
                r"[0-9]{1,5}(?:번길\s{0,2}[0-9]{1,4})?(?:-[0-9]{1,4})?(?:번지|호)?",
                r"|[0-9]{1,4}동\s{0,2}[0-9]{1,4}호",
            )),
        ),
        (
            "address",
            pattern(concat!(
                r"(?i)[0-9]{1,5}[a-z]?\s{1,2}(?:[a-z][a-z'.]{0,20}\s{1,2}){1,3}",
                r"(?:street|avenue|boulevard|road|lane|drive|st|ave|blvd|rd|ln)\b\.?",
                r"|\bp\.?\s?o\.?\s?box\s{1,2}[0-9]{1,6}",
            )),
        ),
    ]
});

/// Kinds of personal data in a text, each once: `email`, `national_id`, `card`, `phone`, `address`.
#[must_use]
pub fn detect_kinds(text: &str) -> Vec<&'static str> {
    let spans = find_spans(&half_width(text));
    PII_KINDS
        .into_iter()
        .filter(|kind| spans.iter().any(|(_, span_kind)| span_kind == kind))
        .collect()
}

/// The pieces of personal data, without overlaps.
fn find_spans(text: &str) -> Vec<(Range<usize>, &'static str)> {
    let mut spans: Vec<(Range<usize>, &'static str)> = Vec::new();
    // Most lines have no `@` and no digit, which the patterns need.
    if !text.contains('@') && !text.contains(|c: char| c.is_ascii_digit()) {
        return spans;
    }
    for (kind, pattern) in &*PII_PATTERNS {
        for hit in pattern.find_iter(text) {
            let range = hit.range();
            let is_taken = spans
                .iter()
                .any(|(other, _)| other.start < range.end && range.start < other.end);
            if !is_taken && (*kind == "email" || stands_alone(text, &range)) && is_valid_match(kind, hit.as_str()) {
                spans.push((range, kind));
            }
        }
    }
    spans
}

/// True if the match is no part of a longer number or word. Korean particles may follow directly.
fn stands_alone(text: &str, range: &Range<usize>) -> bool {
    let before = text[..range.start].chars().next_back();
    let mut after = text[range.end..].chars();
    let next = after.next();
    let digits_go_on = matches!(next, Some('-' | '.')) && after.next().is_some_and(|c| c.is_ascii_digit());
    !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '@')
        && !next.is_some_and(|c| c.is_ascii_digit())
        && !digits_go_on
}

fn is_valid_match(kind: &str, text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    match kind {
        "card" => {
            (13..=19).contains(&digits.len()) && passes_luhn(&digits) && digits.iter().any(|digit| *digit != digits[0])
        }
        "national_id" if digits.len() == 13 => is_resident_number(&digits, text.len() > 13),
        "national_id" => is_social_security_number(&digits),
        "phone" => (8..=15).contains(&digits.len()),
        // "3 miles down the road" is no address.
        "address" => {
            const PROSE: [&str; 16] = [
                "the", "a", "an", "down", "up", "on", "of", "in", "to", "and", "by", "from", "my", "mile", "miles",
                "days",
            ];
            !text.to_lowercase().split_whitespace().any(|word| PROSE.contains(&word))
        }
        _ => true,
    }
}

fn passes_luhn(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, &digit)| match (index % 2, digit * 2) {
            (0, _) => digit,
            (_, doubled) if doubled > 9 => doubled - 9,
            (_, doubled) => doubled,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Checks a birth date and a century digit; without a separator also the check digit. Numbers issued since late 2020
/// have no check digit.
fn is_resident_number(digits: &[u32], separated: bool) -> bool {
    let month = digits[2] * 10 + digits[3];
    let day = digits[4] * 10 + digits[5];
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return false;
    }
    let sum: u32 = digits
        .iter()
        .take(12)
        .zip([2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5])
        .map(|(digit, weight)| digit * weight)
        .sum();
    separated || (11 - sum % 11) % 10 == digits[12]
}

fn is_social_security_number(digits: &[u32]) -> bool {
    let number = |range: Range<usize>| digits[range].iter().fold(0, |number, digit| number * 10 + digit);
    let area = number(0..3);
    area != 0 && area != 666 && area < 900 && number(3..5) != 0 && number(5..9) != 0
}

/// Full-width digits, letters and marks as their ASCII forms.
fn half_width(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| matches!(c, '\u{ff01}'..='\u{ff5e}')) {
        return Cow::Borrowed(text);
    }
    let narrow = |c: char| match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        other => other,
    };
    Cow::Owned(text.chars().map(narrow).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with every piece of personal data replaced by `[kind]`. A text without personal data is unchanged.
    fn mask_pii(text: &str) -> String {
        let mut masked = text.to_owned();
        // A piece that touched its neighbour stands alone once the neighbour is masked.
        for _ in 0..4 {
            let plain = half_width(&masked).into_owned();
            let mut found = find_spans(&plain);
            if found.is_empty() {
                break;
            }
            found.sort_by_key(|(range, _)| range.start);
            masked.clear();
            let mut from = 0;
            for (range, kind) in found {
                masked.push_str(&plain[from..range.start]);
                masked.push('[');
                masked.push_str(kind);
                masked.push(']');
                from = range.end;
            }
            masked.push_str(&plain[from..]);
        }
        masked
    }

    #[test]
    fn pii_of_all_kinds_is_masked_in_both_languages() {
        for (text, kind, masked) in [
            (
                "write to anna.b+1@mail.example.com, please",
                "email",
                "write to [email], please",
            ),
            ("메일은 minsu@example.co.kr이야", "email", "메일은 [email]이야"),
            ("내 번호는 010-1234-5678이야", "phone", "내 번호는 [phone]이야"),
            ("01012345678로 전화해", "phone", "[phone]로 전화해"),
            ("０１０－１２３４－５６７８", "phone", "[phone]"),
            ("가게는 02-312-4567", "phone", "가게는 [phone]"),
            ("call +82 10-1234-5678 now", "phone", "call [phone] now"),
            ("call (415) 555-0100.", "phone", "call [phone]."),
            ("call +1 415 555 0100", "phone", "call [phone]"),
            ("card 4111 1111 1111 1111 ok", "card", "card [card] ok"),
            ("카드는 5500-0000-0000-0004야", "card", "카드는 [card]야"),
            (
                "주민번호는 900101-1234567이야",
                "national_id",
                "주민번호는 [national_id]이야",
            ),
            ("my SSN is 123-45-6789", "national_id", "my SSN is [national_id]"),
            (
                "나는 서울특별시 강남구 테헤란로 152에 살아",
                "address",
                "나는 [address]에 살아",
            ),
            ("경기도 성남시 분당구 정자동 178-1번지", "address", "[address]"),
            ("101동 1203호로 와", "address", "[address]로 와"),
            (
                "I live at 12 Baker Street, London",
                "address",
                "I live at [address], London",
            ),
            ("1600 Pennsylvania Ave. is mine", "address", "[address] is mine"),
            ("send it to P.O. Box 1234", "address", "send it to [address]"),
        ] {
            assert_eq!(detect_kinds(text), [kind], "{text}");
            assert_eq!(mask_pii(text), masked, "{text}");
        }
    }

    #[test]
    fn resident_number_without_separator_needs_its_check_digit() {
        // 2·9+3·0+4·0+5·1+6·0+7·1+8·1+9·2+2·3+3·4+4·5+5·6 = 124; (11 - 124 % 11) % 10 = 8
        assert_eq!(detect_kinds("9001011234568"), ["national_id"]);
        assert_eq!(detect_kinds("9001011234567"), Vec::<&str>::new());
    }

    #[test]
    fn pii_lookalikes_are_not_masked() {
        for text in [
            "I like grapes",
            "나는 포도를 좋아해",
            "I have 1,000,000 gold and 3 swords",
            "4111 1111 1111 1112 is no card",
            "0000 0000 0000 0000",
            "in 1987 or 2024-05-01",
            "901301-1234567",
            "000-12-3456",
            "it is 3 miles down the road",
            "앞으로 3 명이 온다",
            "meet me @ noon",
            "version 1.2.3-4567",
            "order 20240501123456789012",
        ] {
            assert_eq!(detect_kinds(text), Vec::<&str>::new(), "{text}");
            assert_eq!(mask_pii(text), text);
        }
    }

    #[test]
    fn pii_of_many_kinds_is_masked_in_one_text() {
        let text = "a@b.io, 010-1234-5678, a@b.io";
        assert_eq!(detect_kinds(text), ["email", "phone"]);
        assert_eq!(mask_pii(text), "[email], [phone], [email]");
    }

    #[test]
    fn masked_text_contains_no_pii() {
        use proptest::prelude::*;
        let piece = prop::sample::select(vec![
            "a@b.io",
            "010-1234-5678",
            "4111 1111 1111 1111",
            "900101-1234567",
            "12 Baker Street",
            "안녕",
            " ",
            ", ",
            "로 ",
            "1",
            "-",
            "x",
        ]);
        proptest!(|(pieces in prop::collection::vec(piece, 0..8), noise in "\\PC{0,40}")| {
            let masked = mask_pii(&format!("{} {noise}", pieces.concat()));
            prop_assert_eq!(detect_kinds(&masked), Vec::<&str>::new(), "{}", masked);
        });
    }
}
