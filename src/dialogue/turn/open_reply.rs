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
use tracing::{Instrument as _, Span, debug_span};

use super::{
    gather::{Classification, Gathering},
    gathered_context::GatheredContext,
    input::{TurnError, TurnInput},
    speak::{ReplyCall, ReplyRequest, authored_stream, model_request},
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
    /// The span of the reply, from the call on.
    pub span: Span,
}

/// Gathers the context, assembles the prompt and asks the reply model.
///
/// # Errors
/// Those of the context and the prompt. An error of the model is in the [`OpenedStream`].
pub(super) async fn open_reply(gathering: Gathering<'_>) -> Result<(PreparedReply<'_>, OpenedStream), TurnError> {
    let Gathering { services, input, .. } = gathering;
    match IntentSource::for_turn(services, input) {
        IntentSource::Model if is_classified_beside(services, input) => Box::pin(open_beside_intent(gathering)).await,
        source => {
            let gathered = Box::pin(gathering.gather(source).instrument(debug_span!("turn.gather")));
            let mut prepared = prepare_reply(gathering, gathered).await?;
            let opened = open_stream(gathering, prepared.request.take_call()).await;
            Ok((prepared, opened))
        }
    }
}

/// True if the reply is asked for while the classifier answers. Without speculative recall, the intent comes first.
fn is_classified_beside(services: &Services, input: &TurnInput) -> bool {
    let classification = services.intent_classification(&input.world.settings);
    classification == IntentClassification::BesideReply && services.settings.recall.speculative
}

/// Asks for the reply with the likeliest intent, and for the intent. If the classifier answers before the prompt is
/// ready, nothing is asked for early.
async fn open_beside_intent(gathering: Gathering<'_>) -> Result<(PreparedReply<'_>, OpenedStream), TurnError> {
    let span = debug_span!("turn.gather");
    let classifying = gathering.classify(IntentSource::Model).instrument(span.clone());
    let mut classifying = Box::pin(maybe_done(classifying));
    let reading = Box::pin(gathering.read_before_intent().instrument(span.clone()));
    let first_reads = run_beside(classifying.as_mut(), reading).await?;
    let prepare = |first_reads, classification| {
        let finding = gathering.find_for_intent(first_reads, classification);
        prepare_reply(gathering, Box::pin(finding.instrument(span.clone())))
    };
    if let Some(classification) = classifying.as_mut().take_output() {
        let mut prepared = prepare(first_reads, classification?).await?;
        let opened = open_stream(gathering, prepared.request.take_call()).await;
        return Ok((prepared, opened));
    }
    let likeliest = Classification::expected(gathering.input);
    let mut prepared = run_beside(classifying.as_mut(), prepare(first_reads.clone(), likeliest)).await?;
    if let Some(classification) = classifying.as_mut().take_output() {
        let classification = classification?;
        if classification.classified.needs_same_as(&prepared.gathered.intent) {
            prepared.gathered.set_intent(classification);
        } else {
            prepared = prepare(first_reads, classification).await?;
        }
        let opened = open_stream(gathering, prepared.request.take_call()).await;
        return Ok((prepared, opened));
    }
    let mut opening = Box::pin(maybe_done(open_stream(gathering, prepared.request.take_call())));
    run_beside(opening.as_mut(), classifying.as_mut()).await;
    let classification = finish(classifying.as_mut()).await?;
    let mut is_kept = true;
    if classification.classified.needs_same_as(&prepared.gathered.intent) {
        prepared.gathered.set_intent(classification);
    } else {
        let prepared_again = run_beside(opening.as_mut(), prepare(first_reads, classification)).await?;
        is_kept = prepared_again.prompt.messages == prepared.prompt.messages;
        prepared = prepared_again;
    }
    gathering.services.models.metrics().record_early_reply(is_kept);
    let opened = if is_kept {
        finish(opening.as_mut()).await
    } else {
        drop(opening);
        let note = "the reply was asked for twice: first with the prompt for another intent";
        prepared.gathered.notes.push(note.to_owned());
        open_stream(gathering, prepared.request.take_call()).await
    };
    Ok((prepared, opened))
}

/// Assembles the prompt from the context.
async fn prepare_reply(
    gathering: Gathering<'_>,
    gathered: impl Future<Output = Result<GatheredContext, TurnError>>,
) -> Result<PreparedReply<'_>, TurnError> {
    let Gathering {
        services, input, watch, ..
    } = gathering;
    let gathered = gathered.await?;
    let assembling = async { assemble_for_reply(services, input, &gathered) };
    let (prompt, assemble_ms) = watch
        .time_work(assembling.instrument(debug_span!("turn.assemble")))
        .await;
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

async fn open_stream(gathering: Gathering<'_>, call: ReplyCall<'_>) -> OpenedStream {
    let began_ms = gathering.watch.total_ms();
    let span = debug_span!("turn.reply");
    let (chunks, call) = match call {
        ReplyCall::Authored(words) => authored_stream(words),
        ReplyCall::Model(messages) => {
            let Gathering { services, input, .. } = gathering;
            let request = model_request(services, input, messages);
            let opening = services.models.request_stream(&input.scope, request);
            opening.instrument(span.clone()).await
        }
    };
    OpenedStream {
        chunks,
        call,
        began_ms,
        span,
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
