//! The arguments of the chat.

use crate::{app::demo, cli::banner::DEMO_PLAYER};
use colloquy_core::ids::{NpcId, PlayerId, TenantId, WorldId};

#[derive(Debug, Clone, clap::Args)]
pub(in super::super) struct ChatArgs {
    /// The NPC to talk with.
    #[arg(long, default_value = demo::ENGLISH_NPC)]
    pub(super) npc: NpcId,
    /// The player to speak as.
    #[arg(long, default_value = DEMO_PLAYER)]
    pub(super) player: PlayerId,
    /// The world the NPC lives in.
    #[arg(long, default_value = demo::WORLD)]
    pub(super) world: WorldId,
    /// The tenant the world belongs to.
    #[arg(long, default_value = demo::TENANT)]
    pub(super) tenant: TenantId,
    /// The server's URL, such as http://127.0.0.1:8080. The default is the configured address.
    #[arg(long)]
    pub(super) url: Option<String>,
    /// A player's token. Needed for a server whose secret is not in this configuration.
    #[arg(long, env = "COLLOQUY_TOKEN", hide_env_values = true)]
    pub(super) token: Option<String>,
    /// How long a character of a watched line takes to be said, in ms.
    #[arg(long, default_value_t = 60, value_name = "MS")]
    pub(super) ms_per_char: u32,
}
