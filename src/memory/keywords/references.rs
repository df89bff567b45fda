//! Lines that refer to an earlier line. Their search includes the last raw turns, and scenarios just unlocked or told
//! come first (docs/algorithms.md#intent-and-follow-ups).

use std::sync::LazyLock;

use super::normalise_text;

const REFERENCES_DATA: &str = include_str!("../../../config/lexicon/stopwords/pointing.txt");

/// A phrase, and whether it must end where a word ends.
type ReferencePhrase = (&'static str, bool);

static REFERENCE_PHRASES: LazyLock<Vec<Vec<ReferencePhrase>>> = LazyLock::new(|| {
    REFERENCES_DATA
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            line.split(" + ")
                .map(|part| part.strip_suffix('$').map_or((part, false), |whole| (whole, true)))
                .collect()
        })
        .collect()
});

/// True if a line refers to an earlier line ("then", "that", "what you just said"; 그때, 그거, 방금 말한 거).
#[must_use]
pub fn refers_back(text: &str) -> bool {
    // Single blanks between words, no punctuation, one blank at either end.
    let mut line = String::with_capacity(text.len() + 2);
    line.push(' ');
    for word in normalise_text(text)
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
    {
        line.push_str(word);
        line.push(' ');
    }
    REFERENCE_PHRASES.iter().any(|phrases| occur_in_order(&line, phrases)) || has_referring_that(&line)
}

fn occur_in_order(line: &str, phrases: &[ReferencePhrase]) -> bool {
    let mut from = 0;
    phrases.iter().all(|&(phrase, whole)| {
        let found = line[from..].match_indices(phrase).find(|&(at, _)| {
            let at = from + at;
            line[..at].ends_with(' ') && (!whole || line[at + phrase.len()..].starts_with(' '))
        });
        if let Some((at, _)) = found {
            from += at + phrase.len();
        }
        found.is_some()
    })
}

/// True if "that" refers back ("who did that?").
///
/// A conjunction ("I know that he left") and an opinion ("that's strong stuff!", "that was fun") do not refer back.
fn has_referring_that(line: &str) -> bool {
    const JOINS: [&str; 17] = [
        "i", "you", "he", "she", "we", "they", "it", "the", "my", "your", "his", "her", "our", "their", "there", "a",
        "an",
    ];
    const ASKS: [&str; 7] = ["what", "who", "where", "when", "why", "how", "which"];
    const JUDGES: [&str; 15] = [
        "is", "was", "are", "were", "isn't", "wasn't", "sounds", "looks", "seems", "smells", "tastes", "would", "must",
        "will", "does",
    ];
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |at: usize| words.get(at).copied().unwrap_or("");
    words.iter().enumerate().any(|(at, this)| match *this {
        "that's" => ASKS.contains(&word(at + 1)),
        "that" | "those" if JUDGES.contains(&word(at + 1)) => ASKS.contains(&word(at + 2)),
        "that" | "those" => !JOINS.contains(&word(at + 1)),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referring_lines_are_recognised() {
        for line in [
            "그때 어떻게 됐어?",
            "그거 더 말해 줘",
            "방금 말한 거 진짜야?",
            "아까 그 얘기 마저 해 줘",
            "아까 말씀하신 데가 어디예요?",
            "아까 네가 말한 사람 말이야",
            "방금 뭐라고 했어?",
            "그 사람은 누구야?",
            "And then?",
            "What happened then?",
            "Who did that?",
            "What did you just say?",
            "tell me more about that, please",
            "Is that true?",
            "That's what I meant.",
        ] {
            assert!(refers_back(line), "{line}");
        }
    }

    #[test]
    fn other_lines_are_not_referring() {
        for line in [
            "내가 좋아하는 과일이 뭐였지?",
            "방금 왔어",
            "그림을 그리자",
            "What fruit do I like?",
            "I know that he lives here",
            "That's strange.",
            "That's strong stuff! Is it market day again?",
            "That was a good year",
            "Those are fine boots",
            "Strengthen the gate",
            "나는 포도를 좋아해",
            "저 사실 아까 민수한테 들켰어요. 형이 다 말해 줬다며 놀리더라고요",
            "방금 민수랑 그네 탔어",
            "아까 선생님이 저한테 이야기책을 주셨어요",
            "",
        ] {
            assert!(!refers_back(line), "{line}");
        }
    }
}
