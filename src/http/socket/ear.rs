//! A socket's ear in one dialogue: passes events on, and remembers where the running reply has
//! characters that count twice in UTF-16.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;

use super::messages::Include;
use crate::{
    actors::{Listener, ListenerGone, Published, player_socket::Connection},
    dialogue::events::{DialogueEvent, EventBody},
};

/// Listens to one dialogue for one socket.
pub struct Ear {
    connection: Arc<Connection>,
    memory: bool,
    state: bool,
    running: Mutex<Wide>,
    /// Another ear of the same socket hears in this one's place.
    replaced: AtomicBool,
    replaces: Mutex<Option<Arc<Self>>>,
}

/// Where the running reply has characters outside the basic plane, in Unicode scalar values.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wide {
    turn: u32,
    at: Vec<usize>,
}

impl Ear {
    pub fn new(connection: Arc<Connection>, include: &[Include]) -> Self {
        Self {
            connection,
            memory: include.contains(&Include::Memory),
            state: include.contains(&Include::State),
            running: Mutex::default(),
            replaced: AtomicBool::new(false),
            replaces: Mutex::default(),
        }
    }
    /// Once it is attached, `before` hears nothing more.
    pub fn in_place_of(before: Option<Arc<Self>>, connection: Arc<Connection>, include: &[Include]) -> Self {
        let running = before
            .as_ref()
            .map(|ear| ear.running.lock().clone())
            .unwrap_or_default();
        Self {
            replaces: Mutex::new(before),
            running: Mutex::new(running),
            ..Self::new(connection, include)
        }
    }
    /// A count of UTF-16 units of the reply that was heard last in Unicode scalar values; `None` if
    /// that was not the reply of `turn`.
    pub fn scalars(&self, turn: Option<u32>, utf16: usize) -> Option<usize> {
        let running = self.running.lock();
        let heard = turn.is_none_or(|turn| turn == running.turn);
        heard.then(|| running.scalars(utf16))
    }
}

impl Listener for Ear {
    fn seated(&self) {
        if let Some(before) = self.replaces.lock().take() {
            before.replaced.store(true, Relaxed);
        }
    }
    fn deliver(&self, event: &Arc<Published>) -> Result<(), ListenerGone> {
        if self.replaced.load(Relaxed) {
            return Err(ListenerGone);
        }
        match &event.body {
            EventBody::ReplyDelta { turn, offset, text, .. } | EventBody::NpcTurnDelta { turn, offset, text, .. } => {
                self.running.lock().note(*turn, *offset, text)
            }
            EventBody::TurnStarted { .. } | EventBody::NpcTurnStarted { .. } => *self.running.lock() = Wide::default(),
            EventBody::DialogueRewound(rewound) if !rewound.quoted_in.is_empty() && !self.sees_optional() => {
                let body = EventBody::DialogueRewound(rewound.clone().for_players());
                return self.connection.deliver(&Published::new(DialogueEvent {
                    dialogue_id: event.dialogue_id,
                    seq: event.seq,
                    re: event.re.clone(),
                    body,
                }));
            }
            EventBody::MemoryUpdated { .. } if !self.memory => return Ok(()),
            EventBody::StateChanged { .. } if !self.state => return Ok(()),
            _ => {}
        }
        self.connection.deliver(event)
    }
    fn sees_optional(&self) -> bool {
        self.memory || self.state
    }
    fn is_gone(&self) -> bool {
        self.replaced.load(Relaxed) || self.connection.is_gone()
    }
}

impl Wide {
    /// Takes in a piece of a reply.
    fn note(&mut self, turn: u32, offset: usize, text: &str) {
        // A turn that was not committed leaves its number to the next one.
        if turn != self.turn || offset == 0 {
            self.turn = turn;
            self.at.clear();
        }
        // Only four-byte sequences count twice; most texts have none.
        if text.bytes().any(|byte| byte >= 0xF0) {
            let wide = text.chars().enumerate().filter(|(_, c)| c.len_utf16() == 2);
            for (index, _) in wide {
                let place = offset + index;
                // Replayed deltas come twice.
                if self.at.last().is_none_or(|last| place > *last) {
                    self.at.push(place);
                }
            }
        }
    }
    /// A count that ends inside a pair is taken back to before it.
    fn scalars(&self, utf16: usize) -> usize {
        let mut extra = 0;
        for (index, place) in self.at.iter().enumerate() {
            let begin = place + index;
            if utf16 >= begin + 2 {
                extra += 1;
            } else if utf16 == begin + 1 {
                return *place;
            } else {
                break;
            }
        }
        utf16 - extra
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_turn_that_takes_a_lost_ones_number_counts_anew() {
        let mut wide = Wide::default();
        wide.note(1, 0, "😀😀");
        wide.note(1, 0, "ab");
        assert_eq!(wide.scalars(2), 2);
    }

    proptest! {
        #[test]
        fn utf16_counts_become_scalar_counts(text in "[a가😀🍇é]{0,40}", cuts in prop::collection::vec(1usize..7, 0..10)) {
            let mut wide = Wide::default();
            let chars: Vec<char> = text.chars().collect();
            let mut offset = 0usize;
            for cut in cuts.into_iter().chain(std::iter::once(usize::MAX)) {
                let end = offset.saturating_add(cut).min(chars.len());
                let piece: String = chars[offset..end].iter().collect();
                wide.note(1, offset, &piece);
                wide.note(1, offset, &piece);
                offset = end;
            }
            let mut units = 0;
            for (scalars, c) in chars.iter().enumerate() {
                prop_assert_eq!(wide.scalars(units), scalars);
                if c.len_utf16() == 2 {
                    prop_assert_eq!(wide.scalars(units + 1), scalars);
                }
                units += c.len_utf16();
            }
            prop_assert_eq!(wide.scalars(units), chars.len());
        }
    }
}
