//! An answer in one piece.

use actix_web::HttpResponse;

use super::{
    answer::{AnswerMessage, ChatCompletion, Choice, CompletionUsage},
    prepared_talk::{PreparedTalk, SESSION_HEADER},
    request::ChatCompletionRequest,
    stream::StreamedAnswer,
};
use crate::errors::Problem;
use colloquy_memory::turn::Usage;

/// Answers with whole replies.
///
/// # Errors
/// As of a line. A turn was refused, or failed.
pub async fn answer_whole(
    mut talk: PreparedTalk,
    completion_request: &ChatCompletionRequest,
) -> Result<HttpResponse, Problem> {
    let mut choices = Vec::new();
    let mut usage = Usage::default();
    let mut shown_turn = None;
    let count = if talk.goes_on() { 1 } else { completion_request.choices };
    // The first choice comes last, so that it stands until a later request shows another one.
    for index in (0..count).rev() {
        let reply = talk.finish_reply(shown_turn.is_none()).await?;
        usage += reply.usage;
        choices.push(Choice {
            index,
            message: AnswerMessage::new(reply.new_text, reply.outcome.tool_calls()),
            logprobs: None,
            finish_reason: reply.finish_reason,
        });
        shown_turn = reply.outcome.turn().cloned();
    }
    choices.reverse();
    let mut response = HttpResponse::Ok();
    response.insert_header((SESSION_HEADER, talk.session.to_string()));
    if let Some(turn) = &shown_turn {
        response.insert_header(("x-colloquy-turn", turn.number.to_string()));
    }
    let now = || talk.state.services.clock.now();
    Ok(response.json(ChatCompletion {
        id: &shown_turn
            .as_ref()
            .map_or_else(StreamedAnswer::new_id, |turn| StreamedAnswer::id_of(turn.id)),
        object: "chat.completion",
        created: shown_turn.as_ref().map_or_else(now, |turn| turn.started_at).timestamp(),
        model: &completion_request.model,
        choices,
        usage: CompletionUsage::from(usage),
    }))
}
