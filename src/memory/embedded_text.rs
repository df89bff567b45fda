//! The texts of which vectors are made.

use crate::{
    keywords::{is_hangul, sentence_key},
    party,
};

/// The text of a fact's vector: `content (Keywords: k1, k2)`. The name of the subject comes first if the content lacks the
/// name: `Emi: I went to the market.` (docs/algorithms.md#facts). Then a question about Emi finds what Emi said of herself.
/// Ids of players are no names.
#[must_use]
pub fn embedded_fact_text(subject: &str, content: &str, keywords: &[String]) -> String {
    let name = party::owned_name(subject);
    if has_name(content, name) {
        embedded_text(content, keywords)
    } else {
        embedded_text(&format!("{name}: {content}"), keywords)
    }
}

/// True if a text has a name as whole words. Korean particles may follow the name. Every text has an empty name.
fn has_name(text: &str, name: &str) -> bool {
    let text = sentence_key(text);
    let name = sentence_key(name);
    if name.is_empty() || name.ends_with(is_hangul) {
        text.contains(&name)
    } else {
        format!(" {text} ").contains(&format!(" {name} "))
    }
}

/// The text of a vector: `content (Keywords: k1, k2)`.
#[must_use]
pub fn embedded_text(content: &str, keywords: &[String]) -> String {
    if keywords.is_empty() {
        content.to_owned()
    } else {
        format!("{content} (Keywords: {})", keywords.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_fact_has_the_name_of_its_subject_once() {
        for (subject, content, text) in [
            ("Emi", "I went to the market.", "Emi: I went to the market."),
            ("the miller", "The miller keeps geese.", "The miller keeps geese."),
            ("에르겐", "나는 포도를 좋아한다.", "에르겐: 나는 포도를 좋아한다."),
            ("Ida", "I sail on Friday.", "Ida: I sail on Friday."),
            ("Ida", "Ida's boat is gone.", "Ida's boat is gone."),
            ("에르겐", "에르겐은 포도를 좋아한다.", "에르겐은 포도를 좋아한다."),
            ("player:p7", "I like grapes.", "I like grapes."),
            ("player", "I like grapes.", "I like grapes."),
            ("player:p7's sister", "She sails.", "sister: She sails."),
        ] {
            assert_eq!(embedded_fact_text(subject, content, &[]), text, "{subject}");
        }
        let keywords = ["market".to_owned(), "trade".to_owned()];
        let text = embedded_fact_text("Emi", "I went.", &keywords);
        assert_eq!(text, "Emi: I went. (Keywords: market, trade)");
    }
}
