//! Thoughts of reasoning models in the text of an answer: found between tags, and cut before anybody sees them.
//!
//! The text is read character by character, so the visible text never depends on the boundaries of the pieces. A model
//! whose chat template opens the thought in the prompt writes the closing tag alone. A stream of such a model cannot be
//! cut in time, unless the model is known for that: [`PrefilledModels`] remembers these models.

use std::collections::HashSet;

use parking_lot::Mutex;

/// The tags around a thought, in lower case. Only the first character of a tag is an opening bracket.
const TAGS: [(&str, &str); 2] = [("<think>", "</think>"), ("[think]", "[/think]")];
/// The most models that are remembered.
const MAX_MODELS: usize = 256;

/// Cuts thoughts out of an answer.
#[derive(Debug)]
pub(super) struct ThoughtCutter {
    state: CutterState,
    /// A possible tag.
    held_text: String,
    /// The text of an answer that may be a thought as a whole.
    withheld: String,
    /// White space at the beginning, shown only before further text.
    lead: String,
    has_thought: bool,
    last_shown: Option<char>,
    /// True if a thought ended after the last shown character.
    after_cut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CutterState {
    Text,
    /// Before the closing tag of a thought that the prompt has opened.
    Prefilled,
    /// Inside a thought, until this closing tag.
    Thought(&'static str),
}

/// The meaning of a tag at its place.
enum TagFound {
    Opening(&'static str),
    Closing,
}

impl ThoughtCutter {
    /// `prefilled`: the prompt has opened the thought, so the answer has only the closing tag.
    pub(super) fn new(prefilled: bool) -> Self {
        Self {
            state: if prefilled {
                CutterState::Prefilled
            } else {
                CutterState::Text
            },
            held_text: String::new(),
            withheld: String::new(),
            lead: String::new(),
            has_thought: false,
            last_shown: None,
            after_cut: false,
        }
    }

    /// Takes the next piece of an answer, and returns the text to show. `Err`: the text shown so far was a thought,
    /// because a closing tag without an opening tag ends it here.
    pub(super) fn push(&mut self, piece: &str) -> Result<String, LoneClosingTag> {
        let mut visible = String::with_capacity(piece.len());
        for c in piece.chars() {
            if self.take_char(c, &mut visible) && self.last_shown.is_some() {
                return Err(LoneClosingTag);
            }
        }
        Ok(visible)
    }

    /// Ends the answer, and returns its last text. `at_cap`: the answer ended at its cap, so text before a missing
    /// closing tag is a thought.
    pub(super) fn finish(mut self, at_cap: bool) -> FinishedAnswer {
        let mut tail = String::new();
        let held_text = std::mem::take(&mut self.held_text);
        match self.state {
            CutterState::Text => {
                self.show_text(&held_text, &mut tail);
                tail.push_str(&self.lead);
            }
            CutterState::Prefilled if at_cap => self.has_thought = true,
            CutterState::Prefilled => {
                let text = std::mem::take(&mut self.withheld) + &held_text;
                self.show_text(&text, &mut tail);
                return FinishedAnswer {
                    tail,
                    has_thought: false,
                    without_closing_tag: true,
                };
            }
            CutterState::Thought(_) => {}
        }
        FinishedAnswer {
            tail,
            has_thought: self.has_thought,
            without_closing_tag: false,
        }
    }

    /// True if a thought was cut.
    pub(super) const fn has_thought(&self) -> bool {
        self.has_thought
    }

    /// Returns true for the end of a closing tag without an opening tag.
    fn take_char(&mut self, c: char, visible: &mut String) -> bool {
        self.held_text.push(c);
        let possible_tag = self.held_text.to_ascii_lowercase();
        match self.find_tag(&possible_tag) {
            Some(tag) => {
                self.held_text.clear();
                self.on_tag(&tag, visible)
            }
            None if self.begins_tag(&possible_tag) => false,
            None => {
                self.held_text.pop();
                let before = std::mem::take(&mut self.held_text);
                self.take_text(&before, visible);
                // The character may begin a tag of its own.
                let mut utf8 = [0; 4];
                let text: &str = c.encode_utf8(&mut utf8);
                if self.begins_tag(text) {
                    self.held_text.push(c);
                } else {
                    self.take_text(text, visible);
                }
                false
            }
        }
    }

    fn find_tag(&self, text: &str) -> Option<TagFound> {
        match self.state {
            CutterState::Thought(closing) => (text == closing).then_some(TagFound::Closing),
            CutterState::Text | CutterState::Prefilled => TAGS.into_iter().find_map(|(opening, closing)| match text {
                _ if text == opening => Some(TagFound::Opening(closing)),
                _ if text == closing => Some(TagFound::Closing),
                _ => None,
            }),
        }
    }

    fn begins_tag(&self, text: &str) -> bool {
        match self.state {
            CutterState::Thought(closing) => closing.starts_with(text),
            CutterState::Text | CutterState::Prefilled => TAGS
                .into_iter()
                .any(|(opening, closing)| opening.starts_with(text) || closing.starts_with(text)),
        }
    }

    fn on_tag(&mut self, tag: &TagFound, visible: &mut String) -> bool {
        let before = self.state;
        self.has_thought = true;
        match tag {
            TagFound::Opening(closing) => {
                let withheld = std::mem::take(&mut self.withheld);
                self.show_text(&withheld, visible);
                self.state = CutterState::Thought(closing);
            }
            TagFound::Closing => {
                self.withheld.clear();
                self.state = CutterState::Text;
            }
        }
        self.after_cut = true;
        self.lead.clear();
        before == CutterState::Text && self.state == CutterState::Text
    }

    fn take_text(&mut self, text: &str, visible: &mut String) {
        match self.state {
            CutterState::Text => self.show_text(text, visible),
            CutterState::Prefilled => self.withheld.push_str(text),
            CutterState::Thought(_) => {}
        }
    }

    /// Shows text. After a thought, white space is dropped that would begin the text or follow other white space. Where a
    /// thought would join two words, a blank separates them.
    fn show_text(&mut self, text: &str, visible: &mut String) {
        for c in text.chars() {
            if self.after_cut {
                if c.is_whitespace() && self.last_shown.is_none_or(char::is_whitespace) {
                    continue;
                }
                if !c.is_whitespace() && self.last_shown.is_some_and(|last| !last.is_whitespace()) {
                    visible.push(' ');
                }
                self.after_cut = false;
            }
            if self.last_shown.is_none() && c.is_whitespace() {
                self.lead.push(c);
                continue;
            }
            visible.push_str(&std::mem::take(&mut self.lead));
            visible.push(c);
            self.last_shown = Some(c);
        }
    }
}

/// A closing tag ended a thought that had been taken for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoneClosingTag;

/// The end of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FinishedAnswer {
    /// Text that was held back, and is no thought.
    pub tail: String,
    pub has_thought: bool,
    /// True if the closing tag was expected and did not come, so the answer has no thought.
    pub without_closing_tag: bool,
}

/// A whole answer without its thoughts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpokenAnswer {
    pub text: String,
    pub has_thought: bool,
    pub has_lone_closing_tag: bool,
}

/// Cuts the thoughts out of a whole answer. Text before a closing tag without an opening tag is a thought too.
pub(super) fn cut_thoughts(text: &str) -> SpokenAnswer {
    let mut cutter = ThoughtCutter::new(false);
    let mut spoken_text = String::with_capacity(text.len());
    let mut has_lone_closing_tag = false;
    for c in text.chars() {
        if cutter.take_char(c, &mut spoken_text) {
            has_lone_closing_tag = true;
            spoken_text.clear();
            cutter.last_shown = None;
        }
    }
    let has_thought = cutter.has_thought();
    spoken_text.push_str(&cutter.finish(false).tail);
    SpokenAnswer {
        text: spoken_text,
        has_thought,
        has_lone_closing_tag,
    }
}

/// The models whose prompt opens the thought.
#[derive(Debug, Default)]
pub(super) struct PrefilledModels {
    /// True if the settings say so of all models of the endpoint.
    all: bool,
    learned: Mutex<HashSet<String>>,
}

impl PrefilledModels {
    pub(super) fn new(all: bool) -> Self {
        Self {
            all,
            learned: Mutex::default(),
        }
    }

    pub(super) fn contains(&self, model: &str) -> bool {
        self.all || self.learned.lock().contains(model)
    }

    pub(super) fn learn(&self, model: &str) {
        let mut learned = self.learned.lock();
        if learned.len() < MAX_MODELS {
            learned.insert(model.to_owned());
        }
    }

    /// A complete answer without a closing tag shows that the prompt opens no thought.
    pub(super) fn forget(&self, model: &str) {
        self.learned.lock().remove(model);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(text: &str) -> String {
        cut_thoughts(text).text
    }

    #[test]
    fn thought_is_cut_with_the_white_space_after_it() {
        for (text, spoken) in [
            ("Hello.", "Hello."),
            ("<think>Hm.</think>\n\nHello.", "Hello."),
            ("\n<think>\nHm.\n</think>\n\nHello.", "Hello."),
            ("\n Hello.\n", "\n Hello.\n"),
            ("\n", "\n"),
            ("<THINK>Hm.</Think>Hello.", "Hello."),
            ("[THINK]Hm.[/THINK]Hello.", "Hello."),
            ("Hello. <think>Hm.</think> Sit down.", "Hello. Sit down."),
            ("Hello.<think>Hm.</think>Sit down.", "Hello. Sit down."),
            ("<think>a < b </thin </think>Hello.", "Hello."),
            ("<think>Hm.", ""),
            ("Hello. <think>Hm.", "Hello. "),
            ("Hm, the inn.</think>\nHello.", "Hello."),
            ("1 < 2 and <thinker> [think", "1 < 2 and <thinker> [think"),
            ("<think></think>", ""),
            ("안녕<think>음</think> 하세요", "안녕 하세요"),
        ] {
            assert_eq!(cut(text), spoken, "{text}");
        }
    }

    #[test]
    fn closing_tag_alone_is_reported_by_a_stream_that_has_shown_text() {
        let mut cutter = ThoughtCutter::new(false);
        assert_eq!(cutter.push("Hm, the inn.").as_deref(), Ok("Hm, the inn."));
        assert_eq!(cutter.push("</think>Hello."), Err(LoneClosingTag));
        let mut cutter = ThoughtCutter::new(false);
        assert_eq!(cutter.push("\n</think>Hello."), Ok("Hello.".to_owned()));
        assert!(cut_thoughts("Hm.</think>Hello.").has_lone_closing_tag);
        assert!(!cut_thoughts("<think>Hm.</think>Hello.").has_lone_closing_tag);
    }

    #[test]
    fn prefilled_thought_is_withheld_until_its_closing_tag() {
        let mut cutter = ThoughtCutter::new(true);
        assert_eq!(cutter.push("Hm, the inn.").as_deref(), Ok(""));
        assert_eq!(cutter.push("</think>\nHello.").as_deref(), Ok("Hello."));
        assert!(cutter.has_thought());
        assert_eq!(cutter.finish(false).tail, "");

        let mut whole = ThoughtCutter::new(true);
        assert_eq!(whole.push("Hello.").as_deref(), Ok(""));
        let finished = whole.finish(false);
        assert_eq!((finished.tail.as_str(), finished.without_closing_tag), ("Hello.", true));

        let mut capped = ThoughtCutter::new(true);
        assert_eq!(capped.push("Hm, the").as_deref(), Ok(""));
        let finished = capped.finish(true);
        assert_eq!((finished.tail.as_str(), finished.has_thought), ("", true));

        let mut opened = ThoughtCutter::new(true);
        assert_eq!(opened.push("<think>Hm.</think>Hello.").as_deref(), Ok("Hello."));
    }

    #[test]
    fn models_are_learned_and_forgotten_by_name() {
        let models = PrefilledModels::new(false);
        assert!(!models.contains("a"));
        models.learn("a");
        assert!(models.contains("a") && !models.contains("b"));
        models.forget("a");
        assert!(!models.contains("a"));
        assert!(PrefilledModels::new(true).contains("any"));
    }

    /// A spoken part has only the letters `v` and `w`, a thought only `t` and `u`.
    fn answer_parts() -> impl Strategy<Value = Vec<(String, String)>> {
        let tags = prop_oneof![
            Just(("<think>", "</think>")),
            Just(("[THINK]", "[/THINK]")),
            Just(("<Think>", "</THINK>")),
        ];
        let part = ("[vw<>/\\[ \n]{0,6}", tags, "[tu<\\[ \n]{0,8}");
        prop::collection::vec(
            part.prop_map(|(spoken, (open, close), thought)| (spoken, format!("{open}{thought}{close}"))),
            0..5,
        )
    }

    /// Splits a text into pieces of these lengths in characters.
    fn pieces_of(text: &str, lengths: &[usize]) -> Vec<String> {
        let mut rest = text.chars();
        let mut pieces: Vec<String> = lengths
            .iter()
            .map(|length| rest.by_ref().take(*length).collect())
            .collect();
        pieces.push(rest.collect());
        pieces
    }

    proptest! {
        #[test]
        fn cut_depends_on_no_boundary_of_pieces(
            parts in answer_parts(), last in "[vw ]{0,6}", lengths in prop::collection::vec(0_usize..5, 0..40),
        ) {
            let all = parts.iter().flat_map(|(spoken, thought)| [spoken.as_str(), thought]);
            let text: String = all.chain([last.as_str()]).collect();
            let mut cutter = ThoughtCutter::new(false);
            let mut streamed = String::new();
            for piece in pieces_of(&text, &lengths) {
                streamed.push_str(&cutter.push(&piece).expect("each closing tag has an opening tag"));
            }
            streamed.push_str(&cutter.finish(false).tail);
            prop_assert_eq!(&streamed, &cut(&text));
            prop_assert!(!streamed.contains(['t', 'u']), "{:?} of {:?}", streamed, text);
            let letters = |text: &str| text.chars().filter(|c| "vw".contains(*c)).count();
            let spoken: String = parts.into_iter().map(|(spoken, _)| spoken).collect::<String>() + &last;
            prop_assert_eq!(letters(&streamed), letters(&spoken));
        }

        #[test]
        fn unclosed_thought_is_never_shown(
            before in "[vw ]{0,8}", thought in "[tu<> /]{0,20}", lengths in prop::collection::vec(0_usize..4, 0..30),
        ) {
            let mut cutter = ThoughtCutter::new(false);
            let mut streamed = String::new();
            for piece in pieces_of(&format!("{before}<think>{thought}"), &lengths) {
                streamed.push_str(&cutter.push(&piece).expect("no closing tag"));
            }
            streamed.push_str(&cutter.finish(false).tail);
            prop_assert_eq!(streamed.trim_start(), before.trim_start());
        }

        #[test]
        fn prefilled_thought_is_never_shown(
            thought in "[tu /]{0,20}", answer in "[vw]{1,8}", lengths in prop::collection::vec(0_usize..4, 0..30),
        ) {
            let text = format!("{thought}</think>{answer}");
            prop_assert_eq!(cut(&text), answer.clone());
            let mut cutter = ThoughtCutter::new(true);
            let mut streamed = String::new();
            for piece in pieces_of(&text, &lengths) {
                streamed.push_str(&cutter.push(&piece).expect("the closing tag is expected"));
            }
            streamed.push_str(&cutter.finish(false).tail);
            prop_assert_eq!(streamed, answer);
        }
    }
}
