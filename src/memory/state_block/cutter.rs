//! Cuts the state block and cue tags out of a streamed reply before anybody sees a byte of them.

/// Cuts a reply as it streams.
#[derive(Debug)]
pub struct StreamCutter {
    cues: Vec<String>,
    held: String,
}

/// What is left when a reply has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// Text that was held back and turned out to be harmless.
    pub visible_tail: String,
    /// The inside of the state block, if there was one (closed or not).
    pub state_block: Option<String>,
    /// Cue tags in the order they came.
    pub cues: Vec<String>,
}

impl StreamCutter {
    /// A cutter that knows these cue tags (`smile` for `<smile>`).
    #[must_use]
    pub fn new(cues: &[String]) -> Self {
        Self {
            cues: cues.to_vec(),
            held: String::new(),
        }
    }

    /// Takes a delta and returns what may be shown now.
    pub fn push(&mut self, delta: &str) -> String {
        self.held.push_str(delta);
        String::new()
    }

    /// Ends the reply.
    #[must_use]
    pub fn finish(self) -> Ended {
        let mut text = self.held;
        let mut cues = Vec::new();
        for cue in &self.cues {
            let tag = format!("<{cue}>");
            while let Some(at) = text.find(&tag) {
                text.replace_range(at..at + tag.len(), "");
                cues.push(cue.clone());
            }
        }
        match text.split_once("```state") {
            Some((visible, block)) => Ended {
                visible_tail: visible.trim_end().to_owned(),
                state_block: Some(block.trim().trim_end_matches("```").to_owned()),
                cues,
            },
            None => Ended {
                visible_tail: text,
                state_block: None,
                cues,
            },
        }
    }
}
