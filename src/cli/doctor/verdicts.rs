//! What the answers of a language model mean. Pure: samples in, checks out.

use std::cmp::Reverse;

use super::report::Check;
use crate::config::{EndpointSection, presets::ReasoningField};
use colloquy_memory::authored::Language;
use colloquy_models::openai::ObservedThoughts;
use colloquy_ports::llm::LlmError;

/// A player waits this long for the first word without a complaint, in ms.
const GOOD_FIRST_TOKEN_MS: f64 = 1_500.0;
/// A reply of so many characters has more than one piece, if it streams.
const STREAMED_CHARS: usize = 40;
/// The share of a reply's time after which the first piece of a stream must have come.
const LATE_FIRST_SHARE: f64 = 0.9;
/// A stream of less time is too short to judge its pace, in ms.
const JUDGED_STREAM_MS: f64 = 1_000.0;
/// The least share of letters in the language of the question.
const LANGUAGE_SHARE: f64 = 0.5;
/// The least share of a long prompt that the endpoint must have read.
const READ_SHARE: f64 = 0.8;

/// The most names of models in a finding.
const LISTED_MODELS: usize = 5;

/// The settings of an endpoint, and their section.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndpointView<'a> {
    /// `llm` or `llm.endpoints.NAME`.
    pub section: &'a str,
    pub settings: &'a EndpointSection,
}

impl EndpointView<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.section)
    }
}

/// The meaning of a call that failed.
pub(super) fn judge_failure(error: &LlmError, endpoint: &EndpointView<'_>, shown_url: &str, asked_s: u64) -> Check {
    let message = error.to_string();
    let status = match error {
        LlmError::Unavailable(text) | LlmError::Refused(text) => {
            text.get(..3).and_then(|code| code.parse::<u16>().ok())
        }
        _ => None,
    };
    let check = |advice: String| Check::fail("answer", message.clone()).advise(advice);
    match (error, status) {
        (_, Some(401 | 403)) => check(format!(
            "The endpoint {shown_url} refuses the key: set {} (or its environment variable).",
            endpoint.key("api_key")
        )),
        (_, Some(404)) => check(format!(
            "{shown_url} has no such model or path: check the model's name, and that {} ends as the provider's \
             documents say (most end in /v1).",
            endpoint.key("base_url")
        )),
        (_, Some(402)) => check(format!("The account at {shown_url} has no credit.")),
        (LlmError::Unavailable(_), None) => check(format!(
            "Nothing answers at {shown_url}: start the model server, or set {}.",
            endpoint.key("base_url")
        )),
        (LlmError::Timeout, _) => check(format!(
            "No answer within {asked_s} s. A model that is loaded at its first call needs longer once: ask again. \
             Otherwise use a smaller model."
        )),
        (LlmError::RateLimited { .. }, _) => {
            check("The endpoint limits requests: ask again later, or raise the limit there.".to_owned())
        }
        (LlmError::Broken(text), _) if text.contains("thought") => {
            check("The model spends its tokens on thoughts.".to_owned()).with_reasoning_off(endpoint)
        }
        _ => check("The endpoint's own words are in the log above.".to_owned()),
    }
}

/// Whether the endpoint lists the model. `None`: the list is empty.
pub(super) fn judge_listing(listed: &[String], model: &str, shown_url: &str) -> Option<Check> {
    // Endpoints list `models/NAME` or `NAME:latest` for NAME, and NAME for `NAME:free`.
    let is_model = |id: &String| {
        let id = id.strip_prefix("models/").unwrap_or(id);
        id == model
            || id.strip_suffix(":latest") == Some(model)
            || model.split_once(':').is_some_and(|(name, _)| name == id)
    };
    if listed.iter().any(is_model) {
        return Some(Check::ok("listed", format!("{shown_url} lists `{model}`")));
    }
    let common_chars = |id: &&String| {
        let pairs = id.chars().zip(model.chars());
        pairs
            .take_while(|(left, right)| left.eq_ignore_ascii_case(right))
            .count()
    };
    let mut similar: Vec<&String> = listed.iter().collect();
    similar.sort_by_key(|id| Reverse(common_chars(id)));
    similar.truncate(LISTED_MODELS);
    let names: Vec<String> = similar.iter().map(|id| format!("`{id}`")).collect();
    let finding = format!("{shown_url} does not list `{model}`, but has {}", names.join(", "));
    let unlisted_count = listed.len().saturating_sub(LISTED_MODELS);
    let finding = if unlisted_count > 0 {
        format!("{finding} and {unlisted_count} more")
    } else {
        finding
    };
    let check = Check::warn("listed", finding);
    (!listed.is_empty())
        .then(|| check.advise("Check the model's name. Some endpoints answer to names that they do not list."))
}

impl Check {
    /// Adds the change that turns thoughts off, as far as the endpoint's preset knows a field for it.
    fn with_reasoning_off(self, endpoint: &EndpointView<'_>) -> Self {
        match endpoint.settings.known_preset() {
            Some(preset) if preset.reasoning_field != ReasoningField::None => {
                self.change(endpoint.key("reasoning"), "off")
            }
            Some(_) => self.advise(format!(
                "Turn the model's reasoning off at its server, or with a field in {}.",
                endpoint.key("extra_body")
            )),
            None => self.advise(format!(
                "Set {}, and then {} = \"off\"; or add the provider's field to {}.",
                endpoint.key("preset"),
                endpoint.key("reasoning"),
                endpoint.key("extra_body")
            )),
        }
    }
}

/// A streamed reply.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StreamSample {
    /// Pieces of text, and their characters.
    pub pieces: usize,
    pub chars: usize,
    /// Milliseconds until the first visible piece, and until the end.
    pub first_ms: f64,
    pub whole_ms: f64,
    /// True if the reply ended at the output cap.
    pub at_cap: bool,
}

/// Whether the text comes piece by piece.
pub(super) fn judge_stream(sample: &StreamSample) -> Check {
    let seconds = |ms: f64| ms / 1e3;
    if sample.chars == 0 {
        return Check::fail("stream", "the stream has no text");
    }
    if sample.pieces == 1 && sample.chars >= STREAMED_CHARS {
        return Check::warn("stream", "the reply comes in a single piece").advise(
            "Players wait for the whole reply, and a cut never finds a reply that still runs. A proxy in front may \
             collect the stream: turn its buffering off.",
        );
    }
    let is_collected = sample.whole_ms >= JUDGED_STREAM_MS && sample.first_ms >= sample.whole_ms * LATE_FIRST_SHARE;
    if is_collected && sample.pieces > 3 {
        return Check::warn(
            "stream",
            format!(
                "all {} pieces come at the end, after {:.1} s",
                sample.pieces,
                seconds(sample.first_ms)
            ),
        )
        .advise("Something collects the stream on the way: turn the buffering of the proxy in front off.");
    }
    Check::ok(
        "stream",
        format!("{} pieces in {:.1} s", sample.pieces, seconds(sample.whole_ms)),
    )
}

/// The wait for the first word.
pub(super) fn judge_first_token(
    sample: &StreamSample,
    observed: ObservedThoughts,
    endpoint: &EndpointView<'_>,
) -> Check {
    let finding = format!("the first word comes after {:.2} s", sample.first_ms / 1e3);
    if sample.first_ms <= GOOD_FIRST_TOKEN_MS {
        return Check::ok("first word", finding);
    }
    let check = Check::warn("first word", finding);
    if observed.any {
        return check
            .advise("The model thinks before it answers.")
            .with_reasoning_off(endpoint);
    }
    check.advise(
        "Players notice more than 1.5 s: use a smaller or a nearer model for llm.tasks.reply, a faster machine, or a \
         shorter prompt (prompt.total_tokens).",
    )
}

/// Thoughts in answers.
pub(super) fn judge_thoughts(observed: ObservedThoughts, endpoint: &EndpointView<'_>) -> Check {
    if observed.prefilled && !endpoint.settings.reasoning_prefilled {
        return Check::warn(
            "thoughts",
            "the model's template opens the thought in the prompt: answers have the closing tag alone",
        )
        .advise("Without the setting, the first reply after a start may fail.")
        .change(endpoint.key("reasoning_prefilled"), true);
    }
    if observed.any {
        return Check::warn(
            "thoughts",
            "the model thinks before it answers; thoughts are cut, but they take time and tokens",
        )
        .with_reasoning_off(endpoint);
    }
    Check::ok("thoughts", "answers have no thoughts")
}

/// The answer to a question in a language.
pub(super) fn judge_language(text: &str, language: Language) -> Check {
    let (name, check) = match language {
        Language::En => ("English", "language en"),
        Language::Ko => ("Korean", "language ko"),
    };
    let letters = text.chars().filter(|c| c.is_alphabetic());
    let mut letter_count = 0_usize;
    let mut fitting_count = 0_usize;
    for letter in letters {
        letter_count += 1;
        let is_hangul = matches!(letter, '가'..='힣' | 'ᄀ'..='ᇿ' | 'ㄱ'..='ㆎ');
        fitting_count += usize::from(match language {
            Language::En => letter.is_ascii_alphabetic(),
            Language::Ko => is_hangul,
        });
    }
    #[expect(clippy::cast_precision_loss, reason = "an answer has few letters")]
    let share = if letter_count == 0 {
        0.0
    } else {
        fitting_count as f64 / letter_count as f64
    };
    if share >= LANGUAGE_SHARE {
        return Check::ok(check, format!("{name} questions are answered in {name}"));
    }
    Check::warn(check, format!("a {name} question is not answered in {name}"))
        .advise(format!("Do not give NPCs with this model {name} as their language."))
}

/// How an endpoint treats a JSON schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormatOutcome {
    /// The answer to a question that asks for prose fits the schema, or is a JSON object.
    Enforced,
    /// The answer is prose.
    Ignored,
    /// The request was refused.
    Refused,
}

/// The outcomes of JSON schemas, and of JSON objects without a schema. `None`: not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FormatSamples {
    pub schema: FormatOutcome,
    pub object: Option<FormatOutcome>,
    /// True if an answer is right that only words ask to be JSON.
    pub in_words: bool,
}

/// The settings for JSON answers.
pub(super) fn judge_format(samples: FormatSamples, endpoint: &EndpointView<'_>) -> Check {
    let settings = endpoint.settings;
    let object_works = samples.object == Some(FormatOutcome::Enforced);
    let wants = (
        samples.schema == FormatOutcome::Enforced,
        samples.schema != FormatOutcome::Enforced && object_works,
    );
    let finding = match (samples.schema, samples.object) {
        (FormatOutcome::Enforced, _) => "the endpoint enforces JSON schemas",
        (FormatOutcome::Refused, Some(FormatOutcome::Enforced)) => {
            "the endpoint refuses JSON schemas, and enforces JSON"
        }
        (FormatOutcome::Ignored, Some(FormatOutcome::Enforced)) => {
            "the endpoint ignores JSON schemas, and enforces JSON"
        }
        (FormatOutcome::Refused, _) => "the endpoint refuses JSON schemas: prompts ask for JSON in words",
        (FormatOutcome::Ignored, _) => "the endpoint ignores JSON schemas: prompts ask for JSON in words",
    };
    let is_refused = (settings.supports_json_schema && samples.schema == FormatOutcome::Refused)
        || (!settings.supports_json_schema
            && settings.supports_json_object
            && samples.object == Some(FormatOutcome::Refused));
    let is_set = (
        settings.supports_json_schema,
        !settings.supports_json_schema && settings.supports_json_object,
    ) == wants;
    let mut check = if is_refused {
        Check::fail("JSON", finding).advise("Each extraction, summary and judgement is refused with these settings.")
    } else if is_set {
        Check::ok("JSON", finding)
    } else {
        Check::warn("JSON", finding)
    };
    if !is_set {
        check = check.change(endpoint.key("supports_json_schema"), wants.0);
        if wants.1 || settings.supports_json_object {
            check = check.change(endpoint.key("supports_json_object"), wants.1);
        }
    }
    if !samples.in_words && !wants.0 && !wants.1 {
        let advice = "The model also forgets the form that a prompt asks for in words, so NPCs will learn little: use \
                      a larger model for llm.tasks.extraction.";
        check = Check {
            verdict: check.verdict.max(super::report::Verdict::Warn),
            ..check
        }
        .advise(advice);
    }
    check
}

/// A reply to a line that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BlockSample {
    /// A block that can be read; true if it has changes.
    Readable(bool),
    /// A block that cannot be read, and why.
    Unreadable(String),
    Missing,
}

/// Whether replies end with a state block.
pub(super) fn judge_state_block(samples: &[BlockSample], replies_without_block: u32) -> Check {
    let name = "state block";
    let readable = samples
        .iter()
        .filter(|sample| matches!(sample, BlockSample::Readable(_)))
        .count();
    let total = samples.len();
    if readable == total {
        return Check::ok(
            name,
            format!("{readable} of {total} replies end with a block that can be read"),
        );
    }
    let unreadable = samples.iter().find_map(|sample| match sample {
        BlockSample::Unreadable(reason) => Some(reason),
        _ => None,
    });
    let finding = match unreadable {
        Some(reason) => {
            format!("{readable} of {total} replies end with a block that can be read; one cannot: {reason}")
        }
        None => format!("{readable} of {total} replies end with a block"),
    };
    let check = Check::warn(name, finding);
    match replies_without_block {
        0 => check
            .advise("What such replies change is lost.")
            .change("turn.replies_without_block", 4),
        least => check.advise(format!(
            "What such a reply changes is extracted by a job, from reply {least} of the model on: one more call each. \
             A larger model for llm.tasks.reply spares them."
        )),
    }
}

/// A long prompt with a word at its beginning that the answer must repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContextSample {
    /// Tokens by the server's own count, which never counts too few.
    pub counted: u32,
    /// Tokens by the endpoint's count; 0: the endpoint gives no count.
    pub reported: u32,
    pub repeated: bool,
}

/// Whether a prompt of `prompt.total_tokens` fits into the model's context.
pub(super) fn judge_context(sample: &ContextSample, previous: Option<&ContextSample>) -> Check {
    let name = "context";
    // A short prompt shows the ratio of the two counts.
    let ratio = previous
        .filter(|short| short.reported > 0 && short.counted > 0)
        .map_or(1.0, |short| f64::from(short.reported) / f64::from(short.counted));
    let expected = f64::from(sample.counted) * ratio;
    let is_short = sample.reported > 0 && f64::from(sample.reported) < expected * READ_SHARE;
    if is_short {
        return Check::fail(
            name,
            format!("the endpoint read {} tokens of about {expected:.0}", sample.reported),
        )
        .advise(
            "The endpoint cuts the beginning of long prompts, with the persona: raise its context (Ollama: \
             OLLAMA_CONTEXT_LENGTH; llama.cpp: -c; vLLM: --max-model-len), or lower prompt.total_tokens.",
        );
    }
    if !sample.repeated {
        return Check::warn(name, "the model lost a word from the beginning of a long prompt")
            .advise("Check the context that the endpoint is set to, or lower prompt.total_tokens.");
    }
    Check::ok(
        name,
        format!("a prompt of {} tokens is read to its beginning", sample.counted),
    )
}

/// The time of a classification, which has a limit of its own.
pub(super) fn judge_intent(took_ms: f64, limit_ms: u32, is_known: bool) -> Check {
    let name = "intent";
    let finding = format!("a line is classified in {:.2} s", took_ms / 1e3);
    if took_ms > f64::from(limit_ms) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few seconds")]
        let needed = ((took_ms * 1.5 / 500.0).ceil() as u32)
            .saturating_mul(500)
            .clamp(500, 60_000);
        return Check::warn(name, format!("{finding}, later than llm.tasks.intent.timeout_ms"))
            .advise(
                "Each turn waits that long, and recalls in full without the answer. A small model is enough for it.",
            )
            .change("llm.tasks.intent.timeout_ms", needed);
    }
    if !is_known {
        return Check::warn(name, format!("{finding}, with no intent that is known"))
            .advise("Turns recall in full. Use another model for llm.tasks.intent.");
    }
    Check::ok(name, finding)
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
