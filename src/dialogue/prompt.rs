//! Prompt assembly (ALGORITHMS §9).

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Services,
    turn::{TurnError, TurnInput},
};
use crate::{memory::trace::SectionTrace, ports::llm::ChatMessage};

/// The prompt templates of every language.
pub struct Templates {}

impl Templates {
    /// The templates that ship in `config/prompts/`, overridden by files of the same name in `dir`.
    pub fn load(dir: Option<&std::path::Path>) -> anyhow::Result<Self> {
        let _ = dir;
        todo!()
    }
}

/// A prompt that would be sent, for `POST /v1/sessions/{id}/context`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Preview {
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<ChatMessage>,
    pub sections: Vec<SectionTrace>,
    pub prompt_tokens: u32,
    /// SHA-256, hexadecimal.
    pub prompt_hash: String,
}

/// Assembles the prompt a line would get, without calling the reply model.
pub async fn preview(services: &Services, input: &TurnInput) -> Result<Preview, TurnError> {
    let _ = (services, input);
    todo!()
}
