//! A chat program whose user changes the talk at will. The program shows a talk, and sends all of it with each request.

use std::time::Duration;

use proptest::prelude::*;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::model::HistoryLlm;
use crate::{
    http::{
        chat::{COMPLETIONS, turns_of},
        front_ends::transcript::normalized,
        harness::{HttpTestClient, HttpTestServer},
    },
    replay::history::name_of,
    support::eventually,
};
use colloquy::tenancy::Role;

pub const NPC: &str = "mira";
pub const PLAYER: &str = "ann";
pub const GREETING: &str = "Welcome to the mill.";
/// The most turns of a talk.
const MAX_TURNS: usize = 8;
/// Without a name of the talk, a request that takes back more turns and has at most [`FEW_TURNS`] in common with the
/// session begins another talk. So does a request that has only the greeting in common with it, and another first line.
const MAX_TAKEN_BACK: usize = 4;
const FEW_TURNS: usize = 2;

/// A world of one history, with one NPC.
pub struct World {
    pub id: String,
    pub client: HttpTestClient,
}

/// A turn as the server has stored it, or as the program shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownTurn {
    pub line: String,
    pub reply: String,
}

impl World {
    pub async fn create(server: &HttpTestServer, id: &str) -> Self {
        let client = server.as_role(Role::Backend);
        let path = format!("/v1/worlds/{id}");
        client
            .put(&path, &json!({"name": "Vale", "premise": "A quiet valley."}))
            .await;
        let npc = json!({"name": "Mira", "persona": {"description": "A miller."}});
        client.put(&format!("{path}/npcs/{NPC}"), &npc).await;
        Self {
            id: id.to_owned(),
            client,
        }
    }

    pub fn model(&self) -> String {
        format!("{}/{NPC}", self.id)
    }

    /// Returns the standing turns of a session.
    pub async fn turns(&self, session: &str) -> Vec<ShownTurn> {
        let turns = turns_of(&self.client, session).await.into_iter();
        turns.map(|(line, reply)| ShownTurn { line, reply }).collect()
    }

    /// Sends a request for a whole reply. Returns the status, the session and the answer.
    pub async fn ask(&self, body: &Value, name: Option<&str>) -> (StatusCode, Option<String>, Value) {
        let response = self.request(body, name).send().await.unwrap();
        let session = response.headers().get("x-colloquy-session");
        let session = session.map(|id| id.to_str().unwrap().to_owned());
        let status = response.status();
        (status, session, response.json().await.unwrap())
    }

    fn request(&self, body: &Value, name: Option<&str>) -> reqwest::RequestBuilder {
        let request = self.client.request(Method::POST, COMPLETIONS).json(body);
        match name {
            Some(name) => request.header("x-colloquy-session", name),
            None => request,
        }
    }
}

/// What the user of the program does.
#[derive(Debug, Clone)]
pub enum Action {
    Say,
    /// Says a line, asks for several replies, and shows one of them.
    Choose {
        replies: u8,
        shown: u8,
    },
    /// Asks for another reply to the last line.
    Swipe,
    /// Says a line, and stops the reply after so many pieces.
    Stop {
        pieces: u8,
    },
    /// Lets the last reply go on.
    GoOn,
    EditLine {
        at: u8,
    },
    EditReply {
        at: u8,
    },
    DeleteLast {
        messages: u8,
    },
}

/// How the program writes the talk into a request.
#[expect(clippy::struct_excessive_bools, reason = "each is one more form of a request")]
#[derive(Debug, Clone, Copy)]
pub struct RequestForm {
    /// The front of a long talk is left out.
    cuts_front: bool,
    /// Each message comes as two messages of the same role.
    splits_messages: bool,
    /// A system message is among the lines.
    has_note: bool,
    /// Texts have white space around them.
    has_spaces: bool,
}

#[derive(Debug, Clone)]
pub struct Step {
    action: Action,
    form: RequestForm,
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        5 => Just(Action::Say),
        1 => (2..4_u8, any::<u8>()).prop_map(|(replies, shown)| Action::Choose { replies, shown }),
        2 => Just(Action::Swipe),
        2 => (0..4_u8).prop_map(|pieces| Action::Stop { pieces }),
        2 => Just(Action::GoOn),
        2 => any::<u8>().prop_map(|at| Action::EditLine { at }),
        2 => any::<u8>().prop_map(|at| Action::EditReply { at }),
        2 => (1..5_u8).prop_map(|messages| Action::DeleteLast { messages }),
    ]
}

/// Returns histories of up to `longest` steps.
pub fn histories(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    let form =
        any::<(bool, bool, bool, bool)>().prop_map(|(cuts_front, splits_messages, has_note, has_spaces)| RequestForm {
            cuts_front,
            splits_messages,
            has_note,
            has_spaces,
        });
    let step = (actions(), form).prop_map(|(action, form)| Step { action, form });
    prop::collection::vec(step, 1..=longest)
}

pub struct ChatProgram<'a> {
    world: &'a World,
    llm: &'a HistoryLlm,
    /// The name of the talk, if the program sends one.
    name: Option<String>,
    turns: Vec<ShownTurn>,
    /// The lines without a reply.
    unanswered: Vec<String>,
    /// The first turns that the server has as the program shows them.
    unchanged: usize,
    /// The number of turns that the session had after the last request.
    stored: usize,
    /// The number of texts so far.
    texts: usize,
    pub session: Option<String>,
}

impl<'a> ChatProgram<'a> {
    pub fn new(world: &'a World, llm: &'a HistoryLlm, names_talk: bool) -> Self {
        Self {
            world,
            llm,
            name: names_talk.then(|| "slot".to_owned()),
            turns: vec![ShownTurn {
                line: String::new(),
                reply: GREETING.to_owned(),
            }],
            unanswered: Vec::new(),
            unchanged: 0,
            stored: 0,
            texts: 0,
            session: None,
        }
    }

    fn new_line(&mut self) -> String {
        self.texts += 1;
        format!("Hear me, line-{} is about pears.", name_of(self.texts))
    }

    fn new_reply(&mut self) -> String {
        self.texts += 1;
        let name = name_of(self.texts);
        match self.texts % 3 {
            0 => format!("Well, take key-{name} and go on to the next house."),
            1 => format!("Well, I have seen note-{name} at the river long ago."),
            _ => format!("Well, take key-{name} with you, as note-{name} says."),
        }
    }

    pub async fn take_step(&mut self, step: &Step) -> Result<(), String> {
        match step.action {
            Action::Say if self.has_room() => self.say(step.form).await,
            Action::Choose { replies, shown } if self.has_room() => {
                let line = self.new_line();
                self.unanswered.push(line);
                self.answer(step.form, usize::from(replies), usize::from(shown)).await
            }
            Action::Stop { pieces } if self.has_room() => self.say_and_stop(step.form, usize::from(pieces)).await,
            Action::Swipe if self.turns.len() > 1 && self.unanswered.is_empty() => {
                let last = self.turns.pop().expect("a talk has turns");
                self.unchanged = self.unchanged.min(self.turns.len());
                self.unanswered.push(last.line);
                self.answer(step.form, 1, 0).await
            }
            Action::GoOn if self.turns.len() > 1 && self.unanswered.is_empty() => self.go_on(step.form).await,
            Action::EditLine { at } => {
                if let Some(at) = self.editable_turn(at, false) {
                    self.turns[at].line = self.new_line();
                }
                Ok(())
            }
            Action::EditReply { at } => {
                if let Some(at) = self.editable_turn(at, true) {
                    self.turns[at].reply = self.new_reply();
                }
                Ok(())
            }
            Action::DeleteLast { messages } => {
                (0..messages).for_each(|_| self.delete_last_message());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub async fn say_farewell(&mut self) -> Result<(), String> {
        self.say(RequestForm {
            cuts_front: false,
            splits_messages: false,
            has_note: false,
            has_spaces: false,
        })
        .await
    }

    fn has_room(&self) -> bool {
        self.turns.len() < MAX_TURNS
    }

    /// Chooses a turn after the greeting, and notes that it changes. `None`: there is none whose change is still the same talk.
    fn editable_turn(&mut self, pick: u8, keeps_line: bool) -> Option<usize> {
        let later = self.turns.len() - 1;
        let at = 1 + usize::from(pick).checked_rem(later)?;
        if !self.is_same_talk_after(at, keeps_line) {
            return None;
        }
        self.unchanged = self.unchanged.min(at);
        Some(at)
    }

    /// True if it is still the same talk when the turns after the first `unchanged` ones change. `keeps_line`: the line
    /// of the next turn stays as it is.
    fn is_same_talk_after(&self, unchanged: usize, keeps_line: bool) -> bool {
        let takes_little_back = self.stored.saturating_sub(unchanged) <= MAX_TAKEN_BACK;
        let keeps_first_line = keeps_line || unchanged > 1;
        self.name.is_some() || keeps_first_line && (unchanged > FEW_TURNS || takes_little_back)
    }

    fn delete_last_message(&mut self) {
        if self.unanswered.pop().is_some()
            || self.turns.len() < 2
            || !self.is_same_talk_after(self.turns.len() - 1, false)
        {
            return;
        }
        let last = self.turns.pop().expect("a talk has turns");
        self.unchanged = self.unchanged.min(self.turns.len());
        self.unanswered.push(last.line);
    }

    async fn say(&mut self, form: RequestForm) -> Result<(), String> {
        let line = self.new_line();
        self.unanswered.push(line);
        self.answer(form, 1, 0).await
    }

    /// Asks for replies to the last line, and shows one of them.
    async fn answer(&mut self, form: RequestForm, replies: usize, shown: usize) -> Result<(), String> {
        let texts: Vec<String> = (0..replies).map(|_| self.new_reply()).collect();
        self.llm.say_next(&texts);
        let mut body = self.body(form);
        body["n"] = json!(replies);
        let answer = self.ask(&body).await?;
        let shown = shown % replies;
        let choice = &answer["choices"][shown];
        let reply = choice["message"]["content"].as_str().unwrap().to_owned();
        let line = std::mem::take(&mut self.unanswered).join("\n\n");
        self.turns.push(ShownTurn { line, reply });
        self.unchanged = self.turns.len() - usize::from(shown > 0);
        self.stored = self.turns.len();
        if shown == 0 { self.check_turns().await } else { Ok(()) }
    }

    async fn go_on(&mut self, form: RequestForm) -> Result<(), String> {
        let more = self.new_reply();
        self.llm.say_next(&[format!(" {more}")]);
        let body = self.body(form);
        let answer = self.ask(&body).await?;
        let more = answer["choices"][0]["message"]["content"].as_str().unwrap();
        let last = self.turns.last_mut().expect("a talk has turns");
        last.reply = format!("{}{more}", last.reply.trim_end());
        self.unchanged = self.turns.len();
        self.stored = self.turns.len();
        self.check_turns().await
    }

    /// Says a line, reads so many pieces of the reply, and hangs up.
    async fn say_and_stop(&mut self, form: RequestForm, pieces: usize) -> Result<(), String> {
        let line = self.new_line();
        self.unanswered.push(line);
        // A key would change nothing: the reply ends before its state block.
        self.texts += 1;
        let reply = format!("Well, have you seen note-{} at the river?", name_of(self.texts));
        self.llm.stall_next(&reply, pieces);
        let mut body = self.body(form);
        body["stream"] = json!(true);
        let mut response = self.world.request(&body, self.name.as_deref()).send().await.unwrap();
        if response.status() != 200 {
            return Err(format!("{} {}", response.status(), response.text().await.unwrap()));
        }
        let session = response.headers()["x-colloquy-session"].to_str().unwrap().to_owned();
        self.note_session(Some(session))?;
        let mut unread = String::new();
        let mut heard = String::new();
        let mut pieces_read = 0;
        while pieces_read < pieces {
            let chunk = response.chunk().await.unwrap().expect("the reply has no end");
            unread.push_str(std::str::from_utf8(&chunk).unwrap());
            while let Some((line, rest)) = unread.split_once('\n') {
                if let Some(event) = line.strip_prefix("data: ") {
                    let event: Value = serde_json::from_str(event).unwrap();
                    let piece = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
                    pieces_read += usize::from(!piece.is_empty());
                    heard.push_str(piece);
                }
                unread = rest.to_owned();
            }
        }
        // A program that hung up before the model was asked would leave the reply to the next request.
        eventually("the model is asked", async || self.llm.was_asked().then_some(())).await;
        drop(response);
        if heard.is_empty() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.unanswered).join("\n\n");
        self.turns.push(ShownTurn { line, reply: heard });
        self.unchanged = self.turns.len();
        self.stored = self.turns.len();
        let mut difference = Ok(());
        for _ in 0..200 {
            difference = self.check_turns().await;
            if difference.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        difference
    }

    async fn ask(&mut self, body: &Value) -> Result<Value, String> {
        let (status, session, answer) = self.world.ask(body, self.name.as_deref()).await;
        if status != StatusCode::OK {
            return Err(format!("{status} {answer}"));
        }
        self.note_session(session)?;
        Ok(answer)
    }

    fn note_session(&mut self, session: Option<String>) -> Result<(), String> {
        if self.session.is_some() && self.session != session {
            return Err("the server began another session".to_owned());
        }
        self.session = session;
        Ok(())
    }

    /// Compares the session's turns with those that the program shows.
    async fn check_turns(&self) -> Result<(), String> {
        let as_words = |turns: &[ShownTurn]| -> Vec<ShownTurn> {
            let turns = turns.iter();
            turns
                .map(|turn| ShownTurn {
                    line: normalized(&turn.line),
                    reply: normalized(&turn.reply),
                })
                .collect()
        };
        let stored = self.world.turns(self.session.as_deref().expect("a session")).await;
        if as_words(&stored) == as_words(&self.turns) {
            return Ok(());
        }
        Err(format!(
            "the program shows {:#?}, the session has {stored:#?}",
            self.turns
        ))
    }

    fn body(&self, form: RequestForm) -> Value {
        // One turn that the server has too stays in front of the changes.
        let cut = if form.cuts_front {
            self.unchanged.saturating_sub(2)
        } else {
            0
        };
        let mut messages: Vec<Value> = Vec::new();
        let mut add = |role: &str, text: &str| {
            let parts = match text.split_once(", ") {
                Some((first, second)) if form.splits_messages && role == "user" => {
                    vec![format!("{first},"), second.to_owned()]
                }
                _ if text.is_empty() => Vec::new(),
                _ => vec![text.to_owned()],
            };
            let padding = if form.has_spaces { "  \n" } else { "" };
            let message = |part| json!({"role": role, "content": format!("{padding}{part}{padding}")});
            messages.extend(parts.into_iter().map(message));
        };
        for turn in &self.turns[cut..] {
            add("user", &turn.line);
            add("assistant", &turn.reply);
        }
        for line in &self.unanswered {
            add("user", line);
        }
        if form.has_note {
            messages.insert(
                messages.len().saturating_sub(3),
                json!({"role": "system", "content": "It rains."}),
            );
        }
        json!({"model": self.world.model(), "user": PLAYER, "messages": messages})
    }
}
