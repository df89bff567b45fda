//! `POST /v1/chat/completions`: the next reply of a talk. The transcript in the request decides which turns stand.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, post, web};
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;

use super::{
    aside,
    body::ChatBody,
    follow::{MAX_IMPORTED_CHARS, check_answer, follow_transcript},
    known_sessions::{KnownSessions, ThreadKey},
    messages::{SortedMessages, messages_of_turn},
    prepared_talk::{ChatTemplate, PreparedTalk, RunningReply, SESSION_HEADER, WholeReply},
    request::ChatCompletionRequest,
    settings::IMPORTED_TURNS_PER_LINE,
    speaker::{Speaker, resolve_speaker},
    stream::{self, CutOnDrop},
    targets::{ChatTarget, find_target},
    threads::FoundThread,
    tool_calls::ReplyOutcome,
    whole::answer_whole,
};
use crate::{
    AppState,
    errors::Problem,
    extract::{Authorized, InWorld, Talker},
    nodes::DialogueOfRequest,
};
use colloquy_actors::{
    AcceptedLine, DialogueError, InterruptCommand, NewSession, OnBusy, PlayerLine, RegenerateCommand,
};
use colloquy_core::{
    ids::PlayerId,
    scope::{Principal, Role},
};
use colloquy_dialogue::turn::{ChatRequest, OwnPrompt};
use colloquy_memory::{
    chat_transcript::{ComparedTranscript, TranscriptAlignment, TranscriptRequest, align_transcript},
    text::to_hexadecimal,
};
use colloquy_ports::{
    ledger::dialogues::Playback,
    llm::{ChatMessage, ChatRole},
};

/// The longest name of a talk, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// The most lines for which an import counts, so that a long one is possible within a minute.
const MAX_LINES_OF_IMPORT: usize = 10;
/// The most notes of a request, and the most Unicode scalar values of a note: more never fit a prompt.
const MAX_NOTES: usize = 32;
const MAX_NOTE_CHARS: usize = 4_000;

/// Answers with the next reply of a talk.
#[post("/completions")]
pub async fn create_chat_completion(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Talker>>,
    request: HttpRequest,
    body: ChatBody<ChatCompletionRequest>,
) -> Result<HttpResponse, Problem> {
    let completion_request = body.0;
    let target = find_target(&state, &caller.principal, &completion_request.model).await?;
    if matches!(target, ChatTarget::Character(_)) {
        completion_request.refuse_functions()?;
    }
    let player = player_of(&caller.principal, completion_request.user.as_deref())?;
    for _ in 0..completion_request.choices {
        caller.count_turn(&state, &player)?;
    }
    let speaker = resolve_speaker(&state, &caller, &player, &target, &completion_request.messages).await?;
    let Speaker {
        npc,
        sorted_messages,
        is_own,
        is_named,
    } = &speaker;
    let is_own = *is_own;
    let key = ThreadKey::new(&caller.principal, player, npc, session_name(&request)?);
    let mut thread = state.threads.lock(&key).await;
    let is_aside = if is_own && !*is_named {
        !completion_request.stream && sorted_messages.transcript.turns.is_empty()
    } else {
        thread.is_aside(sorted_messages)
    };
    if is_aside {
        // The talk goes on meanwhile.
        drop(thread);
        return aside::answer(&state, &caller.principal, npc, key.player, &completion_request, is_own).await;
    }
    let found_thread = thread
        .find_talk(&state, &caller.principal, &key, sorted_messages)
        .await?;
    let found_thread = match found_thread {
        Some(found_thread) => found_thread,
        None if (is_own || caller.principal.role != Role::Player)
            && thread.is_aside_of_other_talks(sorted_messages, completion_request.stream) =>
        {
            drop(thread);
            return aside::answer(&state, &caller.principal, npc, key.player, &completion_request, is_own).await;
        }
        None => open_session(&state, &caller, &key, sorted_messages).await?,
    };
    thread.note_request(sorted_messages, completion_request.stream);
    // For the middleware that may forward the request to the node of the session.
    DialogueOfRequest::set(&request, found_thread.dialogue.id);
    let talk = PreparedTalk::prepare(&state, &caller, key, thread, found_thread, speaker, &completion_request).await?;
    if completion_request.stream {
        return stream::stream_answer(talk, &completion_request).await;
    }
    answer_whole(talk, &completion_request).await
}

/// Opens a session for a talk that no session has.
///
/// # Errors
/// As of a new session.
pub async fn open_session<A>(
    state: &AppState,
    caller: &Authorized<A>,
    key: &ThreadKey,
    sorted_messages: &SortedMessages,
) -> Result<FoundThread, Problem> {
    caller.count_new_session(state)?;
    let created = state.sessions.create_session(&caller.scope, new_session(key)).await?;
    Ok(FoundThread {
        dialogue: created.dialogue,
        alignment: align_transcript(&ComparedTranscript::new(&sorted_messages.transcript), &[]),
    })
}

/// Returns the number of the turn that a request asks for, if nobody else talks in the session meanwhile.
fn number_of_reply(alignment: &TranscriptAlignment) -> u32 {
    let missing_count = u32::try_from(alignment.missing.len()).unwrap_or(u32::MAX);
    let last_number = alignment.last_standing.saturating_add(missing_count);
    match alignment.request {
        TranscriptRequest::GoOn => last_number,
        TranscriptRequest::Answer(_) | TranscriptRequest::AnswerAgain(_) => last_number.saturating_add(1),
    }
}

/// The player of a request: that of the token, or else the `user` of the request, or the holder of the token.
pub fn player_of(principal: &Principal, user: Option<&str>) -> Result<PlayerId, Problem> {
    if let Some(player) = &principal.player {
        return Ok(player.clone());
    }
    let name = user
        .map(str::trim)
        .filter(|user| !user.is_empty())
        .unwrap_or(&principal.subject);
    name.parse().or_else(|_| {
        // A name with other characters has an id of its own.
        let hash = to_hexadecimal(&Sha256::digest(name));
        format!("user-{}", &hash[..24])
            .parse()
            .map_err(|error| Problem::internal_error(&error))
    })
}

/// The name that the header of a request gives the talk; empty: the request has no such header.
pub fn session_name(request: &HttpRequest) -> Result<String, Problem> {
    let Some(value) = request.headers().get(SESSION_HEADER) else {
        return Ok(String::new());
    };
    parse_name("X-Colloquy-Session", value.to_str().unwrap_or_default())
}

/// Checks the name of a talk. `param` is its place in the request.
pub fn parse_name(param: &str, name: &str) -> Result<String, Problem> {
    let name = name.trim();
    let is_printable = name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !is_printable {
        let detail = format!("must have 1 to {MAX_NAME_BYTES} printable ASCII characters");
        return Err(Problem::invalid_field(param, detail));
    }
    Ok(name.to_owned())
}

/// The session of a talk that has none yet.
pub fn new_session(key: &ThreadKey) -> NewSession {
    NewSession {
        world: key.world.clone(),
        npcs: vec![key.npc.clone()],
        player: key.player.clone(),
        witnesses: Vec::new(),
        factions: Vec::new(),
        // Nothing is learned from a reply that is asked for anew.
        playback: Playback::Ack,
        settings: None,
        cause: None,
        chat_key: Some(key.name.clone()),
    }
}

/// Returns the latest system lines of the chat program, those before the talk first.
fn scene_notes(sorted_messages: &SortedMessages) -> Vec<String> {
    let head = sorted_messages.head.iter().map(|message| message.content.trim());
    let notes = head.chain(sorted_messages.notes.iter().map(String::as_str));
    let mut notes: Vec<String> = notes
        .filter(|note| !note.is_empty())
        .map(|note| note.chars().take(MAX_NOTE_CHARS).collect())
        .collect();
    notes.drain(..notes.len().saturating_sub(MAX_NOTES));
    notes
}

/// Returns the messages of the chat program around the answered line.
fn own_prompt(sorted_messages: SortedMessages, alignment: &TranscriptAlignment) -> OwnPrompt {
    let turns = sorted_messages.transcript.turns.len();
    // A reply that goes on is the beginning of the new reply, and no part of the history.
    let goes_on = alignment.request == TranscriptRequest::GoOn;
    let finished_turns = turns.saturating_sub(usize::from(goes_on));
    let is_last_reply =
        |(turn, message): &(usize, ChatMessage)| *turn == finished_turns && message.role == ChatRole::Assistant;
    let reply_at = sorted_messages.talk.iter().rposition(is_last_reply).filter(|_| goes_on);
    let mut prompt = OwnPrompt {
        head: sorted_messages.head,
        ..OwnPrompt::default()
    };
    for (index, (turn, message)) in sorted_messages.talk.into_iter().enumerate() {
        // Around a reply that goes on, the notes count, and what belongs to the answered line.
        let is_call_of_reply = message.role == ChatRole::Assistant && message.as_sent.is_some();
        let is_said_before = turn == finished_turns && Some(index) != reply_at && !is_call_of_reply;
        if turn < finished_turns {
            let number = alignment
                .first_number
                .saturating_add(u32::try_from(turn).unwrap_or(u32::MAX));
            prompt.history.push((number, message));
        } else if !goes_on || is_said_before || message.role == ChatRole::System {
            prompt.last.push(message);
        }
    }
    prompt
}

/// Counts an import of missing turns as lines of the player.
fn count_import<A>(
    state: &AppState,
    caller: &Authorized<A>,
    player: &PlayerId,
    alignment: &TranscriptAlignment,
) -> Result<(), Problem> {
    for _ in 0..(alignment.missing.len() / IMPORTED_TURNS_PER_LINE).min(MAX_LINES_OF_IMPORT) {
        caller.count_turn(state, player)?;
    }
    Ok(())
}

impl PreparedTalk {
    /// Makes the turns of the session those of the request, up to the point where the NPC speaks.
    ///
    /// # Errors
    /// As of an imported line or a rewind.
    pub async fn prepare<A>(
        state: &web::Data<AppState>,
        caller: &Authorized<A>,
        key: ThreadKey,
        mut thread: OwnedMutexGuard<KnownSessions>,
        found_thread: FoundThread,
        speaker: Speaker,
        completion_request: &ChatCompletionRequest,
    ) -> Result<Self, Problem> {
        speaker.check_import(state, &caller.principal, &found_thread).await?;
        let tools = speaker.tool_exchange(&caller.principal);
        if tools.begun_reply.chars().count() > MAX_IMPORTED_CHARS {
            let detail = format!("the reply before the last tool calls has more than {MAX_IMPORTED_CHARS} characters");
            return Err(Problem::invalid_field("messages", detail));
        }
        let FoundThread {
            dialogue,
            mut alignment,
        } = found_thread;
        let Speaker {
            npc,
            sorted_messages,
            is_own,
            ..
        } = speaker;
        count_import(state, caller, &key.player, &alignment)?;
        let mut client = completion_request.fields_for_model(&caller.principal, is_own);
        alignment.request = match alignment.request {
            // The reply may be tool calls, which are no turn. So the turn is taken back, and none is replaced.
            TranscriptRequest::AnswerAgain(line) if client.asks_for_tools() => TranscriptRequest::Answer(line),
            other => other,
        };
        if alignment.request == TranscriptRequest::GoOn {
            client.forbid_tool_calls();
        }
        check_answer(state, &caller.principal, &key.player, &dialogue, &alignment)?;
        follow_transcript(state, &caller.principal, &dialogue, &alignment, &mut thread).await?;
        Ok(Self {
            state: state.clone(),
            principal: caller.principal.clone(),
            session: dialogue.id,
            npc: npc.id,
            number: number_of_reply(&alignment),
            thread,
            turn_id: None,
            tool_calls: None,
            chat: ChatTemplate {
                scene_notes: if is_own {
                    Vec::new()
                } else {
                    scene_notes(&sorted_messages)
                },
                client: Arc::new(client),
                own_prompt: is_own.then(|| Arc::new(own_prompt(sorted_messages, &alignment))),
                tools,
            },
            request: alignment.request,
        })
    }

    /// Puts the stored turns of the session into the prompt of a character of the chat program, for a request that does
    /// not repeat them. Older turns are in the summaries.
    ///
    /// # Errors
    /// The session cannot be loaded.
    pub async fn add_stored_history(&mut self) -> Result<(), DialogueError> {
        let goes_on = self.goes_on();
        let Some(prompt) = self.chat.own_prompt.as_mut().map(Arc::make_mut) else {
            return Ok(());
        };
        let snapshot = self
            .state
            .sessions
            .snapshot(&self.principal.scope(), self.session)
            .await?;
        // A reply that goes on is the beginning of the new reply, and no part of the history.
        let finished_turns = snapshot.history.len().saturating_sub(usize::from(goes_on));
        prompt.history.clear();
        for turn in snapshot.history.iter().take(finished_turns) {
            let messages = messages_of_turn(turn);
            prompt.history.extend(messages.map(|message| (turn.number, message)));
        }
        Ok(())
    }

    /// Asks for a reply. Each later reply takes the place of the reply before. `re` marks the events of the turn.
    pub async fn begin_reply(&self, is_first: bool, re: Option<Arc<str>>) -> Result<RunningReply, DialogueError> {
        let is_anew = is_first || self.may_call_tools();
        let chat = Arc::new(self.request_reply(is_anew));
        let sessions = &self.state.sessions;
        let scope = self.principal.scope();
        let goes_on = self.goes_on();
        let tools = &self.chat.tools;
        if !is_first && is_anew {
            self.take_back_choice().await?;
        }
        let (accepted, known_chars) = match &self.request {
            TranscriptRequest::Answer(text) if is_anew && text.is_empty() => {
                let greeting = sessions.request_greeting(&scope, self.session, re, Some(Arc::clone(&chat)));
                (greeting.await?, tools.known_chars())
            }
            TranscriptRequest::Answer(text) if is_anew => {
                let line = PlayerLine {
                    text: text.clone(),
                    to: Some(self.npc.clone()),
                    key: None,
                    on_busy: OnBusy::Queue,
                    re,
                    who: Some(self.principal.clone()),
                    chat: Some(Arc::clone(&chat)),
                };
                (
                    sessions.say_line(&scope, self.session, line).await?,
                    tools.known_chars(),
                )
            }
            _ => {
                let known_chars = if goes_on {
                    self.last_reply_chars().await?
                } else {
                    tools.known_chars()
                };
                let command = RegenerateCommand {
                    key: None,
                    if_head: Some(self.number),
                    re,
                    who: self.principal.clone(),
                    goes_on,
                    chat: Some(Arc::clone(&chat)),
                };
                (
                    sessions.replace_last_turn(&scope, self.session, command).await?,
                    known_chars,
                )
            }
        };
        Ok(RunningReply {
            accepted,
            chat,
            known_chars,
            heard_chars: tools.begun_reply.chars().count(),
        })
    }

    /// The request of a reply. `is_anew`: the reply takes the place of no turn.
    fn request_reply(&self, is_anew: bool) -> ChatRequest {
        let template = &self.chat;
        let chat = ChatRequest::for_reply(
            template.scene_notes.clone(),
            Arc::clone(&template.client),
            template.own_prompt.clone(),
        )
        .after_tools(template.tools.clone())
        .with_tool_calls_for(self.tool_calls.clone());
        let chat = match self.turn_id {
            Some(id) => chat.with_turn_id(id),
            None => chat,
        };
        if is_anew && matches!(self.request, TranscriptRequest::Answer(_)) {
            return chat.with_if_head(self.number.saturating_sub(1));
        }
        chat
    }

    /// Takes back a choice before the next one. Nothing is replaced, because the next choice may be no turn.
    async fn take_back_choice(&self) -> Result<(), DialogueError> {
        let command = InterruptCommand {
            turn: Some(self.number.saturating_sub(1)),
            heard_length: None,
            key: None,
            if_head: Some(self.number),
            who: self.principal.clone(),
        };
        let sessions = &self.state.sessions;
        sessions
            .rewind_dialogue(&self.principal.scope(), self.session, command)
            .await?;
        Ok(())
    }

    /// True if the reply may call tools of the client.
    pub fn may_call_tools(&self) -> bool {
        self.chat.client.asks_for_tools()
    }

    /// Begins a reply and waits until its turn is complete. If the client hangs up before, the reply was not heard.
    ///
    /// # Errors
    /// The turn was refused, or failed.
    pub async fn finish_reply(&mut self, is_first: bool) -> Result<WholeReply, Problem> {
        let running = self.begin_reply(is_first, None).await?;
        let guard = CutOnDrop::new(self, Arc::new(running.heard_chars.into()));
        let result = match running.accepted {
            AcceptedLine::Repeated(turn) => Ok(ReplyOutcome::Turn(turn)),
            AcceptedLine::Turn { done: turn_result } => ReplyOutcome::from_ended(turn_result.await),
        };
        guard.disarm();
        let outcome = result?;
        self.record_outcome(&outcome);
        Ok(WholeReply {
            new_text: outcome.text().chars().skip(running.known_chars).collect(),
            finish_reason: outcome.finish_reason(&running.chat),
            usage: outcome.usage_for(self.principal.role),
            outcome,
        })
    }

    /// Records the end of a reply for later requests of the talk.
    pub fn record_outcome(&mut self, outcome: &ReplyOutcome) {
        match outcome {
            ReplyOutcome::Turn(turn) => self.thread.record_turn(turn),
            ReplyOutcome::ToolCalls(_) => self.thread.note_tool_calls(self.session),
        }
    }

    /// True if the NPC goes on with its last reply.
    pub fn goes_on(&self) -> bool {
        self.request == TranscriptRequest::GoOn
    }

    /// Returns the length of the last reply without white space at its end, in Unicode scalar values.
    async fn last_reply_chars(&self) -> Result<usize, DialogueError> {
        let dialogues = &self.state.services.ledger.dialogues;
        let turns = dialogues
            .load_turns(&self.principal.scope(), self.session, self.number, self.number)
            .await?;
        let reply_chars = turns.last().map(|turn| turn.reply_text.trim_end().chars().count());
        reply_chars.ok_or(DialogueError::NothingToRegenerate)
    }
}
