//! The beginning of a reply: its context, its prompt, and the call of the model.
//!
//! The prompt depends on the intent of the line. A classifier's call takes about as long as the first word of the reply.
//! So the reply is asked for with the likeliest intent while the classifier answers
//! ([`IntentClassification::BesideReply`]). Nobody hears a word before the classifier has answered. If its answer changes
//! the prompt, the early call is given up, and the reply is asked for again.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
};

use futures_util::{
    future::{MaybeDone, maybe_done},
    stream::BoxStream,
};
use tracing::{Instrument as _, debug_span};

use super::{
    gather::{classify_timed, gather_timed},
    gathered_context::GatheredContext,
    input::{TurnError, TurnInput},
    speak::{ReplyCall, ReplyRequest, authored_stream, model_request},
    stopwatch::Stopwatch,
    world_state::StateOfTurn,
};
use crate::{Services, intent::IntentSource, prompt::Prompt};
use colloquy_memory::{
    authored::IntentClassification,
    trace::{CallTrace, TurnTrace},
};
use colloquy_ports::llm::{Chunk, LlmError};

/// The context of a reply, with its prompt.
pub(super) struct PreparedReply<'i> {
    pub gathered: GatheredContext,
    pub prompt: Prompt,
    pub assemble_ms: f64,
    pub request: ReplyRequest<'i>,
}

/// The stream of a reply that was asked for. It has begun, or has failed.
pub(super) struct OpenedStream {
    pub chunks: Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError>,
    pub call: CallTrace,
    /// When the model was asked, in milliseconds since the line was accepted.
    pub began_ms: f64,
}

/// Gathers the context, assembles the prompt and asks the reply model.
///
/// # Errors
/// Those of the context and the prompt. An error of the model is in the [`OpenedStream`].
pub(super) async fn open_reply<'i>(
    services: &Services,
    input: &'i TurnInput,
    stopwatch: &Stopwatch<'_>,
) -> Result<(PreparedReply<'i>, OpenedStream), TurnError> {
    let opening = ReplyOpening {
        services,
        input,
        state: StateOfTurn::new(services, input),
        stopwatch,
    };
    match IntentSource::for_turn(services, input) {
        IntentSource::Model if is_classified_beside(services, input) => Box::pin(opening.open_beside_intent()).await,
        source => {
            let mut prepared = opening.prepare_reply(source).await?;
            let opened = opening.open_stream(prepared.request.take_call()).await;
            Ok((prepared, opened))
        }
    }
}

fn is_classified_beside(services: &Services, input: &TurnInput) -> bool {
    services.intent_classification(&input.world.settings) == IntentClassification::BesideReply
}

/// The beginning of one turn's reply.
struct ReplyOpening<'a, 'i> {
    services: &'a Services,
    input: &'i TurnInput,
    state: StateOfTurn<'a>,
    stopwatch: &'a Stopwatch<'a>,
}

impl<'i> ReplyOpening<'_, 'i> {
    /// Asks for the reply with the likeliest intent, and for the intent. If the classifier answers before the prompt is
    /// ready, nothing is asked for early.
    async fn open_beside_intent(&self) -> Result<(PreparedReply<'i>, OpenedStream), TurnError> {
        let likeliest = IntentSource::likeliest(self.input);
        let classifying = classify_timed(
            self.services,
            self.input,
            IntentSource::Model,
            &self.state,
            self.stopwatch,
        );
        let mut classifying = Box::pin(maybe_done(classifying));
        let mut prepared = run_beside(classifying.as_mut(), self.prepare_reply(likeliest)).await?;
        let mut opening = Box::pin(maybe_done(self.open_stream(prepared.request.take_call())));
        let is_asked_early = classifying.as_mut().output_mut().is_none();
        if is_asked_early {
            run_beside(opening.as_mut(), classifying.as_mut()).await;
        }
        let classification = finish(classifying.as_mut()).await?;
        let source = IntentSource::of_classified(&classification.classified);
        let mut is_same_prompt = true;
        if source != likeliest {
            let preparing = self.prepare_reply(source);
            let prepared_again = if is_asked_early {
                run_beside(opening.as_mut(), preparing).await?
            } else {
                preparing.await?
            };
            is_same_prompt = prepared_again.prompt.messages == prepared.prompt.messages;
            prepared = prepared_again;
        }
        prepared.gathered.set_classified_intent(classification);
        if is_asked_early {
            self.services.models.metrics().record_early_reply(is_same_prompt);
        }
        let opened = if is_same_prompt {
            finish(opening.as_mut()).await
        } else {
            drop(opening);
            if is_asked_early {
                let note = "the reply was asked for twice: first with the prompt for another intent";
                prepared.gathered.notes.push(note.to_owned());
            }
            self.open_stream(prepared.request.take_call()).await
        };
        Ok((prepared, opened))
    }

    async fn prepare_reply(&self, source: IntentSource) -> Result<PreparedReply<'i>, TurnError> {
        let (services, input) = (self.services, self.input);
        let gathering = Box::pin(gather_timed(services, input, source, &self.state, self.stopwatch));
        let gathered = gathering.instrument(debug_span!("turn.gather")).await?;
        let assembling = async { assemble_for_reply(services, input, &gathered) };
        let assembling = assembling.instrument(debug_span!("turn.assemble"));
        let (prompt, assemble_ms) = self.stopwatch.time_work(assembling).await;
        let prompt = prompt?;
        let authored = gathered.authored_words(input);
        let mut request = ReplyRequest::from_prompt(&prompt, gathered.counter, authored);
        request.add_tool_messages(input);
        Ok(PreparedReply {
            gathered,
            prompt,
            assemble_ms,
            request,
        })
    }

    async fn open_stream(&self, call: ReplyCall<'_>) -> OpenedStream {
        let began_ms = self.stopwatch.total_ms();
        let (chunks, call) = match call {
            ReplyCall::Authored(words) => authored_stream(words),
            ReplyCall::Model(messages) => {
                let model_request = model_request(self.services, self.input, messages);
                let opening = self.services.models.request_stream(&self.input.scope, model_request);
                opening.instrument(debug_span!("turn.ask")).await
            }
        };
        OpenedStream { chunks, call, began_ms }
    }
}

/// Runs `work` to its end, and `beside` as far as it comes meanwhile.
async fn run_beside<T, F: Future>(mut beside: Pin<&mut MaybeDone<F>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _ = beside.as_mut().poll(context);
        work.as_mut().poll(context)
    })
    .await
}

/// Runs `work` to its end, and returns its output.
async fn finish<F: Future>(mut work: Pin<&mut MaybeDone<F>>) -> F::Output {
    loop {
        work.as_mut().await;
        if let Some(output) = work.as_mut().take_output() {
            return output;
        }
    }
}

/// Assembles the prompt. No model sees the prompt of a turn that was shown before. Its extraction reads which memories
/// are known.
fn assemble_for_reply(services: &Services, input: &TurnInput, gathered: &GatheredContext) -> Result<Prompt, TurnError> {
    let prompt = gathered.assemble_prompt(services, input);
    if input.given_reply().is_none() {
        return prompt;
    }
    let trace = prompt.map(|prompt| prompt.trace).unwrap_or_default();
    Ok(Prompt {
        trace: TurnTrace {
            candidates: trace.candidates,
            unlisted_facts: trace.unlisted_facts,
            ..TurnTrace::default()
        },
        ..Prompt::default()
    })
}
