//! The subject of a clause. The subject is never confused with the speaker.

use super::{
    claim::{ClaimReader, Party},
    korean,
};

impl ClaimReader<'_> {
    /// Returns the meaning of a pronoun. `Some(Err(()))`: a pronoun without a meaning; `None`: not a pronoun.
    pub(super) fn korean_pronoun(&self, word: &str) -> Option<Result<Party, ()>> {
        if self.lexicon.is_me(word) || ["내", "제", "나의", "저의"].contains(&word) {
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

    fn english_subject(&self, text: &str) -> Option<Party> {
        let text = text.trim_end_matches('\'').trim_end_matches("'s");
        let lower = text.to_lowercase();
        match lower.as_str() {
            "i" | "my" | "me" => return self.voice.first_person(),
            "you" | "your" => return self.voice.second_person(),
            "the player" => return Some(Party::Player),
            _ => {}
        }
        // "My" and "my" have the same length in bytes.
        let starting_with = |start: &str, owner: Option<Party>| {
            let rest = lower.strip_prefix(start).and_then(|_| text.get(start.len()..))?;
            Some(owner.map(|owner| (self.possessive_form(&owner), rest)))
        };
        let owner_and_rest = starting_with("my ", self.voice.first_person())
            .or_else(|| starting_with("your ", self.voice.second_person()))
            .or_else(|| starting_with("the player's ", Some(Party::Player)))
            .or_else(|| {
                text.split_once("'s ")
                    .map(|(owner, rest)| Some((format!("{owner}'s"), rest)))
            });
        if let Some(owner_and_rest) = owner_and_rest {
            let (owner, rest) = owner_and_rest?;
            let is_relative = rest.split(' ').any(|word| self.lexicon.is_in_list("relations", word));
            return is_relative.then(|| Party::Other(format!("{owner} {rest}")));
        }
        if !self.npc.is_empty() && (text == self.npc || self.npc.split(' ').next() == Some(text)) {
            return Some(Party::Npc);
        }
        let first = lower.split([' ', '\'']).next().unwrap_or_default();
        let common = self.lexicon.is_in_list("not_names", first)
            || self.lexicon.knows_word(&lower)
            || self.lexicon.is_category(&lower)
            || self.lexicon.is_in_list("demonyms", &lower);
        (!common).then(|| Party::Other(text.to_owned()))
    }

    fn korean_subject(&self, text: &str) -> Option<Party> {
        if let Some(pronoun) = self.korean_pronoun(text) {
            return pronoun.ok();
        }
        let name = self.without_particle(text);
        if name == self.npc {
            return Some(Party::Npc);
        }
        if name == "플레이어" {
            return Some(Party::Player);
        }
        if let Some((owner, rest)) = name.split_once(' ') {
            let owner = match self.korean_pronoun(owner) {
                Some(owner) => self.possessive_form(&owner.ok()?),
                None if ["우리", "저희"].contains(&owner) => self.possessive_form(&self.voice.first_person()?),
                None => owner.to_owned(),
            };
            return owner.ends_with('의').then(|| Party::Other(format!("{owner} {rest}")));
        }
        // "동생은": the speaker's own.
        if let (true, Some(speaker)) = (self.lexicon.is_of(name, &["가족", "친구"]), self.voice.first_person()) {
            return Some(Party::Other(format!("{} {name}", self.possessive_form(&speaker))));
        }
        let common = name.chars().count() < 2
            || self.lexicon.is_in_list("not_names", name)
            || self.lexicon.knows_word(name)
            || self.lexicon.is_category(name);
        (!common).then(|| Party::Other(name.to_owned()))
    }

    /// Returns a subject without its particle: 고양이 for "고양이는".
    fn without_particle<'w>(&self, text: &'w str) -> &'w str {
        let ends = ["에게는", "한테는", "은", "는", "이", "가", "도", "의"];
        if text
            .rsplit(' ')
            .next()
            .is_some_and(|word| self.lexicon.knows_word(word))
        {
            return text;
        }
        let mut stems = ends.iter().filter_map(|end| Some((text.strip_suffix(end)?, *end)));
        stems
            .find(|(stem, end)| korean::can_follow(stem, end))
            .map_or(text, |(stem, _)| stem)
    }

    /// Returns a party as an owner, inside a sentence.
    pub(super) fn possessive_form(&self, party: &Party) -> String {
        let mark = if self.is_korean() { "의" } else { "'s" };
        format!("{}{mark}", self.display_name(party))
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
