//! Lines that ask the listener to forget something. In doubt a line counts as a request: a prompt then shows more facts.

use super::{korean::is_hangul, normal_text::normalise_text};

/// Verbs of a request in English.
const ENGLISH_VERBS: [&str; 3] = ["forget", "disregard", "erase"];
/// Words before the verb that deny the request or tell of the past: "don't forget", "what did I ask you to forget?".
const DENIALS: [&str; 15] = [
    "not",
    "don't",
    "dont",
    "never",
    "won't",
    "can't",
    "cannot",
    "couldn't",
    "wouldn't",
    "shouldn't",
    "mustn't",
    "did",
    "didn't",
    "doesn't",
    "nobody",
];
/// The people who forget without a request: "I forget".
const FORGETFUL: [&str; 5] = ["i", "we", "he", "she", "they"];
/// Before "we", these make a request: "can we forget that".
const MODAL_VERBS: [&str; 5] = ["can", "could", "shall", "should", "may"];
/// The beginnings of a verb in a Korean request.
const KOREAN_VERBS: [&str; 18] = [
    "지워주",
    "지워줘",
    "잊어주",
    "잊어줘",
    "잊어줄",
    "잊어달",
    "잊어버려",
    "잊어버리세",
    "잊어버리십",
    "잊어버리라",
    "잊어버리게",
    "잊어라",
    "잊어요",
    "잊어도",
    "잊으세",
    "잊으십",
    "잊으시",
    "잊으라",
];
/// The verb of a Korean request that goes on in the next word: 잊어 줘.
const SPLIT_KOREAN_VERB: &str = "잊어";
/// Other Korean requests: to count something as not heard, or as not done.
const KOREAN_PHRASES: [&str; 4] = ["못 들은 걸로", "못 들은 것으로", "못 들은 셈", "없던 일로"];

/// True if a line may ask to forget something: "forget what I said", 잊어 줘. "Don't forget" and 잊지 마 are no requests.
#[must_use]
pub fn asks_to_forget(line: &str) -> bool {
    let line = normalise_text(line).replace('’', "'");
    if KOREAN_PHRASES.iter().any(|phrase| line.contains(phrase)) {
        return true;
    }
    let mut clauses = line.split(['.', ',', '!', '?', ';', ':', '\n']);
    clauses.any(|clause| {
        let words = clause.split(|c: char| !c.is_alphanumeric() && c != '\'');
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        (0..words.len()).any(|index| is_request_verb(words[index], &words[..index]))
    })
}

fn is_request_verb(word: &str, before: &[&str]) -> bool {
    if word.starts_with(is_hangul) {
        let is_denied = before.last().is_some_and(|last| matches!(*last, "안" | "못"));
        let is_verb = word == SPLIT_KOREAN_VERB || KOREAN_VERBS.iter().any(|verb| word.starts_with(verb));
        return is_verb && !is_denied;
    }
    if !ENGLISH_VERBS.contains(&word) || before.iter().any(|word| DENIALS.contains(word)) {
        return false;
    }
    match before {
        // "I want you to forget", but not "I want to forget".
        [.., of_whom, "to"] => *of_whom == "you",
        [.., modal, "we"] if MODAL_VERBS.contains(modal) => true,
        [.., last] => !FORGETFUL.contains(last),
        [] => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_to_forget_is_recognised() {
        for line in [
            "Captain, forget all I told you of my sister.",
            "Forget what I said about my throat, please. And do you remember my proper name?",
            "And do forget the bit about the bridge, will you?",
            "I don't mind. Could you forget it?",
            "I want you to forget my name.",
            "Please disregard that.",
            "Can we forget what I said about my knee?",
            "Erase that, will you?",
            "그 얘기는 지워줘.",
            "우리 누나 얘기는 다 잊어 줘요.",
            "그냥 잊어주세요, 네?",
            "자두는 잊어버려.",
            "내 이름은 잊으세요.",
            "못 들은 걸로 해 주세요.",
        ] {
            assert!(asks_to_forget(line), "{line}");
        }
    }

    #[test]
    fn other_words_of_forgetting_are_no_request() {
        for line in [
            "Don’t forget that I like plums.",
            "I'll never forget you.",
            "What did I ask you to forget?",
            "Did you forget my name?",
            "I forget his name.",
            "I came here to forget.",
            "I forgot the salt.",
            "내가 자두를 좋아한다는 거 잊지 마.",
            "약속을 잊어버렸어.",
            "잊어버리지 마세요.",
            "그날은 못 잊어.",
            "",
        ] {
            assert!(!asks_to_forget(line), "{line}");
        }
    }
}
