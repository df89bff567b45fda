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
    // The words after the last slash are the player's.
    let before_player = line
        .strip_suffix(AFTER_ANOTHER)
        .or_else(|| line.rsplit_once(BETWEEN_SPEAKERS).map(|(before, _)| before));
    before_player
        .into_iter()
        .flat_map(|before| before.split(BETWEEN_SPEAKERS))
        .filter_map(|words| split_name(words).map(|(name, _)| name))
}

/// Returns a line of the player without the player's name before each paragraph. `None`: some paragraph has no name, or
/// another name.
#[must_use]
pub fn without_own_name(line: &str) -> Option<String> {
    let (name, _) = split_name(line)?;
    let words = line.split("\n\n").map(|paragraph| {
        let (of, words) = split_name(paragraph)?;
        (of == name).then_some(words)
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
        for (line, names) in [
            (
                "Hello, you two. / Tom: Good day. / O'Neil Jr.: Me. / Mira, who: he?",
                vec!["Tom", "O'Neil Jr."],
            ),
            ("Tom: Good day. /", vec!["Tom"]),
            ("Hello. / Tom: Good day. /", vec!["Tom"]),
            ("Tom: Good day.", vec![]),
            ("Hello", vec![]),
        ] {
            let found: Vec<_> = other_speakers(line).collect();
            assert_eq!(found, names, "{line}");
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
