//! What is told while an embedder takes its time, on standard error.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::ports::clock::Clock;

/// How often it is told.
const PRINT_INTERVAL: Duration = Duration::from_secs(2);

/// How much of something is done. What takes less than two seconds is not told of.
pub(super) struct ProgressPrinter {
    what: &'static str,
    all: usize,
    done: usize,
    clock: Arc<dyn Clock>,
    told: Instant,
    on_terminal: bool,
    begun_line: bool,
}

impl ProgressPrinter {
    pub(super) fn new(what: &'static str, all: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            what,
            all,
            done: 0,
            told: clock.monotonic_now(),
            clock,
            on_terminal: std::io::stderr().is_terminal(),
            begun_line: false,
        }
    }

    pub(super) fn add_done(&mut self, more: usize) {
        self.done += more;
        let now = self.clock.monotonic_now();
        if now.duration_since(self.told) >= PRINT_INTERVAL {
            self.told = now;
            self.print_progress();
        }
    }

    /// On a terminal one line that changes, elsewhere a line each time. That nobody reads it is no fault.
    fn print_progress(&mut self) {
        let (start, end) = if self.on_terminal { ("\r", "") } else { ("", "\n") };
        let mut out = std::io::stderr().lock();
        let _ = write!(out, "{start}{} {} of {}{end}", self.what, self.done, self.all);
        let _ = out.flush();
        self.begun_line = self.on_terminal;
    }
}

impl Drop for ProgressPrinter {
    fn drop(&mut self) {
        if self.begun_line {
            self.print_progress();
            eprintln!();
        }
    }
}
