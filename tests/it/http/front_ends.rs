//! The recorded requests of SillyTavern and RisuAI (`tests/front-ends`), sent as these programs would send them.
//!
//! A body repeats the replies of its recording. Each recorded reply is replaced by the reply of this server, or by the
//! part that arrived before a stop. After each request, a session has the turns that the program shows.

mod replies;
pub mod transcript;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use colloquy::http::ChatSettings;
use regex::{Captures, Regex};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use self::{
    replies::ReplyReader,
    transcript::{Kind, ShownTalk, ShownTurn, has_turns, normalized, spoken_messages},
};
use super::{
    fakes::NumberedLlm,
    harness::{HttpTestClient, HttpTestOptions, HttpTestServer, json_of},
};
use crate::support::eventually;

const SILLYTAVERN: &str = include_str!("../../front-ends/sillytavern.jsonl");
const RISUAI: &str = include_str!("../../front-ends/risuai.jsonl");
/// The page of the recorded RisuAI.
const ORIGIN: &str = "http://127.0.0.1:5174";
const MODEL: &str = "vale/mira";
/// Chats whose requests have answers in the right form, but no turns to compare:
/// - `new` and `new 2` have the same greeting and first line as other talks, so the requests do not tell which talk is
///   meant;
/// - `formats` shows the same lines with and without names, quotes and joined messages;
/// - `group` has a second member, Bran, who is no NPC of this world: Mira answers in both names, or the note that asks
///   for Bran counts as an aside.
const CHATS_WITHOUT_TRANSCRIPT: [&str; 4] = ["new", "new 2", "formats", "group"];
/// Actions whose request shows only the end of the talk.
const CUT_ACTIONS: [&str; 2] = ["cut front", "memory of summaries"];

#[derive(Debug, Deserialize)]
struct RecordedRequest {
    chat: String,
    action: String,
    kind: Kind,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Value,
    #[serde(default)]
    reply: Vec<String>,
    sent: Option<String>,
}

/// A reply as the programs show it, without white space at the ends of its lines.
fn as_shown(text: &str) -> String {
    text.split('\n').map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Replaces each recorded reply in a text, the longest first, in one pass.
fn substitute(text: &str, replies: &HashMap<String, String>) -> String {
    if replies.is_empty() {
        return text.to_owned();
    }
    let mut recorded: Vec<&String> = replies.keys().collect();
    recorded.sort_by_key(|text| Reverse(text.len()));
    let alternatives: Vec<String> = recorded.into_iter().map(|text| regex::escape(text)).collect();
    let pattern = Regex::new(&alternatives.join("|")).unwrap();
    let replaced = pattern.replace_all(text, |found: &Captures<'_>| replies[&found[0]].clone());
    replaced.into_owned()
}

/// A chat program that talks with Mira.
struct FrontEnd {
    client: HttpTestClient,
    llm: Arc<NumberedLlm>,
    /// The texts that took the place of recorded replies, for each chat.
    replies: HashMap<String, HashMap<String, String>>,
    /// True if the last request for a turn asked for a stream.
    turns_are_streamed: bool,
}

impl FrontEnd {
    async fn list_models(&self, request: &RecordedRequest) {
        let models = self.client.get(&request.path).await;
        let mut models = models["data"].as_array().unwrap().iter();
        assert!(
            models.any(|model| model["id"] == MODEL),
            "{MODEL} is not among the models"
        );
    }

    async fn ask_for_permission(&self, request: &RecordedRequest) {
        let mut preflight = self.client.anonymous(Method::OPTIONS, &request.path);
        for (name, value) in &request.headers {
            preflight = preflight.header(name.as_str(), value.as_str());
        }
        let response = preflight.send().await.unwrap();
        assert!(response.status().is_success(), "preflight: {}", response.status());
        assert_eq!(response.headers()["access-control-allow-origin"], ORIGIN);
        let allowed = response.headers()["access-control-allow-headers"].to_str().unwrap();
        let allowed = allowed.to_lowercase();
        assert!(
            allowed.contains("authorization") && allowed.contains("content-type"),
            "{allowed}"
        );
    }

    /// Returns the recorded body with this server's replies.
    fn body_of(&self, request: &RecordedRequest) -> Value {
        let mut body = request.body.clone();
        body["model"] = json!(MODEL);
        if let Some(replies) = self.replies.get(&request.chat) {
            for message in body["messages"].as_array_mut().unwrap() {
                let text = substitute(message["content"].as_str().unwrap(), replies);
                message["content"] = json!(text);
            }
        }
        body
    }

    /// Sends a request, and returns the first reply as far as the program has read it.
    async fn send(&mut self, request: &RecordedRequest, body: &Value, label: &str) -> String {
        let stop_after = request.sent.as_ref().map(|sent| sent.chars().count());
        match stop_after {
            Some(chars) => self.llm.stall_next_stream(if chars == 0 { 0 } else { 2 }),
            // A stop before the first word may come before the model was asked.
            None => self.llm.answer_next_stream(),
        }
        let asked = self.client.request(Method::POST, &request.path).json(body);
        let response = asked.send().await.unwrap();
        let response = if response.status() == 200 {
            response
        } else {
            panic!("{label}: {}", response.text().await.unwrap());
        };
        let mut reader = ReplyReader::new(label);
        if body["stream"] == true {
            reader.read_stream(response, stop_after).await;
        } else {
            reader.read_whole(&json_of(response).await.1);
        }
        if stop_after != Some(0) {
            reader.check(body["n"].as_u64().unwrap_or(1), stop_after.is_none());
        }
        self.note_replies(request, &reader.texts);
        reader.texts.remove(&0).unwrap_or_default()
    }

    fn note_replies(&mut self, request: &RecordedRequest, texts: &BTreeMap<u64, String>) {
        let recorded = match &request.sent {
            Some(sent) => std::slice::from_ref(sent),
            None => request.reply.as_slice(),
        };
        let replies = self.replies.entry(request.chat.clone()).or_default();
        // A reply that was stopped before its first word has no text to replace later.
        for (recorded, text) in recorded.iter().zip(texts.values()).filter(|(old, _)| !old.is_empty()) {
            replies.insert(as_shown(recorded), as_shown(text));
        }
    }

    /// True if an aside has the form of a talk: a line, and no note that asks for something else. The server may store
    /// such an aside. Where turns are streamed, a lone line without a stream that quotes the talk is an aside.
    fn looks_like_a_turn(&self, request: &RecordedRequest, body: &Value) -> bool {
        let ends_with_line = spoken_messages(body).last().is_some_and(|(role, _)| role == "user");
        let has_reply = spoken_messages(body).any(|(role, _)| role == "assistant");
        let mut replies = self.replies.get(&request.chat).into_iter().flat_map(HashMap::values);
        let quotes_talk = replies.any(|reply| spoken_messages(body).any(|(_, text)| text.contains(reply)));
        ends_with_line && (has_reply || !self.turns_are_streamed || !quotes_talk)
    }

    /// Returns the standing turns of each session.
    async fn sessions(&self) -> Vec<Vec<ShownTurn>> {
        let list = self.client.get("/v1/sessions?world_id=vale&limit=200").await;
        let mut sessions = Vec::new();
        for session in list["items"].as_array().unwrap() {
            let id = session["id"].as_str().unwrap();
            let page = self.client.get(&format!("/v1/sessions/{id}/turns?limit=200")).await;
            let text = |turn: &Value, name: &str| normalized(turn[name].as_str().unwrap());
            let turns = page["items"].as_array().unwrap().iter();
            sessions.push(
                turns
                    .map(|turn| (text(turn, "player_text"), text(turn, "reply_text")))
                    .collect(),
            );
        }
        sessions
    }

    /// Sends a request for a turn. True if the turns were compared.
    async fn take_turn(&mut self, request: &RecordedRequest, label: &str) -> bool {
        let body = self.body_of(request);
        let reply = self.send(request, &body, label).await;
        self.turns_are_streamed = body["stream"] == true;
        // After a stop without a word, the program shows nothing new. The next request waits until the reply is cut.
        if reply.is_empty() || CHATS_WITHOUT_TRANSCRIPT.contains(&request.chat.as_str()) {
            return false;
        }
        let shown = ShownTalk::from_body(&body).with_reply(request.kind, &reply);
        let is_cut = CUT_ACTIONS.iter().any(|cut| request.action.contains(cut));
        let is_shown = |session: &Vec<ShownTurn>| has_turns(session, &shown, is_cut);
        if request.sent.is_some() {
            let what = format!("{label}: the cut at what was read");
            eventually(&what, async || {
                let sessions = self.sessions().await;
                sessions.iter().any(is_shown).then_some(())
            })
            .await;
        } else {
            let sessions = self.sessions().await;
            assert!(
                sessions.iter().any(is_shown),
                "{label}: no {shown:#?} among {sessions:#?}"
            );
        }
        true
    }

    /// Sends a request beside the talk. True if the number of turns was compared.
    async fn ask_aside(&mut self, request: &RecordedRequest, label: &str) -> bool {
        let body = self.body_of(request);
        let before: usize = self.sessions().await.iter().map(Vec::len).sum();
        self.send(request, &body, label).await;
        if self.looks_like_a_turn(request, &body) {
            self.turns_are_streamed = body["stream"] == true;
            return false;
        }
        if CHATS_WITHOUT_TRANSCRIPT.contains(&request.chat.as_str()) {
            return false;
        }
        let after: usize = self.sessions().await.iter().map(Vec::len).sum();
        assert_eq!(after, before, "{label}: an aside is no turn");
        true
    }
}

/// Replays a recording, and returns the numbers of compared turns and asides.
async fn replay(recording: &str) -> (usize, usize) {
    let llm = Arc::new(NumberedLlm::default());
    let server = HttpTestServer::with(HttpTestOptions {
        llm: llm.clone(),
        chat: ChatSettings {
            // The server notices a client that hung up when it writes.
            heartbeat_ms: 50,
            allowed_origins: vec![ORIGIN.to_owned()],
            ..ChatSettings::default()
        },
        ..HttpTestOptions::default()
    });
    let client = server.start_demo_world().await;
    let mira = json!({"name": "Mira", "persona": {"description": "A herbalist."}});
    client.put("/v1/worlds/vale/npcs/mira", &mira).await;
    let mut front_end = FrontEnd {
        client,
        llm,
        replies: HashMap::new(),
        turns_are_streamed: false,
    };
    let mut turns = 0;
    let mut asides = 0;
    for (line, number) in recording.lines().zip(1..) {
        let request: RecordedRequest = serde_json::from_str(line).unwrap();
        let label = format!("line {number}, {}: {}", request.chat, request.action);
        match request.kind {
            Kind::Models => front_end.list_models(&request).await,
            Kind::Preflight => front_end.ask_for_permission(&request).await,
            Kind::Aside => asides += usize::from(front_end.ask_aside(&request, &label).await),
            _ => turns += usize::from(front_end.take_turn(&request, &label).await),
        }
    }
    (turns, asides)
}

#[actix_web::test]
async fn sessions_have_the_turns_that_sillytavern_shows() {
    assert_eq!(replay(SILLYTAVERN).await, (55, 10));
}

#[actix_web::test]
async fn sessions_have_the_turns_that_risuai_shows() {
    assert_eq!(replay(RISUAI).await, (27, 5));
}
