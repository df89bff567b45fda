//! Splits a text into clauses for the patterns, without questions, quotations, suppositions and fillers.

use std::borrow::Cow;

use super::{
    clause_start::strip_start,
    forget_request::is_forget_command,
    lexicon::{self, Lexicon},
};
use colloquy_memory::authored::Language;

/// One clause, without fillers and time words.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Clause {
    pub text: String,
    /// "이제는", "더 이상": newly true.
    pub now: bool,
}

regex!(QUOTED, r#""[^"]*"|“[^”]*”|「[^」]*」|\*[^*]*\*|\([^)]*\)|<[^<>]*>"#);
regex!(SENTENCE, r"[^.!?…~\n;。]+[.!?…~\n;。]*");
regex!(
    EN_QUESTION,
    r"(?i)^(?:(?:what|who|whom|whose|where|why|how|which)\b|when (?:is|are|was|were|do|does|did|will|can|should)\b|(?:do|does|did|am|is|are|was|were|can|could|would|will|shall|should|have|has|had|may|might) (?:i|you|he|she|it|we|they|my|your|the|there|this|that|not|anyone|\p{Lu}\w+)\b)"
);
regex!(
    EN_SUPPOSED,
    r"(?i)^(?:if|unless|suppose|supposing|imagine|pretend|what if|maybe|perhaps|i wish|forget)\b"
);
regex!(
    EN_REPORTED,
    r"(?i)\b(?:says?|said|told|tells?|asks?|asked|claims?|claimed|heard|thinks?|thought|wrote|writes|lied|whispered|shouted)(?: (?:me|you|him|her|us|them))?$"
);
regex!(
    EN_AND,
    r"(?i) (?:and|but|because|so|though|although|while|yet|whereas) (?:now |then |today |these days )?((?:i|you|my|your|he|she|we|they|it|his|her) |(?-i:\p{Lu}\p{L}+) \w+s )"
);
regex!(EN_CONDITION, r"(?i) (?:if|unless|only when|only if) ");
regex!(
    KO_QUESTION_WORD,
    r"(?:^|\s)(?:뭐|뭘|뭔|무엇|무슨|어디|누구|누가|언제|왜(?:\s|$)|어떻게|어떤|어느|몇|얼마|혹시)"
);
regex!(
    KO_QUESTION_END,
    r"(?:니|냐|까|나요|가요|는지|은지|던가|는가|인가|려나|더라|드라)$"
);
regex!(KO_SUPPOSED, r"(?:^|\s)(?:만약|만일|아마|혹여|설마)");
regex!(
    KO_LINK,
    r"(?:지만|는데|은데|인데|한데|거든|니까|(?:하|했|이|였|있|없|았|었|왔|갔|살|않|싫|좋|졌|됐|웠|녔|났|랐)고|하며|으며)$"
);
regex!(KO_AFTER_LINK, r"^(?:있|싶|계|다니|말[고았]|나서)");

/// Returns every clause of `text` that may be a statement. `vocative` is a name which may be addressed at the start.
pub(super) fn split_clauses(language: Language, text: &str, vocative: &str) -> Vec<Clause> {
    let lexicon = lexicon::lexicon_of(language);
    let text = strip_quotations(text);
    let mut clauses = Vec::new();
    for sentence in SENTENCE.find_iter(&text) {
        let sentence = sentence.as_str().trim_matches(|c: char| is_mark(c) && c != '?');
        let normal = lexicon.normalise_text(sentence);
        if sentence.contains('?') || is_forget_command(lexicon, &normal, vocative) {
            continue;
        }
        match language {
            Language::En => split_english(lexicon, &normal, vocative, &mut clauses),
            Language::Ko => split_korean(lexicon, &normal, vocative, &mut clauses),
        }
    }
    clauses
}

/// True for a character around words. "C++" and "C#" end in characters that are marks elsewhere.
pub(super) fn is_mark(c: char) -> bool {
    c.is_whitespace() || c.is_ascii_punctuation() && !matches!(c, '+' | '#' | '\'') || "…。~‘’“”".contains(c)
}

/// Returns the text without quotations, brackets and cue tags.
pub(super) fn strip_quotations(text: &str) -> Cow<'_, str> {
    QUOTED.replace_all(text, " ")
}

/// True if the sentence is a question.
pub(super) fn is_question(language: Language, sentence: &str) -> bool {
    let text = sentence.trim();
    if text.ends_with('?') || text.ends_with('？') {
        return true;
    }
    let text = text.trim_end_matches(|c: char| !c.is_alphanumeric());
    let lexicon = lexicon::lexicon_of(language);
    let normal = lexicon.normalise_text(text);
    match language {
        Language::En => is_english_question(&strip_start(lexicon, &normal, "")),
        Language::Ko => is_korean_question(&normal),
    }
}

fn is_english_question(text: &str) -> bool {
    let exclaims = ["what a ", "what an "].iter().any(|start| {
        text.get(..start.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(start))
    });
    !exclaims && EN_QUESTION.is_match(text)
}

/// True if a Korean question has a question word, and is not a yes-or-no question.
pub(super) fn has_question_word(text: &str) -> bool {
    KO_QUESTION_WORD.is_match(text)
}

fn is_korean_question(text: &str) -> bool {
    KO_QUESTION_WORD.is_match(text)
        || (KO_QUESTION_END.is_match(text) && !text.ends_with("니까") && !text.ends_with("아니"))
}

fn split_english(lexicon: &Lexicon, sentence: &str, vocative: &str, clauses: &mut Vec<Clause>) {
    let body = strip_start(lexicon, sentence, vocative);
    if is_english_question(&body) || EN_SUPPOSED.is_match(&body) {
        return;
    }
    let marked = EN_AND.replace_all(&body, ", $1");
    let mut pieces: Vec<String> = Vec::new();
    for piece in marked.split([',', ':', '—', '–']) {
        let stripped = strip_start(lexicon, piece, vocative);
        match pieces.last_mut() {
            _ if stripped.is_empty() => {}
            // "apples, grapes and pears": the comma separates list items, not clauses.
            Some(last) if !begins_clause(&stripped) => {
                last.push_str(", ");
                last.push_str(piece.trim());
            }
            _ => pieces.push(stripped),
        }
    }
    let before = clauses.len();
    for text in pieces {
        // The words beside "she said" are hers.
        if EN_REPORTED.is_match(&text) {
            let is_own = text.starts_with("I ");
            return clauses.truncate(if is_own { clauses.len() } else { before });
        }
        if !is_english_question(&text) && !EN_SUPPOSED.is_match(&text) && !EN_CONDITION.is_match(&text) {
            clauses.push(Clause { text, now: false });
        }
    }
}

fn begins_clause(piece: &str) -> bool {
    regex!(
        START,
        r"(?i)^(?:(?:i|you|my|your|he|she|we|they|it|his|her|our|their|there|this|that|what|if|call|the player(?:'s)?|just call|please call)\b|(?-i:\p{Lu}\p{L}+) (?:is|has|was|will|\w+s)\b|(?-i:\p{Lu}\p{L}+)'s )"
    );
    START.is_match(piece)
}

fn split_korean(lexicon: &Lexicon, sentence: &str, vocative: &str, clauses: &mut Vec<Clause>) {
    if is_korean_question(sentence) || KO_SUPPOSED.is_match(sentence) {
        return;
    }
    for part in sentence.split([':', '—']).flat_map(|piece| split_links(lexicon, piece)) {
        let (text, now) = strip_marks(lexicon, &part, vocative);
        if !text.is_empty() {
            clauses.push(Clause { text, now });
        }
    }
}

/// "사과는 안 좋아하고 포도가 좋아" → two parts. "살고 있어" and "사과하고 포도" stay whole.
fn split_links(lexicon: &Lexicon, piece: &str) -> Vec<String> {
    let tokens: Vec<&str> = piece.split_whitespace().collect();
    let mut parts = vec![Vec::new()];
    for (index, token) in tokens.iter().enumerate() {
        if let Some(part) = parts.last_mut() {
            part.push(*token);
        }
        let Some(next) = tokens.get(index + 1) else { continue };
        let noun_and = token.strip_suffix("하고").is_some_and(|noun| lexicon.knows_word(noun));
        let by_comma = token.ends_with(',') && (lexicon.is_me(next) || lexicon.is_you(next));
        if by_comma || KO_LINK.is_match(token) && !KO_AFTER_LINK.is_match(next) && !noun_and {
            parts.push(Vec::new());
        }
    }
    parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(|part| part.join(" "))
        .collect()
}

/// Removes fillers and time words from a Korean clause. Returns the rest, and true if a mark of the present was found.
fn strip_marks(lexicon: &Lexicon, piece: &str, vocative: &str) -> (String, bool) {
    let mut tokens: Vec<&str> = piece.split_whitespace().collect();
    if tokens.len() > 1 && is_vocative(tokens[0].trim_end_matches(','), vocative) {
        tokens.remove(0);
    }
    remove_phrases(&mut tokens, lexicon.word_list("past_marks"));
    let now = remove_phrases(&mut tokens, lexicon.word_list("now_marks"));
    remove_phrases(&mut tokens, lexicon.word_list("fillers"));
    (tokens.join(" ").trim_matches(is_mark).to_owned(), now)
}

/// True if the text is only a form of address.
fn is_vocative(text: &str, vocative: &str) -> bool {
    !vocative.is_empty()
        && text
            .strip_prefix(vocative)
            .is_some_and(|rest| ["", "아", "야", "님", " 님", " 씨"].contains(&rest))
}

fn remove_phrases(tokens: &mut Vec<&str>, phrases: &[String]) -> bool {
    let mut removed = false;
    for phrase in phrases {
        let words: Vec<&str> = phrase.split(' ').collect();
        while let Some(start) = tokens.windows(words.len()).position(|window| {
            let bare = window.iter().map(|token| token.trim_matches(is_mark));
            bare.eq(words.iter().copied())
        }) {
            tokens.drain(start..start + words.len());
            removed = true;
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(language: Language, text: &str) -> Vec<String> {
        split_clauses(language, text, "Mira")
            .into_iter()
            .map(|c| c.text)
            .collect()
    }

    #[test]
    fn english_clauses_stand_alone() {
        let cases: &[(&str, &[&str])] = &[
            ("Well, actually I like grapes.", &["I like grapes"]),
            (
                "I don't like apples any more, I like grapes now",
                &["I do not like apples any more", "I like grapes now"],
            ),
            ("I like apples, grapes and pears", &["I like apples, grapes and pears"]),
            (
                "I like tea but my sister likes milk",
                &["I like tea", "my sister likes milk"],
            ),
            ("Mira, I like tea", &["I like tea"]),
            ("What fruit do I like?", &[]),
            ("do you know what I like", &[]),
            ("If I like apples, I eat them", &[]),
            ("He said, I like apples", &[]),
            ("She shouted \"I hate you\" at him", &["She shouted   at him"]),
        ];
        for (text, expected) in cases {
            assert_eq!(texts(Language::En, text), *expected, "{text}");
        }
    }

    #[test]
    fn korean_clauses_stand_alone() {
        let cases: &[(&str, &[&str])] = &[
            ("음, 사실 나는 포도를 정말 좋아해!", &["나는 포도를 좋아해"]),
            (
                "이제 사과는 안 좋아하고 포도가 좋아",
                &["사과는 안 좋아하고", "포도가 좋아"],
            ),
            ("나는 서울에 살고 있어", &["나는 서울에 살고 있어"]),
            ("사과하고 포도를 좋아해", &["사과하고 포도를 좋아해"]),
            ("내가 좋아하는 과일이 뭐였지?", &[]),
            ("내가 좋아하는 과일이 뭐였지", &[]),
            ("사과, 포도를 좋아해", &["사과, 포도를 좋아해"]),
        ];
        for (text, expected) in cases {
            assert_eq!(texts(Language::Ko, text), *expected, "{text}");
        }
        let clauses = split_clauses(Language::Ko, "이제는 사과를 좋아해", "");
        assert!(clauses[0].now && clauses[0].text == "사과를 좋아해");
    }
}
