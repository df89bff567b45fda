//! A response under way: a turn, or an answer beside the conversation.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::{
    super::{prepared_talk::PreparedTalk, stream::CutOnDrop},
    errors::RealtimeError,
    items::Item,
    server_events::{ItemView, PartPlace, ResponseStatus, ResponseView, StatusDetails, UsageView},
    settings::cap_to_json,
};
use crate::{awaited_turn::completed_turn, errors::Problem, socket::player_socket::SentCounts};
use colloquy_dialogue::{
    aside::AsideAnswer,
    heard::HeardLength,
    turn::{ChatRequest, TurnError},
};
use colloquy_memory::turn::{Turn, Usage};

/// What stays the same while a response is made.
#[derive(Debug)]
pub struct ResponseHead {
    pub id: String,
    pub item_id: String,
    /// The id of the session. `None`: the response is no turn.
    pub conversation: Option<String>,
    pub metadata: Option<Map<String, Value>>,
    pub max_output_tokens: Option<u32>,
}

impl ResponseHead {
    /// The place of the words.
    pub fn place(&self) -> PartPlace<'_> {
        PartPlace {
            response_id: &self.id,
            item_id: &self.item_id,
            output_index: 0,
            content_index: 0,
        }
    }

    /// The response with a status.
    pub fn view<'a>(
        &'a self,
        status: ResponseStatus,
        item: Option<&'a Item>,
        usage: Option<Usage>,
        error: Option<&'a RealtimeError>,
    ) -> ResponseView<'a> {
        ResponseView {
            id: &self.id,
            object: "realtime.response",
            status,
            status_details: StatusDetails::new(status, error),
            output: item.into_iter().map(ItemView::new).collect(),
            conversation_id: self.conversation.as_deref(),
            output_modalities: ["text"],
            max_output_tokens: cap_to_json(self.max_output_tokens),
            metadata: self.metadata.as_ref(),
            usage: usage.map(UsageView::from),
        }
    }
}

/// A response under way.
pub enum ActiveResponse {
    Turn(Box<TurnResponse>),
    Aside(AsideResponse),
}

impl ActiveResponse {
    pub fn head(&self) -> &ResponseHead {
        match self {
            Self::Turn(turn) => &turn.head,
            Self::Aside(aside) => &aside.head,
        }
    }

    /// Waits for the end of the response.
    pub async fn ended(&mut self) -> ResponseEnd {
        match self {
            Self::Turn(turn) => ResponseEnd::Turn(completed_turn((&mut turn.turn_receiver).await)),
            Self::Aside(aside) => ResponseEnd::Aside(aside.answer.as_mut().await),
        }
    }
}

/// How a response ended.
pub enum ResponseEnd {
    Turn(Result<Arc<Turn>, Problem>),
    Aside(Result<AsideAnswer, TurnError>),
}

/// A response that becomes a turn.
pub struct TurnResponse {
    pub head: ResponseHead,
    pub talk: PreparedTalk,
    pub chat: Arc<ChatRequest>,
    /// Cuts the reply if the connection ends before the reply.
    pub guard: CutOnDrop,
    /// The length of the words that the client has, for `guard`, in Unicode scalar values.
    pub sent_chars: Arc<AtomicUsize>,
    pub turn_receiver: oneshot::Receiver<Result<Arc<Turn>, Arc<TurnError>>>,
    /// The mark of the turn's events.
    pub mark: Arc<str>,
    /// The number of the turn, once the turn has begun.
    pub number: Option<u32>,
    /// The words that were sent.
    pub text: String,
    /// The ids of the answered lines.
    pub lines: Vec<String>,
    /// A cut that waits for the turn to begin.
    pub pending_cut: Option<PendingCut>,
    /// True if the client has cut the reply.
    pub is_cut: bool,
}

/// A cut of a reply that has not begun.
#[derive(Debug)]
pub struct PendingCut {
    /// How much was heard; `None`: all that was sent.
    pub heard_length: Option<HeardLength>,
    /// True if the client gets `conversation.item.truncated`.
    pub is_truncation: bool,
    /// The `event_id` of the client's event.
    pub event_id: Option<String>,
}

impl TurnResponse {
    /// Returns how much of the sent words was heard, in Unicode scalar values.
    pub fn heard_of_sent(&self, heard_length: Option<HeardLength>) -> usize {
        let sent_chars = self.text.chars().count();
        heard_length.map_or(sent_chars, |length| length.to_scalar_count(&self.text).min(sent_chars))
    }
}

/// A response beside the conversation.
pub struct AsideResponse {
    pub head: ResponseHead,
    pub answer: Pin<Box<dyn Future<Output = Result<AsideAnswer, TurnError>>>>,
}

/// The words of the last reply on their way to the client.
#[derive(Debug, Default)]
pub struct SentWords {
    /// The number of the last turn whose reply was sent here.
    pub turn: Option<u32>,
    /// For each queued event with words: its number among the connection's messages, and the length of the reply up to
    /// its end, in Unicode scalar values.
    marks: VecDeque<(u64, usize)>,
    /// The length of the words that were given to the network.
    taken_chars: usize,
}

impl SentWords {
    /// Notes that the last queued event ends `chars` characters into the reply.
    pub fn note(&mut self, counts: SentCounts, chars: usize) {
        self.update(counts);
        self.marks.push_back((counts.queued_count, chars));
        self.update(counts);
    }

    fn update(&mut self, counts: SentCounts) {
        while let Some((_, chars)) = self.marks.pop_front_if(|(number, _)| *number <= counts.taken_count) {
            self.taken_chars = chars;
        }
    }

    /// Returns the length of the words that were given to the network, if others were not.
    pub fn unsent_after(&mut self, counts: SentCounts) -> Option<usize> {
        self.update(counts);
        (!self.marks.is_empty()).then_some(self.taken_chars)
    }

    /// Returns the length of the words that were given to the network.
    pub fn taken_chars(&mut self, counts: SentCounts) -> usize {
        self.update(counts);
        self.taken_chars
    }
}

/// Stores a length for a cut on another thread.
pub fn store_chars(sent_chars: &AtomicUsize, chars: usize) {
    sent_chars.store(chars, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_as_heard_once_the_network_has_them() {
        let counts = |queued_count, taken_count| SentCounts {
            queued_count,
            taken_count,
        };
        let mut words = SentWords::default();
        words.note(counts(5, 4), 10);
        words.note(counts(6, 4), 25);
        assert_eq!(words.unsent_after(counts(6, 4)), Some(0));
        assert_eq!(words.unsent_after(counts(7, 5)), Some(10));
        assert_eq!(words.taken_chars(counts(7, 6)), 25);
        assert_eq!(words.unsent_after(counts(7, 7)), None);
    }
}
