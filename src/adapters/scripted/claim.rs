//! Claims: what a clause states, about whom, in a sentence of its own.
//!
//! The same patterns read what a player says ("I like grapes"), what an NPC says of itself, and the
//! stored sentences ("The player likes grapes."), so that memories can be compared and answered from.

use super::{
    clauses::{self, Clause},
    korean,
    lexicon::{self, Lexicon, Pattern},
};
use crate::memory::{
    authored::Language,
    fact::{FactKind, Polarity, Tense},
};

/// Who a claim is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Party {
    Player,
    Npc,
    /// Anyone else, as named: "Mira", "the player's sister".
    Other(String),
}

/// Whose words are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Voice {
    Player,
    Npc,
    /// A stored sentence: nobody is "I" or "you".
    Record,
}

impl Voice {
    fn me(self) -> Option<Party> {
        match self {
            Self::Player => Some(Party::Player),
            Self::Npc => Some(Party::Npc),
            Self::Record => None,
        }
    }
    /// What an NPC says about "you" only repeats the player; it is not read.
    fn you(self) -> Option<Party> {
        (self == Self::Player).then_some(Party::Npc)
    }
}

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    pub language: Language,
    pub class: String,
    pub subject: Party,
    /// The subject as a fact names it: `player`, the NPC's name, or the name of another.
    pub subject_name: String,
    pub predicate: String,
    /// Without articles.
    pub object: String,
    /// "fruit" in "my favourite fruit is …".
    pub category: Option<String>,
    pub content: String,
    pub kind: FactKind,
    pub polarity: Polarity,
    pub tense: Tense,
    pub importance: u8,
    pub keywords: Vec<String>,
}

impl Claim {
    /// Whether both state the same, whatever the wording.
    pub fn says_same(&self, other: &Self) -> bool {
        self.class == other.class
            && self.subject == other.subject
            && self.polarity == other.polarity
            && self.tense == other.tense
            && self.same_object(other)
    }
    /// Whether both are about the same thing.
    pub fn same_object(&self, other: &Self) -> bool {
        let lexicon = lexicon::of(self.language);
        self.category == other.category && base_words(lexicon, &self.object) == base_words(lexicon, &other.object)
    }
}

fn base_words(lexicon: &Lexicon, text: &str) -> Vec<String> {
    words(text)
        .into_iter()
        .filter(|word| !["a", "an", "the"].contains(&word.as_str()))
        .map(|word| lexicon.base(&word).to_owned())
        .collect()
}

/// The lower-case words of a text.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '\'')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Reads everything a text states. `npc` is the NPC's name, empty if not known.
pub(super) fn read(text: &str, voice: Voice, npc: &str) -> Vec<Claim> {
    let language = lexicon::language_of(text);
    let lexicon = lexicon::of(language);
    let reader = Reader { lexicon, voice, npc };
    let mut claims = Vec::new();
    let mut before = Before::default();
    for clause in clauses::clauses(language, text, npc) {
        reader.read_clause(&clause, &mut before, &mut claims);
    }
    claims
}

/// Reads one stored sentence.
pub(super) fn of_record(content: &str, npc: &str) -> Option<Claim> {
    read(content, Voice::Record, npc).into_iter().next()
}

/// Who the clauses before were about: in Korean a subject left out is the one before.
#[derive(Default)]
struct Before {
    sentence: usize,
    subject: Option<Result<Party, ()>>,
}

struct Reader<'a> {
    lexicon: &'static Lexicon,
    voice: Voice,
    npc: &'a str,
}

/// What a pattern's subject turned out to be.
enum Subject {
    Is(Party),
    /// Nobody in particular, or somebody the words do not tell.
    Unclear,
}

impl Reader<'_> {
    fn korean(&self) -> bool {
        self.lexicon.language == Language::Ko
    }

    fn read_clause(&self, clause: &Clause, before: &mut Before, out: &mut Vec<Claim>) {
        let mut matched_subject = None;
        let mut matched = false;
        for pattern in &self.lexicon.patterns {
            let Some(found) = pattern.regex.captures(&clause.text) else {
                continue;
            };
            let group = |name: &str| found.name(name).map_or("", |m| m.as_str().trim());
            let said = group("s");
            let subject = if said.is_empty() {
                self.unsaid_subject(before, clause.sentence)
            } else {
                self.subject(said)
            };
            let subject = match subject {
                Subject::Is(subject) => subject,
                // "my name": no relative of anybody; another pattern may know better.
                Subject::Unclear if !self.korean() && said.contains(' ') => continue,
                Subject::Unclear => {
                    matched_subject = Some(Err(()));
                    break;
                }
            };
            let particle = found.name("j").or_else(|| found.name("cop")).map_or("", |m| m.as_str());
            let Some(object) = self.object(group("o"), particle) else {
                continue;
            };
            if !self.allowed(pattern, clause, &object, !said.is_empty()) {
                continue;
            }
            for object in self.split_list(pattern, &object) {
                out.push(self.claim(pattern, clause, &subject, &object, &group));
            }
            if !said.is_empty() {
                matched_subject = Some(Ok(subject));
            }
            matched = true;
            break;
        }
        if matched_subject.is_none() && !matched && self.korean() {
            matched_subject = self.leading_subject(&clause.text);
        }
        if matched_subject.is_some() || before.sentence != clause.sentence {
            let carried = before.subject.take();
            before.subject = matched_subject.or(carried);
        }
        before.sentence = clause.sentence;
    }

    /// The subject of a clause that names none: the speaker, unless somebody else was just spoken of.
    fn unsaid_subject(&self, before: &Before, sentence: usize) -> Subject {
        if !self.korean() {
            return self.voice.me().map_or(Subject::Unclear, Subject::Is);
        }
        if self.voice != Voice::Player {
            return Subject::Unclear;
        }
        match &before.subject {
            None | Some(Ok(Party::Player)) => Subject::Is(Party::Player),
            Some(Ok(party)) if before.sentence == sentence => Subject::Is(party.clone()),
            Some(_) => Subject::Unclear,
        }
    }

    /// Who a clause that matched nothing begins with ("내 동생은 어제 왔는데 …").
    fn leading_subject(&self, text: &str) -> Option<Result<Party, ()>> {
        let first = text.split(' ').next()?;
        let two = text.match_indices(' ').nth(1).map_or(text, |(at, _)| &text[..at]);
        let topic = |t: &str| ["은", "는", "이", "가"].iter().any(|end| t.ends_with(end)) && t.chars().count() > 2;
        if ["내 ", "제 ", "우리 ", "네 ", "너의 ", "당신의 "]
            .iter()
            .any(|p| text.starts_with(p))
            && topic(two)
        {
            return Some(match self.subject(two) {
                Subject::Is(party) => Ok(party),
                Subject::Unclear => Err(()),
            });
        }
        match self.korean_pronoun(first) {
            Some(party) => Some(party.ok_or(())),
            None if topic(first) && text.contains(' ') => Some(match self.subject(first) {
                Subject::Is(party) => Ok(party),
                Subject::Unclear => Err(()),
            }),
            None => None,
        }
    }

    fn korean_pronoun(&self, word: &str) -> Option<Option<Party>> {
        if self.lexicon.alternatives("ME").any(|form| form == word)
            || ["나의", "저의", "내", "제", "날", "나를", "저를", "절"].contains(&word)
        {
            Some(self.voice.me())
        } else if self.lexicon.alternatives("YOU").any(|form| form == word)
            || ["네", "니", "너의", "당신의", "자네의"].contains(&word)
        {
            Some(self.voice.you())
        } else {
            None
        }
    }

    fn subject(&self, said: &str) -> Subject {
        let party = if self.korean() {
            self.korean_subject(said)
        } else {
            self.english_subject(said)
        };
        party.map_or(Subject::Unclear, Subject::Is)
    }

    fn english_subject(&self, said: &str) -> Option<Party> {
        let said = said
            .strip_suffix("'s")
            .or_else(|| said.strip_suffix('\''))
            .unwrap_or(said);
        let lower = said.to_lowercase();
        match lower.as_str() {
            "i" | "my" | "me" => return self.voice.me(),
            "you" | "your" => return self.voice.you(),
            "the player" => return Some(Party::Player),
            _ => {}
        }
        let relative = |rest: &str| {
            self.lexicon
                .lists("relations", rest.rsplit(' ').next().unwrap_or_default())
        };
        if let Some(rest) = lower.strip_prefix("my ") {
            return relative(rest).then_some(Party::Other(format!("{} {rest}", self.owner(&self.voice.me()?))));
        }
        if let Some(rest) = lower.strip_prefix("your ") {
            return relative(rest).then_some(Party::Other(format!("{} {rest}", self.owner(&self.voice.you()?))));
        }
        if let Some((owner, rest)) = said.split_once("'s ") {
            let known = owner == "The player"
                || owner == "the player"
                || !self.lexicon.lists("not_names", &owner.to_lowercase());
            let owner = if owner == "The player" { "the player" } else { owner };
            return (known && relative(rest)).then(|| Party::Other(format!("{owner}'s {rest}")));
        }
        if !self.npc.is_empty() && (said == self.npc || self.npc.split(' ').next() == Some(said)) {
            return Some(Party::Npc);
        }
        let first = lower.split([' ', '\'']).next().unwrap_or_default();
        let common = self.lexicon.lists("not_names", first)
            || (self.lexicon.knows(&lower) && self.lexicon.base(&lower) != "rose")
            || self.lexicon.is_category(&lower)
            || self.lexicon.lists("demonyms", &lower);
        (!common).then(|| Party::Other(said.to_owned()))
    }

    fn korean_subject(&self, said: &str) -> Option<Party> {
        if let Some(pronoun) = self.korean_pronoun(said) {
            return pronoun;
        }
        if !self.npc.is_empty() {
            if let Some(rest) = said.strip_prefix(self.npc) {
                let rest = rest.trim_start_matches(" 씨");
                if rest.chars().count() <= 3 && !rest.contains(' ') {
                    return Some(Party::Npc);
                }
            }
        }
        let (owner, rest) = said.split_once(' ').unwrap_or(("", said));
        let name = if self.lexicon.knows(rest) {
            rest
        } else {
            strip_subject_particle(rest)?
        };
        if !owner.is_empty() {
            let owner = match owner {
                "내" | "제" | "우리" | "저희" | "나의" => self.owner(&self.voice.me()?),
                "네" | "니" | "너의" | "당신의" | "당신" | "자네" => self.owner(&self.voice.you()?),
                named if named.ends_with('의') => named.to_owned(),
                // "미라 씨는"
                named if name == "씨" => return Some(Party::Other(named.to_owned())),
                _ => return None,
            };
            return Some(Party::Other(format!("{owner} {}", name.trim_end_matches('의'))));
        }
        if name == "플레이어" || name == "플레이어의" {
            return Some(Party::Player);
        }
        let name = name.strip_suffix('의').unwrap_or(name);
        // "과일은 포도가 좋아": a topic, not a person.
        if self.lexicon.is_category(name) && self.voice != Voice::Record {
            return self.voice.me();
        }
        let person = self
            .lexicon
            .categories(name)
            .iter()
            .any(|c| c == "직업" || c == "가족" || c == "친구");
        let common = name.chars().count() < 2
            || self.lexicon.lists("not_names", name)
            || (self.lexicon.knows(name) && !person)
            || self.lexicon.is_category(name);
        (!common).then(|| Party::Other(name.to_owned()))
    }

    /// A party as the owner of something, inside a sentence.
    fn owner(&self, party: &Party) -> String {
        if self.korean() {
            format!("{}의", self.shown(party))
        } else {
            format!("{}'s", self.shown(party))
        }
    }

    /// A party inside a sentence.
    fn shown(&self, party: &Party) -> String {
        match (party, self.korean()) {
            (Party::Player, false) => "the player".to_owned(),
            (Party::Player, true) => "플레이어".to_owned(),
            (Party::Npc, _) => self.npc.to_owned(),
            (Party::Other(name), _) => name.clone(),
        }
    }

    /// The object without tails, pronouns resolved; `None` if it cannot be understood on its own.
    fn object(&self, raw: &str, particle: &str) -> Option<String> {
        let object = if self.korean() {
            self.korean_object(raw, particle)?
        } else {
            self.english_object(raw)?
        };
        let tokens = object.split(' ').count();
        (!object.is_empty() && object.chars().count() <= 80 && tokens <= 12).then_some(object)
    }

    fn english_object(&self, raw: &str) -> Option<String> {
        let mut text = raw.trim();
        let lower = text.to_lowercase();
        let cut = [
            " because ",
            " since ",
            " when ",
            " while ",
            " although ",
            " though ",
            " so that ",
            " as long as ",
            " which ",
            " and then ",
        ]
        .iter()
        .filter_map(|tail| lower.find(tail))
        .min();
        // Both have the same length where the tail was found: it is ASCII, and so is what precedes it mostly.
        if let Some(cut) = cut {
            text = text.get(..cut)?.trim();
        }
        loop {
            let lower = text.to_lowercase();
            let tail = self
                .lexicon
                .list("tails")
                .iter()
                .filter(|tail| {
                    lower
                        .strip_suffix(tail.as_str())
                        .is_some_and(|rest| rest.ends_with([' ', ',']))
                })
                .max_by_key(|tail| tail.len());
            match tail {
                Some(tail) => {
                    text = text
                        .get(..text.len().checked_sub(tail.len())?)?
                        .trim_end_matches([' ', ','])
                }
                None => break,
            }
        }
        let text = text.trim_matches(|c: char| !c.is_alphanumeric());
        let lower = text.to_lowercase();
        let first = lower.split(' ').next().unwrap_or_default();
        if self.lexicon.lists("pronoun_heads", first) || self.lexicon.lists("pronoun_heads", &lower) {
            return None;
        }
        let mut out = Vec::new();
        for word in text.split(' ') {
            let resolved = match word.to_lowercase().as_str() {
                "i" => return None,
                "me" | "myself" => self.shown(&self.voice.me()?),
                "my" => self.owner(&self.voice.me()?),
                "you" | "yourself" => self.named_you()?,
                "your" => format!("{}'s", self.named_you()?),
                _ => word.to_owned(),
            };
            out.push(resolved);
        }
        Some(out.join(" "))
    }

    /// "you" as an object: the other one, also where an NPC says it.
    fn named_you(&self) -> Option<String> {
        match self.voice {
            Voice::Player => (!self.npc.is_empty()).then(|| self.npc.to_owned()),
            Voice::Npc => Some(self.shown(&Party::Player)),
            Voice::Record => None,
        }
    }

    fn korean_object(&self, raw: &str, particle: &str) -> Option<String> {
        let mut text = raw.trim().trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
        // A past stem is a verb's, not a noun's: "말씀드렸죠" names nothing.
        if text.chars().next_back().is_some_and(korean::is_past_stem) {
            return None;
        }
        let joined = format!("{text}{}", particle.chars().next().unwrap_or_default());
        // What looked like a particle may be the end of the noun: 고양이, 어린이.
        let whole = self.knows_head(&joined) && !self.knows_head(&text);
        if !particle.is_empty() && (whole || particle.starts_with('이') && !korean::closes(&text)) {
            text = joined;
        } else if !particle.is_empty() && !korean::fits(&text, particle) {
            text.push_str(particle);
        }
        let first = text.split(' ').next().unwrap_or_default().to_owned();
        if self.lexicon.lists("pronoun_heads", &first) || text.split(' ').count() > 6 {
            return None;
        }
        let you = self.named_you();
        match text.as_str() {
            "너" | "네" | "니" | "당신" | "자네" => return you,
            "나" | "저" => return Some(self.shown(&self.voice.me()?)),
            _ => {}
        }
        for (forms, party) in [
            (["너", "자네", "당신", "그대"], &you),
            (["나", "저", "내", "제"], &self.voice.me().map(|me| self.shown(&me))),
        ] {
            text = self.name_pronouns(&text, &forms, party.as_deref())?;
        }
        if let Some((owner, rest)) = text.split_once(' ') {
            let owner = match owner {
                "내" | "제" | "나의" | "우리" => Some(self.owner(&self.voice.me()?)),
                "네" | "니" | "너의" | "당신의" => Some(format!("{}의", you?)),
                _ => None,
            };
            if let Some(owner) = owner {
                return Some(format!("{owner} {rest}"));
            }
        }
        Some(text)
    }

    /// "자네를 지키겠다고" → "플레이어를 지키겠다고"; `None` if a pronoun stands for nobody.
    fn name_pronouns(&self, text: &str, forms: &[&str], name: Option<&str>) -> Option<String> {
        let mut out = Vec::new();
        for token in text.split(' ') {
            let particle = forms
                .iter()
                .filter_map(|form| token.strip_prefix(form))
                .find(|rest| ["를", "을", "에게", "한테", "와", "과"].contains(rest));
            out.push(match particle {
                Some("를" | "을") => format!("{}{}", name?, korean::particle(name?, "을")),
                Some("와" | "과") => format!("{}{}", name?, korean::particle(name?, "과")),
                Some(particle) => format!("{}{particle}", name?),
                None => token.to_owned(),
            });
        }
        Some(out.join(" "))
    }

    fn knows_head(&self, text: &str) -> bool {
        let head = text.rsplit(' ').next().unwrap_or_default();
        self.lexicon.knows(head) || self.lexicon.knows(text)
    }

    fn allowed(&self, pattern: &Pattern, clause: &Clause, object: &str, explicit: bool) -> bool {
        let lower = object.to_lowercase();
        let bare = without_article(&lower);
        let tokens: Vec<&str> = bare.split(' ').collect();
        let (first, last) = (tokens[0], tokens[tokens.len() - 1]);
        pattern.needs.iter().all(|need| match need.as_str() {
            // A name: a capital, and no word that merely begins a sentence.
            "N" => {
                object
                    .chars()
                    .next()
                    .is_some_and(|c| c.is_uppercase() || korean::is_hangul(c))
                    && tokens.len() <= 3
                    && !self.lexicon.lists("not_names", first)
                    && !self.lexicon.lists("demonyms", first)
                    && !self.lexicon.lists("vague", bare)
            }
            "1" => tokens.len() == 1 && bare.chars().count() <= 12,
            "P" => clause.past,
            "R" => self.voice == Voice::Record,
            "K" => explicit || tokens.iter().any(|token| self.lexicon.knows(token)) || self.lexicon.knows(bare),
            need => {
                let (mark, name) = need.split_at(1);
                match mark {
                    "!" if self.korean() => !self.lexicon.lists(name, last) && !self.lexicon.lists(name, bare),
                    "!" => ![bare, first, last].iter().any(|word| self.lexicon.lists(name, word)),
                    "@" => self.lexicon.lists(name, bare),
                    "-" => !self.lexicon.list(name).iter().any(|end| bare.ends_with(end.as_str())),
                    // `%category`: the object, or its last word, is of it.
                    _ => [bare, last]
                        .iter()
                        .any(|word| self.lexicon.categories(word).iter().any(|c| c == name)),
                }
            }
        })
    }

    /// "apples and grapes" are two likings; "fish and chips", of which not every part is known, is one.
    fn split_list(&self, pattern: &Pattern, object: &str) -> Vec<String> {
        if !matches!(pattern.class.as_str(), "like" | "allergy" | "fear" | "cannot" | "eat") {
            return vec![object.to_owned()];
        }
        let parts: Vec<String> = if self.korean() {
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
        let known = |part: &String| {
            let lower = part.to_lowercase();
            let bare = without_article(&lower);
            self.lexicon.knows(bare) || self.lexicon.is_category(bare) || self.knows_head(bare)
        };
        if parts.len() > 1 && parts.iter().all(known) {
            parts
        } else {
            vec![object.to_owned()]
        }
    }

    fn claim<'t>(
        &self,
        pattern: &Pattern,
        clause: &Clause,
        subject: &Party,
        object: &str,
        group: &dyn Fn(&str) -> &'t str,
    ) -> Claim {
        let category = Some(group("c")).filter(|c| !c.is_empty()).map(str::to_lowercase);
        let slots = Slots {
            subject: self.shown(subject),
            plural: self.is_plural(subject),
            object,
            category: category.as_deref().unwrap_or_default(),
            other: group("p"),
            verb: group("v"),
            count: group("q"),
            now: clause.now,
        };
        let content = if self.korean() {
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
        let bare = if self.korean() {
            object.to_owned()
        } else {
            without_article_cased(object).to_owned()
        };
        Claim {
            language: self.lexicon.language,
            class: pattern.class.clone(),
            subject: subject.clone(),
            subject_name: match subject {
                Party::Player => "player".to_owned(),
                Party::Npc => self.npc.to_owned(),
                Party::Other(name) => name.clone(),
            },
            keywords: self.keywords(pattern, subject, &bare, category.as_deref()),
            category: (pattern.class == "favourite")
                .then_some(category)
                .flatten()
                .map(|c| self.lexicon.base(&c).to_owned()),
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
        matches!(subject, Party::Other(name) if self.lexicon.lists("plural_rel", name.rsplit(' ').next().unwrap_or_default()))
    }

    /// Specific words first, then what they are kinds of, then what the pattern adds.
    fn keywords(&self, pattern: &Pattern, subject: &Party, object: &str, category: Option<&str>) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut add = |word: &str| {
            if !word.is_empty() && !found.iter().any(|known| known == word) && found.len() < 14 {
                found.push(word.to_owned());
            }
        };
        let tokens: Vec<String> = words(object)
            .into_iter()
            .map(|word| {
                if self.korean() {
                    strip_particle(self.lexicon, &word).to_owned()
                } else {
                    word
                }
            })
            .filter(|word| !self.lexicon.lists("stopwords", word))
            .collect();
        let terms = self.lexicon.terms_in(&tokens);
        for word in &terms {
            add(word);
        }
        for word in &tokens {
            add(word);
        }
        for word in &terms {
            for broader in self.lexicon.categories(word) {
                add(broader);
            }
        }
        if let Some(category) = category {
            add(self.lexicon.base(category));
            for broader in self.lexicon.categories(category) {
                add(broader);
            }
        }
        for word in &pattern.keywords {
            add(word);
        }
        if let Party::Other(name) = subject {
            let last = name.rsplit(' ').next().unwrap_or(name).to_lowercase();
            add(&last);
            for broader in self.lexicon.categories(&last) {
                add(broader);
            }
        }
        found
    }
}

struct Slots<'a> {
    subject: String,
    plural: bool,
    object: &'a str,
    category: &'a str,
    other: &'a str,
    verb: &'a str,
    count: &'a str,
    now: bool,
}

/// Fills `{…}`: `{S}`, `{S's}`, `{O}`, `{O:s}` (its first word in the third person), `{A O}` (with an
/// article), `{C}`, `{P}`, `{V}`, `{V:s}`, and `{one|many}` by the subject's number.
fn render_english(template: &str, slots: &Slots) -> String {
    fill(template, |token| match token {
        "S" => slots.subject.clone(),
        "S's" => format!("{}'s", slots.subject),
        "O" => slots.object.to_owned(),
        "O:s" => match slots.object.split_once(' ') {
            Some((verb, rest)) if !slots.plural => format!("{} {rest}", third_person(verb)),
            None if !slots.plural => third_person(slots.object),
            _ => slots.object.to_owned(),
        },
        "A O" => with_article(slots.object),
        "C" => slots.category.to_owned(),
        "P" => slots.other.to_lowercase(),
        "V" => slots.verb.to_lowercase(),
        "V:s" if slots.plural => slots.verb.to_lowercase(),
        "V:s" => third_person(&slots.verb.to_lowercase()),
        "Q" => String::new(),
        token => {
            let (one, many) = token.split_once('|').unwrap_or((token, token));
            if slots.plural { many } else { one }.to_owned()
        }
    })
}

/// Fills `{…}`: `{S}`, `{O}`, `{C}`, `{P}`, `{V}`, `{Q}`, `{NOW}`, and `{X:은}` with the particle that fits.
fn render_korean(template: &str, slots: &Slots) -> String {
    fill(template, |token| {
        let (name, particle) = token.split_once(':').unwrap_or((token, ""));
        let word = match name {
            "S" => slots.subject.as_str(),
            "O" => slots.object,
            "C" => slots.category,
            "P" => slots.other,
            "V" => slots.verb,
            "NOW" => {
                return if slots.now {
                    "더 이상 ".to_owned()
                } else {
                    String::new()
                };
            }
            "Q" if slots.count.is_empty() => return String::new(),
            "Q" => return format!("{} ", slots.count),
            _ => "",
        };
        if particle.is_empty() {
            word.to_owned()
        } else {
            format!("{word}{}", korean::particle(word, particle))
        }
    })
}

fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let (token, after) = after.split_once('}').unwrap_or((after, ""));
        out.push_str(&value(token));
        rest = after;
    }
    out.push_str(rest);
    out
}

pub(super) fn capitalise(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// "like" → "likes", "study" → "studies", "teach" → "teaches".
fn third_person(verb: &str) -> String {
    if verb.ends_with('y') && !["ay", "ey", "oy", "uy"].iter().any(|end| verb.ends_with(end)) {
        format!("{}ies", &verb[..verb.len() - 1])
    } else if ["s", "x", "z", "ch", "sh", "o"].iter().any(|end| verb.ends_with(end)) {
        format!("{verb}es")
    } else {
        format!("{verb}s")
    }
}

fn without_article(text: &str) -> &str {
    ["a ", "an ", "the "]
        .iter()
        .find_map(|article| text.strip_prefix(article))
        .unwrap_or(text)
}

fn without_article_cased(text: &str) -> &str {
    // "the player's brother" is a name, not a thing with an article.
    if text.starts_with("the player") {
        return text;
    }
    ["a ", "an ", "the ", "A ", "An ", "The "]
        .iter()
        .find_map(|article| text.strip_prefix(article))
        .unwrap_or(text)
}

fn with_article(text: &str) -> String {
    let bare = without_article_cased(text);
    let vowel = bare.chars().next().is_some_and(|c| "aeiouAEIOU".contains(c));
    format!("{} {bare}", if vowel { "an" } else { "a" })
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
            if end.starts_with('이') && end.len() > 3 && !korean::closes(stem) {
                continue;
            }
            return korean::fits(stem, particle).then_some(stem);
        }
    }
    Some(word)
}

/// A Korean word without the particle at its end.
pub(super) fn strip_particle<'a>(lexicon: &Lexicon, word: &'a str) -> &'a str {
    if lexicon.knows(word) || lexicon.is_category(word) {
        return word;
    }
    let mut best: Option<&str> = None;
    for particle in lexicon.list("particles") {
        if let Some(stem) = word.strip_suffix(particle.as_str()).filter(|stem| !stem.is_empty()) {
            if lexicon.knows(stem) || lexicon.is_category(stem) {
                return stem;
            }
            let fits = stem.chars().count() >= 2 && korean::fits(stem, particle);
            if fits && best.is_none_or(|best| stem.len() < best.len()) {
                best = Some(stem);
            }
        }
    }
    best.unwrap_or(word)
}

/// "사과랑 포도", "사과와 포도", "사과, 포도" → the parts.
fn split_korean_list(object: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for token in object.split(' ') {
        let (stem, ends) = if let Some(stem) = token.strip_suffix(',') {
            (stem, true)
        } else if let Some(stem) = ["이랑", "하고"].iter().find_map(|end| token.strip_suffix(end)) {
            (stem, true)
        } else if let Some(stem) = token.strip_suffix('랑').or_else(|| token.strip_suffix('와')) {
            if korean::closes(stem) {
                (token, false)
            } else {
                (stem, true)
            }
        } else if let Some(stem) = token.strip_suffix('과').filter(|stem| korean::closes(stem)) {
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
