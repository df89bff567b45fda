use super::*;
use crate::{
    agreement::{polarity_of, tense_of},
    fact::{FactKind, Importance, Polarity},
};

/// The cosine counts unchanged: the thresholds are 0.90 and 0.55.
const CALIBRATION: Calibration = Calibration::IDENTITY;

fn compared(calibration: &Calibration, new: &Statement, old: &Statement, cosine: f32) -> Relation {
    compare_statements(calibration, new, old, cosine, || {
        StatementFeatures::from_statement(new).matter_of_speaker(&StatementFeatures::from_statement(old))
    })
}

fn says(object: &str, content: &str) -> Statement {
    Statement {
        subject: "player".into(),
        predicate: "likes".into(),
        object: object.into(),
        content: content.into(),
        keywords: vec![object.to_lowercase()],
        speaker: "player".into(),
        kind: FactKind::Preference,
        importance: Importance::DEFAULT,
        polarity: polarity_of(content),
        tense: tense_of(content),
        pinned: false,
    }
}

#[test]
fn thresholds_are_inclusive_and_on_the_calibrated_scale() {
    let new = says("grapes", "The player likes grapes");
    let old = new.clone();
    assert_eq!(compared(&CALIBRATION, &new, &old, 0.90), Relation::Same);
    assert_eq!(compared(&CALIBRATION, &new, &old, 0.89), Relation::Judge);
    assert_eq!(compared(&CALIBRATION, &new, &old, 0.55), Relation::Judge);
    assert_eq!(compared(&CALIBRATION, &new, &old, 0.54), Relation::Independent);
    assert_eq!(compared(&CALIBRATION, &new, &old, f32::NAN), Relation::Independent);
    // 0.85 is close to 0 with a model whose unrelated texts score 0.84.
    let e5 = Calibration {
        floor: 0.84,
        ceiling: 0.92,
        ..CALIBRATION
    };
    assert_eq!(compared(&e5, &new, &old, 0.85), Relation::Independent);
    assert_eq!(compared(&e5, &new, &old, 0.92), Relation::Same);
}

#[test]
fn disagreement_goes_to_the_judge_and_another_kind_does_not() {
    let old = says("apples", "The player likes apples");
    let newer = |content: &str| compared(&CALIBRATION, &says("apples", content), &old, 0.95);
    assert_eq!(newer("The player hates apples"), Relation::Judge);
    assert_eq!(
        newer("The player used to like apples"),
        Relation::Independent,
        "no verdict could count"
    );
    let mut event = says("apples", "The player likes apples");
    event.kind = FactKind::Event;
    assert_eq!(compared(&CALIBRATION, &event, &old, 0.8), Relation::Independent);
    assert_eq!(
        compared(&CALIBRATION, &event, &old, 0.95),
        Relation::Same,
        "the same words are the same fact"
    );
}

#[test]
fn single_events_do_not_end_earlier_events() {
    let of = |content: &str| Statement {
        kind: FactKind::Event,
        tense: Tense::Past,
        ..says("", content)
    };
    for (then, later, related) in [
        (
            "The player walked here from Saltmouth",
            "The player brought Mira honey",
            Relation::Independent,
        ),
        (
            "플레이어는 사흘을 걸어 찾아왔다",
            "플레이어는 꿀을 들고 왔다",
            Relation::Independent,
        ),
        // The judge is asked about the newer home.
        ("Anna moved to Rivermouth", "Anna moved to Oakford", Relation::Judge),
        (
            "안나는 강마을로 이사했다",
            "안나는 참나무골로 이사했다",
            Relation::Judge,
        ),
    ] {
        let (then, later) = (of(then), of(later));
        assert_eq!(
            compared(&CALIBRATION, &later, &then, 0.89),
            related,
            "{}",
            later.content
        );
        assert_eq!(
            compared(&CALIBRATION, &later, &then, 0.95),
            Relation::Judge,
            "{}",
            later.content
        );
    }
}

#[test]
fn speaker_who_takes_back_an_event_is_always_judged() {
    let of = |(predicate, object, content): (&str, &str, &str), polarity, tense| Statement {
        kind: FactKind::Event,
        predicate: predicate.into(),
        polarity,
        tense,
        ..says(object, content)
    };
    for (told, denied) in [
        (
            ("fall into", "the harbour", "The old volume fell into the harbour."),
            (
                "did not fall into",
                "harbour",
                "The old volume did not fall into the harbour.",
            ),
        ),
        (
            ("떨어지다", "바다", "낡은 책은 바다에 떨어졌다."),
            ("떨어지지 않다", "바다", "낡은 책은 바다에 떨어지지 않았다."),
        ),
    ] {
        let older = of(told, Polarity::Positive, Tense::Past);
        for tense in [Tense::Past, Tense::Present] {
            let newer = of(denied, Polarity::Negative, tense);
            assert_eq!(
                compared(&CALIBRATION, &newer, &older, 0.7),
                Relation::Judge,
                "{newer:?}"
            );
            let ended = decide_about_old(&newer, &older, false, Relation::Judge, Some(JudgeVerdict::Contradicts));
            assert_eq!(ended, Decision::InvalidateOld(InvalidReason::Superseded));
            let by_another = Statement {
                speaker: "Mira".into(),
                ..newer
            };
            assert_eq!(compared(&CALIBRATION, &by_another, &older, 0.7), Relation::Independent);
        }
        let later = of(denied, Polarity::Negative, Tense::Future);
        assert_eq!(compared(&CALIBRATION, &later, &older, 0.7), Relation::Independent);
    }
    // A former taste and its end are both true.
    let liked = Statement {
        polarity: Polarity::Positive,
        tense: Tense::Past,
        ..says("apples", "The player used to like apples")
    };
    let dislikes = Statement {
        polarity: Polarity::Negative,
        tense: Tense::Present,
        ..says("apples", "The player does not like apples")
    };
    assert_eq!(compared(&CALIBRATION, &dislikes, &liked, 0.95), Relation::Independent);
}

/// One denial of two things: predicate, object and content.
const BROTHER_NOR_BOAT: (&str, &str, &str) = (
    "never have",
    "a brother nor a boat",
    "The player never had a brother nor a boat.",
);
const KOREAN_BROTHER_NOR_BOAT: (&str, &str, &str) = ("있다", "형제나 배", "플레이어는 형제나 배가 있던 적이 없다.");

#[test]
fn denial_for_all_time_is_judged_at_any_distance() {
    let of = |(predicate, object, content): (&str, &str, &str), kind, polarity, tense| Statement {
        kind,
        predicate: predicate.into(),
        polarity,
        tense,
        ..says(object, content)
    };
    let denial = |told, tense| of(told, FactKind::Note, Polarity::Negative, tense);
    for (told, denied) in [
        (
            ("work as", "a smith", "The player works as a smith."),
            ("never be", "a smith", "The player was never a smith."),
        ),
        (
            ("have", "a brother", "The player has a brother named Jun."),
            ("never have", "a brother", "The player never had a brother."),
        ),
        (
            ("이다", "대장장이", "플레이어는 대장장이이다."),
            ("이다", "대장장이", "플레이어는 대장장이였던 적이 없다."),
        ),
        (
            ("이다", "이발사", "플레이어는 이발사이다."),
            ("이다", "이발사", "플레이어는 이발사였던 적이 없다."),
        ),
        (
            ("steal", "the ring", "The player stole the ring."),
            ("never steal", "the ring", "The player never stole the ring."),
        ),
        (
            ("have", "a brother", "The player has a brother named Jun."),
            BROTHER_NOR_BOAT,
        ),
        (("own", "a boat", "The player owns a boat."), BROTHER_NOR_BOAT),
        (("있다", "형제", "플레이어는 형제가 있다."), KOREAN_BROTHER_NOR_BOAT),
        (
            ("가지다", "배", "플레이어는 배를 한 척 가지고 있다."),
            KOREAN_BROTHER_NOR_BOAT,
        ),
    ] {
        let older = of(told, FactKind::PersonalInfo, Polarity::Positive, Tense::Present);
        let newer = denial(denied, Tense::Past);
        assert!(StatementFeatures::from_statement(&newer).is_compared_at_any_distance());
        assert_eq!(
            compared(&CALIBRATION, &newer, &older, 0.1),
            Relation::Judge,
            "{}",
            newer.content
        );
        let ended = decide_about_old(&newer, &older, false, Relation::Judge, Some(JudgeVerdict::Contradicts));
        assert_eq!(ended, Decision::InvalidateOld(InvalidReason::Superseded));
        let same = decide_about_old(&newer, &older, false, Relation::Judge, Some(JudgeVerdict::Same));
        assert_eq!(same, Decision::KeepBoth);
        // A promise ends in other ways, and nobody takes back another's words.
        let promise = of(told, FactKind::Goal, Polarity::Positive, Tense::Future);
        let by_another = Statement {
            speaker: "Mira".into(),
            ..newer.clone()
        };
        for (newer, older) in [(&newer, &promise), (&by_another, &older)] {
            let related = compared(&CALIBRATION, newer, older, 0.1);
            assert_eq!(related, Relation::Independent, "{newer:?} {older:?}");
        }
    }
    let smith = ("work as", "a smith", "The player works as a smith.");
    let smith = of(smith, FactKind::PersonalInfo, Polarity::Positive, Tense::Present);
    let baker = denial(("never be", "a baker", "The player was never a baker."), Tense::Past);
    assert_eq!(compared(&CALIBRATION, &baker, &smith, 0.1), Relation::Independent);
    // The same name, or one word of two, is not the same matter.
    for (told, denied) in [
        (
            ("trust", "Mira", "The player trusts Mira."),
            ("never lie to", "Mira", "The player has never lied to Mira."),
        ),
        (
            ("write to", "Anna", "The player writes to Anna."),
            (
                "never write",
                "the letter to the king",
                "The player never wrote the letter to the king.",
            ),
        ),
    ] {
        let older = of(told, FactKind::Event, Polarity::Positive, Tense::Present);
        let newer = denial(denied, Tense::Past);
        assert_eq!(compared(&CALIBRATION, &newer, &older, 0.1), Relation::Independent);
    }
    // What was not so at first may be so now.
    let at_first = ("마시다", "술", "플레이어는 원래 술을 안 마셨다.");
    assert!(!StatementFeatures::from_statement(&denial(at_first, Tense::Past)).is_compared_at_any_distance());
    // A habit of the present denies nothing of other times.
    let habit = ("never eat", "meat", "The player never eats meat.");
    let habit = denial(habit, Tense::Present);
    assert!(!StatementFeatures::from_statement(&habit).is_compared_at_any_distance());
}

#[test]
fn changed_taste_is_superseded() {
    let old = says("apples", "The player likes apples");
    let new = says("apples", "The player hates apples");
    let superseded = Decision::InvalidateOld(InvalidReason::Superseded);
    assert_eq!(
        decide_about_old(&new, &old, false, Relation::Judge, Some(JudgeVerdict::Contradicts)),
        superseded
    );
    let old = says("포도", "플레이어는 포도를 좋아한다");
    let new = says("포도", "플레이어는 이제 포도를 싫어한다");
    assert_eq!(
        decide_about_old(&new, &old, false, Relation::Judge, Some(JudgeVerdict::Contradicts)),
        superseded
    );
}

#[test]
fn former_taste_and_present_taste_never_erase_each_other() {
    for (then, now) in [
        ("The player used to like apples", "The player likes apples"),
        ("The player used to hate apples", "The player likes apples"),
        ("플레이어는 예전에 사과를 좋아했었다", "플레이어는 사과를 좋아한다"),
        ("플레이어는 예전에 사과를 싫어했다", "플레이어는 사과를 좋아한다"),
    ] {
        let (then, now) = (says("apples", then), says("apples", now));
        for (new, old) in [(&then, &now), (&now, &then)] {
            for verdict in [JudgeVerdict::Contradicts, JudgeVerdict::Same] {
                let decision = decide_about_old(new, old, false, Relation::Judge, Some(verdict));
                assert_eq!(decision, Decision::KeepBoth, "{} / {}", new.content, old.content);
            }
        }
    }
}

#[test]
fn facts_stay_unchanged_without_a_verdict() {
    let old = says("apples", "The player likes apples");
    let new = says("apples", "The player hates apples");
    assert_eq!(
        decide_about_old(&new, &old, false, Relation::Judge, None),
        Decision::KeepBoth
    );
    assert_eq!(
        decide_about_old(&new, &old, false, Relation::Judge, Some(JudgeVerdict::Independent)),
        Decision::KeepBoth
    );
    assert_eq!(
        decide_about_old(
            &new,
            &old,
            false,
            Relation::Independent,
            Some(JudgeVerdict::Contradicts)
        ),
        Decision::KeepBoth
    );
    assert_eq!(
        decide_about_old(&new, &old, false, Relation::Judge, Some(JudgeVerdict::Same)),
        Decision::KeepBoth,
        "opposites are not one fact"
    );
}

#[test]
fn protected_facts_are_never_invalidated() {
    let base = says("apples", "The player likes apples");
    let opposite = says("apples", "The player hates apples");
    assert_eq!(
        decide_about_old(&base, &base, true, Relation::Same, None),
        Decision::FoldNewIntoOld
    );
    assert_eq!(
        decide_about_old(&opposite, &base, true, Relation::Judge, Some(JudgeVerdict::Contradicts)),
        Decision::FlagOld
    );
    assert_eq!(
        decide_about_old(&base, &base, false, Relation::Same, None),
        Decision::InvalidateOld(InvalidReason::Duplicate)
    );
}

#[test]
fn view_folds_duplicates() {
    let view = |content: &str, importance: f64, keywords: &[&str], pinned| FoldedFact {
        content: content.into(),
        keywords: keywords.iter().map(|&word| word.to_owned()).collect(),
        importance: Importance::from_clamped(importance),
        pinned,
    };
    let base = view("first", 7.0, &["grape", "Fruit"], false);
    assert_eq!(fold_duplicates(&base, &[]), base);
    let folded = fold_duplicates(
        &base,
        &[
            view("second", 9.0, &["fruit", "food"], true),
            view("third", 2.0, &["grape"], false),
        ],
    );
    assert_eq!(folded, view("third", 9.0, &["grape", "Fruit", "food"], true));
}

#[test]
fn pair_hashes_differ_by_pair_and_order() {
    assert_eq!(pair_hash("a", "b"), pair_hash("a", "b"));
    assert_ne!(pair_hash("a", "b"), pair_hash("b", "a"));
    assert_ne!(pair_hash("ab", "c"), pair_hash("a", "bc"));
}

#[test]
fn verdicts_round_trip() {
    for verdict in [JudgeVerdict::Same, JudgeVerdict::Contradicts, JudgeVerdict::Independent] {
        assert_eq!(JudgeVerdict::parse(verdict.as_str()), Some(verdict));
    }
    assert_eq!(JudgeVerdict::parse("maybe"), None);
}

#[test]
fn safety_facts_are_pinned() {
    for content in [
        "The player is allergic to peanuts",
        "The player has a shellfish allergy",
        "The player has type 1 diabetes",
        "The player has a chronic illness",
        "The player's brother must never be mentioned",
        "Don’t mention the war to the player",
        "플레이어는 땅콩 알레르기가 있다",
        "플레이어는 천식을 앓고 있다",
        "플레이어는 동생 얘기하지 말라고 했다",
        "플레이어 앞에서 거미는 금기다",
    ] {
        let mut statement = Statement {
            kind: FactKind::Constraint,
            ..says("", content)
        };
        boost_if_vital(&mut statement);
        assert!(statement.pinned && statement.importance.get() >= 9, "{content}");
    }
    for content in [
        "The player likes peanuts",
        "The player has no allergies",
        "The player isn't allergic to cats",
        "The player mentioned a metallurgist",
        "The player reads the chronicle of the vale",
        "플레이어는 알레르기가 없다",
        "플레이어는 땅콩을 좋아한다",
        "플레이어는 투자해서 황금기를 맞았다",
    ] {
        let mut statement = Statement {
            kind: FactKind::PersonalInfo,
            ..says("", content)
        };
        boost_if_vital(&mut statement);
        assert!(
            !statement.pinned && statement.importance == Importance::DEFAULT,
            "{content}"
        );
    }
    let mut vital = Statement {
        kind: FactKind::Constraint,
        ..says("", "The player is allergic to bees")
    };
    vital.importance = Importance::from_clamped(10.0);
    vital.polarity = Polarity::Positive;
    boost_if_vital(&mut vital);
    assert_eq!(vital.importance.get(), 10);
}

#[test]
fn promises_and_events_that_name_a_condition_are_not_pinned() {
    for (kind, tense, content) in [
        (
            FactKind::Goal,
            Tense::Present,
            "박정호는 플레이어의 복숭아 알레르기를 급식 서류에 적어 두기로 했다.",
        ),
        (
            FactKind::Event,
            Tense::Past,
            "박정호는 플레이어의 복숭아 알레르기를 급식 서류에 적어 두었다.",
        ),
        (
            FactKind::Goal,
            Tense::Future,
            "Mira will write the player's peanut allergy on the form.",
        ),
        (FactKind::PersonalInfo, Tense::Past, "The player had asthma as a child."),
        (
            FactKind::Preference,
            Tense::Present,
            "The player likes books on allergies.",
        ),
    ] {
        let mut statement = Statement {
            kind,
            tense,
            ..says("", content)
        };
        statement.importance = Importance::from_clamped(7.0);
        boost_if_vital(&mut statement);
        assert!(!statement.pinned && statement.importance.get() == 7, "{content}");
        assert_eq!(statement.kind, kind, "{content}");
    }
    // A model may file a condition as personal.
    let mut personal = Statement {
        kind: FactKind::PersonalInfo,
        ..says("peanuts", "The player is allergic to peanuts.")
    };
    boost_if_vital(&mut personal);
    assert!(personal.pinned && personal.kind == FactKind::Constraint);
}

#[test]
fn move_reported_as_an_event_is_compared_with_the_former_home() {
    let of = |kind, content: &str| Statement {
        kind,
        ..says("", content)
    };
    let related = |newer: &Statement, older: &Statement| compared(&CALIBRATION, newer, older, 0.7);
    for (home, moved) in [
        ("The player lives in Oakford", "The player moved to Riverton"),
        ("플레이어는 강마을에 산다", "플레이어는 참나무골로 이사했다"),
    ] {
        let (home, moved) = (of(FactKind::PersonalInfo, home), of(FactKind::Event, moved));
        assert_eq!(related(&moved, &home), Relation::Judge, "{}", moved.content);
        let ends = decide_about_old(&moved, &home, false, Relation::Judge, Some(JudgeVerdict::Contradicts));
        assert_eq!(ends, Decision::InvalidateOld(InvalidReason::Superseded));
        // The move stays as a second fact, and an older home ends no fact.
        let kept = decide_about_old(&moved, &home, false, Relation::Judge, Some(JudgeVerdict::Same));
        assert_eq!(kept, Decision::KeepBoth);
        assert_eq!(related(&home, &moved), Relation::Independent);
    }
    let sold = of(FactKind::Event, "The player sold the house dog");
    let name = of(FactKind::PersonalInfo, "The player's name is Tom");
    assert_eq!(related(&sold, &name), Relation::Independent, "of another topic");
}

#[test]
fn symptom_of_life_threatening_severity_is_pinned() {
    for content in [
        "Peanuts make the player's throat swell",
        "플레이어는 땅콩을 먹으면 목이 붓는다",
    ] {
        let mut symptom = says("", content);
        symptom.kind = FactKind::Constraint;
        boost_if_vital(&mut symptom);
        assert!(!symptom.pinned, "{content} is not rated as one");
        symptom.importance = Importance::from_clamped(10.0);
        let mut of_another = symptom.clone();
        "Mira".clone_into(&mut of_another.subject);
        boost_if_vital(&mut of_another);
        assert!(!of_another.pinned, "{content} is said of another");
        boost_if_vital(&mut symptom);
        assert!(symptom.pinned, "{content}");
    }
}

#[test]
fn highly_rated_limit_that_a_player_tells_of_itself_is_pinned() {
    let limit = |content: &str, importance| Statement {
        kind: FactKind::Constraint,
        importance: Importance::from_clamped(importance),
        ..says("", content)
    };
    let is_pinned = |mut statement: Statement| {
        boost_if_vital(&mut statement);
        statement.pinned
    };
    for content in [
        "Eggs bring the player out in boils",
        "플레이어는 달걀을 먹으면 종기가 난다",
    ] {
        assert!(
            is_pinned(limit(content, 9.0)) && is_pinned(limit(content, 8.0)),
            "{content}"
        );
        assert!(!is_pinned(limit(content, 7.0)), "{content}");
        let told_by_npc = Statement {
            speaker: "Mira".into(),
            ..limit(content, 9.0)
        };
        let former = Statement {
            tense: Tense::Past,
            ..limit(content, 9.0)
        };
        assert!(!is_pinned(told_by_npc) && !is_pinned(former), "{content}");
    }
    for content in [
        "The player never works on Sundays",
        "플레이어는 일요일에는 일하지 않는다",
    ] {
        assert!(!is_pinned(limit(content, 5.0)), "{content}");
    }
}

#[test]
fn name_that_begins_like_a_denial_is_not_a_denial() {
    let drinks = |predicate: &str, content: &str| Statement {
        predicate: predicate.into(),
        ..says("에일", content)
    };
    let older = drinks("마신다", "플레이어는 에일을 마신다.");
    let of = |newer: &Statement| {
        verdict_by_rules(
            newer,
            &StatementFeatures::from_statement(newer),
            &older,
            &StatementFeatures::from_statement(&older),
        )
    };
    let no_more = drinks("마시지 않는다", "플레이어는 에일을 안 마시지 않는다.");
    let not_with_anna = drinks("마시지 않는다", "플레이어는 안나와 에일을 마시지 않는다.");
    assert_eq!(of(&not_with_anna), None, "not with her, perhaps with others");
    assert_eq!(
        of(&drinks("마시지 않는다", "플레이어는 에일을 마시지 않는다.")),
        Some(JudgeVerdict::Contradicts)
    );
    assert_ne!(of(&no_more), Some(JudgeVerdict::Contradicts), "denied twice");
}
