//! What the player types, or what a pipe says.

use std::io::IsTerminal;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

pub(super) struct Input {
    lines: Lines<BufReader<Stdin>>,
    /// True if a person types.
    pub interactive: bool,
}

impl Input {
    pub(super) fn from_stdin() -> Self {
        Self {
            lines: BufReader::new(tokio::io::stdin()).lines(),
            interactive: std::io::stdin().is_terminal(),
        }
    }

    /// Returns the next line, or `None` at the end of input. May be dropped and called again.
    pub(super) async fn next_line(&mut self) -> std::io::Result<Option<String>> {
        self.lines.next_line().await
    }

    /// Waits until something can be read, and returns it without taking it. Empty at the end of input.
    pub(super) async fn peek(&mut self) -> std::io::Result<&[u8]> {
        self.lines.get_mut().fill_buf().await
    }

    /// Drops what can be read now.
    pub(super) fn discard(&mut self) {
        let buffered = self.lines.get_ref().buffer().len();
        self.lines.get_mut().consume(buffered);
    }
}

/// Makes the terminal pass on each key at once, without showing it, in place of whole lines. Dropping this value brings
/// lines back.
pub(super) struct KeyMode {
    /// The terminal's settings for lines; `None` if no person types, or if the terminal refuses.
    lines: Option<Termios>,
}

impl KeyMode {
    pub(super) fn of_input(input: &Input) -> Self {
        Self {
            lines: input.interactive.then(|| tcgetattr(std::io::stdin()).ok()).flatten(),
        }
    }

    pub(super) fn read_keys(&self) {
        if let Some(lines) = &self.lines {
            let mut keys = lines.clone();
            keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            change_terminal(&keys);
        }
    }

    pub(super) fn read_lines(&self) {
        if let Some(lines) = &self.lines {
            change_terminal(lines);
        }
    }
}

impl Drop for KeyMode {
    fn drop(&mut self) {
        self.read_lines();
    }
}

fn change_terminal(settings: &Termios) {
    // A terminal that refuses stays as it is.
    let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, settings);
}
