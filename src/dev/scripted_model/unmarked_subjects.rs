//! Korean subjects without a particle. "동생 땅콩 알레르기가 있어" is about the brother, and "미라 포도 싫어해" names a
//! person other than the speaker.
//!
//! A pattern takes such words for the beginning of the object. If their meaning is clear, the words are the subject. If
//! they may also be an owner ("엄마 김치를 좋아해"), or if the person is unknown, there is no fact. A missing fact is
//! better than a fact about the wrong person.

use super::{claim::ClaimReader, korean, lead_role::LeadRole};

/// Statements in which a person in front of a thing cannot be its owner.
const PERSONAL_CLASSES: [&str; 7] = ["allergy", "condition", "cannot", "eat", "age", "job", "be"];
/// Statements in which the person may be the owner: "누나 포도 좋아해" against "누나 포도를 좋아해".
const TASTE_CLASSES: [&str; 3] = ["like", "prefer", "fear"];
/// Statements in which the person mostly is the owner: "엄마 반지를 잃어버렸어", "친구 집에 살아".
const OWNER_CLASSES: [&str; 13] = [
    "event",
    "future",
    "promise",
    "seek",
    "have",
    "live",
    "origin",
    "born",
    "raised",
    "workplace",
    "favourite",
    "name",
    "hobby",
];

impl ClaimReader<'_> {
    /// Returns the role of the words in front of an object. `subject_text` is the pattern's subject, empty without a
    /// subject; `particle` is the particle after the object.
    pub(super) fn classify_lead<'t>(
        &self,
        class: &str,
        subject_text: &str,
        object: &'t str,
        particle: &str,
    ) -> LeadRole<'t> {
        let tokens: Vec<&str> = object.split(' ').collect();
        let first = tokens[0];
        let bare = without_topic(first).unwrap_or(first);
        // "저 사람 좋아해": 저 means "over there".
        if subject_text == "저" && self.is_anyone(bare) {
            return LeadRole::Unclear;
        }
        if tokens.len() == 1 || tokens[1] == "같은" {
            return LeadRole::Object;
        }
        let listed = particle == "도" && tokens[..tokens.len() - 1].iter().all(|token| token.ends_with('도'));
        // "엄마가 만든 김치를 좋아해": the maker is not the person with the liking.
        if subject_text.ends_with(['이', '가']) && self.lexicon.is_in_list("made_by", first) {
            return LeadRole::Unclear;
        }
        // "우리 둘 다 포도를 좋아해"
        if is_owner(first) && self.lexicon.is_in_list("pronoun_heads", tokens[1]) {
            return LeadRole::Unclear;
        }
        // "여자들 포도를 좋아해", "다른 사람은 포도를 좋아해".
        if subject_text.is_empty() && self.is_anyone(bare) {
            return LeadRole::Unclear;
        }
        if tokens[1..tokens.len() - 1].iter().any(|token| self.is_topic(token)) && !listed {
            return LeadRole::Unclear;
        }
        // "나도 동생도 포도 좋아해"
        let too = first.ends_with('도') && !self.lexicon.knows_word(first);
        if too
            && !listed
            && (subject_text.ends_with('도')
                || !subject_text.is_empty() && (self.is_near(bare) || self.is_anyone(bare)))
        {
            return LeadRole::Unclear;
        }
        let owned = subject_text.is_empty() && tokens.len() > 2 && is_owner(first) && self.is_near(tokens[1]);
        let is_near_person = self.is_near(bare) || bare != first && self.is_near(first);
        if owned || is_near_person {
            let person_end = if owned {
                first.len() + 1 + tokens[1].len()
            } else {
                first.len()
            };
            let thing = &object[person_end + 1..];
            // "고양이 털 알레르기", "토끼 고기": a compound, and not a pet.
            if !owned && self.is_pet(bare, first) && !self.is_fed(thing) && !TASTE_CLASSES.contains(&class) {
                return LeadRole::Object;
            }
            return self.classify_near_person(class, subject_text, &object[..person_end], thing, particle, listed);
        }
        if !subject_text.is_empty() || listed || is_owner(first) {
            return LeadRole::Object;
        }
        let of_one = PERSONAL_CLASSES.contains(&class) || TASTE_CLASSES.contains(&class);
        if first == self.npc || of_one && self.is_unknown_name(first, &tokens[1..]) {
            return LeadRole::Unclear;
        }
        LeadRole::Object
    }

    /// Returns the role of a relative, a friend or a pet in front of a thing.
    fn classify_near_person<'t>(
        &self,
        class: &str,
        subject_text: &str,
        person: &'t str,
        thing: &'t str,
        particle: &str,
        listed: bool,
    ) -> LeadRole<'t> {
        // A person with an allergy never owns its cause.
        let may_be_of_one = subject_text.is_empty() || matches!(class, "allergy" | "condition");
        if !may_be_of_one || listed && !subject_text.is_empty() {
            return LeadRole::Object;
        }
        let is_single = !thing.contains(' ') || self.is_listed(thing);
        let accusative = matches!(particle, "을" | "를");
        match class {
            _ if listed => LeadRole::Unclear,
            class if PERSONAL_CLASSES.contains(&class) && is_single => LeadRole::Subject(person, thing),
            class if TASTE_CLASSES.contains(&class) && is_single && self.is_listed(thing) && !accusative => {
                LeadRole::Subject(person, thing)
            }
            class if OWNER_CLASSES.contains(&class) && (accusative || !matches!(class, "event" | "seek" | "have")) => {
                LeadRole::Object
            }
            _ => LeadRole::Unclear,
        }
    }

    /// True if a marked subject of the pattern is really a noun with the same ending: "고양이", "제주도". An owner
    /// needs no mark: "고양이 이름은 …".
    pub(super) fn is_whole_noun(&self, class: &str, subject_text: &str) -> bool {
        let of_owner = matches!(class, "name" | "birthday" | "hometown" | "hobby" | "goal");
        !of_owner
            && !subject_text.contains(' ')
            && self.lexicon.knows_word(subject_text)
            && self.korean_pronoun(subject_text).is_none()
    }

    /// True if such a noun is part of the object ("제주도 귤") and not a person ("대장장이 딸").
    pub(super) fn may_begin_object(&self, class: &str, object: &str) -> bool {
        let first = object.split(' ').next().unwrap_or_default();
        let somebody = self.lexicon.categories_of(first).iter().any(|c| c == "직업");
        !somebody && (TASTE_CLASSES.contains(&class) || matches!(class, "allergy" | "cannot" | "eat"))
    }

    fn is_pet(&self, bare: &str, whole: &str) -> bool {
        let is_pet_word = |word| self.lexicon.categories_of(word).iter().any(|c| c == "반려동물");
        is_pet_word(bare) || is_pet_word(whole)
    }

    /// True if the thing is food for an animal, and not food made of the animal.
    fn is_fed(&self, thing: &str) -> bool {
        let head = thing.rsplit(' ').next().unwrap_or(thing);
        head != "고기" && self.lexicon.categories_of(head).iter().any(|c| c == "음식")
    }

    /// True if the word means people in general, or a person only pointed at.
    fn is_anyone(&self, word: &str) -> bool {
        let is_plural = word.chars().count() > 2 && word.ends_with('들') && !self.lexicon.knows_word(word);
        let bare = word.trim_end_matches('의');
        is_plural || self.lexicon.is_in_list("persons", bare)
    }

    /// True for "사람은" in the middle of an object, where another clause begins. False for "맛있는".
    fn is_topic(&self, token: &str) -> bool {
        ["은", "는"]
            .iter()
            .find_map(|end| token.strip_suffix(end))
            .filter(|stem| stem.chars().count() > 1)
            .is_some_and(|stem| self.is_anyone(stem) || self.is_near(stem) || self.lexicon.knows_word(stem))
            && !self.lexicon.knows_word(token)
    }

    /// True for an unlisted word in front of listed things: perhaps a name. "매운 음식" and "황금의 검" describe. "초코
    /// 우유" is lost as well.
    fn is_unknown_name(&self, word: &str, rest: &[&str]) -> bool {
        let length = word.chars().count();
        let describes = self
            .lexicon
            .word_list("describing_ends")
            .iter()
            .any(|end| word.ends_with(end.as_str()));
        (2..=4).contains(&length)
            && word.chars().all(korean::is_hangul)
            && !describes
            && !self.lexicon.knows_word(word)
            && !self.lexicon.is_category(word)
            && self.is_listed(&rest.join(" "))
    }

    /// True if a thing is known, as a whole or word by word.
    fn is_listed(&self, thing: &str) -> bool {
        let is_known_word = |word: &str| self.lexicon.knows_word(word) || self.lexicon.is_category(word);
        is_known_word(thing) || thing.split(' ').all(is_known_word)
    }

    /// "포도도 사과도 좋아해": true for the first item of a list, which is not a second person with the same liking.
    pub(super) fn begins_list(&self, subject_text: &str, particle: &str) -> bool {
        subject_text.ends_with('도')
            && particle == "도"
            && !subject_text.contains(' ')
            && self.korean_pronoun(subject_text).is_none()
    }
}

fn is_owner(word: &str) -> bool {
    ["내", "제", "우리", "저희", "나의", "네", "니", "너의", "당신의"].contains(&word)
}

/// "동생이" → "동생".
fn without_topic(word: &str) -> Option<&str> {
    ["은", "는", "이", "가", "도"]
        .iter()
        .find_map(|end| word.strip_suffix(end))
        .filter(|stem| !stem.is_empty())
}
