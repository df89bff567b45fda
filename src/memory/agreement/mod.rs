//! Compares two statements: object, polarity, tense and numbers (docs/algorithms.md#dedupe-and-conflict).
//!
//! Also guesses polarity and tense from a sentence when an extractor left them out. The guesses use words and endings.
//! In doubt they give "positive" and "present". Two statements that do not agree only go to the judge, so an error
//! costs one model call.

mod days;
mod numbers;

use std::{collections::BTreeSet, sync::LazyLock};

pub use self::days::{days_in, is_date_word, is_overdue};
use self::numbers::{TextPiece, split_pieces};
use super::{
    fact::{Polarity, Statement, Tense},
    keywords::{self, ends_in_l, is_hangul, is_past_syllable, korean_stem, normalise_text, singular_of},
    text::{WordList, word_list},
};

#[derive(Debug, Clone, Copy)]
pub struct ComparedStatement<'a> {
    pub object: &'a str,
    pub content: &'a str,
    pub polarity: Polarity,
    pub tense: Tense,
}

impl<'a> From<&'a Statement> for ComparedStatement<'a> {
    fn from(statement: &'a Statement) -> Self {
        Self {
            object: &statement.object,
            content: &statement.content,
            polarity: statement.polarity,
            tense: statement.tense,
        }
    }
}

/// True if object, polarity, tense and numbers of two statements agree. A model may mark "hates plums" as positive, so
/// the words of the sentences must agree, too. "One more dose" is another dose.
#[must_use]
pub fn statements_agree<'a>(a: impl Into<ComparedStatement<'a>>, b: impl Into<ComparedStatement<'a>>) -> bool {
    let a = a.into();
    let b = b.into();
    a.polarity == b.polarity
        && a.tense == b.tense
        && same_object(a, b)
        && numbers_of(a) == numbers_of(b)
        && polarity_of(a.content) == polarity_of(b.content)
        && names_another(a.content) == names_another(b.content)
}

/// True if a sentence speaks of one more thing or time.
fn names_another(content: &str) -> bool {
    const ANOTHER: [&str; 6] = ["another", "more", "again", "더", "또", "다시"];
    let text = normalise_text(content).replace("no more", " ").replace("더 이상", " ");
    split_words(&text).iter().any(|word| ANOTHER.contains(&word.as_str()))
}

/// True if two names or verbs are equal, ignoring case, particles and endings.
#[must_use]
pub fn same_words(a: &str, b: &str) -> bool {
    canonical_words(a) == canonical_words(b)
}

fn same_object(a: ComparedStatement<'_>, b: ComparedStatement<'_>) -> bool {
    let left_words = canonical_words(a.object);
    let right_words = canonical_words(b.object);
    // Without objects the whole sentences are compared.
    if left_words.is_empty() || right_words.is_empty() {
        canonical_words(a.content) == canonical_words(b.content)
    } else {
        left_words == right_words
    }
}

fn numbers_of(claim: ComparedStatement<'_>) -> BTreeSet<String> {
    [claim.content, claim.object].into_iter().flat_map(numbers_in).collect()
}

/// Returns the numbers of a text in digits, written in digits or in words.
#[must_use]
pub fn numbers_in(text: &str) -> BTreeSet<String> {
    split_pieces(&normalise_text(text))
        .into_iter()
        .filter_map(|piece| match piece {
            TextPiece::Number(number) => Some(number),
            TextPiece::Word(_) => None,
        })
        .collect()
}

/// True if `other` has details that `text` lacks, and not the reverse ([`adds_details`]).
#[must_use]
pub fn is_vaguer(text: &str, other: &str) -> bool {
    adds_details(other, text) && !adds_details(text, other)
}

/// True if a text has a day, a number or a name that `other` lacks. Names are recognised by their capital letters.
#[must_use]
pub fn adds_details(text: &str, other: &str) -> bool {
    let exceeds =
        |own_details: &BTreeSet<String>, other_details: &BTreeSet<String>| !own_details.is_subset(other_details);
    if exceeds(&days_and_numbers(text), &days_and_numbers(other)) {
        return true;
    }
    let words: BTreeSet<String> = split_words(other).into_iter().collect();
    let names = keywords::proper_nouns(text);
    let mut parts = names.iter().flat_map(|name| split_words(name));
    parts.any(|part| !words.contains(&part) && !words.contains(&format!("{part}'s")))
}

/// The days of a text, each whole, and its other numbers.
fn days_and_numbers(text: &str) -> BTreeSet<String> {
    let mut details = BTreeSet::new();
    let mut rest = text.to_owned();
    for day in days_in(text) {
        rest = rest.replace(day, " ");
        details.insert(day.to_owned());
    }
    details.extend(numbers_in(&rest));
    details
}

/// The comparable words of a text: stems without articles, particles and plurals, with numbers in digits.
#[must_use]
pub fn canonical_words(text: &str) -> Vec<String> {
    const SILENT: [&str; 12] = [
        "a", "an", "the", "some", "any", "my", "his", "her", "their", "its", "your", "our",
    ];
    split_pieces(&normalise_text(text))
        .into_iter()
        .filter_map(|piece| match piece {
            TextPiece::Number(number) => Some(number),
            TextPiece::Word(word) if SILENT.contains(&word.as_str()) => None,
            TextPiece::Word(word) if word.chars().all(is_hangul) => {
                Some(korean_stem(&word.chars().collect::<Vec<_>>()).into_iter().collect())
            }
            TextPiece::Word(word) => Some(singular_of(&word)),
        })
        .collect()
}

/// Lower-case words without punctuation; "don't" is one word.
fn split_words(text: &str) -> Vec<String> {
    normalise_text(&text.replace('’', "'"))
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Whether a sentence affirms or denies, guessed from its words. Two denials affirm.
#[must_use]
pub fn polarity_of(text: &str) -> Polarity {
    let words = split_words(text);
    let denials = (0..words.len()).filter(|&index| is_denial(&words, index)).count();
    if denials % 2 == 1 {
        Polarity::Negative
    } else {
        Polarity::Positive
    }
}

fn is_denial(words: &[String], index: usize) -> bool {
    const EN: [&str; 9] = [
        "not", "never", "cannot", "no", "without", "detest", "loathe", "despise", "refuse",
    ];
    const KO_BEGIN: [&str; 9] = ["싫", "않", "못하", "못해", "못한", "증오", "혐오", "미워", "질색"];
    let word = words[index].as_str();
    let next = words.get(index + 1).map_or("", String::as_str);
    if word.starts_with(is_hangul) {
        return KO_BEGIN.iter().any(|prefix| word.starts_with(prefix))
            || word.strip_prefix("안").is_some_and(|rest| ["좋", "해", "한", "했", "하", "먹", "마"].iter().any(|v| rest.starts_with(v)))
            // "안 좋아해", but not "집 안 청소"; "못 먹어", but not 못 as a nail.
            || (matches!(word, "안" | "못") && looks_like_a_verb(next))
            || word.contains("지않")
            || (word.starts_with('없') || word.ends_with("없다") || word.ends_with("없어"))
            || ["아니다", "아니야", "아니에요", "아닙니다", "아닌"].contains(&word);
    }
    match word {
        "not" if next == "only" => false,
        "no" if matches!(next, "doubt" | "wonder") => false,
        _ => {
            EN.contains(&word)
                || word.ends_with("n't")
                || ["hate", "dislike", "detest", "loath", "despis"]
                    .iter()
                    .any(|prefix| word.starts_with(prefix))
        }
    }
}

fn looks_like_a_verb(word: &str) -> bool {
    const ENDS: &str = "아어해다요지는고은던함음네니냐나야돼서면";
    word.chars()
        .next_back()
        .is_some_and(|c| ENDS.contains(c) || is_past_syllable(c))
        || word.chars().any(is_past_syllable)
}

/// The tense of a sentence, guessed from its words: in English from the first verb that shows a tense, in Korean from
/// the last predicate.
#[must_use]
pub fn tense_of(text: &str) -> Tense {
    let words = split_words(text);
    if words.iter().any(|word| word.chars().any(is_hangul)) {
        korean_tense(&words)
    } else {
        english_tense(&words)
    }
}

fn english_tense(words: &[String]) -> Tense {
    static PAST: WordList = LazyLock::new(|| {
        word_list(
            "was, were, wasn't, weren't, did, didn't, had, hadn't, went, met, saw, ate, bought, sold, found, lost, \
             told, said, gave, took, came, knew, made, got, left, felt, thought, kept, fought, stole, broke, wrote, \
             drank, slept, spoke, taught, won, built, began, became, grew, ran, rode, sang, swam, wore, chose, \
             forgot, held, heard, killed, led, paid, sent, stood, understood, woke, formerly, died, lied",
        )
    });
    const FUTURE: [&str; 4] = ["will", "won't", "shall", "gonna"];
    const BE: [&str; 14] = [
        "is", "are", "am", "be", "been", "isn't", "aren't", "get", "gets", "feel", "feels", "a", "an", "the",
    ];
    for (index, word) in words.iter().enumerate() {
        let before = index.checked_sub(1).map_or("", |before| words[before].as_str());
        let next = words.get(index + 1).map_or("", String::as_str);
        match word.as_str() {
            // "is used to" is a present habit.
            "used" if next == "to" && !BE.contains(&before) => return Tense::Past,
            "going" | "plans" | "plan" | "intends" if next == "to" => return Tense::Future,
            word if FUTURE.contains(&word) || word.ends_with("'ll") => return Tense::Future,
            "left" | "lost" | "made" | "built" | "broke" if BE.contains(&before) => {}
            word if PAST.contains(&word) => return Tense::Past,
            // "liked", but not "is tired", "the wicked", "need"
            word if word.len() > 4 && word.ends_with("ed") && !word.ends_with("eed") && !BE.contains(&before) => {
                // An adverb or an adjective may stand between: "is very tired".
                let adjective = index >= 2 && BE[..9].contains(&words[index - 2].as_str());
                if !adjective {
                    return Tense::Past;
                }
            }
            // The first finite verb in the present decides.
            "is" | "are" | "am" | "has" | "have" | "likes" | "like" | "loves" | "love" | "hates" | "hate" | "wants"
            | "want" | "does" | "do" | "doesn't" | "don't" | "isn't" | "aren't" | "lives" | "live" | "works"
            | "work" | "knows" | "know" | "prefers" | "prefer" | "needs" | "enjoys" | "owns" | "keeps" | "thinks"
            | "believes"
                if !begins_compound_verb(word, next) =>
            {
                return Tense::Present;
            }
            _ => {}
        }
    }
    Tense::Present
}

/// True if the verb only begins a compound verb: "is going to", "has visited".
fn begins_compound_verb(verb: &str, next: &str) -> bool {
    match verb {
        "is" | "are" | "am" => next == "going",
        "has" | "have" => next.ends_with("ed"),
        _ => false,
    }
}

fn korean_tense(words: &[String]) -> Tense {
    let Some(last) = words.iter().rposition(|word| word.chars().any(is_hangul)) else {
        return Tense::Present;
    };
    let word = words[last].as_str();
    let before = last.checked_sub(1).map_or("", |before| words[before].as_str());
    let chars: Vec<char> = word.chars().collect();
    // 할 거야, 갈 것이다, 먹을 예정이다
    let announced = ["거", "것", "예정", "계획", "생각"]
        .iter()
        .any(|prefix| word.starts_with(prefix))
        && before.chars().next_back().is_some_and(ends_in_l);
    let promised = ["게", "게요", "거야", "거예요", "래", "래요"].iter().any(|end| {
        word.strip_suffix(end)
            .and_then(|body| body.chars().next_back())
            .is_some_and(ends_in_l)
    });
    if announced || promised || chars.contains(&'겠') || before.ends_with("려고") && word.starts_with('하') {
        return Tense::Future;
    }
    // 먹은 적이 있다
    if word.starts_with('있') && matches!(before, "적이" | "적" | "적도") {
        return Tense::Past;
    }
    if chars.iter().any(|&c| is_past_syllable(c)) || word.ends_with("던") {
        return Tense::Past;
    }
    // 예전엔 좋아하던 과일: a noun phrase about the past.
    let past_markers = ["예전", "옛날", "한때", "과거에"];
    let present_markers = ["지금", "이제", "요즘", "여전히", "아직"];
    if past_markers
        .iter()
        .any(|prefix| words.iter().any(|word| word.starts_with(prefix)))
        && words
            .iter()
            .any(|word| word.ends_with('던') || word.chars().any(is_past_syllable))
        && !present_markers
            .iter()
            .any(|prefix| words.iter().any(|word| word.starts_with(prefix)))
    {
        return Tense::Past;
    }
    Tense::Present
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{FactKind, Importance};

    fn statement(object: &str, content: &str) -> Statement {
        Statement {
            subject: "player".into(),
            predicate: "likes".into(),
            object: object.into(),
            content: content.into(),
            keywords: Vec::new(),
            speaker: "player".into(),
            kind: FactKind::Preference,
            importance: Importance::DEFAULT,
            polarity: polarity_of(content),
            tense: tense_of(content),
            pinned: false,
        }
    }

    #[test]
    fn wordings_of_one_fact_agree() {
        for (a, b) in [
            (
                ("grapes", "The player likes grapes"),
                ("the grape", "The player loves grapes."),
            ),
            (
                ("포도", "플레이어는 포도를 좋아한다"),
                ("포도를", "플레이어가 포도를 아주 좋아해"),
            ),
            (
                ("3 cats", "The player has 3 cats"),
                ("three cats", "The player has three cats"),
            ),
            (
                ("고양이 세 마리", "고양이 세 마리를 키운다"),
                ("고양이 3마리", "고양이를 3마리 키운다"),
            ),
            (
                ("Grapes", "The player doesn't like grapes"),
                ("grapes", "The player dislikes grapes"),
            ),
            (("ＡＢＣ", "ABC를 좋아한다"), ("abc", "abc를 좋아해")),
        ] {
            assert!(
                statements_agree(&statement(a.0, a.1), &statement(b.0, b.1)),
                "{a:?} {b:?}"
            );
        }
    }

    #[test]
    fn wordings_of_other_facts_disagree() {
        for (a, b) in [
            (
                ("grapes", "The player likes grapes"),
                ("grapes", "The player used to like grapes"),
            ),
            (
                ("grapes", "The player likes grapes"),
                ("grapes", "The player hates grapes"),
            ),
            (
                ("grapes", "The player likes grapes"),
                ("apples", "The player likes apples"),
            ),
            (
                ("포도", "플레이어는 포도를 좋아한다"),
                ("포도", "플레이어는 포도를 좋아하지 않는다"),
            ),
            (
                ("포도", "플레이어는 포도를 좋아한다"),
                ("포도", "플레이어는 예전에 포도를 좋아했다"),
            ),
            (
                ("포도", "플레이어는 포도를 좋아한다"),
                ("사과", "플레이어는 사과를 좋아한다"),
            ),
            (("2 cats", "The player has 2 cats"), ("3 cats", "The player has 3 cats")),
            (
                ("고양이", "고양이 두 마리를 키운다"),
                ("고양이", "고양이 세 마리를 키운다"),
            ),
            (
                ("cats", "The player likes cats more than 1 dog"),
                ("cats", "The player likes cats"),
            ),
            (("", "The player is kind"), ("", "The player is rude")),
            (
                ("cold medicine", "Mira brews a dose of cold medicine"),
                ("cold medicine", "Mira brews another dose of cold medicine"),
            ),
            (
                ("고뿔약", "고뿔약을 한 첩 지어 준다"),
                ("고뿔약", "고뿔약을 한 첩 더 지어 준다"),
            ),
        ] {
            assert!(
                !statements_agree(&statement(a.0, a.1), &statement(b.0, b.1)),
                "{a:?} {b:?}"
            );
        }
    }

    #[test]
    fn opposite_sentences_do_not_agree_whatever_polarity_a_model_marks() {
        for (likes, hates) in [
            ("플레이어는 대추차를 좋아한다.", "플레이어는 대추차를 싫어한다."),
            ("The player likes jujube tea.", "The player hates jujube tea."),
        ] {
            let hates = Statement {
                polarity: Polarity::Positive,
                ..statement("tea", hates)
            };
            assert!(!statements_agree(&statement("tea", likes), &hates), "{}", hates.content);
        }
    }

    #[test]
    fn details_are_days_numbers_and_names() {
        for (text, other, adds) in [
            ("Voss sails on 0212-02-25.", "Voss sails when the fever lifts.", true),
            ("Voss sails on 0212-02-25.", "Voss sails on 0212-02-26.", true),
            ("Voss sails when the fever lifts.", "Voss sails on 0212-02-25.", false),
            ("Voss takes the player to Morrow.", "Voss takes the player along.", true),
            (
                "Voss takes the player to Morrow.",
                "To Morrow Voss takes the player.",
                false,
            ),
            ("플레이어는 귤 세 개를 준다.", "플레이어는 귤을 준다.", true),
            (
                "플레이어는 2024-04-25까지 책을 돌려준다.",
                "플레이어는 책을 돌려준다.",
                true,
            ),
            (
                "플레이어는 책을 돌려준다.",
                "플레이어는 2024-04-25까지 책을 돌려준다.",
                false,
            ),
        ] {
            assert_eq!(adds_details(text, other), adds, "{text} / {other}");
        }
    }

    #[test]
    fn polarity_is_detected_in_both_languages() {
        use Polarity::{Negative, Positive};
        for (text, expected) in [
            ("I like apples", Positive),
            ("I don't like apples", Negative),
            ("I don’t like apples", Negative),
            ("I do not like apples", Negative),
            ("I hate apples", Negative),
            ("The player hated school", Negative),
            ("I don't hate apples", Positive),
            ("I can't stand apples", Negative),
            ("I never eat meat", Negative),
            ("not only apples but pears", Positive),
            ("The player is allergic to peanuts", Positive),
            ("나는 사과를 좋아해", Positive),
            ("나는 사과를 싫어해", Negative),
            ("사과는 안 좋아해", Negative),
            ("사과는 안좋아해", Negative),
            ("사과를 좋아하지 않아", Negative),
            ("사과를 좋아하지 않는다", Negative),
            ("사과를 싫어하지 않아", Positive),
            ("매운 걸 못 먹어", Negative),
            ("수영을 못한다", Negative),
            ("플레이어는 가족이 없다", Negative),
            ("나는 기사가 아니야", Negative),
            ("안녕, 나는 사과를 좋아해", Positive),
            ("집 안 청소를 좋아해", Positive),
        ] {
            assert_eq!(polarity_of(text), expected, "{text}");
        }
    }

    #[test]
    fn tense_is_detected_in_both_languages() {
        use Tense::{Future, Past, Present};
        for (text, expected) in [
            ("I like apples", Present),
            ("I used to like apples", Past),
            ("The player liked apples as a child", Past),
            ("The player met Mira yesterday", Past),
            ("The player will go to the mill", Future),
            ("I'll bring the sword", Future),
            ("The player is going to marry", Future),
            ("The player is tired", Present),
            ("The player is very tired", Present),
            ("The player is used to the cold", Present),
            ("The player needs a sword", Present),
            ("The player likes the sword he bought", Present),
            ("나는 사과를 좋아해", Present),
            ("나는 사과를 좋아한다", Present),
            ("나는 예전에 사과를 좋아했었어", Past),
            ("나는 사과를 좋아했어", Past),
            ("예전에는 사과를 먹었다", Past),
            ("플레이어는 검을 가지고 있다", Present),
            ("플레이어는 검을 가지고 있었다", Past),
            ("내일 숲에 갈 거야", Future),
            ("내가 검을 가져올게", Future),
            ("숲에 갈 예정이다", Future),
            ("숲에 가겠다", Future),
            ("고블린을 만난 적이 있다", Past),
            ("어제 산 검을 좋아한다", Present),
            ("어제 샀던 검을 좋아한다", Present),
            ("예전에 좋아하던 과일", Past),
        ] {
            assert_eq!(tense_of(text), expected, "{text}");
        }
    }

    #[test]
    fn agreement_accepts_any_text() {
        use proptest::prelude::*;
        proptest!(|(text in "\\PC{0,80}")| {
            let _ = (polarity_of(&text), tense_of(&text));
            let same = statement(&text, &text);
            prop_assert!(statements_agree(&same, &same));
        });
    }
}
