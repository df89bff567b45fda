//! Reads the question of a line: its subject, the classes of claims that answer it, and its nouns.

use super::{
    claim::{self, Party, lower_case_words},
    clauses,
    lexicon::{self, Lexicon},
    prompt_memory::listed_form,
};
use colloquy_memory::authored::Language;

/// A parsed question.
#[derive(Debug, Default)]
pub(super) struct ParsedQuestion {
    pub subject: Option<Party>,
    /// Classes of claims that would answer the question.
    pub classes: Vec<String>,
    /// The question's nouns, in listed forms.
    pub nouns: Vec<String>,
    pub past: bool,
    pub yes_no: bool,
    /// "Do you remember …": the question asks for a memory on any topic.
    pub recall: bool,
}

impl ParsedQuestion {
    /// Returns the question "What is my name?"
    pub fn for_name() -> Self {
        Self {
            subject: Some(Party::Player),
            classes: vec!["name".to_owned()],
            ..Self::default()
        }
    }
}

/// Reads the last question of a line; `None` if the line has no question.
pub(super) fn read_question(line: &str, npc: &str) -> Option<ParsedQuestion> {
    let language = lexicon::language_of(line);
    let lexicon = lexicon::lexicon_of(language);
    let sentence = line
        .split_inclusive(['.', '!', '?', '？', '\n'])
        .rfind(|sentence| clauses::is_question(language, sentence) || asks_to_tell(lexicon, sentence))?;
    let normal = lexicon.normalise_text(sentence.trim());
    let mut lower = normal.to_lowercase();
    let mut question = ParsedQuestion::default();
    for noise in lexicon.word_list("question_noise") {
        if let Some(start) = find_words(&lower, noise) {
            question.recall = true;
            lower.replace_range(start..start + noise.len(), " ");
        }
    }
    let first = lower_case_words(&lower).into_iter().next().unwrap_or_default();
    question.yes_no = ["do", "does", "am", "is", "are", "have", "did", "can", "was"].contains(&first.as_str())
        || (language == Language::Ko && !clauses::has_question_word(&lower));
    for (pattern, classes) in &lexicon.questions {
        if pattern.is_match(&lower) {
            question.classes.clone_from(classes);
            break;
        }
    }
    // "Can I eat …?" is not answered by "yes, you are allergic".
    let of_limits = question.classes.iter().any(|class| class == "cannot")
        && !["allerg", "알레르기"].iter().any(|word| lower.contains(word));
    question.yes_no &= !of_limits;
    regex!(PAST, "used to| before|예전|옛날|좋아하던|좋아했던");
    question.past = PAST.is_match(&lower);
    question.subject = match language {
        Language::En => english_subject(lexicon, &normal, &lower, npc),
        Language::Ko => korean_subject(lexicon, &lower, npc),
    };
    let subject_words = match &question.subject {
        Some(Party::Other(name)) => lower_case_words(name),
        _ => Vec::new(),
    };
    for word in lower_case_words(&lower) {
        let word = listed_form(lexicon, &word);
        let is_stopword =
            lexicon.is_in_list("stopwords", &word) || word.chars().count() < 2 && !lexicon.knows_word(&word);
        if is_stopword || subject_words.contains(&word) {
            continue;
        }
        if let Some(other) = lexicon
            .word_list("bridge")
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .find(|(ko, _)| *ko == word)
        {
            question.nouns.push(other.1.to_owned());
        }
        question.nouns.push(word);
    }
    Some(question)
}

fn asks_to_tell(lexicon: &Lexicon, sentence: &str) -> bool {
    let lower = sentence.trim().to_lowercase();
    regex!(
        TELL,
        "tell me (?:what|my|where|who|how old|about my)|remind me (?:what|of my|where)"
    );
    match lexicon.language {
        Language::En => TELL.is_match(&lower),
        Language::Ko => lower
            .trim_end_matches(|c: char| !c.is_alphanumeric())
            .ends_with("기억나"),
    }
}

fn find_words(text: &str, phrase: &str) -> Option<usize> {
    text.match_indices(phrase).map(|(start, _)| start).find(|start| {
        let before = text[..*start].chars().next_back();
        let after = text[*start + phrase.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

fn english_subject(lexicon: &Lexicon, text: &str, lower: &str, npc: &str) -> Option<Party> {
    let words = lower_case_words(lower);
    let after_my = words.iter().skip_while(|word| *word != "my").skip(1).take(3);
    let mut relatives = after_my.map(|word| word.trim_end_matches("'s"));
    if let Some(relative) = relatives.find(|word| lexicon.is_in_list("relations", word)) {
        return Some(Party::Other(relative.to_owned()));
    }
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '-').skip(1) {
        let lower = word.to_lowercase();
        if word.starts_with(char::is_uppercase)
            && !lexicon.is_in_list("not_names", &lower)
            && !lexicon.knows_word(&lower)
        {
            let is_npc = npc.split(' ').any(|part| part == word);
            return Some(if is_npc {
                Party::Npc
            } else {
                Party::Other(word.to_owned())
            });
        }
    }
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    if has(&["i", "my", "me", "mine"]) {
        Some(Party::Player)
    } else {
        has(&["you", "your", "yours"]).then_some(Party::Npc)
    }
}

fn korean_subject(lexicon: &Lexicon, text: &str, npc: &str) -> Option<Party> {
    let words: Vec<&str> = text
        .split_whitespace()
        .map(|word| word.trim_matches(clauses::is_mark))
        .collect();
    for (index, word) in words.iter().enumerate() {
        let stem = claim::strip_particle(lexicon, word);
        if lexicon.is_of(stem, &["가족", "친구", "반려동물"]) {
            return Some(Party::Other(stem.to_owned()));
        }
        if stem == npc || lexicon.is_you(word) || ["네", "너의", "당신의", "자네의"].contains(word) {
            return Some(Party::Npc);
        }
        let is_topic = index == 0 && words.len() > 1 && stem != *word && stem.chars().count() > 1;
        let is_common = lexicon.knows_word(stem) || lexicon.is_category(stem) || lexicon.is_in_list("not_names", stem);
        if is_topic && !is_common && !lexicon.is_me(word) && !stem.contains("좋아하") {
            return Some(Party::Other(stem.to_owned()));
        }
    }
    // A question in the past tense is about an earlier statement of the player.
    let is_own = |word: &&str| lexicon.is_me(word) || ["내", "제", "나의", "나에", "저에"].contains(word);
    let asks_again = ["였지", "더라", "드라", "했지", "라고 했", "기억"]
        .iter()
        .any(|end| text.contains(end));
    (asks_again || words.iter().any(is_own)).then_some(Party::Player)
}
