//! The reply call of a turn. The reply is streamed, ends at a cut, and never shows a byte of a state block.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream, stream::BoxStream};
use tokio::sync::watch;
use unicode_segmentation::UnicodeSegmentation as _;

use super::{
    chat_request::{CalledTools, ReplyEnd},
    continuation::ReplyBeginning,
    input::{Cut, TurnError, TurnFeed, TurnInput},
    open_reply::OpenedStream,
    own_name::OwnNameFilter,
    stopwatch::Stopwatch,
};
use crate::{
    Services,
    events::ReplyDone,
    models::{ModelRequest, time_model},
    npc_conversation::END_MARK,
    prompt::Prompt,
};
use colloquy_memory::{
    state_block::{CutReply, StateBlock, StreamCutter},
    tokens::TokenCounter,
    trace::CallTrace,
    turn::{TurnStatus, Usage},
};
use colloquy_ports::llm::{ChatMessage, Chunk, ClientFields, LlmError, Task};

/// The maximum length of a reply in Unicode scalar values. A model that reaches it does not stop, so the reply ends.
const MAX_REPLY_CHARS: usize = 16_000;
/// Room for a state block, in tokens of the model.
const STATE_BLOCK_TOKENS: u32 = 300;
/// The same limit for the model's whole output, with its state block, in bytes.
const MAX_RAW_BYTES: usize = 128 * 1024;

/// A spoken reply, complete or cut.
#[derive(Debug)]
pub(super) struct Reply {
    /// `Completed` or `Interrupted`.
    pub status: TurnStatus,
    /// The text that the player saw, or the heard part. Never blank.
    pub text: String,
    pub cues: Vec<String>,
    /// The inside of the state block. `None` for a cut reply, because an unfinished reply changes nothing.
    pub state_block: Option<StateBlock>,
    /// For a cut reply: the full text at the time of the cut, heard or not.
    pub uncut: Option<String>,
    /// True if a state block had begun, complete or not.
    pub began_block: bool,
    pub usage: Usage,
    pub call: CallTrace,
    /// Milliseconds from the call to the first visible character, and to the end.
    pub first_token_ms: f64,
    pub whole_ms: f64,
    /// True if the speaker ended the conversation.
    pub ends: bool,
    /// True if the reply ended at a limit, before the model was done.
    pub at_limit: bool,
    pub notes: Vec<String>,
}

/// A text that an NPC says without a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct AuthoredWords<'a> {
    pub text: &'a str,
    /// [`AUTHORED_GREETING`] or [`GIVEN_REPLY`].
    pub origin: &'static str,
}

pub(super) struct ReplyRequest<'a> {
    pub messages: Vec<ChatMessage>,
    pub prompt_tokens: u32,
    pub counter: TokenCounter,
    /// A text that is said as written, without a model.
    pub authored: Option<AuthoredWords<'a>>,
}

/// Where the words of a reply come from.
pub(super) enum ReplyCall<'a> {
    Authored(AuthoredWords<'a>),
    Model(Vec<ChatMessage>),
}

impl<'a> ReplyRequest<'a> {
    /// Takes the messages out of the request, for the call. A request is sent once.
    pub(super) fn take_call(&mut self) -> ReplyCall<'a> {
        match self.authored {
            Some(words) => ReplyCall::Authored(words),
            None => ReplyCall::Model(std::mem::take(&mut self.messages)),
        }
    }

    /// Builds the request from an assembled prompt.
    pub(super) fn from_prompt(prompt: &Prompt, counter: TokenCounter, authored: Option<AuthoredWords<'a>>) -> Self {
        Self {
            messages: prompt.messages.clone(),
            prompt_tokens: prompt.trace.prompt_tokens,
            counter,
            authored,
        }
    }

    /// Lets the calls of the client's tools and their results follow the prompt. They are not stored.
    pub(super) fn add_tool_messages(&mut self, input: &TurnInput) {
        let messages = input.chat.iter().flat_map(|chat| &chat.tools.messages);
        for message in messages {
            self.prompt_tokens += self.counter.count_tokens(&message.content);
            self.messages.push(message.clone());
        }
    }
}

impl Reply {
    /// Returns the event that ends the reply.
    pub(super) fn to_reply_done(&self, input: &TurnInput) -> ReplyDone {
        ReplyDone {
            turn: input.number,
            npc_id: input.npc.id.clone(),
            text: self.text.clone(),
            status: self.status,
            usage: self.usage,
            cues: self.cues.clone(),
            error: None,
        }
    }
}

/// Sends the text of a reply to the feed as the model gives the text.
pub(super) async fn speak_reply(
    input: &TurnInput,
    question: &ReplyRequest<'_>,
    opened: OpenedStream,
    feed: &dyn TurnFeed,
    cut_signal: &mut watch::Receiver<Option<Cut>>,
    stopwatch: &Stopwatch<'_>,
) -> Result<Reply, TurnError> {
    let OpenedStream {
        chunks,
        mut call,
        began_ms,
        ..
    } = opened;
    let mut voice = ReplyWriter::new(input, feed);
    if question.authored.is_some() {
        voice.own_name = OwnNameFilter::inactive();
    }
    let is_given = question.authored.is_some_and(|words| words.origin == GIVEN_REPLY);
    let streamed = read_stream(&mut voice, chunks?, is_given, cut_signal, stopwatch, began_ms).await?;
    let reply_ms = stopwatch.total_ms() - began_ms;
    let usage = streamed.usage.unwrap_or_else(|| Usage {
        prompt_tokens: question.prompt_tokens,
        cached_tokens: 0,
        completion_tokens: question.counter.count_tokens(&voice.raw),
    });
    call.millis = reply_ms;
    call.first_token_millis = call.first_token_millis.or(streamed.first_token_ms);
    call.usage = usage;
    // Each note of the stream names a limit.
    let at_limit = !streamed.notes.is_empty();
    let finished = match streamed.cut {
        Some(cut) => voice.finish_cut(&cut)?,
        None if !streamed.tool_calls.is_empty() => {
            return Err(voice.finish_before_tools(streamed.tool_calls, usage, at_limit));
        }
        None => voice.finish_completed()?,
    };
    finished.assert_consistent();
    if let Some(chat) = &input.chat {
        chat.set_reply_end(ReplyEnd::of_limit(at_limit));
    }
    let (end_marks, cues): (Vec<_>, Vec<_>) = finished.cues.into_iter().partition(|cue| cue == END_MARK);
    Ok(Reply {
        status: finished.status,
        text: finished.text,
        state_block: finished.state_block,
        uncut: finished.uncut,
        began_block: finished.began_block,
        usage,
        call,
        first_token_ms: streamed.first_token_ms.unwrap_or(reply_ms),
        whole_ms: reply_ms,
        ends: !end_marks.is_empty(),
        cues,
        at_limit,
        notes: streamed.notes,
    })
}

/// A stream that has ended, at its end, at a limit or at a cut.
struct StreamedReply {
    cut: Option<Cut>,
    usage: Option<Usage>,
    first_token_ms: Option<f64>,
    tool_calls: Vec<serde_json::Value>,
    /// Each note names a limit.
    notes: Vec<String>,
}

/// Hands the stream on to the listeners. `is_given`: the reply was shown before. The endpoint sees the connection close
/// at a cut, and generates (and bills) no further tokens.
async fn read_stream(
    voice: &mut ReplyWriter<'_>,
    mut stream: BoxStream<'static, Result<Chunk, LlmError>>,
    is_given: bool,
    cut_signal: &mut watch::Receiver<Option<Cut>>,
    stopwatch: &Stopwatch<'_>,
    began_ms: f64,
) -> Result<StreamedReply, TurnError> {
    let mut streamed = StreamedReply {
        cut: None,
        usage: None,
        first_token_ms: None,
        tool_calls: Vec::new(),
        notes: Vec::new(),
    };
    loop {
        let next = tokio::select! {
            biased;
            cut = wait_for_cut(cut_signal) => {
                streamed.cut = Some(cut);
                return Ok(streamed);
            }
            next = time_model(stopwatch.clock, stream.next()) => next,
        };
        match next {
            // A given reply was shown as it is: nothing in it is a state block or a cue.
            Some(Ok(Chunk::Text(delta))) if is_given => voice.send_visible(&delta),
            Some(Ok(Chunk::Text(delta))) => voice.write_delta(&delta),
            Some(Ok(Chunk::ToolCalls(pieces))) => {
                voice.hand_on_tool_calls(&pieces);
                streamed.tool_calls.extend(pieces);
            }
            Some(Ok(Chunk::AtCap)) => {
                let note = "the reply ended at the output cap of the model's task (finish_reason: length)";
                streamed.notes.push(note.to_owned());
            }
            Some(Ok(Chunk::Usage(usage))) => streamed.usage = Some(usage),
            Some(Err(error)) => return Err(error.into()),
            None => return Ok(streamed),
        }
        if voice.chars > voice.earlier_chars && streamed.first_token_ms.is_none() {
            streamed.first_token_ms = Some(stopwatch.total_ms() - began_ms);
        }
        if voice.chars > MAX_REPLY_CHARS {
            streamed.notes.push(format!(
                "the model did not stop; the reply was ended after {MAX_REPLY_CHARS} characters"
            ));
            return Ok(streamed);
        }
        if voice.raw.len() > MAX_RAW_BYTES {
            streamed.notes.push(format!(
                "the model did not stop; the reply was ended after {MAX_RAW_BYTES} bytes, most of them not shown"
            ));
            return Ok(streamed);
        }
    }
}

/// Returns the request for the reply model.
pub(super) fn model_request(services: &Services, input: &TurnInput, messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest {
        task: Task::Reply,
        messages,
        json_schema: None,
        model: services.reply_model(&input.npc),
        more_room: false,
        client: client_fields(services, input),
    }
}

/// Returns what the chat program asked of the model. An output cap of the program is for the visible text, so the state
/// block gets room of its own.
fn client_fields(services: &Services, input: &TurnInput) -> Option<Arc<ClientFields>> {
    let client = input.chat.as_ref()?.client.as_ref()?;
    match client.max_output_tokens {
        Some(cap) if services.settings.prompt.ask_for_state => Some(Arc::new(ClientFields {
            max_output_tokens: Some(cap.saturating_add(STATE_BLOCK_TOKENS)),
            ..ClientFields::clone(client)
        })),
        _ => Some(Arc::clone(client)),
    }
}

/// Stands for a model in the trace of an authored greeting.
pub(crate) const AUTHORED_GREETING: &str = "persona.greeting";

/// Stands for a model in the trace of a turn that a chat program has shown before.
pub(crate) const GIVEN_REPLY: &str = "chat.transcript";

/// Returns a stream of an authored text. The text needs no model and costs nothing.
pub(super) fn authored_stream(
    words: AuthoredWords<'_>,
) -> (Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError>, CallTrace) {
    let call = CallTrace {
        task: Task::Reply.as_str().to_owned(),
        model: words.origin.to_owned(),
        offline: true,
        attempts: 0,
        millis: 0.0,
        first_token_millis: None,
        usage: Usage::default(),
        error: None,
    };
    let chunks = [Chunk::Text(words.text.to_owned()), Chunk::Usage(Usage::default())].map(Ok);
    (Ok(stream::iter(chunks).boxed()), call)
}

/// Runs `work` unless the player cuts in first.
pub(super) async fn unless_cut<T>(
    cut_signal: &mut watch::Receiver<Option<Cut>>,
    work: impl Future<Output = T>,
) -> Result<T, TurnError> {
    tokio::select! {
        biased;
        _ = wait_for_cut(cut_signal) => Err(TurnError::CutBeforeReply),
        output = work => Ok(output),
    }
}

/// Waits until the player cuts in. Never returns if all senders are gone.
async fn wait_for_cut(cut_signal: &mut watch::Receiver<Option<Cut>>) -> Cut {
    loop {
        // Copied out at once, because the guard must not live across the wait.
        let cut = cut_signal.borrow_and_update().clone();
        if let Some(cut) = cut {
            return cut;
        }
        if cut_signal.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The state of a reply while it streams.
struct ReplyWriter<'a> {
    input: &'a TurnInput,
    feed: &'a dyn TurnFeed,
    cutter: StreamCutter,
    /// The sent text, and its length in Unicode scalar values.
    text: String,
    chars: usize,
    /// The part that was sent before the earlier cut, in Unicode scalar values. The model has said the rest.
    earlier_chars: usize,
    /// `Some` until the first new text after the continued part.
    joining: Option<ReplyBeginning<'a>>,
    own_name: OwnNameFilter,
    /// The model's whole output, for counting.
    raw: String,
}

/// The end of a reply.
struct FinishedReply {
    status: TurnStatus,
    text: String,
    cues: Vec<String>,
    state_block: Option<StateBlock>,
    uncut: Option<String>,
    began_block: bool,
}

impl FinishedReply {
    /// Checks in debug builds that a cut reply differs from a complete reply.
    fn assert_consistent(&self) {
        let is_cut = self.status == TurnStatus::Interrupted;
        debug_assert!(!self.text.trim().is_empty(), "a spoken reply is not blank");
        debug_assert!(self.uncut.is_some() == is_cut, "only a cut reply has an unheard part");
        debug_assert!(self.state_block.is_none() || !is_cut, "a cut reply changes nothing");
        debug_assert!(
            self.uncut.as_ref().is_none_or(|uncut| uncut.starts_with(&self.text)),
            "the heard text begins the reply"
        );
    }
}

impl<'a> ReplyWriter<'a> {
    fn new(input: &'a TurnInput, feed: &'a dyn TurnFeed) -> Self {
        let mut tags = input.npc.persona.cues.clone();
        if input.player.is_none() {
            tags.push(END_MARK.to_owned());
        }
        let beginning = input.continuation.as_ref().map(|unfinished| unfinished.beginning());
        let beginning = beginning.or_else(|| input.chat.as_ref()?.tools.beginning());
        let mut voice = Self {
            input,
            feed,
            cutter: StreamCutter::new(&tags),
            text: String::new(),
            chars: 0,
            earlier_chars: 0,
            joining: None,
            own_name: OwnNameFilter::new(&input.npc.name),
            raw: String::new(),
        };
        if let Some(beginning) = beginning {
            voice.send_visible(beginning.text);
            voice.earlier_chars = voice.chars;
            voice.joining = Some(beginning);
        }
        voice
    }
    fn write_delta(&mut self, delta: &str) {
        self.raw.push_str(delta);
        let visible = self.cutter.push(delta);
        self.write_visible(&visible);
    }
    /// Sends the model's next visible text.
    fn write_visible(&mut self, visible: &str) {
        let visible = self.own_name.push(visible);
        self.write_after_name(&visible);
    }
    /// Sends visible text that does not begin with the speaker's own name.
    fn write_after_name(&mut self, visible: &str) {
        let Some(beginning) = self.joining else {
            return self.send_visible(visible);
        };
        let joined = beginning.join_piece(visible);
        if !joined.is_empty() {
            self.joining = None;
            self.send_visible(&joined);
        }
    }
    fn send_visible(&mut self, visible: &str) {
        if !visible.is_empty() {
            self.feed
                .send_delta(self.input.number, self.chars, &self.input.npc.id, visible);
            self.text.push_str(visible);
            self.chars += visible.chars().count();
        }
    }
    /// Sends pieces of tool calls to the client.
    fn hand_on_tool_calls(&mut self, pieces: &[serde_json::Value]) {
        for piece in pieces {
            self.raw.push_str(&piece.to_string());
        }
        let reader = self.input.chat.as_ref().and_then(|chat| chat.tool_calls.as_ref());
        if let Some(reader) = reader {
            // A client that hung up reads no more. The cut follows.
            let _ = reader.send(pieces.to_vec());
        }
    }
    /// Sends the visible rest of the model's stream, and returns what the stream had besides.
    fn finish_stream(&mut self) -> CutReply {
        let stream_end = std::mem::replace(&mut self.cutter, StreamCutter::new(&[])).finish_reply();
        self.write_visible(&stream_end.visible_tail);
        let rest = self.own_name.finish();
        self.write_after_name(&rest);
        debug_assert!(
            self.chars == self.text.chars().count(),
            "each sent character of a reply is counted"
        );
        stream_end
    }
    /// Ends a reply that called tools, which is no turn.
    fn finish_before_tools(mut self, pieces: Vec<serde_json::Value>, usage: Usage, at_limit: bool) -> TurnError {
        self.finish_stream();
        let called = CalledTools {
            text: self.text,
            pieces,
            usage,
            at_limit,
        };
        TurnError::CalledTools(called.into())
    }
    fn finish_completed(mut self) -> Result<FinishedReply, TurnError> {
        let stream_end = self.finish_stream();
        if self.text.trim().is_empty() {
            return Err(LlmError::Broken("the reply was empty".to_owned()).into());
        }
        let mut cues = self.earlier_cues();
        cues.extend(stream_end.cues);
        Ok(FinishedReply {
            status: TurnStatus::Completed,
            text: self.text,
            cues,
            began_block: stream_end.state_block.is_some(),
            state_block: stream_end.state_block.map(|text| StateBlock {
                text,
                closed: stream_end.closed,
            }),
            uncut: None,
        })
    }
    /// Returns the cues of the heard part before the earlier cut.
    fn earlier_cues(&self) -> Vec<String> {
        let goes_on = self.input.continuation.as_ref();
        goes_on
            .map(|unfinished| unfinished.turn.cues.clone())
            .unwrap_or_default()
    }
    fn finish_cut(self, cut: &Cut) -> Result<FinishedReply, TurnError> {
        let heard_text = cut.heard_chars.map_or(self.text.as_str(), |heard_chars| {
            grapheme_prefix(&self.text, heard_chars)
        });
        if heard_text.trim().is_empty() {
            return Err(TurnError::CutBeforeReply);
        }
        // A cue belongs to the text after it.
        let is_whole = heard_text.len() == self.text.len();
        let heard_chars = heard_text.chars().count();
        let heard_text = heard_text.to_owned();
        let mut cues = self.earlier_cues();
        let stream_end = self.cutter.finish_reply();
        let new_cues = stream_end.cues.into_iter().zip(stream_end.cues_at);
        let removed = self.own_name.removed_chars();
        let heard_cues = new_cues
            .filter(|(_, position)| is_whole || self.earlier_chars + position.saturating_sub(removed) < heard_chars);
        cues.extend(heard_cues.map(|(cue, _)| cue));
        Ok(FinishedReply {
            status: TurnStatus::Interrupted,
            text: heard_text,
            cues,
            state_block: None,
            uncut: Some(self.text),
            began_block: stream_end.state_block.is_some(),
        })
    }
}

/// Returns the longest prefix of `text` in whole graphemes with at most `chars` Unicode scalar values.
pub(crate) fn grapheme_prefix(text: &str, chars: usize) -> &str {
    let mut remaining = chars;
    let end = text
        .grapheme_indices(true)
        .find(|(_, grapheme)| {
            let length = grapheme.chars().count();
            let fits = length <= remaining;
            remaining = remaining.saturating_sub(length);
            !fits
        })
        .map_or(text.len(), |(index, _)| index);
    debug_assert!(
        text[..end].chars().count() <= chars,
        "a prefix has at most the characters that were asked for"
    );
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::grapheme_prefix;

    #[test]
    fn heard_text_ends_between_graphemes() {
        for (text, chars, heard) in [
            ("hello", 2, "he"),
            ("hello", 99, "hello"),
            ("hello", 0, ""),
            ("e\u{301}a", 1, ""),
            ("e\u{301}a", 2, "e\u{301}"),
            ("a\u{1f468}\u{200d}\u{1f469}b", 3, "a"),
            ("포도", 1, "포"),
        ] {
            assert_eq!(grapheme_prefix(text, chars), heard, "{text} {chars}");
        }
    }
}
