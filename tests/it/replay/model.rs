//! A model and an embedder whose answers depend on nothing but what they read, so that two runs that
//! ask the same are told the same.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
};

use async_trait::async_trait;
use colloquy::{
    memory::calibration::Calibration,
    ports::{
        embedder::{EmbedAs, Embedder, EmbedderInfo},
        llm::{Chunk, Completion, Llm, LlmError, LlmRequest, Task},
    },
};
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::history::{ADJECTIVES, FRUITS, Say, name_of};

/// What lines of a history begin with, before their name.
const MARK: &str = "line-";

/// Plays a history: a line is answered, and learned from, as the history says.
#[derive(Default)]
pub struct Player {
    lines: Mutex<BTreeMap<String, Say>>,
    /// A reply that is to stay unfinished after so many characters, and whether a state block begins there.
    hold_after: Mutex<Option<(usize, bool)>>,
}

impl Player {
    /// The text of line `number`, to be spoken.
    pub fn learn(&self, number: usize, say: &Say) -> String {
        let name = name_of(number);
        self.lines.lock().insert(name.clone(), say.clone());
        let asked = FRUITS[usize::from(say.asks) % FRUITS.len()];
        format!("What about {asked}? {MARK}{name}")
    }
    /// The next reply stops after so many characters, and never ends.
    pub fn hold_after(&self, chars: usize, block: bool) {
        *self.hold_after.lock() = Some((chars, block));
    }
    /// The whole reply to a line, without its state block.
    pub fn reply(name: &str, say: &Say) -> String {
        let mut words = vec![format!("Reply {name}:")];
        words.extend((0..say.facts.len()).map(|nth| format!("fact{}", letter(nth))));
        words.push("gift".to_owned());
        words.extend((0..say.words).map(|_| "word".to_owned()));
        words.join(" ")
    }

    fn line(&self, text: &str) -> Option<(String, Say)> {
        let (_, rest) = text.rsplit_once(MARK)?;
        let name: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
        let say = self.lines.lock().get(&name).cloned()?;
        Some((name, say))
    }

    /// The line that a reply says it answers.
    fn replied(&self, text: &str) -> Option<(String, Say)> {
        let (_, rest) = text.rsplit_once("Reply ")?;
        let (name, _) = rest.split_once(':')?;
        let say = self.lines.lock().get(name).cloned()?;
        Some((name.to_owned(), say))
    }

    fn answer(&self, request: &LlmRequest) -> String {
        let texts: Vec<&str> = request
            .messages
            .iter()
            .map(|message| message.content.as_str())
            .collect();
        let text = texts.join("\n");
        let schema = request.json_schema.as_ref().map(|schema| schema.name);
        match request.task {
            Task::Reply => {
                let (name, say) = self.line(&text).expect("a line of the history");
                let reply = Self::reply(&name, &say);
                match say.state {
                    Some(hp) => format!("{reply}\n~~~state\n{}\n~~~", json!({ "hp_change": hp, "mood": name })),
                    None => reply,
                }
            }
            Task::Intent => "memory".to_owned(),
            Task::Extraction if schema == Some("state") => {
                let line = self.replied(&text).filter(|(_, say)| say.state.is_some());
                // What is left of a reply still gives, as long as the gift was heard.
                match line.filter(|_| text.contains("gift")) {
                    Some((name, say)) => json!({ "hp_change": say.state, "mood": name }).to_string(),
                    None => "{}".to_owned(),
                }
            }
            Task::Extraction => self.extraction(&text).to_string(),
            Task::Judge => json!({ "verdict": verdict(&text) }).to_string(),
            Task::Summary => summary(&text).to_string(),
            Task::Curation => String::new(),
        }
    }

    /// What is said in the reply is learned only as far as the reply was heard.
    fn extraction(&self, text: &str) -> Value {
        let Some((name, say)) = self.line(text) else {
            return json!({ "facts": [], "forget": [] });
        };
        let facts: Vec<Value> = say
            .facts
            .iter()
            .enumerate()
            .filter(|(nth, _)| text.contains(&format!("fact{}", letter(*nth))))
            .map(|(nth, fact)| fact.statement(&name, nth))
            .collect();
        let forget: Vec<String> = say
            .forget
            .iter()
            .map(|fruit| {
                format!(
                    "the player {} {}",
                    "likes red",
                    FRUITS[usize::from(*fruit) % FRUITS.len()]
                )
            })
            .collect();
        json!({ "facts": facts, "forget": forget })
    }
}

fn letter(nth: usize) -> char {
    char::from(b'a' + u8::try_from(nth % 26).expect("below 26"))
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A verdict that depends on the two statements alone.
fn verdict(text: &str) -> &'static str {
    let statements: Vec<&str> = text.lines().filter(|line| line.contains(" (fact ")).collect();
    match hash(&statements.join("|")) % 5 {
        0 | 1 => "contradicts",
        2 => "same",
        _ => "independent",
    }
}

/// Names what it covers and what it builds on.
fn summary(text: &str) -> Value {
    let of: Vec<&str> = text
        .split(MARK)
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default())
        .collect();
    let heard = text.matches("word").count() + text.matches("fact").count();
    let summary = format!("Sum of {} ({heard})", of.join(" "));
    json!({ "importance": hash(&summary) % 10 + 1, "summary": summary })
}

#[async_trait]
impl Llm for Player {
    async fn complete(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        Ok(Completion {
            text: self.answer(request),
            usage: colloquy::memory::turn::Usage::default(),
            model: "player".to_owned(),
        })
    }
    async fn stream(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let answer = self.answer(request);
        if let Some((chars, block)) = self.hold_after.lock().take() {
            let mut heard: String = answer.chars().take(chars).collect();
            if block {
                heard.push_str("\n~~~state\n{");
            }
            return Ok(stream::iter([Ok(Chunk::Text(heard))]).chain(stream::pending()).boxed());
        }
        Ok(stream::iter([Ok(Chunk::Text(answer))]).boxed())
    }
    fn model(&self) -> &'static str {
        "player"
    }
}

/// Fruits are at right angles; their adjectives are 12 degrees apart. So one adjective on is the same
/// fact, two to four are near, and another fruit is far.
pub struct Angles(EmbedderInfo);

impl Angles {
    pub fn new() -> Self {
        Self(EmbedderInfo {
            model: "angles".to_owned(),
            dimensions: 2 * FRUITS.len() + 1,
            calibration: Calibration::IDENTITY,
            offline: true,
        })
    }
}

#[async_trait]
impl Embedder for Angles {
    async fn embed(&self, _: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        Ok(texts
            .iter()
            .map(|text| {
                let mut vector = vec![0.0_f32; 2 * FRUITS.len() + 1];
                let fruit = FRUITS.iter().position(|fruit| text.contains(fruit));
                let adjective = ADJECTIVES.iter().position(|word| text.contains(word)).unwrap_or(0);
                match fruit {
                    Some(fruit) => {
                        #[expect(clippy::cast_precision_loss, reason = "a handful")]
                        let angle = (12.0 * adjective as f32).to_radians();
                        vector[2 * fruit] = angle.cos();
                        vector[2 * fruit + 1] = angle.sin();
                    }
                    None => vector[2 * FRUITS.len()] = 1.0,
                }
                vector
            })
            .collect())
    }
    fn info(&self) -> &EmbedderInfo {
        &self.0
    }
}
