//! Answers of the mock server, per task.

use std::{borrow::Cow, sync::LazyLock};

use bytes::Bytes;
use regex::Regex;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::options::{FaultKind, MockOptions};
use colloquy_ports::llm::Task;

const REPLY: &str = "The road is long, friend, and the lanterns are lit early tonight. ";

/// The schema of a call that asks for the next speaker.
const NEXT_SPEAKER: &str = "next_speaker";

/// The parts of a chat request that determine the answer.
#[derive(Deserialize)]
pub(super) struct MockChatRequest<'a> {
    #[serde(default, borrow)]
    messages: Vec<RawMessage<'a>>,
    #[serde(default)]
    pub stream: bool,
    stream_options: Option<MockStreamOptions>,
    #[serde(default, borrow)]
    response_format: Option<MockResponseFormat<'a>>,
    max_tokens: Option<u32>,
    #[serde(default)]
    pub tools: Vec<serde_json::Value>,
    #[serde(default)]
    tool_choice: serde_json::Value,
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(default, borrow)]
    role: Cow<'a, str>,
    /// Parsed only for tasks that depend on the content. Replies that only call tools may have none.
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
}

impl RawMessage<'_> {
    fn raw_content(&self) -> &str {
        self.content.map_or("", RawValue::get)
    }
}

#[derive(Deserialize)]
struct MockStreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct MockResponseFormat<'a> {
    #[serde(default, borrow)]
    json_schema: Option<NamedSchema<'a>>,
}

#[derive(Deserialize)]
struct NamedSchema<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    schema: serde_json::Value,
}

impl MockChatRequest<'_> {
    pub(super) fn wants_usage(&self) -> bool {
        self.stream_options
            .as_ref()
            .is_some_and(|options| options.include_usage)
    }

    /// True if the request has tools, and no results of tools since the last line.
    pub(super) fn may_call_tools(&self) -> bool {
        let since_line = self.messages.iter().rev().take_while(|message| message.role != "user");
        let has_results = since_line.into_iter().any(|message| message.role == "tool");
        !self.tools.is_empty() && self.tool_choice != "none" && !has_results
    }

    fn schema_name(&self) -> Option<&str> {
        let schema = self.response_format.as_ref()?.json_schema.as_ref()?;
        Some(&schema.name)
    }
    /// True if the request has a field that an endpoint with this fault refuses.
    pub(super) fn is_refused_by(&self, fault: FaultKind) -> bool {
        match fault {
            FaultKind::NoSchema => self.schema_name().is_some(),
            FaultKind::NoFormat => self.response_format.is_some(),
            FaultKind::NoStreamOptions => self.stream_options.is_some(),
            _ => false,
        }
    }
    /// Returns the smallest answer that fits the schema of the request, for schemas without an answer of their own.
    fn fitting_answer(&self) -> Option<String> {
        const KNOWN: [&str; 8] = [
            "facts",
            "state",
            "verdicts",
            "summary",
            "intent",
            NEXT_SPEAKER,
            "curation",
            "consolidation",
        ];
        let schema = self.response_format.as_ref()?.json_schema.as_ref()?;
        (!KNOWN.contains(&&*schema.name)).then(|| smallest_instance(&schema.schema).to_string())
    }

    /// Returns the task: by its header, else by the schema's name, else by the prompt's request.
    pub(super) fn detect_task(&self, header: Option<&str>) -> Task {
        let header_task = header.and_then(|name| Task::ALL.into_iter().find(|task| task.as_str() == name));
        if let Some(task) = header_task {
            return task;
        }
        match self.schema_name() {
            Some("facts" | "state") => return Task::Extraction,
            Some("verdicts") => return Task::Judge,
            Some("summary") => return Task::Summary,
            Some("intent" | NEXT_SPEAKER) => return Task::Intent,
            Some(_) => return Task::Curation,
            None if self.stream => return Task::Reply,
            None => {}
        }
        let prompt = self.messages.last().map_or("", RawMessage::raw_content);
        // Quotes are escaped in the raw JSON text.
        if prompt.contains(r#"{\"facts\":"#) || prompt.contains("hp_change") {
            Task::Extraction
        } else if prompt.contains(r#"{\"verdicts\":"#) {
            Task::Judge
        } else if prompt.contains(r#"{\"summary\":"#) {
            Task::Summary
        } else if self.max_tokens.is_some_and(|cap| cap <= 20) {
            Task::Intent
        } else {
            Task::Reply
        }
    }

    fn asks_for_state(&self) -> bool {
        match self.schema_name() {
            Some(name) => name == "state",
            None => self
                .messages
                .last()
                .is_some_and(|message| message.raw_content().contains("hp_change")),
        }
    }

    /// Returns the text of all messages, or of all their text parts.
    fn all_text(&self) -> String {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum RawContent {
            Text(String),
            Parts(Vec<TextPart>),
            Other(serde::de::IgnoredAny),
        }
        #[derive(Deserialize)]
        struct TextPart {
            #[serde(default)]
            text: String,
        }
        let mut text = String::new();
        for message in &self.messages {
            match serde_json::from_str(message.raw_content()) {
                Ok(RawContent::Text(content)) => text.push_str(&content),
                Ok(RawContent::Parts(parts)) => text.extend(parts.into_iter().map(|part| part.text)),
                Ok(RawContent::Other(_)) | Err(_) => {}
            }
            text.push('\n');
        }
        text
    }
}

/// The parts of an answer that depend on the settings alone, built once per change.
pub(super) struct ReplyScript {
    pub reply: String,
    /// One event per piece of the reply, then the event with the end mark.
    pub events: Vec<Bytes>,
    /// All events as a single body.
    pub whole: Bytes,
}

impl ReplyScript {
    pub(super) fn new(settings: &MockOptions) -> Self {
        let deltas = usize::try_from(settings.deltas).unwrap_or(usize::MAX);
        let pieces: Vec<&str> = match settings.reply.as_str() {
            "" => REPLY.split_inclusive(' ').cycle().take(deltas).collect(),
            told => told.split_inclusive(' ').collect(),
        };
        let mut events: Vec<Bytes> = pieces.iter().map(|piece| delta_event(piece)).collect();
        events.push(sse_event(&json!({
            "id": "mock", "object": "chat.completion.chunk", "created": 0, "model": MODEL,
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        })));
        Self {
            reply: pieces.concat(),
            whole: events.concat().into(),
            events,
        }
    }
}

/// The model's name in every answer.
pub(super) const MODEL: &str = "mock";

pub(super) fn sse_event(value: &serde_json::Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

/// Returns the event of one piece of text.
pub(super) fn delta_event(text: &str) -> Bytes {
    field_event("content", text)
}

fn field_event(field: &str, text: &str) -> Bytes {
    sse_event(&json!({
        "id": "mock", "object": "chat.completion.chunk", "created": 0, "model": MODEL,
        "choices": [{"index": 0, "delta": {"role": "assistant", field: text}, "finish_reason": null}],
    }))
}

/// The thought of faults with a thought. No word of it is in an answer.
pub(super) const THOUGHT: &str = "Secretly pondering.";

/// Returns an answer with the thought of the fault.
pub(super) fn with_thought(fault: FaultKind, answer: &str) -> String {
    match fault {
        FaultKind::Think => format!("<think>\n{THOUGHT}\n</think>\n\n{answer}"),
        FaultKind::ThinkUnclosed => format!("<think>\n{THOUGHT}"),
        FaultKind::ThinkClosing => format!("{THOUGHT}\n</think>\n\n{answer}"),
        _ => answer.to_owned(),
    }
}

/// Changes the events of a reply as the fault demands. The last event is the end mark.
pub(super) fn modify_events(fault: FaultKind, script: &ReplyScript) -> Option<Vec<Bytes>> {
    let end = script.events.last().cloned()?;
    Some(match fault {
        FaultKind::OnePiece => vec![delta_event(&script.reply), end],
        FaultKind::Think | FaultKind::ThinkUnclosed | FaultKind::ThinkClosing => {
            let reply_chars: Vec<char> = with_thought(fault, &script.reply).chars().collect();
            // Pieces so short that the tags are split.
            let pieces = reply_chars.chunks(3).map(|piece| piece.iter().collect::<String>());
            pieces.map(|piece| delta_event(&piece)).chain([end]).collect()
        }
        FaultKind::Reasoning => {
            let fields = ["reasoning_content", "reasoning"];
            let thoughts = fields.map(|field| field_event(field, THOUGHT));
            thoughts.into_iter().chain(script.events.iter().cloned()).collect()
        }
        _ => return None,
    })
}

/// Returns the smallest value that fits a schema: the first listed value, the least number, required properties alone.
pub(super) fn smallest_instance(schema: &serde_json::Value) -> serde_json::Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("string") => json!("text"),
        Some("integer" | "number") => match &schema["minimum"] {
            serde_json::Value::Null => json!(0),
            least => least.clone(),
        },
        Some("boolean") => json!(false),
        Some("array") => json!([]),
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten();
            let names = required.filter_map(serde_json::Value::as_str);
            let property = |name: &str| (name.to_owned(), smallest_instance(&schema["properties"][name]));
            serde_json::Value::Object(names.map(property).collect())
        }
        _ => serde_json::Value::Null,
    }
}

/// Returns the last events of a stream.
pub(super) fn end_events(usage: Option<(usize, usize)>) -> Bytes {
    match usage {
        Some((prompt, completion)) => format!(
            "data: {{\"id\":\"mock\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"{MODEL}\",\"choices\":[],\
             \"usage\":{}}}\n\ndata: [DONE]\n\n",
            usage_json(prompt, completion)
        )
        .into(),
        None => Bytes::from_static(b"data: [DONE]\n\n"),
    }
}

pub(super) fn usage_json(prompt: usize, completion: usize) -> String {
    // The cache is simulated: the first three quarters of every prompt count as cached.
    format!(
        "{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion},\"total_tokens\":{},\
         \"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}",
        prompt + completion,
        prompt / 4 * 3
    )
}

/// Returns the text of an answer outside the streamed script. `number` counts the task's calls.
pub(super) fn answer_text<'a>(
    task: Task,
    request: &MockChatRequest<'_>,
    number: u64,
    settings: &'a MockOptions,
    script: &'a ReplyScript,
) -> Cow<'a, str> {
    if let Some(fitting) = request.fitting_answer() {
        return fitting.into();
    }
    match task {
        Task::Reply => script.reply.as_str().into(),
        Task::Intent if request.schema_name() == Some(NEXT_SPEAKER) => {
            json!({ "next": settings.next_speaker }).to_string().into()
        }
        Task::Intent => settings.intent.as_str().into(),
        Task::Extraction if request.asks_for_state() => "{}".into(),
        Task::Extraction => facts_json(&request.all_text(), number, settings.facts_per_turn).into(),
        Task::Judge => verdicts_json(&request.all_text(), &settings.verdict).into(),
        Task::Summary => {
            r#"{"summary":"The player and the character talked about the road and the lanterns.","importance":5}"#
                .into()
        }
        Task::Curation if request.schema_name() == Some("consolidation") => r#"{"conclusions":[]}"#.into(),
        Task::Curation if !settings.curation.is_empty() => settings.curation.as_str().into(),
        Task::Curation => {
            r#"{"findings":[],"edits":[{"edit":"append","text":"They talked about the road.","by":""}],"insights":[],"done":true}"#
                .into()
        }
    }
}

/// Returns the same verdict for every pair of a prompt.
fn verdicts_json(prompt: &str, verdict: &str) -> String {
    let pairs = prompt.matches("<newer>").count();
    let verdicts: Vec<_> = (1..=pairs)
        .map(|pair| json!({ "pair": pair, "verdict": verdict }))
        .collect();
    json!({ "verdicts": verdicts }).to_string()
}

static LIKES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\bI (?:really )?(like|love|hate) ([\p{L}][\p{L} ]{0,40}?)\s*[.!,?\n]").expect("a constant pattern")
});
static LIKES_KO: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"([가-힣]{1,12}?)(?:을|를|이|가)? (?:정말 |참 )?(좋아|싫어)").expect("a constant pattern")
});
/// A statement of an NPC about a named character.
static LIKES_OF: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b([A-Z][a-z]+) (like|love|hate)s ([\p{L}][\p{L} ]{0,40}?)\s*[.!,?\n]").expect("a constant pattern")
});

/// Returns the text between the last pair of these tags.
fn tagged_text<'a>(prompt: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = prompt.rsplit_once(&format!("<{tag}>"))?;
    Some(rest.split_once(&format!("</{tag}>"))?.0)
}

/// Returns the facts of a line and its reply. "Forget that I like plums." is a request to forget, and teaches nothing.
fn facts_json(prompt: &str, number: u64, per_turn: f64) -> String {
    let line = tagged_text(prompt, "player_line").unwrap_or(prompt);
    let mut facts = Vec::new();
    for captures in LIKES.captures_iter(&format!("{line}\n")) {
        let verb = captures[1].to_lowercase();
        let object = captures[2].to_lowercase();
        facts.push(fact_json(
            &verb,
            &object,
            &format!("The player {verb}s {object}."),
            verb == "hate",
        ));
    }
    let forget: Vec<serde_json::Value> = if line.trim_start().starts_with("Forget that ") {
        facts.drain(..).map(|fact| fact["content"].clone()).collect()
    } else {
        Vec::new()
    };
    for captures in LIKES_KO.captures_iter(line) {
        let object = &captures[1];
        let negative = &captures[2] == "싫어";
        let verb = if negative { "싫어한다" } else { "좋아한다" };
        facts.push(fact_json(
            verb,
            object,
            &format!("플레이어는 {object} 종류를 {verb}."),
            negative,
        ));
    }
    let speaker = tagged_text(prompt, "npc_name").unwrap_or_default();
    for captures in LIKES_OF.captures_iter(tagged_text(prompt, "npc_reply").unwrap_or_default()) {
        let subject = &captures[1];
        let verb = &captures[2];
        let object = &captures[3];
        let mut fact = fact_json(verb, object, &format!("{subject} {verb}s {object}."), verb == "hate");
        (fact["subject"], fact["speaker"]) = (subject.into(), speaker.into());
        facts.push(fact);
    }
    #[expect(clippy::cast_precision_loss, reason = "call counts stay far below 2^52")]
    let due = |n: u64| (n as f64 * per_turn).floor();
    let mut matter_number = due(number - 1);
    while matter_number < due(number) {
        matter_number += 1.0;
        let object = format!("matter {matter_number}");
        let content = format!("The player spoke of {object} at the crossroads.");
        facts.push(fact_json("speak of", &object, &content, false));
    }
    // The first fact is the episode. Without a fact, the server makes the line.
    let episode_text = facts.first().map(|fact| fact["content"].clone()).unwrap_or_default();
    json!({ "facts": facts, "forget": forget, "episode": { "text": episode_text, "importance": 5 } }).to_string()
}

fn fact_json(predicate: &str, object: &str, content: &str, negative: bool) -> serde_json::Value {
    json!({
        "subject": "player",
        "predicate": predicate,
        "object": object,
        "content": content,
        "keywords": [object, "preference"],
        "speaker": "player",
        "kind": "preference",
        "importance": 5,
        "polarity": if negative { "negative" } else { "positive" },
        "tense": "present",
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn request(prompt: &str, extra: &str) -> String {
        format!(
            r#"{{"messages":[{{"role":"user","content":{}}}]{extra}}}"#,
            json!(prompt)
        )
    }

    #[test]
    fn task_is_recognised_by_header_schema_or_prompt() {
        let task = |prompt: &str, extra: &str, header| {
            let body = request(prompt, extra);
            serde_json::from_str::<MockChatRequest<'_>>(&body)
                .unwrap()
                .detect_task(header)
        };
        let schema =
            |name: &str| format!(r#","response_format":{{"type":"json_schema","json_schema":{{"name":"{name}"}}}}"#);
        assert_eq!(task("hi", r#","stream":true"#, None), Task::Reply);
        assert_eq!(task("hi", r#","stream":true"#, Some("summary")), Task::Summary);
        assert_eq!(task("hi", "", None), Task::Reply);
        assert_eq!(task("hi", r#","max_tokens":20"#, None), Task::Intent);
        assert_eq!(task("hi", &schema("facts"), None), Task::Extraction);
        assert_eq!(task("hi", &schema("verdicts"), None), Task::Judge);
        assert_eq!(task("hi", &schema("summary"), None), Task::Summary);
        assert_eq!(task(r#"Answer: {"facts": []}"#, "", None), Task::Extraction);
        assert_eq!(task(r#"{"verdicts": []}"#, "", Some("nonsense")), Task::Judge);
        assert_eq!(task(r#"{"summary": "…"}"#, "", None), Task::Summary);
    }

    fn objects(prompt: &str, number: u64, per_turn: f64) -> Vec<String> {
        let facts: serde_json::Value = serde_json::from_str(&facts_json(prompt, number, per_turn)).unwrap();
        let facts = facts["facts"].as_array().unwrap();
        facts
            .iter()
            .map(|fact| fact["object"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn facts_are_extracted_from_the_line_and_by_number() {
        let line = |text: &str| {
            format!("I like examples.\n<player_line>\n{text}\n</player_line>\n<npc_reply>I like tea.</npc_reply>")
        };
        assert_eq!(objects(&line("I like grapes."), 1, 0.0), ["grapes"]);
        assert_eq!(objects(&line("I really hate cold rain"), 1, 0.0), ["cold rain"]);
        assert_eq!(objects(&line("나는 포도를 정말 좋아해"), 1, 0.0), ["포도"]);
        assert!(objects(&line("Hello there!"), 1, 0.0).is_empty());
        let wish = line("Forget that I like grapes.");
        assert!(objects(&wish, 1, 0.0).is_empty());
        let answer: serde_json::Value = serde_json::from_str(&facts_json(&wish, 1, 0.0)).unwrap();
        assert_eq!(answer["forget"], json!(["The player likes grapes."]));
        let made: Vec<usize> = (1..=6).map(|n| objects(&line("hello"), n, 0.5).len()).collect();
        assert_eq!(made, [0, 1, 0, 1, 0, 1]);
        assert_eq!(objects(&line("hello"), 1, 2.0), ["matter 1", "matter 2"]);
        let reply = "<npc_name>Mira</npc_name>\n<npc_reply>\nWell. Hanna hates cold rain. Bob likes tea\n</npc_reply>";
        assert_eq!(objects(reply, 1, 0.0), ["cold rain", "tea"]);
        let facts: serde_json::Value = serde_json::from_str(&facts_json(reply, 1, 0.0)).unwrap();
        let fact = &facts["facts"][0];
        assert_eq!(
            (&fact["subject"], &fact["speaker"], &fact["content"], &fact["polarity"]),
            (
                &json!("Hanna"),
                &json!("Mira"),
                &json!("Hanna hates cold rain."),
                &json!("negative")
            )
        );
    }

    #[test]
    fn scripted_reply_is_streamed_word_by_word() {
        let options = MockOptions {
            reply: "Hanna likes plums.".to_owned(),
            ..MockOptions::default()
        };
        let script = ReplyScript::new(&options);
        // Three pieces and the end mark.
        assert_eq!((script.reply.as_str(), script.events.len()), ("Hanna likes plums.", 4));
    }

    #[test]
    fn content_parts_are_read_like_plain_text() {
        let body = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"I like plums."}]},{"role":"user","content":null}]}"#;
        let request: MockChatRequest<'_> = serde_json::from_str(body).unwrap();
        assert!(request.all_text().contains("I like plums."));
    }
}
