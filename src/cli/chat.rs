//! `colloquy chat`: talks with an NPC in the terminal.

use std::time::Duration;

use anyhow::bail;

use super::{banner::DEMO_PLAYER, process::block_on, token};
use crate::{
    app::demo,
    config::{Config, ListenAddress},
};
use colloquy_chat::{ChatOptions, run_chat};
use colloquy_core::{
    ids::{NpcId, PlayerId, TenantId, WorldId},
    scope::Role,
};
use colloquy_tenancy::auth::TokenClaims;

const TOKEN_LIFE: Duration = Duration::from_hours(24);

#[derive(Debug, Clone, clap::Args)]
pub(super) struct ChatArgs {
    /// The NPC to talk with.
    #[arg(long, default_value = demo::ENGLISH_NPC)]
    npc: NpcId,
    /// The player to speak as.
    #[arg(long, default_value = DEMO_PLAYER)]
    player: PlayerId,
    /// The world the NPC lives in.
    #[arg(long, default_value = demo::WORLD)]
    world: WorldId,
    /// The tenant the world belongs to.
    #[arg(long, default_value = demo::TENANT)]
    tenant: TenantId,
    /// The server's URL, such as http://127.0.0.1:8080. The default is the configured address.
    #[arg(long)]
    url: Option<String>,
    /// A player's token. Needed for a server whose secret is not in this configuration.
    #[arg(long, env = "COLLOQUY_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// How long a character of a watched line takes to be said, in ms.
    #[arg(long, default_value_t = 60, value_name = "MS")]
    ms_per_char: u32,
}

pub(super) fn run(args: ChatArgs, config: &Config) -> anyhow::Result<()> {
    let base = base_url(&args, config)?;
    let claims = |role, player: Option<PlayerId>| TokenClaims {
        sub: args.player.to_string(),
        tid: args.tenant.clone(),
        role,
        wid: player.as_ref().map(|_| args.world.clone()),
        pid: player,
    };
    let (token, backend_token) = match &args.token {
        Some(token) => (token.clone(), None),
        None => (
            token::sign_token(config, &claims(Role::Player, Some(args.player.clone())), TOKEN_LIFE)?,
            Some(token::sign_token(config, &claims(Role::Backend, None), TOKEN_LIFE)?),
        ),
    };
    let options = ChatOptions {
        npc: args.npc,
        player: args.player,
        world: args.world,
        ms_per_char: args.ms_per_char,
    };
    block_on(run_chat(options, base, &token, backend_token))
}

fn base_url(args: &ChatArgs, config: &Config) -> anyhow::Result<String> {
    let base = if let Some(url) = &args.url {
        url.replacen("ws", "http", usize::from(url.starts_with("ws")))
    } else {
        let mut address = config
            .server
            .listen
            .parse::<ListenAddress>()
            .map_err(anyhow::Error::msg)?
            .0;
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        format!("http://{address}")
    };
    if !base.starts_with("http://") {
        bail!("--url must start with http:// or ws://; for TLS use a client that has it");
    }
    Ok(base.trim_end_matches("/v1/ws").trim_end_matches('/').to_owned())
}
