//! Judges a newer statement against an older statement, by rules. In doubt: independent.

use serde_json::{Value, json};

use super::{
    claim::{self, ParsedClaim, lower_case_words},
    prompt_view,
};
use colloquy_memory::{
    fact::{Polarity, Tense},
    reconcile::JudgeVerdict,
};

/// Answers a judge prompt: a verdict for each pair, by number.
pub(super) fn judge_pairs(prompt: &str) -> Value {
    let older = prompt_view::all_tagged(prompt, "older");
    let newer = prompt_view::all_tagged(prompt, "newer");
    let pairs = older.into_iter().zip(newer).zip(1..);
    let verdicts: Vec<Value> = pairs
        .map(|((older, newer), number)| json!({ "pair": number, "verdict": judge_pair(older, newer).as_str() }))
        .collect();
    json!({ "verdicts": verdicts })
}

fn judge_pair(older: &str, newer: &str) -> JudgeVerdict {
    if lower_case_words(older) == lower_case_words(newer) {
        return JudgeVerdict::Same;
    }
    match (claim::read_record(older, ""), claim::read_record(newer, "")) {
        (Some(older), Some(newer)) if older.says_same(&newer) => JudgeVerdict::Same,
        (Some(older), Some(newer)) if is_contradiction(&older, &newer) => JudgeVerdict::Contradicts,
        _ => JudgeVerdict::Independent,
    }
}

/// True if `older` cannot stay true beside `newer`.
pub(super) fn is_contradiction(older: &ParsedClaim, newer: &ParsedClaim) -> bool {
    if older.subject != newer.subject || older.tense != Tense::Present || newer.tense != Tense::Present {
        return false;
    }
    let same_thing = older.same_object(newer);
    let opposed = older.polarity != newer.polarity;
    if older.class != newer.class {
        return false;
    }
    let both_hold = older.polarity == Polarity::Positive && newer.polarity == Polarity::Positive;
    match older.class.as_str() {
        "favourite" => {
            older.category == newer.category && lower_case_words(&older.object) != lower_case_words(&newer.object)
        }
        // Only one value at a time is true, if the sentences differ only in the object ("lives in", not "lives with").
        "name" | "age" | "birthday" | "hometown" | "live" | "origin" | "job" if both_hold => {
            !same_thing
                && sentence_frame(older) == sentence_frame(newer)
                && (older.class != "job" || older.predicate != "be" && older.predicate != "이다")
        }
        _ => opposed && same_thing,
    }
}

/// Returns the sentence without its object.
fn sentence_frame(claim: &ParsedClaim) -> Vec<String> {
    let object = lower_case_words(&claim.object);
    lower_case_words(&claim.content)
        .into_iter()
        .filter(|word| {
            !["a", "an", "the"].contains(&word.as_str()) && !object.iter().any(|part| word.starts_with(part.as_str()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_err_on_the_side_of_keeping_both() {
        use JudgeVerdict::{Contradicts, Independent, Same};
        let cases = [
            ("The player likes apples.", "The player likes grapes.", Independent),
            ("The player likes apples.", "The player hates apples.", Contradicts),
            ("The player loves apples.", "The player likes an apple.", Same),
            (
                "The player likes apples.",
                "The player used to like apples.",
                Independent,
            ),
            ("The player likes apples.", "Mira hates apples.", Independent),
            (
                "The player's favourite fruit is apples.",
                "The player's favourite fruit is grapes.",
                Contradicts,
            ),
            (
                "The player's favourite fruit is apples.",
                "The player's favourite colour is red.",
                Independent,
            ),
            (
                "The player lives in Oakford.",
                "The player lives in Riverton.",
                Contradicts,
            ),
            (
                "The player lives in Oakford.",
                "The player lives with Tom.",
                Independent,
            ),
            ("The player's name is Tom.", "The player's name is Ben.", Contradicts),
            ("The player has a dog.", "The player has a cat.", Independent),
            ("The player prefers grapes.", "The player prefers apples.", Independent),
            ("플레이어는 🍇를 좋아한다.", "플레이어는 🍇를 싫어한다.", Contradicts),
            ("Something else entirely.", "Nothing of the kind.", Independent),
            (
                "플레이어는 사과를 좋아한다.",
                "플레이어는 포도를 좋아한다.",
                Independent,
            ),
            (
                "플레이어는 사과를 좋아한다.",
                "플레이어는 더 이상 사과를 좋아하지 않는다.",
                Contradicts,
            ),
            ("플레이어의 이름은 민수다.", "플레이어의 이름은 철수다.", Contradicts),
            (
                "플레이어의 동생은 사과를 좋아한다.",
                "플레이어는 사과를 싫어한다.",
                Independent,
            ),
        ];
        for (older, newer, expected) in cases {
            assert_eq!(judge_pair(older, newer), expected, "{older} / {newer}");
        }
    }
}
