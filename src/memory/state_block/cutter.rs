//! Cuts the state block and cue tags out of a streamed reply before a byte of them is shown.
//!
//! One pass, character by character: the shown text depends only on the characters, never on the boundaries of the
//! deltas.

/// Longest stored block, in bytes. The limit is above the limit of [`super::parse_closed`], so that the reader reports
/// the excess.
const MAX_BLOCK_BYTES: usize = super::MAX_BLOCK_BYTES + 1;
/// The word after the fence.
const STATE_TAG: [char; 5] = ['s', 't', 'a', 't', 'e'];

/// Cuts a reply while it streams.
///
/// A state block is a fence (three or more `` ` `` or `~`) followed by `state` in any case. The block ends at the same
/// fence or at the end of the reply. White space before a cut part is cut too. The shown text never contains a state
/// block: where a cut would join two halves of a mark, a line break separates them.
#[derive(Debug)]
pub struct StreamCutter {
    /// Lower-case tag and the name to report.
    cues: Vec<(String, String)>,
    state: CutterState,
    /// White space, shown only before further visible text.
    space: String,
    /// The unchanged text of a possible fence or cue.
    held_text: String,
    anything_shown: bool,
    /// The beginning of a block at the end of the shown text.
    seam: FenceSeam,
    /// True if the last part, apart from white space, was cut.
    after_cut: bool,
    cue_names: Vec<String>,
    cue_positions: Vec<usize>,
    /// Visible characters of the earlier deltas.
    shown_before: usize,
    block: Option<String>,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CutterState {
    Text,
    /// In a run of fence marks.
    Fence {
        mark: char,
        run: usize,
    },
    /// After a fence of three or more: blanks, then the letters of the tag.
    Tag {
        mark: char,
        run: usize,
        letters: usize,
    },
    /// Inside `<…`, which is still the beginning of a known cue.
    Cue,
    /// Inside the block; `closing` counts the marks of a possible end.
    Block {
        mark: char,
        run: usize,
        closing: usize,
    },
    /// More marks than the end of the block needed.
    Closed {
        mark: char,
    },
}

/// The beginning of a block at the end of a text: the run of marks, and the letters of the tag after the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FenceSeam {
    mark: char,
    run: usize,
    letters: usize,
}

impl FenceSeam {
    /// Adds one character. `None`: the character does not continue the beginning.
    fn with_char(self, c: char) -> Option<Self> {
        let Self { mark, run, letters } = self;
        let is_fence = run > 0 && letters == 0;
        if is_fence && c == mark {
            Some(Self { run: run + 1, ..self })
        } else if run < 3 {
            None
        } else if letters == 0 && matches!(c, ' ' | '\t') {
            Some(self)
        } else if letters < STATE_TAG.len() && c.eq_ignore_ascii_case(&STATE_TAG[letters]) {
            Some(Self {
                letters: letters + 1,
                ..self
            })
        } else {
            None
        }
    }

    fn with_text(self, text: &str) -> Self {
        text.chars().fold(self, |seam, c| {
            seam.with_char(c).unwrap_or(if matches!(c, '`' | '~') {
                Self {
                    mark: c,
                    run: 1,
                    letters: 0,
                }
            } else {
                Self::default()
            })
        })
    }
}

/// The remains of a reply at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CutReply {
    /// Text that was held back and proved harmless.
    pub visible_tail: String,
    /// The inside of the last state block, if any.
    pub state_block: Option<String>,
    /// True if the block was closed. The model's limit or an interrupt cut off an open block.
    pub closed: bool,
    /// Cue tags in order, in the persona's spelling.
    pub cues: Vec<String>,
    /// For each cue, the number of visible characters before it.
    pub cues_at: Vec<usize>,
}

impl StreamCutter {
    /// Creates a cutter for these cue tags (`smile` for `<smile>`). Tags that are empty or contain markup characters
    /// are not cut.
    #[must_use]
    pub fn new(cues: &[String]) -> Self {
        let cues = cues
            .iter()
            .map(|cue| (cue.trim().to_lowercase(), cue.trim().to_owned()))
            .filter(|(tag, _)| !tag.is_empty() && !tag.contains(['<', '>', '/', '`', '~', '\n']))
            .collect();
        Self {
            cues,
            state: CutterState::Text,
            space: String::new(),
            held_text: String::new(),
            anything_shown: false,
            seam: FenceSeam::default(),
            after_cut: false,
            cue_names: Vec::new(),
            cue_positions: Vec::new(),
            shown_before: 0,
            block: None,
            closed: false,
        }
    }

    /// Takes a delta and returns the text to show now.
    pub fn push(&mut self, delta: &str) -> String {
        let mut reply_text = String::with_capacity(delta.len() + self.space.len());
        for c in delta.chars() {
            self.take_char(c, &mut reply_text);
        }
        debug_assert!(
            self.held_text.is_empty()
                || matches!(
                    self.state,
                    CutterState::Fence { .. } | CutterState::Tag { .. } | CutterState::Cue
                ),
            "text is held back only where a mark may begin"
        );
        self.shown_before += reply_text.chars().count();
        reply_text
    }

    /// Ends the reply.
    #[must_use]
    pub fn finish_reply(mut self) -> CutReply {
        let mut tail = String::new();
        match self.state {
            CutterState::Tag { mark, run, letters } if letters == STATE_TAG.len() => self.open_block(mark, run),
            CutterState::Fence { .. } | CutterState::Tag { .. } | CutterState::Cue => self.release_held(&mut tail),
            CutterState::Text | CutterState::Block { .. } | CutterState::Closed { .. } => {}
        }
        if !self.after_cut {
            tail.push_str(&self.space);
        }
        debug_assert!(
            self.cue_names.len() == self.cue_positions.len(),
            "each cue has a position"
        );
        debug_assert!(self.cue_positions.is_sorted(), "cues are in the order of the text");
        debug_assert!(!self.closed || self.block.is_some(), "only a block can be closed");
        CutReply {
            visible_tail: tail,
            state_block: self.block,
            closed: self.closed,
            cues: self.cue_names,
            cues_at: self.cue_positions,
        }
    }

    fn take_char(&mut self, c: char, reply_text: &mut String) {
        match self.state {
            CutterState::Text => self.take_text_char(c, reply_text),
            CutterState::Fence { mark, run } => {
                if c == mark {
                    self.held_text.push(c);
                    self.state = CutterState::Fence { mark, run: run + 1 };
                } else if run >= 3 {
                    self.state = CutterState::Tag { mark, run, letters: 0 };
                    self.take_char(c, reply_text);
                } else {
                    self.release_held(reply_text);
                    self.take_text_char(c, reply_text);
                }
            }
            CutterState::Tag { mark, run, letters } => {
                if letters == 0 && (c == ' ' || c == '\t') {
                    self.held_text.push(c);
                } else if letters < STATE_TAG.len() && c.eq_ignore_ascii_case(&STATE_TAG[letters]) {
                    self.held_text.push(c);
                    self.state = CutterState::Tag {
                        mark,
                        run,
                        letters: letters + 1,
                    };
                } else if letters == STATE_TAG.len() && !(c.is_alphanumeric() || c == '_' || c == '-') {
                    self.open_block(mark, run);
                    self.take_char(c, reply_text);
                } else {
                    self.release_held(reply_text);
                    self.take_text_char(c, reply_text);
                }
            }
            CutterState::Cue => self.take_cue_char(c, reply_text),
            CutterState::Block { mark, run, closing } => self.take_block_char(c, mark, run, closing),
            CutterState::Closed { mark } => {
                if c != mark {
                    self.state = CutterState::Text;
                    self.take_text_char(c, reply_text);
                }
            }
        }
    }

    fn take_text_char(&mut self, c: char, reply_text: &mut String) {
        if c.is_whitespace() {
            // White space on both sides of a cut part would otherwise become two blanks.
            if !(self.after_cut && (!self.space.is_empty() || !self.anything_shown)) {
                self.space.push(c);
            }
            return;
        }
        match c {
            '`' | '~' => {
                self.held_text.push(c);
                self.state = CutterState::Fence { mark: c, run: 1 };
            }
            '<' if !self.cues.is_empty() => {
                self.held_text.push(c);
                self.state = CutterState::Cue;
            }
            _ => {
                let mut utf8 = [0; 4];
                self.show_text(c.encode_utf8(&mut utf8), reply_text);
            }
        }
    }

    fn take_cue_char(&mut self, c: char, reply_text: &mut String) {
        // `held_text` is `<` and the tag so far.
        if c == '>' {
            let tag = self.held_text[1..].trim_end_matches('/').trim_end().to_lowercase();
            if let Some((_, name)) = self.cues.iter().find(|(cue, _)| *cue == tag) {
                self.cue_names.push(name.clone());
                self.cue_positions.push(self.shown_before + reply_text.chars().count());
                self.held_text.clear();
                self.after_cut = true;
                self.state = CutterState::Text;
                return;
            }
        } else if !self.held_text.ends_with('/') {
            let mut tag = self.held_text[1..].to_lowercase();
            tag.extend(c.to_lowercase());
            let complete_tag = tag.trim_end_matches('/').trim_end();
            // `<smile` continues; so do `<smile ` and `<smile/`, with up to two extra characters.
            let goes_on = self.cues.iter().any(|(cue, _)| cue.starts_with(tag.as_str()))
                || ((c == ' ' || c == '/')
                    && tag.len() <= complete_tag.len() + 2
                    && self.cues.iter().any(|(cue, _)| cue == complete_tag));
            if goes_on {
                self.held_text.push(c);
                return;
            }
        }
        self.release_held(reply_text);
        self.take_text_char(c, reply_text);
    }

    fn take_block_char(&mut self, c: char, mark: char, run: usize, closing: usize) {
        if c == mark {
            if closing + 1 == run {
                self.closed = true;
                self.state = CutterState::Closed { mark };
            } else {
                self.state = CutterState::Block {
                    mark,
                    run,
                    closing: closing + 1,
                };
            }
            return;
        }
        let block = self.block.get_or_insert_default();
        if block.len() < MAX_BLOCK_BYTES {
            block.extend(std::iter::repeat_n(mark, closing));
            block.push(c);
        }
        self.state = CutterState::Block { mark, run, closing: 0 };
    }

    /// Begins a block: the fence in `held_text` is never shown.
    fn open_block(&mut self, mark: char, run: usize) {
        self.held_text.clear();
        self.block = Some(String::new());
        self.closed = false;
        self.after_cut = true;
        self.state = CutterState::Block { mark, run, closing: 0 };
    }

    /// Shows the held text, which proved to be ordinary text.
    fn release_held(&mut self, reply_text: &mut String) {
        let held_text = std::mem::take(&mut self.held_text);
        self.show_text(&held_text, reply_text);
        self.held_text = held_text;
        self.held_text.clear();
        self.state = CutterState::Text;
    }

    /// Shows visible text, and the white space before it.
    fn show_text(&mut self, text: &str, reply_text: &mut String) {
        if self.after_cut && self.joins_seam(text) {
            self.space.clear();
            self.space.push('\n');
        }
        self.seam = self.seam.with_text(&self.space).with_text(text);
        reply_text.push_str(&self.space);
        reply_text.push_str(text);
        self.space.clear();
        self.anything_shown = true;
        self.after_cut = false;
    }

    /// True if `text` would continue a mark that begins before the cut part.
    fn joins_seam(&self, text: &str) -> bool {
        let first = text.chars().next();
        let blanks = self.space.chars().try_fold(self.seam, FenceSeam::with_char);
        first.is_some_and(|first| blanks.and_then(|seam| seam.with_char(first)).is_some())
    }
}

#[cfg(test)]
mod tests;
