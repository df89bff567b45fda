//! The REST resources and the socket's entry point.
//!
//! Owns the wire: routes by resource, DTOs, problem responses, the messages of the socket, and the two API documents.
//! Decides nothing about dialogues; `actors` and the modules below decide.
//!
//! A route's extractor is its authorization (`extract`). Errors are mapped once (`errors`). The frame of a request is
//! in `context`.

mod actions;
mod asyncapi;
mod audit;
mod authored;
mod awaited_turn;
mod backlog;
mod bounds;
mod chat_models;
mod consolidation;
mod context;
mod curation;
mod curator;
mod directives;
pub mod docs;
mod dry_run;
mod episodes;
pub mod errors;
mod etag;
mod extract;
mod facts;
mod health;
mod idempotency;
mod imports;
mod insights;
mod jobs;
mod learning;
mod ledger_probe;
mod llms;
mod lore;
mod mcp;
pub mod metrics;
pub mod nodes;
mod npc_conversations;
mod npcs;
pub mod open_streams;
pub mod openai;
mod openapi;
mod pagination;
mod progress;
mod reachable_sessions;
pub mod refusals;
mod revocations;
mod rewinds;
mod saves;
mod scenarios;
mod sessions;
mod setting_bodies;
pub mod settings;
pub mod socket;
mod sse;
pub mod state;
mod summaries;
mod tenants;
mod tickets;
mod tiers;
mod tokens;
mod turn_view;
mod turns;
mod uncancelled;
mod unlocks;
mod usage;
mod validate;
mod webhooks;
mod world_events;
mod world_state;
mod worlds;

pub use ledger_probe::LedgerProbe;
pub use mcp::McpSettings;
pub use openai::{ChatSettings, ChatThreads};
pub use settings::HttpSettings;
pub use state::{AppState, Readiness};

/// The parsers of untrusted input, for fuzz targets (src/dev/fuzzing).
#[cfg(feature = "fuzzing")]
pub mod parsers {
    pub use super::{facts::FactsQuery, pagination::PageQuery, sessions::SessionListQuery, validate::parse_query};
}

use actix_web::{
    HttpRequest, HttpResponse,
    middleware::from_fn,
    web::{self, ServiceConfig},
};
use tracing_actix_web::TracingLogger;

use self::errors::{Code, Problem};

/// Registers every route with its middleware. The application must carry a `web::Data<AppState>`:
/// `App::new().app_data(state).configure(|cfg| http::configure(cfg, &chat))`, with the `chat` of the state.
pub fn configure(cfg: &mut ServiceConfig, chat: &ChatSettings) {
    let everything = web::scope("")
        .configure(|cfg| openai::configure(cfg, chat))
        .configure(|cfg| documented_routes(&mut utoipa_actix_web::service_config::ServiceConfig::new(cfg)))
        .configure(docs::configure)
        .configure(llms::configure)
        .configure(nodes::configure_internal_routes)
        .configure(mcp::configure)
        .default_service(web::to(unmatched_route))
        .wrap(TracingLogger::<context::RequestSpans>::new())
        .wrap(from_fn(context::with_request_context));
    cfg.service(everything);
}

/// Registers the operations of the OpenAPI document with their middleware, for calls inside the process.
fn configure_operations(cfg: &mut ServiceConfig) {
    let operations = web::scope("")
        .configure(|cfg| documented_routes(&mut utoipa_actix_web::service_config::ServiceConfig::new(cfg)))
        .default_service(web::to(unmatched_route))
        .wrap(TracingLogger::<context::RequestSpans>::new())
        .wrap(from_fn(context::with_request_context));
    cfg.service(operations);
}

/// Registers only `/metrics`, for a separate address.
pub fn configure_metrics(cfg: &mut ServiceConfig) {
    cfg.service(health::metrics).default_service(web::to(unmatched_route));
}

fn documented_routes(cfg: &mut utoipa_actix_web::service_config::ServiceConfig<'_>) {
    cfg.service(health::healthz)
        .service(health::readyz)
        .service(health::metrics)
        .service(tenants::create_tenant)
        .service(tenants::list_tenants)
        .service(tenants::get_tenant)
        .service(tenants::edit_tenant)
        .service(tokens::create_token)
        .service(revocations::revoke_tokens)
        .service(tickets::create_ticket)
        .service(worlds::list_worlds)
        .service(worlds::put_world)
        .service(worlds::get_world)
        .service(worlds::delete_world)
        .service(saves::list_saves)
        .service(saves::create_save)
        // Before the object route, whose pattern also matches.
        .service(saves::restore_save)
        .service(saves::get_save)
        .service(saves::delete_save)
        .service(npcs::list_npcs)
        // Verbs before the object route, whose pattern also matches.
        .service(imports::import_card)
        .service(imports::export_card)
        .service(imports::export_png_card)
        .service(openai::adoption::adopt_npc)
        .service(npcs::put_npc)
        .service(npcs::get_npc)
        .service(npcs::delete_npc)
        .service(scenarios::list_scenarios)
        .service(scenarios::put_scenario)
        .service(scenarios::get_scenario)
        .service(scenarios::delete_scenario)
        .service(imports::import_lorebook)
        .service(imports::export_lorebook)
        .service(directives::list_directives)
        .service(directives::put_directive)
        .service(directives::get_directive)
        .service(directives::delete_directive)
        .service(lore::list_lore)
        .service(lore::put_lore)
        .service(lore::lore_history)
        .service(lore::get_lore)
        .service(lore::delete_lore)
        .service(progress::get_progress)
        .service(progress::put_progress)
        .configure(memory_routes)
        .configure(dialogue_routes)
        .service(socket::open_socket)
        .configure(operation_routes);
}

/// The routes for the state of worlds, and for what NPCs remember.
fn memory_routes(cfg: &mut utoipa_actix_web::service_config::ServiceConfig<'_>) {
    cfg.service(world_events::record_world_events)
        .service(world_state::get_world_state)
        .service(consolidation::run_consolidation)
        .service(curation::list_findings)
        .service(curation::list_curation_passes)
        .service(curation::run_curation)
        .service(curation::decide_finding)
        .service(actions::list_actions)
        // Verbs before the object route, whose pattern also matches.
        .service(actions::complete_action)
        .service(actions::refuse_action)
        .service(actions::get_action)
        .service(episodes::list_episodes)
        .service(insights::list_insights)
        .service(insights::delete_insight)
        .service(facts::list_facts)
        .service(facts::create_fact)
        // Verbs before the object routes, whose patterns also match.
        .service(facts::restore_fact)
        .service(facts::get_fact)
        .service(facts::edit_fact)
        .service(facts::remove_fact)
        .service(facts::fact_history)
        .service(facts::list_flags)
        .service(facts::decide_flag);
}

/// The routes for sessions and NPC conversations.
fn dialogue_routes(cfg: &mut utoipa_actix_web::service_config::ServiceConfig<'_>) {
    cfg.service(sessions::list_sessions)
        .service(sessions::create_session)
        .service(rewinds::interrupt_turn)
        .service(rewinds::rewind_session)
        .service(rewinds::regenerate_turn)
        .service(rewinds::resume_turn)
        .service(sessions::get_session)
        .service(sessions::delete_session)
        .service(sessions::preview_context)
        .service(turns::create_turn)
        .service(turns::list_turns)
        .service(turns::get_trace)
        .service(summaries::list_summaries)
        .service(learning::get_learning)
        .service(npc_conversations::list_conversations)
        .service(npc_conversations::create_conversation)
        .service(npc_conversations::step_conversation)
        .service(npc_conversations::interrupt_conversation)
        .service(npc_conversations::resume_conversation)
        .service(npc_conversations::join_conversation)
        .service(npc_conversations::list_lines)
        .service(npc_conversations::get_line_trace)
        .service(npc_conversations::list_conversation_summaries)
        .service(npc_conversations::get_conversation)
        .service(npc_conversations::delete_conversation);
}

/// The routes for settings, jobs and usage.
fn operation_routes(cfg: &mut utoipa_actix_web::service_config::ServiceConfig<'_>) {
    cfg.service(jobs::list_jobs)
        .service(jobs::retry_job)
        .service(curator::get_curator)
        .service(curator::get_tenant_curator)
        .service(tiers::get_tenant_settings)
        .service(tiers::put_tenant_settings)
        .service(chat_models::get_chat_models)
        .service(chat_models::put_chat_models)
        .service(tiers::get_world_settings)
        .service(tiers::get_npc_settings)
        .service(tiers::get_session_settings)
        .service(usage::get_usage)
        .service(usage::get_usage_of_worlds)
        .service(usage::get_usage_of_npcs)
        .service(audit::list_audit)
        .service(webhooks::list_webhooks)
        .service(webhooks::create_webhook)
        // Verbs before the object route, whose pattern also matches.
        .service(webhooks::rotate_webhook_key)
        .service(webhooks::replay_webhook)
        .service(webhooks::test_webhook)
        .service(webhooks::get_webhook)
        .service(webhooks::edit_webhook)
        .service(webhooks::delete_webhook)
        .service(webhooks::list_attempts);
}

/// Answers a path or a method without a route.
async fn unmatched_route(request: HttpRequest) -> Result<HttpResponse, Problem> {
    Err(match openapi::methods_of(request.path()) {
        None => Problem::new(Code::NotFound, format!("there is nothing at {}", request.path())),
        Some(methods) => method_not_allowed(&methods),
    })
}

fn method_not_allowed(methods: &str) -> Problem {
    Problem {
        allow: Some(methods.into()),
        ..Problem::new(Code::MethodNotAllowed, format!("this path offers {methods}"))
    }
}
