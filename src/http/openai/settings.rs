//! Settings of the paths of the OpenAI API. Defaults are in `config/default.toml`, section `[chat]`.

use serde::Deserialize;

pub use colloquy_memory::chat_models::ChatModel;

/// The model name of characters that the chat program describes.
pub const PROXY_MODEL: &str = "colloquy/proxy";

/// Turns of an imported transcript that count as one line of the player: an import is stored and learned from, but asks
/// for no reply.
pub const IMPORTED_TURNS_PER_LINE: usize = 20;

/// Limits and model names of chat programs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatSettings {
    /// Largest request body, in bytes; default 8,388,608.
    pub max_body_bytes: usize,
    /// Milliseconds without a word of the model after which an open stream gets a comment line; 10,000, a sixth of the
    /// minute after which common proxies close a silent connection.
    #[serde(skip)]
    pub heartbeat_ms: u64,
    /// True if tokens of players may use characters that the chat program describes; default false.
    pub players_use_proxy: bool,
    /// True if tokens of players may bring in replies that an authored NPC has not said to the same line; default
    /// false.
    pub players_import: bool,
    /// True if tokens of players see the NPCs of their worlds in the list of models; default true.
    pub players_list_models: bool,
    /// The model of requests to `/v1/responses` that name neither a model nor an earlier response; default none.
    pub default_model: Option<String>,
    /// Largest event of a client of `/v1/realtime`, in bytes; 262,144, as the body of a request by default.
    #[serde(skip)]
    pub max_event_bytes: usize,
    /// Characters that are spoken in a second, for positions in ms of clients of `/v1/realtime`; default 15.
    pub spoken_chars_per_s: u32,
    /// Origins of web pages that may call these paths, or `*`; default none.
    pub allowed_origins: Vec<String>,
    /// Further model names. A name that a tenant stores comes first.
    pub models: Vec<ChatModel>,
}

impl Default for ChatSettings {
    fn default() -> Self {
        Self {
            max_body_bytes: 8_388_608,
            heartbeat_ms: 10_000,
            players_use_proxy: false,
            players_import: false,
            players_list_models: true,
            default_model: None,
            max_event_bytes: 262_144,
            spoken_chars_per_s: 15,
            allowed_origins: Vec::new(),
            models: Vec::new(),
        }
    }
}
