//! Settings of the mock server on its command line and at run time.

use std::{net::SocketAddr, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use colloquy_ports::llm::Task;

/// Arguments of `colloquy mock-llm`. `POST /control` can change all but `listen` and `workers` at run time, and accepts
/// any subset as JSON.
#[derive(Debug, Clone, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MockOptions {
    /// The address to listen on; port 0 takes any free port.
    #[arg(long, default_value = "127.0.0.1:4010")]
    #[serde(skip, default = "any_free_port")]
    pub listen: SocketAddr,
    /// The number of worker threads.
    #[arg(long, default_value_t = 1)]
    #[serde(skip)]
    pub workers: usize,
    /// The delay before an answer begins, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub latency_ms: u64,
    /// The maximum random extra delay, in milliseconds, evenly distributed.
    #[arg(long, default_value_t = 0)]
    pub jitter_ms: u64,
    /// The pieces of a stream per second; 0 sends all pieces at once.
    #[arg(long, default_value_t = 0)]
    pub tokens_per_s: u32,
    /// The number of pieces of a reply.
    #[arg(long, default_value_t = 8)]
    pub deltas: u32,
    /// The text of replies, one word per piece. Empty: a built-in text in `deltas` pieces.
    #[arg(long, default_value = "")]
    pub reply: String,
    /// The number of tools that a reply calls, if the request has tools and the last line has no results yet.
    #[arg(long, default_value_t = 0)]
    pub tool_calls: u32,
    /// The text before such calls.
    #[arg(long, default_value = "")]
    pub tool_words: String,
    /// The answer of the intent classifier.
    #[arg(long, default_value = "chat")]
    pub intent: String,
    /// The answer of the judge: same, contradicts or independent.
    #[arg(long, default_value = "independent")]
    pub verdict: String,
    /// The answer of the curation model, as JSON. Empty: a note, and no finding.
    #[arg(long, default_value = "")]
    pub curation: String,
    /// The id of the NPC that speaks next in a conversation. Empty: no NPC is named.
    #[arg(long, default_value = "")]
    pub next_speaker: String,
    /// The average number of extra facts per extraction, besides the facts in the line; 0.5 adds a fact in every
    /// second turn.
    #[arg(long, default_value_t = 0.0)]
    pub facts_per_turn: f64,
    /// The length of the embedding vectors.
    #[arg(long, default_value_t = 384)]
    pub dimensions: usize,
    /// The extra delay of a `slow` fault, in milliseconds.
    #[arg(long, default_value_t = 3_000)]
    pub slow_ms: u64,
    /// The delay that a 429 asks for, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    pub retry_after_ms: u64,
    /// `[TASK=]KIND[:RATE]`, repeatable. KIND: none, 500, 429, slow, broken-stream, no-end-mark, invalid-json,
    /// invalid-body, refuse, echo, echo-body, hang, stall, hold, one-piece, think, think-unclosed, think-closing,
    /// reasoning, no-schema, no-format, ignore-schema, no-stream-options. TASK: reply, intent, extraction, judge,
    /// summary, curation, embedding (default: all). RATE: the share of calls (default: 1).
    #[arg(long = "fault")]
    pub faults: Vec<MockFault>,
}

fn any_free_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Default for MockOptions {
    /// Returns the command line's defaults, on a free port.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct CommandLine {
            #[command(flatten)]
            options: MockOptions,
        }
        let CommandLine { options } = clap::Parser::parse_from(["mock-llm"]);
        let listen = any_free_port();
        Self { listen, ..options }
    }
}

impl MockOptions {
    /// Returns these options with the fields of `patch` replaced.
    ///
    /// # Errors
    /// Describes a field that is unknown or cannot change, or an invalid value.
    pub(super) fn with_patch(&self, patch: &serde_json::Value) -> Result<Self, String> {
        let mut values = serde_json::to_value(self).map_err(|error| error.to_string())?;
        let fields = patch.as_object().ok_or("the body must be a JSON object")?;
        for (name, value) in fields {
            values[name] = value.clone();
        }
        let patched: Self = serde_json::from_value(values).map_err(|error| error.to_string())?;
        if !(1..=16_384).contains(&patched.dimensions) {
            return Err("dimensions must be 1 to 16384".into());
        }
        if patched.deltas > 100_000 {
            return Err("deltas must be at most 100000".into());
        }
        if patched.tool_calls > 100 {
            return Err("tool_calls must be at most 100".into());
        }
        if !(0.0..=16.0).contains(&patched.facts_per_turn) {
            return Err("facts_per_turn must be 0 to 16".into());
        }
        let listen = self.listen;
        let workers = self.workers;
        Ok(Self {
            listen,
            workers,
            ..patched
        })
    }
}

/// The kind of a call to the mock server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CallKind {
    Chat(Task),
    Embedding,
}

impl CallKind {
    pub(super) const ALL: [Self; 7] = [
        Self::Chat(Task::Reply),
        Self::Chat(Task::Intent),
        Self::Chat(Task::Extraction),
        Self::Chat(Task::Judge),
        Self::Chat(Task::Summary),
        Self::Chat(Task::Curation),
        Self::Embedding,
    ];
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Chat(task) => task.as_str(),
            Self::Embedding => "embedding",
        }
    }
    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
    /// Returns the position in [`Self::ALL`].
    pub(super) fn slot_index(self) -> usize {
        Self::ALL.into_iter().position(|kind| kind == self).unwrap_or_default()
    }
}

/// A kind of misbehaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    None,
    /// Status 500.
    ServerError,
    /// Status 429 with `Retry-After`.
    RateLimited,
    /// An answer `slow_ms` later than usual.
    Slow,
    /// The connection breaks in the middle of the answer.
    BrokenStream,
    /// The answer ends normally in the middle, without its end mark.
    NoEndMark,
    /// The answer's text is truncated JSON. For a reply or intent, the body is not JSON.
    InvalidJson,
    /// The body, or a stream's event, is not JSON.
    InvalidBody,
    /// Status 400.
    Refuse,
    /// Status 400; the message repeats the whole request, on several lines and in colour.
    Echo,
    /// An answer of another shape that repeats the whole request.
    EchoBody,
    /// The call is never answered.
    Hang,
    /// Half a stream, then silence on an open connection.
    Stall,
    /// The usual answer, delayed until `POST /control` removes the fault.
    Hold,
    /// A stream of a single piece.
    OnePiece,
    /// A thought in tags before the answer.
    Think,
    /// A thought whose closing tag and answer never come.
    ThinkUnclosed,
    /// A thought with a closing tag alone, as templates make it that open the thought in the prompt.
    ThinkClosing,
    /// A thought in fields of its own before the answer.
    Reasoning,
    /// Status 400 for a request with a JSON schema.
    NoSchema,
    /// Status 400 for a request with any `response_format`.
    NoFormat,
    /// An answer in prose, whatever format is asked for.
    IgnoreSchema,
    /// Status 422 for a request with `stream_options`.
    NoStreamOptions,
}

impl FaultKind {
    const NAMES: [(&'static str, Self); 23] = [
        ("none", Self::None),
        ("500", Self::ServerError),
        ("429", Self::RateLimited),
        ("slow", Self::Slow),
        ("broken-stream", Self::BrokenStream),
        ("no-end-mark", Self::NoEndMark),
        ("invalid-json", Self::InvalidJson),
        ("invalid-body", Self::InvalidBody),
        ("refuse", Self::Refuse),
        ("echo", Self::Echo),
        ("echo-body", Self::EchoBody),
        ("hang", Self::Hang),
        ("stall", Self::Stall),
        ("hold", Self::Hold),
        ("one-piece", Self::OnePiece),
        ("think", Self::Think),
        ("think-unclosed", Self::ThinkUnclosed),
        ("think-closing", Self::ThinkClosing),
        ("reasoning", Self::Reasoning),
        ("no-schema", Self::NoSchema),
        ("no-format", Self::NoFormat),
        ("ignore-schema", Self::IgnoreSchema),
        ("no-stream-options", Self::NoStreamOptions),
    ];
}

/// A fault with its task and its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MockFault {
    pub(super) call: Option<CallKind>,
    pub kind: FaultKind,
    /// The share of the task's calls, in (0, 1].
    pub rate: f64,
}

impl MockFault {
    /// True if the fault delays calls of `call` until its removal.
    pub(super) fn holds_call(&self, call: CallKind) -> bool {
        self.kind == FaultKind::Hold && self.call.is_none_or(|task| task == call)
    }
    /// True if the fault hits the `n`th call (from 1) of `call`.
    pub(super) fn hits_call(&self, call: CallKind, n: u64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "call counts stay far below 2^52")]
        let due = |n: u64| (n as f64 * self.rate).floor();
        self.call.is_none_or(|task| task == call) && due(n) > due(n - 1)
    }
}

impl FromStr for MockFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (task, fault) = match text.split_once('=') {
            Some((task, fault)) => (Some(task), fault),
            None => (None, text),
        };
        let (kind, rate) = match fault.split_once(':') {
            Some((kind, rate)) => (kind, rate),
            None => (fault, "1"),
        };
        let call = task
            .map(|name| CallKind::parse(name).ok_or_else(|| format!("`{name}` is no task")))
            .transpose()?;
        let kind = FaultKind::NAMES
            .into_iter()
            .find_map(|(name, fault_kind)| (name == kind).then_some(fault_kind))
            .ok_or_else(|| format!("`{kind}` is no kind of fault"))?;
        let rate = rate
            .parse::<f64>()
            .ok()
            .filter(|rate| *rate > 0.0 && *rate <= 1.0)
            .ok_or_else(|| format!("`{rate}` is no rate above 0 and up to 1"))?;
        Ok(Self { call, kind, rate })
    }
}

impl std::fmt::Display for MockFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(call) = self.call {
            write!(f, "{}=", call.as_str())?;
        }
        let name = FaultKind::NAMES
            .into_iter()
            .find_map(|(name, kind)| (kind == self.kind).then_some(name))
            .unwrap_or("none");
        write!(f, "{name}:{}", self.rate)
    }
}

impl Serialize for MockFault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MockFault {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn faults_round_trip() {
        for text in [
            "500:1",
            "reply=429:0.5",
            "embedding=hang:1",
            "extraction=invalid-json:0.25",
        ] {
            assert_eq!(text.parse::<MockFault>().unwrap().to_string(), text);
        }
        for bad in ["", "oops", "reply=", "chat=500", "500:0", "500:2", "500:x", "500:NaN"] {
            assert!(bad.parse::<MockFault>().is_err(), "{bad}");
        }
    }

    #[test]
    fn fault_rate_is_exact() {
        let fault: MockFault = "reply=500:0.25".parse().unwrap();
        let hits: Vec<u64> = (1..=12)
            .filter(|n| fault.hits_call(CallKind::Chat(Task::Reply), *n))
            .collect();
        assert_eq!(hits, [4, 8, 12]);
        assert!(!fault.hits_call(CallKind::Embedding, 4));
    }
}
