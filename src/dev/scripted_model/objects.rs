//! The objects of clauses: an object without tails and pronouns, and lists of objects.

use super::{
    claim::{ClaimReader, ClaimVoice, Party},
    clauses, korean,
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
        let tokens = object.split(' ').count();
        (!object.is_empty() && object.chars().count() <= 80 && tokens <= 12).then_some(object)
    }

    pub(super) fn english_object(&self, raw: &str) -> Option<String> {
        let mut text = raw.trim();
        let lower = text.to_lowercase();
        regex!(
            TAIL,
            " (?:because|since|when|while|although|though|so that|as long as|which|and then) "
        );
        // A cut works in both texts: the tail is ASCII, and the text before it mostly is, so the lengths are the same.
        if let Some(tail) = TAIL.find(&lower) {
            text = text.get(..tail.start())?.trim();
        }
        loop {
            let lower = text.to_lowercase();
            let tail = self
                .lexicon
                .word_list("tails")
                .iter()
                .filter(|tail| {
                    lower
                        .strip_suffix(tail.as_str())
                        .is_some_and(|rest| rest.ends_with([' ', ',']))
                })
                .max_by_key(|tail| tail.len());
            let Some(tail) = tail else { break };
            let before = text.get(..text.len().checked_sub(tail.len())?)?;
            text = before.trim_end_matches([' ', ',']);
        }
        let text = &without_marks(text);
        let lower = text.to_lowercase();
        let first = lower.split(' ').next().unwrap_or_default();
        if self.lexicon.is_in_list("pronoun_heads", first) || self.lexicon.is_in_list("pronoun_heads", &lower) {
            return None;
        }
        let mut words: Vec<String> = Vec::new();
        let mut follows_you = false;
        for word in text.split(' ') {
            let lower = word.to_lowercase();
            // After the replacement of "you" by a name, the verb needs the third person.
            let third = match lower.as_str() {
                "are" => Some("is"),
                "were" => Some("was"),
                "have" => Some("has"),
                "do" => Some("does"),
                _ => None,
            };
            if let Some(third) = third.filter(|_| follows_you) {
                words.push(third.to_owned());
                follows_you = false;
                continue;
            }
            follows_you = lower == "you";
            let resolved = match lower.as_str() {
                "i" => return None,
                "me" | "myself" => self.display_name(&self.voice.first_person()?),
                "my" => self.possessive_form(&self.voice.first_person()?),
                "you" | "yourself" => self.named_you()?,
                "your" => format!("{}'s", self.named_you()?),
                _ => word.to_owned(),
            };
            words.push(resolved);
        }
        Some(words.join(" "))
    }

    /// Returns the meaning of "you" as an object: the listener, also in an NPC's words.
    pub(super) fn named_you(&self) -> Option<String> {
        match self.voice {
            ClaimVoice::Player => (!self.npc.is_empty()).then(|| self.npc.to_owned()),
            ClaimVoice::Npc => Some(self.display_name(&Party::Player)),
            ClaimVoice::Record => None,
        }
    }

    pub(super) fn korean_object(&self, raw: &str, particle: &str) -> Option<String> {
        let mut text = without_marks(raw);
        // A past stem belongs to a verb, not to a noun: "말씀드렸죠" contains no object.
        if text.chars().next_back().is_some_and(korean::is_past_stem) {
            return None;
        }
        let joined = format!("{text}{}", particle.chars().next().unwrap_or_default());
        // A syllable like a particle may be the end of the noun: 고양이, 어린이.
        let is_whole_noun = self.knows_head(&joined) && !self.knows_head(&text);
        if !particle.is_empty() && (is_whole_noun || particle.starts_with('이') && needs_i(&text)) {
            text = joined;
        } else if !particle.is_empty() && !korean::can_follow(&text, particle) {
            text.push_str(particle);
        }
        let first = text.split(' ').next().unwrap_or_default().to_owned();
        if self.lexicon.is_in_list("pronoun_heads", &first) || text.split(' ').count() > 6 {
            return None;
        }
        // Two clauses in one, because the pattern did not split them.
        let person =
            |token: &str| token.chars().count() > 1 && (self.lexicon.is_me(token) || self.lexicon.is_you(token));
        if text.split(' ').any(person) {
            return None;
        }
        // "나는 안 좋아해": the word is the subject, and the object is missing.
        if matches!(particle, "은" | "는") && ["나", "저", "너", "당신", "자네", "그대"].contains(&text.as_str())
        {
            return None;
        }
        let you = self.named_you();
        match text.as_str() {
            "너" | "네" | "니" | "당신" | "자네" => return you,
            "나" | "저" => return Some(self.display_name(&self.voice.first_person()?)),
            _ => {}
        }
        for (forms, party) in [
            (["너", "자네", "당신", "그대"], &you),
            (
                ["나", "저", "내", "제"],
                &self.voice.first_person().map(|me| self.display_name(&me)),
            ),
        ] {
            text = name_pronouns(&text, &forms, party.as_deref())?;
        }
        if let Some((owner, rest)) = text.split_once(' ') {
            let owner = match owner {
                "내" | "제" | "나의" | "우리" => Some(self.possessive_form(&self.voice.first_person()?)),
                "네" | "니" | "너의" | "당신의" => Some(format!("{}의", you?)),
                _ => None,
            };
            if let Some(owner) = owner {
                return Some(format!("{owner} {rest}"));
            }
        }
        Some(text)
    }

    pub(super) fn knows_head(&self, text: &str) -> bool {
        let head = text.rsplit(' ').next().unwrap_or_default();
        self.lexicon.knows_word(head) || self.lexicon.knows_word(text)
    }

    /// Splits "apples and grapes" into two objects. "fish and chips" stays one object, since not every part is known.
    pub(super) fn split_list(&self, pattern: &Pattern, object: &str, particle: &str) -> Vec<String> {
        // "포도도 사과도": a list of any things.
        if let Some(parts) = self.is_korean().then(|| split_both(object, particle)).flatten() {
            return parts;
        }
        if !matches!(pattern.class.as_str(), "like" | "allergy" | "fear" | "cannot" | "eat") {
            return vec![object.to_owned()];
        }
        let parts: Vec<String> = if self.is_korean() {
            split_korean_list(object)
        } else {
            object
                .split(", ")
                .flat_map(|part| part.split(" and "))
                .flat_map(|part| part.split(" or "))
                .map(|part| {
                    part.trim()
                        .trim_start_matches("and ")
                        .trim_start_matches("or ")
                        .to_owned()
                })
                .filter(|part| !part.is_empty())
                .collect()
        };
        let is_known_word = |part: &String| {
            let lower = part.to_lowercase();
            let bare = without_article(&lower);
            self.lexicon.knows_word(bare) || self.lexicon.is_category(bare) || self.knows_head(bare)
        };
        if parts.len() > 1 && parts.iter().all(is_known_word) {
            parts
        } else {
            vec![object.to_owned()]
        }
    }
}

/// Removes surrounding marks and emojis: "🙂 포도!" → "포도". Emojis that are the object stay: "🍇", "🍇 and 🍎".
fn without_marks(text: &str) -> String {
    // "C++" and "C#" end in characters that are marks elsewhere.
    let is_mark = |c: char| !c.is_alphanumeric() && !matches!(c, '+' | '#');
    let text = text.trim_matches(|c: char| is_mark(c) && !clauses::is_picture(c));
    let joins = |token: &&str| ["and", "or", "&"].contains(token) || token.contains(clauses::is_picture);
    let tokens: Vec<&str> = text
        .split(' ')
        .filter(|token| !token.chars().all(clauses::is_picture))
        .collect();
    if tokens.iter().any(joins) && text.contains(clauses::is_picture) || tokens.is_empty() {
        return text.to_owned();
    }
    tokens.join(" ").trim_matches(is_mark).to_owned()
}

/// True if a following 이 belongs to the word, because a particle 이 cannot follow an open syllable.
fn needs_i(word: &str) -> bool {
    word.chars().next_back().is_some_and(korean::is_syllable) && !korean::ends_in_consonant(word)
}

/// Splits "포도도 사과" before 도 into both things; `None` for other objects.
fn split_both(object: &str, particle: &str) -> Option<Vec<String>> {
    let (before, last) = object.rsplit_once(' ').filter(|_| particle == "도")?;
    let mut parts: Vec<String> = before
        .split(' ')
        .map(|token| {
            token
                .strip_suffix('도')
                .filter(|stem| !stem.is_empty())
                .map(str::to_owned)
        })
        .collect::<Option<_>>()?;
    parts.push(last.to_owned());
    Some(parts)
}

/// Splits "사과랑 포도", "사과와 포도" and "사과, 포도" into parts.
fn split_korean_list(object: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for token in object.split(' ') {
        let (stem, ends) = if let Some(stem) = token.strip_suffix(',') {
            (stem, true)
        } else if let Some(stem) = ["이랑", "하고"].iter().find_map(|end| token.strip_suffix(end)) {
            (stem, true)
        } else if let Some(stem) = token.strip_suffix('랑').or_else(|| token.strip_suffix('와')) {
            if korean::ends_in_consonant(stem) {
                (token, false)
            } else {
                (stem, true)
            }
        } else if let Some(stem) = token.strip_suffix('과').filter(|stem| korean::ends_in_consonant(stem)) {
            (stem, true)
        } else {
            (token, false)
        };
        if let Some(part) = parts.last_mut() {
            if !part.is_empty() {
                part.push(' ');
            }
            part.push_str(stem);
        }
        if ends {
            parts.push(String::new());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// "자네를 지키겠다고" → "플레이어를 지키겠다고"; `None` if a pronoun has no meaning.
fn name_pronouns(text: &str, forms: &[&str], name: Option<&str>) -> Option<String> {
    let mut tokens = Vec::new();
    for token in text.split(' ') {
        let particle = forms
            .iter()
            .filter_map(|form| token.strip_prefix(form))
            .find(|rest| ["를", "을", "에게", "한테", "와", "과"].contains(rest));
        tokens.push(match particle {
            Some("를" | "을") => format!("{}{}", name?, korean::fitting_particle(name?, "을")),
            Some("와" | "과") => format!("{}{}", name?, korean::fitting_particle(name?, "과")),
            Some(particle) => format!("{}{particle}", name?),
            None => token.to_owned(),
        });
    }
    Some(tokens.join(" "))
}
