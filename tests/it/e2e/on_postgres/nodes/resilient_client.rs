//! A player who speaks over a socket that is cut now and then, and comes back as docs/protocol.md#resume says: with the number
//! of the last event that was heard.

use serde_json::{Value, json};

use super::standing_lines;
use crate::support::{RestClient, TestSocket};

/// Why a client has to come back: its node stops, or the dialogue is another's by now.
pub(super) const RETRY_CODES: [&str; 2] = ["draining", "wrong_node"];

pub(super) struct ResilientClient {
    pub session: String,
    token: String,
    /// The number of the last event that was heard. The first is that of `session.created`.
    pub seen: u64,
    /// Lines whose turns were committed, in order.
    pub acknowledged: Vec<String>,
    /// What came before `session.resumed`, the last time.
    pub missed: Vec<Value>,
    /// How often the session was taken up, and how often what was missed was no longer kept.
    pub resumed: usize,
    pub expired: usize,
    /// What no client should have heard.
    pub wrong: Vec<String>,
    /// The last events that were heard, the newest first.
    last: Vec<String>,
    /// A node may die in the middle of a turn, which then fails.
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

    /// The same where nodes die.
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

    /// Takes the session up over a socket that was just opened; `rest` has the transcript, should that be needed.
    /// `false`: not here and now.
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
                // What was missed is in the transcript. From now on.
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

    /// Says lines until there were enough. `false`: the socket is of no use any more.
    pub async fn speak(&mut self, socket: &mut TestSocket, mut enough: impl FnMut(&Self) -> bool) -> bool {
        while !enough(self) {
            // Said before, if it is not known what became of it: with its key it is said once.
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

    /// Everything that stands: what opened the session, and then what was acknowledged, each once. The last line may
    /// have been committed when nobody was listening any more, if `cut_off`.
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
