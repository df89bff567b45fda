//! Server messages beyond the events of a dialogue, and the schemas of both.
//!
//! `dialogue::events` has the events of a dialogue. A test checks their schemas against real events.

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    message_schema::MessageSchema,
    world_changes::{ActionRequested, ActionUndone, WorldChanged, WorldWatched},
};
use crate::errors::{FieldError, Problem};
use colloquy_core::ids::{DialogueId, NpcId};
use colloquy_dialogue::events::EventBody;

/// `session.created`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "session.created", deny_unknown_fields)]
pub struct SessionCreated<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    pub seq: u64,
    #[schema(value_type = String)]
    pub session_id: DialogueId,
    /// For `session.resume` after a lost connection.
    pub resume_token: &'a str,
    pub head_turn: u32,
}

/// `npc_conversation.created`: the watched conversation and its current state.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "npc_conversation.created", deny_unknown_fields)]
pub struct ConversationCreated<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    pub seq: u64,
    #[schema(value_type = Vec<String>)]
    pub npc_ids: &'a [NpcId],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<&'a str>,
    /// True if the conversation paces itself.
    pub auto: bool,
    pub paused: bool,
    /// Number of the last line; 0 before the first.
    pub head_turn: u32,
    /// Sequence number of the last event before the following events, not counting the `replayed` events.
    pub head_seq: u64,
    pub replayed: usize,
}

/// `session.resumed`: all missed events have been sent again.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "session.resumed", deny_unknown_fields)]
pub struct SessionResumed<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    pub head_seq: u64,
    pub head_turn: u32,
    pub replayed: usize,
}

/// `interrupt.done`: the result of an interrupt that caused no event with its `re`. Sent only if the interrupt had an
/// `event_id`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "interrupt.done", deny_unknown_fields)]
pub struct InterruptDone<'a> {
    pub re: &'a str,
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    /// `false`: no reply was running and no turn was taken back.
    pub interrupted: bool,
    /// The turn that was cut; without a cut, the last turn.
    pub turn: u32,
}

/// `auth.refreshed`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "auth.refreshed", deny_unknown_fields)]
pub struct AuthRefreshed<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    pub expires_at: DateTime<Utc>,
}

/// `pong`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "pong", deny_unknown_fields)]
pub struct Pong<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    #[schema(value_type = Option<f64>)]
    pub t: Option<&'a serde_json::Number>,
}

/// `error`. Sent before a close, to explain the close.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "error", deny_unknown_fields)]
pub struct ErrorEvent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub dialogue_id: Option<DialogueId>,
    /// Set when the error reports a lost turn of a dialogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    pub error: ErrorBody<'a>,
}

/// The error codes are the same as in problem documents.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorBody<'a> {
    pub code: &'a str,
    pub message: &'a str,
    #[schema(required = false)]
    pub param: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Every invalid field.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(required = false)]
    pub errors: &'a [FieldError],
}

#[must_use]
pub fn error_event(problem: &Problem, re: Option<&str>, dialogue: Option<DialogueId>) -> String {
    let event = ErrorEvent {
        re,
        dialogue_id: dialogue,
        seq: None,
        turn: None,
        error: ErrorBody {
            code: problem.code.as_str(),
            message: &problem.detail,
            param: problem.param.as_deref(),
            retry_after_ms: problem
                .retry_delay()
                .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            errors: &problem.errors,
        },
    };
    write_event(&event)
}

/// Serializes an event.
#[must_use]
pub fn write_event(event: &impl Serialize) -> String {
    // Serialization cannot fail: events hold only strings, numbers and lists.
    serde_json::to_string(event).unwrap_or_default()
}

/// `server.draining`: the server shuts down.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename = "server.draining", deny_unknown_fields)]
pub struct ServerDraining {
    /// Seconds until the server closes its sockets.
    pub deadline_s: u64,
}

/// Writes `server.draining`.
#[must_use]
pub fn draining_event(deadline: std::time::Duration) -> String {
    write_event(&ServerDraining {
        deadline_s: deadline.as_secs(),
    })
}

/// The fields of every event of a dialogue.
#[derive(ToSchema)]
#[allow(dead_code)]
struct EventFields {
    dialogue_id: String,
    seq: u64,
    /// `event_id` of the message that caused this event.
    #[schema(nullable = false)]
    re: Option<String>,
}

/// Returns the schema of each event of a dialogue. Only deltas have no `seq`.
fn dialogue_schemas() -> impl Iterator<Item = MessageSchema> {
    MessageSchema::for_variants::<EventBody, EventFields>().map(|mut event| {
        if event.kind.split('.').next_back() == Some("delta") {
            event.remove_field("seq");
        }
        event
    })
}

/// Lists every message of the server: type and schema.
#[must_use]
pub fn event_schemas() -> Vec<MessageSchema> {
    let mut schemas = vec![
        MessageSchema::for_type::<SessionCreated<'_>>("session.created"),
        MessageSchema::for_type::<SessionResumed<'_>>("session.resumed"),
        MessageSchema::for_type::<ConversationCreated<'_>>("npc_conversation.created"),
        MessageSchema::for_type::<InterruptDone<'_>>("interrupt.done"),
        MessageSchema::for_type::<WorldWatched<'_>>("world.watched"),
        MessageSchema::for_type::<WorldChanged<'_>>("world.changed"),
        MessageSchema::for_type::<ActionRequested<'_>>("action.requested"),
        MessageSchema::for_type::<ActionUndone<'_>>("action.undone"),
        MessageSchema::for_type::<AuthRefreshed<'_>>("auth.refreshed"),
        MessageSchema::for_type::<Pong<'_>>("pong"),
        MessageSchema::for_type::<ErrorEvent<'_>>("error"),
        MessageSchema::for_type::<ServerDraining>("server.draining"),
    ];
    // The socket adds its own fields to `error`.
    schemas.extend(dialogue_schemas().filter(|schema| schema.kind != "error"));
    schemas
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::{errors::Code, validate::schema_faults};
    use colloquy_core::ids::{DialogueKind, FactId, TurnId};
    use colloquy_dialogue::events::{DialogueEvent, DialogueRewound, EventError, MemoryChange, MemoryOp, ReplyDone};
    use colloquy_memory::{
        state::StateChange,
        turn::{TurnStatus, Usage},
    };
    use colloquy_ports::ledger::rewinds::{QuotedIn, RolledBack};

    fn check(text: &str) {
        let value: Value = serde_json::from_str(text).unwrap();
        let kind = value["type"].as_str().unwrap();
        let all = event_schemas();
        let described = all
            .iter()
            .find(|one| one.kind == kind)
            .unwrap_or_else(|| panic!("{kind} is not described"));
        let components: Map<String, Value> = described.components.iter().cloned().collect();
        let faults = schema_faults(&described.schema, &components, &value);
        assert!(
            faults.first_faults.is_empty(),
            "{kind} is not as described: {faults:?}\n{value}"
        );
    }

    fn dialogue() -> DialogueId {
        DialogueId::new(DialogueKind::Session, ulid::Ulid(7))
    }

    /// Checks the events of a dialogue with these bodies.
    fn check_bodies(bodies: &[EventBody]) {
        for body in bodies {
            let event = DialogueEvent {
                dialogue_id: dialogue(),
                seq: body.is_durable().then_some(4),
                re: Some("c2".into()),
                body: body.clone(),
            };
            check(&serde_json::to_string(&event).unwrap());
        }
    }

    fn npc() -> colloquy_core::ids::NpcId {
        "ergen".parse().unwrap()
    }

    fn failure() -> EventError {
        EventError {
            code: "model_failed",
            message: "no".into(),
            retry_after_ms: Some(5),
        }
    }

    fn reply_done(status: TurnStatus, error: Option<EventError>) -> ReplyDone {
        ReplyDone {
            turn: 1,
            npc_id: npc(),
            text: "Ah.".into(),
            status,
            usage: Usage::default(),
            cues: vec!["nod".into()],
            error,
        }
    }

    #[test]
    fn events_of_a_turn_match_their_schema() {
        let bodies = [
            EventBody::TurnStarted { turn: 1 },
            EventBody::ReplyDelta {
                turn: 1,
                offset: 0,
                npc_id: npc(),
                text: "Ah, ".into(),
            },
            EventBody::ReplyDone(reply_done(TurnStatus::Completed, None)),
            EventBody::ReplyDone(reply_done(TurnStatus::Failed, Some(failure()))),
            EventBody::TurnCommitted {
                turn: 1,
                turn_id: TurnId::from_u128(9),
            },
            EventBody::MemoryUpdated {
                turn: 1,
                facts: vec![MemoryChange {
                    id: FactId::from_u128(3),
                    content: "c".into(),
                    op: MemoryOp::Added,
                }],
            },
            EventBody::StateChanged {
                turn: 1,
                changes: vec![StateChange::Note { text: "n".into() }],
            },
            EventBody::ScenarioUnlocked {
                turn: 1,
                scenario_id: "well".parse().unwrap(),
                title: "The well".into(),
                npc_id: npc(),
            },
        ];
        check_bodies(&bodies);
    }

    #[test]
    fn other_dialogue_events_match_their_schema() {
        let bodies = [
            EventBody::DialogueRewound(DialogueRewound {
                turn: 6,
                heard_chars: Some(42),
                removed_turns: vec![7],
                reinstated_turns: vec![6],
                rolled_back: RolledBack::default(),
                quoted_in: vec![QuotedIn {
                    dialogue_id: dialogue(),
                    turn: 3,
                }],
            }),
            EventBody::SessionClosed { reason: "idle" },
            EventBody::NpcTurnStarted { turn: 1, npc_id: npc() },
            EventBody::NpcTurnDelta {
                turn: 1,
                offset: 0,
                npc_id: npc(),
                text: "Ah, ".into(),
            },
            EventBody::NpcTurnDone(reply_done(TurnStatus::Interrupted, None)),
            EventBody::NpcTurnCommitted {
                turn: 1,
                turn_id: TurnId::from_u128(9),
                npc_id: npc(),
            },
            EventBody::ConversationPaused {
                turn: 1,
                reason: "joined",
            },
            EventBody::ConversationResumed { turn: 1 },
            EventBody::ConversationEnded {
                turn: 1,
                reason: "max_turns",
            },
            EventBody::Error {
                turn: Some(1),
                error: failure(),
            },
        ];
        check_bodies(&bodies);
    }

    #[test]
    fn server_events_match_their_schema() {
        check(&write_event(&SessionCreated {
            re: Some("c1"),
            dialogue_id: dialogue(),
            seq: 1,
            session_id: dialogue(),
            resume_token: "r",
            head_turn: 0,
        }));
        check(&write_event(&InterruptDone {
            re: "c1",
            dialogue_id: dialogue(),
            interrupted: true,
            turn: 3,
        }));
        check(&write_event(&SessionResumed {
            re: None,
            dialogue_id: dialogue(),
            head_seq: 44,
            head_turn: 3,
            replayed: 3,
        }));
        check(&write_event(&ConversationCreated {
            re: Some("c1"),
            dialogue_id: dialogue(),
            seq: 1,
            npc_ids: &["ergen".parse().unwrap()],
            topic: Some("the mill"),
            auto: true,
            paused: false,
            head_turn: 3,
            head_seq: 12,
            replayed: 0,
        }));
        check(&write_event(&AuthRefreshed {
            re: None,
            expires_at: DateTime::UNIX_EPOCH,
        }));
        check(&write_event(&Pong {
            re: None,
            t: Some(&serde_json::Number::from(123)),
        }));
        check(&draining_event(std::time::Duration::from_secs(20)));
        check(&error_event(
            &Problem::invalid_field("text", "is missing"),
            Some("c1"),
            Some(dialogue()),
        ));
        let limited = error_event(&Problem::new(Code::RateLimited, "slow down"), None, None);
        check(&limited);
        let value: Value = serde_json::from_str(&limited).unwrap();
        assert_eq!(value["error"]["param"], Value::Null);
        assert_eq!(value["error"]["retry_after_ms"], json!(1_000));
    }
}
