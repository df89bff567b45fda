//! `response.create` and `response.cancel`: replies as turns, and answers beside the conversation.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    super::{
        responses::{ReplyEnding, response_id},
        stream::{CutOnDrop, new_mark},
        tool_calls::turn_finish_reason,
    },
    connection::Connection,
    errors::RealtimeError,
    items::{Item, ItemPlace, ItemRole, ItemStatus, reply_id},
    response::{
        ActiveResponse, AsideResponse, PendingCut, ResponseEnd, ResponseHead, SentWords, TurnResponse, store_chars,
    },
    server_events::{EventBody, ItemView, PartView, ResponseStatus},
    settings::{InputItem, ResponseSettings},
    talk::{Talk, TalkWords},
};
use crate::errors::{Code, Problem};
use colloquy_actors::{AcceptedLine, HeardLength, InterruptCommand, InterruptOutcome};
use colloquy_dialogue::{
    aside::{AsideAnswer, AsideRequest, answer_aside},
    turn::TurnError,
};
use colloquy_memory::turn::{Turn, Usage};
use colloquy_ports::{
    ledger::rewinds::RewindRecord,
    llm::{ChatMessage, ChatRole, ClientFields},
};

/// The code of a cancellation without a response. Clients know it and its message.
const NOT_ACTIVE: &str = "response_cancel_not_active";

impl Connection {
    /// Answers the waiting lines. Without a line, the NPC speaks by itself.
    pub async fn create_response(&mut self, settings: ResponseSettings) -> Result<(), RealtimeError> {
        if let Some(active) = &self.response {
            let message = format!(
                "Conversation already has an active response in progress: {}. Wait until the response is finished before \
                 creating a new one.",
                active.head().id
            );
            return Err(RealtimeError::invalid(
                "conversation_already_has_active_response",
                None,
                message,
            ));
        }
        let talk = self.session().await?;
        self.caller.count_turn(&self.state, talk.player())?;
        if settings.is_aside {
            return self.create_aside(&talk, settings).await;
        }
        self.begin_turn(&talk, settings).await
    }

    /// Asks for the turn of a response.
    async fn begin_turn(&mut self, talk: &Talk, settings: ResponseSettings) -> Result<(), RealtimeError> {
        let (talk_words, lines) = self.words_to_answer(settings.instructions.as_deref());
        let cap = self.output_cap(&settings);
        let mut prepared = talk.prepare_reply(&self.state, &self.caller, talk_words, cap).await?;
        let turn = self.new_turn_id();
        prepared.turn_id = Some(turn);
        let mark = new_mark();
        let running = prepared.begin_reply(true, Some(Arc::clone(&mark))).await?;
        let turn_receiver = match running.accepted {
            AcceptedLine::Turn { done: turn_receiver } => turn_receiver,
            AcceptedLine::Repeated(turn) => {
                let (sender, turn_receiver) = oneshot::channel();
                // The receiver is alive.
                let _ = sender.send(Ok(turn));
                turn_receiver
            }
        };
        let head = ResponseHead {
            id: response_id(turn),
            item_id: reply_id(turn),
            conversation: Some(talk.session.to_string()),
            metadata: settings.metadata,
            max_output_tokens: cap,
        };
        let sent_chars = Arc::default();
        self.sent_words = SentWords::default();
        self.items.move_to(&lines, ItemPlace::Running);
        self.items.push(Item {
            place: ItemPlace::Running,
            ..Item::begun(head.item_id.clone())
        });
        self.open_response(&head);
        self.response = Some(ActiveResponse::Turn(Box::new(TurnResponse {
            guard: CutOnDrop::new(&prepared, Arc::clone(&sent_chars)),
            talk: prepared,
            chat: running.chat,
            sent_chars,
            turn_receiver,
            mark,
            number: None,
            text: String::new(),
            lines,
            pending_cut: None,
            is_cut: false,
            head,
        })));
        Ok(())
    }

    fn output_cap(&self, settings: &ResponseSettings) -> Option<u32> {
        settings
            .max_output_tokens
            .map_or(self.settings.max_output_tokens, |cap| cap.0)
    }

    /// Returns the words around a reply, and the ids of the waiting lines.
    fn words_to_answer(&self, instructions: Option<&str>) -> (TalkWords, Vec<String>) {
        let (line, ids) = self.items.waiting_line_before(usize::MAX);
        let mut talk_words = TalkWords {
            line,
            ..TalkWords::default()
        };
        let instructions = instructions.unwrap_or(&self.settings.instructions);
        if !instructions.trim().is_empty() {
            talk_words.head.push(instructions.to_owned());
        }
        let mut is_before_line = !ids.is_empty();
        for item in self.items.loose_items() {
            match item.role {
                ItemRole::System if is_before_line || ids.is_empty() => talk_words.head.push(item.text.clone()),
                ItemRole::System => talk_words.last.push((item.role, item.text.clone())),
                ItemRole::User => {
                    is_before_line = false;
                    talk_words.last.push((item.role, item.text.clone()));
                }
                // Nothing was heard of this reply.
                ItemRole::Assistant => {}
            }
        }
        (talk_words, ids)
    }

    /// Sends the events before the first word.
    fn open_response(&self, head: &ResponseHead) {
        let place = head.place();
        self.send(&EventBody::ResponseCreated {
            response: head.view(ResponseStatus::InProgress, None, None, None),
        });
        let item = Item::begun(head.item_id.clone());
        self.send(&EventBody::OutputItemAdded {
            response_id: &head.id,
            output_index: 0,
            item: ItemView::new(&item),
        });
        if head.conversation.is_some() {
            self.send(&EventBody::ItemAdded {
                previous_item_id: self.items.previous_of(&head.item_id),
                item: ItemView::new(&item),
            });
        }
        self.send(&EventBody::ContentPartAdded {
            place,
            part: PartView::of_response(""),
        });
    }

    /// Sends the events after the last word, up to `response.output_item.done`.
    fn close_output(&self, head: &ResponseHead, item: &Item) {
        let place = head.place();
        self.send(&EventBody::TextDone {
            place,
            text: &item.text,
        });
        self.send(&EventBody::ContentPartDone {
            place,
            part: PartView::of_response(&item.text),
        });
        self.send(&EventBody::OutputItemDone {
            response_id: &head.id,
            output_index: 0,
            item: ItemView::new(item),
        });
    }

    pub fn on_response_ended(&mut self, end: ResponseEnd) {
        match end {
            ResponseEnd::Turn(result) => self.finish_turn(result, None, false),
            ResponseEnd::Aside(result) => self.finish_aside(result),
        }
    }

    /// Ends the response that is a turn. `rewound`: the whole reply was committed, and cut by this rewind. `keeps_item`:
    /// the client cuts the item, which stays without words if nothing was heard.
    fn finish_turn(&mut self, result: Result<Arc<Turn>, Problem>, rewound: Option<&RewindRecord>, keeps_item: bool) {
        if let Ok(turn) = &result {
            self.send_rest_of(turn);
        }
        let Some(ActiveResponse::Turn(response)) = self.response.take() else {
            return;
        };
        let turn_stands = |turn: &Arc<Turn>| rewound.is_none_or(|rewound| rewound.head_turn >= turn.number);
        match result {
            Ok(turn) if turn_stands(&turn) => {
                self.keep_turn(*response, &turn, rewound.and_then(|record| record.heard_chars));
            }
            Ok(_) => self.drop_turn(*response, None, keeps_item),
            Err(problem) => self.drop_turn(*response, Some(problem), keeps_item),
        }
    }

    /// Sends the words of a committed reply whose events are behind the commit.
    fn send_rest_of(&mut self, turn: &Turn) {
        let Some(ActiveResponse::Turn(response)) = &mut self.response else {
            return;
        };
        if response.is_cut {
            return;
        }
        let sent_chars = response.text.chars().count();
        let unsent_text: String = turn.reply_text.chars().skip(sent_chars).collect();
        response.text.push_str(&unsent_text);
        self.send_delta(&unsent_text);
    }

    /// Ends a response whose turn stands. `heard_chars`: the length of the reply, if a rewind has cut the reply.
    fn keep_turn(&mut self, response: TurnResponse, turn: &Turn, heard_chars: Option<usize>) {
        let TurnResponse {
            head,
            mut talk,
            chat,
            guard,
            lines,
            ..
        } = response;
        guard.disarm();
        let text: String = match heard_chars {
            Some(chars) => turn.reply_text.chars().take(chars).collect(),
            None => turn.reply_text.clone(),
        };
        let ending = ReplyEnding::new(turn_finish_reason(&chat, turn), turn.status);
        let (status, item_status) = match ending {
            ReplyEnding::Cut => (ResponseStatus::Cancelled, ItemStatus::Incomplete),
            _ if heard_chars.is_some() => (ResponseStatus::Cancelled, ItemStatus::Incomplete),
            ReplyEnding::AtLimit => (ResponseStatus::Incomplete, ItemStatus::Incomplete),
            ReplyEnding::Whole => (ResponseStatus::Completed, ItemStatus::Completed),
        };
        let place = ItemPlace::Turn(turn.number);
        self.items.move_to(&lines, place);
        let item = Item {
            status: item_status,
            place,
            ..Item::loose(head.item_id.clone(), ItemRole::Assistant, text)
        };
        if let Some(listed_item) = self.items.find_mut(&head.item_id) {
            listed_item.clone_from(&item);
        }
        self.sent_words.turn = Some(turn.number);
        if heard_chars.is_none() {
            talk.thread.record_turn(turn);
        }
        self.close_output(&head, &item);
        self.send(&EventBody::ItemDone {
            previous_item_id: self.items.previous_of(&head.item_id),
            item: ItemView::new(&item),
        });
        self.send(&EventBody::ResponseDone {
            response: head.view(status, Some(&item), Some(turn.usage.seen_by(talk.principal.role)), None),
        });
    }

    /// Ends a response whose turn does not stand: its lines wait again.
    fn drop_turn(&mut self, response: TurnResponse, problem: Option<Problem>, keeps_item: bool) {
        let TurnResponse {
            head,
            guard,
            text,
            lines,
            is_cut,
            ..
        } = response;
        guard.disarm();
        let is_taken_back = |problem: &Problem| matches!(problem.code, Code::TurnCut | Code::TurnUnsaid);
        let is_cancelled = is_cut || problem.as_ref().is_none_or(is_taken_back);
        self.items.move_to(&lines, ItemPlace::Loose);
        let mut item = Item {
            status: ItemStatus::Incomplete,
            ..Item::loose(head.item_id.clone(), ItemRole::Assistant, text)
        };
        self.close_output(&head, &item);
        if keeps_item {
            item.text.clear();
            if let Some(listed_item) = self.items.find_mut(&head.item_id) {
                listed_item.clone_from(&item);
            }
        } else if self.items.remove(&head.item_id) {
            self.send(&EventBody::ItemDeleted { item_id: &head.item_id });
        }
        let error = problem.filter(|_| !is_cancelled).map(RealtimeError::from);
        let status = if is_cancelled {
            ResponseStatus::Cancelled
        } else {
            ResponseStatus::Failed
        };
        self.send(&EventBody::ResponseDone {
            response: head.view(status, None, None, error.as_ref()),
        });
    }

    /// Cuts the response under way at the words that were sent.
    pub async fn cancel_response(&mut self, id: Option<&str>, event_id: Option<String>) -> Result<(), RealtimeError> {
        let is_asked = |active: &&mut ActiveResponse| id.is_none_or(|id| id == active.head().id);
        let Some(active) = self.response.as_mut().filter(is_asked) else {
            let param = id.map(|_| "response_id");
            let message = "Cancellation failed: no active response found";
            return Err(RealtimeError::invalid(NOT_ACTIVE, param, message));
        };
        match active {
            ActiveResponse::Aside(_) => {
                self.cancel_aside();
                Ok(())
            }
            ActiveResponse::Turn(response) if response.number.is_none() => {
                response.pending_cut.get_or_insert(PendingCut {
                    heard_length: None,
                    is_truncation: false,
                    event_id,
                });
                Ok(())
            }
            ActiveResponse::Turn(_) => self.cut_reply(None, false).await,
        }
    }

    /// Cuts the reply under way, whose turn has begun. `heard_length`: how much was heard; `None`: all that was sent.
    pub async fn cut_reply(
        &mut self,
        heard_length: Option<HeardLength>,
        is_truncation: bool,
    ) -> Result<(), RealtimeError> {
        let principal = self.caller.principal.clone();
        let scope = self.caller.scope.clone();
        let Some(ActiveResponse::Turn(response)) = &mut self.response else {
            return Ok(());
        };
        let command = InterruptCommand {
            turn: response.number,
            heard_length: Some(HeardLength::Chars(response.heard_of_sent(heard_length))),
            key: None,
            if_head: None,
            who: principal,
        };
        let sessions = &self.state.sessions;
        let session = response.talk.session;
        let outcome = sessions.interrupt_dialogue(&scope, session, command).await?;
        response.is_cut = true;
        let item_id = response.head.item_id.clone();
        // The turn has ended when the cut is answered.
        let turn_result = crate::awaited_turn::completed_turn((&mut response.turn_receiver).await);
        match outcome {
            InterruptOutcome::Rewound(rewound) => self.finish_turn(turn_result, Some(&rewound), is_truncation),
            _ => self.finish_turn(turn_result, None, is_truncation),
        }
        if is_truncation {
            self.send_truncated(&item_id, None);
        }
        Ok(())
    }

    /// Asks the model beside the conversation.
    async fn create_aside(&mut self, talk: &Talk, settings: ResponseSettings) -> Result<(), RealtimeError> {
        let npc = talk.aside_npc(&self.state, &self.caller.principal).await?;
        let instructions = settings.instructions.as_deref().unwrap_or(&self.settings.instructions);
        let mut messages = Vec::new();
        if !instructions.trim().is_empty() {
            messages.push(ChatMessage::new(ChatRole::System, instructions));
        }
        if let Some(input) = &settings.input {
            for (index, item) in input.iter().enumerate() {
                messages.push(self.message_of_input(talk, index, item).await?);
            }
        } else {
            messages.extend(talk.stored_messages(&self.state, &self.caller.principal).await?);
            messages.extend(self.items.loose_items().map(to_message));
        }
        if messages.is_empty() {
            return Err(RealtimeError::field("response.input", "has nothing to answer"));
        }
        let cap = self.output_cap(&settings);
        let request = AsideRequest {
            messages,
            client: Arc::new(ClientFields {
                fields: serde_json::Map::new(),
                max_output_tokens: cap,
                may_exceed_cap: false,
            }),
            player: talk.player().clone(),
        };
        let head = ResponseHead {
            id: format!("resp_{:032x}", rand::random::<u128>()),
            item_id: format!("item_{:032x}", rand::random::<u128>()),
            conversation: None,
            metadata: settings.metadata,
            max_output_tokens: cap,
        };
        self.open_response(&head);
        let state = self.state.clone();
        let scope = self.caller.scope.clone();
        self.response = Some(ActiveResponse::Aside(AsideResponse {
            head,
            answer: Box::pin(async move { answer_aside(&state.services, &scope, &npc, request).await }),
        }));
        Ok(())
    }

    async fn message_of_input(
        &self,
        talk: &Talk,
        index: usize,
        input: &InputItem,
    ) -> Result<ChatMessage, RealtimeError> {
        let id = match input {
            InputItem::New(item) => return Ok(to_message(item)),
            InputItem::Reference(id) => id,
        };
        if let Some(item) = self.items.find(id) {
            return Ok(to_message(item));
        }
        let loaded = talk.load_item(&self.state, &self.caller.principal, id).await?;
        let item = loaded.ok_or_else(|| {
            let param = format!("response.input[{index}].id");
            RealtimeError::field(&param, "names no item of this conversation")
        })?;
        Ok(to_message(&item.1))
    }

    fn finish_aside(&mut self, result: Result<AsideAnswer, TurnError>) {
        let Some(ActiveResponse::Aside(AsideResponse { head, .. })) = self.response.take() else {
            return;
        };
        let (answer, error) = match result {
            Ok(answer) => (answer, None),
            Err(error) => {
                let nothing = AsideAnswer {
                    text: String::new(),
                    tool_calls: Vec::new(),
                    usage: Usage::default(),
                    at_cap: false,
                };
                (nothing, Some(RealtimeError::from(Problem::from(&error))))
            }
        };
        let status = match (&error, answer.at_cap) {
            (Some(_), _) => ResponseStatus::Failed,
            (None, true) => ResponseStatus::Incomplete,
            (None, false) => ResponseStatus::Completed,
        };
        if !answer.text.is_empty() {
            self.send(&EventBody::TextDelta {
                place: head.place(),
                delta: &answer.text,
            });
        }
        let usage = answer.usage.seen_by(self.caller.principal.role);
        self.end_aside(&head, status, answer.text, Some(usage), error.as_ref());
    }

    fn cancel_aside(&mut self) {
        if let Some(ActiveResponse::Aside(AsideResponse { head, .. })) = self.response.take() {
            self.end_aside(&head, ResponseStatus::Cancelled, String::new(), None, None);
        }
    }

    fn end_aside(
        &self,
        head: &ResponseHead,
        status: ResponseStatus,
        text: String,
        usage: Option<Usage>,
        error: Option<&RealtimeError>,
    ) {
        let item = Item {
            status: match status {
                ResponseStatus::Completed => ItemStatus::Completed,
                _ => ItemStatus::Incomplete,
            },
            ..Item::loose(head.item_id.clone(), ItemRole::Assistant, text)
        };
        self.close_output(head, &item);
        self.send(&EventBody::ResponseDone {
            response: head.view(status, Some(&item).filter(|item| !item.text.is_empty()), usage, error),
        });
    }

    /// Ends the reply where the client has heard it, after the client has hung up.
    pub fn on_hung_up(&mut self) {
        let counts = self.sent_counts();
        if let Some(active) = self.response.take() {
            if let ActiveResponse::Turn(response) = active {
                store_chars(&response.sent_chars, self.sent_words.taken_chars(counts));
                // The guard of the response cuts the reply.
            }
            return;
        }
        let (Some(turn), Some(session)) = (self.sent_words.turn, self.session_id()) else {
            return;
        };
        let Some(heard_chars) = self.sent_words.unsent_after(counts) else {
            return;
        };
        let command = InterruptCommand {
            turn: Some(turn),
            heard_length: Some(HeardLength::Chars(heard_chars)),
            key: None,
            if_head: Some(turn),
            who: self.caller.principal.clone(),
        };
        let state = self.state.clone();
        let scope = self.caller.scope.clone();
        actix_web::rt::spawn(async move {
            let result = state.sessions.interrupt_dialogue(&scope, session, command).await;
            if let Err(error) = result {
                tracing::debug!(%session, %error, "a partly sent reply could not be cut");
            }
        });
    }
}

fn to_message(item: &Item) -> ChatMessage {
    ChatMessage::new(item.role.into(), item.text.clone())
}
