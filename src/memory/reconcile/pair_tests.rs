//! A table of pairs that dialogues gave: which of them need a judge, and which the rules decide.

use super::*;
use crate::{
    agreement::{polarity_of, tense_of},
    fact::{FactKind, Importance},
};

/// An unlike pair and a like pair of one speaker, on the calibrated scale: below "same", above "related".
const NEAR: f32 = 0.8;
/// Below "related".
const FAR: f32 = 0.3;

/// Subject, speaker, predicate, object, kind and content.
type Told = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    FactKind,
    &'static str,
);

fn statement(told: Told) -> Statement {
    let (subject, speaker, predicate, object, kind, content) = told;
    let tense = tense_of(content);
    Statement {
        subject: subject.into(),
        predicate: predicate.into(),
        object: object.into(),
        content: content.into(),
        keywords: Vec::new(),
        speaker: speaker.into(),
        kind,
        importance: Importance::DEFAULT,
        polarity: polarity_of(content),
        // A model marks a promise as present or future.
        tense: if kind == FactKind::Goal { Tense::Future } else { tense },
        pinned: false,
    }
}

/// True if a judge is asked about the pair.
fn is_judged(older: Told, newer: Told, cosine: f32) -> bool {
    let (older, newer) = (statement(older), statement(newer));
    let [old, new] = [&older, &newer].map(StatementFeatures::from_statement);
    let common = || new.common_matter(&old);
    compare_statements(&Calibration::IDENTITY, &newer, &older, cosine, common) == Relation::Judge
        && verdict_by_rules(&newer, &new, &older, &old).is_none()
}

const P: &str = "player:p7";

const USELESS: &[(Told, Told)] = &{
    use FactKind::{Constraint, Decision, Event, Goal, PersonalInfo, Preference};
    [
        // Promises of different deeds.
        (
            (
                P,
                P,
                "promise to bring",
                "Ottilie Brandt's rainfall tables",
                Goal,
                "The player promises to bring Ottilie Brandt her rainfall tables.",
            ),
            (
                P,
                P,
                "promise",
                "to tell nobody of Ottilie Brandt's letter",
                Goal,
                "The player promises to tell nobody of the letter until Ottilie Brandt says so.",
            ),
        ),
        (
            (
                "Voss",
                "Voss",
                "keep",
                "the player's secret",
                Goal,
                "Voss promises to keep the player's secret.",
            ),
            (
                "Voss",
                "Voss",
                "give",
                "the Magpie",
                Decision,
                "Voss gives the boat Magpie to nobody.",
            ),
        ),
        (
            (
                "Voss",
                "Voss",
                "sail",
                "Morrow",
                Goal,
                "Voss means to sail with the spring tide.",
            ),
            (
                "Voss",
                "Voss",
                "owe",
                "passage",
                Goal,
                "Voss owes the player a passage for the chart.",
            ),
        ),
        (
            (
                "Voss",
                "Voss",
                "owe",
                "passage",
                Goal,
                "Voss owes the player a passage for the chart.",
            ),
            (
                "Voss",
                "Voss",
                "bring",
                "tea",
                Goal,
                "Voss will bring the player tea from the galley.",
            ),
        ),
        (
            (
                "Voss",
                "Voss",
                "sail",
                "",
                Goal,
                "Voss means to sail with the spring tide.",
            ),
            (
                "Voss",
                "Voss",
                "take",
                "the player to Morrow",
                Goal,
                "Voss will take the player to Morrow at first light on 0212-02-25.",
            ),
        ),
        (
            (
                "윤하람",
                "윤하람",
                "지키다",
                "플레이어의 비밀",
                Goal,
                "윤하람은 플레이어의 비밀을 말하지 않기로 약속했다.",
            ),
            (
                "윤하람",
                "윤하람",
                "빌려주다",
                "책",
                Goal,
                "윤하람은 2024-04-10에 플레이어에게 책을 빌려주기로 했다.",
            ),
        ),
        (
            (
                P,
                P,
                "이사하다",
                "항구동",
                Goal,
                "플레이어는 2024-04-14에 항구동으로 이사할 예정이다.",
            ),
            (
                P,
                P,
                "쓰다",
                "백일장 시",
                Goal,
                "플레이어는 다음 주까지 백일장에 낼 시를 쓰기로 했다.",
            ),
        ),
        (
            (
                "최덕수",
                "최덕수",
                "가다",
                "병원",
                Goal,
                "최덕수는 다음 주에 병원에 가기로 했다.",
            ),
            (
                "최덕수",
                "최덕수",
                "돌보다",
                "까망이",
                Goal,
                "최덕수는 까망이를 돌보기로 약속했다.",
            ),
        ),
        (
            (
                P,
                P,
                "bring",
                "the chart",
                Goal,
                "The player will bring Voss the chart.",
            ),
            (
                P,
                P,
                "bring",
                "oranges",
                Goal,
                "The player will bring Voss oranges for the crew.",
            ),
        ),
        // A second name, and a name in passing.
        (
            (
                P,
                P,
                "be named",
                "Ida Marrable",
                PersonalInfo,
                "The player's name is Ida Marrable.",
            ),
            (P, P, "be named", "Wren", PersonalInfo, "Friends call the player Wren."),
        ),
        (
            (
                P,
                P,
                "이름이다",
                "이도윤",
                PersonalInfo,
                "플레이어의 이름은 이도윤이다.",
            ),
            (
                P,
                P,
                "별명이다",
                "똘이",
                PersonalInfo,
                "할머니는 플레이어를 똘이라고 부른다.",
            ),
        ),
        (
            (
                P,
                P,
                "be named",
                "Ida Marrable",
                PersonalInfo,
                "The player's name is Ida Marrable.",
            ),
            (
                P,
                P,
                "owe",
                "forty shillings",
                PersonalInfo,
                "The player owes forty shillings to a moneylender called Corbin.",
            ),
        ),
        (
            (
                P,
                P,
                "be nicknamed",
                "Wren",
                PersonalInfo,
                "The player's nickname is Wren.",
            ),
            (
                P,
                P,
                "owe",
                "forty shillings",
                PersonalInfo,
                "The player owes forty shillings to a moneylender called Corbin.",
            ),
        ),
        // Other topics and other limits.
        (
            (
                P,
                P,
                "copy",
                "maps",
                PersonalInfo,
                "The player works as a copier of maps.",
            ),
            (
                P,
                P,
                "rent",
                "a room",
                PersonalInfo,
                "The player rents a room above the chandler's.",
            ),
        ),
        (
            (P, P, "앓다", "천식", Constraint, "플레이어는 천식을 앓고 있다."),
            (
                P,
                P,
                "아프다",
                "무릎",
                Constraint,
                "플레이어는 무릎이 아파서 뛰지 못한다.",
            ),
        ),
        (
            ("박민수", P, "살다", "제주도", PersonalInfo, "박민수는 제주도에 산다."),
            (
                "박민수",
                P,
                "초대하다",
                "플레이어",
                PersonalInfo,
                "박민수는 플레이어를 집으로 초대한다.",
            ),
        ),
        // Single events, and tastes for different things.
        (
            (
                P,
                P,
                "walk from",
                "Harrow Fen",
                Event,
                "The player walked from Harrow Fen.",
            ),
            (P, P, "bring", "the chart", Event, "The player brought Voss the chart."),
        ),
        (
            (P, P, "like", "pear drops", Preference, "The player likes pear drops."),
            (P, P, "hate", "liquorice", Preference, "The player hates liquorice."),
        ),
        (
            (
                P,
                P,
                "좋아하다",
                "초코우유",
                Preference,
                "플레이어는 초코우유를 좋아한다.",
            ),
            (P, P, "싫어하다", "오이", Preference, "플레이어는 오이를 싫어한다."),
        ),
    ]
};

const USEFUL: &[(Told, Told)] = &{
    use FactKind::{Constraint, Event, Goal, PersonalInfo, Preference};
    [
        (
            (
                P,
                P,
                "take",
                "smoked herring",
                Preference,
                "The player always takes smoked herring.",
            ),
            (
                P,
                P,
                "take",
                "pickled herring",
                Preference,
                "The player now takes pickled herring instead.",
            ),
        ),
        (
            (P, P, "살다", "중앙동", PersonalInfo, "플레이어는 중앙동에 산다."),
            (P, P, "이사하다", "항구동", Event, "플레이어는 항구동으로 이사했다."),
        ),
        (
            (P, P, "live in", "Oakford", PersonalInfo, "The player lives in Oakford."),
            (P, P, "move to", "Greystone", Event, "The player moved to Greystone."),
        ),
        // A promise with another day, a dated promise, the same promise in other words.
        (
            (
                P,
                P,
                "돌려주다",
                "책",
                Goal,
                "플레이어는 2024-04-25까지 책을 돌려주기로 했다.",
            ),
            (
                P,
                P,
                "반납하다",
                "책",
                Goal,
                "플레이어는 2024-04-30까지 책을 반납하기로 했다.",
            ),
        ),
        (
            (
                "Voss",
                "Voss",
                "take",
                "the player to Morrow",
                Goal,
                "Voss takes the player to Morrow on the day the fever lifts.",
            ),
            (
                "Voss",
                "Voss",
                "take",
                "the player to Morrow",
                Goal,
                "Voss takes the player to Morrow at first light on 0212-02-25.",
            ),
        ),
        (
            (
                "Voss",
                "Voss",
                "take",
                "the player to Morrow",
                Goal,
                "Voss promises to take the player to Morrow for the chart.",
            ),
            (
                "Voss",
                "Voss",
                "owe",
                "the passage to Morrow",
                Goal,
                "Voss owes the player the passage to Morrow.",
            ),
        ),
        // What takes something back.
        (
            (
                P,
                P,
                "be allergic to",
                "peaches",
                Constraint,
                "The player is allergic to peaches.",
            ),
            (
                P,
                P,
                "get hives from",
                "peaches",
                Constraint,
                "The player gets hives from ripe peaches.",
            ),
        ),
        (
            (P, P, "be named", "Ida", PersonalInfo, "The player's name is Ida."),
            (
                P,
                P,
                "be named",
                "Ada",
                PersonalInfo,
                "The player's name is not Ida but Ada.",
            ),
        ),
        (
            (
                P,
                P,
                "이름이다",
                "이도윤",
                PersonalInfo,
                "플레이어의 이름은 이도윤이다.",
            ),
            (
                P,
                P,
                "이름이다",
                "이도현",
                PersonalInfo,
                "플레이어의 이름은 이도윤이 아니라 이도현이다.",
            ),
        ),
        (
            (P, P, "own", "a boat", PersonalInfo, "The player owns a boat."),
            (P, P, "sell", "the boat", Event, "The player sold the boat."),
        ),
    ]
};

#[test]
fn pairs_that_cannot_touch_each_other_need_no_judge() {
    for (older, newer) in USELESS {
        assert!(!is_judged(*older, *newer, NEAR), "{} / {}", older.5, newer.5);
        assert!(!is_judged(*newer, *older, NEAR), "{} / {}", newer.5, older.5);
    }
}

#[test]
fn pairs_that_may_touch_each_other_are_judged() {
    for (older, newer) in USEFUL {
        assert!(is_judged(*older, *newer, NEAR), "{} / {}", older.5, newer.5);
    }
}

#[test]
fn promises_of_one_deed_are_judged_at_any_distance() {
    let promises = USEFUL.iter().filter(|(older, _)| older.4 == FactKind::Goal);
    for (older, newer) in promises {
        assert!(is_judged(*older, *newer, FAR), "{} / {}", older.5, newer.5);
    }
}

/// The decision about the older of two statements.
fn decide(older: &Statement, newer: &Statement, verdict: JudgeVerdict) -> Decision {
    decide_about_old(newer, older, false, Relation::Judge, Some(verdict))
}

fn promise(speaker: &'static str, content: &'static str) -> Statement {
    statement(("Voss", speaker, "take", "the player to Morrow", FactKind::Goal, content))
}

#[test]
fn dated_promise_replaces_the_vaguer_one_and_never_the_reverse() {
    let vague = promise("Voss", "Voss takes the player to Morrow when the fever lifts.");
    let dated = promise("Voss", "Voss takes the player to Morrow on 0212-02-25.");
    let replaced = Decision::InvalidateOld(InvalidReason::Duplicate);
    assert_eq!(decide(&vague, &dated, JudgeVerdict::Same), replaced);
    for verdict in [JudgeVerdict::Same, JudgeVerdict::Contradicts] {
        assert_eq!(decide(&dated, &vague, verdict), Decision::FoldNewIntoOld);
    }
    let refusal = promise("Voss", "Voss does not take the player to Morrow.");
    let taken_back = Decision::InvalidateOld(InvalidReason::Superseded);
    assert_eq!(decide(&dated, &refusal, JudgeVerdict::Contradicts), taken_back);
    let owed = Statement {
        tense: Tense::Present,
        ..vague.clone()
    };
    assert_eq!(
        decide(&vague, &owed, JudgeVerdict::Same),
        replaced,
        "an owed deed and a promised deed are one"
    );
    let of = |statement: &Statement| FoldedFact::from_statement(statement);
    assert_eq!(fold_duplicates(&of(&dated), &[of(&vague)]).content, dated.content);
    assert_eq!(fold_duplicates(&of(&vague), &[of(&dated)]).content, dated.content);
}

#[test]
fn promise_is_its_makers_word() {
    let own = promise("Voss", "Voss takes the player to Morrow on 0212-02-25.");
    let claim = promise(P, "Voss takes the player to Morrow on 0212-02-20.");
    assert_eq!(decide(&own, &claim, JudgeVerdict::Contradicts), Decision::KeepBoth);
    assert_eq!(decide(&own, &claim, JudgeVerdict::Same), Decision::FoldNewIntoOld);
    assert_eq!(
        decide(&claim, &own, JudgeVerdict::Same),
        Decision::InvalidateOld(InvalidReason::Duplicate)
    );
    assert!(own.is_promise_of_maker() && !claim.is_promise_of_maker());
    let duty = (
        P,
        "윤하람",
        "돌려주다",
        "책",
        FactKind::Goal,
        "플레이어는 2024-04-25까지 책을 돌려준다.",
    );
    assert!(
        statement(duty).is_promise_of_maker(),
        "what an NPC tells the player to do"
    );
}

#[test]
fn name_told_again_stays_where_it_was_first_told() {
    let named = |speaker| {
        (
            P,
            speaker,
            "be named",
            "Ida",
            FactKind::PersonalInfo,
            "The player's name is Ida.",
        )
    };
    let (own, by_voss) = (statement(named(P)), statement(named("Voss")));
    assert_eq!(decide(&own, &own, JudgeVerdict::Same), Decision::FoldNewIntoOld);
    assert_eq!(decide(&own, &by_voss, JudgeVerdict::Same), Decision::FoldNewIntoOld);
    assert_eq!(
        decide(&by_voss, &own, JudgeVerdict::Same),
        Decision::InvalidateOld(InvalidReason::Duplicate),
        "the player's word counts more"
    );
}
