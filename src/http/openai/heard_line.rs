//! The line that an NPC hears: the words of the player and of other members of a group since the NPC's last reply.

use colloquy_memory::joined_lines::{AFTER_ANOTHER, BETWEEN_SPEAKERS};

/// The most Unicode scalar values of a line with words of others. Of a longer one, the NPC hears the latest words of others.
const MAX_JOINED_CHARS: usize = 1_900;

/// The words of one message.
#[derive(Debug, Clone)]
struct SpokenWords {
    text: String,
    is_of_another: bool,
}

#[derive(Debug, Clone, Default)]
pub struct HeardLine {
    words: Vec<SpokenWords>,
}

impl HeardLine {
    pub fn from_player(text: String) -> Self {
        let mut line = Self::default();
        line.add(text, false);
        line
    }

    pub fn add(&mut self, text: String, is_of_another: bool) {
        if !text.is_empty() {
            self.words.push(SpokenWords { text, is_of_another });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// True if the line is `text`, and the player's.
    pub fn is_only(&self, text: &str) -> bool {
        matches!(&self.words[..], [words] if words.text == text && !words.is_of_another)
    }

    /// Joins the words: paragraphs for messages of the player, and slashes around the words of others. In a line that would
    /// be too long, the first words of others are left out, but for the last message.
    pub fn join(&self) -> String {
        let lengths = self.words.iter().map(|words| words.text.chars().count());
        let mut chars: usize = lengths.map(|length| length + BETWEEN_SPEAKERS.len()).sum();
        let last_index = self.words.len().saturating_sub(1);
        let mut joined = String::new();
        let mut ends_with_another = false;
        for (index, words) in self.words.iter().enumerate() {
            if chars > MAX_JOINED_CHARS && words.is_of_another && index < last_index {
                chars -= words.text.chars().count() + BETWEEN_SPEAKERS.len();
                continue;
            }
            joined.push_str(match (joined.is_empty(), ends_with_another, words.is_of_another) {
                (true, ..) => "",
                // The slash stands there already.
                (_, true, _) => " ",
                (_, false, true) => BETWEEN_SPEAKERS,
                (_, false, false) => "\n\n",
            });
            joined.push_str(&words.text);
            if words.is_of_another {
                joined.push_str(AFTER_ANOTHER);
            }
            ends_with_another = words.is_of_another;
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[(&str, bool)]) -> HeardLine {
        let mut line = HeardLine::default();
        for (text, is_of_another) in words {
            line.add((*text).to_owned(), *is_of_another);
        }
        line
    }

    #[test]
    fn long_line_loses_the_first_words_of_others_and_none_of_the_players() {
        let long = "la ".repeat(500);
        let first = format!("Tom: {long}");
        let second = format!("Bran: {long}");
        let joined = line(&[("Hi.", false), (&first, true), (&second, true), ("Well?", false)]).join();
        assert_eq!(joined, format!("Hi. / {second} / Well?"));
        let last = line(&[(&first, true), (&second, true)]).join();
        assert_eq!(last, format!("{second} /"));
        let paragraphs = format!("{long}\n\n{long}");
        assert_eq!(
            line(&[(&paragraphs, false), (&long, false)]).join(),
            format!("{paragraphs}\n\n{long}")
        );
    }

    #[test]
    fn line_of_very_many_words_is_joined_in_time() {
        let mut line = HeardLine::default();
        (0..1_000_000).for_each(|_| line.add("Tom: a".to_owned(), true));
        assert!(line.join().chars().count() <= MAX_JOINED_CHARS);
    }
}
