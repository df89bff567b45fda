//! Whose thing a line means: "your brother" in a line to an NPC is the NPC's brother, "my brother" is the player's.
//!
//! A fact about the brother of the other person is scored as if the line lacked the word. Nothing else is changed: the
//! fact may still be near in meaning, or have further words of the line.

use colloquy_core::ids::PlayerId;
use colloquy_memory::{
    keywords::{LineOwner, OwnedTerms, TermWeights},
    party,
};

use super::query::SpokenLine;

/// The owners of the things in a player's line.
#[derive(Debug)]
pub(super) struct LineOwners<'a> {
    owned: OwnedTerms,
    /// The speaker.
    player: &'a PlayerId,
    /// The [key](party::subject_key) of the listener's name.
    listener: Option<String>,
}

impl<'a> LineOwners<'a> {
    /// `None`: no player speaks, or nothing in the line has an owner.
    pub(super) fn find_in(line: SpokenLine<'_>, player: Option<&'a PlayerId>) -> Option<Self> {
        let player = player?;
        let owned = OwnedTerms::find_in(line.text);
        (!owned.is_empty()).then(|| Self {
            owned,
            player,
            listener: line.listener.map(party::subject_key),
        })
    }

    /// The terms that count for a fact about `subject`. `None`: all of them.
    pub(super) fn counted_terms(&self, subject: &str, terms: &TermWeights) -> Option<TermWeights> {
        let not_meant = match party::owner_id(subject) {
            Some(id) if id == self.player.as_str() => {
                self.owned.of_other_than(LineOwner::Speaker, party::owned_name(subject))
            }
            Some(_) => return None,
            None => {
                let key = party::subject_key(subject);
                let (owner, possession) = key.split_once('/')?;
                if self.listener.as_deref() != Some(owner) {
                    return None;
                }
                self.owned.of_other_than(LineOwner::Listener, possession)
            }
        };
        let counted = terms.0.iter().filter(|(term, _)| !not_meant.contains(term));
        let counted = TermWeights(counted.copied().collect());
        (counted.0.len() < terms.0.len()).then_some(counted)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_memory::keywords::{self, FactTexts};

    /// True if a fact about `subject` loses a word of the line.
    fn loses(line: &str, listener: &str, subject: &str) -> bool {
        let player: PlayerId = "p7".parse().unwrap();
        let spoken = SpokenLine {
            text: line,
            listener: Some(listener),
        };
        let Some(owners) = LineOwners::find_in(spoken, Some(&player)) else {
            return false;
        };
        let terms = keywords::search_terms(line);
        let Some(counted) = owners.counted_terms(subject, &terms) else {
            return false;
        };
        let fact = keywords::fact_terms(FactTexts {
            content: subject,
            subject,
            ..FactTexts::default()
        });
        assert!(keywords::bm25_score(&counted, &fact) < keywords::bm25_score(&terms, &fact));
        true
    }

    #[test]
    fn word_counts_only_for_facts_of_its_owner() {
        let asked = "What did the clerk let slip to your brother?";
        for (line, listener, subject, is_lost) in [
            (asked, "Teague", "player:p7's brother", true),
            (asked, "Teague", "Teague's brother", false),
            (asked, "Teague", "Voss's brother", false),
            (asked, "Teague", "player:p8's brother", false),
            (asked, "Teague", "player:p7's sister", false),
            (asked, "Teague", "player:p7", false),
            (asked, "Teague", "Teague", false),
            ("Where does my brother live?", "Teague", "Teague's brother", true),
            ("Where does my brother live?", "Teague", "player:p7's brother", false),
            (
                "Does my brother know your brother?",
                "Teague",
                "player:p7's brother",
                false,
            ),
            ("Where does the brother live?", "Teague", "player:p7's brother", false),
            ("당신 동생은 어디 살아요?", "에르겐", "player:p7의 여동생", true),
            ("당신 동생은 어디 살아요?", "에르겐", "에르겐의 동생", false),
            ("제 동생은 어디 살아요?", "에르겐", "에르겐의 동생", true),
            ("제 동생은 어디 살아요?", "에르겐", "player:p7의 동생", false),
        ] {
            assert_eq!(loses(line, listener, subject), is_lost, "{line} {subject}");
        }
        let nobody = SpokenLine {
            text: asked,
            listener: Some("Teague"),
        };
        assert!(LineOwners::find_in(nobody, None).is_none());
    }
}
