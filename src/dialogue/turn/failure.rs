//! The events that report a turn that did not end normally.

use std::time::Duration;

use super::input::{TurnError, TurnInput};
use crate::events::{EventError, ReplyDone};
use colloquy_memory::turn::{TurnStatus, Usage};
use colloquy_ports::{StoreError, ledger::usage::OverBudget, llm::LlmError};

/// The suggested pause before a retry, if the model or store names no time.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Returns the end of a turn that leaves nothing behind. A cut before the first character is not a fault.
pub(super) fn failed_reply_done(input: &TurnInput, error: &TurnError) -> ReplyDone {
    let (status, error) = match error {
        TurnError::CutBeforeReply | TurnError::CalledTools(_) | TurnError::Unsaid => (TurnStatus::Interrupted, None),
        fault => (TurnStatus::Failed, Some(event_error(fault))),
    };
    ReplyDone {
        turn: input.number,
        npc_id: input.npc.id.clone(),
        text: String::new(),
        status,
        usage: Usage::default(),
        cues: Vec::new(),
        error,
    }
}

/// The code, the message, and the suggested pause before a retry.
type Failure = (&'static str, &'static str, Option<Duration>);

fn budget_failure(over: &OverBudget) -> Failure {
    let retry_after = Some(over.retry_after);
    if over.of_player() {
        let message = "this player has used up its share for now";
        return ("player_budget_spent", message, retry_after);
    }
    let message = "this world's studio has used up what it may use for now";
    ("budget_spent", message, retry_after)
}

fn model_failure(error: &LlmError) -> Failure {
    match error {
        LlmError::OverBudget(over) => budget_failure(over),
        LlmError::Timeout => ("model_timeout", "the language model did not answer in time", None),
        LlmError::Unavailable(_) => (
            "model_unavailable",
            "the language model cannot be reached",
            Some(DEFAULT_RETRY_AFTER),
        ),
        LlmError::RateLimited { retry_after } => {
            ("model_unavailable", "the language model limits requests", *retry_after)
        }
        LlmError::Refused(_) => ("model_failed", "the language model refused the request", None),
        LlmError::Broken(_) => ("model_failed", "the language model's answer broke off", None),
    }
}

/// Returns a turn's failure in the form for clients, with the reply or later. Codes are the codes of the REST problems.
/// Messages name no endpoint, path or statement.
#[must_use]
pub fn event_error(error: &TurnError) -> EventError {
    let (code, message, retry_after) = match error {
        TurnError::OverBudget(over) => budget_failure(over),
        TurnError::Model(error) => model_failure(error),
        TurnError::TimedOut => ("model_timeout", "the turn took longer than it may", None),
        TurnError::Store(StoreError::Unavailable(_) | StoreError::Collided(_) | StoreError::Disconnected(_)) => (
            "store_unavailable",
            "a store cannot be reached; the turn was not kept",
            Some(DEFAULT_RETRY_AFTER),
        ),
        TurnError::Store(StoreError::NotWritable(_)) => (
            "store_unavailable",
            "nothing can be stored at the moment; the turn was not kept",
            Some(DEFAULT_RETRY_AFTER),
        ),
        TurnError::Store(_) | TurnError::Template(_) => ("internal", "the server failed; the turn was not kept", None),
        TurnError::Fenced => (
            "wrong_node",
            "this dialogue moved to another node; the turn was not kept",
            None,
        ),
        TurnError::Closed => ("session_closed", "the dialogue is closed; the turn was not kept", None),
        TurnError::KeyTaken => ("key_taken", "the key belongs to another turn", None),
        TurnError::Unsaid => ("turn_unsaid", "the dialogue was taken back to an earlier turn", None),
        TurnError::StaleHead => (
            "stale_head",
            "the dialogue has gone on, or back, since the request was read",
            None,
        ),
        TurnError::NpcDead => ("npc_dead", "the NPC is dead, and does not answer", None),
        TurnError::CutBeforeReply => ("turn_cut", "the turn was cut before the reply began", None),
        TurnError::CalledTools(_) => (
            "turn_cut",
            "the model called tools of the client; the turn comes with their results",
            None,
        ),
        TurnError::PromptTooLarge { .. } => (
            "prompt_too_large",
            "the persona and rules alone exceed the prompt budget",
            None,
        ),
    };
    EventError {
        code,
        message: message.to_owned(),
        retry_after_ms: retry_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
    }
}
