//! Commands that take back: `/rewind`, `/again`, `/save` and `/load`, and the words for what they changed.

use std::{fmt::Write, time::Duration};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::{
    client::ChatClient,
    events::event_type,
    inspect::array_or_empty,
    turns::{Goal, new_key},
};

/// How long to wait for a rewind that the server announces later.
const REWIND_WAIT: Duration = Duration::from_secs(2);

impl ChatClient {
    /// Makes `turn` the last turn of the current session; 0 takes everything back.
    pub(super) async fn rewind_session(&mut self, turn: u32) -> anyhow::Result<bool> {
        let last_turn = self.session().head_turn;
        if u64::from(turn) >= last_turn {
            let is_current = u64::from(turn) == last_turn;
            let message = format!("nothing to take back: the last turn is {last_turn}");
            if is_current {
                self.screen.show_note(&message)?;
            } else {
                self.screen.show_fault(&message)?;
            }
            return Ok(is_current);
        }
        let mut rewind = json!({"type": "player.interrupt", "session_id": self.session().id, "key": new_key()});
        if turn == 0 {
            rewind["turn"] = json!(1);
            rewind["heard_chars"] = json!(0);
        } else {
            rewind["turn"] = json!(turn);
        }
        self.send_until_done(rewind, Goal::Rewind).await
    }

    /// Takes the last reply back and asks for another.
    pub(super) async fn regenerate_reply(&mut self) -> anyhow::Result<bool> {
        let request = json!({"type": "player.regenerate", "session_id": self.session().id, "key": new_key()});
        let previous_head = self.session().head_turn;
        let is_answered = self.send_until_done(request, Goal::Reply).await?;
        if !is_answered && self.session().head_turn < previous_head {
            // Without a new reply, the last one becomes valid again.
            self.await_rewinds(vec![self.session().id.clone()]).await?;
        }
        Ok(is_answered)
    }

    /// Shows a rewind of the current session, or one that the player asked for. Returns false if nothing was shown.
    pub(super) fn on_rewound(&mut self, event: &Value) -> anyhow::Result<bool> {
        let id = event["dialogue_id"].as_str().unwrap_or_default();
        let number = |name: &str| event[name].as_u64().unwrap_or_default();
        let seq = number("seq");
        let turn = number("turn");
        let of_session = id == self.session().id;
        // After `/load`, the chat knows the last turn before this event comes.
        let moves = of_session && (turn != self.session().head_turn || event["heard_chars"].is_u64());
        let is_repeated = self.last_rewind == (id.to_owned(), seq);
        if is_repeated || !(moves || event["re"].is_string()) {
            return Ok(false);
        }
        self.last_rewind = (id.to_owned(), seq);
        if of_session {
            self.session_mut().head_turn = turn;
        }
        let unit = if of_session { "turn" } else { "line" };
        self.screen.show_note(&describe_rewind(event, unit))?;
        Ok(true)
    }

    /// Saves the world.
    pub(super) async fn take_save(&mut self, name: Option<String>) -> anyhow::Result<bool> {
        let path = format!("/v1/worlds/{}/saves", self.options.world);
        let report = self
            .rest_client
            .post_json(&path, &json!({"name": name}))
            .await
            .map(|save| {
                let dialogues = count_of(&save["dialogues"], "dialogue").unwrap_or_else(|| "no dialogue".into());
                format!(
                    "(saved {}: {dialogues}; /load brings this moment back)",
                    save_label(&save)
                )
            });
        self.show_result(&report)
    }

    /// Takes the world to a save, by name or id; without a name, to the newest.
    pub(super) async fn load_save(&mut self, name: Option<String>) -> anyhow::Result<bool> {
        let report = self.restore_world(name.as_deref()).await;
        if !self.show_result(&report)? {
            return Ok(false);
        }
        let known_heads: Vec<(String, u64)> = self
            .sessions_mut()
            .map(|session| (session.id.clone(), session.head_turn))
            .collect();
        let mut changed_sessions = Vec::new();
        for (id, head_turn) in known_heads {
            match self.rest_client.get_json(&format!("/v1/sessions/{id}"), &[]).await {
                Ok(session) if session["status"] == "closed" => {
                    let closed = json!({"dialogue_id": id, "reason": "it is not in this save"});
                    self.on_session_closed(&closed).await?;
                }
                Ok(session) if session["head_turn"] != head_turn => {
                    // The report of the restore has told it, so the event is not shown.
                    for own_session in self.sessions_mut().filter(|own_session| own_session.id == id) {
                        own_session.head_turn = session["head_turn"].as_u64().unwrap_or_default();
                    }
                    changed_sessions.push(id);
                }
                Ok(_) => {}
                Err(error) => self.screen.show_fault(&format!("{error:#}"))?,
            }
        }
        self.await_rewinds(changed_sessions).await?;
        Ok(true)
    }

    /// Waits until each of these sessions was rewound, but not for ever.
    async fn await_rewinds(&mut self, mut ids: Vec<String>) -> anyhow::Result<()> {
        let deadline = Instant::now() + REWIND_WAIT;
        while !ids.is_empty()
            && let Ok(event) = timeout_at(deadline, self.socket.next_event()).await
        {
            let event = event?;
            if event_type(&event) == "dialogue.rewound" {
                ids.retain(|id| event["dialogue_id"] != id.as_str());
            }
            self.on_idle_event(&event).await?;
        }
        Ok(())
    }

    async fn restore_world(&self, name: Option<&str>) -> anyhow::Result<String> {
        let path = format!("/v1/worlds/{}/saves", self.options.world);
        // A world has at most as many saves as the longest page, unless the settings allow more.
        let page = self.rest_client.get_json(&path, &[("limit", "200")]).await?;
        let saves = array_or_empty(&page["items"]);
        let Some(save) = choose_save(saves, name) else {
            match name {
                None => bail!("there is no save yet; /save makes one"),
                Some(name) => bail!("there is no save “{name}”{}", list_labels(saves)),
            }
        };
        let id = save["id"].as_str().context("the server sent a save without an id")?;
        let restored = self
            .rest_client
            .post_json(&format!("{path}/{id}:restore"), &json!({"key": new_key()}))
            .await?;
        Ok(format!(
            "(loaded {}; {})",
            save_label(save),
            describe_restore(&restored)
        ))
    }
}

/// Returns the newest save with this name or id; without a name, the newest. `saves` has the newest first.
fn choose_save<'a>(saves: &'a [Value], name: Option<&str>) -> Option<&'a Value> {
    saves
        .iter()
        .find(|save| name.is_none_or(|name| save["name"] == name || save["id"] == name))
}

fn save_label(save: &Value) -> String {
    match save["name"].as_str() {
        Some(name) if !name.is_empty() => format!("“{name}”"),
        _ => save["id"].as_str().unwrap_or("a save").to_owned(),
    }
}

fn list_labels(saves: &[Value]) -> String {
    let labels: Vec<String> = saves.iter().map(save_label).collect();
    if labels.is_empty() {
        "; /save makes one".into()
    } else {
        format!("; there are: {}", labels.join(", "))
    }
}

/// Says what a `dialogue.rewound` took back and what is valid again. `unit` names a turn of this dialogue.
fn describe_rewind(event: &Value, unit: &str) -> String {
    let mut removed_parts = Vec::new();
    if event["heard_chars"].is_u64() {
        removed_parts.push(format!("the rest of {unit} {}", event["turn"]));
    }
    removed_parts.extend(numbered(unit, &event["removed_turns"]));
    let restored_parts = numbered(unit, &event["reinstated_turns"]).into_iter().collect();
    let last_label = match event["turn"].as_u64() {
        Some(0) => format!("no {unit} is left"),
        _ => format!("the last {unit} is {}", event["turn"]),
    };
    format!(
        "{}; {last_label}",
        describe_changes(removed_parts, restored_parts, &event["rolled_back"])
    )
}

/// Says what a restored save took back and what is valid again.
fn describe_restore(restored: &Value) -> String {
    let removed_parts = count_of(&restored["removed_turns"], "turn").into_iter().collect();
    let restored_parts = count_of(&restored["reinstated_turns"], "turn").into_iter().collect();
    let mut text = describe_changes(removed_parts, restored_parts, &restored["rolled_back"]);
    if let Some(ended_count) = count_of(&restored["ended_dialogues"], "dialogue") {
        let _ = write!(text, "; ended: {ended_count}");
    }
    if let Some(reopened_count) = count_of(&restored["reopened_dialogues"], "dialogue") {
        let _ = write!(text, "; open again: {reopened_count}");
    }
    text
}

fn describe_changes(mut removed_parts: Vec<String>, mut restored_parts: Vec<String>, rolled_back: &Value) -> String {
    removed_parts.extend(count_of(&rolled_back["facts"], "fact"));
    removed_parts.extend(count_of(&rolled_back["summaries"], "summary"));
    removed_parts.extend(count_of(&rolled_back["state"], "change of the world"));
    restored_parts.extend(count_of(&rolled_back["restored"], "fact"));
    let removed_text = if removed_parts.is_empty() {
        "nothing".into()
    } else {
        removed_parts.join(", ")
    };
    if restored_parts.is_empty() {
        format!("taken back: {removed_text}")
    } else {
        format!("taken back: {removed_text}; valid again: {}", restored_parts.join(", "))
    }
}

/// Names turns by their numbers, such as `turns 3 and 4`; `None` without turns.
fn numbered(unit: &str, turns: &Value) -> Option<String> {
    let numbers: Vec<String> = array_or_empty(turns).iter().map(Value::to_string).collect();
    match &numbers[..] {
        [] => None,
        [one] => Some(format!("{unit} {one}")),
        [first, .., last] if numbers.len() > 3 => Some(format!("{unit}s {first} to {last}")),
        [rest @ .., last] => Some(format!("{unit}s {} and {last}", rest.join(", "))),
    }
}

/// Counts things, such as `2 facts`; `None` for 0.
fn count_of(count: &Value, noun: &str) -> Option<String> {
    match count.as_u64().unwrap_or_default() {
        0 => None,
        1 => Some(format!("1 {noun}")),
        number => Some(match noun {
            "summary" => format!("{number} summaries"),
            "change of the world" => format!("{number} changes of the world"),
            _ => format!("{number} {noun}s"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolled_back(facts: u32, restored: u32, summaries: u32, state: u32) -> Value {
        json!({"facts": facts, "restored": restored, "summaries": summaries, "state": state})
    }

    #[test]
    fn rewind_is_described_by_what_went_and_what_is_valid_again() {
        let cases = [
            (
                json!({"turn": 1, "removed_turns": [2, 3], "rolled_back": rolled_back(2, 1, 1, 2)}),
                "taken back: turns 2 and 3, 2 facts, 1 summary, 2 changes of the world; valid again: 1 fact; \
                 the last turn is 1",
            ),
            (
                json!({"turn": 0, "removed_turns": [1, 2, 3, 4], "rolled_back": rolled_back(0, 0, 0, 0)}),
                "taken back: turns 1 to 4; no turn is left",
            ),
            (
                json!({"turn": 2, "heard_chars": 8, "removed_turns": [3], "rolled_back": rolled_back(0, 0, 0, 0)}),
                "taken back: the rest of turn 2, turn 3; the last turn is 2",
            ),
            (
                json!({"turn": 3, "removed_turns": [], "reinstated_turns": [3], "rolled_back": rolled_back(0, 0, 0, 0)}),
                "taken back: nothing; valid again: turn 3; the last turn is 3",
            ),
        ];
        for (event, description) in cases {
            assert_eq!(describe_rewind(&event, "turn"), description, "{event}");
        }
    }

    #[test]
    fn restore_is_described_by_what_went_and_what_is_valid_again() {
        let restored = json!({"removed_turns": 3, "reinstated_turns": 1, "ended_dialogues": 1, "reopened_dialogues": 0,
            "rolled_back": rolled_back(1, 2, 0, 0)});
        assert_eq!(
            describe_restore(&restored),
            "taken back: 3 turns, 1 fact; valid again: 1 turn, 2 facts; ended: 1 dialogue"
        );
    }

    #[test]
    fn save_is_found_by_name_or_id_and_the_newest_wins() {
        let saves = [
            json!({"id": "save_3", "name": ""}),
            json!({"id": "save_2", "name": "figs"}),
            json!({"id": "save_1", "name": "figs"}),
        ];
        let id = |name| choose_save(&saves, name).map(|save| save["id"].as_str().unwrap_or_default());
        assert_eq!(id(None), Some("save_3"));
        assert_eq!(id(Some("figs")), Some("save_2"));
        assert_eq!(id(Some("save_1")), Some("save_1"));
        assert_eq!(id(Some("grapes")), None);
    }
}
