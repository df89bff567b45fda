//! Lines of several speakers that an NPC hears as one line: "Hello, you two. / Tom: Good day. / Mira, who is he?"
//!
//! The player's words stand without a name. The words of others have their names before, and a slash after them.

/// Stands between the words of different speakers. Prompts show white space as one space.
pub const BETWEEN_SPEAKERS: &str = " / ";
/// Stands after the words of another at the end of a line.
pub const AFTER_ANOTHER: &str = " /";
/// The longest name before a line, in bytes.
pub const MAX_NAME_BYTES: usize = 60;

/// Splits "Mira: Good day." into name and words.
#[must_use]
pub fn split_name(text: &str) -> Option<(&str, &str)> {
    let (name, words) = text.trim_start().split_once(':')?;
    let is_name = |letter: char| letter.is_alphanumeric() || " '-.".contains(letter);
    let is_short = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(is_name);
    is_short.then(|| (name, words.trim_start()))
}

/// Returns the names of others whose words a line has, in order.
pub fn other_speakers(line: &str) -> impl Iterator<Item = &str> {
    let (before_last, _) = split_last_words(line);
    before_last.filter_map(|words| split_name(words).map(|(name, _)| name))
}

/// Returns the player's words of a line, in order.
pub fn player_words(line: &str) -> impl Iterator<Item = &str> {
    let (before_last, last) = split_last_words(line);
    before_last.filter(|words| split_name(words).is_none()).chain(last)
}

/// Splits a line into the words before the last slash, speaker by speaker, and the words after the slash. These are the
/// player's.
fn split_last_words(line: &str) -> (impl Iterator<Item = &str>, Option<&str>) {
    let (before_last, last) = match line.strip_suffix(AFTER_ANOTHER) {
        Some(before_last) => (Some(before_last), None),
        None => match line.rsplit_once(BETWEEN_SPEAKERS) {
            Some((before_last, last)) => (Some(before_last), Some(last)),
            None => (None, Some(line)),
        },
    };
    let words = before_last
        .into_iter()
        .flat_map(|before| before.split(BETWEEN_SPEAKERS));
    (words, last)
}

/// Returns a line of the player without the player's name before each paragraph. `None`: some paragraph has no name, or
/// another name.
#[must_use]
pub fn without_own_name(line: &str) -> Option<String> {
    let (name, _) = split_name(line)?;
    let words = line.split("\n\n").map(|paragraph| {
        let (speaker, words) = split_name(paragraph)?;
        (speaker == name).then_some(words)
    });
    words
        .collect::<Option<Vec<_>>>()
        .map(|paragraphs| paragraphs.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_before_words_are_found() {
        for (line, names, of_player) in [
            (
                "Hello, you two. / Tom: Good day. / O'Neil Jr.: Me. / Mira, who: he?",
                vec!["Tom", "O'Neil Jr."],
                vec!["Hello, you two.", "Mira, who: he?"],
            ),
            ("Tom: Good day. /", vec!["Tom"], vec![]),
            ("Hello. / Tom: Good day. /", vec!["Tom"], vec!["Hello."]),
            ("Tom: Good day.", vec![], vec!["Tom: Good day."]),
            ("Hello", vec![], vec!["Hello"]),
        ] {
            let speakers: Vec<_> = other_speakers(line).collect();
            let words: Vec<_> = player_words(line).collect();
            assert_eq!((speakers, words), (names, of_player), "{line}");
        }
        assert_eq!(split_name("*She nods*: yes"), None);
        assert_eq!(
            without_own_name("Ann: Hi.\n\nAnn: You?").as_deref(),
            Some("Hi.\n\nYou?")
        );
        assert_eq!(without_own_name("Ann: Hi.\n\nTom: You?"), None);
        assert_eq!(without_own_name("Hi."), None);
    }
}
