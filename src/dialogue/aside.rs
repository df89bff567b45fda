//! An answer beside the talk: a chat program asks the model for a title, a summary or a line of its user. The answer is no
//! turn, and nothing is learned from it.

use std::sync::Arc;

use super::{
    Services,
    models::{ModelRequest, run_admitted, with_usage_owner},
    turn::TurnError,
};
use colloquy_core::{ids::PlayerId, scope::TenantScope};
use colloquy_memory::{authored::Npc, turn::Usage};
use colloquy_ports::{
    ledger::usage::UsageOwner,
    llm::{ChatMessage, ClientFields, Task},
};

/// What a chat program asks beside the talk.
#[derive(Debug, Clone)]
pub struct AsideRequest {
    /// The messages of the chat program, as they came. Nothing of the server is added.
    pub messages: Vec<ChatMessage>,
    pub client: Arc<ClientFields>,
    /// The player whose share of the budgets counts.
    pub player: PlayerId,
}

/// The answer of the reply model.
#[derive(Debug, Clone, PartialEq)]
pub struct AsideAnswer {
    pub text: String,
    /// Calls of the client's tools, as they came.
    pub tool_calls: Vec<serde_json::Value>,
    pub usage: Usage,
    /// True if the answer ended at the output cap.
    pub at_cap: bool,
}

/// Asks the reply model of `npc`.
///
/// # Errors
/// The model failed, or the tenant or the player has used up a budget.
pub async fn answer_aside(
    services: &Services,
    scope: &TenantScope,
    npc: &Npc,
    request: AsideRequest,
) -> Result<AsideAnswer, TurnError> {
    let budgets = services.models.budgets();
    // An admitted answer may finish even if a budget runs out meanwhile. Nothing is stored, so the place is free afterwards.
    let _place = budgets
        .reserve_turn(&services.ledger, scope, Some(&request.player))
        .await?;
    let owner = UsageOwner {
        world: npc.world.clone(),
        npc: npc.id.clone(),
    };
    let ask = ModelRequest {
        task: Task::Reply,
        messages: request.messages,
        json_schema: None,
        model: services.reply_model(npc),
        more_room: false,
        client: Some(request.client),
    };
    let asking = run_admitted(services.models.request_completion(scope, ask));
    let (answer, _) = with_usage_owner(owner, Some(request.player), asking).await;
    let answer = answer?;
    Ok(AsideAnswer {
        text: answer.text,
        tool_calls: answer.tool_calls,
        usage: answer.usage,
        at_cap: answer.at_cap,
    })
}
