//! The forms in which chat programs ask: requests to go on, groups, names before lines, and notes. What the models get.

use std::{collections::VecDeque, sync::Arc};

use async_trait::async_trait;
use colloquy::{
    ports::llm::{Chunk, Completion, Llm, LlmError, LlmRequest, Task},
    tenancy::Role,
};
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    chat::{COMPLETIONS, turns_of},
    fakes::{FakeLlm, REPLY},
    harness::{HttpTestClient, HttpTestOptions, HttpTestServer},
};
use crate::support::eventually;

const NUDGE: &str = "[Continue your last message without repeating its original content.]";

/// Says the queued texts, and notes what it was asked. With an empty queue, it answers like [`FakeLlm`].
#[derive(Default)]
pub(super) struct QueuedLlm {
    replies: Mutex<VecDeque<String>>,
    extractions: Mutex<VecDeque<String>>,
    asked: Mutex<Vec<LlmRequest>>,
}

impl QueuedLlm {
    pub(super) fn queue_replies(&self, replies: &[&str]) {
        self.replies.lock().extend(replies.iter().map(|&text| text.to_owned()));
    }

    pub(super) fn clear_replies(&self) {
        self.replies.lock().clear();
    }

    /// Returns the last request of a task.
    fn last_request(&self, task: Task) -> LlmRequest {
        let asked = self.asked.lock();
        asked.iter().rfind(|request| request.task == task).unwrap().clone()
    }

    /// Returns the texts of all requests of a task.
    fn prompts_of(&self, task: Task) -> Vec<String> {
        let asked = self.asked.lock();
        let prompts = asked.iter().filter(|request| request.task == task).map(prompt_text);
        prompts.collect()
    }

    /// Waits until an extraction has read `text`.
    async fn extraction_of(&self, text: &str) -> String {
        let what = format!("the extraction of {text}");
        eventually(&what, async || {
            let mut prompts = self.prompts_of(Task::Extraction).into_iter();
            prompts.find(|prompt| prompt.contains(text))
        })
        .await
    }
}

fn prompt_text(request: &LlmRequest) -> String {
    let texts = request.messages.iter().map(|message| message.content.as_str());
    texts.collect::<Vec<_>>().join("\n--\n")
}

#[async_trait]
impl Llm for QueuedLlm {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        self.asked.lock().push(request.clone());
        let mut completion = FakeLlm.complete_chat(request).await?;
        let queue = if request.task == Task::Extraction {
            &self.extractions
        } else {
            &self.replies
        };
        if matches!(request.task, Task::Extraction | Task::Reply)
            && let Some(text) = queue.lock().pop_front()
        {
            completion.text = text;
        }
        Ok(completion)
    }
    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        self.asked.lock().push(request.clone());
        let Some(text) = self.replies.lock().pop_front() else {
            return FakeLlm.stream_chat(request).await;
        };
        let pieces: Vec<String> = text.split_inclusive(' ').map(str::to_owned).collect();
        Ok(stream::iter(pieces.into_iter().map(|piece| Ok(Chunk::Text(piece)))).boxed())
    }
    fn model(&self) -> &'static str {
        "fake"
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn system(text: &str) -> Value {
    json!({"role": "system", "content": text})
}

pub(super) struct ChatTest {
    pub(super) server: HttpTestServer,
    pub(super) backend: HttpTestClient,
    pub(super) llm: Arc<QueuedLlm>,
}

impl ChatTest {
    pub(super) async fn start() -> Self {
        let llm = Arc::new(QueuedLlm::default());
        let server = HttpTestServer::with(HttpTestOptions {
            llm: llm.clone(),
            ..HttpTestOptions::default()
        });
        let backend = server.start_demo_world().await;
        Self { server, backend, llm }
    }

    /// Asks for state blocks in all prompts.
    async fn ask_for_state(&self) {
        let settings = json!({"prompt": {"ask_for_state": true}});
        self.backend.put("/v1/settings", &settings).await;
    }

    /// Asks for a reply of `model`, which says `reply`. Returns the new words.
    pub(super) async fn ask(&self, model: &str, messages: &[Value], reply: &str) -> String {
        ask_as(&self.backend, &self.llm, model, messages, reply).await
    }

    /// The sessions that chat programs opened, each with its standing turns as (line, reply).
    pub(super) async fn talks(&self) -> Vec<Vec<(String, String)>> {
        let sessions = self.backend.get("/v1/sessions?limit=50").await;
        let mut talks = Vec::new();
        for session in sessions["items"].as_array().unwrap() {
            talks.push(turns_of(&self.backend, session["id"].as_str().unwrap()).await);
        }
        talks
    }

    /// The only session's turns.
    pub(super) async fn turns(&self) -> Vec<(String, String)> {
        let mut talks = self.talks().await;
        assert_eq!(talks.len(), 1, "{talks:?}");
        talks.remove(0)
    }
}

pub(super) async fn ask_as(
    client: &HttpTestClient,
    llm: &QueuedLlm,
    model: &str,
    messages: &[Value],
    reply: &str,
) -> String {
    llm.queue_replies(&[reply]);
    let body = json!({"model": model, "messages": messages});
    let answer = client.post(COMPLETIONS, &body).await;
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

pub(super) fn turn(line: &str, reply: &str) -> (String, String) {
    (line.to_owned(), reply.to_owned())
}

#[actix_web::test]
async fn players_reply_goes_on_by_the_default_nudge_with_a_space_between_the_parts() {
    let test = ChatTest::start().await;
    let player = test.server.client(test.server.token("acme", Role::Player, Some("ann")));
    let ask = async |messages: &[Value], reply: &str| ask_as(&player, &test.llm, "vale/ergen", messages, reply).await;
    let first = ask(&[user("One.")], "Your word is rarer than").await;
    assert_eq!(first, "Your word is rarer than");
    let more = ask(&[user("One."), assistant(&first), system(NUDGE)], "fair weather.").await;
    assert_eq!(more, " fair weather.");
    assert!(!prompt_text(&test.llm.last_request(Task::Reply)).contains(NUDGE));
    // The program puts a space between the parts by itself.
    let whole = format!("{first} {more}");
    ask(&[user("One."), assistant(&whole), user("Two.")], "Aye.").await;
    let said = [
        turn("One.", "Your word is rarer than fair weather."),
        turn("Two.", "Aye."),
    ];
    assert_eq!(test.turns().await, said);
}

#[actix_web::test]
async fn streamed_words_after_a_reply_begin_with_a_space() {
    let test = ChatTest::start().await;
    let first = test.ask("vale/ergen", &[user("One.")], "Your word is rarer than").await;
    test.llm.queue_replies(&["fair weather."]);
    let body = json!({"model": "vale/ergen", "messages": [user("One."), assistant(&first)], "stream": true});
    let response = test.backend.request(Method::POST, COMPLETIONS).json(&body).send();
    let text = response.await.unwrap().text().await.unwrap();
    let events = text.split("\n\n").filter_map(|frame| frame.strip_prefix("data: {"));
    let said = events.filter_map(|json| {
        let event: Value = serde_json::from_str(&format!("{{{json}")).unwrap();
        event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
    });
    assert_eq!(said.collect::<String>(), " fair weather.");
    assert_eq!(
        test.turns().await,
        [turn("One.", "Your word is rarer than fair weather.")]
    );
}

#[actix_web::test]
async fn actions_of_a_reply_stand_when_the_reply_goes_on() {
    let test = ChatTest::start().await;
    test.ask_for_state().await;
    let settings = json!({"actions": [{"name": "ring_bell", "description": "Rings the bell of the tower."}]});
    let world = json!({"name": "Vale", "premise": "A quiet valley.", "settings": settings});
    test.backend.put("/v1/worlds/vale", &world).await;
    let line = user("Ring the bell.");
    let reply = "So be it.\n```state\n{\"actions\": [{\"name\": \"ring_bell\"}]}\n```";
    let first = test.ask("vale/ergen", std::slice::from_ref(&line), reply).await;
    let statuses = async || {
        let actions = test.backend.get("/v1/worlds/vale/actions").await;
        let actions = actions["items"].as_array().unwrap().iter();
        let mut statuses: Vec<_> = actions
            .map(|action| action["status"].as_str().unwrap().to_owned())
            .collect();
        statuses.sort();
        statuses
    };
    assert_eq!(statuses().await, ["requested"]);
    let more = test
        .ask("vale/ergen", &[line.clone(), assistant(&first)], "Cover your ears.")
        .await;
    // The turn is another turn, so its action is another one.
    assert_eq!(statuses().await, ["requested", "undone"]);
    assert_eq!(
        test.turns().await,
        [turn("Ring the bell.", "So be it. Cover your ears.")]
    );
    // The end of the reply asks for the action that its beginning asked for.
    let shown = first + &more;
    test.ask("vale/ergen", &[line, assistant(&shown)], &format!(" {reply}"))
        .await;
    assert_eq!(statuses().await, ["requested", "undone", "undone"]);
}

#[actix_web::test]
async fn state_changes_of_a_reply_stand_when_the_reply_goes_on() {
    let test = ChatTest::start().await;
    test.ask_for_state().await;
    let block = |mood: &str| format!("```state\n{{\"mood\": \"{mood}\", \"items_gained\": [\"a {mood} bell\"]}}\n```");
    let line = user("Have you a bell for me?");
    let first = test
        .ask(
            "vale/ergen",
            std::slice::from_ref(&line),
            &format!("Take it.\n{}", block("happy")),
        )
        .await;
    let mut shown = first;
    for (reply, bells) in [
        ("It rings well.".to_owned(), vec!["a happy bell"]),
        (
            format!("Take this one too.\n{}", block("amused")),
            vec!["a amused bell", "a happy bell"],
        ),
    ] {
        let more = test.ask("vale/ergen", &[line.clone(), assistant(&shown)], &reply).await;
        shown.push_str(&more);
        let state = test.backend.get("/v1/worlds/vale/state").await.to_string();
        assert_eq!(
            ["a amused bell", "a happy bell"]
                .into_iter()
                .filter(|bell| state.contains(bell))
                .collect::<Vec<_>>(),
            bells,
            "{state}"
        );
    }
    assert_eq!(test.turns().await.len(), 1);
    let sessions = test.backend.get("/v1/sessions").await;
    let id = sessions["items"][0]["id"].as_str().unwrap();
    let trace = test
        .backend
        .get(&format!("/v1/sessions/{id}/turns/1/trace?verify=1"))
        .await;
    assert_eq!(trace["verification"]["same"], true, "{}", trace["verification"]);
}

#[actix_web::test]
async fn words_of_other_members_are_told_from_the_players() {
    let test = ChatTest::start().await;
    let head = system("Write Mira's next reply in a fictional chat between Mira, Tom and Ann.");
    let mut talk = vec![
        head,
        assistant("Mira: Good day."),
        user("Ann: Hello, you two."),
        assistant("Tom: Geese bite."),
        user("Ann: Mira, what do I fear?"),
    ];
    let nudge = system("[Write the next reply only as Mira.]");
    let asked = [&talk[..], std::slice::from_ref(&nudge)].concat();
    // A model that sees names writes its own name too.
    assert_eq!(
        test.ask("colloquy/proxy", &asked, "Mira: \"Geese.\"").await,
        "\"Geese.\""
    );
    talk.extend([assistant("Mira: \"Geese.\""), user("Ann: Ha!"), nudge]);
    test.ask("colloquy/proxy", &talk, "Aye.").await;
    let line = "Hello, you two. / Tom: Geese bite. / Mira, what do I fear?";
    let said = [turn("", "Good day."), turn(line, "\"Geese.\""), turn("Ha!", "Aye.")];
    assert_eq!(test.turns().await, said);
    let extraction = test.llm.extraction_of("Geese bite").await;
    assert!(
        extraction.contains("are that other's, not the player's"),
        "{extraction}"
    );
}

#[actix_web::test]
async fn authored_npc_is_told_whose_words_a_line_has() {
    let test = ChatTest::start().await;
    let rule = "words after another's name and a colon";
    let talk = [
        user("Ann: Hello."),
        assistant("Tom: Geese bite."),
        system("[Write the next reply only as Ergen.]"),
    ];
    test.ask("vale/ergen", &talk, "Aye.").await;
    let prompt = prompt_text(&test.llm.last_request(Task::Reply));
    assert!(
        prompt.contains("Hello. / Tom: Geese bite. /\n</player_line>"),
        "{prompt}"
    );
    assert!(prompt.contains(rule), "{prompt}");
    let next = [
        &talk[..2],
        &[assistant("Ergen: Aye."), user("Ann: Farewell."), talk[2].clone()],
    ]
    .concat();
    test.ask("vale/ergen", &next, "Farewell.").await;
    let prompt = prompt_text(&test.llm.last_request(Task::Reply));
    assert!(prompt.contains("Geese bite") && !prompt.contains(rule), "{prompt}");
}

#[actix_web::test]
async fn first_line_with_a_name_stays_in_the_talk() {
    let test = ChatTest::start().await;
    let head = system("You are Mira, a herbalist.");
    let first = [head.clone(), user("Ann: Good day")];
    assert_eq!(test.ask("colloquy/proxy", &first, "Hello.").await, "Hello.");
    let next = [
        head,
        user("Ann: Good day"),
        assistant("Mira: Hello."),
        user("Ann: Rain?"),
    ];
    test.ask("colloquy/proxy", &next, "Yes.").await;
    assert_eq!(
        test.turns().await,
        [turn("Ann: Good day", "Hello."), turn("Rain?", "Yes.")]
    );
}

#[actix_web::test]
async fn characters_of_the_program_get_their_memories_before_the_line() {
    let test = ChatTest::start().await;
    test.ask_for_state().await;
    let head = system("You are Mira, a herbalist.");
    let opened = test
        .ask("colloquy/proxy", std::slice::from_ref(&head), "Welcome.")
        .await;
    assert_eq!(opened, "Welcome.");
    let prompt = prompt_text(&test.llm.last_request(Task::Reply));
    assert!(
        prompt.contains("[The chat begins]\nNobody has spoken yet. Write Mira's first message"),
        "{prompt}"
    );
    assert!(
        prompt.contains("counts for none of it. Mira's earlier lines"),
        "{prompt}"
    );

    let talk = [head.clone(), assistant(&opened), user("I sit down.")];
    test.ask("colloquy/proxy", &talk, "Tea?\n```state\n{\"mood\": \"happy\"}\n```")
        .await;
    let note = system("It rains.");
    let next = [&talk[..], &[assistant("Tea?"), user("Yes."), note.clone()]].concat();
    test.ask("colloquy/proxy", &next, "Here it").await;
    let request = test.llm.last_request(Task::Reply);
    let line = request
        .messages
        .iter()
        .find(|message| message.content.ends_with("Yes."))
        .unwrap();
    assert!(line.content.contains("mood: happy"), "{}", line.content);
    assert!(line.content.ends_with("\n\n[Said now]\n\nYes."), "{}", line.content);

    // The notes of the program hold for a reply that goes on, and the request to go on is the server's own.
    let more = [&next[..], &[assistant("Here it"), system(NUDGE)]].concat();
    assert_eq!(test.ask("colloquy/proxy", &more, "is.").await, " is.");
    let prompt = prompt_text(&test.llm.last_request(Task::Reply));
    assert!(prompt.contains("It rains.") && !prompt.contains(NUDGE), "{prompt}");
    assert_eq!(prompt.matches("Here it").count(), 1, "{prompt}");
}

#[actix_web::test]
async fn authored_npc_gets_no_note_about_the_next_speaker() {
    let test = ChatTest::start().await;
    let nudge = "[Write the next reply only as Ergen.]";
    let talk = [system("Rain."), user("Hello."), system(nudge)];
    test.ask("vale/ergen", &talk, "Good day.").await;
    let prompt = prompt_text(&test.llm.last_request(Task::Reply));
    assert!(
        prompt.contains("- Rain.") && !prompt.contains("Write the next reply only"),
        "{prompt}"
    );
}

#[actix_web::test]
async fn silence_in_a_talk_teaches_and_a_greeting_of_an_authored_npc_does_not() {
    let test = ChatTest::start().await;
    test.ask("vale/ergen", &[user("Hello.")], "Good day.").await;
    let silent = [user("Hello."), assistant("Good day."), system("Rain.")];
    // The first request with a note after the reply may be beside the talk.
    test.ask(
        "vale/ergen",
        &[silent[0].clone(), silent[1].clone(), user("Rain?"), silent[2].clone()],
        "Yes.",
    )
    .await;
    let silent = [&silent[..2], &[user("Rain?"), assistant("Yes."), system("Rain.")]].concat();
    test.ask("vale/ergen", &silent, "My mill stands by the ford.").await;
    let next = [
        &silent[..4],
        &[assistant("My mill stands by the ford."), user("A mill?")],
    ]
    .concat();
    test.ask("vale/ergen", &next, "Aye.").await;
    let turns = test.turns().await;
    assert_eq!(turns[2], turn("", "My mill stands by the ford."));
    let prompt = prompt_text(&test.llm.last_request(Task::Reply));
    assert!(prompt.contains("[The player says nothing]"), "{prompt}");
    test.llm.extraction_of("My mill stands by the ford.").await;
}

#[actix_web::test]
async fn extraction_of_a_turn_of_old_shows_open_promises() {
    let test = ChatTest::start().await;
    let promise = json!({"facts": [{"subject": "player", "predicate": "bring", "object": "salt",
        "content": "The player brings Ergen salt.", "keywords": ["salt"], "speaker": "player", "kind": "goal",
        "importance": 7, "polarity": "positive", "tense": "future"}]});
    test.llm.extractions.lock().push_back(promise.to_string());
    test.ask("vale/ergen", &[user("I will bring you salt.")], "Good.").await;
    let talk = [user("I will bring you salt."), assistant("Good.")];
    test.ask("vale/ergen", &[&talk[..], &[user("Farewell.")]].concat(), "Farewell.")
        .await;
    eventually("the promise", async || {
        let facts = test.backend.get("/v1/worlds/vale/npcs/ergen/facts").await.to_string();
        facts.contains("brings Ergen salt").then_some(())
    })
    .await;
    let edited = [
        user("Farewell."),
        assistant("A reply from elsewhere: salt."),
        user("Well?"),
    ];
    test.ask("vale/ergen", &[&talk[..], &edited].concat(), REPLY).await;
    test.ask(
        "vale/ergen",
        &[&talk[..], &edited, &[assistant(REPLY), user("So?")]].concat(),
        REPLY,
    )
    .await;
    let prompt = test.llm.extraction_of("A reply from elsewhere").await;
    assert!(
        prompt.contains("<open number=\"1\">") && prompt.contains("brings Ergen salt"),
        "{prompt}"
    );
}

#[actix_web::test]
async fn output_cap_of_a_program_leaves_room_for_the_state_block() {
    let test = ChatTest::start().await;
    test.ask_for_state().await;
    let body = json!({"model": "colloquy/proxy", "max_tokens": 50,
        "messages": [system("You are Mira, a herbalist."), user("Hello.")]});
    test.backend.post(COMPLETIONS, &body).await;
    assert_eq!(test.llm.last_request(Task::Reply).max_output_tokens, 350);
}
