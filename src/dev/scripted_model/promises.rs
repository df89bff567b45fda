//! The end of standing promises and goals in a turn: kept, or withdrawn.

use serde_json::{Value, json};

use super::{
    claim::lower_case_words,
    clauses,
    lexicon::{self, Lexicon},
    prompt_memory::listed_form,
};

regex!(OPEN, r#"<open number="(?P<number>\d+)">(?P<text>[^<]*)</open>"#);
regex!(
    KEPT,
    r"(?i)\b(?:i|we)(?:'ve| have)?(?: finally| now| just)? (?:brought|delivered|fetched|finished|became|got you|found you)\b|\bhere(?:'s| is| are) (?:the|your|some)\b|가져왔|가지고 왔|갖고 왔|구해 ?왔|전해 ?줬|전했|끝냈|여기 있"
);
regex!(
    GIVEN_UP,
    r"(?i)\b(?:i|we) (?:can't|can’t|cannot|can not|won't|won’t|will not|could not|couldn't) (?:bring|get|find|fetch|deliver|finish|keep)\b|\b(?:i|we)(?:'ve| have)? (?:given|gave) up\b|못 (?:가져|구해|구하|지키)|안 (?:가져|구해)|포기"
);

/// Returns the promises of a prompt that end by the words in `texts`.
pub(super) fn find_ended_promises(prompt: &str, texts: &[&str]) -> Vec<Value> {
    let open: Vec<(u64, &str)> = OPEN
        .captures_iter(prompt)
        .filter_map(|captures| Some((captures["number"].parse().ok()?, captures.name("text")?.as_str())))
        .collect();
    let mut ends: Vec<(u64, &str)> = Vec::new();
    for text in texts.iter().filter(|_| !open.is_empty()) {
        let lexicon = lexicon::lexicon_of(lexicon::language_of(text));
        for sentence in clauses::strip_quotations(text).split_inclusive(['.', '!', '?', '？', '。', '\n', ';']) {
            let how = match () {
                () if sentence.ends_with(['?', '？']) => continue,
                () if GIVEN_UP.is_match(sentence) => "given_up",
                () if KEPT.is_match(sentence) => "fulfilled",
                () => continue,
            };
            let terms = promise_terms(lexicon, sentence);
            let shared = |promise: &str| {
                let promise = self::promise_terms(lexicon, promise);
                promise.iter().filter(|term| terms.contains(term)).count()
            };
            let best = open.iter().map(|(number, promise)| (shared(promise), *number));
            let best = best
                .filter(|(shared, _)| *shared > 0)
                .max_by_key(|(shared, number)| (*shared, u64::MAX - number));
            if let Some((_, number)) = best
                && ends.iter().all(|(other, _)| *other != number)
            {
                ends.push((number, how));
            }
        }
    }
    ends.into_iter()
        .map(|(number, how)| json!({ "number": number, "how": how }))
        .collect()
}

/// Returns the texts of the promises in a prompt.
pub(super) fn shown_promises(prompt: &str) -> impl Iterator<Item = &str> {
    OPEN.captures_iter(prompt)
        .filter_map(|captures| captures.name("text").map(|text| text.as_str()))
}

/// Returns the things that a sentence names, in listed forms.
fn promise_terms(lexicon: &Lexicon, sentence: &str) -> Vec<String> {
    /// Words of every promise.
    const OF_PROMISES: [&str; 13] = [
        "player",
        "promise",
        "bring",
        "brought",
        "want",
        "플레이어",
        "약속",
        "약속한",
        "약속했다",
        "가져오기로",
        "있다",
        "한다",
        "했다",
    ];
    let terms = lower_case_words(sentence)
        .into_iter()
        .map(|word| listed_form(lexicon, &word));
    terms
        .filter(|term| term.chars().count() > 1 || lexicon.knows_word(term))
        .filter(|term| !lexicon.is_in_list("stopwords", term) && !OF_PROMISES.contains(&term.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(promises: &[&str], said: &str) -> Vec<Value> {
        let open = promises.iter().enumerate();
        let open: Vec<String> = open
            .map(|(nth, text)| format!("<open number=\"{}\">{text}</open>", nth + 1))
            .collect();
        find_ended_promises(&open.join("\n"), &[said])
    }

    #[test]
    fn promise_fulfilled_or_retracted_is_over() {
        let salt = [
            "The player wants to become a sailor.",
            "The player promises to bring Mira comfrey salt by 2026-11-28.",
        ];
        let kept = json!({ "number": 2, "how": "fulfilled" });
        for said in [
            "I brought you the salt.",
            "Here is the salt I promised!",
            "Morning! I've brought your comfrey salt, Mira.",
        ] {
            assert_eq!(of(&salt, said), std::slice::from_ref(&kept), "{said}");
        }
        assert_eq!(
            of(&salt, "I can't bring the salt after all."),
            [json!({ "number": 2, "how": "given_up" })]
        );
        for said in [
            "Did I say that I brought the salt?",
            "I'll bring the salt tomorrow.",
            "I brought you some apples.",
            "Salt is dear these days.",
        ] {
            assert_eq!(of(&salt, said), Vec::<Value>::new(), "{said}");
        }
        let promised = [
            "플레이어는 미라에게 소금을 가져오기로 약속했다.",
            "플레이어는 뱃사람이 되고 싶어 한다.",
        ];
        assert_eq!(
            of(&promised, "소금 가져왔어."),
            [json!({ "number": 1, "how": "fulfilled" })]
        );
        assert_eq!(
            of(&promised, "소금은 못 구하겠어. 미안."),
            [json!({ "number": 1, "how": "given_up" })]
        );
        assert_eq!(of(&promised, "소금 가져왔던가?"), Vec::<Value>::new());
    }
}
