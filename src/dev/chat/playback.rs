//! Lines of NPCs as a listener hears them, word by word. The server may be further ahead: models are faster than speech.

use std::collections::VecDeque;

use serde_json::Value;

use super::events::event_type;

/// In a pipe, a line of the player comes after this many words of the second line of the NPCs.
const WORDS_BEFORE_PIPE: usize = 3;

/// The lines that were not yet heard to their end, and the end of the conversation.
#[derive(Default)]
pub(super) struct Playback {
    lines: VecDeque<NpcLine>,
    /// How much of the first line was heard, in characters and in words.
    progress: Heard,
    /// The number of the last line that was heard to its end, and the number of such lines.
    finished: (Option<u64>, usize),
    /// Why no further line comes.
    end: Option<String>,
}

struct NpcLine {
    turn: u64,
    npc: String,
    /// The text that the server sent so far.
    text: String,
    /// True if the server sent all.
    complete: bool,
}

#[derive(Default, Clone, Copy)]
struct Heard {
    chars: usize,
    words: usize,
}

/// A word to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SpokenWord {
    pub npc: String,
    pub text: String,
    /// True if the word begins the line.
    pub begins: bool,
    /// True if the word ends the line.
    pub ends: bool,
}

impl Playback {
    /// Takes in an event of the conversation.
    pub(super) fn on_event(&mut self, event: &Value) {
        let turn = event["turn"].as_u64().unwrap_or_default();
        match event_type(event) {
            "npc_turn.started" => {
                self.line_mut(event);
            }
            "npc_turn.delta" => {
                let offset = usize::try_from(event["offset"].as_u64().unwrap_or_default()).unwrap_or(usize::MAX);
                let piece = event["text"].as_str().unwrap_or_default();
                if let Some(line) = self.line_mut(event) {
                    line.text = line.text.chars().take(offset).chain(piece.chars()).collect();
                }
            }
            // The NPC tries again, until the conversation pauses.
            "npc_turn.done" if event["status"] == "failed" => self.drop_from(turn),
            "npc_turn.done" => {
                let text = event["text"].as_str().unwrap_or_default();
                if let Some(line) = self.line_mut(event) {
                    text.clone_into(&mut line.text);
                    line.complete = true;
                }
            }
            "dialogue.rewound" => {
                self.drop_from(turn + 1);
                if let (Some(last_line), Some(heard_chars)) = (self.lines.back_mut(), event["heard_chars"].as_u64()) {
                    let heard_chars = usize::try_from(heard_chars).unwrap_or(usize::MAX);
                    last_line.text = last_line.text.chars().take(heard_chars).collect();
                }
            }
            "npc_conversation.ended" => self.end = Some("their conversation has ended".into()),
            "npc_conversation.paused" => {
                let reason = event["reason"].as_str().unwrap_or_default();
                self.end = Some(format!("their conversation is paused ({reason})"));
            }
            "npc_conversation.created" if event["paused"] == true => {
                self.end = Some("their conversation is paused".into());
            }
            "npc_conversation.resumed" => self.end = None,
            _ => {}
        }
    }

    /// Returns the line of the event; `None` if it was already heard.
    fn line_mut(&mut self, event: &Value) -> Option<&mut NpcLine> {
        let turn = event["turn"].as_u64()?;
        if let Some(index) = self.lines.iter().position(|line| line.turn == turn) {
            return self.lines.get_mut(index);
        }
        if self.finished.0.is_some_and(|finished| turn <= finished) {
            return None;
        }
        self.lines.push_back(NpcLine {
            turn,
            npc: event["npc_id"].as_str().unwrap_or_default().to_owned(),
            text: String::new(),
            complete: false,
        });
        self.lines.back_mut()
    }

    fn drop_from(&mut self, turn: u64) {
        if self.lines.front().is_some_and(|line| line.turn >= turn) {
            self.progress = Heard::default();
        }
        self.lines.retain(|line| line.turn < turn);
        let (finished, _) = &mut self.finished;
        *finished = finished
            .filter(|finished| *finished < turn)
            .or(turn.checked_sub(1).filter(|_| finished.is_some()));
    }

    /// Takes the next word, if the server has sent the whole word.
    pub(super) fn take_word(&mut self) -> Option<SpokenWord> {
        let (text, ends) = self.next_word()?;
        let line = self.lines.front()?;
        let npc = line.npc.clone();
        let text = text.to_owned();
        let begins = self.progress.chars == 0;
        self.progress.chars += text.chars().count();
        self.progress.words += 1;
        if ends {
            self.finished = (Some(line.turn), self.finished.1 + 1);
            self.progress = Heard::default();
            self.lines.pop_front();
        }
        Some(SpokenWord {
            npc,
            text,
            begins,
            ends,
        })
    }

    pub(super) fn has_word(&self) -> bool {
        self.next_word().is_some()
    }

    /// Returns the next word with the space behind it, and true if it is the last of its line.
    fn next_word(&self) -> Option<(&str, bool)> {
        let line = self.lines.front()?;
        let start = line
            .text
            .char_indices()
            .nth(self.progress.chars)
            .map_or(line.text.len(), |(offset, _)| offset);
        let rest = &line.text[start..];
        let word = rest.len() - rest.trim_start().len();
        let space = rest[word..].find(char::is_whitespace).map(|offset| word + offset);
        let end = space.map(|offset| rest.len() - rest[offset..].trim_start().len());
        match end {
            Some(end) if end < rest.len() => Some((&rest[..end], false)),
            _ => line.complete.then_some((rest, true)),
        }
    }

    /// Returns the NPC that thinks about its line.
    pub(super) fn thinking_npc(&self) -> Option<&str> {
        let line = self.lines.front()?;
        (line.text.is_empty() && !line.complete).then_some(&*line.npc)
    }

    /// The last line that was heard, and how many of its characters; all without a number. `None` before any line.
    pub(super) fn heard_part(&self) -> Option<(u64, Option<usize>)> {
        match (self.lines.front(), self.finished.0) {
            (Some(line), None) => Some((line.turn, Some(self.progress.chars))),
            (Some(line), _) if self.progress.chars > 0 => Some((line.turn, Some(self.progress.chars))),
            (_, finished) => finished.map(|turn| (turn, None)),
        }
    }

    /// True if enough was heard for a line from a pipe to cut in.
    pub(super) fn is_under_way(&self) -> bool {
        self.finished.1 >= 2 || (self.finished.1 == 1 && self.progress.words >= WORDS_BEFORE_PIPE)
    }

    /// Says why no further word comes. `None`: words may come.
    pub(super) fn end(&self) -> Option<&str> {
        self.end
            .as_deref()
            .filter(|_| self.lines.iter().all(|line| !line.complete && line.text.is_empty()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn started(turn: u64, npc: &str) -> Value {
        json!({"type": "npc_turn.started", "turn": turn, "npc_id": npc})
    }

    fn delta(turn: u64, offset: usize, text: &str) -> Value {
        json!({"type": "npc_turn.delta", "turn": turn, "offset": offset, "npc_id": "mira", "text": text})
    }

    fn done(turn: u64, npc: &str, text: &str) -> Value {
        json!({"type": "npc_turn.done", "turn": turn, "npc_id": npc, "text": text, "status": "completed"})
    }

    fn take_text(playback: &mut Playback) -> Option<String> {
        playback.take_word().map(|word| word.text)
    }

    #[test]
    fn watched_line_is_shown_by_whole_words_as_they_come() {
        let mut playback = Playback::default();
        playback.on_event(&started(1, "mira"));
        assert_eq!(playback.thinking_npc(), Some("mira"));
        assert_eq!(playback.heard_part(), Some((1, Some(0))), "nothing of it");
        playback.on_event(&delta(1, 0, "The sil"));
        assert_eq!(take_text(&mut playback).as_deref(), Some("The "));
        assert_eq!(take_text(&mut playback), None, "the word is not whole yet");
        playback.on_event(&delta(1, 7, "ver key. "));
        assert_eq!(take_text(&mut playback).as_deref(), Some("silver "));
        assert_eq!(playback.heard_part(), Some((1, Some(11))));
        assert_eq!(take_text(&mut playback), None, "a line may end with a space");
        playback.on_event(&done(1, "mira", "The silver key. "));
        let last = playback.take_word().unwrap();
        assert_eq!((last.text.as_str(), last.ends), ("key. ", true));
        assert_eq!(playback.heard_part(), Some((1, None)));
    }

    #[test]
    fn watched_lines_are_heard_behind_the_server() {
        let mut playback = Playback::default();
        for (turn, npc) in [(1, "mira"), (2, "tom"), (3, "mira")] {
            playback.on_event(&done(turn, npc, "One two three four."));
        }
        playback.on_event(&json!({"type": "npc_conversation.ended"}));
        let first = playback.take_word().unwrap();
        assert_eq!(first.npc, "mira");
        assert_eq!(playback.heard_part(), Some((1, Some(4))));
        for _ in 0..6 {
            assert!(!playback.is_under_way() && playback.end().is_none());
            playback.take_word().unwrap();
        }
        assert!(playback.is_under_way());
        assert_eq!(playback.heard_part(), Some((2, Some(14))));
        for _ in 0..5 {
            playback.take_word().unwrap();
        }
        assert_eq!(playback.end(), Some("their conversation has ended"));
    }

    #[test]
    fn watched_line_that_failed_is_heard_again_from_its_beginning() {
        let mut playback = Playback::default();
        playback.on_event(&done(1, "mira", "One."));
        playback.take_word().unwrap();
        playback.on_event(&delta(2, 0, "Two thr"));
        assert!(playback.take_word().unwrap().begins);
        playback
            .on_event(&json!({"type": "npc_turn.done", "turn": 2, "npc_id": "mira", "text": "", "status": "failed"}));
        assert!(!playback.has_word() && playback.end().is_none());
        assert_eq!(playback.heard_part(), Some((1, None)));
        playback.on_event(&done(2, "mira", "Two."));
        let again = playback.take_word().unwrap();
        assert_eq!((again.text.as_str(), again.begins, again.ends), ("Two.", true, true));
    }

    #[test]
    fn watched_line_that_another_player_cuts_ends_there() {
        let mut playback = Playback::default();
        playback.on_event(&done(1, "mira", "One two three."));
        playback.on_event(&done(2, "tom", "Four."));
        playback.take_word().unwrap();
        playback.on_event(&json!({"type": "dialogue.rewound", "turn": 1, "heard_chars": 7, "removed_turns": [2]}));
        playback.on_event(&json!({"type": "npc_conversation.paused", "turn": 1, "reason": "interrupted"}));
        let rest = playback.take_word().unwrap();
        assert_eq!((rest.text.as_str(), rest.ends), ("two", true));
        assert_eq!(playback.end(), Some("their conversation is paused (interrupted)"));
    }
}
