//! `/v1/responses`: a response is a turn. `previous_response_id` is the turn that the next turn follows. If other turns
//! follow that turn already, a rewind takes them back first.
//!
//! - `request`: reading a request;
//! - `answer`, `stream`: the response and its events.

mod answer;
mod request;
mod stream;

use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

pub use self::answer::{ReplyEnding, id_with_prefix, response_id};
use self::{
    answer::{ResponseHead, turn_of_response},
    request::ResponseRequest,
};
use super::{
    answer::FinishReason,
    body::ChatBody,
    characters::is_world_of_characters,
    completions::{open_session, player_of, session_name},
    known_sessions::ThreadKey,
    messages::sort_messages,
    prepared_talk::{PreparedTalk, SESSION_HEADER},
    speaker::{Speaker, is_described_by_program, resolve_speaker},
    targets::{ChatTarget, find_target},
    threads::FoundThread,
};
use crate::{
    AppState,
    errors::{Code, Problem},
    extract::{Authorized, InWorld, Path, QueryParams, Talker},
    nodes::DialogueOfRequest,
    reachable_sessions::reachable_session,
    uncancelled::run_uncancelled,
};
use colloquy_actors::InterruptCommand;
use colloquy_core::scope::Principal;
use colloquy_memory::{authored::Npc, chat_transcript::TranscriptAlignment, turn::Turn};
use colloquy_ports::ledger::dialogues::{Dialogue, DialogueStatus};

/// The field that names an earlier response.
const PREVIOUS: &str = "previous_response_id";

/// Answers with the next reply of a talk.
#[post("")]
pub async fn create_response(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Talker>>,
    request: HttpRequest,
    body: ChatBody<ResponseRequest>,
) -> Result<HttpResponse, Problem> {
    let response_request = body.0;
    let (mut talk, model) = match &response_request.previous {
        Some(previous) => continue_talk(&state, &caller, &request, &response_request, previous).await?,
        None => begin_talk(&state, &caller, &request, &response_request).await?,
    };
    // The first event of a stream has the id of the response, before the turn exists.
    let turn = state.services.ids.next_id();
    talk.turn_id = Some(turn);
    let head = ResponseHead {
        previous: response_request.previous,
        conversation: response_request.conversation,
        echoed: response_request.echoed,
        ..ResponseHead::new(turn, state.services.clock.now().timestamp(), model)
    };
    if response_request.chat.stream {
        return stream::stream_response(talk, head).await;
    }
    answer_whole(talk, head).await
}

/// Begins a talk, or finds the session of the transcript in the input. Returns the name of the model too.
async fn begin_talk<A>(
    state: &web::Data<AppState>,
    caller: &Authorized<A>,
    request: &HttpRequest,
    response_request: &ResponseRequest,
) -> Result<(PreparedTalk, String), Problem> {
    let model = response_request.model.as_ref().or(state.chat.default_model.as_ref());
    let model = model.ok_or_else(|| {
        let detail = "is missing, and this server has no default model (setting `chat.default_model`)";
        Problem::invalid_field("model", detail)
    })?;
    let target = find_target(state, &caller.principal, model).await?;
    let player = player_of(&caller.principal, response_request.chat.user.as_deref())?;
    caller.count_turn(state, &player)?;
    let speaker = resolve_speaker(state, caller, &player, &target, &response_request.chat.messages).await?;
    let name = match &response_request.conversation {
        Some(name) => name.clone(),
        None => session_name(request)?,
    };
    let key = ThreadKey::new(&caller.principal, player, &speaker.npc, name);
    let mut thread = state.threads.lock(&key).await;
    // Clients name what a lone line follows. Without a name, the line begins a session.
    let transcript = &speaker.sorted_messages.transcript;
    let is_lone = transcript.turns.is_empty();
    let found_thread = if is_lone && key.name.is_empty() {
        None
    } else {
        thread.find_session(state, &caller.principal, &key, transcript).await?
    };
    let continues = is_lone && found_thread.is_some();
    let found_thread = match found_thread {
        // The same line again is a line that was said twice.
        Some(FoundThread { dialogue, .. }) if is_lone => FoundThread {
            alignment: TranscriptAlignment::after_turn(dialogue.head_turn, transcript),
            dialogue,
        },
        Some(found_thread) => found_thread,
        None => open_session(state, caller, &key, &speaker.sorted_messages).await?,
    };
    DialogueOfRequest::set(request, found_thread.dialogue.id);
    let prepared = PreparedTalk::prepare(
        state,
        caller,
        key,
        thread,
        found_thread,
        speaker,
        &response_request.chat,
    );
    let mut talk = prepared.await?;
    if continues {
        talk.add_stored_history().await?;
    }
    Ok((talk, model.clone()))
}

/// Continues from an earlier response. Later turns are taken back. Returns the name of the model too.
async fn continue_talk<A>(
    state: &web::Data<AppState>,
    caller: &Authorized<A>,
    request: &HttpRequest,
    response_request: &ResponseRequest,
    previous: &str,
) -> Result<(PreparedTalk, String), Problem> {
    let principal = &caller.principal;
    let (turn, dialogue) = find_response(state, principal, previous, PREVIOUS).await?;
    let key = thread_of(principal, &turn, &dialogue, previous)?;
    let names_player = principal.player.is_some() || response_request.chat.user.is_some();
    if names_player && player_of(principal, response_request.chat.user.as_deref())? != key.player {
        return Err(no_such_response(previous, PREVIOUS));
    }
    caller.count_turn(state, &key.player)?;
    let thread = state.threads.lock(&key).await;
    // Another request of the talk may have taken the turn back meanwhile.
    let (turn, dialogue) = find_response(state, principal, previous, PREVIOUS).await?;
    if dialogue.status == DialogueStatus::Closed {
        return Err(Problem::new(
            Code::SessionClosed,
            "the session of the earlier response is closed",
        ));
    }
    let (npc, is_own) = find_next_speaker(state, caller, response_request.model.as_deref(), &turn, &dialogue).await?;
    let model = response_request.model.clone();
    let model = model.unwrap_or_else(|| format!("{}/{}", dialogue.world, npc.id));
    let sorted_messages = sort_messages(&response_request.chat.messages, Some(&npc.name));
    let found_thread = FoundThread {
        alignment: TranscriptAlignment::after_turn(turn.number, &sorted_messages.transcript),
        dialogue,
    };
    let speaker = Speaker {
        npc,
        sorted_messages,
        is_own,
        is_named: true,
    };
    DialogueOfRequest::set(request, found_thread.dialogue.id);
    let prepared = PreparedTalk::prepare(
        state,
        caller,
        key,
        thread,
        found_thread,
        speaker,
        &response_request.chat,
    );
    let mut talk = prepared.await?;
    talk.add_stored_history().await?;
    Ok((talk, model))
}

/// Returns the NPC that answers after `turn`: that of `model`, or else the NPC of the turn. True: the messages describe the
/// character.
///
/// # Errors
/// As of [`find_target`] and of the store. 400 if the NPC of `model` takes no part in the session.
async fn find_next_speaker<A>(
    state: &AppState,
    caller: &Authorized<A>,
    model: Option<&str>,
    turn: &Turn,
    dialogue: &Dialogue,
) -> Result<(Npc, bool), Problem> {
    let principal = &caller.principal;
    let target = match model {
        Some(model) => Some(find_target(state, principal, model).await?),
        None => None,
    };
    let other_model = || Problem::invalid_field("model", format!("does not speak in the session of `{PREVIOUS}`"));
    let speaker = match &target {
        Some(ChatTarget::Npc { world, npc }) if *world == dialogue.world && dialogue.npcs.contains(npc) => npc,
        Some(ChatTarget::Npc { .. }) => return Err(other_model()),
        Some(ChatTarget::Character(_)) | None => &turn.npc,
    };
    let authored = &state.services.ledger.authored;
    let npc = authored.load_npc(&caller.scope, &dialogue.world, speaker).await?;
    let npc = npc.ok_or_else(|| Problem::not_found("NPC of the earlier response"))?;
    let is_own = is_described_by_program(state, principal, &npc, dialogue, target.as_ref());
    if let Some(ChatTarget::Character(model)) = target {
        let is_of_model = match model.and_then(|model| model.world) {
            Some(world) => world == dialogue.world,
            None => is_own || is_world_of_characters(&dialogue.world),
        };
        if !is_of_model {
            return Err(other_model());
        }
    }
    Ok((npc, is_own))
}

/// Answers with a whole response.
async fn answer_whole(mut talk: PreparedTalk, head: ResponseHead) -> Result<HttpResponse, Problem> {
    let reply = talk.finish_reply(true).await?;
    // The request has no tools, so the reply is a turn.
    let turn = reply.outcome.turn();
    let turn = turn.ok_or_else(|| Problem::internal_error(&"a reply without a turn"))?;
    let ending = ReplyEnding::new(reply.finish_reason, turn.status);
    Ok(HttpResponse::Ok()
        .insert_header((SESSION_HEADER, talk.session.to_string()))
        .insert_header(("x-colloquy-turn", turn.number.to_string()))
        .json(head.finished(ending, &reply.new_text, reply.usage)))
}

/// Options of a request for a stored response.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RetrieveQuery {
    /// Only `false`: a stored response is not streamed.
    stream: Option<bool>,
}

/// Returns a response from its turn. Fields of the request that are not stored have their defaults.
#[get("/{response}")]
pub async fn get_response(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Talker>>,
    path: Path<String>,
    query: QueryParams<RetrieveQuery>,
) -> Result<HttpResponse, Problem> {
    if query.0.stream == Some(true) {
        return Err(Problem::invalid_field("stream", "is not offered for a stored response"));
    }
    let principal = &caller.principal;
    let (turn, dialogue) = find_response(&state, principal, &path.0, "response_id").await?;
    let previous_number = turn.number.saturating_sub(1);
    let dialogues = &state.services.ledger.dialogues;
    let previous_turns = dialogues
        .load_turns(&caller.scope, dialogue.id, previous_number, previous_number)
        .await?;
    let model = format!("{}/{}", dialogue.world, turn.npc);
    let head = ResponseHead {
        previous: previous_turns.first().map(|turn| response_id(turn.id)),
        ..ResponseHead::new(turn.id, turn.started_at.timestamp(), model)
    };
    // Whether the reply reached its limit is not stored.
    let ending = ReplyEnding::new(FinishReason::Stop, turn.status);
    let view = head.finished(ending, &turn.reply_text, turn.usage.seen_by(principal.role));
    Ok(HttpResponse::Ok()
        .insert_header((SESSION_HEADER, dialogue.id.to_string()))
        .insert_header(("x-colloquy-turn", turn.number.to_string()))
        .json(view))
}

#[derive(Debug, Serialize)]
struct DeletedResponse {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// Takes the turn of a response back, if no turn follows.
#[delete("/{response}")]
pub async fn delete_response(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Talker>>,
    request: HttpRequest,
    path: Path<String>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let principal = &caller.principal;
        let id = path.0;
        let (turn, dialogue) = find_response(&state, principal, &id, "response_id").await?;
        let key = thread_of(principal, &turn, &dialogue, &id)?;
        caller.count_cut(&state, &key.player)?;
        // A reply under way belongs to a request that waits for it.
        let _thread = state.threads.lock(&key).await;
        let (turn, dialogue) = find_response(&state, principal, &id, "response_id").await?;
        if turn.number != dialogue.head_turn {
            let detail = format!(
                "turns follow this response; POST /v1/sessions/{}:rewind with turn {} takes back all of them",
                dialogue.id,
                turn.number.saturating_sub(1)
            );
            return Err(Problem::invalid_field("response_id", detail));
        }
        DialogueOfRequest::set(&request, dialogue.id);
        let command = InterruptCommand {
            turn: Some(turn.number.saturating_sub(1)),
            heard_length: None,
            key: None,
            if_head: Some(turn.number),
            who: principal.clone(),
        };
        state
            .sessions
            .rewind_dialogue(&caller.scope, dialogue.id, command)
            .await?;
        Ok(HttpResponse::Ok().json(DeletedResponse {
            id,
            object: "response",
            deleted: true,
        }))
    })
    .await
}

/// Returns the turn of a response and its session.
///
/// # Errors
/// 404 if the id names no standing turn of a session that the caller reaches. `param` is the place of the id in the
/// request.
async fn find_response(
    state: &AppState,
    principal: &Principal,
    id: &str,
    param: &str,
) -> Result<(Turn, Dialogue), Problem> {
    let not_found = || no_such_response(id, param);
    let turn = turn_of_response(id).ok_or_else(not_found)?;
    let stored_turn = state
        .services
        .ledger
        .dialogues
        .load_turn(&principal.scope(), turn)
        .await?;
    let turn = stored_turn
        .filter(|stored_turn| stored_turn.stands)
        .ok_or_else(not_found)?
        .turn;
    match reachable_session(state, principal, turn.dialogue).await {
        Ok(dialogue) => Ok((turn, dialogue)),
        Err(problem) if problem.code == Code::NotFound => Err(not_found()),
        Err(problem) => Err(problem),
    }
}

fn no_such_response(id: &str, param: &str) -> Problem {
    let id: String = id.chars().take(200).collect();
    let detail = format!("there is no response `{id}`, or its turn was taken back");
    Problem::new(Code::NotFound, detail).with_param(param)
}

/// The talk of a response, whose requests follow each other.
fn thread_of(principal: &Principal, turn: &Turn, dialogue: &Dialogue, id: &str) -> Result<ThreadKey, Problem> {
    let player = dialogue.player.clone();
    Ok(ThreadKey {
        tenant: principal.tenant.clone(),
        player: player.ok_or_else(|| no_such_response(id, PREVIOUS))?,
        world: dialogue.world.clone(),
        npc: turn.npc.clone(),
        // A session of a game is named by its id.
        name: match &dialogue.options.chat_key {
            Some(name) => name.clone(),
            None => dialogue.id.to_string(),
        },
    })
}
