//! The continuation of a cut reply: where the reply resumes, and how new text joins the old text.

use chrono::{DateTime, Utc};

use colloquy_memory::{
    actions::{MAX_ACTIONS_PER_TURN, RequestedAction},
    disclosure::{locks::DisclosureLocks, private_terms::PrivateTerms},
    state::StateChange,
    turn::{Intent, Turn},
};

/// What a finished reply did in the world. A cut reply did nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyEffects {
    /// Changes of the state. `None`: the job that looks for them has not ended, so the whole reply is to be read by a job.
    pub changes: Option<Vec<StateChange>>,
    /// The actions that the reply asked for.
    pub actions: Vec<RequestedAction>,
}

impl ReplyEffects {
    /// Returns the changes of the state, as far as they are known.
    pub(super) fn known_changes(&self) -> &[StateChange] {
        self.changes.as_deref().unwrap_or_default()
    }

    /// Returns the actions of the whole reply, of which the end asks for `later` ones. The same action is asked for once.
    pub(super) fn with_actions(&self, later_actions: &[RequestedAction]) -> Vec<RequestedAction> {
        let new = later_actions.iter().filter(|action| !self.actions.contains(action));
        self.actions
            .iter()
            .chain(new)
            .take(MAX_ACTIONS_PER_TURN)
            .cloned()
            .collect()
    }
}

impl Default for ReplyEffects {
    fn default() -> Self {
        Self {
            changes: Some(Vec::new()),
            actions: Vec::new(),
        }
    }
}

/// A reply that was cut before the model had finished.
#[derive(Debug, Clone, PartialEq)]
pub struct PartialReply {
    /// The turn that was committed with the heard part.
    pub turn: Turn,
    /// The client's idempotency key of the cut turn. The continuing turn takes the key over.
    pub key: Option<String>,
    /// The full text that the model had produced before the cut, or a finished reply.
    pub text: String,
    /// True for a finished reply: its last word is whole.
    pub is_whole: bool,
    /// The time until which a resume may continue the reply.
    pub until: DateTime<Utc>,
    /// The intent of the line, if the classifier named it for the cut turn.
    pub intent: Option<Intent>,
    /// The effects stand as long as all words of the reply do.
    pub effects: ReplyEffects,
    /// The locks in the checkpoint of the cut turn, because the beginning of the reply rests on them.
    pub locks: Option<DisclosureLocks>,
    pub told_locks: Option<DisclosureLocks>,
    pub confided: Option<PrivateTerms>,
}

impl PartialReply {
    /// A reply that was cut after `text`, without anything else of its turn's commit.
    #[must_use]
    pub fn from_text(turn: Turn, text: String) -> Self {
        Self {
            until: turn.started_at,
            turn,
            key: None,
            text,
            is_whole: false,
            intent: None,
            effects: ReplyEffects::default(),
            locks: None,
            told_locks: None,
            confided: None,
        }
    }

    /// Returns the part that the model continues, up to the last whole word. The model repeats a word that was cut in
    /// two, because joining half a word would be a guess.
    #[must_use]
    pub fn beginning(&self) -> ReplyBeginning<'_> {
        if self.is_whole {
            return ReplyBeginning {
                is_whole: true,
                ..ReplyBeginning::up_to_white_space(&self.text)
            };
        }
        let beginning = ReplyBeginning::from_text(&self.text);
        debug_assert!(
            self.text.starts_with(beginning.text),
            "the continued words begin the reply"
        );
        beginning
    }

    /// Returns what the beginning did in the world. `None`: `reply` has not the whole beginning.
    pub(super) fn effects_within(&self, reply: &str) -> Option<&ReplyEffects> {
        reply.starts_with(self.beginning().text).then_some(&self.effects)
    }
}

/// Marks that stand right after a word.
const CLOSING_MARKS: [char; 13] = [
    '.', ',', ';', ':', '!', '?', ')', ']', '"', '\'', '\u{2019}', '\u{201d}', '\u{2026}',
];

/// A text that the model continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyBeginning<'a> {
    /// The text, without white space at its end.
    pub text: &'a str,
    /// The white space that followed the text. Empty if the model had not yet decided about white space.
    gap: &'a str,
    /// True for a finished reply: a new word follows, and not the rest of a word.
    is_whole: bool,
}

impl<'a> ReplyBeginning<'a> {
    /// A beginning with the white space before the text that follows.
    pub(super) const fn with_gap(text: &'a str, gap: &'a str) -> Self {
        Self {
            text,
            gap,
            is_whole: false,
        }
    }

    fn from_text(text: &'a str) -> Self {
        let inside_a_word = text.ends_with(char::is_alphanumeric);
        let text_with_gap = match text.rfind(char::is_whitespace) {
            Some(space) if inside_a_word && !text[..space].trim().is_empty() => {
                let space_bytes = text[space..].chars().next().map_or(0, char::len_utf8);
                &text[..space + space_bytes]
            }
            _ => text,
        };
        Self::up_to_white_space(text_with_gap)
    }

    fn up_to_white_space(text_with_gap: &'a str) -> Self {
        let text = text_with_gap.trim_end();
        Self {
            text,
            gap: &text_with_gap[text.len()..],
            is_whole: false,
        }
    }

    /// Returns the first new piece as it stands after the text. Empty until the model produces visible text.
    #[must_use]
    pub fn join_piece(&self, piece: &str) -> String {
        let words = piece.trim_start();
        if words.is_empty() {
            return String::new();
        }
        if !self.gap.is_empty() {
            return format!("{}{words}", self.gap);
        }
        let a_sentence_ended = self.text.ends_with(['.', '!', '?', '\u{2026}', ',', ';', ':']);
        if a_sentence_ended && piece.starts_with(char::is_alphanumeric) {
            return format!(" {words}");
        }
        // Chat programs put a space between the two parts as well.
        if self.is_whole && words.len() == piece.len() && !words.starts_with(CLOSING_MARKS) {
            return format!(" {words}");
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

    #[test]
    fn new_words_follow_a_finished_reply_after_a_space() {
        for (said, piece, joined) in [
            ("rarer than", "fair weather", " fair weather"),
            ("rarer than", " fair weather", " fair weather"),
            ("rarer than\n", "fair weather", "\nfair weather"),
            ("*She nods.*", "*She sits.*", " *She sits.*"),
            ("rarer than gold", ", she says.", ", she says."),
        ] {
            let whole = ReplyBeginning {
                is_whole: true,
                ..ReplyBeginning::up_to_white_space(said)
            };
            assert_eq!(whole.join_piece(piece), joined, "{said}");
        }
    }
}
