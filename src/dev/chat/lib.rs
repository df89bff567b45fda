//! A terminal client over the WebSocket for trying a server without other tools. Lines may also come from a pipe.

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

use self::{client::ChatClient, connection::ChatSocket, rest::RestClient};
use colloquy_core::ids::{NpcId, PlayerId, WorldId};

/// Who talks with whom.
pub struct ChatOptions {
    pub npc: NpcId,
    pub player: PlayerId,
    pub world: WorldId,
    /// How long a character of a watched line takes to be said, in ms.
    pub ms_per_char: u32,
}

/// Talks until the input ends. `base` is the server's URL without a path, `token` the player's token. Without a
/// `backend_token`, commands of the game's backend fail.
///
/// # Errors
/// If the server cannot be reached, or did not answer every line of a pipe.
pub async fn run_chat(
    options: ChatOptions,
    base: String,
    token: &str,
    backend_token: Option<String>,
) -> anyhow::Result<()> {
    let socket = ChatSocket::open_socket(&base, token).await?;
    let mut chat = ChatClient::open_session(options, socket, RestClient::new(base, backend_token)?).await?;
    let result = chat.run_conversation().await;
    match &result {
        Ok(()) if !chat.leaving => return result,
        Ok(()) => {}
        Err(error) => eprintln!("colloquy: {error:#}"),
    }
    // A read of the input cannot be cancelled, and the runtime would wait for the read.
    std::process::exit(i32::from(result.is_err()))
}
