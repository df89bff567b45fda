//! Texts as they are compared: by their words, as hashes.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::TranscriptTurn;

/// What chat programs show for a reply without a word. A reply that is only this is not in a [`super::Transcript`]: the
/// lines before and after it are joined.
pub const SILENT_REPLIES: [&str; 2] = ["...", "\u{2026}"];
/// Between joined lines.
const LINE_BREAK: &str = "\n\n";

/// The words of a text, without regard to white space: chat programs trim lines and join them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextPrint {
    /// A polynomial of the hashes of the words.
    hash: u64,
    pub(super) words: u32,
}

impl TextPrint {
    const EMPTY: Self = Self { hash: 0, words: 0 };
    /// The prime 2^61 - 1.
    const MODULUS: u64 = (1 << 61) - 1;
    const BASE: u64 = 0x1e37_79b9_7f4a_7c15;

    /// The words of `text`, as a hash that is valid within this process.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        text.split_whitespace().fold(Self::EMPTY, |before, word| {
            let mut hasher = DefaultHasher::new();
            word.hash(&mut hasher);
            before.followed_by(Self {
                hash: hasher.finish() % Self::MODULUS,
                words: 1,
            })
        })
    }

    pub(super) const fn is_empty(self) -> bool {
        self.words == 0
    }

    /// The words of two texts, one after the other.
    fn followed_by(self, next: Self) -> Self {
        let mut shift = 1;
        let mut square = Self::BASE;
        let mut exponent = next.words;
        while exponent > 0 {
            if exponent & 1 == 1 {
                shift = multiply(shift, square);
            }
            square = multiply(square, square);
            exponent >>= 1;
        }
        Self {
            hash: (multiply(self.hash, shift) + next.hash) % Self::MODULUS,
            words: self.words.saturating_add(next.words),
        }
    }
}

/// Multiplies modulo [`TextPrint::MODULUS`].
fn multiply(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other) % u128::from(TextPrint::MODULUS);
    // The remainder has 61 bits.
    u64::try_from(product).unwrap_or(0)
}

/// A turn as it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TurnPrint {
    pub player: TextPrint,
    pub reply: TextPrint,
}

impl TurnPrint {
    pub fn new(player_text: &str, reply_text: &str) -> Self {
        Self {
            player: TextPrint::of_text(player_text),
            reply: TextPrint::of_text(reply_text),
        }
    }
}

/// A stored turn, as far as transcripts are compared with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTurn {
    /// The number of the turn in its session, from 1.
    pub number: u32,
    /// The first of the turns that were joined ([`join_silent_turns`]).
    first_number: u32,
    pub(super) print: TurnPrint,
    /// `None`: only the words are known, as a hash.
    reply_text: Option<Box<str>>,
    is_silent: bool,
}

impl StoredTurn {
    #[must_use]
    pub fn new(number: u32, player_text: &str, reply_text: &str) -> Self {
        Self {
            number,
            first_number: number,
            print: TurnPrint::new(player_text, reply_text),
            reply_text: Some(reply_text.into()),
            is_silent: SILENT_REPLIES.contains(&reply_text.trim()),
        }
    }

    /// The words of the reply.
    #[must_use]
    pub const fn reply(&self) -> TextPrint {
        self.print.reply
    }

    /// Drops the text of the reply. A beginning of the reply then counts as another reply.
    pub fn forget_text(&mut self) {
        self.reply_text = None;
    }

    /// True if the reply has no word. Chat programs do not show such a turn.
    pub(super) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// The number of the turn before; 0: none.
    pub(super) const fn number_before(&self) -> u32 {
        self.first_number.saturating_sub(1)
    }

    /// True if `shown`, the first turn of a transcript, is the end of this turn. The line of the turn may have been cut away, or
    /// the first of its joined messages.
    pub(super) fn is_shown_first_as(&self, shown: &TurnPrint) -> bool {
        let line = self.print.player;
        let line_is_cut = shown.player.is_empty() || self.number > 1 && shown.player.words < line.words;
        (line_is_cut || line == shown.player) && self.print.reply == shown.reply
    }

    /// Returns how many Unicode scalar values of the reply a chat program shows, if it shows only the beginning.
    pub(super) fn heard_chars(&self, shown: &TranscriptTurn) -> Option<usize> {
        let shown = shown.reply_text.trim_end();
        let rest = self.reply_text.as_ref()?.strip_prefix(shown)?;
        (!shown.trim().is_empty() && !rest.trim().is_empty()).then(|| shown.chars().count())
    }

    /// Returns what the player says after this turn, if the turn has no word of the NPC and `lines` begins with its line.
    pub(super) fn line_after_silence<'a>(&self, lines: &'a str) -> Option<&'a str> {
        let line = self.print.player;
        if !self.is_silent || line.is_empty() {
            return None;
        }
        let mut breaks = lines.match_indices(LINE_BREAK);
        breaks.find_map(|(at, _)| {
            let next = lines[at..].trim();
            (TextPrint::of_text(&lines[..at]) == line && !next.is_empty()).then_some(next)
        })
    }
}

/// Joins each turn without a word of the NPC with the turn after it, as chat programs do. The last turn stays.
pub(super) fn join_silent_turns(stored: &[StoredTurn]) -> Cow<'_, [StoredTurn]> {
    if !stored.iter().any(|turn| turn.is_silent) {
        return Cow::Borrowed(stored);
    }
    let mut joined: Vec<StoredTurn> = Vec::with_capacity(stored.len());
    for turn in stored {
        let mut turn = turn.clone();
        if let Some(silent) = joined.pop_if(|last| last.is_silent) {
            turn.first_number = silent.first_number;
            turn.print.player = silent.print.player.followed_by(turn.print.player);
        }
        joined.push(turn);
    }
    Cow::Owned(joined)
}
