//! The objects of clauses: an object without tails and pronouns, and lists of objects.

use super::{
    claim::{ClaimReader, ClaimVoice, Party},
    korean,
    lexicon::Pattern,
    render::without_article,
};

impl ClaimReader<'_> {
    /// Returns the object without tails and with resolved pronouns; `None` if the object makes no sense on its own.
    pub(super) fn read_object(&self, raw: &str, particle: &str) -> Option<String> {
        let object = if self.is_korean() {
            self.korean_object(raw, particle)?
        } else {
            self.english_object(raw)?
        };
        let first = object.split(' ').next().unwrap_or_default().to_lowercase();
        let is_pronoun = self.lexicon.is_in_list("pronoun_heads", &first);
        let words = object.split(' ').count();
        (!object.is_empty() && !is_pronoun && object.chars().count() <= 80 && words <= 12).then_some(object)
    }

    fn english_object(&self, raw: &str) -> Option<String> {
        let mut text = raw;
        regex!(
            TAIL,
            "(?i) (?:because|since|when|while|although|though|so that|as long as|which|and then) .*"
        );
        if let Some(tail) = TAIL.find(text) {
            text = &text[..tail.start()];
        }
        let ends_with = |text: &str, tail: &str| {
            let start = text.len().checked_sub(tail.len())?;
            let is_tail = text.get(start..)?.eq_ignore_ascii_case(tail) && text[..start].ends_with([' ', ',']);
            is_tail.then_some(start)
        };
        let tails = self.lexicon.word_list("tails");
        while let Some(start) = tails.iter().filter_map(|tail| ends_with(text, tail)).min() {
            text = text[..start].trim_end_matches([' ', ',']);
        }
        let words = without_marks(text).split(' ').map(|word| {
            Some(match word.to_lowercase().as_str() {
                "i" => return None,
                "me" | "myself" => self.display_name(&self.voice.first_person()?),
                "my" => self.possessive_form(&self.voice.first_person()?),
                "you" | "yourself" => self.named_you()?,
                "your" => format!("{}'s", self.named_you()?),
                _ => word.to_owned(),
            })
        });
        Some(words.collect::<Option<Vec<_>>>()?.join(" "))
    }

    /// Returns the meaning of "you" as an object: the listener, also in an NPC's words.
    fn named_you(&self) -> Option<String> {
        match self.voice {
            ClaimVoice::Player => (!self.npc.is_empty()).then(|| self.npc.to_owned()),
            ClaimVoice::Npc => Some(self.display_name(&Party::Player)),
            ClaimVoice::Record => None,
        }
    }

    fn korean_object(&self, raw: &str, particle: &str) -> Option<String> {
        let text = without_marks(raw);
        // A past stem belongs to a verb, and a pronoun to another clause.
        let is_pronoun = |token: &str| self.korean_pronoun(token).is_some();
        if text.chars().next_back().is_some_and(korean::is_past_stem) || text.split(' ').any(is_pronoun) {
            return None;
        }
        // A syllable like a particle may be the end of the noun: 고양이.
        let joined: String = text.chars().chain(particle.chars().next()).collect();
        let is_whole_noun = self.knows_head(&joined) && !self.knows_head(text);
        let is_noun_end = !particle.is_empty() && (is_whole_noun || !korean::can_follow(text, particle));
        Some(if is_noun_end { joined } else { text.to_owned() })
    }

    fn knows_head(&self, text: &str) -> bool {
        let head = text.rsplit(' ').next().unwrap_or_default();
        self.lexicon.knows_word(head) || self.lexicon.knows_word(text)
    }

    /// Splits "apples and grapes" into two objects. "fish and chips" stays one object, since not every part is known.
    pub(super) fn split_list(&self, pattern: &Pattern, object: &str) -> Vec<String> {
        regex!(AND, r",? (?:and|or) |, |(?:이랑|하고|랑|와|과) ");
        let parts: Vec<String> = AND.split(object).map(str::to_owned).collect();
        let is_known_word = |part: &String| {
            let lower = part.to_lowercase();
            let bare = without_article(&lower);
            self.lexicon.is_category(bare) || self.knows_head(bare)
        };
        let may_split = matches!(pattern.class.as_str(), "like" | "allergy" | "fear" | "cannot" | "eat");
        if may_split && parts.iter().all(is_known_word) {
            parts
        } else {
            vec![object.to_owned()]
        }
    }
}

/// Removes surrounding marks. "C++" and "C#" end in characters that are marks elsewhere.
fn without_marks(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii_punctuation() && !matches!(c, '+' | '#') || c == ' ')
}
