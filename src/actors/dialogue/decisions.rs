//! The decisions of a dialogue's actor: pure functions of a small view of the actor's state. The actor carries a
//! decision out; no decision needs an actor, a clock or a store.

use crate::DialogueError;
use colloquy_core::ids::TurnId;

/// What the actor is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The dialogue, or a part of the dialogue, is being read or recorded. Requests wait.
    Reading,
    /// The dialogue is in memory, and no rewind is running.
    Ready,
    /// A rewind is running in the ledger.
    Rewinding,
}

/// The state of a dialogue's actor, as far as decisions depend on the state.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, read only by the functions below"
)]
pub(crate) struct ActorView {
    pub activity: Activity,
    pub turn_runs: bool,
    /// True if a rewind is queued or running.
    pub rewind_wanted: bool,
    /// True if only the ledger knows the outcome of an earlier write.
    pub in_doubt: bool,
    /// True if a caller waits for the end of the running turn and can be answered.
    pub has_answerable: bool,
    /// A turn that was rewound for a replacement, if no replacement is about to start.
    pub owed: Option<TurnId>,
    /// True if requested lines wait.
    pub has_lines: bool,
    /// True if a caller waits for the drain of the dialogue.
    pub drain_waits: bool,
    pub closing: Closing,
    /// True if the dialogue is closed in the ledger.
    pub closed: bool,
    /// True if the node or the dialogue is draining.
    pub draining: bool,
}

/// The progress of a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// Waits until no turn runs.
    Wanted,
    /// The close is being written.
    BeingWritten,
}

/// The next step of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Nothing to do before the next message or result.
    Wait,
    /// Read the whole dialogue again.
    Load,
    /// Answer the callers that waited for the end of the running turn.
    AnswerWaiters,
    /// Cancel the lines that wait: the dialogue is draining or closing.
    CancelLines,
    /// Reinstate a turn whose replacement does not come.
    Reinstate(TurnId),
    AnswerDrain,
    WriteClose,
    /// Start the next turn, or a preparation of the next turn.
    Serve,
}

/// Decides what the actor does next. Each step other than `Wait`, `Load` and `Serve` removes its own reason, so that a
/// loop over the steps ends.
pub(crate) fn next_step(view: &ActorView) -> NextStep {
    if view.turn_runs || view.rewind_wanted || view.activity != Activity::Ready {
        return NextStep::Wait;
    }
    if view.in_doubt {
        return NextStep::Load;
    }
    if view.has_answerable {
        return NextStep::AnswerWaiters;
    }
    let leaving = view.drain_waits || view.closing != Closing::No;
    if leaving && view.has_lines {
        return NextStep::CancelLines;
    }
    if let Some(turn) = view.owed {
        return NextStep::Reinstate(turn);
    }
    if view.drain_waits {
        return NextStep::AnswerDrain;
    }
    match view.closing {
        Closing::Wanted => NextStep::WriteClose,
        Closing::BeingWritten => NextStep::Wait,
        Closing::No => NextStep::Serve,
    }
}

/// What a request needs from its dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestNeeds {
    /// The state in memory. The request's handler refuses what a closed dialogue cannot do.
    Nothing,
    /// As `Nothing`; the request may rewind the dialogue, and so does not wait for a running rewind.
    Rewind,
    /// An open dialogue.
    Open,
    /// An open dialogue, on a node that does not drain.
    OpenAndServing,
}

/// What happens to a request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// The request waits until the dialogue is in memory and no rewind is wanted.
    Defer,
    RefuseClosed,
    RefuseDraining,
    Handle,
}

/// Decides whether a request can be handled now. The check for a closed dialogue is made here, once for all requests
/// that need an open dialogue.
pub(crate) fn route_request(view: &ActorView, needs: RequestNeeds) -> Route {
    match view.activity {
        Activity::Reading => return Route::Defer,
        _ if view.rewind_wanted && needs != RequestNeeds::Rewind => return Route::Defer,
        Activity::Ready | Activity::Rewinding => {}
    }
    let closed = view.closed || view.closing != Closing::No;
    match needs {
        RequestNeeds::Open | RequestNeeds::OpenAndServing if closed => Route::RefuseClosed,
        RequestNeeds::OpenAndServing if view.draining => Route::RefuseDraining,
        RequestNeeds::Nothing | RequestNeeds::Rewind | RequestNeeds::Open | RequestNeeds::OpenAndServing => {
            Route::Handle
        }
    }
}

/// What follows a rewind that did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRejectedRewind {
    /// A load is running, and continues the deferred work.
    AwaitLoad,
    Load,
    /// Start the next queued rewind.
    NextRewind,
    /// Read the rows that an earlier rewind for the same callers changed.
    Reread,
    /// Continue the deferred work.
    Continue,
}

/// Decides what follows a rewind that did not happen. `applied_before`: an earlier rewind for the same callers was
/// applied, and its rows are not read yet.
pub(crate) fn after_rejected_rewind(view: &ActorView, applied_before: bool) -> AfterRejectedRewind {
    if view.activity == Activity::Reading {
        AfterRejectedRewind::AwaitLoad
    } else if view.in_doubt && !view.turn_runs {
        AfterRejectedRewind::Load
    } else if view.rewind_wanted {
        AfterRejectedRewind::NextRewind
    } else if applied_before {
        AfterRejectedRewind::Reread
    } else {
        AfterRejectedRewind::Continue
    }
}

/// What happens to the notice of a restored save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnRestoreNotice {
    /// The cached state was read after the restore.
    Ignore,
    /// The notice waits until the dialogue is in memory and no rewind is wanted.
    Defer,
    Apply,
}

/// Decides what happens to the notice of a restore at `restored_epoch`, in a dialogue in memory at `loaded_epoch`.
pub(crate) fn on_restore_notice(view: &ActorView, restored_epoch: u64, loaded_epoch: u64) -> OnRestoreNotice {
    if view.activity == Activity::Reading {
        OnRestoreNotice::Defer
    } else if restored_epoch <= loaded_epoch {
        OnRestoreNotice::Ignore
    } else if view.rewind_wanted {
        // The ledger made the running rewind before the restore, or refuses the rewind.
        OnRestoreNotice::Defer
    } else {
        OnRestoreNotice::Apply
    }
}

/// Checks that a dialogue can be rewound and that the caller knows the head. Returns the head.
pub(crate) fn check_head(head_turn: u32, running: Option<u32>, if_head: Option<u32>) -> Result<u32, DialogueError> {
    match if_head {
        Some(known) if known != head_turn && Some(known) != running => Err(DialogueError::StaleHead { head_turn }),
        _ => Ok(head_turn),
    }
}

#[cfg(test)]
mod tests;
