//! Questions to a language model, at the endpoint and with the settings that the server would use.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::{
    prompt::ReplyPrompt,
    questions::Questions,
    report::Check,
    verdicts::{
        BlockSample, ContextSample, EndpointView, FormatOutcome, FormatSamples, StreamSample, judge_context,
        judge_failure, judge_first_token, judge_format, judge_intent, judge_language, judge_listing, judge_state_block,
        judge_stream, judge_thoughts,
    },
};
use crate::{
    app::llm_options,
    config::{Config, LlmEndpoint},
};
use colloquy_dialogue::models::parse_json_answer;
use colloquy_memory::{
    authored::Language,
    state_block::{StateBlock, StateRules, StreamCutter},
    tokens::TokenCounter,
    turn::{Intent, Usage},
};
use colloquy_models::openai::{HttpClient, OpenAiLlm, OpenAiLlmOptions, redact_url};
use colloquy_ports::llm::{ChatMessage, ChatRole, Chunk, Completion, JsonSchema, Llm, LlmError, LlmRequest, Task};

/// Room for a thought and an answer, in tokens.
const ANSWER_TOKENS: u32 = 600;

/// A model of the routes.
pub(super) struct ModelSubject<'a> {
    /// The name in the configuration.
    pub name: &'a str,
    /// The tasks that ask this model first. Empty for a model that is only a fallback.
    pub tasks: Vec<Task>,
    pub resolved: LlmEndpoint<'a>,
}

/// The questions to all models.
pub(super) struct ModelProbe<'a> {
    pub config: &'a Config,
    pub http: &'a HttpClient,
    pub questions: &'a Questions,
    /// Prompts of NPCs; empty if replies have no state block.
    pub prompts: &'a [ReplyPrompt],
    /// The limit of one question.
    pub limit: Duration,
    /// True if a prompt of `prompt.total_tokens` is sent.
    pub with_long_prompt: bool,
}

/// A streamed answer.
struct StreamedAnswer {
    sample: StreamSample,
    text: String,
}

impl ModelProbe<'_> {
    /// Asks everything that the tasks of the model need.
    pub(super) async fn ask_model(&self, subject: &ModelSubject<'_>) -> Vec<Check> {
        let section = subject.resolved.section();
        let endpoint = EndpointView {
            section: &section,
            settings: &subject.resolved.settings,
        };
        let mut checks = self.ask_all(subject, &endpoint).await;
        for check in &mut checks {
            subject.name.clone_into(&mut check.subject);
        }
        checks
    }

    async fn ask_all(&self, subject: &ModelSubject<'_>, endpoint: &EndpointView<'_>) -> Vec<Check> {
        let url = redact_url(&endpoint.settings.base_url);
        let mut checks = Vec::new();
        let options = llm_options(&subject.resolved);
        let listed = self.http.list_models(&options.endpoint, self.limit).await;
        let listed = listed.and_then(|listed| judge_listing(&listed, &options.model, &url));
        let opened = self.open_model(options, endpoint, &url, &mut checks).await;
        checks.extend(listed);
        let Some((mut llm, options)) = opened else {
            return checks;
        };
        let replies = subject.tasks.contains(&Task::Reply);
        let json = subject
            .tasks
            .iter()
            .any(|task| !matches!(task, Task::Reply | Task::Intent));
        if replies {
            if let Some(other_llm) = self
                .ask_stream(&llm, options.clone(), endpoint, &url, &mut checks)
                .await
            {
                llm = other_llm;
            }
            self.ask_languages(&llm, &mut checks).await;
        }
        if json {
            checks.push(self.ask_formats(&options, endpoint).await);
        }
        if subject.tasks.contains(&Task::Intent) {
            checks.extend(self.ask_intent(&llm).await);
        }
        if replies {
            checks.extend(self.ask_state_blocks(&llm).await);
            if self.with_long_prompt {
                checks.push(self.ask_context(&llm, &subject.resolved).await);
            }
        }
        checks.push(judge_thoughts(llm.observed_thoughts(), endpoint));
        checks
    }

    /// Asks for any answer. If the endpoint refuses the request, tries the fields that some endpoints refuse.
    async fn open_model(
        &self,
        options: OpenAiLlmOptions,
        endpoint: &EndpointView<'_>,
        url: &str,
        checks: &mut Vec<Check>,
    ) -> Option<(OpenAiLlm, OpenAiLlmOptions)> {
        let llm = match OpenAiLlm::new(self.http, options.clone()) {
            Ok(llm) => llm,
            Err(error) => {
                checks.push(Check::fail("answer", error.to_string()));
                return None;
            }
        };
        let hello = self.request(Task::Reply, &self.questions.hello_en);
        match llm.complete_chat(&hello).await {
            Ok(answer) => {
                checks.push(Check::ok("answer", format!("`{}` answers at {url}", answer.model)));
                return Some((llm, options));
            }
            Err(LlmError::Refused(_)) => {}
            Err(error) => {
                checks.push(judge_failure(&error, endpoint, url, self.limit.as_secs()));
                return None;
            }
        }
        let cap = ("max_completion_tokens", !options.max_completion_tokens);
        let temperature = ("send_temperature", false);
        let variants: [&[(&str, bool)]; 3] = [&[cap], &[temperature], &[cap, temperature]];
        for changes in variants {
            let variant = OpenAiLlmOptions {
                max_completion_tokens: options.max_completion_tokens ^ changes.contains(&cap),
                send_temperature: options.send_temperature && !changes.contains(&temperature),
                ..options.clone()
            };
            let Ok(other_llm) = OpenAiLlm::new(self.http, variant.clone()) else {
                continue;
            };
            if other_llm.complete_chat(&hello).await.is_ok() {
                let mut check = Check::fail("answer", format!("{url} refuses a field of each request"));
                for (name, value) in changes {
                    check = check.change(format!("{}.{name}", endpoint.section), *value);
                }
                checks.push(check);
                return Some((other_llm, variant));
            }
        }
        let error = LlmError::Refused("400, with and without a temperature, and with either field for the cap".into());
        checks.push(judge_failure(&error, endpoint, url, self.limit.as_secs()));
        None
    }

    /// Asks for a stream. Returns a model without `stream_options`, if the endpoint refuses the field.
    async fn ask_stream(
        &self,
        llm: &OpenAiLlm,
        options: OpenAiLlmOptions,
        endpoint: &EndpointView<'_>,
        url: &str,
        checks: &mut Vec<Check>,
    ) -> Option<OpenAiLlm> {
        let story = self.request(Task::Reply, &self.questions.story);
        let mut streamed = self.stream(llm, &story).await;
        if let Err(LlmError::Broken(_)) = &streamed
            && llm.observed_thoughts().prefilled
        {
            // The first stream shows that the prompt opens the thought. The next one withholds the thought.
            streamed = self.stream(llm, &story).await;
        }
        if let Err(LlmError::Refused(_)) = &streamed
            && options.stream_usage
            && let Ok(other_llm) = OpenAiLlm::new(
                self.http,
                OpenAiLlmOptions {
                    stream_usage: false,
                    ..options
                },
            )
            && let Ok(answer) = self.stream(&other_llm, &story).await
        {
            let check = Check::fail("stream", format!("{url} refuses stream_options"));
            checks.push(check.change(format!("{}.stream_usage", endpoint.section), false));
            checks.push(judge_first_token(&answer.sample, llm.observed_thoughts(), endpoint));
            return Some(other_llm);
        }
        match streamed {
            Ok(answer) => {
                checks.push(judge_stream(&answer.sample));
                checks.push(judge_first_token(&answer.sample, llm.observed_thoughts(), endpoint));
            }
            Err(error) => {
                let mut check = judge_failure(&error, endpoint, url, self.limit.as_secs());
                check.name = "stream";
                checks.push(check);
            }
        }
        None
    }

    async fn ask_languages(&self, llm: &OpenAiLlm, checks: &mut Vec<Check>) {
        for (question, language) in [
            (&self.questions.hello_en, Language::En),
            (&self.questions.hello_ko, Language::Ko),
        ] {
            let answer = llm.complete_chat(&self.request(Task::Reply, question)).await;
            let text = answer.map(|answer| answer.text).unwrap_or_default();
            checks.push(judge_language(&text, language));
        }
    }

    async fn ask_formats(&self, options: &OpenAiLlmOptions, endpoint: &EndpointView<'_>) -> Check {
        let build_llm = |schema: bool, object: bool| {
            OpenAiLlm::new(
                self.http,
                OpenAiLlmOptions {
                    supports_json_schema: schema,
                    supports_json_object: object,
                    ..options.clone()
                },
            )
        };
        let mut prose = self.request(Task::Extraction, &self.questions.prose);
        let mut plain_request = self.request(Task::Extraction, &self.questions.words);
        plain_request.json_schema = None;
        prose.json_schema = Some(JsonSchema::for_object(
            "weather",
            serde_json::json!({
                "sky": { "type": "string", "enum": ["sunny", "cloudy", "rainy"] }, "degrees": { "type": "integer" },
            }),
        ));
        let ask = async |llm: Result<OpenAiLlm, _>, request: &LlmRequest| match llm {
            Ok(llm) => llm.complete_chat(request).await.ok(),
            Err(_) => None,
        };
        let schema = outcome_of(ask(build_llm(true, false), &prose).await, |text| {
            parse_json_answer::<Weather>(text).is_ok_and(|weather| {
                ["sunny", "cloudy", "rainy"].contains(&weather.sky.as_str()) && weather.degrees.is_finite()
            })
        });
        let object = match schema {
            FormatOutcome::Enforced => None,
            _ => Some(outcome_of(ask(build_llm(false, true), &prose).await, |text| {
                serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text.trim()).is_ok()
            })),
        };
        let answer = ask(build_llm(false, false), &plain_request).await;
        let in_words = answer.is_some_and(|answer| {
            parse_json_answer::<Purchase>(&answer.text)
                .is_ok_and(|purchase| purchase.fruit.to_lowercase().contains("pear") && purchase.count == 7)
        });
        let samples = FormatSamples {
            schema,
            object,
            in_words,
        };
        judge_format(samples, endpoint)
    }

    async fn ask_intent(&self, llm: &OpenAiLlm) -> Option<Check> {
        let task = &self.config.llm.tasks.intent;
        let mut request = self.request(Task::Intent, &self.questions.intent);
        request.max_output_tokens = task.max_output_tokens;
        let started_at = Instant::now();
        let answer = llm.complete_chat(&request).await;
        let elapsed_ms = started_at.elapsed().as_secs_f64() * 1e3;
        let is_known = answer.is_ok_and(|answer| Intent::find_in(&answer.text).is_some());
        Some(judge_intent(elapsed_ms, task.timeout_ms, is_known))
    }

    async fn ask_state_blocks(&self, llm: &OpenAiLlm) -> Option<Check> {
        if self.prompts.is_empty() {
            return None;
        }
        let mut samples = Vec::new();
        let mut at_cap = false;
        for prompt in self.prompts {
            let mut request = self.request(Task::Reply, "");
            request.messages.clone_from(&prompt.messages);
            request.max_output_tokens = self.config.llm.tasks.reply.max_output_tokens;
            request.temperature = self.config.llm.tasks.reply.temperature;
            let Ok(answer) = self.stream(llm, &request).await else {
                samples.push(BlockSample::Missing);
                continue;
            };
            at_cap |= answer.sample.at_cap;
            samples.push(read_block(&answer.text, &prompt.npc));
        }
        let mut check = judge_state_block(&samples, self.config.turn.replies_without_block);
        if at_cap {
            let larger_cap = self
                .config
                .llm
                .tasks
                .reply
                .max_output_tokens
                .saturating_mul(2)
                .min(32_768);
            check = check
                .advise("A reply ended at its output cap.")
                .change("llm.tasks.reply.max_output_tokens", larger_cap);
        }
        Some(check)
    }

    async fn ask_context(&self, llm: &OpenAiLlm, resolved: &LlmEndpoint<'_>) -> Check {
        let counter = TokenCounter::for_model(resolved.model);
        let count = |text: &str| counter.count_tokens(text);
        let sample = async |tokens: u32| {
            let text = self.questions.long_prompt(tokens, count);
            let answer = llm.complete_chat(&self.request(Task::Reply, &text)).await?;
            Ok::<_, LlmError>(ContextSample {
                counted: count(&text),
                reported: answer.usage.prompt_tokens,
                repeated: answer.text.to_lowercase().contains(&self.questions.secret),
            })
        };
        // The short prompt shows how the endpoint counts.
        let short = sample(300).await.ok();
        match sample(self.config.prompt.total_tokens).await {
            Ok(long) => judge_context(&long, short.as_ref()),
            Err(error) => Check::warn(
                "context",
                format!("a prompt of prompt.total_tokens is not answered: {error}"),
            )
            .advise("Lower prompt.total_tokens, or use a faster model or one with a longer context."),
        }
    }

    fn request(&self, task: Task, question: &str) -> LlmRequest {
        LlmRequest {
            client: None,
            task,
            model: None,
            messages: vec![ChatMessage::new(ChatRole::User, question)],
            max_output_tokens: ANSWER_TOKENS,
            temperature: 0.0,
            json_schema: None,
            timeout: self.limit,
        }
    }

    /// Reads a streamed answer to its end, within the limit of one question.
    async fn stream(&self, llm: &OpenAiLlm, request: &LlmRequest) -> Result<StreamedAnswer, LlmError> {
        let started_at = Instant::now();
        let answer = async {
            let mut stream = llm.stream_chat(request).await?;
            let mut pieces = 0;
            let mut text = String::new();
            let mut at_cap = false;
            let mut first_ms = None;
            while let Some(chunk) = stream.next().await {
                match chunk? {
                    Chunk::Text(piece) => {
                        pieces += 1;
                        text.push_str(&piece);
                        if !text.trim().is_empty() {
                            first_ms.get_or_insert_with(|| started_at.elapsed().as_secs_f64() * 1e3);
                        }
                    }
                    Chunk::AtCap => at_cap = true,
                    Chunk::ToolCalls(_) | Chunk::Usage(Usage { .. }) => {}
                }
            }
            let whole_ms = started_at.elapsed().as_secs_f64() * 1e3;
            Ok(StreamedAnswer {
                sample: StreamSample {
                    pieces,
                    chars: text.chars().count(),
                    first_ms: first_ms.unwrap_or(whole_ms),
                    whole_ms,
                    at_cap,
                },
                text,
            })
        };
        tokio::time::timeout(self.limit, answer)
            .await
            .unwrap_or(Err(LlmError::Timeout))
    }
}

#[derive(serde::Deserialize)]
struct Weather {
    sky: String,
    degrees: f64,
}

#[derive(serde::Deserialize)]
struct Purchase {
    fruit: String,
    count: u32,
}

/// Returns how an endpoint treated the format of a request.
fn outcome_of(answer: Option<Completion>, fits: impl Fn(&str) -> bool) -> FormatOutcome {
    match answer {
        None => FormatOutcome::Refused,
        Some(answer) if fits(&answer.text) => FormatOutcome::Enforced,
        Some(_) => FormatOutcome::Ignored,
    }
}

/// Reads the state block of a reply as a turn does.
fn read_block(text: &str, npc: &str) -> BlockSample {
    let mut cutter = StreamCutter::new(&[]);
    cutter.push(text);
    let reply_end = cutter.finish_reply();
    let Some(text) = reply_end.state_block else {
        return BlockSample::Missing;
    };
    let block = StateBlock {
        text,
        closed: reply_end.closed,
    };
    match block.parse_changes(npc, &StateRules::default()) {
        Ok(parsed) => BlockSample::Readable(!parsed.changes.is_empty()),
        Err(error) => BlockSample::Unreadable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_of_a_reply_is_read_as_in_a_turn() {
        for (reply, sample) in [
            ("Thank you.", BlockSample::Missing),
            (
                "Thank you.\n```state\nitems_gained: lantern\n```",
                BlockSample::Readable(true),
            ),
            ("Thank you.\n```state\n{}\n```", BlockSample::Readable(false)),
        ] {
            assert_eq!(read_block(reply, "Mira"), sample, "{reply}");
        }
        assert!(matches!(
            read_block("Thank you.\n```state\nitems_gained: lantern", "Mira"),
            BlockSample::Unreadable(_)
        ));
    }
}
