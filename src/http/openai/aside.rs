//! The answer to a request beside the talk: the messages go to the model as they came, and nothing is stored.

use std::sync::Arc;

use actix_web::{HttpResponse, http::header};
use bytes::Bytes;

use super::targets::may_use_characters;
use super::{
    answer::{
        AnswerMessage, ChatChunk, ChatCompletion, Choice, ChunkChoice, ChunkUsage, CompletionUsage, Delta, FinishReason,
    },
    messages::to_chat_message,
    request::ChatCompletionRequest,
    stream::{DONE, StreamedAnswer, to_frame},
    tool_calls::index_tool_calls,
};
use crate::{
    AppState,
    errors::{Code, Problem},
};
use colloquy_core::{ids::PlayerId, scope::Principal};
use colloquy_dialogue::aside::{AsideAnswer, AsideRequest, answer_aside};
use colloquy_memory::authored::Npc;

/// Answers without a turn. A stream has the whole answer in one chunk.
///
/// # Errors
/// The model failed, or a budget is used up.
pub async fn answer(
    state: &AppState,
    principal: &Principal,
    npc: &Npc,
    player: PlayerId,
    completion_request: &ChatCompletionRequest,
    is_own: bool,
) -> Result<HttpResponse, Problem> {
    if !may_use_characters(state, principal) {
        let detail = "players may ask for nothing beside the talk here (setting `chat.players_use_proxy`)";
        return Err(Problem::new(Code::Forbidden, detail).with_param("messages"));
    }
    let request = AsideRequest {
        messages: completion_request.messages.iter().map(to_chat_message).collect(),
        client: Arc::new(completion_request.fields_for_model(principal, is_own)),
        player,
    };
    let answer = answer_aside(&state.services, &principal.scope(), npc, request).await;
    let answer = answer.map_err(|error| Problem::from(&error))?;
    let usage = CompletionUsage::from(answer.usage.seen_by(principal.role));
    let id = StreamedAnswer::new_id();
    let created = state.services.clock.now().timestamp();
    if !completion_request.stream {
        return Ok(HttpResponse::Ok().json(ChatCompletion {
            id: &id,
            object: "chat.completion",
            created,
            model: &completion_request.model,
            choices: vec![Choice {
                index: 0,
                finish_reason: finish_reason_of(&answer),
                message: AnswerMessage::new(answer.text, answer.tool_calls),
                logprobs: None,
            }],
            usage,
        }));
    }
    let frames = frames_of_answer(completion_request, &id, created, &answer, usage);
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .content_type("text/event-stream")
        .body(frames.concat()))
}

fn finish_reason_of(answer: &AsideAnswer) -> FinishReason {
    match answer.at_cap {
        true => FinishReason::Length,
        false if answer.tool_calls.is_empty() => FinishReason::Stop,
        false => FinishReason::ToolCalls,
    }
}

/// Returns the frames of a stream with the whole answer. `created`: seconds since 1970.
fn frames_of_answer(
    completion_request: &ChatCompletionRequest,
    id: &str,
    created: i64,
    answer: &AsideAnswer,
    usage: CompletionUsage,
) -> Vec<Bytes> {
    let chunk = |choices: &[ChunkChoice<'_>], usage| {
        to_frame(&ChatChunk {
            id,
            object: "chat.completion.chunk",
            created,
            model: &completion_request.model,
            choices,
            usage,
        })
    };
    let choice = |delta, finish_reason| ChunkChoice {
        index: 0,
        delta,
        logprobs: None,
        finish_reason,
    };
    let text_delta = Delta {
        role: Some("assistant"),
        content: Some(&answer.text),
        tool_calls: &index_tool_calls(&answer.tool_calls),
    };
    let without_usage = ChunkUsage::before_end(completion_request.include_usage);
    let mut frames: Vec<Bytes> = vec![
        chunk(&[choice(text_delta, None)], without_usage),
        chunk(
            &[choice(Delta::default(), Some(finish_reason_of(answer)))],
            without_usage,
        ),
    ];
    if completion_request.include_usage {
        frames.push(chunk(&[], ChunkUsage::Total(usage)));
    }
    frames.push(DONE);
    frames
}
