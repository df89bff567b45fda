//! Rules about two statements with the same subject, which save a model call. They know five cases: names, promises of
//! different deeds, opposite statements about one object, statements about different topics, and tastes for unrelated
//! things. Also: which kinds may hide a change from each other.
//!
//! The rules answer only if no other part of the sentences could matter. All other pairs go to the judge.

use std::{collections::BTreeSet, sync::LazyLock};

use super::{
    JudgeVerdict,
    denials::{self, DeniedMatter},
    promises::PromisedDeed,
    topic::{NamedTopics, StatementTopic},
};
use crate::{
    agreement::{canonical_words, polarity_of},
    aliases,
    fact::{FactKind, Polarity, Statement, Tense},
    keywords::{is_hangul, normalise_text},
    text::{WordList, word_list},
};

/// The common matter of two statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommonMatter {
    pub topic: Option<StatementTopic>,
    /// The topic has one value at a time, both statements are about one thing, or one denies the other for all time.
    pub is_one_matter: bool,
}

/// Words of liking and disliking; Korean words are beginnings.
static TASTE_WORDS: WordList = LazyLock::new(|| {
    word_list(
        "like, likes, liked, love, loves, loved, hate, hates, hated, dislike, dislikes, enjoy, enjoys, adore, \
         adores, detest, detests, loathe, loathes, despise, despises, fond, 좋아, 싫어, 사랑, 미워, 즐",
    )
});
/// Words that make a taste exclusive, or compare: never a clear case.
static EXCLUSIVE_WORDS: WordList = LazyLock::new(|| {
    word_list(
        "favourite, favorite, favourites, favorites, best, most, prefer, prefers, preferred, rather, instead, only, \
         than, 가장, 제일, 최고, 최애, 대신",
    )
});
/// Words that say nothing about the liked or disliked thing. Korean words are beginnings.
pub(super) static SILENT_WORDS: WordList = LazyLock::new(|| {
    word_list(
        "a, an, the, do, does, did, not, no, longer, any, more, anymore, really, very, much, is, are, be, of, to, \
         now, still, at, all, it, doesn, don, t, s, and, player, 이제, 이젠, 이상, 않, 정말, 아주, 매우, 플레이어",
    )
});

/// Acts that leave the home, the work and the name of a person as they are. Korean words are beginnings.
static PASSING_ACTS: WordList = LazyLock::new(|| {
    word_list(
        "invite, invites, invited, ask, asks, asked, thank, thanks, thanked, greet, greets, greeted, meet, meets, met, \
         visit, visits, visited, help, helps, helped, 초대, 부탁, 감사, 고마, 만났, 만나, 방문, 도왔, 도와",
    )
});

/// The features of a statement that rules compare.
#[derive(Debug, Clone)]
pub struct StatementFeatures {
    object: Vec<String>,
    /// Object and sentence as told.
    told: (String, String),
    /// Words of object, sentence and keywords.
    pub(super) words: BTreeSet<String>,
    /// Words of the sentence besides subject, object and silent words.
    rest: BTreeSet<String>,
    /// The sentence or its predicate names a taste.
    is_taste: bool,
    is_exclusive: bool,
    topics: NamedTopics,
    /// The words of a promised or intended deed; `None`: no promise.
    deed: Option<PromisedDeed>,
    /// The predicate is an act that changes no state.
    is_passing: bool,
    pub(super) polarity: Polarity,
    pub(super) denied: DeniedMatter,
    /// Words of the predicate.
    pub(super) verb: Vec<String>,
}

impl StatementFeatures {
    /// Reads a statement.
    #[must_use]
    pub fn from_statement(statement: &Statement) -> Self {
        let content = normalise_text(&statement.content).replace("더 이상", " ");
        let predicate_and_content = format!("{} {content}", normalise_text(&statement.predicate));
        let object = canonical_words(&statement.object);
        let mut words: BTreeSet<String> = object.iter().cloned().collect();
        words.extend(canonical_words(&content));
        words.extend(statement.keywords.iter().flat_map(|keyword| canonical_words(keyword)));
        let subject = canonical_words(&statement.subject);
        // 마시지 않는다 denies 마시다.
        let rest = raw_words(&content.replace("지 않", "다 않"))
            .filter(|word| {
                !is_one_of(word, &SILENT_WORDS)
                    && !matches!(*word, "더" | "안" | "못")
                    && !is_one_of(word, &TASTE_WORDS)
            })
            .flat_map(canonical_words)
            .filter(|word| !object.contains(word) && !subject.contains(word))
            .collect();
        Self {
            is_taste: raw_words(&predicate_and_content).any(|word| is_one_of(word, &TASTE_WORDS)),
            is_exclusive: raw_words(&predicate_and_content).any(|word| is_one_of(word, &EXCLUSIVE_WORDS))
                || content.contains("더 좋아"),
            topics: NamedTopics::find_in(&predicate_and_content),
            told: (normalise_text(statement.object.trim()), content),
            deed: PromisedDeed::from_statement(statement),
            is_passing: raw_words(&normalise_text(&statement.predicate)).any(|word| is_one_of(word, &PASSING_ACTS)),
            polarity: statement.polarity,
            verb: canonical_words(&statement.predicate),
            denied: denials::matter_denied_for_all_time(statement),
            object,
            words,
            rest,
        }
    }

    #[must_use]
    pub fn first_topic(&self) -> Option<StatementTopic> {
        self.topics.first_named()
    }

    /// The topic of both statements, if their first topic is the same.
    #[must_use]
    pub fn common_matter(&self, other: &Self) -> CommonMatter {
        let topic = self.first_topic().filter(|topic| other.first_topic() == Some(*topic));
        CommonMatter {
            topic,
            is_one_matter: topic.is_some_and(|topic| topic.is_one_at_a_time() || self.shares_object(other))
                || self.promises_like(other),
        }
    }

    /// True if the statement may end an older statement at any distance of their sentences.
    #[must_use]
    pub fn is_compared_at_any_distance(&self) -> bool {
        self.first_topic().is_some() || self.deed.is_some() || !self.denied.things.is_empty()
    }

    /// True if both statements promise or intend much the same.
    #[must_use]
    pub fn promises_like(&self, other: &Self) -> bool {
        matches!((&self.deed, &other.deed), (Some(deed), Some(other)) if deed.is_like(other))
    }

    /// True if the objects share a word with the other statement. Korean compounds have no gaps: "청포도" contains "포도".
    #[must_use]
    pub fn shares_object(&self, other: &Self) -> bool {
        let shares = |features: &Self, other: &Self| {
            let compound = features.told.0.chars().all(is_hangul) && other.told.1.contains(&features.told.0);
            compound || features.object.iter().any(|word| other.words.contains(word))
        };
        shares(self, other) || shares(other, self)
    }
}

/// The rules' verdict on a newer and an older statement about the same subject; `None`: a judge has to decide.
#[must_use]
pub fn verdict_by_rules(
    new: &Statement,
    new_features: &StatementFeatures,
    old: &Statement,
    old_features: &StatementFeatures,
) -> Option<JudgeVerdict> {
    if aliases::is_naming_predicate(&new.predicate) || aliases::is_naming_predicate(&old.predicate) {
        return verdict_about_name(new, new_features, old, old_features);
    }
    // A lost thing may be the person's workplace.
    let are_apart =
        new_features.topics.surely_share_no_topic(&old_features.topics) && !new_features.shares_object(old_features);
    let passes = |act: &StatementFeatures, state: &StatementFeatures| {
        act.is_passing && act.topics.is_empty() && state.topics.is_about_state()
    };
    let is_limit = |statement: &Statement| statement.kind == FactKind::Constraint;
    let other_limits = is_limit(new) && is_limit(old) && !new_features.shares_object(old_features);
    if are_apart || other_limits || passes(new_features, old_features) || passes(old_features, new_features) {
        return Some(JudgeVerdict::Independent);
    }
    if new_features.is_exclusive
        || old_features.is_exclusive
        || new_features.object.is_empty()
        || old_features.object.is_empty()
    {
        return None;
    }
    let tastes = new_features.is_taste && old_features.is_taste;
    if new_features.object == old_features.object {
        let opposite = new.polarity != old.polarity && new.tense == Tense::Present && old.tense == Tense::Present;
        // Apart from tastes, the only opposite is a denial, and a model may have marked the polarity wrongly.
        let denies = tastes || polarity_of(&new.content) != polarity_of(&old.content);
        // "Apples at night" may be another matter than "apples".
        return (opposite && denies && new_features.rest == old_features.rest).then_some(JudgeVerdict::Contradicts);
    }
    if !tastes {
        return None;
    }
    let of_taste = |kind| matches!(kind, FactKind::Preference | FactKind::Opinion | FactKind::Habit);
    (of_taste(new.kind) && of_taste(old.kind) && !new_features.shares_object(old_features))
        .then_some(JudgeVerdict::Independent)
}

/// The rules' verdict if one of the statements names the subject, or denies a name.
///
/// A person may have any number of names, so a second name is no conflict, unless the sentence takes the first name
/// back. A person with the name Anna lives where Anna lives.
fn verdict_about_name(
    new: &Statement,
    new_features: &StatementFeatures,
    old: &Statement,
    old_features: &StatementFeatures,
) -> Option<JudgeVerdict> {
    let naming = |statement: &Statement| aliases::is_naming_predicate(&statement.predicate);
    if !(naming(new) && naming(old)) {
        // "The player's name is a secret."
        let about_names = new_features.topics.is_about_name() && old_features.topics.is_about_name();
        return (!about_names).then_some(JudgeVerdict::Independent);
    }
    let is_present = new.tense == Tense::Present && old.tense == Tense::Present;
    match (new_features.object == old_features.object, new.polarity == old.polarity) {
        (true, true) => Some(JudgeVerdict::Same),
        (true, false) if is_present => Some(JudgeVerdict::Contradicts),
        (false, _) if aliases::corrects_name(new, old) => None,
        _ => Some(JudgeVerdict::Independent),
    }
}

/// True if a statement of one kind may end a statement of another kind. A move is an event, and the old home is
/// personal.
#[must_use]
pub const fn may_hide_change(new: FactKind, old: FactKind) -> bool {
    const fn is_reporting_kind(kind: FactKind) -> bool {
        matches!(
            kind,
            FactKind::PersonalInfo
                | FactKind::Profile
                | FactKind::Event
                | FactKind::Decision
                | FactKind::Relationship
                | FactKind::Timeline
                | FactKind::Note
                | FactKind::Other
        )
    }
    is_reporting_kind(new) && is_reporting_kind(old)
}

/// True if the newer statement reports an event that ended the older statement: a move, a sale, a wedding. The event is
/// in the past tense and its result holds now.
#[must_use]
pub fn reports_change(new: &Statement, old: &Statement, common: CommonMatter) -> bool {
    new.tense == Tense::Past
        && old.tense == Tense::Present
        && matches!(new.kind, FactKind::Event | FactKind::Decision | FactKind::Timeline)
        && matches!(
            old.kind,
            FactKind::PersonalInfo | FactKind::Profile | FactKind::Relationship
        )
        && new.polarity == Polarity::Positive
        && common.topic.is_some()
}

/// True if two statements have the same predicate and object, in any form and without the words of a denial.
pub(super) fn share_verb_and_object(new: &Statement, old: &Statement) -> bool {
    let words = |text: &str| -> Vec<String> {
        // 떨어지지 않다 denies 떨어지다.
        let text = normalise_text(text).replace("지 않", "다 않");
        let words = raw_words(&text).filter(|word| !is_one_of(word, &SILENT_WORDS));
        words.flat_map(canonical_words).collect()
    };
    let verb = words(&new.predicate);
    !verb.is_empty() && verb == words(&old.predicate) && words(&new.object) == words(&old.object)
}

pub(super) fn raw_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
}

pub(super) fn is_one_of(word: &str, list: &[&str]) -> bool {
    list.iter()
        .any(|entry| word == *entry || entry.starts_with(is_hangul) && word.starts_with(entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agreement::{polarity_of, tense_of},
        fact::Importance,
    };

    fn says(predicate: &str, object: &str, content: &str) -> Statement {
        Statement {
            subject: "player:p7".into(),
            predicate: predicate.into(),
            object: object.into(),
            content: content.into(),
            keywords: vec![object.into(), "food".into()],
            speaker: "player:p7".into(),
            kind: FactKind::Preference,
            importance: Importance::DEFAULT,
            polarity: polarity_of(content),
            tense: tense_of(content),
            pinned: false,
        }
    }

    fn verdict(older: &Statement, newer: &Statement) -> Option<JudgeVerdict> {
        verdict_by_rules(
            newer,
            &StatementFeatures::from_statement(newer),
            older,
            &StatementFeatures::from_statement(older),
        )
    }

    /// Predicate, object and content.
    type Told = (&'static str, &'static str, &'static str);

    /// In each case, the older statement comes first.
    fn check(cases: &[(Told, Told, Option<JudgeVerdict>)]) {
        for (older, newer, expected) in cases {
            let (older, newer) = (says(older.0, older.1, older.2), says(newer.0, newer.1, newer.2));
            assert_eq!(
                verdict(&older, &newer),
                *expected,
                "{} / {}",
                older.content,
                newer.content
            );
        }
    }

    #[test]
    fn denials_need_no_judge() {
        check(&[
            // No taste, and denied.
            (
                ("drinks", "ale", "The player drinks ale."),
                ("no longer drinks", "ale", "The player no longer drinks ale."),
                Some(JudgeVerdict::Contradicts),
            ),
            (
                ("마신다", "에일", "플레이어는 에일을 마신다."),
                ("마시지 않는다", "에일", "플레이어는 이제 에일을 마시지 않는다."),
                Some(JudgeVerdict::Contradicts),
            ),
            (
                ("drinks", "ale", "The player drinks ale."),
                ("drinks", "ale", "The player does not drink ale at noon."),
                None,
            ),
            (
                ("마신다", "에일", "플레이어는 에일을 마신다."),
                ("마시지 않는다", "에일", "플레이어는 낮에는 에일을 마시지 않는다."),
                None,
            ),
        ]);
    }

    #[test]
    fn other_topics_need_no_judge() {
        check(&[
            (
                (
                    "lives in",
                    "Rivermouth",
                    "The player's sister Anna lives in Rivermouth.",
                ),
                ("be named", "Anna", "The player's sister is named Anna."),
                Some(JudgeVerdict::Independent),
            ),
            (
                ("살다", "강마을", "플레이어의 동생 안나는 강마을에 산다."),
                ("이름이다", "안나", "플레이어의 동생 이름은 안나이다."),
                Some(JudgeVerdict::Independent),
            ),
            (
                ("works as", "baker", "The player works as a baker."),
                ("lives in", "Oakford", "The player lives in Oakford."),
                Some(JudgeVerdict::Independent),
            ),
            (
                ("일하다", "빵집", "플레이어는 빵집에서 일한다."),
                ("살다", "참나무골", "플레이어는 참나무골에 산다."),
                Some(JudgeVerdict::Independent),
            ),
            (
                ("works at", "the bakery", "The player works at the bakery."),
                ("lost", "the bakery", "The player lost the bakery."),
                None,
            ),
            (
                ("lives with", "Ann", "The player lives with the player's wife Ann."),
                ("be divorced", "", "The player is divorced."),
                None,
            ),
        ]);
    }

    /// Checks with either statement as the newer statement.
    fn check_both_ways(cases: &[(Told, Told)], expected: Option<JudgeVerdict>) {
        for (one, other) in cases {
            check(&[(*one, *other, expected), (*other, *one, expected)]);
        }
    }

    #[test]
    fn topics_that_plainly_differ_need_no_judge() {
        let cases = [
            (
                ("works as", "a smith", "The player works as a smith."),
                ("has moved to", "Oakford", "The player has moved to Oakford."),
            ),
            (
                ("live in", "Oakford", "The player lives in Oakford."),
                ("be", "30", "The player is 30 years old."),
            ),
            (
                ("be married to", "Tom", "The player is married to Tom."),
                ("work at", "the mill", "The player works at the mill."),
            ),
            (
                ("own", "a boat", "The player owns a boat."),
                ("live in", "Oakford", "The player has been living in Oakford."),
            ),
            (
                ("favourite", "plums", "The player's favourite fruit is plums."),
                ("work at", "the mill", "The player works at the mill."),
            ),
            (
                ("일하다", "대장간", "플레이어는 대장간에서 일하고 있다."),
                ("이사하다", "강마을", "플레이어는 강마을로 이사했다."),
            ),
            (
                ("살다", "강마을", "플레이어는 강마을에 살고 있다."),
                ("소유하다", "배", "플레이어는 배를 소유하고 있다."),
            ),
            (
                ("이다", "서른 살", "플레이어는 서른 살이다."),
                ("결혼하다", "안나", "플레이어는 안나와 결혼했다."),
            ),
        ];
        check_both_ways(&cases, Some(JudgeVerdict::Independent));
    }

    #[test]
    fn words_of_a_possibly_common_topic_need_a_judge() {
        let cases = [
            (
                ("have", "a room", "The player has a room in Greystone."),
                ("live in", "Oakford", "The player lives in Oakford."),
            ),
            (
                ("keep", "the inn", "The player keeps the inn."),
                ("work as", "a smith", "The player works as a smith."),
            ),
            (
                ("sell", "the cottage", "The player sold the cottage."),
                ("live in", "Oakford", "The player lives in Oakford."),
            ),
            (
                ("give up", "the forge", "The player gave up the forge."),
                ("work as", "a smith", "The player works as a smith."),
            ),
            (
                ("retire to", "Oakford", "The player retired to Oakford."),
                ("live in", "Greystone", "The player lives in Greystone."),
            ),
            (
                ("quit", "Oakford", "The player quit Oakford."),
                ("live in", "the mill", "The player lives in the mill."),
            ),
            (
                ("live by", "fishing", "The player lives by fishing."),
                ("work as", "a smith", "The player works as a smith."),
            ),
            (
                ("be called", "away", "The player was called away to Greystone."),
                ("live in", "Oakford", "The player lives in Oakford."),
            ),
            (
                ("be engaged", "smithing", "The player is engaged in smithing."),
                ("work as", "a baker", "The player works as a baker."),
            ),
            (
                ("있다", "부산", "플레이어는 지금 부산에 있다."),
                ("살다", "강마을", "플레이어는 강마을에 산다."),
            ),
            (
                ("없다", "일", "플레이어는 요즘 하는 일이 없다."),
                ("일하다", "빵집", "플레이어는 빵집에서 일한다."),
            ),
            (
                ("팔다", "오두막", "플레이어는 오두막을 팔았다."),
                ("살다", "강마을", "플레이어는 강마을에 산다."),
            ),
            (
                ("그만두다", "방앗간", "플레이어는 방앗간을 그만뒀다."),
                ("살다", "물가", "플레이어는 물가에 산다."),
            ),
            (
                ("부르다", "노래", "플레이어는 강마을로 불러 갔다."),
                ("살다", "참나무골", "플레이어는 참나무골에 산다."),
            ),
        ];
        check_both_ways(&cases, None);
    }

    #[test]
    fn clear_pairs_need_no_judge() {
        check(&[
            (
                ("likes", "apples", "The player likes apples."),
                ("hates", "an apple", "The player hates an apple."),
                Some(JudgeVerdict::Contradicts),
            ),
            (
                ("likes", "apples", "The player likes apples."),
                ("no longer likes", "apples", "The player no longer likes apples."),
                Some(JudgeVerdict::Contradicts),
            ),
            (
                ("좋아한다", "사과", "플레이어는 사과를 좋아한다."),
                ("싫어한다", "사과", "플레이어는 이제 사과를 싫어한다."),
                Some(JudgeVerdict::Contradicts),
            ),
            (
                ("loves", "blackberries", "The player loves blackberries."),
                ("loves", "pears", "The player loves pears."),
                Some(JudgeVerdict::Independent),
            ),
            (
                ("좋아한다", "포도", "플레이어는 포도를 좋아한다."),
                ("좋아한다", "국화차", "플레이어는 국화차를 좋아한다."),
                Some(JudgeVerdict::Independent),
            ),
        ]);
    }

    #[test]
    fn unclear_pairs_need_a_judge() {
        check(&[
            // "At night" may be another matter.
            (
                ("likes", "apples", "The player likes apples."),
                ("hates", "apples", "The player hates apples at night."),
                None,
            ),
            // One thing may be a kind of the other.
            (
                ("likes", "grapes", "The player likes grapes."),
                ("hates", "green grapes", "The player hates green grapes."),
                None,
            ),
            (
                ("좋아한다", "포도", "플레이어는 포도를 좋아한다."),
                ("싫어한다", "청포도", "플레이어는 청포도를 싫어한다."),
                None,
            ),
            (
                ("likes", "grapes", "The player likes grapes."),
                ("hates", "food", "The player hates all food."),
                None,
            ),
            // Only one favourite at a time.
            (
                ("favourite", "apples", "The player's favourite fruit is apples."),
                ("likes", "grapes", "The player likes grapes."),
                None,
            ),
            (
                ("prefers", "grapes", "The player prefers grapes."),
                ("prefers", "apples", "The player now prefers apples."),
                None,
            ),
            (
                ("좋아한다", "사과", "플레이어는 사과를 가장 좋아한다."),
                ("좋아한다", "포도", "플레이어는 포도를 좋아한다."),
                None,
            ),
            // Both are dated.
            (
                ("likes", "apples", "The player likes apples."),
                ("liked", "apples", "The player used to hate apples."),
                None,
            ),
            (
                ("lives in", "Oakford", "The player lives in Oakford."),
                ("lives in", "Riverton", "The player lives in Riverton."),
                None,
            ),
        ]);
    }
}
