//! Progress messages on standard error while a slow embedder works.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use colloquy_ports::clock::Clock;

/// The interval between messages.
const PRINT_INTERVAL: Duration = Duration::from_secs(2);

/// Progress of a task. Tasks shorter than two seconds print no progress.
pub struct ProgressPrinter {
    label: &'static str,
    total: usize,
    done_count: usize,
    clock: Arc<dyn Clock>,
    printed_at: Instant,
    on_terminal: bool,
    begun_line: bool,
}

impl ProgressPrinter {
    pub fn new(label: &'static str, total: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            label,
            total,
            done_count: 0,
            printed_at: clock.monotonic_now(),
            clock,
            on_terminal: std::io::stderr().is_terminal(),
            begun_line: false,
        }
    }

    pub fn add_done(&mut self, count: usize) {
        self.done_count += count;
        let now = self.clock.monotonic_now();
        if now.duration_since(self.printed_at) >= PRINT_INTERVAL {
            self.printed_at = now;
            self.print_progress();
        }
    }

    /// Overwrites one line on a terminal, and prints a new line elsewhere. Write errors are ignored.
    fn print_progress(&mut self) {
        let (start, end) = if self.on_terminal { ("\r", "") } else { ("", "\n") };
        let mut out = std::io::stderr().lock();
        let _ = write!(out, "{start}{} {} of {}{end}", self.label, self.done_count, self.total);
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
