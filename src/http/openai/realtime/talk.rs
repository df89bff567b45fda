//! The session behind a connection: which session, and how its turns are made.

use std::sync::Arc;

use actix_web::web;
use tokio::sync::mpsc;

use super::{
    super::{
        characters::is_world_of_characters,
        completions::{new_session, player_of},
        follow::follow_transcript,
        known_sessions::ThreadKey,
        messages::{SortedMessages, messages_of_turn},
        prepared_talk::PreparedTalk,
        request::{ChatCompletionRequest, InputMessage, InputRole},
        speaker::{Speaker, is_described_by_program, resolve_speaker},
        targets::{ChatTarget, find_target, may_use_characters, no_such_model},
        threads::{FoundThread, newest_session_of},
    },
    items::{Conversation, Item, ItemRole},
};
use crate::{
    AppState,
    errors::{Code, Problem},
    extract::{Authorized, InWorld, Talker},
    reachable_sessions::reachable_open_session,
    settings::STREAM_QUEUE,
    sse::{ListenerGuard, SseListener},
};
use colloquy_actors::VisibleEvent;
use colloquy_core::{
    ids::{DialogueId, NpcId, PlayerId},
    scope::Principal,
};
use colloquy_memory::{
    chat_transcript::{Transcript, TranscriptAlignment, TranscriptEnd, TranscriptTurn},
    turn::Turn,
};
use colloquy_ports::{
    ledger::dialogues::Dialogue,
    llm::{ChatMessage, ChatRole},
};

/// The caller of a connection.
pub type SocketCaller = Authorized<InWorld<Talker>>;

/// The session of a connection.
#[derive(Debug, Clone)]
pub struct Talk {
    pub session: DialogueId,
    key: ThreadKey,
    /// What the model name means; `None`: the connection names only a session.
    target: Option<ChatTarget>,
}

/// A connection whose session is found or made.
pub struct OpenedTalk {
    /// The name of the model.
    pub model: String,
    pub start: TalkStart,
}

/// When the session of a connection begins.
pub enum TalkStart {
    /// The session is there.
    Open(Box<Talk>),
    /// The session begins with the first response: a character of the program has no name before its instructions come.
    Later(Box<LaterTalk>),
}

/// A session that begins with the first response.
pub struct LaterTalk {
    target: ChatTarget,
    player: PlayerId,
    name: String,
}

/// What a request for a connection names.
#[derive(Debug, Default)]
pub struct TalkRequest {
    pub model: Option<String>,
    /// A session by its id, or a talk by its name. Empty: a new session.
    pub name: String,
    /// The player, for tokens without a player.
    pub user: Option<String>,
}

impl TalkRequest {
    /// Finds or makes the session.
    ///
    /// # Errors
    /// There is no such model or session, or the caller may not use it.
    pub async fn open(self, state: &AppState, caller: &SocketCaller) -> Result<OpenedTalk, Problem> {
        let model = self.model.or_else(|| state.chat.default_model.clone());
        if let Ok(session) = self.name.parse::<DialogueId>() {
            return continue_session(state, &caller.principal, session, model, self.user.as_deref()).await;
        }
        let model = model.ok_or_else(|| {
            let detail = "is missing, and this server has no default model (setting `chat.default_model`)";
            Problem::invalid_field("model", detail)
        })?;
        let target = find_target(state, &caller.principal, &model).await?;
        let player = player_of(&caller.principal, self.user.as_deref())?;
        let start = match &target {
            ChatTarget::Npc { world, npc } => {
                let npc = state
                    .services
                    .ledger
                    .authored
                    .load_npc(&caller.scope, world, npc)
                    .await?;
                let npc = npc.ok_or_else(|| no_such_model(&model))?;
                let key = ThreadKey::new(&caller.principal, player, &npc, self.name);
                TalkStart::Open(Box::new(Talk::find_or_make(state, caller, key, target).await?))
            }
            ChatTarget::Character(_) => TalkStart::Later(Box::new(LaterTalk {
                target,
                player,
                name: self.name,
            })),
        };
        Ok(OpenedTalk { model, start })
    }
}

/// Continues a session that the request names by its id.
async fn continue_session(
    state: &AppState,
    principal: &Principal,
    session: DialogueId,
    model: Option<String>,
    user: Option<&str>,
) -> Result<OpenedTalk, Problem> {
    let dialogue = reachable_open_session(state, principal, session).await?;
    let not_found = || Problem::not_found("session of this player");
    let player = dialogue.player.clone().ok_or_else(not_found)?;
    if (principal.player.is_some() || user.is_some()) && player_of(principal, user)? != player {
        return Err(not_found());
    }
    let target = match &model {
        Some(model) => Some(find_target(state, principal, model).await?),
        None => None,
    };
    let npc = npc_in_session(&dialogue, target.as_ref())?;
    Ok(OpenedTalk {
        model: model.unwrap_or_else(|| format!("{}/{npc}", dialogue.world)),
        start: TalkStart::Open(Box::new(Talk::of_session(
            session,
            ThreadKey {
                tenant: principal.tenant.clone(),
                player,
                world: dialogue.world,
                npc,
                name: String::new(),
            },
            target,
        ))),
    })
}

/// The NPC of a session that a model name means.
fn npc_in_session(dialogue: &Dialogue, target: Option<&ChatTarget>) -> Result<NpcId, Problem> {
    let other_model = || Problem::invalid_field("model", "does not speak in this session");
    match target {
        Some(ChatTarget::Npc { world, npc }) if *world == dialogue.world && dialogue.npcs.contains(npc) => {
            Ok(npc.clone())
        }
        Some(ChatTarget::Npc { .. }) => Err(other_model()),
        Some(ChatTarget::Character(model)) => {
            let world = model.as_ref().and_then(|model| model.world.as_ref());
            let is_of_model = match world {
                Some(world) => *world == dialogue.world,
                None => is_world_of_characters(&dialogue.world),
            };
            let first_npc = dialogue.npcs.first().filter(|_| is_of_model);
            first_npc.cloned().ok_or_else(other_model)
        }
        None => dialogue.npcs.first().cloned().ok_or_else(other_model),
    }
}

impl LaterTalk {
    /// Finds or makes the session. `head` has the instructions and notes, which name the character.
    ///
    /// # Errors
    /// As of the store, or of a new session.
    pub async fn open(&self, state: &AppState, caller: &SocketCaller, head: &[String]) -> Result<Talk, Problem> {
        let system = |text: &String| InputMessage {
            role: InputRole::System,
            text: text.clone(),
            name: None,
            calls_tools: false,
            as_sent: None,
        };
        let messages: Vec<InputMessage> = head.iter().map(system).collect();
        let speaker = resolve_speaker(state, caller, &self.player, &self.target, &messages).await?;
        let key = ThreadKey::new(&caller.principal, self.player.clone(), &speaker.npc, self.name.clone());
        Talk::find_or_make(state, caller, key, self.target.clone()).await
    }
}

/// The words around a reply: what the client has said and noted.
#[derive(Debug, Default)]
pub struct TalkWords {
    /// The instructions, and the notes before the waiting lines.
    pub head: Vec<String>,
    /// The waiting lines and the notes among them, in their order.
    pub last: Vec<(ItemRole, String)>,
    /// The waiting lines as one line. Empty: the NPC speaks without a line.
    pub line: String,
}

impl TalkWords {
    fn into_sorted(self, turns: Vec<TranscriptTurn>) -> SortedMessages {
        let system = |text: String| ChatMessage::new(ChatRole::System, text);
        let last_notes = self.last.iter().filter(|(role, _)| *role == ItemRole::System);
        let notes = last_notes.map(|(_, text)| text.clone()).collect();
        let talk = self.last.into_iter();
        let talk = talk.map(|(role, text)| (0, ChatMessage::new(role.into(), text)));
        SortedMessages {
            head: self.head.into_iter().map(system).collect(),
            transcript: Transcript {
                turns,
                end: TranscriptEnd::Line(self.line),
            },
            notes,
            trailing: Vec::new(),
            talk: talk.collect(),
            tools: None,
        }
    }
}

impl Talk {
    /// Finds the newest open session of the talk's name, or makes one. Without a name: a new session.
    async fn find_or_make(
        state: &AppState,
        caller: &SocketCaller,
        key: ThreadKey,
        target: ChatTarget,
    ) -> Result<Self, Problem> {
        // Two connections of one name make one session.
        let mut thread = None;
        let mut newest_session = None;
        if !key.name.is_empty() {
            thread = Some(state.threads.lock(&key).await);
            newest_session = newest_session_of(state, &caller.principal, &key).await?;
        }
        let session = if let Some(dialogue) = newest_session {
            dialogue.id
        } else {
            caller.count_new_session(state)?;
            let created = state.sessions.create_session(&caller.scope, new_session(&key)).await?;
            created.dialogue.id
        };
        drop(thread);
        Ok(Self::of_session(session, key, Some(target)))
    }

    /// The talk of a session. Its requests follow those of the same session, not those of the same player.
    fn of_session(session: DialogueId, key: ThreadKey, target: Option<ChatTarget>) -> Self {
        Self {
            session,
            key: ThreadKey {
                name: session.to_string(),
                ..key
            },
            target,
        }
    }

    /// The player who talks.
    pub fn player(&self) -> &PlayerId {
        &self.key.player
    }

    /// Returns the items of the session before the connection: only the last turn is named.
    ///
    /// # Errors
    /// The store's.
    pub async fn earlier_items(&self, state: &AppState, principal: &Principal) -> Result<Conversation, Problem> {
        let dialogue = reachable_open_session(state, principal, self.session).await?;
        let turns = self.load_turns(state, principal, dialogue.head_turn).await?;
        Ok(Conversation::after(turns.first()))
    }

    /// Returns the turn with a number, if it stands.
    ///
    /// # Errors
    /// The store's.
    pub async fn load_turns(&self, state: &AppState, principal: &Principal, number: u32) -> Result<Vec<Turn>, Problem> {
        let dialogues = &state.services.ledger.dialogues;
        Ok(dialogues
            .load_turns(&principal.scope(), self.session, number, number)
            .await?)
    }

    /// Subscribes to the events of the session.
    ///
    /// # Errors
    /// The session has ended, or lives on another node.
    pub async fn subscribe(&self, state: &web::Data<AppState>, principal: &Principal) -> Result<TalkEvents, Problem> {
        let (feed, events) = mpsc::channel(STREAM_QUEUE);
        let listener = SseListener::new(feed, principal.role);
        let sessions = &state.sessions;
        let scope = principal.scope();
        let attached = sessions
            .attach_listener(&scope, self.session, Arc::new(listener), None)
            .await?;
        Ok(TalkEvents {
            events,
            _attachment: ListenerGuard::new(state, scope, self.session, attached.listener),
        })
    }

    /// Makes the talk ready for a reply to `talk_words`.
    ///
    /// # Errors
    /// The session or the NPC is gone.
    pub async fn prepare_reply(
        &self,
        state: &web::Data<AppState>,
        caller: &SocketCaller,
        talk_words: TalkWords,
        cap: Option<u32>,
    ) -> Result<PreparedTalk, Problem> {
        let thread = state.threads.lock(&self.key).await;
        let dialogue = reachable_open_session(state, &caller.principal, self.session).await?;
        let sorted_messages = talk_words.into_sorted(Vec::new());
        let speaker = self
            .find_speaker(state, &caller.principal, &dialogue, sorted_messages)
            .await?;
        let found_thread = FoundThread {
            alignment: TranscriptAlignment::after_turn(dialogue.head_turn, &speaker.sorted_messages.transcript),
            dialogue,
        };
        let completion_request = ChatCompletionRequest::from_parts(Vec::new(), true, None, cap, serde_json::Map::new());
        let key = self.key.clone();
        let mut talk =
            PreparedTalk::prepare(state, caller, key, thread, found_thread, speaker, &completion_request).await?;
        talk.add_stored_history().await?;
        Ok(talk)
    }

    /// Stores a turn that was said elsewhere.
    ///
    /// # Errors
    /// 403 if the caller may not bring in replies. As of a line.
    pub async fn store_turn(
        &self,
        state: &AppState,
        caller: &SocketCaller,
        turn: TranscriptTurn,
    ) -> Result<Arc<Turn>, Problem> {
        let principal = &caller.principal;
        let mut thread = state.threads.lock(&self.key).await;
        let dialogue = reachable_open_session(state, principal, self.session).await?;
        let sorted_messages = TalkWords::default().into_sorted(vec![turn]);
        let speaker = self.find_speaker(state, principal, &dialogue, sorted_messages).await?;
        let found_thread = FoundThread {
            alignment: TranscriptAlignment::after_turn(dialogue.head_turn, &speaker.sorted_messages.transcript),
            dialogue,
        };
        speaker.check_import(state, principal, &found_thread).await?;
        let stored_turn = follow_transcript(
            state,
            principal,
            &found_thread.dialogue,
            &found_thread.alignment,
            &mut thread,
        )
        .await?;
        stored_turn.ok_or_else(|| Problem::internal_error(&"a turn was not stored"))
    }

    /// The NPC that answers `sorted_messages`.
    async fn find_speaker(
        &self,
        state: &AppState,
        principal: &Principal,
        dialogue: &Dialogue,
        sorted_messages: SortedMessages,
    ) -> Result<Speaker, Problem> {
        let authored = &state.services.ledger.authored;
        let npc = authored
            .load_npc(&principal.scope(), &dialogue.world, &self.key.npc)
            .await?;
        let npc = npc.ok_or_else(|| Problem::not_found("NPC of this session"))?;
        let is_own = is_described_by_program(state, principal, &npc, dialogue, self.target.as_ref());
        Ok(Speaker {
            npc,
            sorted_messages,
            is_own,
            is_named: true,
        })
    }

    /// Returns the NPC and the messages for an answer beside the talk: `words` after the stored turns, or alone.
    ///
    /// # Errors
    /// 403 for players who may ask for nothing beside the talk.
    pub async fn aside_npc(
        &self,
        state: &AppState,
        principal: &Principal,
    ) -> Result<colloquy_memory::authored::Npc, Problem> {
        if !may_use_characters(state, principal) {
            let detail = "players may ask for nothing beside the talk here (setting `chat.players_use_proxy`)";
            return Err(Problem::new(Code::Forbidden, detail).with_param("response.conversation"));
        }
        let authored = &state.services.ledger.authored;
        let npc = authored
            .load_npc(&principal.scope(), &self.key.world, &self.key.npc)
            .await?;
        npc.ok_or_else(|| Problem::not_found("NPC of this session"))
    }

    /// Returns the messages of the stored turns in the prompt.
    ///
    /// # Errors
    /// The session cannot be loaded.
    pub async fn stored_messages(&self, state: &AppState, principal: &Principal) -> Result<Vec<ChatMessage>, Problem> {
        let snapshot = state.sessions.snapshot(&principal.scope(), self.session).await?;
        Ok(snapshot.history.iter().flat_map(messages_of_turn).collect())
    }

    /// Returns the standing turn of an item, by the item's id.
    ///
    /// # Errors
    /// The store's.
    pub async fn load_item(
        &self,
        state: &AppState,
        principal: &Principal,
        id: &str,
    ) -> Result<Option<(Turn, Item)>, Problem> {
        let Some((turn, role)) = super::items::turn_of_item(id) else {
            return Ok(None);
        };
        let stored_turn = state
            .services
            .ledger
            .dialogues
            .load_turn(&principal.scope(), turn)
            .await?;
        let standing =
            stored_turn.filter(|stored_turn| stored_turn.stands && stored_turn.turn.dialogue == self.session);
        Ok(standing.and_then(|stored_turn| {
            let item = match role {
                ItemRole::User => Item::line_of(&stored_turn.turn),
                _ => Some(Item::reply_of(&stored_turn.turn)),
            };
            Some((stored_turn.turn, item?))
        }))
    }
}

/// The events of a session, while the connection listens.
pub struct TalkEvents {
    pub events: mpsc::Receiver<VisibleEvent>,
    _attachment: ListenerGuard,
}
