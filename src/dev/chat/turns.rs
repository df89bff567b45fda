//! Messages of the player and what follows: replies, rewinds, and the session of a player who cut in.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    client::ChatClient,
    conversation::Conversation,
    events::{error_text, event_type},
    session::Session,
};

/// The `event_id` of Ctrl-C.
const INTERRUPT_EVENT_ID: &str = "cut";
/// The maximum number of attempts for one message. `MAX_WAIT` is the longest pause between attempts.
const MAX_WAITS: usize = 20;
const MAX_WAIT: Duration = Duration::from_mins(1);

/// What a message leads to.
pub(super) enum Goal<'a> {
    /// A reply in the current session.
    Reply,
    /// A rewind of the current session.
    Rewind,
    /// A session with the NPCs of this conversation, and a reply there.
    Join(&'a mut Conversation),
}

/// The outcome of a message.
enum Outcome {
    /// True if the goal was reached.
    Ended(bool),
    /// The server rejected the message and accepts it after this delay.
    TooSoon(Duration),
}

/// A reply on the screen.
#[derive(Default)]
struct ShownReply {
    chars: usize,
    /// True if Ctrl-C has cut it.
    is_cut: bool,
    completed: bool,
}

impl ChatClient {
    /// Says a line in the current session. Returns true if a reply came.
    pub(super) async fn say_line(&mut self, line: &str) -> anyhow::Result<bool> {
        let say = json!({"type": "player.say", "session_id": self.session().id, "key": new_key(), "text": line});
        self.send_until_done(say, Goal::Reply).await
    }

    /// Sends a message, and sends it again when the server asks to wait. Shows what follows. Returns true if the goal
    /// was reached.
    pub(super) async fn send_until_done(&mut self, mut message: Value, mut goal: Goal<'_>) -> anyhow::Result<bool> {
        for _ in 0..MAX_WAITS {
            let re = self.next_event_id();
            message["event_id"] = json!(re);
            self.socket.send_event(&message).await?;
            match self.follow_events(&re, &mut goal).await? {
                Outcome::Ended(reached) => return Ok(reached),
                Outcome::TooSoon(wait) => {
                    let seconds = wait.as_secs_f64();
                    self.screen
                        .show_note(&format!("too fast for this server; saying it again in {seconds:.1} s"))?;
                    tokio::time::sleep(wait).await;
                }
            }
        }
        self.screen.show_fault(&format!("given up after {MAX_WAITS} tries"))?;
        Ok(false)
    }

    /// Shows the events that the message `re` causes, a reply as it streams and until its commit.
    async fn follow_events(&mut self, re: &str, goal: &mut Goal<'_>) -> anyhow::Result<Outcome> {
        let mut reply = ShownReply::default();
        self.show_thinking(goal)?;
        loop {
            let Some(event) = self.next_event(&mut reply).await? else {
                return Ok(Outcome::Ended(true));
            };
            let is_answer = event["re"] == re;
            let in_session = event["dialogue_id"] == self.session().id.as_str();
            if let Goal::Join(watched) = goal {
                watched.on_event(&event, is_answer);
            }
            match event_type(&event) {
                "turn.started" if in_session => self.show_thinking(&Goal::Reply)?,
                "reply.delta" if in_session => {
                    let text = event["text"].as_str().unwrap_or_default();
                    self.show_piece(&event, text)?;
                    reply.chars += text.chars().count();
                }
                "reply.done" if in_session => {
                    reply.completed = event["status"] == "completed";
                    self.show_end(&event, reply.chars)?;
                    if !will_be_committed(&event) {
                        return Ok(Outcome::Ended(false));
                    }
                }
                "turn.committed" if in_session => {
                    self.session_mut().head_turn = event["turn"].as_u64().unwrap_or_default();
                    return Ok(Outcome::Ended(reply.completed));
                }
                "session.created" if is_answer => {
                    if let Goal::Join(watched) = goal {
                        let session = Session::from_event(&event, watched.npcs.clone())?;
                        self.enter_joined_session(session).await?;
                    }
                }
                "dialogue.rewound" if is_answer || in_session => {
                    self.on_rewound(&event)?;
                    if is_answer && matches!(goal, Goal::Rewind) {
                        return Ok(Outcome::Ended(true));
                    }
                }
                "interrupt.done" if is_answer => {
                    self.show_removed_text(&event)?;
                    if matches!(goal, Goal::Rewind) {
                        return Ok(Outcome::Ended(true));
                    }
                }
                // No reply was running: either it had ended or it had not begun. The reply continues and may be cut
                // again.
                "error" if event["re"] == INTERRUPT_EVENT_ID => reply.is_cut = false,
                // An error about an earlier message, or about a line of NPCs that was cut, does not end this one.
                "error"
                    if !is_answer && (event["re"].is_string() || event["dialogue_id"].is_string() && !in_session) => {}
                "error" => return Ok(self.show_error(&event["error"])?),
                "session.closed" if in_session => {
                    self.on_session_closed(&event).await?;
                    return Ok(Outcome::Ended(false));
                }
                _ => {}
            }
        }
    }

    /// Waits for the next event. Ctrl-C cuts the reply. `None`: Ctrl-C again, so the player leaves.
    async fn next_event(&mut self, reply: &mut ShownReply) -> anyhow::Result<Option<Value>> {
        loop {
            tokio::select! {
                event = self.socket.next_event() => return event.map(Some),
                pressed = tokio::signal::ctrl_c() => {
                    pressed?;
                    if reply.is_cut {
                        self.screen.end_line()?;
                        self.leaving = true;
                        return Ok(None);
                    }
                    reply.is_cut = true;
                    let session = &self.session().id;
                    let interrupt = json!({"type": "player.interrupt", "event_id": INTERRUPT_EVENT_ID,
                        "session_id": session});
                    self.socket.send_event(&interrupt).await?;
                }
            }
        }
    }

    fn show_removed_text(&mut self, event: &Value) -> std::io::Result<()> {
        let removed_text = if event["interrupted"] == true {
            "the rest of the line"
        } else {
            "nothing"
        };
        self.screen.show_note(&format!("taken back: {removed_text}"))
    }

    /// Shows an error that ends the message, unless the message may be sent again.
    fn show_error(&mut self, error: &Value) -> std::io::Result<Outcome> {
        if let Some(wait) = retry_delay(error) {
            return Ok(Outcome::TooSoon(wait));
        }
        self.screen.show_fault(&error_text(error))?;
        Ok(Outcome::Ended(false))
    }

    fn show_thinking(&mut self, goal: &Goal<'_>) -> std::io::Result<()> {
        let npcs = &self.session().npcs;
        match (goal, &npcs[..]) {
            (Goal::Rewind, _) => Ok(()),
            (Goal::Reply, [npc]) => {
                let sign = format!("{npc} thinks …");
                self.screen.show_sign(&sign)
            }
            (Goal::Reply | Goal::Join(_), _) => self.screen.show_sign("they think …"),
        }
    }

    fn show_piece(&mut self, event: &Value, text: &str) -> std::io::Result<()> {
        let npc = event["npc_id"].as_str().unwrap_or_default();
        let session = self.joined.as_ref().unwrap_or(&self.home);
        self.screen.show_npc_text(npc, &session.npcs, text)
    }

    /// Shows the end of a reply of which `shown_chars` characters were shown.
    fn show_end(&mut self, event: &Value, shown_chars: usize) -> std::io::Result<()> {
        let text = event["text"].as_str().unwrap_or_default();
        let unshown_text: String = text.chars().skip(shown_chars).collect();
        self.show_piece(event, &unshown_text)?;
        match event["status"].as_str() {
            Some("completed") => self.screen.end_line(),
            Some("failed") => {
                let message = error_text(&event["error"]);
                self.screen.show_fault(&format!("no reply: {message}"))
            }
            _ => self.screen.break_npc_line(),
        }
    }
}

/// Returns a key that no other message has. A repeated message has the same key.
pub(super) fn new_key() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// True if a `turn.committed` follows this `reply.done`. A turn that failed, or was cut before its first word, is not
/// committed.
fn will_be_committed(event: &Value) -> bool {
    match event["status"].as_str() {
        Some("failed") => false,
        Some("interrupted") => event["text"].as_str().is_some_and(|text| !text.is_empty()),
        _ => true,
    }
}

/// Returns how long to wait before sending the same message again; `None` if waiting does not help.
fn retry_delay(error: &Value) -> Option<Duration> {
    let millis = error["retry_after_ms"]
        .as_u64()
        .filter(|_| error["code"] == "rate_limited")?;
    Some(Duration::from_millis(millis).min(MAX_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chat_turn_ends_when_a_reply_is_cut_before_its_first_word() {
        assert!(!will_be_committed(&json!({"status": "interrupted", "text": ""})));
        assert!(!will_be_committed(&json!({"status": "failed", "text": ""})));
        assert!(will_be_committed(&json!({"status": "interrupted", "text": "Well"})));
        assert!(will_be_committed(&json!({"status": "completed", "text": ""})));
    }

    #[test]
    fn chat_retries_only_after_a_rate_limit() {
        let cases = [
            (json!({"code": "rate_limited", "retry_after_ms": 250}), Some(250)),
            (json!({"code": "rate_limited", "retry_after_ms": 900_000}), Some(60_000)),
            (json!({"code": "rate_limited"}), None),
            (json!({"code": "overloaded", "retry_after_ms": 250}), None),
        ];
        for (error, millis) in cases {
            assert_eq!(retry_delay(&error), millis.map(Duration::from_millis), "{error}");
        }
    }
}
