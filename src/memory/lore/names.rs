//! Finds the names of entries in a text.

use std::{collections::HashMap, fmt};

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, BuildError};

use crate::keywords::{is_family_syllable, is_hangul, is_only_particles, matches_name, normalise_text};

/// Finds many names in one pass over a text. Case does not matter, particles of Korean names neither.
pub struct NameIndex {
    names: AhoCorasick,
    /// The entry of each name, and whether the name is a keyword.
    owners: Vec<(usize, bool)>,
}

impl fmt::Debug for NameIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameIndex").field("names", &self.owners.len()).finish()
    }
}

impl NameIndex {
    /// Builds the index of `names`: a name, the position of its entry, and whether the name is only a keyword.
    ///
    /// # Errors
    /// The names together are too long.
    pub fn build<'a>(names: impl IntoIterator<Item = (&'a str, usize, bool)>) -> Result<Self, BuildError> {
        let mut patterns = Vec::new();
        let mut owners = Vec::new();
        for (name, entry, is_keyword) in names {
            let name = normalise_text(name.trim());
            if !name.is_empty() {
                patterns.push(name);
                owners.push((entry, is_keyword));
            }
        }
        let names = AhoCorasickBuilder::new().build(patterns)?;
        Ok(Self { names, owners })
    }

    /// The size of the index in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.names.memory_usage() + self.owners.len() * size_of::<(usize, bool)>()
    }

    /// Calls `on_hit` for every name in `text`, with the entry's position and whether the name is a keyword. An entry
    /// may be found more than once.
    pub fn find_in(&self, text: &str, mut on_hit: impl FnMut(usize, bool)) {
        let text = normalise_text(text);
        for hit in self.names.find_overlapping_iter(&text) {
            if is_whole_name(&text, hit.start(), hit.end()) {
                let (entry, is_keyword) = self.owners[hit.pattern().as_usize()];
                on_hit(entry, is_keyword);
            }
        }
    }
}

/// A text in which many names are looked up, as [`NameIndex`] finds them. For a single text, an index would cost more.
#[derive(Debug)]
pub struct NameLookup {
    /// Normalised.
    text: String,
    /// Where each character stands in the text.
    positions: HashMap<char, Vec<usize>>,
}

impl NameLookup {
    #[must_use]
    pub fn in_text(text: &str) -> Self {
        let text = normalise_text(text);
        let mut positions: HashMap<char, Vec<usize>> = HashMap::new();
        for (index, c) in text.char_indices() {
            positions.entry(c).or_default().push(index);
        }
        Self { text, positions }
    }

    /// True if the text has the name.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let name = normalise_text(name.trim());
        let starts = name.chars().next().and_then(|first| self.positions.get(&first));
        starts.into_iter().flatten().any(|&start| {
            self.text[start..].starts_with(name.as_str()) && is_whole_name(&self.text, start, start + name.len())
        })
    }
}

/// True if the text has the name, as [`NameIndex`] finds it.
#[must_use]
pub fn is_named_in(text: &str, name: &str) -> bool {
    let text = normalise_text(text);
    let name = normalise_text(name.trim());
    let mut places = text.match_indices(&name);
    !name.is_empty() && places.any(|(start, hit)| is_whole_name(&text, start, start + hit.len()))
}

/// True if the text has the short name of a person. Some short names are written like common words, so a name in Latin
/// letters needs its capital: "Rose", not "rose".
#[must_use]
pub fn has_short_name(text: &str, short: &str) -> bool {
    if short.chars().any(is_hangul) {
        return is_named_in(text, short);
    }
    text.match_indices(short).any(|(start, hit)| {
        let before = text[..start].chars().next_back();
        let after = text[start + hit.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(|c| c.is_alphanumeric() && !is_hangul(c))
    })
}

/// True if the text has the name of a person. A name of one word may be written like a common word, so the name needs
/// its capital if it has one: "Will", not "will".
#[must_use]
pub fn names_person(text: &str, name: &str) -> bool {
    let name = name.trim();
    let may_be_common = name.starts_with(char::is_uppercase) && !name.contains(char::is_whitespace);
    is_named_in(text, name) && (!may_be_common || has_short_name(text, name))
}

/// True if no word begins before the name, and only an ending or particles follow. A name in other letters may have
/// Korean particles too.
fn is_whole_name(text: &str, start: usize, end: usize) -> bool {
    let name = &text[start..end];
    let is_word = |c: char| c.is_alphanumeric();
    let begins_word = name.chars().next().is_some_and(is_word);
    if begins_word && text[..start].chars().next_back().is_some_and(is_word) && !follows_surname(&text[..start], name) {
        return false;
    }
    let rest = &text[end..];
    let Some(last) = name.chars().next_back().filter(|last| is_word(*last)) else {
        return true;
    };
    match rest.chars().next() {
        Some(next) if is_word(next) => {
            let tail = rest.find(|c: char| !is_word(c)).map_or(rest, |index| &rest[..index]);
            if is_hangul(last) {
                let word_start = name.rfind(|c: char| !is_hangul(c)).map_or(0, |index| {
                    index + name[index..].chars().next().map_or(0, char::len_utf8)
                });
                let word = format!("{}{tail}", &name[word_start..]);
                matches_name(&word, &name[word_start..])
                    || (name.chars().nth(1).is_some() && (is_copula(tail) || is_form_of_doing(tail)))
            } else {
                is_only_particles(&tail.chars().collect::<Vec<_>>()) || is_copula(tail)
            }
        }
        _ => true,
    }
}

/// True if the text before a name ends in a surname that begins a word, and the name is a given name with a title, as
/// "덕수 아저씨" in "최덕수 아저씨". A given name alone has too many look-alikes ("서관" in "도서관").
fn follows_surname(before: &str, name: &str) -> bool {
    let mut letters = before.chars().rev();
    let is_surname = letters.next().is_some_and(is_family_syllable);
    let begins_word = !letters.next().is_some_and(char::is_alphanumeric);
    let given_name = name.split_once(' ').map_or("", |(given_name, _)| given_name);
    is_surname && begins_word && given_name.chars().count() == 2 && given_name.chars().all(is_hangul)
}

/// True if the text after a Korean noun makes a verb of the noun, as in "반납해야" and "반납되면".
fn is_form_of_doing(tail: &str) -> bool {
    const FORMS: [char; 13] = [
        '하', '해', '했', '할', '한', '함', '합', '되', '돼', '됐', '될', '된', '됩',
    ];
    tail.starts_with(FORMS)
}

/// True if the text after a Korean name is a form of "to be", as in "결사야" and "결사입니다".
fn is_copula(tail: &str) -> bool {
    const COPULAS: [&str; 20] = [
        "야",
        "이야",
        "요",
        "이요",
        "예요",
        "이에요",
        "입니다",
        "입니까",
        "이다",
        "다",
        "인가",
        "인지",
        "라고",
        "이라고",
        "인데",
        "이지",
        "지",
        "네요",
        "였다",
        "이었다",
    ];
    COPULAS.contains(&tail)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let names = [
            ("Dark Forest", 0, false),
            ("forest", 1, true),
            ("어둠의 숲", 2, false),
            ("숲의 결사", 3, false),
            ("고블린왕", 4, false),
            ("왕", 5, false),
            ("O'Brien", 6, false),
            ("C-3", 7, false),
            ("!", 8, true),
            ("덕수 아저씨", 9, false),
            ("반납", 10, true),
        ];
        let index = NameIndex::build(names).unwrap();
        let mut found = Vec::new();
        index.find_in(text, |entry, _| found.push(entry));
        found.sort_unstable();
        found.dedup();
        let lookup = NameLookup::in_text(text);
        let looked_up = names.iter().filter(|(name, ..)| lookup.has_name(name));
        assert_eq!(
            looked_up.map(|(_, entry, _)| *entry).collect::<Vec<_>>(),
            found,
            "{text}"
        );
        found
    }

    #[test]
    fn name_is_found_in_any_case_and_with_particles() {
        for (text, entries) in [
            ("What of the DARK forest?", vec![0, 1]),
            ("the dark forest's edge", vec![0, 1]),
            ("어둠의 숲에서는 무슨 일이", vec![2]),
            ("어둠의 숲의 결사에게 물어봐", vec![2, 3]),
            ("고블린왕을 만났어", vec![4]),
            ("고블린왕들에게서 도망쳤다", vec![4]),
            ("왕은 어디 있지?", vec![5]),
            ("그건 숲의 결사야.", vec![3]),
            ("Dark Forest에는 뭐가 있어?", vec![0, 1]),
            ("o'brien and C-3", vec![6, 7]),
            ("고블린왕인데 왜?", vec![4]),
            ("help!", vec![8]),
            ("최덕수 아저씨는 어디 계세요", vec![9]),
            ("덕수 아저씨", vec![9]),
            ("책은 언제까지 반납해야 돼요?", vec![10]),
            ("반납되면 알려 주세요, 반납은 중요해요", vec![10]),
            ("반납기 앞에서", vec![]),
        ] {
            assert_eq!(found(text), entries, "{text}");
        }
    }

    #[test]
    fn short_name_needs_its_capital() {
        for (text, short, has) in [
            ("Is Rose's hip better?", "Rose", true),
            ("Rose는 어디 있어?", "Rose", true),
            ("The price rose.", "Rose", false),
            ("The Rosebud", "Rose", false),
            ("분네가 그랬어요", "분네", true),
            ("이분네가 그랬어요", "분네", false),
        ] {
            assert_eq!(has_short_name(text, short), has, "{text}");
        }
    }

    #[test]
    fn name_of_one_word_needs_its_capital_if_it_has_one() {
        for (text, name, has) in [
            ("Mira is the sister of Will.", "Will", true),
            ("Mira will come, with Willow.", "Will", false),
            ("Mira loves Grace's songs.", " Grace ", true),
            ("Mira says grace.", "Grace", false),
            ("Mira is the niece of old Bram.", "Old Bram", true),
            ("Mira is the sister of Bram.", "bram", true),
            ("미라는 최덕수의 딸이다.", "최덕수", true),
            ("Mira", "", false),
        ] {
            assert_eq!(names_person(text, name), has, "{name}: {text}");
        }
    }

    #[test]
    fn part_of_another_word_is_no_name() {
        for text in [
            "deforestation",
            "forestry",
            "왕국으로 가자",
            "왕다",
            "Dark Forest왕국",
            "C-30",
            "brien",
            "대왕",
            "큰덕수 아저씨",
            "가최덕수 아저씨",
        ] {
            assert_eq!(found(text), Vec::<usize>::new(), "{text}");
        }
    }
}
