//! The scripted model: deterministic, offline, and openly named so (`model()` returns `scripted`).
//!
//! Like every model, the scripted model only sees the prompt. It answers every task in Korean and English from the data
//! files of `config/lexicon`. Text without a matching pattern yields no fact.

/// A pattern of the file, compiled in the tests.
macro_rules! regex {
    ($name:ident, $source:literal) => {
        static $name: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| regex::Regex::new($source).unwrap_or_else(|e| panic!("{e}")));
    };
}

mod actions;
mod claim;
mod clause_start;
mod clauses;
mod consolidation;
mod curation;
mod forget;
mod forget_request;
mod judge;
mod korean;
mod lexicon;
mod memory;
mod npc_talk;
mod objects;
mod parties;
mod prompt_memory;
mod prompt_view;
mod question;
mod render;
mod reply;
mod speech;
mod tasks;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::type_complexity, clippy::format_push_string)]
mod conversation_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::format_collect)]
mod extraction_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod prompt_tests;
#[cfg(test)]
#[allow(clippy::type_complexity)]
mod question_cases;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::time::sleep;

use colloquy_memory::{authored::Language, turn::Usage};
use colloquy_ports::llm::{ChatMessage, ChatRole, Chunk, Completion, Llm, LlmError, LlmRequest, Task};

/// The model's name in traces and usage.
pub const MODEL: &str = "scripted";

/// The beginning of a request to continue a reply that was cut, in each language.
const CONTINUE_HEADINGS: [&str; 2] = ["[Go on]", "[이어서]"];
/// The beginning of a request for more of a whole reply, in each language, with the answer.
const MORE_HEADINGS: [(&str, &str); 2] = [
    ("[Say more]", "And that is all there is to say of it."),
    ("[더 말하기]", "더 할 말은 없네."),
];

/// A chat model without a language model behind it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScriptedLlm {
    /// The pause before each word of a streamed reply to a player.
    pause: Duration,
}

impl ScriptedLlm {
    /// Reads the lexicons of both languages, so that no turn waits for them. Replies come at once.
    #[must_use]
    pub fn new() -> Self {
        for language in [Language::En, Language::Ko] {
            let _ = lexicon::lexicon_of(language);
        }
        Self { pause: Duration::ZERO }
    }

    /// Streams replies to players at so many words a second, so that a cut can come in the middle of a reply; 0: at once.
    /// Lines between NPCs are not slowed, because NPC conversations pause between lines; other answers neither.
    #[must_use]
    pub fn with_words_per_second(self, words: f64) -> Self {
        let pause = Duration::try_from_secs_f64(1.0 / words).unwrap_or(Duration::ZERO);
        Self { pause }
    }

    /// Returns the pause before each word of the answer.
    fn pause_of(&self, request: &LlmRequest) -> Duration {
        let is_for_player =
            || request.task == Task::Reply && npc_talk::next_line(split_continuation(&request.messages).0).is_none();
        if !self.pause.is_zero() && is_for_player() {
            self.pause
        } else {
            Duration::ZERO
        }
    }

    fn answer_task(request: &LlmRequest) -> String {
        let prompt = || {
            request
                .messages
                .iter()
                .map(|message| message.content.as_str())
                .collect::<Vec<_>>()
                .join("\n")
        };
        match request.task {
            Task::Reply => {
                let last = request.messages.last().map_or("", |message| message.content.as_str());
                if let Some((_, continuation)) = MORE_HEADINGS.iter().find(|(heading, _)| last.starts_with(heading)) {
                    return (*continuation).to_owned();
                }
                let (request_messages, reply_start) = split_continuation(&request.messages);
                let text =
                    npc_talk::next_line(request_messages).unwrap_or_else(|| reply::write_reply(request_messages));
                // The scripted model would begin the reply with the same words.
                let text = text.strip_prefix(reply_start).map_or("", str::trim_start);
                clip_to_tokens(text, request.max_output_tokens)
            }
            Task::Intent => {
                let prompt = prompt();
                let schema = request.json_schema.as_ref().map(|schema| schema.name);
                if tasks::wants_speaker(&prompt, schema) {
                    tasks::next_speaker(&prompt).to_string()
                } else {
                    tasks::classify_intent(&prompt).as_str().to_owned()
                }
            }
            Task::Extraction => {
                let prompt = prompt();
                let schema = request.json_schema.as_ref().map(|schema| schema.name);
                if tasks::wants_state(&prompt, schema) {
                    "{}".to_owned()
                } else {
                    tasks::extract_facts(&prompt).to_string()
                }
            }
            Task::Judge => judge::judge_pairs(&prompt()).to_string(),
            Task::Summary => tasks::summarise_turns(&prompt()).to_string(),
            Task::Curation => {
                let prompt = prompt();
                let schema = request.json_schema.as_ref().map(|schema| schema.name);
                if consolidation::wants_consolidation(&prompt, schema) {
                    consolidation::consolidate(&prompt).to_string()
                } else {
                    curation::curate_turns(&prompt).to_string()
                }
            }
        }
    }
}

/// Splits a request to continue a reply into the original messages and the reply so far.
fn split_continuation(messages: &[ChatMessage]) -> (&[ChatMessage], &str) {
    match messages {
        [asked @ .., said, request]
            if said.role == ChatRole::Assistant
                && CONTINUE_HEADINGS
                    .iter()
                    .any(|heading| request.content.starts_with(heading)) =>
        {
            (asked, &said.content)
        }
        _ => (messages, ""),
    }
}

/// Cuts a reply to a number of tokens (four characters each), at a word boundary.
fn clip_to_tokens(text: &str, tokens: u32) -> String {
    let max_chars = usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(4);
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let head: String = text.chars().take(max_chars).collect();
    head.rsplit_once(' ')
        .map_or(head.as_str(), |(words, _)| words)
        .to_owned()
}

fn estimate_usage(request: &LlmRequest, answer: &str) -> Usage {
    let tokens = |chars: usize| u32::try_from(chars.div_ceil(4)).unwrap_or(u32::MAX);
    Usage {
        prompt_tokens: tokens(
            request
                .messages
                .iter()
                .map(|message| message.content.chars().count())
                .sum(),
        ),
        cached_tokens: 0,
        completion_tokens: tokens(answer.chars().count()),
    }
}

#[async_trait]
impl Llm for ScriptedLlm {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        let text = Self::answer_task(request);
        Ok(Completion {
            usage: estimate_usage(request, &text),
            text,
            model: MODEL.to_owned(),
            at_cap: false,
            tool_calls: Vec::new(),
        })
    }

    /// Streams one chunk per word, then the usage.
    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let text = Self::answer_task(request);
        let usage = estimate_usage(request, &text);
        let chunks: Vec<_> = text
            .split_inclusive(' ')
            .map(|word| Ok(Chunk::Text(word.to_owned())))
            .chain([Ok(Chunk::Usage(usage))])
            .collect();
        let pause = self.pause_of(request);
        if pause.is_zero() {
            return Ok(stream::iter(chunks).boxed());
        }
        let mut in_block = false;
        let paced = stream::iter(chunks).then(move |chunk| {
            // The state block is not spoken.
            in_block |= matches!(&chunk, Ok(Chunk::Text(word)) if word.contains("```"));
            let is_word = !in_block && matches!(chunk, Ok(Chunk::Text(_)));
            async move {
                if is_word {
                    sleep(pause).await;
                }
                chunk
            }
        });
        Ok(paced.boxed())
    }

    fn model(&self) -> &str {
        MODEL
    }

    fn is_offline(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod pace_tests {
    use tokio::time::Instant;

    use super::*;

    fn request(task: Task, line: &str) -> LlmRequest {
        LlmRequest {
            client: None,
            task,
            model: None,
            messages: vec![
                ChatMessage::new(ChatRole::System, "You are Mira, a character in Vale. "),
                ChatMessage::new(ChatRole::User, format!("<player_line>\n{line}\n</player_line>")),
            ],
            max_output_tokens: 200,
            temperature: 0.0,
            json_schema: None,
            timeout: Duration::from_mins(1),
        }
    }

    async fn stream_time(llm: &ScriptedLlm, task: Task, line: &str) -> (Duration, usize) {
        let begun = Instant::now();
        let mut stream = llm.stream_chat(&request(task, line)).await.unwrap();
        let mut words = 0;
        while let Some(chunk) = stream.next().await {
            words += usize::from(matches!(chunk.unwrap(), Chunk::Text(_)));
        }
        (begun.elapsed(), words)
    }

    #[tokio::test]
    async fn replies_come_word_by_word_at_their_pace() {
        let pause = Duration::from_millis(20);
        let paced = ScriptedLlm::new().with_words_per_second(50.0);
        let (took, words) = stream_time(&paced, Task::Reply, "I like grapes.").await;
        assert!(words > 2, "{words}");
        assert!(
            took >= pause * u32::try_from(words).unwrap(),
            "{words} words in {took:?}"
        );
        assert_eq!(paced.pause, pause);
        // No pause at all, however fast the machine is.
        for (llm, task) in [
            (paced, Task::Intent),
            (ScriptedLlm::new(), Task::Reply),
            (paced.with_words_per_second(0.0), Task::Reply),
        ] {
            let request = request(task, "I like grapes.");
            assert_eq!(llm.pause_of(&request), Duration::ZERO);
        }
    }
}
