//! What the terminal shows: colours and a sign of a thinking model on a terminal, and plain text in a pipe.

use std::io::{self, IsTerminal, Stdout, Write};

use anstream::AutoStream;
use clap::builder::styling::{AnsiColor, Style};

const PLAYER: Style = AnsiColor::Green.on_default().bold();
const NPCS: [Style; 4] = [
    AnsiColor::Cyan.on_default().bold(),
    AnsiColor::Magenta.on_default().bold(),
    AnsiColor::Yellow.on_default().bold(),
    AnsiColor::Blue.on_default().bold(),
];
const NOTE: Style = Style::new().dimmed();
const FAULT: Style = AnsiColor::Red.on_default();

/// What the line of the cursor holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cursor {
    LineStart,
    /// A sign of this many characters, which the next output replaces.
    Sign(usize),
    Text,
}

pub(super) struct Screen {
    /// Removes colours, unless the output is a terminal and `NO_COLOR` is unset.
    out: AutoStream<Stdout>,
    terminal: bool,
    cursor: Cursor,
}

impl Screen {
    pub(super) fn on_stdout() -> Self {
        let terminal = io::stdout().is_terminal();
        Self {
            out: if terminal {
                anstream::stdout()
            } else {
                AutoStream::never(io::stdout())
            },
            terminal,
            cursor: Cursor::LineStart,
        }
    }

    /// Asks for a line.
    pub(super) fn show_prompt(&mut self) -> io::Result<()> {
        self.start_line()?;
        write!(self.out, "{PLAYER}you>{PLAYER:#} ")?;
        self.cursor = Cursor::Text;
        self.out.flush()
    }

    /// Shows a line that did not come from a keyboard.
    pub(super) fn show_player_line(&mut self, line: &str) -> io::Result<()> {
        self.show_prompt()?;
        self.write_text(line)?;
        self.end_line()
    }

    /// The player's terminal has shown the end of the line.
    pub(super) fn on_line_typed(&mut self) {
        self.cursor = Cursor::LineStart;
    }

    /// Shows a piece of an NPC's line, with the NPC's name where a line of the screen begins. The colour is that of the
    /// NPC's place in `npcs`.
    pub(super) fn show_npc_text(&mut self, npc: &str, npcs: &[String], text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.clear_sign()?;
        if self.cursor == Cursor::LineStart {
            let place = npcs.iter().position(|name| name == npc).unwrap_or_default();
            let style = NPCS[place % NPCS.len()];
            write!(self.out, "{style}{npc}>{style:#} ")?;
        }
        self.write_text(text)
    }

    /// Ends an NPC's line that goes on unheard.
    pub(super) fn break_npc_line(&mut self) -> io::Result<()> {
        if self.cursor == Cursor::Text {
            self.write_text("—")?;
        }
        self.end_line()
    }

    /// Shows, on a terminal, that a model thinks.
    pub(super) fn show_sign(&mut self, sign: &str) -> io::Result<()> {
        if !self.terminal || self.cursor != Cursor::LineStart {
            return Ok(());
        }
        write!(self.out, "{NOTE}{sign}{NOTE:#}")?;
        self.cursor = Cursor::Sign(sign.chars().count());
        self.out.flush()
    }

    pub(super) fn write_text(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.clear_sign()?;
        write!(self.out, "{text}")?;
        self.cursor = Cursor::Text;
        self.out.flush()
    }

    /// Ends the line of the cursor, if it has text.
    pub(super) fn end_line(&mut self) -> io::Result<()> {
        self.start_line()?;
        self.out.flush()
    }

    /// Shows a remark of the program.
    pub(super) fn show_note(&mut self, text: &str) -> io::Result<()> {
        self.show_styled(NOTE, &format!("({text})"))
    }

    /// Shows that something failed.
    pub(super) fn show_fault(&mut self, text: &str) -> io::Result<()> {
        self.show_styled(FAULT, &format!("({text})"))
    }

    /// Shows a text that the player asked for.
    pub(super) fn show_answer(&mut self, text: &str) -> io::Result<()> {
        self.show_styled(Style::new(), text.trim_end())
    }

    fn show_styled(&mut self, style: Style, text: &str) -> io::Result<()> {
        self.start_line()?;
        writeln!(self.out, "{style}{text}{style:#}")?;
        self.out.flush()
    }

    fn start_line(&mut self) -> io::Result<()> {
        self.clear_sign()?;
        if self.cursor == Cursor::Text {
            writeln!(self.out)?;
        }
        self.cursor = Cursor::LineStart;
        Ok(())
    }

    /// Overwrites the sign with spaces, which needs no escape code.
    fn clear_sign(&mut self) -> io::Result<()> {
        if let Cursor::Sign(width) = self.cursor {
            write!(self.out, "\r{:width$}\r", "")?;
            self.cursor = Cursor::LineStart;
        }
        Ok(())
    }
}
