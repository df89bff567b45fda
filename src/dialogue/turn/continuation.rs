//! A reply that was cut while it was being said, and is taken up again: what it goes on from, and how
//! what comes is joined to what there was.

use chrono::{DateTime, Utc};

use crate::memory::{locks::DisclosureLocks, private_terms::PrivateTerms, turn::Turn};

/// A reply that was cut before the model had finished.
#[derive(Debug, Clone, PartialEq)]
pub struct PartialReply {
    /// The turn that was committed of it.
    pub of: Turn,
    /// The client's idempotency key of that turn, which the turn that goes on takes over.
    pub key: Option<String>,
    /// All that the model had said by then.
    pub text: String,
    /// Until when it may be taken up again.
    pub until: DateTime<Utc>,
    /// As in the checkpoint of that turn: what it begins with rests on that.
    pub locks: Option<DisclosureLocks>,
    pub told_locks: Option<DisclosureLocks>,
    pub confided: Option<PrivateTerms>,
}

impl PartialReply {
    /// Where it is taken up: after its last whole word. A word that was cut in two would be joined with
    /// a guess; the model says it again.
    #[must_use]
    pub fn beginning(&self) -> ReplyBeginning<'_> {
        ReplyBeginning::from_text(&self.text)
    }
}

/// A text that is gone on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyBeginning<'a> {
    /// Ends in no white space.
    pub text: &'a str,
    /// The white space that came after it; empty if it is not known whether there was to be any.
    gap: &'a str,
}

impl<'a> ReplyBeginning<'a> {
    fn from_text(text: &'a str) -> Self {
        let inside_a_word = text.ends_with(char::is_alphanumeric);
        let whole = match text.rfind(char::is_whitespace) {
            Some(space) if inside_a_word && !text[..space].trim().is_empty() => {
                let after = text[space..].chars().next().map_or(0, char::len_utf8);
                &text[..space + after]
            }
            _ => text,
        };
        let kept = whole.trim_end();
        Self {
            text: kept,
            gap: &whole[kept.len()..],
        }
    }

    /// The first piece of what comes, as it stands after the text; empty while there is nothing of it yet.
    #[must_use]
    pub fn join_piece(&self, piece: &str) -> String {
        let said = piece.trim_start();
        if said.is_empty() {
            return String::new();
        }
        if !self.gap.is_empty() {
            return format!("{}{said}", self.gap);
        }
        let a_sentence_ended = self.text.ends_with(['.', '!', '?', '\u{2026}', ',', ';', ':']);
        if a_sentence_ended && piece.starts_with(char::is_alphanumeric) {
            return format!(" {said}");
        }
        piece.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continuation_starts_after_the_last_whole_word() {
        for (cut, text, piece, joined) in [
            ("The old mi", "The old", "mill burned.", " mill burned."),
            ("The old mi", "The old", " mill", " mill"),
            ("The old mill ", "The old mill", "burned.", " burned."),
            ("The mill burned.", "The mill burned.", "It was", " It was"),
            ("The mill burned.", "The mill burned.", " It was", " It was"),
            ("He said \"", "He said \"", "Stop", "Stop"),
            ("One.\n\n", "One.", " Two.", "\n\nTwo."),
            ("Wonder", "Wonder", "ful", "ful"),
            ("물레방앗간이 불에 탔", "물레방앗간이 불에", "탔다네.", " 탔다네."),
            ("  We", "  We", "ll", "ll"),
        ] {
            let beginning = ReplyBeginning::from_text(cut);
            assert_eq!(
                (beginning.text, beginning.join_piece(piece).as_str()),
                (text, joined),
                "{cut}"
            );
        }
        assert_eq!(
            ReplyBeginning::from_text("The old ").join_piece(" \n"),
            "",
            "nothing was said yet"
        );
    }
}
