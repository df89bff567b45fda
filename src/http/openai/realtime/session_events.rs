//! What happens in the session: the reply under way, and what others do in the same session meanwhile.

use super::{
    connection::Connection,
    items::{Item, ItemRole, ItemStatus},
    response::ActiveResponse,
    server_events::{EventBody, ItemView},
};
use crate::{
    errors::{Code, Problem},
    socket::player_socket::close_code,
};
use colloquy_actors::{PublishedEvent, VisibleEvent};
use colloquy_dialogue::events::{DialogueRewound, EventBody as SessionEvent};
use colloquy_memory::turn::Turn;

impl Connection {
    /// Handles an event and all that have come since. Words that follow each other are sent as one event.
    pub async fn on_session_events(&mut self, first_event: VisibleEvent) {
        let mut next_event = Some(first_event);
        let mut words = String::new();
        while let Some(event) = next_event {
            if let Some(new_words) = self.words_of_reply(&event) {
                words.push_str(&new_words);
            } else {
                self.send_delta(&std::mem::take(&mut words));
                self.on_session_event(&event).await;
            }
            next_event = self.events.as_mut().and_then(|events| events.events.try_recv().ok());
        }
        self.send_delta(&words);
    }

    /// Handles the events that have come.
    pub async fn take_session_events(&mut self) {
        let next_event = self.events.as_mut().and_then(|events| events.events.try_recv().ok());
        if let Some(event) = next_event {
            self.on_session_events(event).await;
        }
    }

    /// Returns the new words of the reply under way, if the event has them.
    fn words_of_reply(&mut self, event: &PublishedEvent) -> Option<String> {
        let (turn, offset, text) = event.body.as_delta()?;
        let Some(ActiveResponse::Turn(response)) = &mut self.response else {
            return None;
        };
        if response.number != Some(turn) || response.is_cut {
            return None;
        }
        let known_chars = response.text.chars().count().saturating_sub(offset);
        let new_words: String = text.chars().skip(known_chars).collect();
        response.text.push_str(&new_words);
        Some(new_words)
    }

    /// Sends new words of the reply under way, which has them already.
    pub fn send_delta(&mut self, words: &str) {
        let Some(ActiveResponse::Turn(response)) = &self.response else {
            return;
        };
        if words.is_empty() {
            return;
        }
        let chars = response.text.chars().count();
        let message = EventBody::TextDelta {
            place: response.head.place(),
            delta: words,
        }
        .to_message();
        self.send_words(message, chars);
    }

    async fn on_session_event(&mut self, event: &PublishedEvent) {
        match &event.body {
            SessionEvent::TurnStarted { turn } => self.on_turn_started(*turn, event.re.as_deref()).await,
            SessionEvent::TurnCommitted { turn, .. } if !self.is_own_turn(*turn) && !self.items.has_turn(*turn) => {
                self.add_turn_of_others(*turn).await;
            }
            SessionEvent::DialogueRewound(rewound) => self.on_rewound(rewound).await,
            SessionEvent::SessionClosed { .. } if event.body.has_moved() => {
                let problem = Problem::new(
                    Code::WrongNode,
                    "the session moved to another node; connect again and name the session",
                );
                self.close(&problem, close_code::DRAINING, "the session moved to another node");
            }
            SessionEvent::SessionClosed { reason } => {
                let problem = Problem::new(Code::SessionClosed, format!("the session has ended: {reason}"));
                self.send_error(&problem.into(), None);
            }
            _ => {}
        }
    }

    /// True for the number of the reply under way.
    fn is_own_turn(&self, number: u32) -> bool {
        matches!(&self.response, Some(ActiveResponse::Turn(response)) if response.number == Some(number))
    }

    async fn on_turn_started(&mut self, turn: u32, re: Option<&str>) {
        let Some(ActiveResponse::Turn(response)) = &mut self.response else {
            return;
        };
        if re != Some(&*response.mark) {
            return;
        }
        response.number = Some(turn);
        response.guard.set_number(turn);
        if let Some(pending_cut) = response.pending_cut.take()
            && let Err(error) = self
                .cut_reply(pending_cut.heard_length, pending_cut.is_truncation)
                .await
        {
            self.send_error(&error, pending_cut.event_id.as_deref());
        }
    }

    /// Adds the items of a turn that was said elsewhere.
    async fn add_turn_of_others(&mut self, number: u32) {
        for turn in self.load_turn(number).await {
            let items = [Item::line_of(&turn), Some(Item::reply_of(&turn))];
            for item in items.into_iter().flatten() {
                if self.items.check_new(&item.id).is_ok() {
                    let id = item.id.clone();
                    self.items.push(item);
                    self.announce_item(&id);
                }
            }
        }
    }

    async fn load_turn(&self, number: u32) -> Vec<Turn> {
        let Some(talk) = &self.talk else {
            return Vec::new();
        };
        let loaded = talk.load_turns(&self.state, &self.caller.principal, number).await;
        loaded.unwrap_or_else(|problem| {
            tracing::warn!(session = %talk.session, %problem, "a turn of another client could not be read");
            Vec::new()
        })
    }

    /// Sends the events of an item that is whole when it is added.
    pub fn announce_item(&self, id: &str) {
        let Some(item) = self.items.find(id) else { return };
        let previous_item_id = self.items.previous_of(id);
        self.send(&EventBody::ItemAdded {
            previous_item_id,
            item: ItemView::new(item),
        });
        self.send(&EventBody::ItemDone {
            previous_item_id,
            item: ItemView::new(item),
        });
    }

    /// Makes the items those of the session after a rewind. A rewind that this connection has asked for changes nothing
    /// more here.
    async fn on_rewound(&mut self, rewound: &DialogueRewound) {
        self.remove_items_after(rewound.turn);
        if self.items.reply_of_turn(rewound.turn).is_none() {
            for number in &rewound.reinstated_turns {
                if !self.items.has_turn(*number) {
                    self.add_turn_of_others(*number).await;
                }
            }
            return;
        }
        let turns = self.load_turn(rewound.turn).await;
        let Some(turn) = turns.first() else { return };
        let stored_chars = turn.reply_text.chars().count();
        let Some(item) = self.items.reply_of_turn(rewound.turn) else {
            return;
        };
        let listed_chars = item.text.chars().count();
        item.text.clone_from(&turn.reply_text);
        item.status = super::items::status_of(turn);
        let id = item.id.clone();
        if stored_chars < listed_chars {
            self.send_truncated(&id, None);
        } else if stored_chars > listed_chars {
            // A reply that was resumed has more words.
            let Some(item) = self.items.find(&id) else { return };
            self.send(&EventBody::ItemDone {
                previous_item_id: self.items.previous_of(&id),
                item: ItemView::new(item),
            });
        }
    }

    /// Removes the items of turns after `head`, which were taken back.
    pub fn remove_items_after(&mut self, head: u32) {
        for id in self.items.remove_after(head) {
            self.send(&EventBody::ItemDeleted { item_id: &id });
        }
        if self.sent_words.turn.is_some_and(|turn| turn > head) {
            self.sent_words.turn = None;
        }
    }

    /// Tells where the text of an item ends. `audio_end_ms` is the position in the client's words, if it is not beyond
    /// the end.
    pub fn send_truncated(&self, id: &str, audio_end_ms: Option<u64>) {
        let Some(item) = self.items.find(id) else { return };
        let heard_chars = item.text.chars().count();
        let speed = u64::from(self.state.chat.spoken_chars_per_s.max(1));
        let whole_ms = (heard_chars as u64).saturating_mul(1_000).div_ceil(speed);
        self.send(&EventBody::ItemTruncated {
            item_id: id,
            content_index: 0,
            audio_end_ms: audio_end_ms.unwrap_or(whole_ms),
            heard_chars,
        });
    }

    /// The instructions and the notes of the client, which hold for each response.
    pub fn notes_of_session(&self) -> Vec<String> {
        let notes = self.items.loose_items().filter(|item| item.role == ItemRole::System);
        let instructions = Some(self.settings.instructions.clone()).filter(|text| !text.trim().is_empty());
        instructions
            .into_iter()
            .chain(notes.map(|item| item.text.clone()))
            .collect()
    }

    /// Cuts the text of the reply of a turn.
    pub fn shorten_reply(&mut self, number: u32, heard_chars: usize) {
        if let Some(item) = self.items.reply_of_turn(number) {
            item.text = item.text.chars().take(heard_chars).collect();
            item.status = ItemStatus::Incomplete;
        }
    }
}
