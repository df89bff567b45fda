//! The subject of a clause. The subject is never confused with the speaker.

use super::{
    claim::{ClaimReader, ClaimVoice, Party},
    korean,
};

impl ClaimReader<'_> {
    /// Returns the subject at the start of a clause without a matching pattern ("내 동생은 어제 왔는데 …").
    pub(super) fn leading_subject(&self, text: &str) -> Option<Result<Party, ()>> {
        let first = text.split(' ').next()?;
        let first_two = text.match_indices(' ').nth(1).map_or(text, |(index, _)| &text[..index]);
        let topic = |t: &str| ["은", "는", "이", "가"].iter().any(|end| t.ends_with(end)) && t.chars().count() > 2;
        if ["내 ", "제 ", "우리 ", "네 ", "너의 ", "당신의 "]
            .iter()
            .any(|p| text.starts_with(p))
            && topic(first_two)
        {
            return Some(self.read_subject(first_two).ok_or(()));
        }
        let is_topic = topic(first) && text.contains(' ');
        let by_name = || is_topic.then(|| self.read_subject(first).ok_or(()));
        self.korean_pronoun(first).or_else(by_name)
    }

    /// Returns the meaning of a pronoun. `Some(Err(()))`: a pronoun without a meaning; `None`: not a pronoun.
    pub(super) fn korean_pronoun(&self, word: &str) -> Option<Result<Party, ()>> {
        if self.lexicon.is_me(word) || ["나의", "저의", "내", "제", "날", "나를", "저를", "절"].contains(&word)
        {
            Some(self.voice.first_person().ok_or(()))
        } else if self.lexicon.is_you(word) || ["네", "니", "너의", "당신의", "자네의"].contains(&word) {
            Some(self.voice.second_person().ok_or(()))
        } else {
            None
        }
    }

    /// `None`: an unspecific subject, or a person whom the words do not identify.
    pub(super) fn read_subject(&self, text: &str) -> Option<Party> {
        if self.is_korean() {
            self.korean_subject(text)
        } else {
            self.english_subject(text)
        }
    }

    pub(super) fn english_subject(&self, text: &str) -> Option<Party> {
        let text = text
            .strip_suffix("'s")
            .or_else(|| text.strip_suffix('\''))
            .unwrap_or(text);
        let lower = text.to_lowercase();
        match lower.as_str() {
            "i" | "my" | "me" => return self.voice.first_person(),
            "you" | "your" => return self.voice.second_person(),
            "the player" => return Some(Party::Player),
            _ => {}
        }
        let relative = |rest: &str| {
            let (before, last) = rest.rsplit_once(' ').unwrap_or(("", rest));
            // "my wife Clara" is a relative too.
            let is_named_relative = last.starts_with(char::is_uppercase)
                && self
                    .lexicon
                    .is_in_list("relations", before.rsplit(' ').next().unwrap_or_default());
            self.lexicon.is_in_list("relations", last) || is_named_relative
        };
        // "My" and "my" have the same length in bytes.
        if let Some(rest) = lower.strip_prefix("my ").and_then(|_| text.get(3..)) {
            return relative(rest).then_some(Party::Other(format!(
                "{} {rest}",
                self.possessive_form(&self.voice.first_person()?)
            )));
        }
        if let Some(rest) = lower.strip_prefix("your ").and_then(|_| text.get(5..)) {
            return relative(rest).then_some(Party::Other(format!(
                "{} {rest}",
                self.possessive_form(&self.voice.second_person()?)
            )));
        }
        if let Some((owner, rest)) = text.split_once("'s ") {
            let is_known_owner = owner == "The player"
                || owner == "the player"
                || !self.lexicon.is_in_list("not_names", &owner.to_lowercase());
            let owner = if owner == "The player" { "the player" } else { owner };
            return (is_known_owner && relative(rest)).then(|| Party::Other(format!("{owner}'s {rest}")));
        }
        if !self.npc.is_empty() && (text == self.npc || self.npc.split(' ').next() == Some(text)) {
            return Some(Party::Npc);
        }
        let first = lower.split([' ', '\'']).next().unwrap_or_default();
        let common = self.lexicon.is_in_list("not_names", first)
            || (self.lexicon.knows_word(&lower) && self.lexicon.listed_form(&lower) != "rose")
            || self.lexicon.is_category(&lower)
            || self.lexicon.is_in_list("demonyms", &lower);
        (!common).then(|| Party::Other(text.to_owned()))
    }

    pub(super) fn korean_subject(&self, text: &str) -> Option<Party> {
        if let Some(pronoun) = self.korean_pronoun(text) {
            return pronoun.ok();
        }
        let after_npc = text.strip_prefix(self.npc).filter(|_| !self.npc.is_empty());
        let particles = [
            "",
            "은",
            "는",
            "이",
            "가",
            "도",
            "의",
            "이는",
            "이가",
            "에게는",
            "한테는",
            "께서",
            "께서는",
        ];
        if after_npc.is_some_and(|rest| particles.contains(&rest.trim_start_matches(" 씨"))) {
            return Some(Party::Npc);
        }
        // "친구 철수는": by name.
        let tokens: Vec<&str> = text.split(' ').collect();
        if let [.., relation, name_token] = tokens.as_slice() {
            let name = self.without_particle(name_token).unwrap_or(name_token);
            let common = self.lexicon.knows_word(name)
                || self.lexicon.is_category(name)
                || self.lexicon.is_in_list("not_names", name)
                || name == "씨";
            if self.is_near(relation) && !common {
                return Some(Party::Other(name.to_owned()));
            }
        }
        let bare = text.trim_end_matches('의');
        if self.voice != ClaimVoice::Record && self.is_near(bare) {
            return Some(Party::Other(format!(
                "{} {bare}",
                self.possessive_form(&self.voice.first_person()?)
            )));
        }
        let (owner, rest) = text.split_once(' ').unwrap_or(("", text));
        let name = if self.lexicon.knows_word(rest) {
            rest
        } else {
            self.without_particle(rest)?
        };
        if !owner.is_empty() {
            let owner = match owner {
                "내" | "제" | "우리" | "저희" | "나의" => self.possessive_form(&self.voice.first_person()?),
                "네" | "니" | "너의" | "당신의" | "당신" | "자네" => {
                    self.possessive_form(&self.voice.second_person()?)
                }
                owner_name if owner_name.ends_with('의') => owner_name.to_owned(),
                // "미라 씨는"
                owner_name if name == "씨" => return Some(Party::Other(owner_name.to_owned())),
                _ => return None,
            };
            return Some(Party::Other(format!("{owner} {}", name.trim_end_matches('의'))));
        }
        if name == "플레이어" || name == "플레이어의" {
            return Some(Party::Player);
        }
        let name = name.strip_suffix('의').unwrap_or(name);
        // "동생은": the speaker's own.
        if self.voice != ClaimVoice::Record && self.lexicon.is_of(name, &["가족", "친구", "지인"]) {
            return Some(Party::Other(format!(
                "{} {name}",
                self.possessive_form(&self.voice.first_person()?)
            )));
        }
        // "과일은 포도가 좋아": a topic, not a person.
        if self.lexicon.is_category(name) && self.voice != ClaimVoice::Record {
            return self.voice.first_person();
        }
        let person = self.lexicon.is_of(name, &["직업", "가족", "친구"]);
        let common = name.chars().count() < 2
            || self.lexicon.is_in_list("not_names", name)
            || (self.lexicon.knows_word(name) && !person)
            || self.lexicon.is_category(name);
        (!common).then(|| Party::Other(name.to_owned()))
    }

    /// Returns a subject without its particle: 고양이 for "고양이는", and 지영 for "지영이는".
    fn without_particle<'w>(&self, word: &'w str) -> Option<&'w str> {
        ["은", "는", "이", "가", "도", "의"]
            .iter()
            .find_map(|end| word.strip_suffix(end))
            .filter(|stem| self.lexicon.knows_word(stem))
            .or_else(|| strip_subject_particle(word))
    }

    /// True if the word means a relative, a friend or a pet.
    pub(super) fn is_near(&self, word: &str) -> bool {
        self.lexicon.is_of(word, &["가족", "친구", "지인", "반려동물"])
    }

    /// Returns a party as an owner, inside a sentence.
    pub(super) fn possessive_form(&self, party: &Party) -> String {
        if self.is_korean() {
            format!("{}의", self.display_name(party))
        } else {
            format!("{}'s", self.display_name(party))
        }
    }

    /// Returns a party's name inside a sentence.
    pub(super) fn display_name(&self, party: &Party) -> String {
        match (party, self.is_korean()) {
            (Party::Player, false) => "the player".to_owned(),
            (Party::Player, true) => "플레이어".to_owned(),
            (Party::Npc, _) => self.npc.to_owned(),
            (Party::Other(name), _) => name.clone(),
        }
    }
}

fn strip_subject_particle(word: &str) -> Option<&str> {
    for end in ["에게는", "한테는", "께서는", "께서"] {
        if let Some(stem) = word.strip_suffix(end) {
            return Some(stem);
        }
    }
    for (end, particle) in [
        ("이는", ""),
        ("이가", ""),
        ("은", "은"),
        ("는", "는"),
        ("이", "이"),
        ("가", "가"),
        ("도", ""),
        ("의", ""),
    ] {
        if let Some(stem) = word.strip_suffix(end).filter(|stem| !stem.is_empty()) {
            if end.starts_with('이') && end.len() > 3 && !korean::ends_in_consonant(stem) {
                continue;
            }
            return korean::can_follow(stem, particle).then_some(stem);
        }
    }
    Some(word)
}
