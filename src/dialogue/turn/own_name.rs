//! The speaker's own name before a reply. A model that sees names before earlier lines writes its own name too.

use std::borrow::Cow;

/// Leaves out the speaker's name at the beginning of a streamed reply: of "Mira: Good day." stays "Good day."
#[derive(Debug)]
pub(super) struct OwnNameFilter {
    /// The name with its colon.
    mark: String,
    /// The text so far, as long as the mark may follow. `None`: the beginning is decided.
    undecided: Option<String>,
    /// The length of the text that was left out, in Unicode scalar values.
    removed_chars: usize,
}

impl OwnNameFilter {
    pub(super) fn new(name: &str) -> Self {
        Self {
            mark: format!("{name}:"),
            undecided: Some(String::new()),
            removed_chars: 0,
        }
    }

    /// A filter that leaves out nothing, for texts that are said as written.
    pub(super) const fn inactive() -> Self {
        Self {
            mark: String::new(),
            undecided: None,
            removed_chars: 0,
        }
    }

    pub(super) const fn removed_chars(&self) -> usize {
        self.removed_chars
    }

    /// Returns the text that may be shown after the next piece.
    pub(super) fn push<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        let Some(mut text) = self.undecided.take() else {
            return Cow::Borrowed(piece);
        };
        text.push_str(piece);
        let beginning = text.trim_start();
        match beginning.strip_prefix(self.mark.as_str()).map(str::trim_start) {
            // White space after the name may still follow.
            Some("") => self.undecided = Some(text),
            Some(words) => {
                self.removed_chars = text.chars().count() - words.chars().count();
                return Cow::Owned(words.to_owned());
            }
            None if self.mark.starts_with(beginning) => self.undecided = Some(text),
            None => return Cow::Owned(text),
        }
        Cow::Borrowed("")
    }

    /// Returns the rest of the text at the end of the reply: a beginning that was no name.
    pub(super) fn finish(&mut self) -> String {
        let rest = self.undecided.take().unwrap_or_default();
        if rest.trim() == self.mark { String::new() } else { rest }
    }
}

#[cfg(test)]
mod tests {
    use super::OwnNameFilter;

    #[test]
    fn own_name_is_left_out_however_the_reply_is_cut_into_pieces() {
        for (reply, shown) in [
            ("Mira: Good day.", "Good day."),
            (" Mira:\n\"Good day.\"", "\"Good day.\""),
            ("Mira is my name: Mira.", "Mira is my name: Mira."),
            ("Mir", "Mir"),
            ("Tom: Good day.", "Tom: Good day."),
            ("Mira: Mira: twice", "Mira: twice"),
            ("Mira: ", ""),
        ] {
            for size in [1, 3, 100] {
                let mut filter = OwnNameFilter::new("Mira");
                let characters: Vec<char> = reply.chars().collect();
                let pieces = characters.chunks(size).map(|piece| piece.iter().collect::<String>());
                let mut text: String = pieces.map(|piece| filter.push(&piece).into_owned()).collect();
                text.push_str(&filter.finish());
                assert_eq!(text, shown, "{reply} in pieces of {size}");
            }
        }
        let mut inactive = OwnNameFilter::inactive();
        assert_eq!(inactive.push("Mira: Good day."), "Mira: Good day.");
    }
}
