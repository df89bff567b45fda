//! A model whose replies are set by the test, and whose extractions depend only on the words of a turn.

use std::{collections::VecDeque, sync::LazyLock};

use async_trait::async_trait;
use colloquy::memory::turn::Usage;
use colloquy::ports::llm::{Chunk, Completion, Llm, LlmError, LlmRequest, Task};
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use parking_lot::Mutex;
use regex::Regex;
use serde_json::{Value, json};

/// Lines have a mark, by which the last turn of a prompt is found.
static LINE_MARK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bline-[a-z]{3}\b").unwrap());
/// A reply with a note teaches the NPC's words about itself.
static NOTE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bnote-[a-z]{3}\b").unwrap());
/// A reply with a key gives the player the key.
static KEY: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bkey-[a-z]{3}\b").unwrap());

const USAGE: Usage = Usage {
    prompt_tokens: 10,
    cached_tokens: 0,
    completion_tokens: 5,
};

/// The pieces of a reply, without its state block. A reply without an end stops after its pieces for ever.
#[derive(Debug)]
struct NextReply {
    pieces: Vec<String>,
    has_end: bool,
}

#[derive(Default)]
pub struct HistoryLlm {
    next: Mutex<VecDeque<NextReply>>,
}

impl HistoryLlm {
    /// The next replies, in the order of the model's calls.
    pub fn say_next(&self, replies: &[String]) {
        *self.next.lock() = replies
            .iter()
            .map(|reply| NextReply {
                pieces: pieces_of(reply),
                has_end: true,
            })
            .collect();
    }
    /// The next reply stops for ever after so many of its pieces.
    pub fn stall_next(&self, reply: &str, pieces: usize) {
        let mut said = pieces_of(reply);
        said.truncate(pieces);
        *self.next.lock() = VecDeque::from([NextReply {
            pieces: said,
            has_end: false,
        }]);
    }
    /// True if the model was asked for all of the next replies.
    pub fn was_asked(&self) -> bool {
        self.next.lock().is_empty()
    }
    fn next_reply(&self) -> NextReply {
        self.next.lock().pop_front().expect("no reply was asked for")
    }
}

/// Splits a reply after some of its words.
fn pieces_of(reply: &str) -> Vec<String> {
    let words: Vec<&str> = reply.split_inclusive(' ').collect();
    words.chunks(3).map(<[&str]>::concat).collect()
}

/// The state block of a reply: the keys that the NPC gives.
fn state_of(reply: &str) -> Option<Value> {
    let keys: Vec<&str> = KEY.find_iter(reply).map(|found| found.as_str()).collect();
    (!keys.is_empty()).then(|| json!({"items_gained": keys}))
}

fn with_state_block(reply: &str) -> String {
    state_of(reply).map_or_else(String::new, |state| format!("\n~~~state\n{state}\n~~~"))
}

/// Returns the mark of the last line in a prompt, and the text after the mark.
fn last_turn(text: &str) -> Option<(&str, &str)> {
    let mark = LINE_MARK.find_iter(text).last()?;
    Some((mark.as_str(), &text[mark.end()..]))
}

fn extraction(text: &str) -> Value {
    let Some((mark, reply)) = last_turn(text) else {
        return json!({"facts": [], "forget": [], "ends": []});
    };
    let fact = |speaker: &str, content: String, object: &str| {
        json!({"subject": speaker, "speaker": speaker, "predicate": "like", "object": object, "content": content,
            "keywords": [object], "kind": "preference", "importance": 5, "polarity": "positive", "tense": "present"})
    };
    let mut facts = vec![fact("player", format!("The player likes the pears of {mark}."), mark)];
    let notes = NOTE.find_iter(reply).map(|note| note.as_str());
    facts.extend(notes.map(|note| fact("the character", format!("The character likes {note}."), note)));
    let episode = json!({"text": format!("The player spoke of {mark}."), "importance": 6});
    json!({"facts": facts, "forget": [], "ends": [], "episode": episode})
}

/// Some statements contradict older ones, by their words.
fn verdicts(text: &str) -> Value {
    let pairs = text.lines().filter(|line| line.contains("<newer>"));
    let verdict = |(number, pair): (usize, &str)| {
        let statements = pair.split_once(' ').map_or(pair, |(_, statements)| statements);
        let sum: u32 = statements.bytes().map(u32::from).sum();
        let verdict = if sum.is_multiple_of(3) {
            "contradicts"
        } else {
            "independent"
        };
        json!({"pair": number, "verdict": verdict})
    };
    let verdicts: Vec<Value> = (1..).zip(pairs).map(verdict).collect();
    json!({"verdicts": verdicts})
}

#[async_trait]
impl Llm for HistoryLlm {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        let texts: Vec<&str> = request
            .messages
            .iter()
            .map(|message| message.content.as_str())
            .collect();
        let text = texts.join("\n");
        let reads_state = request
            .json_schema
            .as_ref()
            .is_some_and(|schema| schema.name == "state");
        let answer = match request.task {
            Task::Intent => "memory".to_owned(),
            Task::Reply => {
                let reply = self.next_reply().pieces.concat();
                let block = with_state_block(&reply);
                reply + &block
            }
            Task::Extraction if reads_state => {
                let state = text.rsplit_once("<npc_reply>").and_then(|(_, reply)| state_of(reply));
                state.unwrap_or_else(|| json!({})).to_string()
            }
            Task::Extraction => extraction(&text).to_string(),
            Task::Judge => verdicts(&text).to_string(),
            task => panic!("nothing is to be asked for {task:?}"),
        };
        Ok(Completion {
            text: answer,
            usage: USAGE,
            model: "history".into(),
            at_cap: false,
            tool_calls: Vec::new(),
        })
    }
    async fn stream_chat(&self, _: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let reply = self.next_reply();
        let block = with_state_block(&reply.pieces.concat());
        let pieces = stream::iter(reply.pieces.into_iter().map(|piece| Ok(Chunk::Text(piece))));
        if !reply.has_end {
            return Ok(pieces.chain(stream::pending()).boxed());
        }
        let end = [Ok(Chunk::Text(block)), Ok(Chunk::Usage(USAGE))];
        Ok(pieces.chain(stream::iter(end)).boxed())
    }
    fn model(&self) -> &'static str {
        "history"
    }
}
