//! Claims: the statement of a clause and the statement's subject, as a complete sentence.
//!
//! The same patterns read a player's words ("I like grapes"), an NPC's words about itself, and the stored sentences
//! ("The player likes grapes."). Memories can therefore be compared, and can answer questions.

use super::{
    clauses::{self, Clause},
    korean,
    lexicon::{self, Lexicon, Pattern},
    render::{Slots, capitalise, render_english, render_korean, without_article, without_article_cased},
};
use colloquy_memory::{
    authored::Language,
    fact::{FactKind, Polarity, Tense},
};

/// The subject of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Party {
    Player,
    Npc,
    /// Another person or thing, by name: "Mira", "the player's sister".
    Other(String),
}

/// The speaker of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimVoice {
    Player,
    Npc,
    /// A stored sentence, in which "I" and "you" have no meaning.
    Record,
}

impl ClaimVoice {
    pub fn first_person(self) -> Option<Party> {
        match self {
            Self::Player => Some(Party::Player),
            Self::Npc => Some(Party::Npc),
            Self::Record => None,
        }
    }
    /// `None` for an NPC: its words about "you" only repeat the player, and are not read.
    pub fn second_person(self) -> Option<Party> {
        (self == Self::Player).then_some(Party::Npc)
    }
}

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ParsedClaim {
    pub language: Language,
    pub class: String,
    pub subject: Party,
    /// The subject as in a fact: `player`, the NPC's name, or another name.
    pub subject_name: String,
    pub predicate: String,
    /// Without articles.
    pub object: String,
    /// True for a change: "I prefer apples now".
    pub now: bool,
    /// "fruit" in "my favourite fruit is …".
    pub category: Option<String>,
    pub content: String,
    pub kind: FactKind,
    pub polarity: Polarity,
    pub tense: Tense,
    pub importance: u8,
    pub keywords: Vec<String>,
}

impl ParsedClaim {
    /// True if both claims state the same, even in different words.
    pub fn says_same(&self, other: &Self) -> bool {
        self.class == other.class
            && self.subject == other.subject
            && self.polarity == other.polarity
            && self.tense == other.tense
            && self.same_object(other)
    }
    /// True if both claims have the same object.
    pub fn same_object(&self, other: &Self) -> bool {
        let lexicon = lexicon::lexicon_of(self.language);
        self.category == other.category && base_words(lexicon, &self.object) == base_words(lexicon, &other.object)
    }
}

fn base_words(lexicon: &Lexicon, text: &str) -> Vec<String> {
    let words = lower_case_words(text);
    // An emoji counts as a word.
    if words.is_empty() {
        return vec![text.to_owned()];
    }
    words
        .into_iter()
        .filter(|word| !["a", "an", "the"].contains(&word.as_str()))
        .map(|word| lexicon.listed_form(&word).to_owned())
        .collect()
}

/// Returns the lower-case words of a text.
pub(super) fn lower_case_words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '\'')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Reads all claims of a text. `npc` is the NPC's name, empty if unknown.
pub(super) fn read_claims(text: &str, voice: ClaimVoice, npc: &str) -> Vec<ParsedClaim> {
    let language = lexicon::language_of(text);
    let lexicon = lexicon::lexicon_of(language);
    let reader = ClaimReader { lexicon, voice, npc };
    let clauses = clauses::split_clauses(language, text, npc);
    clauses.iter().flat_map(|clause| reader.read_clause(clause)).collect()
}

/// Reads one stored sentence.
pub(super) fn read_record(content: &str, npc: &str) -> Option<ParsedClaim> {
    read_claims(content, ClaimVoice::Record, npc).into_iter().next()
}

/// Reads a persona's claims about its NPC, by name or as "you".
pub(super) fn read_persona(text: &str, npc: &str) -> Vec<ParsedClaim> {
    let mut claims = read_claims(text, ClaimVoice::Record, npc);
    for claim in read_claims(text, ClaimVoice::Player, npc) {
        if !claims.iter().any(|other| other.says_same(&claim)) {
            claims.push(claim);
        }
    }
    claims.retain(|claim| claim.subject == Party::Npc);
    claims
}

/// A reader of clauses in one language, by one speaker.
pub(super) struct ClaimReader<'a> {
    pub lexicon: &'static Lexicon,
    pub voice: ClaimVoice,
    pub npc: &'a str,
}

impl ClaimReader<'_> {
    pub fn is_korean(&self) -> bool {
        self.lexicon.language == Language::Ko
    }

    /// Returns the claims of the first pattern that fits.
    fn read_clause(&self, clause: &Clause) -> Vec<ParsedClaim> {
        for pattern in &self.lexicon.patterns {
            let Some(captures) = pattern.regex.captures(&clause.text) else {
                continue;
            };
            let group = |name: &str| captures.name(name).map_or("", |m| m.as_str().trim());
            let subject_text = group("s");
            let subject = if subject_text.is_empty() {
                self.unsaid_subject()
            } else {
                self.read_subject(subject_text)
            };
            let Some(subject) = subject else {
                // "my name": not a relative. Another pattern may match better.
                if !self.is_korean() && subject_text.contains(' ') {
                    continue;
                }
                break;
            };
            let particle = captures.name("j").or_else(|| captures.name("cop"));
            let Some(object) = self.read_object(group("o"), particle.map_or("", |m| m.as_str())) else {
                continue;
            };
            if !self.is_allowed(pattern, &object, !subject_text.is_empty()) {
                continue;
            }
            let object = if pattern.class == "name" {
                capitalise(&object)
            } else {
                object
            };
            let objects = self.split_list(pattern, &object);
            return objects
                .iter()
                .map(|object| self.build_claim(pattern, clause, &subject, object, &group))
                .collect();
        }
        Vec::new()
    }

    /// Returns the subject of a clause without a subject: the speaker.
    fn unsaid_subject(&self) -> Option<Party> {
        let may_omit = !self.is_korean() || self.voice == ClaimVoice::Player;
        self.voice.first_person().filter(|_| may_omit)
    }

    fn is_allowed(&self, pattern: &Pattern, object: &str, explicit: bool) -> bool {
        let lower = object.to_lowercase();
        let bare = without_article(&lower);
        let tokens: Vec<&str> = bare.split(' ').collect();
        let first = tokens[0];
        let last = tokens[tokens.len() - 1];
        pattern.needs.iter().all(|need| match need.as_str() {
            // A name has a capital letter, and is not a common first word of a sentence.
            "N" => {
                object
                    .chars()
                    .next()
                    .is_some_and(|c| c.is_uppercase() || korean::is_hangul(c))
                    && tokens.len() <= 3
                    // "Tom's brother" is not a name.
                    && !object.contains("'s ")
                    && !self.lexicon.is_in_list("not_names", first)
                    && !self.lexicon.is_in_list("demonyms", first)
                    && !self.lexicon.is_in_list("vague", bare)
            }
            // The sentence says explicitly that the word is a name, so lower case is accepted.
            "n" => {
                tokens.len() <= 3
                    && !self.lexicon.is_in_list("not_names", first)
                    && !self.lexicon.is_in_list("vague", bare)
            }
            "1" => tokens.len() == 1 && bare.chars().count() <= 12,
            "R" => self.voice == ClaimVoice::Record,
            "K" => {
                explicit || tokens.iter().any(|token| self.lexicon.knows_word(token)) || self.lexicon.knows_word(bare)
            }
            need => {
                let (mark, name) = need.split_at(1);
                match mark {
                    "!" if self.is_korean() => {
                        !self.lexicon.is_in_list(name, last) && !self.lexicon.is_in_list(name, bare)
                    }
                    "!" => ![bare, first, last]
                        .iter()
                        .any(|word| self.lexicon.is_in_list(name, word)),
                    "@" => self.lexicon.is_in_list(name, bare),
                    // `%category`: the object, or its last word, must be in the category.
                    _ => [bare, last]
                        .iter()
                        .any(|word| self.lexicon.categories_of(word).iter().any(|c| c == name)),
                }
            }
        })
    }

    fn build_claim<'t>(
        &self,
        pattern: &Pattern,
        clause: &Clause,
        subject: &Party,
        object: &str,
        group: &dyn Fn(&str) -> &'t str,
    ) -> ParsedClaim {
        let category = Some(group("c")).filter(|c| !c.is_empty()).map(str::to_lowercase);
        let slots = Slots {
            subject: self.display_name(subject),
            plural: self.is_plural(subject),
            object,
            category: category.as_deref().unwrap_or_default(),
            other: group("p"),
            verb: group("v"),
            count: group("q"),
            now: clause.now,
        };
        let content = if self.is_korean() {
            render_korean(&pattern.content, &slots)
        } else {
            capitalise(&render_english(&pattern.content, &slots))
        };
        let verb = slots.verb.to_lowercase();
        let predicate = pattern
            .predicate
            .replace("{v}", &verb)
            .replace("{V}", &verb)
            .replace("{C}", slots.category);
        let bare = if self.is_korean() {
            object.to_owned()
        } else {
            without_article_cased(object).to_owned()
        };
        ParsedClaim {
            language: self.lexicon.language,
            class: pattern.class.clone(),
            subject: subject.clone(),
            subject_name: match subject {
                Party::Player => "player".to_owned(),
                Party::Npc => self.npc.to_owned(),
                Party::Other(name) => name.clone(),
            },
            keywords: self.claim_keywords(pattern, subject, &bare, category.as_deref()),
            category: (pattern.class == "favourite")
                .then_some(category)
                .flatten()
                .map(|c| self.lexicon.listed_form(&c).to_owned()),
            now: clause.now || predicate.starts_with("now "),
            predicate,
            object: bare,
            content,
            kind: pattern.kind,
            polarity: pattern.polarity,
            tense: pattern.tense,
            importance: pattern.importance,
        }
    }

    fn is_plural(&self, subject: &Party) -> bool {
        matches!(subject, Party::Other(name) if self.lexicon.is_in_list("plural_rel", name.rsplit(' ').next().unwrap_or_default()))
    }

    /// Returns keywords: specific words first, then their categories, then the pattern's own keywords.
    fn claim_keywords(&self, pattern: &Pattern, subject: &Party, object: &str, category: Option<&str>) -> Vec<String> {
        let mut keywords: Vec<String> = Vec::new();
        let mut add = |word: &str| {
            if !word.is_empty() && !keywords.iter().any(|other| other == word) && keywords.len() < 14 {
                keywords.push(word.to_owned());
            }
        };
        let tokens: Vec<String> = lower_case_words(object)
            .into_iter()
            .map(|word| {
                if self.is_korean() {
                    strip_particle(self.lexicon, &word).to_owned()
                } else {
                    word
                }
            })
            .filter(|word| !self.lexicon.is_in_list("stopwords", word))
            .collect();
        let terms = self.lexicon.terms_in(&tokens);
        for word in &terms {
            add(word);
        }
        for word in &tokens {
            add(word);
        }
        for word in &terms {
            for broader in self.lexicon.categories_of(word) {
                add(broader);
            }
        }
        if let Some(category) = category {
            add(self.lexicon.listed_form(category));
            for broader in self.lexicon.categories_of(category) {
                add(broader);
            }
        }
        for word in &pattern.keywords {
            add(word);
        }
        if let Party::Other(name) = subject {
            let last = name.rsplit(' ').next().unwrap_or(name).to_lowercase();
            add(&last);
            for broader in self.lexicon.categories_of(&last) {
                add(broader);
            }
        }
        keywords
    }
}

/// Returns a Korean word without its final particle.
pub(super) fn strip_particle<'a>(lexicon: &Lexicon, word: &'a str) -> &'a str {
    if lexicon.knows_word(word) || lexicon.is_category(word) {
        return word;
    }
    let mut best: Option<&str> = None;
    for particle in lexicon.word_list("particles") {
        if let Some(stem) = word.strip_suffix(particle.as_str()).filter(|stem| !stem.is_empty()) {
            if lexicon.knows_word(stem) || lexicon.is_category(stem) {
                return stem;
            }
            let fits = stem.chars().count() >= 2 && korean::can_follow(stem, particle);
            if fits && best.is_none_or(|best| stem.len() < best.len()) {
                best = Some(stem);
            }
        }
    }
    best.unwrap_or(word)
}
