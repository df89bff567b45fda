//! The paths of the OpenAI API, for programs that know no other: `/v1/chat/completions`,
//! `/v1/responses`, `/v1/realtime` and `/v1/models`.
//!
//! A model is an NPC. A request ends in the same sessions, turns and rewinds as the REST resources, with the same tokens,
//! roles and limits. Requests and answers follow OpenAI's published schema, so these paths are not in this server's own
//! OpenAPI document.
//!
//! - `body`, `request`, `messages`, `examples`, `names_in_lines`, `nudges`: reading a request, and the
//!   transcript in its messages;
//! - `targets`, `settings`: which NPC a model name means;
//! - `characters`: characters that the chat program describes;
//! - `speaker`: who answers, and which replies a request may bring in;
//! - `threads`, `known_sessions`: which session a transcript belongs to;
//! - `completions`, `prepared_talk`, `whole`, `stream`, `answer`: the turn and its answer; `aside`: an answer that
//!   is no turn;
//! - `tool_calls`: calls of the client's tools;
//! - `responses`: the Responses API, whose responses are turns;
//! - `realtime`: the Realtime API in text, whose items are the words of turns;
//! - `adoption`: an operation of this server's own, which takes a character into an authored world;
//! - `errors`: errors in OpenAI's form.

pub mod adoption;
mod answer;
mod aside;
mod body;
mod characters;
mod completions;
pub mod errors;
mod examples;
mod follow;
mod heard_line;
mod known_sessions;
mod messages;
mod models;
mod names_in_lines;
mod nudges;
mod parse_body;
mod prepared_talk;
mod realtime;
mod request;
mod responses;
mod settings;
mod speaker;
mod stream;
mod targets;
mod threads;
mod tool_calls;
mod whole;

use actix_cors::Cors;
use actix_web::web::{self, ServiceConfig};

pub use self::{characters::is_hidden_world, known_sessions::ChatThreads, settings::ChatSettings};

/// True for the paths whose errors have OpenAI's form.
pub fn is_openai_path(path: &str) -> bool {
    ["/v1/chat/", "/v1/models", "/v1/realtime", "/v1/responses"]
        .iter()
        .any(|prefix| path.starts_with(prefix))
}

/// Registers the paths. `settings` has the origins of web pages that may call them.
pub fn configure(cfg: &mut ServiceConfig, settings: &ChatSettings) {
    cfg.service(
        web::scope("/v1/chat")
            .wrap(cross_origin_rules(settings))
            .service(completions::create_chat_completion)
            .default_service(web::to(super::unmatched_route)),
    );
    cfg.service(
        web::scope("/v1/responses")
            .wrap(cross_origin_rules(settings))
            .service(responses::create_response)
            .service(responses::get_response)
            .service(responses::delete_response)
            .default_service(web::to(super::unmatched_route)),
    );
    cfg.service(
        web::scope("/v1/realtime")
            .service(realtime::open_realtime)
            .default_service(web::to(super::unmatched_route)),
    );
    cfg.service(
        web::scope("/v1/models")
            .wrap(cross_origin_rules(settings))
            .service(models::list_models)
            .service(models::get_model)
            .default_service(web::to(super::unmatched_route)),
    );
}

/// Answers the preflight requests of web pages, and names the origins that may read an answer.
fn cross_origin_rules(settings: &ChatSettings) -> Cors {
    let rules = Cors::default()
        .allowed_methods(["GET", "POST", "DELETE"])
        .allow_any_header()
        .expose_headers(["x-request-id", "x-colloquy-session", "x-colloquy-turn", "retry-after"])
        .max_age(3_600);
    settings
        .allowed_origins
        .iter()
        .fold(rules, |rules, origin| match origin.as_str() {
            "*" => rules.allow_any_origin(),
            origin => rules.allowed_origin(origin),
        })
}
