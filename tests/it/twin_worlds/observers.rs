//! The channels of the observers: what players may read, and what a studio reads about players that may not know the
//! secret.

use colloquy::{
    ports::llm::{LlmRequest, Task},
    tenancy::Role,
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    program::{INSIDERS, Listeners, NPCS, PLAYERS, Pair, Secret, Step},
    record::MODEL,
    server::Answer,
    words::PLAIN,
    world::TwinWorld,
};

/// An id that no row has.
const UNKNOWN: &str = "ses_00000000000000000000000000";
const UNKNOWN_CONVERSATION: &str = "con_00000000000000000000000000";

impl TwinWorld<'_> {
    /// Records the prompts of a step.
    pub fn record_prompts(&mut self, step: &Step, is_inside: bool) {
        let requests = self.twin.model.take_requests();
        if is_inside {
            return;
        }
        // A verdict compares facts of overlapping audiences, also with those that the observers may not know.
        let is_compared = |request: &&LlmRequest| request.task != Task::Judge || !self.program.is_known;
        let step = format!("{step:?}");
        let kind = step.split(' ').next().unwrap_or_default();
        let prompt_of = |request: &LlmRequest| {
            let messages = request
                .messages
                .iter()
                .map(|message| format!("<{:?}> {}", message.role, message.content));
            let messages: Vec<String> = messages.collect();
            format!("({} tokens)\n{}", request.max_output_tokens, messages.join("\n"))
        };
        for task in Task::ALL {
            let requests_of_task = requests
                .iter()
                .filter(is_compared)
                .filter(|request| request.task == task);
            let prompts: Vec<String> = requests_of_task.map(prompt_of).collect();
            // Jobs of a step have no order.
            self.record
                .add_unordered(MODEL, &format!("{kind}: {}", task.as_str()), prompts);
        }
    }

    /// Records all that the observers can read now.
    pub async fn observe(&mut self) {
        self.socket.send(json!({"type": "ping"})).await;
        self.record_events_until("pong").await;
        for player in 0..PLAYERS.len() {
            self.observe_as_player(player).await;
            for npc in 0..NPCS.len() {
                let pair = Pair { player, npc };
                if !self.may_know(pair) {
                    self.observe_memory(pair).await;
                }
            }
        }
        for (pair, session) in self.all_sessions.clone() {
            if !self.insiders.contains(&session) {
                self.observe_session(pair, &session).await;
            }
        }
        self.observe_authored().await;
        if self.program.secret == Secret::Tenant {
            self.observe_as_studio().await;
        }
        // Previews ask the model too.
        self.twin.model.take_requests();
    }

    fn add(&mut self, player: usize, channel: &str, answer: &Answer) {
        self.record.add(PLAYERS[player], channel, &answer.shown());
    }

    /// Records the answers to a player's token.
    async fn observe_as_player(&mut self, player: usize) {
        let own = (0..NPCS.len()).any(|npc| !self.program.may_know(Pair { player, npc }));
        if !own {
            return;
        }
        // A list of the first player has sessions of which the observers know nothing.
        let may_know = (0..NPCS.len()).any(|npc| self.program.may_know(Pair { player, npc }));
        if !may_know {
            let mut after = String::new();
            loop {
                let page = self.get(Some(player), &format!("/v1/sessions?limit=2{after}")).await;
                self.add(player, "GET sessions", &page);
                match page.json()["next"].as_str() {
                    Some(next) => after = format!("&after={next}"),
                    None => break,
                }
            }
        }
        for (listeners, conversation) in self.conversations.clone() {
            let is_secret = self.program.secret == Secret::Conversation && listeners == Listeners::First;
            if is_secret && (player == INSIDERS.player || self.program.is_absent) {
                continue;
            }
            for part in ["", "/turns?limit=1", "/turns"] {
                let answer = self
                    .get(Some(player), &format!("/v1/npc-conversations/{conversation}{part}"))
                    .await;
                self.add(player, "GET npc-conversations", &answer);
            }
        }
        if player > 0 && !self.program.is_absent {
            self.observe_errors(player).await;
        }
    }

    /// Records the errors for the first player's rows, which must be those for unknown rows.
    async fn observe_errors(&mut self, player: usize) {
        let of_first = self.all_sessions.iter().find(|(pair, _)| pair.player == 0);
        let hidden = of_first.map(|(_, session)| session.clone());
        let secret = self
            .conversations
            .iter()
            .find(|(listeners, _)| *listeners == Listeners::First);
        let conversation = secret.map(|(_, conversation)| conversation.clone());
        let pairs = [
            ("sessions", hidden, UNKNOWN),
            ("npc-conversations", conversation, UNKNOWN_CONVERSATION),
        ];
        for (kind, hidden, unknown) in pairs {
            let Some(hidden) = hidden else { continue };
            for (method, verb) in [
                (Method::GET, ""),
                (Method::GET, "/turns"),
                (Method::POST, ":interrupt"),
                (Method::POST, ":resume"),
            ] {
                let mut shown = Vec::new();
                for id in [hidden.as_str(), unknown] {
                    let path = format!("/v1/{kind}/{id}{verb}");
                    let body = (method == Method::POST).then(|| json!({}));
                    let answer = self.request(Some(player), method.clone(), &path, body.as_ref()).await;
                    self.add(player, "errors", &answer);
                    shown.push(problem_without_request(&answer));
                }
                assert_eq!(shown[0], shown[1], "{kind}{verb}: a hidden row and an unknown row");
            }
        }
        if let Some((_, session)) = self.all_sessions.iter().find(|(pair, _)| pair.player == 0) {
            let path = format!("/v1/sessions?after={session}");
            let unknown = format!("/v1/sessions?after={UNKNOWN}");
            let hidden = self.get(Some(player), &path).await;
            let unknown = self.get(Some(player), &unknown).await;
            assert_eq!(
                problem_without_request(&hidden),
                problem_without_request(&unknown),
                "cursors"
            );
            self.add(player, "errors", &hidden);
        }
    }

    /// Records a session: as its player sees it, and as the studio explains it.
    async fn observe_session(&mut self, pair: Pair, session: &str) {
        let player = pair.player;
        let own = format!("/v1/sessions/{session}");
        for part in ["", "/turns?limit=2", "/turns?after=1", "/turns/1/trace"] {
            let answer = self.get(Some(player), &format!("{own}{part}")).await;
            self.add(player, &format!("GET session{part}"), &answer);
        }
        let view = self.get(None, &own).await;
        let head = view.json()["head_turn"].as_u64().unwrap_or(0);
        for part in ["/summaries", "/learning", "/settings?effective=true"] {
            let answer = self.get(None, &format!("{own}{part}")).await;
            self.add(player, &format!("studio session{part}"), &answer);
        }
        for turn in [1, head] {
            let answer = self.get(None, &format!("{own}/turns/{turn}/trace?verify=1")).await;
            self.add(player, "studio explanation", &answer);
            if self.program.only_adds() && answer.status == 200 {
                let verification = &answer.json()["verification"];
                assert_eq!(
                    verification["same"], true,
                    "turn {turn} of {session}: {verification}\n{}",
                    self.program
                );
            }
        }
        for list in ["curation", "curation/passes", "actions"] {
            let answer = self
                .get(None, &format!("/v1/worlds/vale/{list}?dialogue={session}"))
                .await;
            self.add(player, &format!("studio {list}"), &answer);
        }
        if view.json()["status"] == "open" {
            for (text, intent) in [
                ("What do you know of the barley and the tower?", "memory"),
                ("Your past?", "scenario"),
            ] {
                let body = json!({"text": text, "intent": intent});
                let answer = self
                    .request(None, Method::POST, &format!("{own}/context"), Some(&body))
                    .await;
                self.add(player, "studio preview", &answer);
            }
        }
    }

    /// Records searches and lists of the memory that an NPC may use with a player.
    async fn observe_memory(&mut self, pair: Pair) {
        let (player, npc) = (PLAYERS[pair.player], NPCS[pair.npc].0);
        let memory = format!("/v1/worlds/vale/npcs/{npc}");
        let words = PLAIN.join("+");
        let searches = ["barley".to_owned(), words, "candle+saddle".to_owned()];
        for words in searches {
            let answer = self
                .get(None, &format!("{memory}/facts?player_id={player}&q={words}&limit=5"))
                .await;
            self.add(pair.player, "studio search", &answer);
        }
        let open = self.open_facts(pair).await;
        for fact in &open {
            self.record.add(player, "studio facts", &fact.to_string());
        }
        if let Some(fact) = open.first().and_then(|fact| fact["id"].as_str()) {
            let path = format!("/v1/facts/{fact}");
            let answer = self.get(None, &path).await;
            let unchanged = self.get_if_changed(&path, &answer.etag).await;
            for answer in [answer, unchanged] {
                self.add(pair.player, "studio fact", &answer);
            }
            // A named channel: a history tells the studio of decisions that unsaid turns caused, and of better knowledge
            // before others.
            if self.program.secret != Secret::UnsaidTurn && !self.program.is_known {
                let history = self.get(None, &format!("{path}/history")).await;
                self.add(pair.player, "studio fact history", &history);
            }
        }
        // A named channel: the studio's lists have the stored texts, also of what a person removed.
        if !self.program.may_know(pair) {
            for list in ["episodes", "insights"] {
                let answer = self.get(None, &format!("{memory}/{list}?player_id={player}")).await;
                self.add(pair.player, &format!("studio {list}"), &answer);
            }
        }
        for path in [
            format!("/v1/worlds/vale/players/{player}/progress/{npc}"),
            format!("/v1/worlds/vale/state?who=player:{player}"),
        ] {
            // What Mira feels for the first player may follow from the secret.
            if pair.player != INSIDERS.player || !self.program.is_known {
                let answer = self.get(None, &path).await;
                self.add(pair.player, "studio state", &answer);
            }
        }
    }

    /// Records authored rows that are no secret, with their tags.
    async fn observe_authored(&mut self) {
        for path in [
            "",
            "/npcs/ergen",
            "/lore/mill",
            "/lore/mill/history",
            "/npcs/mira/scenarios/mill",
            "/directives/care",
        ] {
            let path = format!("/v1/worlds/vale{path}");
            let answer = self.get(None, &path).await;
            let unchanged = self.get_if_changed(&path, &answer.etag).await;
            for answer in [answer, unchanged] {
                self.record.add("authors", &path, &answer.shown());
            }
        }
    }

    /// Records all lists of the tenant, as its administrator sees them.
    async fn observe_as_studio(&mut self) {
        let token = self.twin.token(&self.tenant, Role::Admin, None);
        for path in [
            "/v1/worlds",
            "/v1/worlds/vale/lore",
            "/v1/worlds/vale/npcs",
            // The search calls the embedder, and is a part of the usage.
            "/v1/worlds/vale/npcs/mira/facts?q=barley",
            "/v1/worlds/vale/state",
            "/v1/worlds/vale/saves",
            "/v1/worlds/vale/flags",
            "/v1/sessions",
            "/v1/npc-conversations",
            "/v1/audit",
            "/v1/jobs",
        ] {
            let answer = self.twin.call(&token, Method::GET, path, None, "").await;
            self.record.add("studio", path, &answer.shown());
        }
        self.twin.wait_for_usage(&token).await;
        for path in ["/v1/usage", "/v1/worlds/vale/usage"] {
            let answer = self.twin.call(&token, Method::GET, path, None, "").await;
            self.record.add("studio", path, &answer.shown());
        }
        // Consolidations of two players run in any order.
        let path = "/v1/worlds/vale/npcs/mira/facts?include_invalid=true";
        let answer = self.twin.call(&token, Method::GET, path, None, "").await.json();
        let facts = answer["items"].as_array().unwrap().iter().map(Value::to_string);
        self.record.add_unordered("studio", path, facts.collect());
    }
}

/// Returns a problem without the id of its request and its path.
fn problem_without_request(answer: &Answer) -> String {
    let mut problem = answer.json();
    for field in ["request_id", "instance"] {
        problem.as_object_mut().map(|fields| fields.remove(field));
    }
    if problem == Value::Null {
        answer.text.clone()
    } else {
        format!("{} {problem}", answer.status)
    }
}
