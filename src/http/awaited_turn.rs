//! The result of a turn that a caller awaits.

use std::sync::Arc;

use crate::errors::{Code, Problem};
use colloquy_actors::AcceptedLine;
use colloquy_memory::turn::Turn;

/// Awaits the finished turn of an accepted line.
///
/// # Errors
/// As of [`completed_turn`].
pub async fn await_turn(accepted: AcceptedLine) -> Result<Arc<Turn>, Problem> {
    match accepted {
        AcceptedLine::Repeated(turn) => Ok(turn),
        AcceptedLine::Turn { done: turn_receiver } => completed_turn(turn_receiver.await),
    }
}

/// Awaits the finished turn from a receiver.
///
/// # Errors
/// The reason why the turn was not committed, or the session ended before the turn.
pub fn completed_turn<E>(
    received: Result<Result<Arc<Turn>, Arc<colloquy_dialogue::turn::TurnError>>, E>,
) -> Result<Arc<Turn>, Problem> {
    match received {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(error)) => Err(Problem::from(&*error)),
        // The session's actor is gone. The actor was shut down, or panicked and is reloaded from the ledger.
        Err(_) => Err(Problem::new(
            Code::Overloaded,
            "the session ended before the turn did; repeat the line with the same key",
        )),
    }
}
