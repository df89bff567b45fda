//! What text may be made of: the one rule for lines, names, topics and facts, whoever wrote them.
//!
//! Control characters are of no use to anybody who reads, a terminal obeys some of them, and stores
//! differ in which they can hold. A name that spans lines could pass for a section of a prompt, and a
//! text that nobody can see is none.

use std::{fmt::Write as _, sync::LazyLock};

use regex::Regex;

/// What is wrong with a text. The messages are safe to show and follow the name of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    #[error("has the control character U+{:04X}", u32::from(*.0))]
    Control(char),
    #[error("must be one line")]
    Lines,
    #[error("has nothing that can be seen")]
    Blank,
    #[error("has the character U+{:04X}, which nobody sees", u32::from(*.0))]
    Unseen(char),
}

/// Bytes as lower-case hexadecimal digits, two for each.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Text of any number of lines, or none: of the control characters only tabs and line breaks (`\n`,
/// `\r\n`).
///
/// # Errors
/// The first character that may not be in it.
pub fn prose(text: &str) -> Result<(), TextFault> {
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let allowed = match c {
            '\n' | '\t' => true,
            '\r' => rest.as_str().starts_with('\n'),
            c => !c.is_control(),
        };
        if !allowed {
            return Err(TextFault::Control(c));
        }
    }
    Ok(())
}

/// One line that can be seen: names, keywords, rules.
///
/// # Errors
/// A control character, a line break of any kind, or nothing that can be seen.
pub fn label(text: &str) -> Result<(), TextFault> {
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\u{2028}' | '\u{2029}' => return Err(TextFault::Lines),
            c if c.is_control() => return Err(TextFault::Control(c)),
            _ => {}
        }
    }
    visible(text)
}

/// A [`label`] by which somebody or something goes: what nobody sees would make two names of one, or hide one from whoever looks
/// for it.
///
/// # Errors
/// As [`label`]; or a character that nobody sees.
pub fn name(text: &str) -> Result<(), TextFault> {
    label(text)?;
    match text.chars().find(|c| is_ignorable(*c)) {
        Some(unseen) => Err(TextFault::Unseen(unseen)),
        None => Ok(()),
    }
}

/// A [`name`] that may have emoji: their joiners and variation selectors count as seen.
///
/// # Errors
/// As [`name`].
pub fn name_with_emoji(text: &str) -> Result<(), TextFault> {
    static EMOJI: LazyLock<Regex> = LazyLock::new(|| {
        let one = r"(?:\p{Extended_Pictographic}(?:\u{FE0F}|\p{Emoji_Modifier})?|[0-9#*]\u{FE0F}\u{20E3})";
        Regex::new(&format!(r"{one}(?:\u{{200D}}{one})*")).expect("a constant pattern")
    });
    label(text)?;
    match EMOJI.replace_all(text, "").chars().find(|c| is_ignorable(*c)) {
        Some(unseen) => Err(TextFault::Unseen(unseen)),
        None => Ok(()),
    }
}

/// Not blank.
///
/// # Errors
/// [`TextFault::Blank`].
pub fn visible(text: &str) -> Result<(), TextFault> {
    if is_blank(text) { Err(TextFault::Blank) } else { Ok(()) }
}

/// Whether nobody sees `c`: default-ignorable code points of Unicode (variation selectors, tags, joiners, marks of direction,
/// soft hyphens, fillers of Hangul) and annotations. Text could be hidden in a row of them, and one inside a word hides the
/// word from a search. Joiners and variation selectors of emoji are among them: an emoji falls into its parts.
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

/// Whether nothing of it can be seen: nothing but white space, and characters without a glyph.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    static SEEN: LazyLock<Regex> = LazyLock::new(|| {
        // The braille blank is a symbol by its class.
        Regex::new(r"[^\s\p{Control}\p{Format}\p{Default_Ignorable_Code_Point}\u{2800}]").expect("a constant pattern")
    });
    !SEEN.is_match(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn prose_has_lines_and_no_other_controls() {
        for good in ["", "안녕", "one\ntwo\r\n\tthree", "👩‍👩‍👧 e\u{301}", "a\u{200b}b"] {
            assert_eq!(prose(good), Ok(()), "{good:?}");
        }
        for bad in [
            '\0', '\u{7}', '\u{8}', '\u{b}', '\u{1b}', '\r', '\u{7f}', '\u{85}', '\u{9b}',
        ] {
            assert_eq!(prose(&format!("a{bad}b")), Err(TextFault::Control(bad)), "{bad:?}");
        }
        assert_eq!(prose("\r\r\n"), Err(TextFault::Control('\r')));
        let told = TextFault::Control('\0').to_string();
        assert_eq!(told, "has the control character U+0000");
    }

    #[test]
    fn emoji_have_joiners_that_hide_nothing() {
        for good in [
            "❤\u{fe0f}",
            "👩\u{200d}👩\u{200d}👧",
            "👍🏽",
            "1\u{fe0f}\u{20e3}",
            "a red ❤\u{fe0f} of glass",
            "유리 🍇",
        ] {
            assert_eq!(name_with_emoji(good), Ok(()), "{good:?}");
        }
        for (bad, unseen) in [
            ("inn\u{200d}", '\u{200d}'),
            ("a\u{fe0f}", '\u{fe0f}'),
            ("❤\u{fe0f}\u{fe0f}", '\u{fe0f}'),
            ("👧\u{200d}a", '\u{200d}'),
            ("👧\u{e0041}", '\u{e0041}'),
        ] {
            assert_eq!(name_with_emoji(bad), Err(TextFault::Unseen(unseen)), "{bad:?}");
            assert_eq!(name(bad), Err(TextFault::Unseen(unseen)), "{bad:?}");
        }
        assert_eq!(name_with_emoji("a\n❤"), Err(TextFault::Lines));
    }

    #[test]
    fn whatever_unicode_has_renderers_ignore_is_ignorable() {
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
    fn a_label_is_one_line_that_can_be_seen() {
        for good in ["Ergen", "에르겐", " x ", "a\u{200d}b", "😀"] {
            assert_eq!(label(good), Ok(()), "{good:?}");
        }
        for lines in ["a\nb", "a\rb", "a\u{2028}b", "a\u{2029}b", "\n"] {
            assert_eq!(label(lines), Err(TextFault::Lines), "{lines:?}");
        }
        assert_eq!(label("a\tb"), Err(TextFault::Control('\t')));
        for hidden in ['\u{200b}', '\u{200d}', '\u{fe0f}', '\u{ad}', '\u{e0101}', '\u{3164}'] {
            assert_eq!(
                name(&format!("Er{hidden}gen")),
                Err(TextFault::Unseen(hidden)),
                "{hidden:?}"
            );
        }
        assert_eq!((name("에르겐 😀"), name("a\nb")), (Ok(()), Err(TextFault::Lines)));
        let told = TextFault::Unseen('\u{ad}').to_string();
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
            assert_eq!(label(blank), Err(TextFault::Blank), "{blank:?}");
        }
    }
}
