//! The startup message of a fresh server: how to talk to it.

use std::time::Duration;

use super::token;
use crate::{
    app::{Application, demo},
    config::Config,
};
use colloquy_core::scope::Role;
use colloquy_tenancy::auth::TokenClaims;

pub(super) const DEMO_PLAYER: &str = "you";
const DEMO_TOKEN_TTL: Duration = Duration::from_hours(24);

/// Prints the message to standard output. Logs go to standard error.
pub(super) fn print_banner(config: &Config, application: &Application) {
    let address = application.address();
    println!("\nColloquy {} listens on http://{address}", env!("CARGO_PKG_VERSION"));
    if application.services().models.is_offline() {
        println!(
            "No language model is configured: the scripted model answers. It follows patterns, not meaning.\n\
             Set COLLOQUY__LLM__PRESET, COLLOQUY__LLM__MODEL and COLLOQUY__LLM__API_KEY for a real one, and ask \
             `colloquy doctor`."
        );
    }
    if application.services().embedder.info().offline {
        println!("No embedder is configured: memories are found by words, not by meaning.");
    }
    // Only the token of a demo with a generated secret may appear on a screen or in a log.
    if config.demo.enabled && config.auth.needs_secret() {
        print_demo(config, application);
    }
    if config.http.docs {
        println!("\n  API      http://{address}/docs   (the socket: http://{address}/asyncapi.json)");
    }
    println!("  Settings colloquy config\n  Stop     Ctrl-C\n");
}

fn print_demo(config: &Config, application: &Application) {
    let claims = (|| {
        Some(TokenClaims {
            sub: DEMO_PLAYER.into(),
            tid: demo::TENANT.parse().ok()?,
            role: Role::Player,
            pid: Some(DEMO_PLAYER.parse().ok()?),
            wid: Some(demo::WORLD.parse().ok()?),
        })
    })();
    let Some(token) = claims.and_then(|claims| token::sign_token(config, &claims, DEMO_TOKEN_TTL).ok()) else {
        return;
    };
    let address = application.address();
    let program = std::env::args().next().unwrap_or_else(|| "colloquy".into());
    let world = demo::WORLD;
    let npc = demo::ENGLISH_NPC;
    let second = demo::SECOND_ENGLISH_NPC;
    let korean = demo::KOREAN_NPC;
    print!(
        "\nThe world `{world}` has three NPCs: {npc} and {second} (English), and {korean} (Korean). Talk with them "
    );
    if cfg!(feature = "dev-commands") {
        print!(
            "in another terminal:\n\
             \n  {program} chat --npc {npc}\n  {program} chat --npc {korean}\n\
             \nIn the chat, `/watch {npc} {second} about the weather` lets two of them talk with each other.\n\
             \nOr "
        );
    }
    println!(
        "with any WebSocket client, as player `{DEMO_PLAYER}` (the token is good for a day):\n\
         \n  TOKEN={token}\
         \n  websocat -H \"Authorization: Bearer $TOKEN\" ws://{address}/v1/ws\
         \n  {{\"type\":\"session.create\",\"world_id\":\"{world}\",\"npc_id\":\"{npc}\"}}\
         \n  {{\"type\":\"player.say\",\"session_id\":\"<from session.created>\",\"text\":\"Hello! I like grapes.\"}}"
    );
}
