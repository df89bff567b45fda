//! The transcript of a chat program, compared with the stored turns of a session.
//!
//! A chat program sends the whole talk with every request. A long talk is cut at the front, and users edit and delete
//! lines. [`align_transcript`] decides which stored turns the transcript still shows, which lines are
//! new, and what the request asks for. The module is pure: it reads no store.

mod prints;
mod spoken_turns;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::HashSet;

use self::prints::{TurnPrint, join_silent_turns};
pub use self::{
    prints::{SILENT_REPLIES, StoredTurn, TextPrint},
    spoken_turns::SpokenTurns,
};

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
    /// True if nothing is shared but turns without a line, such as a greeting, and the first line is another one than
    /// in the session.
    pub has_other_first_line: bool,
}

impl TranscriptAlignment {
    /// True if the transcript may be the beginning of another talk than that of a session with `head` turns. Such a transcript
    /// has no line in common with the session, or has little in common with it and would take much of it back.
    #[must_use]
    pub fn may_be_another_talk(&self, head: u32) -> bool {
        let takes_much_back = head.saturating_sub(self.last_standing) > MAX_TAKEN_BACK;
        self.first_number == 1 && (self.has_other_first_line || self.shared_turns <= 2 && takes_much_back)
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
            has_other_first_line: false,
        }
    }

    /// True if no stored turn is taken back or shortened, and no turn of the transcript is missing.
    #[must_use]
    pub fn is_continuation_of(&self, head: u32) -> bool {
        self.last_standing == head && self.heard_chars.is_none() && self.missing.is_empty()
    }
}

/// A transcript that is compared with several sessions.
#[derive(Debug)]
pub struct ComparedTranscript<'a> {
    pub transcript: &'a Transcript,
    turns: Vec<TurnPrint>,
    /// The player's line at the end.
    line: Option<TextPrint>,
}

impl<'a> ComparedTranscript<'a> {
    #[must_use]
    pub fn new(transcript: &'a Transcript) -> Self {
        let turns = transcript.turns.iter();
        Self {
            transcript,
            turns: turns
                .map(|turn| TurnPrint::new(&turn.player_text, &turn.reply_text))
                .collect(),
            line: match &transcript.end {
                TranscriptEnd::Line(line) => Some(TextPrint::of_line(line)),
                TranscriptEnd::Reply => None,
            },
        }
    }
}

/// Compares a transcript with all stored turns of a session, or with its latest turns. `stored` is in order, without a gap.
#[must_use]
pub fn align_transcript(compared: &ComparedTranscript<'_>, stored: &[StoredTurn]) -> TranscriptAlignment {
    let transcript = compared.transcript;
    let shown_prints = &compared.turns;
    let stored = &*join_silent_turns(stored);
    let start = find_start(shown_prints, compared.line, stored);
    let run = start.run;
    let mut next_position = start.position + run;
    let mut heard_chars = None;
    let mut matched_turns = run;
    // A reply of which only the beginning is shown was cut there.
    if let (Some(turn), Some(next), Some(print)) = (
        transcript.turns.get(run),
        stored.get(next_position),
        shown_prints.get(run),
    ) {
        let same_line = next.print.player == print.player || (run == 0 && print.player.is_empty());
        heard_chars = next.heard_chars(turn).filter(|_| same_line);
        if heard_chars.is_some() {
            next_position += 1;
            matched_turns += 1;
        }
    }
    let is_other_reply = heard_chars.is_none() && run == 0 && shows_other_reply(shown_prints, stored, next_position);
    let missing_turns = transcript.turns[matched_turns..].to_vec();
    let before = |position: usize| stored.get(position).map_or(0, StoredTurn::number_before);
    let last_standing = match next_position.checked_sub(1) {
        Some(last) => stored.get(last).map_or(0, |turn| turn.number),
        None => before(0),
    };
    // Without earlier turns, only the first turn of a session can be answered again.
    let is_at_next =
        missing_turns.is_empty() && heard_chars.is_none() && (!shown_prints.is_empty() || stored.len() == 1);
    let rest = &stored[next_position.min(stored.len())..];
    let end = compare_end(compared, if is_at_next { rest } else { &[] });
    let last_standing = end.last_standing.unwrap_or(last_standing);
    let shares_line = is_other_reply
        || end.shows_next_turn
        || stored[start.position..next_position].iter().any(StoredTurn::has_line)
        || shares_turn_with_line(&shown_prints[matched_turns..], stored);
    TranscriptAlignment {
        last_standing,
        heard_chars,
        shared_turns: start.shared
            + usize::from(heard_chars.is_some() || is_other_reply)
            + usize::from(end.shows_next_turn),
        first_number: before(start.position)
            .saturating_add(1)
            .min(last_standing.saturating_add(1)),
        has_other_first_line: !shares_line && has_other_first_line(compared, rest),
        missing: missing_turns,
        request: end.request,
    }
}

/// True if the first shown turn is the stored turn at `position` with another reply: the program shows an alternative,
/// or its user has edited the reply. In the session, turns may follow that were deleted in the program.
fn shows_other_reply(shown_prints: &[TurnPrint], stored: &[StoredTurn], position: usize) -> bool {
    (position + 1 == stored.len() || shown_prints.len() == 1)
        && stored
            .get(position)
            .zip(shown_prints.first())
            .is_some_and(|(turn, print)| !print.player.is_empty() && turn.print.player == print.player)
}

/// True if one of the shown turns is stored anywhere, and has a player's line.
fn shares_turn_with_line(shown_prints: &[TurnPrint], stored: &[StoredTurn]) -> bool {
    let with_line = stored.iter().filter(|turn| turn.has_line());
    let with_line: HashSet<TurnPrint> = with_line.map(|turn| turn.print).collect();
    shown_prints.iter().any(|print| with_line.contains(print))
}

/// True if the first of the player's lines after the shared turns is another one in the transcript than in `rest`, the
/// stored turns.
fn has_other_first_line(compared: &ComparedTranscript<'_>, rest: &[StoredTurn]) -> bool {
    let mut lines = compared.turns.iter().map(|turn| turn.player).chain(compared.line);
    let first_line = lines.find(|line| !line.is_empty());
    let first_stored = rest.iter().find(|turn| turn.has_line());
    first_stored.is_some_and(|stored| first_line != Some(stored.print.player))
}

/// The end of a transcript, compared with the stored turns after its last reply.
struct ComparedEnd {
    request: TranscriptRequest,
    /// The last turn that stands, if the end decides so.
    last_standing: Option<u32>,
    /// True if the end has the line of the next stored turn.
    shows_next_turn: bool,
}

/// Compares the end of a transcript with the stored turns after its last reply.
fn compare_end(compared: &ComparedTranscript<'_>, rest: &[StoredTurn]) -> ComparedEnd {
    let transcript = compared.transcript;
    let with_request = |request| ComparedEnd {
        request,
        last_standing: None,
        shows_next_turn: false,
    };
    let text = match &transcript.end {
        TranscriptEnd::Line(text) => text,
        TranscriptEnd::Reply if transcript.turns.is_empty() => {
            return with_request(TranscriptRequest::Answer(String::new()));
        }
        TranscriptEnd::Reply => return with_request(TranscriptRequest::GoOn),
    };
    let Some(next) = rest.first() else {
        return with_request(TranscriptRequest::Answer(text.clone()));
    };
    if compared.line == Some(next.print.player) {
        let is_last = rest.len() == 1;
        return ComparedEnd {
            request: if is_last {
                TranscriptRequest::AnswerAgain(text.clone())
            } else {
                TranscriptRequest::Answer(text.clone())
            },
            last_standing: is_last.then(|| next.number.saturating_sub(1)),
            shows_next_turn: true,
        };
    }
    // The program does not show a reply without a word, and joins the lines before and after it.
    match next.line_after_silence(text) {
        Some(line) => ComparedEnd {
            request: TranscriptRequest::Answer(line.to_owned()),
            last_standing: Some(next.number),
            shows_next_turn: true,
        },
        None => with_request(TranscriptRequest::Answer(text.clone())),
    }
}

/// Where the transcript begins among the stored turns.
#[derive(Debug, Default, PartialEq, Eq)]
struct TranscriptStart {
    /// The position of the stored turn that is the transcript's first.
    position: usize,
    /// The number of turns from there that are the same.
    run: usize,
    /// The number of turns that are the same anywhere.
    shared: usize,
}

/// Finds the beginning of the transcript. A beginning from which more turns are the same wins. Among equals, a beginning wins
/// that reaches the last stored reply; then one whose next stored turn has the same `line`; then the session's first turn,
/// and the latest. The work is
/// linear in the number of turns.
fn find_start(shown_prints: &[TurnPrint], line: Option<TextPrint>, stored: &[StoredTurn]) -> TranscriptStart {
    let known_prints: HashSet<TurnPrint> = stored.iter().map(|turn| turn.print).collect();
    let is_known = |(index, print): (usize, &TurnPrint)| {
        known_prints.contains(print) || index == 0 && stored.iter().any(|turn| turn.is_shown_first_as(print))
    };
    let Some(first) = shown_prints.iter().enumerate().position(is_known) else {
        return TranscriptStart::default();
    };
    let prints: Vec<TurnPrint> = stored.iter().map(|turn| turn.print).collect();
    let after = prefix_lengths(&shown_prints[first + 1..], &prints);
    let runs = stored.iter().enumerate().filter_map(|(position, turn)| {
        let is_first = turn.print == shown_prints[first] || first == 0 && turn.is_shown_first_as(&shown_prints[0]);
        is_first.then(|| (position, 1 + after.get(position + 1).copied().unwrap_or(0)))
    });
    let rank = |position: usize, run: usize| {
        let next = stored.get(position + run);
        let is_same_line = line.is_some() && next.map(|turn| turn.print.player) == line;
        let is_end = next.is_none_or(StoredTurn::is_silent);
        (run, is_end, is_same_line, position == 0, position)
    };
    match runs.max_by_key(|(position, run)| rank(*position, *run)) {
        None => TranscriptStart::default(),
        Some((position, run)) if first == 0 => TranscriptStart {
            position,
            run,
            shared: run,
        },
        // Edited turns stand before the first shared turn: they replace as many stored turns.
        Some((position, run)) => TranscriptStart {
            position: position.saturating_sub(first),
            run: 0,
            shared: run,
        },
    }
}

/// For each position of `text`: the number of items from there that are the beginning of `pattern` (the Z algorithm).
fn prefix_lengths<T: PartialEq>(pattern: &[T], text: &[T]) -> Vec<usize> {
    let sequence: Vec<&T> = pattern.iter().chain(text).collect();
    let mut lengths = vec![0; sequence.len()];
    // The latest stretch that is known to be the beginning of `sequence`.
    let mut stretch_start = 0;
    let mut stretch_end = 0;
    for index in 1..sequence.len() {
        let mut length = if index < stretch_end {
            lengths[index - stretch_start].min(stretch_end - index)
        } else {
            0
        };
        while index + length < sequence.len() && sequence[length] == sequence[index + length] {
            length += 1;
        }
        if index + length > stretch_end {
            stretch_start = index;
            stretch_end = index + length;
        }
        lengths[index] = length;
    }
    let of_text = lengths[pattern.len()..].iter();
    of_text.map(|length| (*length).min(pattern.len())).collect()
}
