//! A model whose answers depend only on the request, so that equal prompts get equal answers. The model repeats the
//! secrets of its prompts in replies, facts, episodes, summaries, notes and insights.

use async_trait::async_trait;
use colloquy::{
    memory::{
        calibration::Calibration,
        turn::{Intent, Usage},
    },
    ports::{
        embedder::{EmbedAs, Embedder, EmbedderInfo},
        llm::{Chunk, Completion, Llm, LlmError, LlmRequest, Task},
    },
};
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::words::{all_words, is_secret, words_in};

/// The most plain words of a prompt that a reply repeats.
const MAX_REPEATED: usize = 3;

/// The beginning of a line to which an NPC shows no feelings. A named channel: what an NPC felt at a removed statement, and
/// how important the talk was, stays.
pub const WITHOUT_FEELINGS: &str = "I tell you in passing:";

/// Records all requests.
#[derive(Default)]
pub struct EchoModel {
    requests: Mutex<Vec<LlmRequest>>,
}

impl EchoModel {
    pub fn take_requests(&self) -> Vec<LlmRequest> {
        std::mem::take(&mut self.requests.lock())
    }

    fn answer_request(&self, request: &LlmRequest) -> String {
        self.requests.lock().push(request.clone());
        let texts = request.messages.iter().map(|message| message.content.as_str());
        let text = texts.collect::<Vec<_>>().join("\n");
        let schema = request.json_schema.as_ref().map(|schema| schema.name);
        match request.task {
            Task::Reply => reply(&text),
            Task::Intent => intent(&text).as_str().to_owned(),
            Task::Extraction if schema == Some("state") => json!({}).to_string(),
            Task::Extraction => extraction(&text).to_string(),
            Task::Judge => verdicts(&text).to_string(),
            Task::Summary => summary(&text).to_string(),
            Task::Curation if schema == Some("consolidation") => consolidation(&text).to_string(),
            Task::Curation => curation(&text).to_string(),
        }
    }
}

/// Returns the usage of a call, by the lengths of prompt and answer.
fn usage(request: &LlmRequest, answer: &str) -> Usage {
    let prompt: usize = request.messages.iter().map(|message| message.content.len()).sum();
    Usage {
        prompt_tokens: u32::try_from(prompt / 4).unwrap(),
        cached_tokens: 0,
        completion_tokens: u32::try_from(answer.len() / 4).unwrap(),
    }
}

/// Returns the last text between two tags.
fn last_between<'t>(text: &'t str, open: &str, close: &str) -> Option<&'t str> {
    let (_, rest) = text.rsplit_once(open)?;
    rest.split_once(close).map(|(inside, _)| inside)
}

fn player_line(text: &str) -> &str {
    last_between(text, "<player_line>", "</player_line>").unwrap_or_default()
}

/// Returns a small number that depends on the text alone.
fn number_of(text: &str) -> usize {
    text.bytes().map(usize::from).sum()
}

fn intent(text: &str) -> Intent {
    let line = player_line(text);
    match line {
        _ if line.contains("past") => Intent::Scenario,
        _ if line.contains("world") => Intent::World,
        _ if line.contains("among you") => Intent::Overheard,
        _ if line.contains("Good day") => Intent::Chat,
        _ => Intent::Memory,
    }
}

/// Returns a reply with the words of the line, some plain words of the prompt, and all its secret words.
fn reply(prompt: &str) -> String {
    let line = player_line(prompt);
    let asked = words_in(line);
    let known = words_in(prompt);
    let mut words: Vec<&str> = asked.iter().copied().filter(|word| !is_secret(word)).collect();
    let repeated = known.iter().filter(|word| !is_secret(word) && !asked.contains(word));
    words.extend(repeated.take(MAX_REPEATED));
    words.extend(known.iter().filter(|word| is_secret(word)));
    let text = format!("I know of {}.", join_words(&words));
    match state_block(line, &words) {
        Some(block) => format!("{text}\n```state\n{block}\n```"),
        None => text,
    }
}

/// Returns the block of some replies to players. A mood, which everybody sees, depends on the line alone, and no secret
/// line changes it. A relationship, events and notes, which are private, depend on the secrets too.
fn state_block(line: &str, words: &[&str]) -> Option<Value> {
    let asked = words_in(line);
    let number = if asked.iter().any(|word| is_secret(word)) {
        2
    } else {
        number_of(&asked.concat())
    };
    if line.is_empty() || number.is_multiple_of(3) {
        return None;
    }
    let secrets: String = words.iter().copied().filter(|word| is_secret(word)).collect();
    let delta = 1 + number_of(&secrets) % 9;
    let mut block = json!({});
    if !line.contains(WITHOUT_FEELINGS) {
        block["relationship_changes"] = json!([{"to": "player", "type": "trust", "delta": delta}]);
    }
    if !asked.iter().any(|word| is_secret(word)) {
        block["mood"] = json!(["calm", "happy", "worried"][number % 3]);
    }
    if number.is_multiple_of(2) {
        block["events"] = json!([format!("The talk came to {}.", join_words(words))]);
        block["notes"] = json!([format!("Remember {}.", join_words(words))]);
    }
    Some(block)
}

fn join_words(words: &[&str]) -> String {
    if words.is_empty() {
        "nothing".to_owned()
    } else {
        words.join(" and ")
    }
}

/// Returns facts of the line and of the reply, in words of both; requests to forget; promises that are over; and the
/// episode.
fn extraction(text: &str) -> Value {
    let npc = last_between(text, "<npc_name>", "</npc_name>").unwrap_or_default();
    let line = player_line(text);
    let spoken = last_between(text, "<npc_reply>", "</npc_reply>");
    let reply = spoken.or_else(|| last_between(text, "<npc_line from=", "</npc_line>"));
    let reply = reply.unwrap_or_default();
    let mut facts = Vec::new();
    let mut forget = Vec::new();
    for word in words_in(line) {
        if line.contains("Forget") {
            let known = text
                .lines()
                .filter_map(|line| last_between(line, "<known>", "</known>"));
            forget.extend(known.filter(|known| known.contains(word)).map(str::to_owned));
        } else if line.contains("I ") {
            facts.push(statement("player", "player", word, line.contains("promise")));
        }
    }
    let told = words_in(reply).into_iter().filter(|word| !line.contains(word));
    facts.extend(told.map(|word| statement(npc, npc, word, false)));
    let is_over = |promise: &&str| line.contains("done") && words_in(line).iter().any(|word| promise.contains(word));
    let open = text.lines().filter_map(|line| line.strip_prefix("<open number=\""));
    let ends = open.filter(is_over).filter_map(|promise| {
        let number: u32 = promise.split('"').next()?.parse().ok()?;
        Some(json!({ "number": number, "how": "fulfilled" }))
    });
    let both = words_in(&format!("{line} {reply}"));
    let episode = told_sentences(&both);
    let has_feelings = !line.contains(WITHOUT_FEELINGS);
    let importance = if has_feelings { 1 + number_of(line) % 9 } else { 5 };
    json!({
        "facts": facts, "forget": forget, "ends": ends.collect::<Vec<_>>(),
        "episode": {"text": episode, "importance": importance},
    })
}

/// Returns a sentence for each word, in the words of a fact about the player.
fn told_sentences(words: &[&str]) -> String {
    let sentences: Vec<String> = words
        .iter()
        .map(|word| format!("The player keeps the {word}."))
        .collect();
    if sentences.is_empty() {
        "They talked.".to_owned()
    } else {
        sentences.join(" ")
    }
}

/// Returns a fact as an extractor writes facts.
fn statement(subject: &str, speaker: &str, word: &str, is_promise: bool) -> Value {
    let name = if subject == "player" { "The player" } else { subject };
    let predicate = if is_promise { "bring" } else { "keep" };
    let content = format!("{name} {predicate}s the {word}.");
    let kind = ["preference", "habit", "event", "opinion"][number_of(word) % 3];
    json!({
        "subject": subject, "speaker": speaker, "predicate": predicate, "object": word, "content": content,
        "keywords": [word], "kind": if is_promise { "goal" } else { kind }, "importance": 3 + number_of(word) % 6,
        "polarity": "positive", "tense": if is_promise { "future" } else { "present" },
    })
}

/// Returns a verdict for every pair, depending only on its two statements.
fn verdicts(text: &str) -> Value {
    let pairs = text.lines().filter(|line| line.contains("<newer>"));
    let verdicts = pairs.enumerate().map(|(index, pair)| {
        let statements = pair.split_once(' ').map_or(pair, |(_, statements)| statements);
        let verdict = ["independent", "same", "independent", "contradicts"][number_of(statements) % 4];
        json!({ "pair": index + 1, "verdict": verdict })
    });
    json!({ "verdicts": verdicts.collect::<Vec<_>>() })
}

fn summary(text: &str) -> Value {
    let turns = text.split_once("<turn number=").map_or("", |(_, turns)| turns);
    json!({ "summary": told_sentences(&words_in(turns)), "importance": 5 })
}

/// Puts the first two memories of the list into one.
fn consolidation(text: &str) -> Value {
    let memories = text.lines().filter(|line| line.contains(". <memory about="));
    let memories: Vec<&str> = memories.take(2).collect();
    let words = words_in(&memories.concat());
    let conclusion = json!({
        "of": [1, 2], "predicate": "keep", "object": "much", "keywords": words,
        "content": format!("Much was said of {}.", join_words(&words)),
    });
    json!({ "conclusions": if memories.len() == 2 { vec![conclusion] } else { Vec::new() } })
}

/// Returns a finding, a note, and insights about the player and about a thing, in the words of the last turn.
fn curation(text: &str) -> Value {
    let last = text.rsplit_once("<turn number=\"").map_or("", |(_, last)| last);
    let number: usize = last
        .split('"')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_default();
    let told = told_sentences(&words_in(last));
    let words = join_words(&words_in(last));
    let kind = ["contradiction", "foreshadowing", "event"][number_of(&words) % 3];
    let insights = if last.contains("<player>") {
        json!([{ "entity": "the player", "text": told, "turns": [number] }])
    } else {
        json!([{ "entity": "tower", "text": format!("The tower has {words}."), "turns": [number] }])
    };
    let finding = json!({ "about": "", "kind": kind, "text": format!("Open is {words}."), "turns": [number], "decision": "open" });
    json!({
        "findings": [finding], "insights": insights, "done": true,
        "edits": [{ "edit": "append", "text": told, "by": "" }],
    })
}

#[async_trait]
impl Llm for EchoModel {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        let text = self.answer_request(request);
        Ok(Completion {
            usage: usage(request, &text),
            text,
            model: "echo".to_owned(),
            at_cap: false,
            tool_calls: Vec::new(),
        })
    }
    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let text = self.answer_request(request);
        let usage = usage(request, &text);
        Ok(stream::iter([Ok(Chunk::Text(text)), Ok(Chunk::Usage(usage))]).boxed())
    }
    fn model(&self) -> &'static str {
        "echo"
    }
}

/// Gives each word a dimension of its own, and all texts a common dimension.
pub struct WordEmbedder(EmbedderInfo);

/// The part of the common dimension.
const COMMON: f32 = 0.7;

impl WordEmbedder {
    pub fn new() -> Self {
        Self(EmbedderInfo {
            model: "words".to_owned(),
            dimensions: all_words().count() + 1,
            calibration: Calibration::IDENTITY,
            offline: true,
        })
    }
}

#[async_trait]
impl Embedder for WordEmbedder {
    async fn embed_texts(&self, _: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        let vector = |text: &String| {
            let words = all_words().map(|word| if text.contains(word) { 1.0 } else { 0.0 });
            let vector: Vec<f32> = words.chain([COMMON]).collect();
            let norm = vector.iter().map(|part| part * part).sum::<f32>().sqrt();
            vector.into_iter().map(|part| part / norm).collect()
        };
        Ok(texts.iter().map(vector).collect())
    }
    fn info(&self) -> &EmbedderInfo {
        &self.0
    }
}
