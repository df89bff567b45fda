//! `colloquy chat`: a terminal client over the WebSocket for trying a server without other tools. Lines may also come
//! from a pipe.

mod args;
mod client;
mod commands;
mod connection;
mod conversation;
mod events;
mod input;
mod inspect;
mod playback;
mod render;
mod rest;
mod rewinds;
mod session;
mod turns;
mod watch;

use std::time::Duration;

use anyhow::bail;

pub(super) use self::args::ChatArgs;
use self::{client::ChatClient, connection::ChatSocket, rest::RestClient};
use super::{process::block_on, token};
use crate::config::{Config, ListenAddress};
use colloquy_core::{ids::PlayerId, scope::Role};
use colloquy_tenancy::auth::TokenClaims;

const TOKEN_LIFE: Duration = Duration::from_hours(24);

pub(super) fn run(args: &ChatArgs, config: &Config) -> anyhow::Result<()> {
    block_on(async {
        let base = base_url(args, config)?;
        let claims = |role, player: Option<PlayerId>| TokenClaims {
            sub: args.player.to_string(),
            tid: args.tenant.clone(),
            role,
            wid: player.as_ref().map(|_| args.world.clone()),
            pid: player,
        };
        let (token, backend) = match &args.token {
            Some(token) => (token.clone(), None),
            None => (
                token::sign_token(config, &claims(Role::Player, Some(args.player.clone())), TOKEN_LIFE)?,
                Some(token::sign_token(config, &claims(Role::Backend, None), TOKEN_LIFE)?),
            ),
        };
        let socket = ChatSocket::open_socket(&base, &token).await?;
        let mut chat = ChatClient::open_session(args, socket, RestClient::new(base, backend)?).await?;
        let result = chat.run_conversation().await;
        match &result {
            Ok(()) if !chat.leaving => return result,
            Ok(()) => {}
            Err(error) => eprintln!("colloquy: {error:#}"),
        }
        // A read of the input cannot be cancelled, and the runtime would wait for the read.
        std::process::exit(i32::from(result.is_err()))
    })
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
