//! The turns that were really spoken in a session, for transcripts that may bring in no other turns.

use std::collections::{HashMap, HashSet};

use super::{
    TranscriptTurn,
    prints::{StoredTurn, TextPrint},
};

/// The most ways in which the line of a turn is known: alone, and joined with lines before it that had no reply.
const MAX_LINES_OF_TURN: usize = 16;

/// The turns of a session: those that stand, and those that were replaced or taken back.
#[derive(Debug, Default)]
pub struct SpokenTurns<'a> {
    /// The turns with a line, in the order of their numbers.
    by_line: HashMap<TextPrint, Vec<&'a StoredTurn>>,
    /// The lines that are in the session, or will be, each with the number of its turn.
    used: HashSet<(TextPrint, u32)>,
}

impl<'a> SpokenTurns<'a> {
    /// Collects the turns of a session. The first `last_standing` of the `standing_turns` turns stay as they are: the
    /// others, and the `unsaid` turns, may be said again.
    #[must_use]
    pub fn new(standing_turns: &'a [StoredTurn], unsaid: &'a [StoredTurn], last_standing: u32) -> Self {
        let mut turns: Vec<(&StoredTurn, bool)> = standing_turns.iter().map(|turn| (turn, true)).collect();
        turns.extend(unsaid.iter().map(|turn| (turn, false)));
        turns.sort_by_key(|(turn, _)| turn.number);
        let mut spoken_turns = Self::default();
        // The lines of turns without a word of the NPC, by the number of the turn. Programs join them with the next
        // line.
        let mut silent_lines: HashMap<u32, Vec<TextPrint>> = HashMap::new();
        for (turn, is_standing) in turns {
            let line = turn.print.player;
            let before = silent_lines.get(&turn.number.saturating_sub(1)).into_iter().flatten();
            let joined = before.map(|before| before.followed_by(line));
            let lines: Vec<TextPrint> = [line].into_iter().chain(joined).take(MAX_LINES_OF_TURN).collect();
            for line in &lines {
                spoken_turns.by_line.entry(*line).or_default().push(turn);
                if is_standing && turn.number <= last_standing {
                    spoken_turns.used.insert((*line, turn.number));
                }
            }
            if turn.is_silent() {
                let turn_lines = silent_lines.entry(turn.number).or_default();
                turn_lines.extend(lines);
                turn_lines.truncate(MAX_LINES_OF_TURN);
            }
        }
        spoken_turns
    }

    /// Takes a turn that is to be said again. True if the NPC has answered the same line with this reply, or with a
    /// reply that begins with it. A line stands at most as often as it was said at different places of the session.
    pub fn take(&mut self, turn: &TranscriptTurn) -> bool {
        let line = TextPrint::of_line(&turn.player_text);
        let reply = TextPrint::of_text(&turn.reply_text);
        let mut same_line = self.by_line.get(&line).into_iter().flatten();
        let spoken_turn = same_line.find(|spoken_turn| {
            let is_free = !self.used.contains(&(line, spoken_turn.number));
            is_free && (spoken_turn.print.reply == reply || spoken_turn.heard_chars(turn).is_some())
        });
        spoken_turn.is_some_and(|spoken_turn| self.used.insert((line, spoken_turn.number)))
    }
}
