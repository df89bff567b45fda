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
    let tokens = lower_case_words(lower);
    let family = |word: &str| lexicon.is_of(word, &["family", "friend", "relative", "pet"]);
    for (index, word) in tokens.iter().enumerate() {
        if word == "my" {
            let next: Vec<&str> = tokens[index + 1..]
                .iter()
                .take(3)
                .map(|word| word.trim_end_matches("'s"))
                .collect();
            let is_relative = |word: &&&str| family(word) || lexicon.is_in_list("relations", word);
            if let Some(relative) = next.iter().find(is_relative) {
                return Some(Party::Other((*relative).to_owned()));
            }
        }
    }
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '-').skip(1) {
        let lower = word.to_lowercase();
        if word.chars().next().is_some_and(char::is_uppercase)
            && !lexicon.is_in_list("not_names", &lower)
            && !lexicon.knows_word(&lower)
        {
            let npcs = npc.split(' ').any(|part| part == word);
            return Some(if npcs {
                Party::Npc
            } else {
                Party::Other(word.to_owned())
            });
        }
    }
    let has = |list: &[&str]| tokens.iter().any(|word| list.contains(&word.as_str()));
    if has(&["i", "my", "me", "mine"]) {
        Some(Party::Player)
    } else if has(&["you", "your", "yours"]) {
        Some(Party::Npc)
    } else {
        None
    }
}

fn korean_subject(lexicon: &Lexicon, text: &str, npc: &str) -> Option<Party> {
    let tokens: Vec<&str> = text.split_whitespace().collect();
    let relative = |word: &str| {
        let stem = claim::strip_particle(lexicon, word).to_owned();
        lexicon.is_of(&stem, &["가족", "친구", "반려동물"]).then_some(stem)
    };
    // "내 말 이름이 뭐지": 말 is a horse here, since it has a name.
    for three in tokens.windows(3) {
        let owned = ["내", "제", "우리", "저희"].contains(&three[0]) && three[2].starts_with("이름");
        if owned && lexicon.is_of(three[1], &["동물"]) {
            return Some(Party::Other(three[1].to_owned()));
        }
    }
    for pair in tokens.windows(2) {
        if let Some(name) = relative(pair[1]).filter(|_| ["내", "제", "우리", "저희"].contains(&pair[0])) {
            return Some(Party::Other(name));
        }
    }
    // "누나 이름이 뭐더라", "동생은 뭘 좋아하지": the speaker's own relative.
    for (index, token) in tokens.iter().enumerate() {
        let told_of = tokens.get(index + 1).is_some_and(|next| {
            ["이름", "나이", "생일", "고향", "직업", "취미"]
                .iter()
                .any(|noun| next.starts_with(noun))
        });
        let topic = index == 0 && ["은", "는", "이", "가"].iter().any(|end| token.ends_with(end)) && tokens.len() > 1;
        if let Some(name) = relative(token).filter(|_| told_of || topic) {
            return Some(Party::Other(name));
        }
    }
    for token in &tokens {
        let bare = token.trim_matches(|c: char| !c.is_alphanumeric());
        if lexicon.is_me(bare) || ["내", "제", "나의", "저의", "나를", "날", "저를", "나에", "저에"].contains(&bare)
        {
            return Some(Party::Player);
        }
        if lexicon.is_you(bare) || ["네", "너의", "당신의", "자네의"].contains(&bare) {
            return Some(Party::Npc);
        }
        let topic_name = ["은", "는", "이", "가"]
            .iter()
            .find_map(|end| bare.strip_suffix(end))
            .filter(|stem| stem.chars().count() >= 2);
        if let Some(name) = topic_name {
            if name == npc {
                return Some(Party::Npc);
            }
            let common = lexicon.knows_word(name)
                || lexicon.is_category(name)
                || lexicon.is_in_list("not_names", name)
                || name.contains("좋아하");
            if !common && token.len() > bare.len() - 1 && tokens.first() == Some(token) {
                return Some(Party::Other(name.to_owned()));
            }
        }
    }
    // "좋아하는 과일이 뭐였지": a question in the past tense is about an earlier statement of the player.
    ["였지", "더라", "드라", "했지", "라고 했", "기억"]
        .iter()
        .any(|end| text.contains(end))
        .then_some(Party::Player)
}
