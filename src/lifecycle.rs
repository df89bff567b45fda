//! Ordered shutdown (ARCHITECTURE.md#actors), under one deadline. First: readiness off → time for balancers to notice
//! → refuse new turns → finish or cut running turns → flush. Then: notify clients → close sockets → stop the server →
//! stop arbiters → close pools.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use actix_web::dev::ServerHandle;
use tokio::time::{sleep, timeout};

use colloquy_actors::handle::{Dialogues, DrainReport};
use colloquy_http::{
    Readiness,
    socket::{
        events::draining_event,
        player_socket::{SocketHub, close_code},
    },
};
use colloquy_ports::{clock::Clock, ledger::Ledger};

/// The time reserved for the steps after the turns. A turn that hangs cannot prevent the notification of clients.
const SHUTDOWN_RESERVE: Duration = Duration::from_secs(3);

/// The parts of a running server that a shutdown stops.
pub struct RunningServer {
    pub readiness: Readiness,
    pub sessions: Dialogues,
    pub sockets: SocketHub,
    pub server: ServerHandle,
    pub ledger: Ledger,
    pub clock: Arc<dyn Clock>,
}

impl RunningServer {
    /// Stops everything in order, within `deadline` or shortly after. The deadline begins after `notice`, during
    /// which balancers stop sending new requests and the server works as before. Returns the outcome of the turns.
    pub async fn shut_down(self, notice: Duration, deadline: Duration) -> DrainReport {
        self.readiness.set(false);
        tracing::info!(
            notice_ms = u64::try_from(notice.as_millis()).unwrap_or(u64::MAX),
            deadline_s = deadline.as_secs(),
            "shutting down"
        );
        if !notice.is_zero() {
            sleep(notice).await;
        }
        let started = self.clock.monotonic_now();
        let remaining = |reserve: Duration| remaining_time(started, self.clock.monotonic_now(), deadline, reserve);
        self.sockets.broadcast_draining(&draining_event(deadline).into());

        // `drain_node` refuses new lines at once, cuts running turns at its deadline, and flushes buffered writes.
        let report = self.sessions.drain_node(remaining(SHUTDOWN_RESERVE)).await;
        self.sockets
            .close_all(
                close_code::DRAINING,
                "the server is shutting down",
                remaining(SHUTDOWN_RESERVE / 2),
            )
            .await;
        stop_within("the server", remaining(SHUTDOWN_RESERVE / 4), self.server.stop(true)).await;
        self.sessions.stop_threads();
        stop_within(
            "the ledger",
            remaining(Duration::ZERO).max(SHUTDOWN_RESERVE),
            self.ledger.maintenance.close_connections(),
        )
        .await;
        tracing::info!(
            finished = report.finished,
            cut = report.cut_turns,
            abandoned = report.abandoned,
            jobs_left = report.jobs_left,
            "shut down"
        );
        report
    }
}

/// Returns the rest of `deadline` minus `reserve`, at least 50 ms.
fn remaining_time(started: Instant, now: Instant, deadline: Duration, reserve: Duration) -> Duration {
    deadline
        .saturating_sub(now.saturating_duration_since(started))
        .saturating_sub(reserve.min(deadline / 2))
        .max(Duration::from_millis(50))
}

async fn stop_within(step_name: &str, limit: Duration, step: impl Future<Output = ()>) {
    if timeout(limit, step).await.is_err() {
        tracing::warn!(what = step_name, "a part of the server did not stop in time");
    }
}

/// Resolves on SIGTERM or SIGINT (Ctrl-C).
///
/// # Errors
/// If the signal handlers cannot be installed.
pub fn stop_signal() -> std::io::Result<impl Future<Output = &'static str>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
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
            // Without a handler the process would end at once, which loses no data either.
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
    fn shutdown_reserves_time_for_its_last_steps() {
        let start = Instant::now();
        let after_seconds = |s| start + Duration::from_secs(s);
        let twenty = Duration::from_secs(20);
        assert_eq!(
            remaining_time(start, start, twenty, SHUTDOWN_RESERVE),
            Duration::from_secs(17)
        );
        assert_eq!(
            remaining_time(start, after_seconds(10), twenty, SHUTDOWN_RESERVE),
            Duration::from_secs(7)
        );
        assert_eq!(
            remaining_time(start, after_seconds(30), twenty, SHUTDOWN_RESERVE),
            Duration::from_millis(50)
        );
        // With a deadline shorter than the reserve, turns still get half of the deadline.
        let second = Duration::from_secs(1);
        assert_eq!(remaining_time(start, start, second, SHUTDOWN_RESERVE), second / 2);
    }
}
