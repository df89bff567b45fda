//! Texts as they are compared: by their characters without white space, as hashes.

use std::{
    borrow::Cow,
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use super::TranscriptTurn;
use crate::joined_lines::without_own_name;

/// What chat programs show for a reply without a word. A reply that is only this is not in a [`super::Transcript`]: the
/// lines before and after it are joined.
pub const SILENT_REPLIES: [&str; 2] = ["...", "\u{2026}"];
/// Between joined lines.
const LINE_BREAK: &str = "\n\n";
/// The base of the polynomials. Each process draws its own, so that nobody can write a text with the hash of another
/// text.
static BASE: LazyLock<u64> = LazyLock::new(|| 2 + RandomState::new().hash_one(()) % (TextPrint::MODULUS - 2));

/// The characters of a text without white space.
fn visible_chars(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|character| !character.is_whitespace())
}

/// A text without regard to white space: chat programs trim lines and join them, and the two parts of a reply that goes on
/// stand with or without a space between.
///
/// The print of a text is another one in each process: prints are never stored and never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextPrint {
    /// A polynomial of the characters.
    hash: u64,
    /// The number of Unicode scalar values.
    pub(super) chars: u32,
}

impl TextPrint {
    const EMPTY: Self = Self { hash: 0, chars: 0 };
    /// The prime 2^61 - 1.
    const MODULUS: u64 = (1 << 61) - 1;

    /// The characters of `text` as a hash.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let base = *BASE;
        visible_chars(text).fold(Self::EMPTY, |before, character| Self {
            hash: (multiply(before.hash, base) + u64::from(character)) % Self::MODULUS,
            chars: before.chars.saturating_add(1),
        })
    }

    /// A player's line, without the player's name before. The first request of a talk does not tell whether lines have names.
    pub(super) fn of_line(line: &str) -> Self {
        match without_own_name(line) {
            Some(words) => Self::of_text(&words),
            None => Self::of_text(line),
        }
    }

    pub(super) const fn is_empty(self) -> bool {
        self.chars == 0
    }

    /// Two texts, one after the other.
    pub(super) fn followed_by(self, next: Self) -> Self {
        let mut shift = 1;
        let mut square = *BASE;
        let mut exponent = next.chars;
        while exponent > 0 {
            if exponent & 1 == 1 {
                shift = multiply(shift, square);
            }
            square = multiply(square, square);
            exponent >>= 1;
        }
        Self {
            hash: (multiply(self.hash, shift) + next.hash) % Self::MODULUS,
            chars: self.chars.saturating_add(next.chars),
        }
    }
}

/// Multiplies modulo [`TextPrint::MODULUS`]. The factors have at most 61 bits.
fn multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let modulus = u128::from(TextPrint::MODULUS);
    // 2^61 is 1 modulo this prime.
    let folded = (product & modulus) + (product >> 61);
    u64::try_from(folded).unwrap_or(0) % TextPrint::MODULUS
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
            player: TextPrint::of_line(player_text),
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
    /// `None`: only the hash is known.
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

    /// Drops the text of the reply. A beginning of the reply then counts as another reply.
    pub fn forget_text(&mut self) {
        self.reply_text = None;
    }

    /// True if the reply has no word. Chat programs do not show such a turn.
    pub(super) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// True if the player has said a line.
    pub(super) const fn has_line(&self) -> bool {
        !self.print.player.is_empty()
    }

    /// The number of the turn before; 0: none.
    pub(super) const fn number_before(&self) -> u32 {
        self.first_number.saturating_sub(1)
    }

    /// True if `shown_print`, the first turn of a transcript, is the end of this turn. The line of the turn may have
    /// been cut away, or the first of its joined messages.
    pub(super) fn is_shown_first_as(&self, shown_print: &TurnPrint) -> bool {
        let line = self.print.player;
        let line_is_cut = shown_print.player.is_empty() || self.number > 1 && shown_print.player.chars < line.chars;
        (line_is_cut || line == shown_print.player) && self.print.reply == shown_print.reply
    }

    /// Returns how many Unicode scalar values of the reply a chat program shows, if it shows only the beginning.
    pub(super) fn heard_chars(&self, shown_turn: &TranscriptTurn) -> Option<usize> {
        let stored = self.reply_text.as_ref()?.chars().enumerate();
        let mut stored = stored.filter(|(_, character)| !character.is_whitespace());
        let mut heard_count = 0;
        for shown_char in visible_chars(&shown_turn.reply_text) {
            heard_count = stored.next().filter(|(_, stored_char)| *stored_char == shown_char)?.0 + 1;
        }
        (heard_count > 0 && stored.next().is_some()).then_some(heard_count)
    }

    /// Returns what the player says after this turn, if the turn has no word of the NPC and `lines` begins with its line.
    pub(super) fn line_after_silence<'a>(&self, lines: &'a str) -> Option<&'a str> {
        let line = self.print.player;
        if !self.is_silent || line.is_empty() {
            return None;
        }
        let mut breaks = lines.match_indices(LINE_BREAK);
        breaks.find_map(|(index, _)| {
            let next = lines[index..].trim();
            (TextPrint::of_line(&lines[..index]) == line && !next.is_empty()).then_some(next)
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
