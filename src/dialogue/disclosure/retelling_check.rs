//! The check whether a player's statement retells locked content.

use colloquy_memory::{
    disclosure::private_terms::PrivateTerms,
    fact::Statement,
    keywords::{informative_terms, sentence_key},
};

/// The names and words that a player's statement is compared with, if other players hear the statement.
#[derive(Debug)]
pub(super) struct RetellingCheck {
    /// The names of the NPCs with the locked past.
    pub(super) names: Vec<String>,
    /// The words of the locked text. `None`: the text was deleted, and its words are unknown.
    pub(super) words: Option<PrivateTerms>,
}

impl RetellingCheck {
    /// True if a player's statement about itself retells locked content.
    pub(super) fn is_retold_by(&self, statement: &Statement) -> bool {
        let keywords = statement.keywords.iter().map(String::as_str);
        let texts: Vec<&str> = [statement.content.as_str(), &statement.object]
            .into_iter()
            .chain(keywords)
            .collect();
        let names = self
            .names
            .iter()
            .any(|name| texts.iter().any(|text| is_named(text, name)));
        names
            || self
                .words
                .as_ref()
                .is_none_or(|words| words.shares_telling_word(&texts))
    }
}

/// True if a text has a name, or an informative part of the name.
fn is_named(text: &str, name: &str) -> bool {
    let words = format!(" {} ", sentence_key(text));
    let name = sentence_key(name);
    // Korean particles follow a name without a space.
    let end = if name.is_ascii() { " " } else { "" };
    words.contains(&format!(" {name}{end}")) || !informative_terms(text).is_disjoint(&informative_terms(&name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn name_is_found_in_its_inflected_forms() {
        for (text, name, named) in [
            ("The player knows that Mira drowned him.", "Mira", true),
            ("The player keeps Mira's secret.", "Mira", true),
            ("The player admires Miranda.", "Mira", false),
            ("The player trusts Mira.", "Old Mira", true),
            ("The player will tell Will.", "Will", true),
            ("플레이어는 미라가 한 일을 안다.", "미라", true),
            ("플레이어는 나무를 좋아한다.", "미라", false),
        ] {
            assert_eq!(is_named(text, name), named, "{text} {name}");
        }
    }
}
