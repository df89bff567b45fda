//! The topic of a statement, read from its words: topics with one value at a time, and things that people gain and
//! lose.

use std::{collections::BTreeSet, sync::LazyLock};

use aho_corasick::AhoCorasick;

use crate::{keywords::is_hangul, text::word_list};

/// The topic of a statement: a topic with one value at a time, or things that people gain and lose. Of several topics
/// the first counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatementTopic {
    Favourite,
    Home,
    Work,
    Name,
    Age,
    Partner,
    Possession,
}

impl StatementTopic {
    /// True if the topic has one value at a time. People have many things, and a favourite of every kind.
    pub(super) const fn is_one_at_a_time(self) -> bool {
        !matches!(self, Self::Possession | Self::Favourite)
    }
}

/// The words that name a topic. They are beginnings of words; Latin words under five letters are whole words.
struct TopicWords {
    topic: StatementTopic,
    /// Certain in every position.
    plain: &'static str,
    /// Possible with another meaning: "quit" may mean a job or drinking.
    loose: &'static str,
    /// Certain only without other words: "has moved" is no possession.
    empty: &'static str,
}

const TOPIC_WORDS: [TopicWords; 7] = [
    TopicWords {
        topic: StatementTopic::Favourite,
        plain: "favourite, favorite, 가장 좋아, 제일 좋아, 최애",
        loose: "prefer, 더 좋아",
        empty: "",
    },
    TopicWords {
        topic: StatementTopic::Home,
        plain: "live in, lives in, live at, lives at, living in, move to, moves to, moved to, reside, resides, dwell, \
            dwells, hometown, rent a room, rents a room, lodge at, lodges at, lodge in, lodges in, 살다, 살고, 이사, 거주, 고향",
        loose: "live, lives, lived, living, home, house, move, moves, moved, moving, settle, settled, retire to, \
            retired to, rent, rents, rented, lodge, lodges, lodging, 산다, 살았, 살던, 집은, 집이, 옮겼, 옮긴다, \
            자취, 하숙, 세 들",
        empty: "",
    },
    TopicWords {
        topic: StatementTopic::Work,
        plain: "work as, works as, work at, works at, work for, works for, work in, works in, profession, employed, \
            occupation, apprentice, 일한다, 일하, 직업, 직장, 취직",
        loose: "work, works, worked, job, hired, quit, retire, career, live by, lives by, live off, lives off, \
            live as, lives as, living as, living by, 일했, 일자리, 그만두, 그만뒀, 은퇴",
        empty: "",
    },
    TopicWords {
        topic: StatementTopic::Name,
        plain: "be named, is named, is called, name is, nickname, 이름, 별명",
        // Not "called" or "named": in passing, they name somebody else ("a moneylender called Corbin").
        loose: "name, renamed, 불린, 불러",
        empty: "",
    },
    TopicWords {
        topic: StatementTopic::Age,
        plain: "years old, 나이, 살이다, 살이 되",
        loose: "age, aged",
        empty: "",
    },
    TopicWords {
        topic: StatementTopic::Partner,
        plain: "marry, marri, wife, husband, spouse, divorc, betroth, 결혼, 혼인, 아내, 남편, 부인, 이혼, 약혼",
        loose: "wed, engaged, partner, 헤어",
        empty: "",
    },
    TopicWords {
        topic: StatementTopic::Possession,
        // A seller of a mill or a cottage may have lived from it, or in it.
        plain: "own, owns, possess, 소유, 키운다, 키우",
        loose: "owned, sell, sells, sold, bought, buy, lost, gave, 가졌, 팔았, 판다, 샀다, 잃었, 잃어",
        empty: "has, have, had, keep, keeps, 있다, 없다, 가지고",
    },
];

/// How surely a phrase names its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PhraseCertainty {
    Plain,
    Loose,
    Empty,
}

type TopicPhrase = (StatementTopic, &'static str, PhraseCertainty);

/// The phrases of all topics, found in one pass over a text.
static TOPIC_PHRASES: LazyLock<(AhoCorasick, Vec<TopicPhrase>)> = LazyLock::new(|| {
    let phrases = TOPIC_WORDS.iter().flat_map(|words| {
        [
            (words.plain, PhraseCertainty::Plain),
            (words.loose, PhraseCertainty::Loose),
            (words.empty, PhraseCertainty::Empty),
        ]
        .into_iter()
        .filter(|(phrases, _)| !phrases.is_empty())
        .flat_map(move |(phrases, surety)| {
            word_list(phrases)
                .into_iter()
                .map(move |phrase| (words.topic, phrase, surety))
        })
    });
    let phrases: Vec<TopicPhrase> = phrases.collect();
    let automaton = AhoCorasick::new(phrases.iter().map(|(_, phrase, _)| phrase)).expect("phrases of topics");
    (automaton, phrases)
});

/// The topics of a text.
#[derive(Debug, Clone, Default)]
pub(super) struct NamedTopics {
    all: BTreeSet<StatementTopic>,
    /// The topics named beyond doubt.
    plain: BTreeSet<StatementTopic>,
    /// The topics named by more than a verb of having.
    beyond_having: BTreeSet<StatementTopic>,
}

impl NamedTopics {
    pub(super) fn find_in(text: &str) -> Self {
        let (automaton, phrases) = &*TOPIC_PHRASES;
        let mut topics = Self::default();
        for hit in automaton.find_overlapping_iter(text) {
            let (topic, phrase, surety) = phrases[hit.pattern().as_usize()];
            if !is_whole_phrase(phrase, &text[..hit.start()], &text[hit.end()..]) {
                continue;
            }
            topics.all.insert(topic);
            if surety == PhraseCertainty::Plain {
                topics.plain.insert(topic);
            }
            if surety != PhraseCertainty::Empty {
                topics.beyond_having.insert(topic);
            }
        }
        topics
    }

    pub(super) fn first_named(&self) -> Option<StatementTopic> {
        self.all.first().copied()
    }

    /// True if the text is about a name beyond doubt.
    pub(super) fn is_about_name(&self) -> bool {
        self.plain.contains(&StatementTopic::Name)
    }

    /// True if the text names a topic with one value at a time beyond doubt.
    pub(super) fn is_about_state(&self) -> bool {
        self.plain.iter().any(|topic| topic.is_one_at_a_time())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// True if both texts name a topic beyond doubt, and no topic is common.
    pub(super) fn surely_share_no_topic(&self, other: &Self) -> bool {
        !self.plain.is_empty() && !other.plain.is_empty() && self.beyond_having.is_disjoint(&other.beyond_having)
    }
}

/// True if a phrase between `before` and `after` is whole, not part of another word.
fn is_whole_phrase(phrase: &str, before: &str, after: &str) -> bool {
    if phrase.chars().any(is_hangul) {
        // 빵을 산다: "buys bread".
        let buys = phrase == "산다" && before.trim_end().ends_with(['을', '를']);
        return !before.ends_with(is_hangul) && !buys;
    }
    !before.ends_with(char::is_alphanumeric) && (phrase.len() > 4 || !after.starts_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::normalise_text;

    #[test]
    fn topics_are_derived_from_words() {
        for (content, topic) in [
            ("The player lives in Oakford.", Some(StatementTopic::Home)),
            ("The player moved to Riverton.", Some(StatementTopic::Home)),
            ("플레이어는 강마을에 산다.", Some(StatementTopic::Home)),
            ("플레이어는 참나무골로 이사했다.", Some(StatementTopic::Home)),
            ("The player works as a baker.", Some(StatementTopic::Work)),
            ("The player quit the bakery.", Some(StatementTopic::Work)),
            ("The player's name is Tom.", Some(StatementTopic::Name)),
            ("The player is married to Ann.", Some(StatementTopic::Partner)),
            ("The player sold the dog.", Some(StatementTopic::Possession)),
            (
                "The player's favourite fruit is the grape.",
                Some(StatementTopic::Favourite),
            ),
            ("The player likes olives.", None),
            ("플레이어는 포도를 좋아한다.", None),
            ("플레이어는 아침마다 빵을 산다.", None),
        ] {
            assert_eq!(
                NamedTopics::find_in(&normalise_text(content)).first_named(),
                topic,
                "{content}"
            );
        }
    }
}
