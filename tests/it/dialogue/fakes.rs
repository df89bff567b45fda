//! A model with answers scripted by the test, and an embedder that counts words.

use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use colloquy::{
    memory::calibration::Calibration,
    ports::{
        embedder::{EmbedAs, Embedder, EmbedderInfo},
        llm::{ChatMessage, Chunk, Completion, Llm, LlmError, LlmRequest, Task},
    },
};
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use parking_lot::Mutex;
use tokio::sync::watch;

/// One answer of the model.
#[derive(Debug, Clone)]
pub enum QueuedAnswer {
    Text(String),
    /// Streams these pieces.
    Pieces(Vec<String>),
    /// Streams these pieces, then breaks off.
    Broken(Vec<String>),
    /// Streams these pieces, then stays silent.
    Silent(Vec<String>),
    Fails(LlmError),
}

/// A model that gives queued answers and records its requests.
#[derive(Default)]
pub struct QueuedLlm {
    told: Mutex<HashMap<Task, VecDeque<QueuedAnswer>>>,
    asked: Mutex<Vec<LlmRequest>>,
    /// Calls of this task get no answer.
    pub holds: watch::Sender<Option<Task>>,
}

impl QueuedLlm {
    /// Queues the next answer to `task`. With an empty queue, the model gives a harmless default.
    pub fn queue_answer(&self, task: Task, answer: QueuedAnswer) {
        self.told.lock().entry(task).or_default().push_back(answer);
    }
    pub fn queue_text(&self, task: Task, text: impl Into<String>) {
        self.queue_answer(task, QueuedAnswer::Text(text.into()));
    }
    /// Returns the prompts of `task` so far, messages joined.
    pub fn prompts_of(&self, task: Task) -> Vec<String> {
        let asked = self.asked.lock();
        let of_task = asked.iter().filter(|request| request.task == task);
        of_task
            .map(|request| {
                let texts: Vec<&str> = request.messages.iter().map(|m| m.content.as_str()).collect();
                texts.join("\n")
            })
            .collect()
    }
    /// Returns and clears the requests since the last call.
    pub fn take_requests(&self) -> Vec<LlmRequest> {
        std::mem::take(&mut *self.asked.lock())
    }
    /// Clears the unused answers.
    pub fn clear_queue(&self) {
        self.told.lock().clear();
    }
    /// Returns the messages of the prompts of `task`.
    pub fn messages(&self, task: Task) -> Vec<Vec<ChatMessage>> {
        let asked = self.asked.lock();
        let of_task = asked.iter().filter(|request| request.task == task);
        of_task.map(|request| request.messages.clone()).collect()
    }
    /// Returns the last message of the last reply prompt.
    pub fn last_context(&self) -> String {
        let asked = self.asked.lock();
        let reply = asked.iter().rev().find(|request| request.task == Task::Reply).unwrap();
        reply.messages.last().unwrap().content.clone()
    }
    /// Records the request and returns its answer, as soon as the task is not held.
    async fn answer_when_free(&self, request: &LlmRequest) -> QueuedAnswer {
        let answer = self.next_answer(request);
        let mut holds = self.holds.subscribe();
        let _ = holds.wait_for(|held| *held != Some(request.task)).await;
        answer
    }
    fn next_answer(&self, request: &LlmRequest) -> QueuedAnswer {
        self.asked.lock().push(request.clone());
        let told = self.told.lock().get_mut(&request.task).and_then(VecDeque::pop_front);
        told.unwrap_or_else(|| {
            QueuedAnswer::Text(
                match request.task {
                    Task::Reply => "Very well.",
                    Task::Intent => "memory",
                    Task::Extraction => r#"{"facts": []}"#,
                    Task::Judge => {
                        let asked = &request.messages[0].content;
                        let pairs = asked.matches("<newer>").count();
                        return QueuedAnswer::Text(super::verdicts_of(pairs, "independent"));
                    }
                    Task::Summary => r#"{"summary": "They talked.", "importance": 5}"#,
                    Task::Curation => "",
                }
                .to_owned(),
            )
        })
    }
}

#[async_trait]
impl Llm for QueuedLlm {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        match self.answer_when_free(request).await {
            QueuedAnswer::Text(text) => Ok(Completion {
                text,
                usage: colloquy::memory::turn::Usage::default(),
                model: "told".to_owned(),
                at_cap: false,
                tool_calls: Vec::new(),
            }),
            QueuedAnswer::Fails(error) => Err(error),
            QueuedAnswer::Silent(_) => std::future::pending().await,
            other => panic!("{other:?} is not a whole answer"),
        }
    }
    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let said = |pieces: Vec<String>| stream::iter(pieces.into_iter().map(|piece| Ok(Chunk::Text(piece))));
        Ok(match self.answer_when_free(request).await {
            QueuedAnswer::Text(text) => said(vec![text]).boxed(),
            QueuedAnswer::Pieces(pieces) => said(pieces).boxed(),
            QueuedAnswer::Broken(pieces) => said(pieces)
                .chain(stream::iter([Err(LlmError::Broken("no end mark".to_owned()))]))
                .boxed(),
            QueuedAnswer::Silent(pieces) => said(pieces).chain(stream::pending()).boxed(),
            QueuedAnswer::Fails(error) => return Err(error),
        })
    }
    fn model(&self) -> &'static str {
        "told"
    }
}

/// Counts words: texts with the same words have cosine 1, texts without a common word 0.
pub struct WordEmbedder {
    info: EmbedderInfo,
    queries: AtomicUsize,
    /// Texts with this word are refused, with all other texts of the same call.
    pub refuses: Mutex<Option<&'static str>>,
    /// True: no call is answered.
    away: AtomicBool,
    /// Calls with this word get no answer.
    pub holds: watch::Sender<Option<&'static str>>,
}

impl WordEmbedder {
    const DIMENSIONS: usize = 512;

    pub fn new() -> Self {
        Self {
            info: EmbedderInfo {
                model: "words".to_owned(),
                dimensions: Self::DIMENSIONS,
                calibration: Calibration::IDENTITY,
                offline: true,
            },
            queries: AtomicUsize::new(0),
            refuses: Mutex::new(None),
            away: AtomicBool::new(false),
            holds: watch::Sender::new(None),
        }
    }
    /// Makes all calls fail, as those of an embedder that cannot be reached, or not any more.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }
    /// Returns the number of embedded queries.
    pub fn query_count(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Embedder for WordEmbedder {
    async fn embed_texts(&self, kind: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        if kind == EmbedAs::Query {
            self.queries.fetch_add(1, Ordering::SeqCst);
        }
        if self.away.load(Ordering::SeqCst) {
            return Err(LlmError::Unavailable("no embedder".to_owned()));
        }
        let refused = *self.refuses.lock();
        if refused.is_some_and(|refused| texts.iter().any(|text| text.contains(refused))) {
            return Err(LlmError::Refused("no embedder".to_owned()));
        }
        let mut holds = self.holds.subscribe();
        let free = holds.wait_for(|held| held.is_none_or(|held| texts.iter().all(|text| !text.contains(held))));
        let _ = free.await;
        Ok(texts
            .iter()
            .map(|text| {
                let mut vector = vec![0.0_f32; Self::DIMENSIONS];
                let lower = text.to_lowercase();
                for word in lower
                    .split(|c: char| !c.is_alphanumeric())
                    .filter(|word| !word.is_empty())
                {
                    let hash = word
                        .bytes()
                        .fold(5_381_usize, |hash, byte| hash.wrapping_mul(33) ^ usize::from(byte));
                    vector[hash % Self::DIMENSIONS] += 1.0;
                }
                let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
                if norm == 0.0 {
                    vector[0] = 1.0;
                } else {
                    for x in &mut vector {
                        *x /= norm;
                    }
                }
                vector
            })
            .collect())
    }
    fn info(&self) -> &EmbedderInfo {
        &self.info
    }
}
