//! Work that a client's hang-up does not stop.

use std::future::Future;

use tracing::Instrument as _;

use crate::errors::Problem;

/// Runs `work` to its end even if the client hangs up: a write must not stop before its follow-up work.
pub(super) async fn run_uncancelled<T: 'static>(
    work: impl Future<Output = Result<T, Problem>> + 'static,
) -> Result<T, Problem> {
    actix_web::rt::spawn(work.in_current_span())
        .await
        .map_err(|error| Problem::internal_error(&error))?
}
