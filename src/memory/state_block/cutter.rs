//! Cuts the state block and cue tags out of a streamed reply before anybody sees a byte of them.
//!
//! One pass, character by character: what has been shown depends on the characters alone and never
//! on how they were split into deltas.

/// Longest block kept, in bytes: beyond what [`super::parse`] reads, so that it reports the excess.
const MAX_BLOCK_BYTES: usize = super::MAX_BLOCK_BYTES + 1;
/// The word after the fence.
const TAG: [char; 5] = ['s', 't', 'a', 't', 'e'];

/// Cuts a reply as it streams.
///
/// A state block is a fence (three or more `` ` `` or `~`) followed by `state` in any case, up to the
/// same fence or the end of the reply. White space in front of what is cut goes with it.
#[derive(Debug)]
pub struct StreamCutter {
    /// Lower-case tag and the name to report.
    cues: Vec<(String, String)>,
    at: Place,
    /// White space that is shown only if something visible follows.
    space: String,
    /// What may turn out to be a fence or a cue, exactly as it came.
    held: String,
    anything_shown: bool,
    /// The last thing that was not white space has been cut.
    after_cut: bool,
    found: Vec<String>,
    found_at: Vec<usize>,
    /// Visible characters of the deltas before this one.
    shown_before: usize,
    block: Option<String>,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
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
    /// More marks than the block's end needed.
    Closed {
        mark: char,
    },
}

/// What is left when a reply has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// Text that was held back and turned out to be harmless.
    pub visible_tail: String,
    /// The inside of the (last) state block, if there was one.
    pub state_block: Option<String>,
    /// Whether that block was closed; an open one was cut off by the model's limit or an interrupt.
    pub closed: bool,
    /// Cue tags in the order they came, as the persona spells them.
    pub cues: Vec<String>,
    /// Of each cue, how many visible characters came before it.
    pub cues_at: Vec<usize>,
}

impl StreamCutter {
    /// A cutter that knows these cue tags (`smile` for `<smile>`). Tags that are empty or contain
    /// a character of the markup itself are not cut.
    #[must_use]
    pub fn new(cues: &[String]) -> Self {
        let cues = cues
            .iter()
            .map(|cue| (cue.trim().to_lowercase(), cue.trim().to_owned()))
            .filter(|(tag, _)| !tag.is_empty() && !tag.contains(['<', '>', '/', '`', '~', '\n']))
            .collect();
        Self {
            cues,
            at: Place::Text,
            space: String::new(),
            held: String::new(),
            anything_shown: false,
            after_cut: false,
            found: Vec::new(),
            found_at: Vec::new(),
            shown_before: 0,
            block: None,
            closed: false,
        }
    }

    /// Takes a delta and returns what may be shown now.
    pub fn push(&mut self, delta: &str) -> String {
        let mut shown = String::with_capacity(delta.len() + self.space.len());
        for c in delta.chars() {
            self.take(c, &mut shown);
        }
        self.shown_before += shown.chars().count();
        shown
    }

    /// Ends the reply.
    #[must_use]
    pub fn finish(mut self) -> Ended {
        let mut tail = String::new();
        match self.at {
            Place::Tag { mark, run, letters } if letters == TAG.len() => self.open(mark, run),
            Place::Fence { .. } | Place::Tag { .. } | Place::Cue => self.release(&mut tail),
            Place::Text | Place::Block { .. } | Place::Closed { .. } => {}
        }
        if !self.after_cut {
            tail.push_str(&self.space);
        }
        Ended {
            visible_tail: tail,
            state_block: self.block,
            closed: self.closed,
            cues: self.found,
            cues_at: self.found_at,
        }
    }

    fn take(&mut self, c: char, shown: &mut String) {
        match self.at {
            Place::Text => self.text(c, shown),
            Place::Fence { mark, run } => {
                if c == mark {
                    self.held.push(c);
                    self.at = Place::Fence { mark, run: run + 1 };
                } else if run >= 3 {
                    self.at = Place::Tag { mark, run, letters: 0 };
                    self.take(c, shown);
                } else {
                    self.release(shown);
                    self.text(c, shown);
                }
            }
            Place::Tag { mark, run, letters } => {
                if letters == 0 && (c == ' ' || c == '\t') {
                    self.held.push(c);
                } else if letters < TAG.len() && c.eq_ignore_ascii_case(&TAG[letters]) {
                    self.held.push(c);
                    self.at = Place::Tag {
                        mark,
                        run,
                        letters: letters + 1,
                    };
                } else if letters == TAG.len() && !(c.is_alphanumeric() || c == '_' || c == '-') {
                    self.open(mark, run);
                    self.take(c, shown);
                } else {
                    self.release(shown);
                    self.text(c, shown);
                }
            }
            Place::Cue => self.cue(c, shown),
            Place::Block { mark, run, closing } => self.inside(c, mark, run, closing),
            Place::Closed { mark } => {
                if c != mark {
                    self.at = Place::Text;
                    self.text(c, shown);
                }
            }
        }
    }

    fn text(&mut self, c: char, shown: &mut String) {
        if c.is_whitespace() {
            // What stood around something that was cut would otherwise add up to two blanks.
            if !(self.after_cut && (!self.space.is_empty() || !self.anything_shown)) {
                self.space.push(c);
            }
            return;
        }
        match c {
            '`' | '~' => {
                self.held.push(c);
                self.at = Place::Fence { mark: c, run: 1 };
            }
            '<' if !self.cues.is_empty() => {
                self.held.push(c);
                self.at = Place::Cue;
            }
            _ => {
                self.show(shown);
                shown.push(c);
            }
        }
    }

    fn cue(&mut self, c: char, shown: &mut String) {
        // `held` is `<` and the tag so far.
        if c == '>' {
            let tag = self.held[1..].trim_end_matches('/').trim_end().to_lowercase();
            if let Some((_, name)) = self.cues.iter().find(|(known, _)| *known == tag) {
                self.found.push(name.clone());
                self.found_at.push(self.shown_before + shown.chars().count());
                self.held.clear();
                self.after_cut = true;
                self.at = Place::Text;
                return;
            }
        } else if !self.held.ends_with('/') {
            let mut tag = self.held[1..].to_lowercase();
            tag.extend(c.to_lowercase());
            let whole = tag.trim_end_matches('/').trim_end();
            // `<smile` goes on; so do `<smile ` and `<smile/`, up to a few blanks.
            let goes_on = self.cues.iter().any(|(known, _)| known.starts_with(tag.as_str()))
                || ((c == ' ' || c == '/')
                    && tag.len() <= whole.len() + 2
                    && self.cues.iter().any(|(known, _)| known == whole));
            if goes_on {
                self.held.push(c);
                return;
            }
        }
        self.release(shown);
        self.text(c, shown);
    }

    fn inside(&mut self, c: char, mark: char, run: usize, closing: usize) {
        if c == mark {
            if closing + 1 == run {
                self.closed = true;
                self.at = Place::Closed { mark };
            } else {
                self.at = Place::Block {
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
        self.at = Place::Block { mark, run, closing: 0 };
    }

    /// A block begins: the fence held so far is never shown.
    fn open(&mut self, mark: char, run: usize) {
        self.held.clear();
        self.block = Some(String::new());
        self.closed = false;
        self.after_cut = true;
        self.at = Place::Block { mark, run, closing: 0 };
    }

    /// What was held is text after all.
    fn release(&mut self, shown: &mut String) {
        self.show(shown);
        shown.push_str(&self.held);
        self.held.clear();
        self.at = Place::Text;
    }

    /// Something visible follows: so does the white space before it.
    fn show(&mut self, shown: &mut String) {
        shown.push_str(&self.space);
        self.space.clear();
        self.anything_shown = true;
        self.after_cut = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cues() -> Vec<String> {
        ["smile", "sigh", "Small Bow", "미소"].map(str::to_owned).to_vec()
    }

    fn cut(deltas: &[&str]) -> (String, Ended) {
        let mut cutter = StreamCutter::new(&cues());
        let mut visible: String = deltas.iter().map(|delta| cutter.push(delta)).collect();
        let ended = cutter.finish();
        visible.push_str(&ended.visible_tail);
        (visible, ended)
    }

    #[test]
    fn a_block_is_cut_in_all_its_spellings() {
        for fence in [
            "```state\nmood: calm\n```",
            "```State\nmood: calm\n```\n",
            "``` state \nmood: calm\n```  \n\n",
            "````state\nmood: calm\n````",
            "~~~state\nmood: calm\n~~~",
            "```STATE mood: calm```",
            "```state\nmood: calm",
            "```state\nmood: calm\n``",
            "```state\nmood: calm\n``````",
        ] {
            let (visible, ended) = cut(&["Well met.\n\n", fence]);
            assert_eq!(visible, "Well met.", "{fence:?}");
            assert_eq!(
                ended.state_block.as_deref().map(str::trim),
                Some("mood: calm"),
                "{fence:?}"
            );
        }
    }

    #[test]
    fn an_open_block_says_so() {
        assert!(!cut(&["A ```state\nmood: calm"]).1.closed);
        assert!(cut(&["A ```state\nmood: calm\n```"]).1.closed);
    }

    #[test]
    fn only_the_fence_of_a_reply_that_was_cut_short() {
        let (visible, ended) = cut(&["그래.\n```state"]);
        assert_eq!((visible.as_str(), ended.state_block.as_deref()), ("그래.", Some("")));
    }

    #[test]
    fn what_only_looks_like_a_fence_comes_through_unchanged() {
        for text in [
            "```rust\nfn main() {}\n```",
            "```statement\nx\n```",
            "```state_of_mind",
            "안녕~~ 반가워~~~ 또 보자~",
            "a ``code`` b",
            "trailing ```sta",
            "end ``` ",
            "state: calm",
            "1 < 2 and <b>bold</b> <smi",
            "<unknown> <smiley> < smile>",
            "  leading and trailing \n",
            "",
        ] {
            let (visible, ended) = cut(&[text]);
            assert_eq!(visible, text);
            assert_eq!(
                ended,
                Ended {
                    visible_tail: ended.visible_tail.clone(),
                    ..Ended::default()
                },
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_false_fence_may_hide_a_true_one() {
        let (visible, ended) = cut(&["x ```st```state\nmood: calm\n```"]);
        assert_eq!(visible, "x ```st");
        assert_eq!(ended.state_block.as_deref(), Some("\nmood: calm\n"));
    }

    #[test]
    fn text_after_a_block_is_shown_and_the_last_block_counts() {
        let (visible, ended) = cut(&["One.\n```state\nmood: a\n```\nTwo.\n```state\nmood: b\n```\n"]);
        assert_eq!(visible, "One.\nTwo.");
        assert_eq!(ended.state_block.as_deref(), Some("\nmood: b\n"));
    }

    #[test]
    fn cues_are_cut_and_reported() {
        let (visible, ended) = cut(&["<smile> Hello <SIGH/>there. <small bow>"]);
        assert_eq!(visible, "Hello there.");
        assert_eq!(ended.cues, ["smile", "sigh", "Small Bow"]);
        assert_eq!(ended.cues_at, [0, 5, 12]);
        let (visible, ended) = cut(&["어서 와. <미소> 잘 지냈어?"]);
        assert_eq!(
            (visible.as_str(), ended.cues),
            ("어서 와. 잘 지냈어?", vec!["미소".to_owned()])
        );
    }

    #[test]
    fn without_cues_tags_are_text() {
        let mut cutter = StreamCutter::new(&[]);
        assert_eq!(cutter.push("<smile> hi"), "<smile> hi");
        assert_eq!(cutter.finish(), Ended::default());
    }

    #[test]
    fn nothing_is_held_longer_than_needed() {
        let mut cutter = StreamCutter::new(&cues());
        assert_eq!(cutter.push("Hi"), "Hi");
        assert_eq!(cutter.push(" "), "");
        assert_eq!(cutter.push("``"), "");
        assert_eq!(cutter.push("x"), " ``x");
        assert_eq!(cutter.push("<sm"), "");
        assert_eq!(cutter.push("o"), "<smo");
        assert_eq!(cutter.push("```s"), "");
        assert_eq!(cutter.push("e"), "```se");
    }

    #[test]
    fn an_endless_block_is_bounded() {
        let mut cutter = StreamCutter::new(&[]);
        assert_eq!(cutter.push("```state\n"), "");
        for _ in 0..1_000 {
            assert_eq!(cutter.push(&"note: 가나다\n".repeat(100)), "");
        }
        let kept = cutter.finish().state_block.unwrap_or_default().len();
        assert!(kept <= MAX_BLOCK_BYTES + 4, "{kept}");
    }

    /// Texts made of the pieces that matter, so that fences and cues really occur.
    fn texts() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[a-z가-힣 .\n]{0,6}".prop_map(String::from),
            2 => prop::sample::select(vec![
                "```state", "```", "~~~state", "~~~", "``", "`", "~", "````", "``` State\n", "\nmood: calm\n", "<smile>", "<smi", "<",
                ">", "/", "<sigh />", "state", "st", "<미소>", "<Small Bow>", " ", "\n\n", "é", "🙂",
            ]).prop_map(str::to_owned),
        ];
        prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_split_makes_no_difference(text in texts(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
            let whole = cut(&[&text]);
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let by_char: Vec<&str> = chars.iter().map(String::as_str).collect();
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
            ends.sort_unstable();
            ends.push(chars.len());
            let mut from = 0;
            let deltas: Vec<String> = ends.into_iter().map(|end| { let delta = chars[from..end].concat(); from = end; delta }).collect();
            let deltas: Vec<&str> = deltas.iter().map(String::as_str).collect();
            for other in [cut(&by_char), cut(&deltas)] {
                prop_assert_eq!(&other.0, &whole.0);
                prop_assert_eq!(&other.1.state_block, &whole.1.state_block);
                prop_assert_eq!(other.1.closed, whole.1.closed);
                prop_assert_eq!(&other.1.cues, &whole.1.cues);
            }
        }

        #[test]
        fn no_block_is_ever_visible(text in texts()) {
            // Without cues, which could bring a broken fence together: that is no block either.
            let mut cutter = StreamCutter::new(&[]);
            let mut visible = cutter.push(&text).to_lowercase();
            let ended = cutter.finish();
            visible.push_str(&ended.visible_tail.to_lowercase());
            for mark in ["```state\n", "~~~state\n", "``` state\n"] {
                prop_assert!(!visible.contains(mark), "{visible:?}");
                prop_assert!(!text.to_lowercase().contains(mark) || ended.state_block.is_some());
            }
        }

        #[test]
        fn text_without_marks_is_untouched(text in "[^`~<]{0,200}") {
            prop_assert_eq!(cut(&[&text]).0, text);
        }
    }
}
