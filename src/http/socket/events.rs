//! What the server sends beyond the events of a dialogue, and the schemas of both.
//!
//! The events of a dialogue are written by `dialogue::events`; their schemas here are checked
//! against what is really written by a test.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    dialogue::events::MemoryChange,
    http::errors::{FieldError, Problem},
    ids::DialogueId,
    memory::turn::{TurnStatus, Usage},
};

/// A message type with its schema, for the AsyncAPI document.
pub struct Described {
    pub kind: &'static str,
    pub schema: Value,
    /// Schemas it refers to.
    pub components: Vec<(String, Value)>,
}

impl Described {
    /// The description of `T` under the type name `kind`.
    pub fn of<T: ToSchema>(kind: &'static str) -> Self {
        let mut schemas = Vec::new();
        T::schemas(&mut schemas);
        let mut schema = serde_json::to_value(T::schema()).unwrap_or_default();
        if let Some(name) = schema.pointer_mut("/properties/type") {
            *name = serde_json::json!({"const": kind});
        }
        Self {
            kind,
            schema,
            components: schemas
                .into_iter()
                .filter_map(|(name, schema)| Some((name, serde_json::to_value(schema).ok()?)))
                .collect(),
        }
    }
}

/// `session.created`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionCreated<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
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

/// `session.resumed`: everything missed has come again.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionResumed<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    pub head_seq: u64,
    pub head_turn: u32,
    pub replayed: usize,
}

/// `auth.refreshed`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthRefreshed<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    pub expires_at: DateTime<Utc>,
}

/// `pong`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Pong<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    #[schema(value_type = Option<f64>)]
    pub t: Option<&'a serde_json::Number>,
}

/// `error`. Goes out before a close that it explains.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorEvent<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub dialogue_id: Option<DialogueId>,
    /// Set when a dialogue tells of a turn that was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    pub error: ErrorBody<'a>,
}

/// The same codes as in problem documents.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorBody<'a> {
    pub code: &'a str,
    pub message: &'a str,
    #[schema(required = false)]
    pub param: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Every bad field.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(required = false)]
    pub errors: &'a [FieldError],
}

/// An `error` event.
#[must_use]
pub fn error(problem: &Problem, re: Option<&str>, dialogue: Option<DialogueId>) -> String {
    let event = ErrorEvent {
        kind: "error",
        re,
        dialogue_id: dialogue,
        seq: None,
        turn: None,
        error: ErrorBody {
            code: problem.code.as_str(),
            message: &problem.detail,
            param: problem.param.as_deref(),
            retry_after_ms: problem
                .wait()
                .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            errors: &problem.errors,
        },
    };
    write(&event)
}

/// An event as text.
#[must_use]
pub fn write(event: &impl Serialize) -> String {
    // Events hold strings, numbers and lists only, so writing them cannot fail.
    serde_json::to_string(event).unwrap_or_default()
}

macro_rules! dialogue_events {
    ($($(#[$doc:meta])* $name:ident = $kind:literal { $($(#[$field:meta])* $member:ident : $type:ty,)* })+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, ToSchema, serde::Deserialize)]
            #[serde(deny_unknown_fields)]
            #[allow(dead_code)]
            struct $name {
                #[serde(rename = "type")]
                kind: String,
                dialogue_id: String,
                /// `event_id` of the message that caused it.
                #[schema(nullable = false)]
                re: Option<String>,
                $($(#[$field])* $member: $type,)*
            }
        )+
        fn dialogue_schemas() -> Vec<Described> {
            vec![$(Described::of::<$name>($kind),)+]
        }
    };
}

dialogue_events! {
    /// A line is being answered.
    TurnStarted = "turn.started" { seq: u64, turn: u32, }
    /// A piece of the reply. Not durable; may be joined with the next.
    ReplyDelta = "reply.delta" {
        turn: u32,
        /// Where the piece begins, in Unicode scalar values.
        offset: u64,
        npc_id: String,
        text: String,
    }
    /// The reply's end: once per started turn.
    ReplyDone = "reply.done" {
        seq: u64,
        turn: u32,
        npc_id: String,
        text: String,
        status: TurnStatus,
        usage: Usage,
        /// Emotion and gesture tags, cut from the text.
        #[schema(nullable = false)]
        cues: Option<Vec<String>>,
        /// Set when `status` is `failed`.
        #[schema(nullable = false)]
        error: Option<TurnFailure>,
    }
    /// The turn is durable.
    TurnCommitted = "turn.committed" { seq: u64, turn: u32, turn_id: String, }
    /// What a turn taught. Only with `include`, never for players.
    MemoryUpdated = "memory.updated" { seq: u64, turn: u32, #[schema(value_type = Vec<MemoryChange>)] facts: Value, }
    /// What a turn changed in the world. Only with `include`, never for players.
    StateChanged = "state.changed" { seq: u64, turn: u32, #[schema(value_type = Vec<Object>)] changes: Value, }
    /// The session has ended.
    SessionClosed = "session.closed" { seq: u64, reason: String, }
}

/// Why a turn failed.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct TurnFailure {
    code: String,
    message: String,
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
}

/// `server.draining`, sent by a server that shuts down.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerDraining {
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Seconds until sockets are closed.
    pub deadline_s: u64,
}

/// The text of `server.draining`.
#[must_use]
pub fn draining(deadline: std::time::Duration) -> String {
    write(&ServerDraining {
        kind: "server.draining",
        deadline_s: deadline.as_secs(),
    })
}

/// Every message the server may send: its type and its schema.
#[must_use]
pub fn schemas() -> Vec<Described> {
    let mut all = vec![
        Described::of::<SessionCreated<'_>>("session.created"),
        Described::of::<SessionResumed<'_>>("session.resumed"),
        Described::of::<AuthRefreshed<'_>>("auth.refreshed"),
        Described::of::<Pong<'_>>("pong"),
        Described::of::<ErrorEvent<'_>>("error"),
        Described::of::<ServerDraining>("server.draining"),
    ];
    all.extend(dialogue_schemas());
    all
}
