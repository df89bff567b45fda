//! The client's events about items: new, deleted, retrieved and truncated items.

use super::{
    super::settings::IMPORTED_TURNS_PER_LINE,
    client_events::HeardPosition,
    connection::Connection,
    errors::RealtimeError,
    items::{Item, ItemPlace, ItemRole, ItemStatus, PlaceError},
    response::{ActiveResponse, PendingCut},
    server_events::{EventBody, ItemView},
};
use crate::errors::{Code, Problem};
use colloquy_actors::{DialogueError, HeardLength, InterruptCommand, InterruptOutcome};
use colloquy_memory::chat_transcript::TranscriptTurn;

impl Connection {
    pub async fn create_item(&mut self, previous: Option<&str>, item: Item) -> Result<(), RealtimeError> {
        self.items.check_new(&item.id).map_err(to_error)?;
        let position = self.items.position_after(previous).map_err(to_error)?;
        let loose_bytes: usize = self.items.loose_items().map(|item| item.text.len()).sum();
        if loose_bytes + item.text.len() > self.state.chat.max_event_bytes {
            return Err(to_error(PlaceError::Full));
        }
        let id = item.id.clone();
        match item.role {
            ItemRole::System => self.items.insert(position, item),
            ItemRole::User => {
                self.items.insert(position, item);
                let (line, _) = self.items.waiting_line_before(usize::MAX);
                if let Err(error) = self.state.sessions.check_line(&line) {
                    self.items.remove(&id);
                    return Err(Problem::from(error).with_param("item.content").into());
                }
            }
            ItemRole::Assistant => self.store_reply(position, item).await?,
        }
        self.announce_item(&id);
        Ok(())
    }

    /// Stores a reply that was said elsewhere, with the waiting lines before it, as a turn.
    async fn store_reply(&mut self, position: usize, mut item: Item) -> Result<(), RealtimeError> {
        if self.response.is_some() {
            let problem = Problem::new(Code::TurnInProgress, "wait for the response, or cancel it");
            return Err(problem.into());
        }
        let talk = self.session().await?;
        let (line, lines) = self.items.waiting_line_before(position);
        let reply = item.text.trim_end();
        if (self.imported_turns + 1).is_multiple_of(IMPORTED_TURNS_PER_LINE) {
            self.caller.count_turn(&self.state, talk.player())?;
        }
        let turn = TranscriptTurn {
            player_text: line,
            reply_text: reply.to_owned(),
        };
        let stored_turn = talk.store_turn(&self.state, &self.caller, turn).await;
        let stored_turn = stored_turn.map_err(|problem| match problem.param.as_deref() {
            Some("messages") => problem.with_param("item.content"),
            _ => problem,
        })?;
        self.imported_turns = self.imported_turns.wrapping_add(1);
        let place = ItemPlace::Turn(stored_turn.number);
        self.items.move_to(&lines, place);
        item.text.clone_from(&stored_turn.reply_text);
        item.place = place;
        self.items.insert(position, item);
        Ok(())
    }

    pub async fn retrieve_item(&mut self, id: &str) -> Result<(), RealtimeError> {
        if let Some(item) = self.items.find(id) {
            self.send(&EventBody::ItemRetrieved {
                item: ItemView::new(item),
            });
            return Ok(());
        }
        let item = self.load_earlier_item(id).await?;
        let item = item.ok_or_else(|| RealtimeError::no_such_item("item_retrieve_invalid_item_id", id))?;
        self.send(&EventBody::ItemRetrieved {
            item: ItemView::new(&item),
        });
        Ok(())
    }

    /// Reads an item of a turn before the connection.
    async fn load_earlier_item(&self, id: &str) -> Result<Option<Item>, RealtimeError> {
        let Some(talk) = &self.talk else { return Ok(None) };
        let loaded = talk.load_item(&self.state, &self.caller.principal, id).await?;
        // A turn of this connection has its own items, and those that were taken back are gone.
        Ok(loaded.map(|(_, item)| item).filter(|item| match item.place {
            ItemPlace::Turn(number) => !self.items.has_turn(number),
            _ => false,
        }))
    }

    /// Returns an item, also of a turn before the connection.
    async fn find_item(&self, code: &'static str, id: &str) -> Result<Item, RealtimeError> {
        let item = match self.items.find(id) {
            Some(item) => Some(item.clone()),
            None => self.load_earlier_item(id).await?,
        };
        item.ok_or_else(|| RealtimeError::no_such_item(code, id))
    }

    pub async fn delete_item(&mut self, id: &str) -> Result<(), RealtimeError> {
        let item = self.find_item("item_delete_invalid_item_id", id).await?;
        match item.place {
            ItemPlace::Loose => {
                self.items.remove(id);
            }
            ItemPlace::Running => {
                let problem = Problem::new(
                    Code::TurnInProgress,
                    "the item belongs to the response: cancel that first",
                );
                return Err(problem.with_param("item_id").into());
            }
            ItemPlace::Turn(number) => self.take_turn_back(number, &item).await?,
        }
        self.send(&EventBody::ItemDeleted { item_id: id });
        Ok(())
    }

    /// Takes back the last turn, one of whose items the client deletes. Its other lines wait again.
    async fn take_turn_back(&mut self, number: u32, item: &Item) -> Result<(), RealtimeError> {
        if self.response.is_some() {
            let problem = Problem::new(Code::TurnInProgress, "a response is under way: cancel that first");
            return Err(problem.into());
        }
        let talk = self.session().await?;
        self.caller.count_cut(&self.state, talk.player())?;
        let command = InterruptCommand {
            turn: Some(number.saturating_sub(1)),
            heard_length: None,
            key: None,
            if_head: Some(number),
            who: self.caller.principal.clone(),
        };
        let sessions = &self.state.sessions;
        let taken_back = sessions
            .rewind_dialogue(&self.caller.scope, talk.session, command)
            .await;
        match taken_back {
            Ok(_) => {}
            Err(DialogueError::StaleHead { .. }) => {
                let detail =
                    "belongs to a turn that others follow: delete those first, the last one first, or truncate";
                return Err(RealtimeError::field("item_id", detail));
            }
            Err(error) => return Err(error.into()),
        }
        let reply = self.items.release_turn(number);
        if let Some(reply) = reply.filter(|_| item.role != ItemRole::Assistant) {
            // The reply answered the line.
            self.items.remove(&reply);
            self.send(&EventBody::ItemDeleted { item_id: &reply });
        }
        self.items.remove(&item.id);
        self.remove_items_after(number.saturating_sub(1));
        self.take_session_events().await;
        Ok(())
    }

    pub async fn truncate_item(
        &mut self,
        id: &str,
        heard_position: HeardPosition,
        event_id: Option<String>,
    ) -> Result<(), RealtimeError> {
        let code = "item_truncate_invalid_item_id";
        let item = self.find_item(code, id).await?;
        if item.role != ItemRole::Assistant {
            let message = "Only assistant message items can be truncated";
            return Err(RealtimeError::invalid(code, Some("item_id"), message));
        }
        match item.place {
            // Nothing of the reply was heard.
            ItemPlace::Loose => self.send_truncated(id, None),
            ItemPlace::Running => {
                let heard_length = Some(self.to_heard_length(heard_position));
                let Some(ActiveResponse::Turn(response)) = &mut self.response else {
                    return Err(RealtimeError::no_such_item(code, id));
                };
                if response.number.is_some() {
                    return self.cut_reply(heard_length, true).await;
                }
                response.pending_cut = Some(PendingCut {
                    heard_length,
                    is_truncation: true,
                    event_id,
                });
            }
            ItemPlace::Turn(number) => self.truncate_turn(number, item, heard_position).await?,
        }
        Ok(())
    }

    /// Ends the reply of a turn where the client has heard it. Later turns are taken back.
    async fn truncate_turn(
        &mut self,
        number: u32,
        item: Item,
        heard_position: HeardPosition,
    ) -> Result<(), RealtimeError> {
        let item_chars = item.text.chars().count();
        let chars = self.to_heard_length(heard_position).to_scalar_count(&item.text);
        let audio_ms = match heard_position {
            HeardPosition::AudioMs(ms) if chars < item_chars => Some(ms),
            _ => None,
        };
        let id = item.id.clone();
        if self.items.find(&id).is_none() {
            // The item of a turn before the connection is listed from here on.
            self.items.push_first(item);
        }
        if chars >= item_chars {
            self.send_truncated(&id, None);
            return Ok(());
        }
        let talk = self.session().await?;
        self.caller.count_cut(&self.state, talk.player())?;
        let command = InterruptCommand {
            turn: Some(number),
            heard_length: Some(HeardLength::Chars(chars)),
            key: None,
            if_head: None,
            who: self.caller.principal.clone(),
        };
        let sessions = &self.state.sessions;
        let outcome = sessions
            .interrupt_dialogue(&self.caller.scope, talk.session, command)
            .await?;
        if let InterruptOutcome::Rewound(rewound) = outcome {
            if rewound.head_turn < number {
                self.items.release_turn(number);
                if let Some(reply) = self.items.find_mut(&id) {
                    reply.text.clear();
                    reply.status = ItemStatus::Incomplete;
                }
            } else {
                self.shorten_reply(number, rewound.heard_chars.unwrap_or(chars));
            }
            self.remove_items_after(number);
        }
        self.send_truncated(&id, audio_ms);
        self.take_session_events().await;
        Ok(())
    }

    /// Returns a position in the units of replies.
    fn to_heard_length(&self, heard_position: HeardPosition) -> HeardLength {
        match heard_position {
            HeardPosition::Chars(chars) => HeardLength::Chars(chars),
            HeardPosition::Utf16(units) => HeardLength::Utf16(units),
            HeardPosition::AudioMs(ms) => {
                let speed = u64::from(self.state.chat.spoken_chars_per_s);
                let chars = ms.saturating_mul(speed) / 1_000;
                HeardLength::Chars(usize::try_from(chars).unwrap_or(usize::MAX))
            }
        }
    }
}

fn to_error(error: PlaceError) -> RealtimeError {
    match error {
        PlaceError::UnknownPrevious => RealtimeError::field("previous_item_id", "names no item of this conversation"),
        PlaceError::TurnsFollow => {
            let detail = "is followed by turns: an item can be added after the last turn";
            RealtimeError::field("previous_item_id", detail)
        }
        PlaceError::IdTaken => RealtimeError::field("item.id", "is the id of another item"),
        PlaceError::Full => {
            let detail = "is one too many: delete items that no response has answered, or ask for a response";
            RealtimeError::field("item", detail)
        }
    }
}
