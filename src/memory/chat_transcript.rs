//! The transcript of a chat program, compared with the stored turns of a session.
//!
//! A chat program sends the whole talk with every request: cut at the front when it is long, and with lines that its user
//! has edited or deleted. [`align_transcript`] decides which stored turns the transcript still shows, which lines are
//! new, and what the request asks for. The module is pure: it reads no store.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The most turns that a transcript takes back with little in common with them. Many talks begin with the same greeting and
/// the same line.
const MAX_TAKEN_BACK: u32 = 4;

/// A player's line and the NPC's reply, as a chat program shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TranscriptTurn {
    /// Empty if the NPC spoke without a line of the player, or if the line was cut away at the front.
    pub player_text: String,
    pub reply_text: String,
}

/// The end of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TranscriptEnd {
    /// The player's line that has no reply yet. Empty: the NPC speaks without a line of the player.
    Line(String),
    /// The last reply is to go on.
    Reply,
}

/// A transcript: finished turns, oldest first, and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    pub turns: Vec<TranscriptTurn>,
    pub end: TranscriptEnd,
}

/// A stored turn, as far as transcripts are compared with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTurn {
    /// The number of the turn in its session, from 1.
    pub number: u32,
    player: TextPrint,
    player_words: usize,
    reply: TextPrint,
    /// `None`: only the words are known, as a hash.
    reply_text: Option<Box<str>>,
}

impl StoredTurn {
    #[must_use]
    pub fn new(number: u32, player_text: &str, reply_text: &str) -> Self {
        Self {
            number,
            player: TextPrint::of_text(player_text),
            player_words: player_text.split_whitespace().count(),
            reply: TextPrint::of_text(reply_text),
            reply_text: Some(reply_text.into()),
        }
    }

    /// The words of the reply.
    #[must_use]
    pub const fn reply(&self) -> TextPrint {
        self.reply
    }

    /// Drops the text of the reply. A beginning of the reply then counts as another reply.
    pub fn forget_text(&mut self) {
        self.reply_text = None;
    }

    fn is_shown_as(&self, shown: &ComparedTurn, is_first: bool) -> bool {
        // The player's line of the first shown turn may have been cut away, or the first of its joined messages.
        let line_is_cut =
            is_first && (shown.player.is_empty() || self.number > 1 && shown.player_words < self.player_words);
        (line_is_cut || self.player == shown.player) && self.reply == shown.reply
    }

    /// Returns how many Unicode scalar values of the reply a chat program shows, if it shows only the beginning.
    fn heard_chars(&self, shown: &TranscriptTurn) -> Option<usize> {
        let shown = shown.reply_text.trim_end();
        let rest = self.reply_text.as_ref()?.strip_prefix(shown)?;
        (!shown.trim().is_empty() && !rest.trim().is_empty()).then(|| shown.chars().count())
    }
}

/// The words of a text, without regard to white space: chat programs trim lines and join them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextPrint(u64);

impl TextPrint {
    const EMPTY: Self = Self(0);

    /// The words of `text`, as a hash that is valid within this process.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let mut words = text.split_whitespace().peekable();
        if words.peek().is_none() {
            return Self::EMPTY;
        }
        let mut hasher = DefaultHasher::new();
        words.for_each(|word| word.hash(&mut hasher));
        Self(hasher.finish() | 1)
    }

    fn is_empty(self) -> bool {
        self == Self::EMPTY
    }
}

struct ComparedTurn {
    player: TextPrint,
    player_words: usize,
    reply: TextPrint,
}

/// What a request asks for, once the stored turns are as the transcript shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TranscriptRequest {
    /// The NPC answers a line; an empty line: the NPC speaks without a line.
    Answer(String),
    /// The last stored turn is said again: the transcript has its line, and not its reply.
    AnswerAgain(String),
    /// The NPC goes on with its last reply.
    GoOn,
}

/// How the stored turns become those of the transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptAlignment {
    /// The last stored turn that stands; 0: none.
    pub last_standing: u32,
    /// The Unicode scalar values that were heard of its reply; `None`: the whole reply.
    pub heard_chars: Option<usize>,
    /// Turns of the transcript that are not stored, oldest first. They follow the last standing turn.
    pub missing: Vec<TranscriptTurn>,
    pub request: TranscriptRequest,
    /// The number of stored turns that the transcript shows, the answered line included. 0: the transcript has nothing in
    /// common with the session.
    pub shared_turns: usize,
    /// The number of the stored turn that the first turn of the transcript is, or becomes.
    pub first_number: u32,
}

impl TranscriptAlignment {
    /// True if the transcript may be the beginning of another talk than that of a session with `head` turns: it has little in
    /// common with the session, and would take much of it back.
    #[must_use]
    pub fn may_be_another_talk(&self, head: u32) -> bool {
        self.first_number == 1 && self.shared_turns <= 2 && head.saturating_sub(self.last_standing) > MAX_TAKEN_BACK
    }

    /// Lets the turns of `transcript` follow the stored turns up to `last`. The transcript repeats none of them.
    #[must_use]
    pub fn after_turn(last: u32, transcript: &Transcript) -> Self {
        Self {
            last_standing: last,
            heard_chars: None,
            missing: transcript.turns.clone(),
            request: match &transcript.end {
                TranscriptEnd::Line(line) => TranscriptRequest::Answer(line.clone()),
                TranscriptEnd::Reply => TranscriptRequest::GoOn,
            },
            shared_turns: 0,
            first_number: last.saturating_add(1),
        }
    }

    /// True if no stored turn is taken back or shortened, and no turn of the transcript is missing.
    #[must_use]
    pub fn is_continuation_of(&self, head: u32) -> bool {
        self.last_standing == head && self.heard_chars.is_none() && self.missing.is_empty()
    }
}

/// Compares a transcript with all stored turns of a session, or with its latest turns. `stored` is in order, without a gap.
#[must_use]
pub fn align_transcript(transcript: &Transcript, stored: &[StoredTurn]) -> TranscriptAlignment {
    let compared: Vec<ComparedTurn> = transcript
        .turns
        .iter()
        .map(|turn| ComparedTurn {
            player: TextPrint::of_text(&turn.player_text),
            player_words: turn.player_text.split_whitespace().count(),
            reply: TextPrint::of_text(&turn.reply_text),
        })
        .collect();
    let line = match &transcript.end {
        TranscriptEnd::Line(line) => Some(TextPrint::of_text(line)),
        TranscriptEnd::Reply => None,
    };
    let start = find_start(&compared, line, stored);
    let run = start.run;
    let mut standing = start.position + run;
    let mut heard_chars = None;
    let mut shown = run;
    // A reply of which only the beginning is shown was cut there.
    if let (Some(turn), Some(next), Some(print)) = (transcript.turns.get(run), stored.get(standing), compared.get(run))
    {
        let same_line = next.player == print.player || (run == 0 && print.player.is_empty());
        heard_chars = next.heard_chars(turn).filter(|_| same_line);
        if heard_chars.is_some() {
            standing += 1;
            shown += 1;
        }
    }
    // The last stored turn with another reply: the program shows an alternative, or its user has edited the reply.
    let is_other_reply = heard_chars.is_none()
        && run == 0
        && standing + 1 == stored.len()
        && matches!((stored.get(standing), compared.first()), (Some(last), Some(print)) if !print.player.is_empty() && last.player == print.player);
    let missing = transcript.turns[shown..].to_vec();
    let next_line_is = |print: TextPrint| stored.get(standing).is_some_and(|next| next.player == print);
    let answered = line
        .filter(|_| missing.is_empty() && heard_chars.is_none())
        .filter(|print| next_line_is(*print));
    // Without earlier turns, only the first turn of a session can be answered again.
    let answered = answered.filter(|_| !transcript.turns.is_empty() || stored.len() == 1);
    let before = |position: usize| stored.get(position).map_or(0, |turn| turn.number.saturating_sub(1));
    let last_standing = match standing.checked_sub(1) {
        Some(last) => stored.get(last).map_or(0, |turn| turn.number),
        None => before(0),
    };
    let request = match (&transcript.end, answered) {
        (TranscriptEnd::Line(line), Some(_)) if standing + 1 == stored.len() => {
            TranscriptRequest::AnswerAgain(line.clone())
        }
        (TranscriptEnd::Line(line), _) => TranscriptRequest::Answer(line.clone()),
        (TranscriptEnd::Reply, _) if transcript.turns.is_empty() => TranscriptRequest::Answer(String::new()),
        (TranscriptEnd::Reply, _) => TranscriptRequest::GoOn,
    };
    TranscriptAlignment {
        last_standing,
        heard_chars,
        shared_turns: start.shared
            + usize::from(heard_chars.is_some() || is_other_reply)
            + usize::from(answered.is_some()),
        first_number: before(start.position)
            .saturating_add(1)
            .min(last_standing.saturating_add(1)),
        missing,
        request,
    }
}

/// Where the transcript begins among the stored turns.
struct TranscriptStart {
    /// The position of the stored turn that is the transcript's first.
    position: usize,
    /// The number of turns from there that are the same.
    run: usize,
    /// The number of turns that are the same anywhere.
    shared: usize,
}

/// Finds the beginning of the transcript. A beginning from which more turns are the same wins; then one that reaches the
/// last stored turn, one whose next stored turn has the same `line`, the session's first turn, and the latest.
fn find_start(shown: &[ComparedTurn], line: Option<TextPrint>, stored: &[StoredTurn]) -> TranscriptStart {
    let run_from = |position: usize, first: usize| {
        let pairs = stored[position..].iter().zip(&shown[first..]).enumerate();
        pairs
            .take_while(|(at, (turn, shown))| turn.is_shown_as(shown, first + at == 0))
            .count()
    };
    for first in 0..shown.len() {
        let rank = |position: usize, run: usize| {
            let next = stored.get(position + run);
            let is_same_line = line.is_some() && next.map(|turn| turn.player) == line;
            (run, next.is_none(), is_same_line, position == 0, position)
        };
        let runs = (0..stored.len()).map(|position| (position, run_from(position, first)));
        let best = runs
            .filter(|(_, run)| *run > 0)
            .max_by_key(|(position, run)| rank(*position, *run));
        if let Some((position, run)) = best {
            if first == 0 {
                return TranscriptStart {
                    position,
                    run,
                    shared: run,
                };
            }
            // Edited turns stand before the first shared turn: they replace as many stored turns.
            return TranscriptStart {
                position: position.saturating_sub(first),
                run: 0,
                shared: run,
            };
        }
    }
    TranscriptStart {
        position: 0,
        run: 0,
        shared: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(turns: &[(&str, &str)]) -> Vec<StoredTurn> {
        (1..)
            .zip(turns)
            .map(|(number, (line, reply))| StoredTurn::new(number, line, reply))
            .collect()
    }

    fn turn(line: &str, reply: &str) -> TranscriptTurn {
        TranscriptTurn {
            player_text: line.into(),
            reply_text: reply.into(),
        }
    }

    fn align(turns: &[(&str, &str)], line: &str, known: &[(&str, &str)]) -> TranscriptAlignment {
        let end = match line {
            "" => TranscriptEnd::Reply,
            line => TranscriptEnd::Line(line.into()),
        };
        let turns = turns.iter().map(|(line, reply)| turn(line, reply)).collect();
        align_transcript(&Transcript { turns, end }, &stored(known))
    }

    const TALK: [(&str, &str); 4] = [
        ("", "Welcome."),
        ("Hi", "Hello."),
        ("Rain?", "Yes."),
        ("Why?", "Clouds."),
    ];

    #[test]
    fn next_line_continues_the_session() {
        let aligned = align(&TALK, "And now?", &TALK);
        assert!(aligned.is_continuation_of(4));
        assert_eq!(aligned.request, TranscriptRequest::Answer("And now?".into()));
        assert_eq!((aligned.shared_turns, aligned.first_number), (4, 1));
    }

    #[test]
    fn transcript_without_its_front_continues_the_session() {
        for cut in [&TALK[1..], &TALK[2..], &[("", "Yes."), ("Why?", "Clouds.")]] {
            let aligned = align(cut, "And now?", &TALK);
            assert!(aligned.is_continuation_of(4), "{cut:?}");
        }
        assert_eq!(align(&TALK[2..], "And now?", &TALK).first_number, 3);
    }

    #[test]
    fn front_may_be_cut_between_joined_lines() {
        let known = [TALK[0], ("Hi\n\nBran: Well?", "Hello."), TALK[2]];
        let aligned = align(&[("Bran: Well?", "Hello."), TALK[2]], "So?", &known);
        assert!(aligned.is_continuation_of(3));
    }

    #[test]
    fn same_last_line_is_answered_again() {
        let aligned = align(&TALK[..3], "Why?", &TALK);
        assert_eq!((aligned.last_standing, aligned.missing.len()), (3, 0));
        assert_eq!(aligned.request, TranscriptRequest::AnswerAgain("Why?".into()));
        let first = align(&[], "Hi", &[("Hi", "Hello.")]);
        assert_eq!(first.request, TranscriptRequest::AnswerAgain("Hi".into()));
        assert_eq!((first.last_standing, first.shared_turns), (0, 1));
    }

    #[test]
    fn line_of_an_earlier_turn_takes_later_turns_back() {
        let aligned = align(&TALK[..2], "Rain?", &TALK);
        assert_eq!((aligned.last_standing, aligned.missing.len()), (2, 0));
        assert_eq!(aligned.request, TranscriptRequest::Answer("Rain?".into()));
    }

    #[test]
    fn deleted_turns_are_taken_back() {
        let aligned = align(&TALK[..2], "Snow?", &TALK);
        assert_eq!(
            (aligned.last_standing, aligned.missing.len(), aligned.shared_turns),
            (2, 0, 2)
        );
        let inner = align(&[TALK[0], TALK[1], TALK[3]], "So?", &TALK);
        assert_eq!((inner.last_standing, inner.missing), (2, vec![turn("Why?", "Clouds.")]));
    }

    #[test]
    fn edited_line_or_reply_replaces_the_turn_and_those_after() {
        let line = align(&[TALK[0], ("Hey", "Hello."), TALK[2]], "So?", &TALK);
        assert_eq!(line.last_standing, 1);
        assert_eq!(line.missing, [turn("Hey", "Hello."), turn("Rain?", "Yes.")]);
        let reply = align(&[TALK[0], TALK[1], ("Rain?", "No.")], "So?", &TALK);
        assert_eq!((reply.last_standing, reply.missing), (2, vec![turn("Rain?", "No.")]));
        let first = align(&[("", "Be welcome."), TALK[1], TALK[2], TALK[3]], "So?", &TALK);
        assert_eq!(
            (first.last_standing, first.missing.len(), first.shared_turns),
            (0, 4, 3)
        );
    }

    #[test]
    fn edit_of_the_first_shown_line_keeps_turns_before_it() {
        let aligned = align(&[("Rain??", "Yes."), TALK[3]], "So?", &TALK);
        assert_eq!((aligned.last_standing, aligned.missing.len()), (2, 2));
        assert_eq!(aligned.first_number, 3);
    }

    #[test]
    fn beginning_of_a_reply_is_what_was_heard() {
        let aligned = align(&[TALK[0], ("Hi", "Hel")], "What?", &TALK[..2]);
        assert_eq!((aligned.last_standing, aligned.heard_chars), (2, Some(3)));
        assert!(aligned.missing.is_empty());
        let longer = align(&[TALK[0], ("Hi", "Hello. Sit.")], "What?", &TALK[..2]);
        assert_eq!((longer.last_standing, longer.heard_chars), (1, None));
        assert_eq!(longer.missing, [turn("Hi", "Hello. Sit.")]);
    }

    #[test]
    fn white_space_and_joined_lines_do_not_matter() {
        let aligned = align(
            &[("", " Welcome.\n"), ("Hi", "Hello.")],
            "Rain?\n\nOr snow?",
            &[("", "Welcome."), ("Hi ", "Hello."), ("Rain? Or snow?", "Rain.")],
        );
        assert_eq!(aligned.last_standing, 2);
        assert!(matches!(aligned.request, TranscriptRequest::AnswerAgain(_)));
    }

    #[test]
    fn transcript_that_ends_with_a_reply_goes_on() {
        let aligned = align(&TALK, "", &TALK);
        assert!(aligned.is_continuation_of(4));
        assert_eq!(aligned.request, TranscriptRequest::GoOn);
        assert_eq!(align(&[], "", &[]).request, TranscriptRequest::Answer(String::new()));
    }

    #[test]
    fn foreign_transcript_shares_nothing() {
        let aligned = align(&[("", "Halt!"), ("Me?", "You.")], "So?", &TALK);
        assert_eq!(
            (aligned.shared_turns, aligned.last_standing, aligned.missing.len()),
            (0, 0, 2)
        );
        let lone = align(&[], "Hi", &TALK);
        assert_eq!((lone.shared_turns, lone.last_standing), (0, 0));
        assert_eq!(lone.request, TranscriptRequest::Answer("Hi".into()));
    }

    #[test]
    fn beginning_of_another_talk_takes_no_long_session_back() {
        let long: Vec<(&str, &str)> = [TALK.to_vec(), vec![("A", "B"), ("C", "D"), ("E", "F")]].concat();
        let another = align(&[TALK[0]], "Hi", &long);
        assert!(another.may_be_another_talk(7));
        assert!(!align(&[TALK[0]], "Hi", &TALK).may_be_another_talk(4), "a short talk");
        assert!(
            !align(&long[..3], "So?", &long).may_be_another_talk(7),
            "three turns are shared"
        );
    }

    #[test]
    fn other_reply_of_the_only_turn_is_an_alternative() {
        let aligned = align(&[("Hi", "Good day.")], "So?", &TALK[1..2]);
        assert_eq!((aligned.last_standing, aligned.shared_turns), (0, 1));
        assert_eq!(aligned.missing, [turn("Hi", "Good day.")]);
    }

    #[test]
    fn repeated_turns_are_found_at_the_end() {
        let again = [("Go", "On."), ("Go", "On."), ("Go", "On."), ("Stop", "Done.")];
        let aligned = align(&[again[2], again[3]], "Go", &again);
        assert!(aligned.is_continuation_of(4));
        let deleted = align(&[("Go", "On."), ("Go", "On.")], "Stop", &again);
        assert_eq!(
            (deleted.last_standing, deleted.first_number),
            (3, 2),
            "the longest run before the same line"
        );
    }
}
