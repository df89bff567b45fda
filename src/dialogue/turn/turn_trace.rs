//! The trace of a finished turn: the reasons for the reply, and what its prompt was assembled from.

use super::{
    gather::{self},
    gathered_context::GatheredContext,
    input::TurnInput,
    speak::Reply,
    uncommitted_turn::UncommittedTurn,
};
use crate::{
    Services,
    disclosure::TurnDisclosures,
    prompt::{ContentHash, Prompt},
};
use colloquy_memory::{
    authored::{Npc, World},
    tokens::TokenCounter,
    trace::{PromptSources, TurnTrace},
    turn::{Turn, TurnStatus},
};

/// Returns the trace of a turn. `state_notes` are about its state block.
pub(super) fn trace_of_turn(
    services: &Services,
    input: &TurnInput,
    turn: &Turn,
    uncommitted: UncommittedTurn,
    state_notes: Vec<String>,
    disclosures: TurnDisclosures,
) -> TurnTrace {
    let UncommittedTurn {
        gathered,
        mut prompt,
        reply,
        timings,
        ..
    } = uncommitted;
    let unchanged_tokens = record_sent_prompt(services, input, &gathered, &prompt, &reply);
    let sources = sources_of_turn(
        services,
        input,
        &gathered,
        prompt.trace.sources.take().unwrap_or_default(),
    );
    let prompt_notes = std::mem::take(&mut prompt.trace.notes);
    let mut calls = gathered.calls;
    calls.push(reply.call);
    let later_notes = prompt_notes.into_iter().chain(reply.notes).chain(state_notes);
    let notes = collect_notes(services, input, turn, gathered.notes, later_notes);
    TurnTrace {
        traced_at: turn.committed_at,
        key: input.dialogue_key().to_string(),
        intent: gathered.intent.intent,
        intent_source: gathered.intent.source,
        not_searched: gathered.not_searched,
        memory_wait: input.memory_wait.clone(),
        query: gathered.query,
        topic_gate: Some(gathered.knowledge.found_facts.gate),
        place: gathered.place,
        progress: gathered.knowledge.scenarios.past.map(|past| past.progress),
        told_in: input.checkpoint.turns_told_in(),
        locks: disclosures.locks,
        told_locks: Some(disclosures.told_locks),
        locked: disclosures.undisclosed_words,
        confided: disclosures.confided,
        unchanged_tokens,
        sources: Some(sources),
        calls,
        timings,
        notes,
        state_block: reply.began_block,
        // The content of the prompt.
        ..prompt.trace
    }
}

/// Records which part of the prompt the model has seen before. No model has seen the prompt of an authored text.
fn record_sent_prompt(
    services: &Services,
    input: &TurnInput,
    gathered: &GatheredContext,
    prompt: &Prompt,
    reply: &Reply,
) -> Option<u32> {
    if gathered.authored_words(input).is_some() {
        return None;
    }
    let model = &reply.call.model;
    let sent = &services.memory_cache.sent_prompts;
    let unchanged_tokens = sent.record_prompt(input.dialogue.id, &input.npc.id, model, prompt)?;
    services.models.record_unchanged(&input.scope, model, unchanged_tokens);
    Some(unchanged_tokens)
}

fn collect_notes(
    services: &Services,
    input: &TurnInput,
    turn: &Turn,
    mut notes: Vec<String>,
    later_notes: impl Iterator<Item = String>,
) -> Vec<String> {
    if input.continuation.is_some() {
        notes.push("a reply that was cut was taken up again".to_owned());
    }
    let tool_messages = input.chat.as_ref().map_or(0, |chat| chat.tools.messages.len());
    if tool_messages > 0 {
        notes.push(format!(
            "{tool_messages} messages about tools of the client followed the prompt; they are not stored"
        ));
    }
    notes.extend(later_notes);
    if turn.status == TurnStatus::Interrupted {
        notes.push("the player cut the reply".to_owned());
    }
    if services.models.is_offline() {
        notes.push("scripted: no language model was asked".to_owned());
    }
    if services.embedder.info().offline {
        notes.push("offline embedder: relevance is lexical".to_owned());
    }
    notes
}

/// Returns what the prompt of a turn was assembled from. `shown` has the rows that the sections of the prompt show.
fn sources_of_turn(
    services: &Services,
    input: &TurnInput,
    gathered: &GatheredContext,
    shown: PromptSources,
) -> PromptSources {
    let continued = input.continuation.as_ref();
    let continued_chars = continued.map(|unfinished| unfinished.beginning().text.chars().count());
    let mut sources = PromptSources {
        world_version: input.world.version,
        npc_version: input.npc.version,
        templates: services.prompts.source_hash().to_owned(),
        settings: hash_of_settings(services, &input.world, gathered.counter),
        state_seq: gathered.state_position.seq,
        state_generation: gathered.state_position.generation,
        history_from: input.history.first().map_or(input.number, |turn| turn.number),
        redacted: gathered.redacted.clone(),
        continued_chars: continued_chars.map(|chars| u32::try_from(chars).unwrap_or(u32::MAX)),
        continued_whole: continued.is_some_and(|unfinished| unfinished.is_whole),
        own_prompt: input.own_prompt().is_some(),
        ..shown
    };
    gathered.knowledge.add_sources(&mut sources);
    sources
}

/// Returns the hash of the settings that change what a prompt has, with the token counter.
fn hash_of_settings(services: &Services, world: &World, counter: TokenCounter) -> String {
    let settings = &services.settings;
    let mut prompt = settings.prompt.clone();
    // The hash of the templates stands for them.
    prompt.templates_dir = None;
    let mut hash = ContentHash::default();
    hash.add_json(&prompt);
    hash.add_json(&settings.recall);
    // The world and the NPC have versions of their own in the trace, and a session keeps its settings.
    hash.add_number(world.tenant.version);
    hash.add_text(&format!("{counter:?}"));
    hash.finish()
}

/// Returns the hash of the present settings for an NPC, as in [`PromptSources::settings`].
pub(crate) fn present_settings(services: &Services, world: &World, npc: &Npc) -> String {
    hash_of_settings(services, world, gather::reply_counter(services, npc))
}
