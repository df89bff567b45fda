//! Names in a line: names for an additional search, and the listener's name, which is no evidence.

use super::{korean, normal_text::normalise_text, words};

/// Words of a line that look like names: capitalised within a sentence, or at its beginning with a possessive. Adjacent
/// words form one name. Each name is returned once, in order. Korean has no capitals; every Korean noun is a term
/// anyway.
#[must_use]
pub fn proper_nouns(line: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    // True if the previous word belongs to a name that may continue.
    let mut goes_on = false;
    let mut begins = true;
    for token in line.split_whitespace() {
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        let bare = ["'s", "’s"].iter().find_map(|ending| word.strip_suffix(ending));
        let name = bare.unwrap_or(word);
        let lower = normalise_text(name);
        let capital = name.chars().next().is_some_and(char::is_uppercase) && name.chars().nth(1).is_some();
        let is_informative = words::english_weight(&lower, &words::singular_of(&lower)) >= 1.0;
        if capital && is_informative && (!begins || bare.is_some()) {
            match names.last_mut().filter(|_| goes_on) {
                Some(last) => {
                    last.push(' ');
                    last.push_str(name);
                }
                None => names.push(name.to_owned()),
            }
            goes_on = bare.is_none() && token.ends_with(word);
        } else {
            goes_on = false;
        }
        begins = token.ends_with(['.', '!', '?', ':', '…']);
    }
    let mut seen_names = std::collections::HashSet::new();
    names.retain(|name| seen_names.insert(normalise_text(name)));
    names
}

/// Removes the listener's name from a line: the whole name, its distinctive parts or the given name, with particles:
/// "Night, Mira." → "Night.", "미라야, 안녕" → "안녕". A line of the name alone stays unchanged.
#[must_use]
pub fn without_listener_name(line: &str, name: &str) -> String {
    let normalised_name = normalise_text(name);
    let parts = normalised_name
        .split_whitespace()
        .filter(|part| part.chars().nth(1).is_some() && words::word_weight(part).is_none());
    let parts: Vec<&str> = parts.chain(korean_given_name(&normalised_name)).collect();
    let mut kept_tokens: Vec<&str> = Vec::new();
    let mut changed = false;
    for token in line.split_whitespace() {
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        let lower = normalise_text(word);
        if !parts.iter().any(|part| matches_name(&lower, part)) {
            kept_tokens.push(token);
            continue;
        }
        changed = true;
        // The end mark of the sentence stays with the previous word.
        let end = token.trim_start_matches(|c: char| !c.is_alphanumeric());
        let end = end.trim_start_matches(|c: char| c.is_alphanumeric() || matches!(c, '\'' | '’'));
        if let Some(before) = kept_tokens.last_mut() {
            let bare = before.trim_end_matches([',', '，']);
            *before = bare;
            if !end.is_empty() && !end.starts_with([',', '，']) && !bare.ends_with(end) {
                kept_tokens.push(end);
            }
        }
    }
    if !changed || !kept_tokens.iter().any(|token| token.chars().any(char::is_alphanumeric)) {
        return line.to_owned();
    }
    let mut text = String::with_capacity(line.len());
    for token in kept_tokens {
        if !text.is_empty() && token.chars().any(char::is_alphanumeric) {
            text.push(' ');
        }
        text.push_str(token);
    }
    text
}

/// The family names of nearly all Koreans, of one syllable and of two.
const FAMILY_SYLLABLES: &str = "김이박최정강조윤장임한오서신권황안송류유전홍고문양손배백허남나심노하곽성차주우구민진지엄채원천방공현\
    함변염여추도소석선설마길연위표명기반왕금옥육인맹제모탁국어은편용";
const LONG_FAMILY_NAMES: [&str; 8] = ["남궁", "황보", "제갈", "선우", "독고", "사공", "서문", "동방"];
/// The syllables of a Korean given name.
const GIVEN_NAME_SYLLABLES: usize = 2;

/// True if `syllable` is a Korean family name.
#[must_use]
pub fn is_family_syllable(syllable: char) -> bool {
    FAMILY_SYLLABLES.contains(syllable)
}

/// The given name in a full Korean name: 민수 of 김민수. `None`: no such name.
#[must_use]
pub fn korean_given_name(name: &str) -> Option<&str> {
    if !name.chars().all(korean::is_hangul) {
        return None;
    }
    let long = LONG_FAMILY_NAMES.iter().find_map(|family| name.strip_prefix(family));
    let given_name = long.or_else(|| {
        let family = name.chars().next().filter(|first| is_family_syllable(*first))?;
        name.strip_prefix(family)
    })?;
    (given_name.chars().count() == GIVEN_NAME_SYLLABLES).then_some(given_name)
}

/// Words before a name that name nobody alone.
const TITLES: [&str; 26] = [
    "old", "young", "big", "little", "great", "captain", "master", "mister", "mr", "mrs", "miss", "ms", "lady", "lord",
    "sir", "dame", "king", "queen", "prince", "princess", "doctor", "dr", "father", "mother", "brother", "sister",
];

/// The names by which a person may be meant besides the whole name: "민수" of "김민수"; "Kim" and "Minsu" of "Kim
/// Minsu", where either may be the given name.
pub fn short_names_of(name: &str) -> impl Iterator<Item = &str> {
    let korean = korean_given_name(name);
    let words: Vec<&str> = name.split_whitespace().collect();
    let is_single_name = |word: &&str| {
        let word = word.trim_end_matches('.');
        word.chars().count() > 2
            && word.starts_with(char::is_uppercase)
            && !TITLES.contains(&word.to_lowercase().as_str())
    };
    let is_of_names = words.len() > 1 && words.iter().all(|word| word.starts_with(char::is_uppercase));
    let words = words
        .into_iter()
        .filter(move |word| is_of_names && is_single_name(word));
    korean.into_iter().chain(words)
}

/// True if `word` is `name` with an ending or particles. Both are in the form of [`normalise_text`].
#[must_use]
pub fn matches_name(word: &str, name: &str) -> bool {
    let Some(rest) = word.strip_prefix(name) else {
        return false;
    };
    if matches!(rest, "" | "'s" | "’s") {
        return true;
    }
    let rest: Vec<char> = rest.chars().collect();
    let called = matches!(
        rest.as_slice(),
        ['아' | '야' | '님' | '씨' | '네'] | ['이', '야' | '여']
    );
    name.chars().all(korean::is_hangul) && (called || korean::is_only_particles(&rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinguished_from_their_prefixes() {
        for (line, names) in [
            (
                "Anna's moved, by the way. She's in Oakford now.",
                vec!["Anna", "Oakford"],
            ),
            (
                "What did Rowena do at Oakford Abbey, Tim?",
                vec!["Rowena", "Oakford Abbey", "Tim"],
            ),
            ("Good morning! Sleep well?", vec![]),
            ("Has I. met Dorran? Dorran is nice", vec!["Dorran"]),
            ("내 누나 Anna 어디 살아?", vec!["Anna"]),
            ("What Is That", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(proper_nouns(line), names, "{line}");
        }
    }

    #[test]
    fn korean_full_name_has_a_given_name() {
        for (name, given) in [
            ("김민수", Some("민수")),
            ("남궁민수", Some("민수")),
            ("이도윤", Some("도윤")),
            ("할머니", None),
            ("민수", None),
            ("김수", None),
            ("김민수네", None),
            ("Kim", None),
            ("", None),
        ] {
            assert_eq!(korean_given_name(name), given, "{name}");
        }
    }

    #[test]
    fn own_name_is_removed_with_its_suffixes() {
        for (line, name, rest) in [
            ("I'm off to bed. Night, Mira.", "Mira", "I'm off to bed. Night."),
            ("Mira, what did I promise?", "Mira", "what did I promise?"),
            ("How is Mira's brother?", "Mira", "How is brother?"),
            ("Tell me, old Tom, where is it?", "Old Tom", "Tell me, old where is it?"),
            ("잘 자, 에르겐.", "에르겐", "잘 자."),
            ("하람아, 들었어?", "윤하람", "들었어?"),
            ("하람 선배는 뭘 좋아해?", "윤하람", "선배는 뭘 좋아해?"),
            ("미라야, 안녕", "미라", "안녕"),
            ("에르겐은 뭘 좋아해?", "에르겐", "뭘 좋아해?"),
            ("에르겐한테는 비밀이야", "에르겐", "비밀이야"),
            ("미라클 봤어?", "미라", "미라클 봤어?"),
            ("Mira?", "Mira", "Mira?"),
            ("Miracles happen", "Mira", "Miracles happen"),
        ] {
            assert_eq!(without_listener_name(line, name), rest, "{line}");
        }
    }
}
