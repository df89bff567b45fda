//! Allowed characters of text: one rule for lines, names, topics and facts of every writer.
//!
//! Control characters help no reader, a terminal obeys some of them, and stores differ in which ones they accept. A
//! name with line breaks could imitate a section of a prompt. A text without visible characters counts as empty.

use std::{fmt::Write as _, sync::LazyLock};

use regex::Regex;

/// Why a text is refused. The messages are safe to show and follow the name of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("has the control character U+{:04X}", u32::from(*.0))]
    Control(char),
    #[error("must be one line")]
    Lines,
    #[error("has nothing that can be seen")]
    Blank,
    #[error("has the character U+{:04X}, which nobody sees", u32::from(*.0))]
    Unseen(char),
}

/// A list of words or phrases, split once.
pub type WordList = LazyLock<Vec<&'static str>>;

/// Joins the words of a list for a prompt: with blanks if every word is a single word, and with commas otherwise.
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "filters of templates take their values")]
pub fn join_words(words: Vec<String>) -> String {
    let has_phrases = words.iter().any(|word| word.contains(' '));
    words.join(if has_phrases { ", " } else { " " })
}

/// Splits a list at its commas.
#[must_use]
pub fn word_list(list: &'static str) -> Vec<&'static str> {
    list.split(", ").collect()
}

/// Bytes as lower-case hexadecimal digits, two per byte.
#[must_use]
pub fn to_hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Checks text, empty or with any number of lines. The only allowed control characters are tabs and line breaks (`\n`,
/// `\r\n`).
///
/// # Errors
/// The first character that is not allowed.
pub fn check_prose(text: &str) -> Result<(), TextError> {
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let allowed = match c {
            '\n' | '\t' => true,
            '\r' => rest.as_str().starts_with('\n'),
            c => !c.is_control(),
        };
        if !allowed {
            return Err(TextError::Control(c));
        }
    }
    Ok(())
}

/// Checks a visible text of one line: names, keywords, rules.
///
/// # Errors
/// A control character, a line break of any kind, or no visible character.
pub fn check_label(text: &str) -> Result<(), TextError> {
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\u{2028}' | '\u{2029}' => return Err(TextError::Lines),
            c if c.is_control() => return Err(TextError::Control(c)),
            _ => {}
        }
    }
    check_visible(text)
}

/// Checks the name of a person or thing: a [`check_label`] without invisible characters. An invisible character would
/// make one name look like another name, or hide a name from a search.
///
/// # Errors
/// As [`check_label`]; or an invisible character.
pub fn check_name(text: &str) -> Result<(), TextError> {
    check_label(text)?;
    match text.chars().find(|c| is_ignorable(*c)) {
        Some(unseen) => Err(TextError::Unseen(unseen)),
        None => Ok(()),
    }
}

/// Checks a [`check_name`] that may have emoji: joiners and variation selectors in an emoji count as visible.
///
/// # Errors
/// As [`check_name`].
pub fn check_name_with_emoji(text: &str) -> Result<(), TextError> {
    static EMOJI: LazyLock<Regex> = LazyLock::new(|| {
        let emoji = r"(?:\p{Extended_Pictographic}(?:\u{FE0F}|\p{Emoji_Modifier})?|[0-9#*]\u{FE0F}\u{20E3})";
        Regex::new(&format!(r"{emoji}(?:\u{{200D}}{emoji})*")).expect("a constant pattern")
    });
    check_label(text)?;
    match EMOJI.replace_all(text, "").chars().find(|c| is_ignorable(*c)) {
        Some(invisible) => Err(TextError::Unseen(invisible)),
        None => Ok(()),
    }
}

/// Checks that a text is not blank.
///
/// # Errors
/// [`TextError::Blank`].
pub fn check_visible(text: &str) -> Result<(), TextError> {
    if is_blank(text) { Err(TextError::Blank) } else { Ok(()) }
}

/// True if `c` is invisible: annotations and Unicode's default-ignorable code points. Examples are variation selectors,
/// tags, joiners, direction marks, soft hyphens and Hangul fillers.
///
/// A row of invisible characters could hide text, and one inside a word hides the word from a search. Joiners and
/// variation selectors of emoji are included: the emoji falls into its parts.
#[must_use]
pub const fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// True if a text has no visible character: only white space and characters without a glyph.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    static SEEN: LazyLock<Regex> = LazyLock::new(|| {
        // Unicode classifies the braille blank as a symbol.
        Regex::new(r"[^\s\p{Control}\p{Format}\p{Default_Ignorable_Code_Point}\u{2800}]").expect("a constant pattern")
    });
    !SEEN.is_match(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn prose_allows_lines_and_no_other_controls() {
        for good in ["", "안녕", "one\ntwo\r\n\tthree", "👩‍👩‍👧 e\u{301}", "a\u{200b}b"] {
            assert_eq!(check_prose(good), Ok(()), "{good:?}");
        }
        for bad in [
            '\0', '\u{7}', '\u{8}', '\u{b}', '\u{1b}', '\r', '\u{7f}', '\u{85}', '\u{9b}',
        ] {
            assert_eq!(
                check_prose(&format!("a{bad}b")),
                Err(TextError::Control(bad)),
                "{bad:?}"
            );
        }
        assert_eq!(check_prose("\r\r\n"), Err(TextError::Control('\r')));
        let told = TextError::Control('\0').to_string();
        assert_eq!(told, "has the control character U+0000");
    }

    #[test]
    fn emoji_joiners_hide_no_text() {
        for good in [
            "❤\u{fe0f}",
            "👩\u{200d}👩\u{200d}👧",
            "👍🏽",
            "1\u{fe0f}\u{20e3}",
            "a red ❤\u{fe0f} of glass",
            "유리 🍇",
        ] {
            assert_eq!(check_name_with_emoji(good), Ok(()), "{good:?}");
        }
        for (bad, unseen) in [
            ("inn\u{200d}", '\u{200d}'),
            ("a\u{fe0f}", '\u{fe0f}'),
            ("❤\u{fe0f}\u{fe0f}", '\u{fe0f}'),
            ("👧\u{200d}a", '\u{200d}'),
            ("👧\u{e0041}", '\u{e0041}'),
        ] {
            assert_eq!(check_name_with_emoji(bad), Err(TextError::Unseen(unseen)), "{bad:?}");
            assert_eq!(check_name(bad), Err(TextError::Unseen(unseen)), "{bad:?}");
        }
        assert_eq!(check_name_with_emoji("a\n❤"), Err(TextError::Lines));
    }

    #[test]
    fn ignorable_characters_cover_the_unicode_default_ignorables() {
        let ignored = Regex::new(r"^\p{Default_Ignorable_Code_Point}$").unwrap();
        let mut utf8 = [0; 4];
        for c in '\0'..=char::MAX {
            if ignored.is_match(c.encode_utf8(&mut utf8)) {
                assert!(is_ignorable(c), "{c:?}");
            }
        }
        for seen in ['가', 'a', '\u{301}', '😀', 'ㅋ', ' ', '\n'] {
            assert!(!is_ignorable(seen), "{seen:?}");
        }
    }

    #[test]
    fn label_is_one_visible_line() {
        for good in ["Ergen", "에르겐", " x ", "a\u{200d}b", "😀"] {
            assert_eq!(check_label(good), Ok(()), "{good:?}");
        }
        for lines in ["a\nb", "a\rb", "a\u{2028}b", "a\u{2029}b", "\n"] {
            assert_eq!(check_label(lines), Err(TextError::Lines), "{lines:?}");
        }
        assert_eq!(check_label("a\tb"), Err(TextError::Control('\t')));
        for hidden in ['\u{200b}', '\u{200d}', '\u{fe0f}', '\u{ad}', '\u{e0101}', '\u{3164}'] {
            assert_eq!(
                check_name(&format!("Er{hidden}gen")),
                Err(TextError::Unseen(hidden)),
                "{hidden:?}"
            );
        }
        assert_eq!(
            (check_name("에르겐 😀"), check_name("a\nb")),
            (Ok(()), Err(TextError::Lines))
        );
        let told = TextError::Unseen('\u{ad}').to_string();
        assert_eq!(told, "has the character U+00AD, which nobody sees");
        for blank in [
            "",
            "  ",
            "\u{200b}",
            "\u{feff}\u{2060} ",
            "\u{3164}",
            "\u{2800}",
            "\u{ad}\u{202e}",
        ] {
            assert_eq!(check_label(blank), Err(TextError::Blank), "{blank:?}");
        }
    }
}
