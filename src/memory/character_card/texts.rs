//! Texts of a file: macros, characters that are not allowed, and lengths.

use super::fields::printable;
use crate::{
    keywords::is_hangul,
    language::Language,
    text::{check_name, is_ignorable},
};

/// A name may be much longer than its macro. Macros after this number of bytes stay as they are: no text of this length
/// is taken whole.
const MAX_EXPANDED_BYTES: usize = 64 * 1024;

/// Who is meant by `{{char}}` and `{{user}}`.
#[derive(Debug, Clone)]
pub struct Speakers<'a> {
    pub character: &'a str,
    pub player: &'a str,
}

impl<'a> Speakers<'a> {
    /// `None`: a lorebook without a card.
    pub fn new(character: Option<&'a str>, language: Language) -> Self {
        let (someone, player) = match language {
            Language::En => ("the character", "the player"),
            Language::Ko => ("그 인물", "플레이어"),
        };
        Self {
            character: character.unwrap_or(someone),
            player,
        }
    }

    /// Replaces macros. Pushes the names of macros without a meaning here to `removed`.
    pub fn expand(&self, text: &str, removed: &mut Vec<String>) -> String {
        let mut output = String::with_capacity(text.len());
        let mut starts = Vec::new();
        let mut rest = text;
        while let Some(index) = rest.find(['{', '}', '<']) {
            output.push_str(&rest[..index]);
            rest = &rest[index..];
            if output.len() > MAX_EXPANDED_BYTES {
                break;
            }
            if let Some(after) = rest.strip_prefix("{{") {
                starts.push(output.len());
                output.push_str("{{");
                rest = after;
            } else if let Some(start) = starts.last().filter(|_| rest.starts_with("}}")).copied() {
                starts.pop();
                let expanded = self.expand_macro(&output[start + 2..], removed);
                output.truncate(start);
                output.push_str(expanded);
                rest = &rest[2..];
            } else if let Some((tag, meaning)) = self.tag_at(rest) {
                output.push_str(meaning);
                rest = &rest[tag..];
            } else {
                // The three characters have one byte each.
                output.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
        output.push_str(rest);
        output
    }

    fn expand_macro(&self, body: &str, removed: &mut Vec<String>) -> &str {
        let body = body.trim();
        if body.starts_with("//") {
            return "";
        }
        let name = body.split([':', ' ', '\n']).next().unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "char" | "bot" | "charifnotgroup" => self.character,
            "user" => self.player,
            "newline" => "\n",
            // Notes between authors.
            "comment" | "trim" | "noop" => "",
            _ => {
                let name = printable(name);
                if removed.len() < 8 && !removed.contains(&name) {
                    removed.push(name);
                }
                ""
            }
        }
    }

    /// The length of a macro in angle brackets at the start of `text`, and its meaning.
    fn tag_at(&self, text: &str) -> Option<(usize, &str)> {
        let tags = [
            ("<START>", ""),
            ("<USER>", self.player),
            ("<BOT>", self.character),
            ("<CHAR>", self.character),
        ];
        let is_tag = |tag: &str| {
            let head = text.as_bytes().get(..tag.len());
            head.is_some_and(|head| head.eq_ignore_ascii_case(tag.as_bytes()))
        };
        let matching_tag = tags.into_iter().find(|(tag, _)| is_tag(tag));
        matching_tag.map(|(tag, meaning)| (tag.len(), meaning))
    }
}

/// The language of texts by their letters. A syllable of Hangul is worth about two Latin letters.
pub fn guess_language<'a>(texts: impl IntoIterator<Item = &'a str>) -> Language {
    let mut hangul_count = 0_usize;
    let mut other_count = 0_usize;
    for c in texts.into_iter().flat_map(str::chars) {
        if is_hangul(c) {
            hangul_count += 1;
        } else if c.is_alphabetic() {
            other_count += 1;
        }
    }
    if hangul_count.saturating_mul(2) > other_count {
        Language::Ko
    } else {
        Language::En
    }
}

/// A text with any number of lines: without control characters, white space at the ends of lines, and more than one
/// empty line.
pub fn clean_prose(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut cleaned = String::with_capacity(text.len());
    let mut empty_lines = 0;
    for line in text.lines() {
        let start = cleaned.len();
        cleaned.extend(line.chars().filter(|c| *c == '\t' || !c.is_control()));
        cleaned.truncate(start + cleaned[start..].trim_end().len());
        empty_lines = if cleaned.len() == start { empty_lines + 1 } else { 0 };
        if empty_lines < 2 {
            cleaned.push('\n');
        }
    }
    // The first line keeps its indentation only if it has text.
    cleaned.trim().to_owned()
}

/// A name of one line, without invisible characters; may be empty.
pub fn clean_label(text: &str) -> String {
    let visible = text.chars().filter(|c| !is_ignorable(*c));
    let visible: String = visible.map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words: Vec<&str> = visible.split_whitespace().collect();
    words.join(" ")
}

/// True for a name that needs no change.
pub fn is_label(text: &str, max_chars: usize) -> bool {
    check_name(text).is_ok() && !is_longer(text, max_chars)
}

/// True if a text has more than `max_chars` characters.
pub fn is_longer(text: &str, max_chars: usize) -> bool {
    text.chars().nth(max_chars).is_some()
}

/// The start of a text with at most `max_chars` characters. It ends at a line or a sentence if one ends in its second
/// half, otherwise at a word.
pub fn cut(text: &str, max_chars: usize) -> &str {
    let Some((limit, _)) = text.char_indices().nth(max_chars) else {
        return text;
    };
    let mut sentence_end = 0;
    let mut word_end = 0;
    let mut previous = ' ';
    for (index, c) in text[..limit].char_indices() {
        if c.is_whitespace() {
            word_end = index;
            if c == '\n' || ends_sentence(previous) {
                sentence_end = index;
            }
        }
        // Quotes and brackets after a full stop belong to the sentence.
        let closes = matches!(c, '"' | '\'' | '”' | '’' | '」' | ')' | '*');
        if !(closes && ends_sentence(previous)) {
            previous = c;
        }
    }
    if ends_sentence(previous) && text[limit..].starts_with(char::is_whitespace) {
        sentence_end = limit;
    }
    let ends = [sentence_end, word_end];
    let end = ends.into_iter().find(|end| *end > limit / 2).unwrap_or(limit);
    text[..end].trim_end()
}

const fn ends_sentence(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…' | '。' | '！' | '？')
}
