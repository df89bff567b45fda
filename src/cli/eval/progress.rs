//! What is told while an embedder takes its time, on standard error.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::ports::clock::Clock;

/// How often it is told.
const EVERY: Duration = Duration::from_secs(2);

/// How much of something is done. What takes less than two seconds is not told of.
pub(super) struct Progress {
    what: &'static str,
    all: usize,
    done: usize,
    clock: Arc<dyn Clock>,
    told: Instant,
    on_terminal: bool,
    begun_line: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str, all: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            what,
            all,
            done: 0,
            told: clock.instant(),
            clock,
            on_terminal: std::io::stderr().is_terminal(),
            begun_line: false,
        }
    }

    pub(super) fn done(&mut self, more: usize) {
        self.done += more;
        let now = self.clock.instant();
        if now.duration_since(self.told) >= EVERY {
            self.told = now;
            self.tell();
        }
    }

    /// On a terminal one line that changes, elsewhere a line each time. That nobody reads it is no fault.
    fn tell(&mut self) {
        let (start, end) = if self.on_terminal { ("\r", "") } else { ("", "\n") };
        let mut out = std::io::stderr().lock();
        let _ = write!(out, "{start}{} {} of {}{end}", self.what, self.done, self.all);
        let _ = out.flush();
        self.begun_line = self.on_terminal;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.begun_line {
            self.tell();
            eprintln!();
        }
    }
}
