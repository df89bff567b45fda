//! A player speaks over a socket that is sometimes cut. The client resumes as in docs/protocol.md#resume, with the
//! number of the last received event.

use serde_json::{Value, json};

use super::standing_lines;
use crate::support::{RestClient, TestSocket};

/// The codes for a reconnect: the node stops, or another node owns the dialogue.
pub(super) const RETRY_CODES: [&str; 2] = ["draining", "wrong_node"];

pub(super) struct ResilientClient {
    pub session: String,
    token: String,
    /// The number of the last received event. The first is the number of `session.created`.
    pub seen: u64,
    /// The lines with committed turns, in order.
    pub acknowledged: Vec<String>,
    /// The events before `session.resumed` in the last resume.
    pub missed: Vec<Value>,
    /// The number of resumes, and the number of resumes with missed events no longer stored.
    pub resumed: usize,
    pub expired: usize,
    /// Events that no client should receive.
    pub wrong: Vec<String>,
    /// The last received events, newest first.
    last: Vec<String>,
    /// True if a node may die in the middle of a turn, which then fails.
    nodes_die: bool,
}

impl ResilientClient {
    pub fn new(session: &str, token: &str) -> Self {
        Self {
            session: session.to_owned(),
            token: token.to_owned(),
            seen: 1,
            acknowledged: Vec::new(),
            missed: Vec::new(),
            resumed: 0,
            expired: 0,
            wrong: Vec::new(),
            last: Vec::new(),
            nodes_die: false,
        }
    }

    /// Allows failed turns of dying nodes.
    pub fn allowing_lost_turns(self) -> Self {
        Self {
            nodes_die: true,
            ..self
        }
    }

    fn on_event(&mut self, event: &Value) {
        self.seen = self.seen.max(event["seq"].as_u64().unwrap_or_default());
        let is_lost = self.nodes_die && event["error"]["code"] == "turn_lost";
        match event["type"].as_str().unwrap() {
            "error" if !RETRY_CODES.contains(&event["error"]["code"].as_str().unwrap()) && !is_lost => {
                self.wrong.push(event.to_string());
            }
            "reply.done" if event["status"] != "completed" && !is_lost => {
                self.wrong.push(format!("{event} after {heard:?}", heard = self.last));
            }
            _ => {}
        }
        if event["type"] != "reply.delta" {
            self.last.truncate(5);
            self.last.insert(0, event.to_string());
        }
    }

    fn resume_message(&self, last_seq: Option<u64>) -> Value {
        let mut message = json!({"type": "session.resume", "session_id": self.session, "resume_token": self.token});
        if let Some(last_seq) = last_seq {
            message["last_seq"] = last_seq.into();
        }
        message
    }

    /// Resumes the session over a new socket. `rest` reads the transcript if needed. Returns `false` if the resume
    /// failed for now.
    pub async fn resume(&mut self, socket: &mut TestSocket, rest: &RestClient) -> bool {
        self.missed.clear();
        if !socket.try_send(&self.resume_message(Some(self.seen))).await {
            return false;
        }
        loop {
            let Ok(event) = socket.next_or_close().await else {
                return false;
            };
            if event["type"] == "session.resumed" {
                let head = event["head_seq"].as_u64().unwrap();
                if head < self.seen {
                    self.wrong.push(format!("{} was heard before {event}", self.seen));
                }
                self.last.insert(0, event.to_string());
                self.seen = head;
                self.resumed += 1;
                return true;
            }
            if event["error"]["code"] == "resume_expired" {
                // The transcript has the missed events, so the client resumes from now on.
                self.expired += 1;
                let stands = standing_lines(rest, &self.session).await;
                let after = stands.iter().skip(1).zip(&self.acknowledged);
                if stands.len() <= self.acknowledged.len() || after.into_iter().any(|(one, other)| one != other) {
                    self.wrong.push(format!(
                        "{:?} was acknowledged, of which {stands:?} stands",
                        self.acknowledged
                    ));
                }
                if !socket.try_send(&self.resume_message(None)).await {
                    return false;
                }
                self.seen = 0;
                continue;
            }
            if event["seq"].as_u64().is_some_and(|seq| seq <= self.seen) {
                self.wrong.push(format!("after {}: {event}", self.seen));
            }
            self.on_event(&event);
            if event["type"] == "error" {
                return false;
            }
            self.missed.push(event);
        }
    }

    /// Says lines until `enough` is true. Returns `false` if the socket is unusable.
    pub async fn speak(&mut self, socket: &mut TestSocket, mut enough: impl FnMut(&Self) -> bool) -> bool {
        while !enough(self) {
            // A line of unknown outcome is said again. With its key, the line is committed once.
            let text = format!("Aloud {}.", self.acknowledged.len());
            if !socket.try_send_line(&self.session, &text, &text).await {
                return false;
            }
            loop {
                let Ok(event) = socket.next_or_close().await else {
                    return false;
                };
                self.on_event(&event);
                if event["re"] != text.as_str() {
                    continue;
                }
                match event["type"].as_str().unwrap() {
                    "turn.committed" => break,
                    "error" => return false,
                    _ => {}
                }
            }
            self.acknowledged.push(text);
        }
        true
    }

    /// Asserts that exactly the opening line and the acknowledged lines stand, once each. With `cut_off`, the last line
    /// may be committed but unacknowledged.
    pub async fn assert_acknowledged_lines_stand(&self, rest: &RestClient, cut_off: bool) {
        assert!(self.wrong.is_empty(), "{:#?}", self.wrong);
        let mut stands = standing_lines(rest, &self.session).await;
        let mut lines = vec!["Hello.".to_owned()];
        lines.extend(self.acknowledged.iter().cloned());
        if cut_off && stands.len() == lines.len() + 1 {
            stands.pop();
        }
        assert_eq!(stands, lines);
    }
}
