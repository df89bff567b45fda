//! Calls of the client's tools: the reply that has them is no turn, and the turn comes with the results.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::answer::FinishReason;
use crate::{awaited_turn::completed_turn, errors::Problem};
use colloquy_core::scope::Role;
use colloquy_dialogue::turn::{CalledTools, ChatRequest, ReplyEnd, TurnError};
use colloquy_memory::turn::{Turn, TurnStatus, Usage};

/// How a reply ended.
pub enum ReplyOutcome {
    Turn(Arc<Turn>),
    /// The reply called tools, and nothing is stored.
    ToolCalls(Arc<CalledTools>),
}

impl ReplyOutcome {
    /// Reads the end of a turn.
    ///
    /// # Errors
    /// The turn failed, or the session ended before the turn.
    pub fn from_ended<E>(result: Result<Result<Arc<Turn>, Arc<TurnError>>, E>) -> Result<Self, Problem> {
        if let Ok(Err(error)) = &result
            && let TurnError::CalledTools(calls) = &**error
        {
            return Ok(Self::ToolCalls(Arc::clone(calls)));
        }
        completed_turn(result).map(Self::Turn)
    }

    pub const fn turn(&self) -> Option<&Arc<Turn>> {
        match self {
            Self::Turn(turn) => Some(turn),
            Self::ToolCalls(_) => None,
        }
    }

    /// Returns the reply, with the part that was said before earlier calls.
    pub fn text(&self) -> &str {
        match self {
            Self::Turn(turn) => &turn.reply_text,
            Self::ToolCalls(called) => &called.text,
        }
    }

    /// Returns the tokens of the reply, as the role may see them.
    pub fn usage_for(&self, role: Role) -> Usage {
        match self {
            Self::Turn(turn) => turn.usage.seen_by(role),
            Self::ToolCalls(called) => called.usage.seen_by(role),
        }
    }

    /// Returns why the reply ended. `chat` is the request of the turn.
    pub fn finish_reason(&self, chat: &ChatRequest) -> FinishReason {
        match self {
            Self::Turn(turn) => turn_finish_reason(chat, turn),
            Self::ToolCalls(called) if called.at_limit => FinishReason::Length,
            Self::ToolCalls(_) => FinishReason::ToolCalls,
        }
    }

    /// Returns whole calls.
    pub fn tool_calls(&self) -> Vec<Value> {
        match self {
            Self::Turn(_) => Vec::new(),
            Self::ToolCalls(called) => merge_tool_calls(&called.pieces),
        }
    }
}

/// Returns why the reply of a turn ended. `chat` is the request of the turn.
pub fn turn_finish_reason(chat: &ChatRequest, turn: &Turn) -> FinishReason {
    let is_at_limit = chat.reply_end() == Some(ReplyEnd::AtLimit);
    if is_at_limit || turn.status == TurnStatus::Interrupted {
        FinishReason::Length
    } else {
        FinishReason::Stop
    }
}

/// Joins the pieces of streamed calls to whole calls.
///
/// A piece belongs to the call with its `index`; without an index, to the call with its `id`, or else to the last call.
/// A new id under a known index is a new call, because some endpoints send each call whole with the index 0.
fn merge_tool_calls(pieces: &[Value]) -> Vec<Value> {
    let mut calls: Vec<Map<String, Value>> = Vec::new();
    for piece in pieces.iter().filter_map(Value::as_object) {
        let id = id_of(piece);
        let index = piece.get("index").filter(|index| index.is_number());
        let position = match (index, id) {
            (Some(index), _) => calls.iter().rposition(|call| call.get("index") == Some(index)),
            (None, Some(id)) => calls.iter().rposition(|call| id_of(call) == Some(id)),
            (None, None) => calls.len().checked_sub(1),
        };
        let is_same = |call: &Map<String, Value>| id.is_none() || id_of(call).is_none() || id == id_of(call);
        match position.filter(|position| is_same(&calls[*position])) {
            Some(position) => merge_fields(&mut calls[position], piece),
            None => calls.push(piece.clone()),
        }
    }
    let merged_calls = calls.into_iter().map(|mut call| {
        call.remove("index");
        Value::Object(call)
    });
    merged_calls.collect()
}

fn id_of(call: &Map<String, Value>) -> Option<&str> {
    call.get("id").and_then(Value::as_str).filter(|id| !id.is_empty())
}

/// Adds the fields of a piece to a call. Arguments are joined; of other texts, the last one that is not empty counts.
fn merge_fields(call: &mut Map<String, Value>, piece: &Map<String, Value>) {
    for (name, value) in piece {
        match (call.get_mut(name), value) {
            (Some(Value::Object(target)), Value::Object(addition)) => merge_fields(target, addition),
            (Some(Value::String(target)), Value::String(addition)) if name == "arguments" => target.push_str(addition),
            (Some(_), Value::Null) => {}
            (Some(_), Value::String(addition)) if addition.is_empty() => {}
            _ => {
                call.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Gives whole calls their `index`, as the pieces of a stream have.
pub fn index_tool_calls(calls: &[Value]) -> Vec<Value> {
    let mut pieces = calls.to_vec();
    for (index, piece) in pieces.iter_mut().enumerate() {
        if let Value::Object(fields) = piece {
            fields.entry("index").or_insert_with(|| index.into());
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(pieces: &Value) -> Value {
        Value::Array(merge_tool_calls(pieces.as_array().map_or(&[], Vec::as_slice)))
    }

    #[test]
    fn pieces_are_joined_by_their_index() {
        let pieces = json!([
            {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}},
            {"index": 1, "id": "b", "type": "function", "function": {"name": "ask", "arguments": "{\"of\""}},
            {"index": 0, "function": {"arguments": "{}"}},
            {"index": 1, "id": "", "type": null, "function": {"name": "", "arguments": ":1}"}},
        ]);
        assert_eq!(
            merged(&pieces),
            json!([
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "ask", "arguments": "{\"of\":1}"}},
            ])
        );
    }

    #[test]
    fn pieces_without_an_index_belong_to_their_id_or_to_the_last_call() {
        let pieces = json!([
            {"id": "a", "function": {"name": "look", "arguments": "{"}}, {"function": {"arguments": "oops"}},
            {"id": "b", "function": {"name": "ask", "arguments": "{}"}}, {"id": "a", "function": {"arguments": "!"}},
            "no call",
        ]);
        assert_eq!(
            merged(&pieces),
            json!([
                {"id": "a", "function": {"name": "look", "arguments": "{oops!"}},
                {"id": "b", "function": {"name": "ask", "arguments": "{}"}},
            ])
        );
        let same_index = json!([{"index": 0, "id": "a", "function": {}}, {"index": 0, "id": "b", "function": {}}]);
        assert_eq!(merged(&same_index).as_array().map(Vec::len), Some(2));
    }
}
