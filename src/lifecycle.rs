//! Stopping in order (DESIGN §3): readiness off → a moment for balancers to notice → refuse new turns → finish or cut running ones →
//! flush → tell clients → close sockets → stop the server → stop arbiters → close pools; with a
//! deadline over all of it.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use actix_web::dev::ServerHandle;
use bytestring::ByteString;
use tokio::time::{sleep, timeout};

use crate::{
    actors::{
        handle::{Drained, Sessions},
        player_socket::{SocketHub, close},
    },
    http::Readiness,
    ports::{clock::Clock, ledger::Ledger},
};

/// What the shutdown leaves for the steps after the turns, so that a turn that hangs cannot keep
/// the clients from being told.
const RESERVE: Duration = Duration::from_secs(3);

/// Everything that has to be stopped.
pub struct Running {
    pub readiness: Readiness,
    pub sessions: Sessions,
    pub sockets: SocketHub,
    pub server: ServerHandle,
    pub ledger: Ledger,
    pub clock: Arc<dyn Clock>,
}

impl Running {
    /// Stops everything, in order, within `deadline` or shortly after, which begins once balancers had `notice` to send
    /// nothing new here. Until then everything goes on as before. Says what became of the turns.
    pub async fn stop(self, notice: Duration, deadline: Duration) -> Drained {
        self.readiness.set(false);
        tracing::info!(
            notice_ms = u64::try_from(notice.as_millis()).unwrap_or(u64::MAX),
            deadline_s = deadline.as_secs(),
            "shutting down"
        );
        if !notice.is_zero() {
            sleep(notice).await;
        }
        let started = self.clock.instant();
        let left = |reserve: Duration| remaining(started, self.clock.instant(), deadline, reserve);
        let draining = format!(r#"{{"type":"server.draining","deadline_s":{}}}"#, deadline.as_secs());
        self.sockets.broadcast(&ByteString::from(draining));

        // `drain` refuses new lines at once, cuts what runs at its deadline, and writes what is buffered.
        let drained = self.sessions.drain(left(RESERVE)).await;
        self.sockets
            .close_all(close::DRAINING, "the server is shutting down", left(RESERVE / 2))
            .await;
        bounded("the server", left(RESERVE / 4), self.server.stop(true)).await;
        self.sessions.stop();
        bounded(
            "the ledger",
            left(Duration::ZERO).max(RESERVE),
            self.ledger.maintenance.close(),
        )
        .await;
        tracing::info!(
            finished = drained.finished,
            cut = drained.cut,
            abandoned = drained.abandoned,
            jobs_left = drained.jobs_left,
            "shut down"
        );
        drained
    }
}

/// What is left of `deadline`, keeping `reserve` back; never less than a moment.
fn remaining(started: Instant, now: Instant, deadline: Duration, reserve: Duration) -> Duration {
    deadline
        .saturating_sub(now.saturating_duration_since(started))
        .saturating_sub(reserve.min(deadline / 2))
        .max(Duration::from_millis(50))
}

async fn bounded(what: &str, limit: Duration, step: impl Future<Output = ()>) {
    if timeout(limit, step).await.is_err() {
        tracing::warn!(what, "did not stop in time and was left behind");
    }
}

/// Resolves at SIGTERM or SIGINT (Ctrl-C).
///
/// # Errors
/// If the signals cannot be listened to.
pub fn stop_signal() -> std::io::Result<impl Future<Output = &'static str>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(async move {
            tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            }
        })
    }
    #[cfg(not(unix))]
    {
        Ok(async {
            // Without a handler the process would just end, which loses nothing either.
            let _ = tokio::signal::ctrl_c().await;
            "Ctrl-C"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn the_last_steps_always_get_some_time() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let twenty = Duration::from_secs(20);
        assert_eq!(remaining(start, start, twenty, RESERVE), Duration::from_secs(17));
        assert_eq!(remaining(start, at(10), twenty, RESERVE), Duration::from_secs(7));
        assert_eq!(remaining(start, at(30), twenty, RESERVE), Duration::from_millis(50));
        // A deadline shorter than the reserve still leaves half of it to the turns.
        let second = Duration::from_secs(1);
        assert_eq!(remaining(start, start, second, RESERVE), second / 2);
    }
}
