//! One of the two worlds: its authored content, and the steps of a history over REST.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    model::WITHOUT_FEELINGS,
    program::{INSIDERS, LineForm, Listeners, NPCS, PLAYERS, Pair, Program, Secret, Step},
    record::{Record, without_ids},
    server::{Answer, TwinServer},
    words::{Side, plain_word},
};
use crate::http::harness::HttpTestSocket;

pub struct TwinWorld<'t> {
    pub twin: &'t TwinServer,
    pub tenant: String,
    pub side: Side,
    pub program: &'t Program,
    /// The open session of each pair.
    pub sessions: BTreeMap<Pair, String>,
    /// The sessions that may have the secret.
    pub insiders: BTreeSet<String>,
    /// True after a person removed the secret from memory.
    is_erased: bool,
    /// All sessions, with their pairs, in order.
    pub all_sessions: Vec<(Pair, String)>,
    pub conversations: Vec<(Listeners, String)>,
    pub saves: Vec<String>,
    pub record: Record,
    /// The socket of the second player.
    pub socket: HttpTestSocket,
    tokens: BTreeMap<Option<usize>, String>,
}

impl<'t> TwinWorld<'t> {
    /// Creates the tenant and the world of a new history.
    pub async fn open(twin: &'t TwinServer, tenant: &str, side: Side, program: &'t Program) -> Self {
        twin.start_history();
        Self::open_beside(twin, tenant, side, program).await
    }

    /// Creates a tenant and a world in the present history.
    pub async fn open_beside(twin: &'t TwinServer, tenant: &str, side: Side, program: &'t Program) -> Self {
        twin.create_tenant(tenant).await;
        let players = (0..PLAYERS.len()).map(|player| (Some(player), Role::Player, Some(PLAYERS[player])));
        let tokens = players.chain([(None, Role::Backend, None)]);
        let tokens: BTreeMap<Option<usize>, String> = tokens
            .map(|(key, role, player)| (key, twin.token(tenant, role, player)))
            .collect();
        let socket = twin.server.socket(&tokens[&Some(1)]).await;
        let world = Self {
            twin,
            tenant: tenant.to_owned(),
            side,
            program,
            sessions: BTreeMap::new(),
            insiders: BTreeSet::new(),
            is_erased: false,
            all_sessions: Vec::new(),
            conversations: Vec::new(),
            saves: Vec::new(),
            record: Record::of_secret(program.secret),
            socket,
            tokens,
        };
        world.author().await;
        world
    }

    /// Sends a request as a player, or as the backend.
    pub async fn request(&self, player: Option<usize>, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.twin.call(&self.tokens[&player], method, path, body, "").await
    }

    /// Sends a conditional request as the backend.
    pub async fn get_if_changed(&self, path: &str, etag: &str) -> Answer {
        self.twin.call(&self.tokens[&None], Method::GET, path, None, etag).await
    }

    pub async fn get(&self, player: Option<usize>, path: &str) -> Answer {
        self.request(player, Method::GET, path, None).await
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = self
            .request(None, method, path, (!body.is_null()).then_some(&body))
            .await;
        assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text);
        if answer.text.is_empty() {
            Value::Null
        } else {
            answer.json()
        }
    }

    async fn author(&self) {
        let Program {
            shares,
            gossip,
            self_told,
            ..
        } = self.program;
        let settings = json!({
            "share_between_players": shares, "gossip": gossip, "self_told": if *self_told { "shared" } else { "private" },
        });
        let world = json!({"name": "The Vale", "premise": "A quiet valley.", "settings": settings});
        self.send(Method::PUT, "/v1/worlds/vale", world).await;
        for (id, name) in NPCS {
            let npc = json!({"name": name, "persona": {"description": format!("{name} lives in the Vale.")}});
            self.send(Method::PUT, &format!("/v1/worlds/vale/npcs/{id}"), npc).await;
        }
        for (id, word) in [("mill", "kettle"), ("inn", "saddle")] {
            let lore = json!({
                "name": format!("old {id}"), "keywords": [word], "layer": "A2",
                "content": format!("The {word} of the old {id} is as old as the Vale."),
            });
            self.send(Method::PUT, &format!("/v1/worlds/vale/lore/{id}"), lore)
                .await;
            let scenario = json!({
                "title": format!("The {id}"), "keywords": [word],
                "content": format!("I once found a ribbon and a {word} in the {id}."),
            });
            self.send(
                Method::PUT,
                &format!("/v1/worlds/vale/npcs/mira/scenarios/{id}"),
                scenario,
            )
            .await;
        }
        let directive = json!({"keys": ["world:*"], "instructions": ["Speak of the orchard with care."]});
        self.send(Method::PUT, "/v1/worlds/vale/directives/care", directive)
            .await;
        if let Some((path, body)) = self.secret_content() {
            self.send(Method::PUT, path, body).await;
        }
    }

    fn secret_sentence(&self, number: u8) -> String {
        // With other plain words, the episode would have other sentences that no removed fact tells.
        let is_removed = self.program.secret == Secret::Removed;
        let has_plain_words = !(is_removed || self.program.is_known && self.program.shares);
        self.side.secret_sentence(number, has_plain_words)
    }

    /// Returns the authored secret of this world, if any.
    fn secret_content(&self) -> Option<(&'static str, Value)> {
        let program = self.program;
        let is_missing = program.is_absent && self.side == Side::Second;
        let content = self.secret_sentence(0);
        let tell = program
            .is_guarded
            .then(|| json!({"text": "You look at your hands when the tower is named."}));
        let word = self.side.secret_word(2);
        let (name, keywords) = match self.side {
            _ if program.is_guarded => ("tower", vec!["lantern"]),
            // Without a tell, names and keywords are secret too. Lines of the observers have the names.
            Side::First => ("orchard", vec!["ribbon", word]),
            Side::Second => ("tower", vec!["kettle", word]),
        };
        match program.secret {
            Secret::Scenario if !is_missing => Some((
                "/v1/worlds/vale/npcs/mira/scenarios/secret",
                json!({
                    "title": name, "content": content, "keywords": keywords, "required_progress": 3, "tell": tell,
                }),
            )),
            Secret::Lore if !is_missing => Some((
                "/v1/worlds/vale/lore/secret",
                json!({
                    "name": name, "content": content, "keywords": keywords, "layer": "A1", "always": true,
                    "known_by": {"npcs": ["mira"]}, "when": [{"progress": 3}], "tell": tell,
                }),
            )),
            _ => None,
        }
    }

    /// Performs a step, and waits until all its work is done.
    pub async fn perform(&mut self, step: &Step) {
        let is_missing = self.program.is_absent && self.side == Side::Second;
        match step {
            Step::Confide { .. } | Step::ConverseInSecret { .. } if is_missing => {}
            Step::Say { pair, form, word } => self.say(*pair, form.line(plain_word(*word))).await,
            Step::Confide { number } => {
                let opening = match self.program.secret {
                    Secret::Removed => WITHOUT_FEELINGS,
                    _ => "Between us, I saw it:",
                };
                let line = format!("{opening} {}", self.secret_sentence(*number));
                self.say(INSIDERS, line).await;
            }
            Step::Erase => self.erase().await,
            Step::TakeBack { pair, number } => self.take_back(*pair, *number).await,
            Step::Converse { listeners, word, lines } => {
                self.converse(*listeners, format!("the {}", plain_word(*word)), *lines)
                    .await;
            }
            Step::ConverseInSecret { number } => {
                self.converse(Listeners::First, self.secret_sentence(*number), 2).await;
            }
            Step::Rewind { pair, turns, heard } => self.rewind(*pair, *turns, *heard).await,
            Step::Close { pair } => self.close(*pair).await,
            Step::Save => {
                let save = self.send(Method::POST, "/v1/worlds/vale/saves", json!({})).await;
                self.saves.push(save["id"].as_str().unwrap().to_owned());
            }
            Step::Restore { number } => self.restore(*number).await,
            Step::Write { npc, word, is_pinned } => self.write_fact(*npc, plain_word(*word), *is_pinned).await,
            Step::Edit { pair, number, deletes } => self.edit_fact(*pair, *number, *deletes).await,
            Step::Progress { pair, to } => {
                let path = format!(
                    "/v1/worlds/vale/players/{}/progress/{}",
                    PLAYERS[pair.player], NPCS[pair.npc].0
                );
                self.send(Method::PUT, &path, json!({"progress": to})).await;
            }
            Step::Report { player, word } => self.report(*player, plain_word(*word)).await,
            Step::Curate { pair } => {
                if let Some(session) = self.sessions.get(pair) {
                    let body = json!({"dialogue_id": session});
                    self.send(Method::POST, "/v1/worlds/vale/curation:run", body).await;
                }
            }
            Step::Consolidate { .. } => {
                self.send(Method::POST, "/v1/worlds/vale/consolidation:run", json!({}))
                    .await;
            }
            Step::Wait { hours } => self.twin.clock.advance(Duration::from_hours(*hours)),
        }
        self.twin.finish_work(&self.tenant).await;
    }

    /// Returns the open session of a pair. The second player opens its sessions on its socket.
    async fn session(&mut self, pair: Pair) -> String {
        if let Some(session) = self.sessions.get(&pair) {
            return session.clone();
        }
        let mut body = json!({"world_id": "vale", "npc_id": NPCS[pair.npc].0, "player_id": PLAYERS[pair.player]});
        let id = if pair.player == 1 {
            body["type"] = json!("session.create");
            self.socket.send(body).await;
            self.record_events_until("session.created").await["session_id"].clone()
        } else {
            self.send(Method::POST, "/v1/sessions", body).await["id"].clone()
        };
        let session = id.as_str().unwrap().to_owned();
        if self.may_know(pair) {
            self.insiders.insert(session.clone());
        }
        self.sessions.insert(pair, session.clone());
        self.all_sessions.push((pair, session.clone()));
        session
    }

    /// True if the present or the next session of the pair may have the secret.
    pub fn may_know(&self, pair: Pair) -> bool {
        match self.sessions.get(&pair) {
            Some(session) => self.insiders.contains(session),
            None => self.program.may_know(pair) && !self.is_erased,
        }
    }

    /// True if the prompts of a step may have the secret.
    pub fn is_inside(&self, step: &Step) -> bool {
        match step {
            Step::Say { pair, .. } | Step::Curate { pair } | Step::Rewind { pair, .. } | Step::Close { pair } => {
                self.may_know(*pair)
            }
            _ => self.program.is_inside(step),
        }
    }

    /// Records the events of the second player's socket up to an event, and returns that event.
    pub async fn record_events_until(&mut self, kind: &str) -> Value {
        loop {
            let event = self
                .socket
                .next()
                .await
                .unwrap_or_else(|code| panic!("the socket closed with {code}"));
            if event["type"] != "pong" {
                self.record.add(PLAYERS[1], "events", &event.to_string());
            }
            if event["type"] == kind {
                return event;
            }
            assert_ne!(event["type"], "error", "waiting for {kind}: {event}");
        }
    }

    async fn say(&mut self, pair: Pair, line: String) {
        let session = self.session(pair).await;
        let path = format!("/v1/sessions/{session}/turns");
        let answer = self
            .request(Some(pair.player), Method::POST, &path, Some(&json!({"text": line})))
            .await;
        assert!(answer.status == 200 || answer.status == 409, "{}", answer.text);
        if !self.may_know(pair) {
            self.record.add(PLAYERS[pair.player], "turn", &answer.shown());
        }
    }

    /// Says a line and takes it back, in the first world alone.
    async fn take_back(&mut self, pair: Pair, number: u8) {
        let session = self.session(pair).await;
        if self.side == Side::Second {
            return;
        }
        let line = format!(
            "I keep it: {} {}",
            self.secret_sentence(number),
            LineForm::Tell.line("barley")
        );
        let path = format!("/v1/sessions/{session}/turns");
        let turn = self.send(Method::POST, &path, json!({"text": line})).await;
        self.twin.finish_work(&self.tenant).await;
        let before = turn["turn"].as_u64().unwrap() - 1;
        self.send(
            Method::POST,
            &format!("/v1/sessions/{session}:rewind"),
            json!({"turn": before}),
        )
        .await;
    }

    async fn converse(&mut self, listeners: Listeners, topic: String, lines: u8) {
        let watchers: &[&str] = match listeners {
            Listeners::First => &["p1"],
            Listeners::Second => &["p2"],
            Listeners::Nobody | Listeners::Everybody => &[],
        };
        let body = json!({
            "world_id": "vale", "npc_ids": ["mira", "ergen"], "topic": topic, "auto": false, "max_turns": 8,
            "watchers": watchers, "open": listeners == Listeners::Everybody,
        });
        let conversation = self.send(Method::POST, "/v1/npc-conversations", body).await;
        let id = conversation["id"].as_str().unwrap().to_owned();
        if matches!(listeners, Listeners::Everybody | Listeners::Second) {
            self.socket
                .send(json!({"type": "npc_conversation.watch", "conversation_id": id}))
                .await;
            self.record_events_until("npc_conversation.created").await;
        }
        for _ in 0..lines {
            self.send(Method::POST, &format!("/v1/npc-conversations/{id}:step"), json!({}))
                .await;
            self.twin.finish_work(&self.tenant).await;
        }
        self.conversations.push((listeners, id));
    }

    async fn rewind(&mut self, pair: Pair, turns: u32, heard: bool) {
        let Some(session) = self.sessions.get(&pair) else {
            return;
        };
        let head_turn = self.get(None, &format!("/v1/sessions/{session}")).await.json()["head_turn"]
            .as_u64()
            .unwrap();
        if head_turn == 0 {
            return;
        }
        let (path, body) = if heard {
            (
                format!("/v1/sessions/{session}:interrupt"),
                json!({"turn": head_turn, "heard_chars": 10}),
            )
        } else {
            let turn = head_turn.saturating_sub(u64::from(turns));
            (format!("/v1/sessions/{session}:rewind"), json!({"turn": turn}))
        };
        let answer = self.request(None, Method::POST, &path, Some(&body)).await;
        if !self.may_know(pair) {
            self.record.add(PLAYERS[pair.player], "rewind", &answer.shown());
        }
    }

    async fn close(&mut self, pair: Pair) {
        if let Some(session) = self.sessions.remove(&pair) {
            self.send(Method::DELETE, &format!("/v1/sessions/{session}"), Value::Null)
                .await;
        }
    }

    /// Restores a save. Sessions that began later end, and closed sessions may be open again.
    async fn restore(&mut self, number: usize) {
        let Some(save) = self.saves.get(number % self.saves.len().max(1)) else {
            return;
        };
        self.send(
            Method::POST,
            &format!("/v1/worlds/vale/saves/{save}:restore"),
            json!({}),
        )
        .await;
        self.sessions.clear();
        for (pair, session) in &self.all_sessions {
            let stored = self.get(None, &format!("/v1/sessions/{session}")).await;
            if stored.status == 200 && stored.json()["status"] == "open" {
                self.sessions.insert(*pair, session.clone());
            }
        }
    }

    async fn write_fact(&self, npc: usize, word: &str, is_pinned: bool) {
        let body = json!({
            "subject": "the bridge", "predicate": "need", "object": word, "kind": "other", "pinned": is_pinned,
            "content": format!("The bridge needs a {word}."), "keywords": [word],
        });
        self.send(
            Method::POST,
            &format!("/v1/worlds/vale/npcs/{}/facts", NPCS[npc].0),
            body,
        )
        .await;
    }

    /// Returns the facts that the NPC may use with the player, sorted by their texts. The list shows the studio locked facts
    /// too.
    pub async fn open_facts(&self, pair: Pair) -> Vec<Value> {
        let (player, npc) = (PLAYERS[pair.player], NPCS[pair.npc].0);
        let path = format!("/v1/worlds/vale/npcs/{npc}/facts?player_id={player}&limit=200");
        let list = self.get(None, &path).await.json();
        let is_open = |fact: &&Value| {
            let hearers = fact["heard_by"].as_array();
            fact["locked_by"].as_array().is_none_or(Vec::is_empty)
                && hearers.is_none_or(|hearers| hearers.iter().any(|hearer| hearer == player))
        };
        let open_facts = list["items"].as_array().unwrap().iter().filter(is_open);
        let mut open_facts: Vec<Value> = open_facts.cloned().collect();
        // Jobs of the same moment run in any order.
        open_facts.sort_by_cached_key(|fact| without_ids(&fact.to_string()));
        open_facts
    }

    async fn edit_fact(&self, pair: Pair, number: usize, deletes: bool) {
        let facts = self.open_facts(pair).await;
        let Some(fact) = facts.get(number % facts.len().max(1)) else {
            return;
        };
        let path = format!("/v1/facts/{}", fact["id"].as_str().unwrap());
        if deletes {
            self.send(Method::DELETE, &path, Value::Null).await;
        } else {
            let correction = json!({"content": "The ribbon was the right one.", "object": "the ribbon"});
            let answer = self.request(None, Method::PATCH, &path, Some(&correction)).await;
            // A fact may be replaced for some of its knowers alone.
            assert!(answer.status == 200 || answer.status == 409, "{}", answer.text);
        }
    }

    /// Removes all facts that the first player's session taught Mira, and ends the session.
    async fn erase(&mut self) {
        let path = format!(
            "/v1/worlds/vale/npcs/mira/facts?player_id={}&include_invalid=true&limit=200",
            PLAYERS[INSIDERS.player]
        );
        let facts = self.get(None, &path).await.json();
        for fact in facts["items"].as_array().unwrap() {
            let path = format!("/v1/facts/{}", fact["id"].as_str().unwrap());
            self.send(Method::DELETE, &path, Value::Null).await;
        }
        self.close(INSIDERS).await;
        self.is_erased = true;
    }

    async fn report(&self, player: usize, word: &str) {
        let who = format!("player:{}", PLAYERS[player]);
        let events = json!({"events": [
            {"type": "location", "who": who, "to": "the mill"},
            {"type": "item_gained", "who": who, "item": word},
        ]});
        self.send(Method::POST, "/v1/worlds/vale/events", events).await;
    }
}
