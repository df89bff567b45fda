//! Estimates the tokens of a text by its characters, in quarters of a token. A longer beginning never counts fewer.
//!
//! * Latin letters: one token for every five small letters begun, and for every two capital letters begun.
//! * Numbers: one token for every three digits begun.
//! * Marks: one token each. Line breaks: one token for every two.
//! * Korean and Japanese: one and a half tokens a syllable; Chinese: two a character. cl100k needs as many for Korean
//!   prose, o200k about half.
//! * Rarer characters: one token a byte, which no byte vocabulary exceeds.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    Lower,
    Upper,
    Digit,
    Blank,
    Break,
    Other,
}

/// Quarters of a token for a mark.
const MARK_QUARTERS: usize = 4;
/// Quarters of a token for a Korean syllable or a Kana sign.
const SYLLABLE_QUARTERS: usize = 6;
/// Quarters of a token for a Chinese character: rarer characters of traditional texts take two tokens or more.
const HAN_QUARTERS: usize = 8;

pub(super) fn estimate_tokens(text: &str) -> usize {
    let is_same_class = |a: &u8, b: &u8| class_of(*a) == class_of(*b);
    let runs = text.as_bytes().chunk_by(is_same_class);
    runs.map(quarters_of).sum::<usize>().div_ceil(4)
}

/// The end of the longest beginning of at most `max_tokens` tokens, in bytes.
pub(super) fn end_within(text: &str, max_tokens: usize) -> usize {
    let ends = text.char_indices().map(|(start, c)| start + c.len_utf8());
    let ends: Vec<usize> = std::iter::once(0).chain(ends).collect();
    let fit = ends.partition_point(|end| estimate_tokens(&text[..*end]) <= max_tokens);
    let end = ends[fit.saturating_sub(1)];
    debug_assert!(
        estimate_tokens(&text[..end]) <= max_tokens,
        "a longer beginning never counts fewer tokens"
    );
    end
}

/// Quarters of a token for a run of bytes of one class. Characters of several bytes are never split.
fn quarters_of(run: &[u8]) -> usize {
    let one_for_each = |length: usize| run.len().div_ceil(length) * 4;
    match class_of(run[0]) {
        // Names begin with a capital letter, are rarer than other words and take more tokens.
        ByteClass::Lower => one_for_each(5),
        ByteClass::Upper | ByteClass::Break => one_for_each(2),
        ByteClass::Digit => one_for_each(3),
        // A single blank belongs to the next word.
        ByteClass::Blank if run.len() == 1 => 0,
        ByteClass::Blank => 4 + run.len() / 16 * 4,
        ByteClass::Other if run.is_ascii() => run.len() * MARK_QUARTERS,
        ByteClass::Other => String::from_utf8_lossy(run).chars().map(quarters_of_char).sum(),
    }
}

/// The class of each byte. The bytes of several-byte characters are in the last class.
static BYTE_CLASSES: [ByteClass; 256] = {
    let mut classes = [ByteClass::Other; 256];
    let mut byte = 0;
    while byte < 128 {
        classes[byte as usize] = match byte {
            b'a'..=b'z' => ByteClass::Lower,
            b'A'..=b'Z' => ByteClass::Upper,
            b'0'..=b'9' => ByteClass::Digit,
            b' ' => ByteClass::Blank,
            b'\n' | b'\r' | b'\t' => ByteClass::Break,
            _ => ByteClass::Other,
        };
        byte += 1_u8;
    }
    classes
};

fn class_of(byte: u8) -> ByteClass {
    BYTE_CLASSES[usize::from(byte)]
}

/// Quarters of a token for a character other than an ASCII letter, digit or blank.
const fn quarters_of_char(c: char) -> usize {
    match c {
        // ASCII marks, and marks of Latin and CJK prose that vocabularies have as whole tokens.
        '\0'..='\u{7f}' | '\u{2018}'..='\u{201d}' | '\u{2026}' | '\u{2013}' | '\u{2014}' | '\u{3001}' | '\u{3002}' => {
            MARK_QUARTERS
        }
        '\u{4e00}'..='\u{9fff}' => HAN_QUARTERS,
        '\u{ac00}'..='\u{d7a3}' | '\u{3041}'..='\u{30ff}' | '\u{ff01}'..='\u{ff60}' => SYLLABLE_QUARTERS,
        c => c.len_utf8() * 4,
    }
}
