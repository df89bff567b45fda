//! What the player types, or what a pipe says.

use std::io::IsTerminal;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::io::{AsyncBufReadExt, BufReader, Stdin};

pub(super) struct Input {
    reader: BufReader<Stdin>,
    /// What was read of the next line.
    partial_line: Vec<u8>,
    /// True if a person types.
    pub interactive: bool,
}

impl Input {
    pub(super) fn from_stdin() -> Self {
        Self {
            reader: BufReader::new(tokio::io::stdin()),
            partial_line: Vec::new(),
            interactive: std::io::stdin().is_terminal(),
        }
    }

    /// Returns the next line with its line break, or `None` at the end of input. May be dropped and called again.
    pub(super) async fn next_line(&mut self) -> std::io::Result<Option<String>> {
        self.reader.read_until(b'\n', &mut self.partial_line).await?;
        let line = std::mem::take(&mut self.partial_line);
        Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
    }

    /// Waits until something can be read, and returns it without taking it. Empty at the end of input.
    pub(super) async fn peek(&mut self) -> std::io::Result<&[u8]> {
        self.reader.fill_buf().await
    }

    /// Drops what can be read now, and what was read of the next line.
    pub(super) fn discard(&mut self) {
        self.partial_line.clear();
        self.reader.consume(self.reader.buffer().len());
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
