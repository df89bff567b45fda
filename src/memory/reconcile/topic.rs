//! What a statement is about, read off its words: topics of which there is one thing at a time, or which people gain and lose.

use std::{collections::BTreeSet, sync::LazyLock};

use aho_corasick::AhoCorasick;

use crate::memory::keywords::is_hangul;

/// What a statement is about, if that is something of which there is one at a time, or which people gain and lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    Home,
    Work,
    Name,
    Age,
    Partner,
    Possession,
    Favourite,
}

impl Topic {
    /// Whether one thing of it holds at a time: people have many things, and a favourite of every kind.
    pub(super) const fn is_one_at_a_time(self) -> bool {
        !matches!(self, Self::Possession | Self::Favourite)
    }
}

/// Beginnings of words that name a topic; of Latin words shorter than five letters, whole words.
const TOPICS: [(Topic, &[&str]); 7] = [
    (
        Topic::Favourite,
        &[
            "favourite",
            "favorite",
            "prefer",
            "가장 좋아",
            "제일 좋아",
            "최애",
            "더 좋아",
        ],
    ),
    (
        Topic::Home,
        &[
            "live",
            "lives",
            "lived",
            "living",
            "reside",
            "resides",
            "home",
            "house",
            "move",
            "moves",
            "moved",
            "moving",
            "settle",
            "settled",
            "dwell",
            "dwells",
            "hometown",
            "살다",
            "산다",
            "살고",
            "살았",
            "살던",
            "이사",
            "거주",
            "집은",
            "집이",
            "고향",
            "옮겼",
            "옮긴다",
        ],
    ),
    (
        Topic::Work,
        &[
            "work",
            "works",
            "worked",
            "job",
            "profession",
            "employed",
            "hired",
            "quit",
            "retire",
            "career",
            "apprentice",
            "occupation",
            "일한다",
            "일하",
            "일했",
            "일자리",
            "직업",
            "직장",
            "그만두",
            "그만뒀",
            "은퇴",
            "취직",
        ],
    ),
    (
        Topic::Name,
        &["name", "named", "called", "renamed", "이름", "별명", "불린", "불러"],
    ),
    (Topic::Age, &["years old", "age", "aged", "나이", "살이다", "살이 되"]),
    (
        Topic::Partner,
        &[
            "marry", "marri", "married", "wed", "wife", "husband", "spouse", "divorc", "engaged", "betroth", "partner",
            "결혼", "혼인", "아내", "남편", "부인", "이혼", "약혼", "헤어",
        ],
    ),
    (
        Topic::Possession,
        &[
            "has",
            "have",
            "had",
            "own",
            "owns",
            "owned",
            "keep",
            "keeps",
            "sell",
            "sells",
            "sold",
            "bought",
            "buy",
            "lost",
            "gave",
            "possess",
            "있다",
            "없다",
            "가지고",
            "가졌",
            "소유",
            "팔았",
            "판다",
            "샀다",
            "잃었",
            "잃어",
            "키운다",
            "키우",
        ],
    ),
];

/// The phrases of all topics, found in one pass over a text; with the phrases and their places in the table.
static PHRASES: LazyLock<(AhoCorasick, Vec<(usize, &'static str)>)> = LazyLock::new(|| {
    let topics = TOPICS.iter().enumerate();
    let phrases = topics.flat_map(|(topic, (_, phrases))| phrases.iter().map(move |phrase| (topic, *phrase)));
    let phrases: Vec<(usize, &str)> = phrases.collect();
    let found = AhoCorasick::new(phrases.iter().map(|(_, phrase)| phrase)).expect("phrases of topics");
    (found, phrases)
});

/// The topics that a text names, in the order of the table.
pub(super) fn topics_of(told: &str) -> Vec<Topic> {
    let (found, phrases) = &*PHRASES;
    let named = found.find_overlapping_iter(told).filter_map(|found| {
        let (topic, phrase) = phrases[found.pattern().as_usize()];
        let (before, after) = (&told[..found.start()], &told[found.end()..]);
        let names = if phrase.chars().any(is_hangul) {
            !before.ends_with(is_hangul)
        } else {
            !before.ends_with(char::is_alphanumeric) && (phrase.len() > 4 || !after.starts_with(char::is_alphanumeric))
        };
        names.then_some(topic)
    });
    let named: BTreeSet<usize> = named.collect();
    named.into_iter().map(|topic| TOPICS[topic].0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::keywords::normalise;

    #[test]
    fn topics_are_read_off_words() {
        for (content, topic) in [
            ("The player lives in Oakford.", Some(Topic::Home)),
            ("The player moved to Riverton.", Some(Topic::Home)),
            ("플레이어는 강마을에 산다.", Some(Topic::Home)),
            ("플레이어는 참나무골로 이사했다.", Some(Topic::Home)),
            ("The player works as a baker.", Some(Topic::Work)),
            ("The player quit the bakery.", Some(Topic::Work)),
            ("The player's name is Tom.", Some(Topic::Name)),
            ("The player is married to Ann.", Some(Topic::Partner)),
            ("The player sold the dog.", Some(Topic::Possession)),
            ("The player's favourite fruit is the grape.", Some(Topic::Favourite)),
            ("The player likes olives.", None),
            ("플레이어는 포도를 좋아한다.", None),
        ] {
            assert_eq!(topics_of(&normalise(content)).first().copied(), topic, "{content}");
        }
    }
}
