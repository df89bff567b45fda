//! One turn (ARCHITECTURE.md#a-turn): a player's line and an NPC's reply, or one NPC's line to other NPCs.
//!
//! Start reading the code here. [`run_turn`] runs the five steps of a turn in order:
//!
//! 1. `turn/gather.rs` reads memory and world state in parallel.
//! 2. `prompt/` assembles the prompt within the token budgets.
//! 3. `turn/open_reply.rs` asks the model while the intent of the line is classified.
//! 4. `turn/speak.rs` streams the reply, and stops at a cut.
//! 5. `turn/commit.rs` writes the turn, its checkpoint, its state changes and its jobs in one transaction.

mod chat_request;
mod commit;
mod continuation;
mod extraction_choice;
mod failure;
pub(super) mod gather;
pub(super) mod gathered_context;
mod input;
mod job_holds;
mod line_recall;
pub(super) mod living_scene;
mod open_reply;
mod own_name;
mod speak;
mod state_block;
mod stopwatch;
mod turn_trace;
mod uncommitted_turn;
mod world_state;

use std::time::Duration;

use tokio::sync::watch;
use tracing::{Instrument as _, debug_span};

pub use self::{
    chat_request::{CalledTools, ChatRequest, GivenReply, OwnPrompt, ReplyEnd, ToolExchange},
    continuation::{PartialReply, ReplyBeginning, ReplyEffects},
    failure::event_error,
    input::{CommittedTurn, Cut, TurnError, TurnFeed, TurnInput},
};
use self::{
    commit::commit_reply,
    gather::Gathering,
    open_reply::{PreparedReply, open_reply},
    speak::{Reply, speak_reply, unless_cut},
    stopwatch::Stopwatch,
    uncommitted_turn::UncommittedTurn,
    world_state::StateOfTurn,
};
pub(super) use self::{
    commit::new_state_changes,
    gathered_context::GatheredContext,
    speak::{AUTHORED_GREETING, GIVEN_REPLY, grapheme_prefix},
    state_block::{StateBlockContext, backend_names_of, parse_state_block, state_rules_of},
    turn_trace::present_settings,
};
use super::{
    Services,
    models::{run_admitted, with_model_time, with_usage_owner},
};
use colloquy_memory::{trace::Timings, turn::TurnStatus};
use colloquy_ports::ledger::{
    priority::{with_interactive_priority, with_urgent_priority},
    usage::UsageOwner,
};

/// Runs a turn to its commit. `cut_signal` becomes `Some` when the player interrupts.
///
/// - Before it returns, `run_turn` calls [`TurnFeed::send_done`] exactly once, in every case
///   (ARCHITECTURE.md#a-turn, docs/protocol.md#events-of-the-server).
/// - A turn that fails before the commit leaves nothing behind.
/// - If the commit fails, the client already has the reply. The error then tells that the turn does not stand.
///
/// # Errors
/// A [`TurnError`]. The time limit `turn.timeout_ms` covers the steps before the commit.
pub async fn run_turn(
    services: &Services,
    input: TurnInput,
    feed: &dyn TurnFeed,
    cut_signal: watch::Receiver<Option<Cut>>,
) -> Result<CommittedTurn, TurnError> {
    let owner = UsageOwner {
        world: input.world.id.clone(),
        npc: input.npc.id.clone(),
    };
    let services = services.tuned_by(&input.world.settings);
    let player = input.player.clone().or_else(|| input.charged_player.clone());
    let steps = with_model_time(run_turn_steps(&services, input, feed, cut_signal));
    with_usage_owner(owner, player, Box::pin(steps)).await
}

async fn run_turn_steps(
    services: &Services,
    input: TurnInput,
    feed: &dyn TurnFeed,
    mut cut_signal: watch::Receiver<Option<Cut>>,
) -> Result<CommittedTurn, TurnError> {
    input.assert_consistent();
    let stopwatch = Stopwatch::start_at(input.accepted_at, services.clock.as_ref());
    let limit = Duration::from_millis(services.settings.turn.timeout_ms);
    let budgets = services.models.budgets();
    let state = StateOfTurn::new(services, &input);
    let reply_steps = async {
        // Each step has its own box. Otherwise the turn's future would be as large as all its steps together.
        let opening = Box::pin(open_reply(Gathering {
            services,
            input: &input,
            state: &state,
            watch: &stopwatch,
        }));
        let (prepared, opened) = unless_cut(&mut cut_signal, opening).await??;
        let request = &prepared.request;
        let span = opened.span.clone();
        let speaking = Box::pin(speak_reply(&input, request, opened, feed, &mut cut_signal, &stopwatch));
        let reply = speaking.instrument(span).await?;
        Ok(SpokenTurn { prepared, reply })
    };
    let outcome = tokio::time::timeout(limit, async {
        // An admitted turn may finish even if the tenant's budget runs out meanwhile.
        let reservation = budgets
            .reserve_turn(&services.ledger, &input.scope, input.player.as_ref())
            .await?;
        run_admitted(reply_steps).await.map(|spoken| (reservation, spoken))
    });
    match outcome.await.unwrap_or(Err(TurnError::TimedOut)) {
        Ok((reservation, spoken)) => {
            let committing = Box::pin(commit_spoken(services, &input, feed, &cut_signal, &stopwatch, spoken));
            let committed = committing.await?;
            reservation.mark_stored();
            Ok(committed)
        }
        Err(error) => {
            feed.send_done(failure::failed_reply_done(&input, &error));
            Err(error)
        }
    }
}

/// A turn whose reply is spoken.
struct SpokenTurn<'i> {
    prepared: PreparedReply<'i>,
    reply: Reply,
}

/// Ends the reply for the listeners, and commits the turn.
async fn commit_spoken(
    services: &Services,
    input: &TurnInput,
    feed: &dyn TurnFeed,
    cut_signal: &watch::Receiver<Option<Cut>>,
    stopwatch: &Stopwatch<'_>,
    spoken: SpokenTurn<'_>,
) -> Result<CommittedTurn, TurnError> {
    let SpokenTurn { prepared, reply } = spoken;
    let PreparedReply {
        gathered,
        prompt,
        assemble_ms,
        ..
    } = prepared;
    let done_seq = feed.send_done(reply.to_reply_done(input));
    let timings = build_timings(input, stopwatch, &gathered, assemble_ms, &reply);
    let is_cut = reply.status == TurnStatus::Interrupted;
    let cuts = match &*cut_signal.borrow() {
        Some(cut) if is_cut => cut.requesters.clone(),
        _ => Vec::new(),
    };
    let uncommitted = UncommittedTurn {
        cuts,
        gathered,
        prompt,
        reply,
        done_seq,
        timings,
    };
    let committing = Box::pin(commit_reply(services, input, feed, uncommitted));
    let committing = committing.instrument(debug_span!("turn.commit"));
    // A caller that cut the reply waits for this commit. A caller that interrupts during the commit waits too.
    if is_cut {
        with_urgent_priority(committing).await
    } else {
        with_interactive_priority(committing).await
    }
}

fn build_timings(
    input: &TurnInput,
    stopwatch: &Stopwatch<'_>,
    gathered: &GatheredContext,
    assemble_ms: f64,
    reply: &Reply,
) -> Timings {
    Timings {
        queue: input.queue_ms,
        memory_wait: input.memory_wait_ms,
        assemble: assemble_ms,
        first_token: reply.first_token_ms,
        reply: reply.whole_ms,
        added: stopwatch.added_ms(),
        ..gathered.timings.clone()
    }
}
