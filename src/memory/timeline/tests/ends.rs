//! Tests of ended promises, of people with several names, and of facts that must not be pushed out.

use super::*;
use crate::fact::Tense;

impl TimelineCase {
    /// Moves a fact to another subject than the player.
    fn of(self, id: u128, subject: &'static str) -> Self {
        self.with(id, |known| known.fact.statement.subject = subject.to_owned())
    }
    /// Adds a statement that names a subject.
    fn names(self, id: u128, n: i64, subject: &'static str, name: &'static str) -> Self {
        self.says(id, n, "The name is", 90.0).of(id, subject).with(id, |known| {
            known.fact.statement.predicate = "be named".to_owned();
            known.fact.statement.object = name.to_owned();
            known.fact.statement.kind = FactKind::PersonalInfo;
        })
    }
    /// Adds a promise, made in turn `n`.
    fn promises(self, id: u128, n: i64) -> Self {
        self.says(id, n, "The player will bring salt", 0.0).with(id, |known| {
            known.fact.statement.kind = FactKind::Goal;
            known.fact.statement.tense = Tense::Future;
        })
    }
    /// Ends a promise in turn `n`.
    fn says_over(mut self, n: i64, id: u128, how: InvalidReason) -> Self {
        self = self.brought(n, &[], &[]);
        let said = self.timeline.turns.last_mut().expect("it was just brought");
        said.ends.push(PromiseEnd { fact: fact(id), how });
        self
    }
}

use InvalidReason::{Fulfilled, GivenUp};

#[test]
fn promise_ends_by_a_later_statement_and_returns_when_that_is_unsaid() {
    let told = TimelineCase::since(0)
        .promises(1, 1)
        .says(2, 2, "The player brought salt", 30.0)
        .with(2, |known| known.fact.statement.tense = Tense::Past)
        .says_over(2, 1, Fulfilled);
    assert_eq!(told.ends(), [(1, Fulfilled, None)]);
    let rest = told.stored();
    assert_eq!(
        (rest.settled().ends, rest.settled().lifts),
        (vec![], vec![]),
        "once is enough"
    );
    assert_eq!(rest.unsaid(2).ends(), []);
}

#[test]
fn ended_fact_is_not_ended_again_or_before_it_was_said() {
    let told = TimelineCase::since(0)
        .says_over(1, 1, GivenUp)
        .promises(1, 2)
        .says_over(3, 1, Fulfilled)
        .says_over(4, 1, GivenUp)
        .says_over(5, 9, Fulfilled);
    assert_eq!(told.ends(), [(1, Fulfilled, None)]);
    // The same promise made again is another promise.
    let again = told.promises(2, 6);
    assert_eq!(again.ends(), [(1, Fulfilled, None)]);
}

#[test]
fn protected_promise_is_flagged_by_a_statement_of_its_end() {
    let told = TimelineCase::since(0)
        .promises(1, 1)
        .with(1, |known| known.fact.statement.pinned = true)
        .says(2, 2, "The player brought salt", 90.0)
        .says_over(2, 1, Fulfilled);
    let settled = told.settled();
    assert_eq!(settled.ends, []);
    let flag = FlaggedFact {
        fact: fact(1),
        statement: fact(2),
        turn: turn(2),
    };
    assert_eq!(settled.flags, [flag]);
}

#[test]
fn person_is_one_subject_under_any_name() {
    let told = |named_in: i64| {
        TimelineCase::since(0)
            .says(1, 1, "The sister lives in Rivermouth", 0.0)
            .of(1, "player:p7's sister")
            .names(2, named_in, "player:p7's sister", "Anna")
            .says(3, 3, "Anna lives in Oakford", 40.0)
            .of(3, "Anna")
            .judged(
                "The sister lives in Rivermouth",
                "Anna lives in Oakford",
                JudgeVerdict::Contradicts,
            )
    };
    for (named_in, ends) in [
        (2, vec![(1, Superseded, Some(3))]),
        (3, vec![(1, Superseded, Some(3))]),
        (4, vec![]),
    ] {
        assert_eq!(told(named_in).ends(), ends, "named in turn {named_in}");
    }
    let told = told(2).stored().unsaid(2).settled();
    assert_eq!(
        (told.ends.len(), told.lifts.len()),
        (0, 1),
        "without the name they are two"
    );
}

#[test]
fn name_removed_by_a_person_merges_no_subjects_from_then_on() {
    let taken_out_at = |n: i64| {
        TimelineCase::since(0)
            .says(1, 1, "The sister lives in Rivermouth", 0.0)
            .of(1, "player:p7's sister")
            .names(2, 2, "player:p7's sister", "Anna")
            .with(2, |known| {
                known.ends.push(StoredEnd {
                    id: InvalidationId::from_u128(7),
                    reason: InvalidReason::Removed,
                    ended_by: None,
                    turn: None,
                    ended_at: second(n),
                    restored_at: None,
                });
            })
            .says(4, 4, "Anna lives in Rivermouth", 5.0)
            .of(4, "Anna")
            .ends()
    };
    assert_eq!(taken_out_at(3), []);
    assert_eq!(taken_out_at(5), [(1, Duplicate, Some(4))]);
}

#[test]
fn forget_request_applies_to_the_person() {
    let told = |named: bool| {
        let mut told = TimelineCase::since(0)
            .says(1, 1, "The sister hates boats", 0.0)
            .of(1, "player:p7's sister");
        if named {
            told = told.names(2, 2, "player:p7's sister", "Anna");
        }
        told.brought(3, &[("Anna", 20.0)], &[]).ends()
    };
    assert_eq!(told(false), []);
    assert_eq!(told(true), [(1, Forgotten, None)]);
}

#[test]
fn npc_statement_is_forgotten_under_any_name() {
    let told = |named: bool| {
        let mut told = TimelineCase::since(0)
            .says(1, 1, "Mira told the player that Anna owes her a debt", 0.0)
            .of(1, "Mira")
            .with(1, |known| known.fact.statement.speaker = "Mira".to_owned());
        if named {
            told = told.names(2, 2, "player:p7's sister", "Anna");
        }
        let request = "Mira told the player that the player's sister owes her a debt";
        told.brought(3, &[(request, 20.0)], &[]).ends()
    };
    assert_eq!(told(false), []);
    assert_eq!(told(true), [(1, Forgotten, None)]);
}

#[test]
fn prompt_sentence_is_an_echo_under_any_name() {
    let told = |named: bool, said: &str| {
        let mut told = TimelineCase::since(0);
        if named {
            told = told.names(1, 1, "player:p7's sister", "Anna");
        }
        // Too far from each other to be the same.
        told.judged(
            "Anna lives in Thornwick",
            "The player's sister lives in Oakford",
            JudgeVerdict::Independent,
        )
        .says(2, 2, "Anna lives in Thornwick", 0.0)
        .of(2, "Anna")
        .says(3, 3, said, 60.0)
        .of(3, "player:p7's sister")
        .brought(3, &[], &[2])
    };
    let same = "The player's sister lives in Thornwick";
    assert_eq!(told(true, same).ends(), [(3, Echo, Some(2))]);
    assert_eq!(told(true, "The player's sister lives in Oakford").ends(), []);
    assert_eq!(told(false, same).ends(), []);
    let unnamed = told(true, same).stored().unsaid(1).settled();
    assert_eq!((unnamed.ends.len(), unnamed.lifts.len()), (0, 1));
}

#[test]
fn statement_repeated_in_one_turn_is_one_fact() {
    let told = |named: bool| {
        let mut told = TimelineCase::since(0);
        if named {
            told = told.names(1, 1, "player:p7's sister", "Anna");
        }
        told.says(2, 2, "Anna lives in Thornwick", 0.0)
            .of(2, "Anna")
            .says(3, 2, "The player's sister lives in Thornwick", 5.0)
            .of(3, "player:p7's sister")
            .says(4, 2, "The player's sister lives in Oakford", 50.0)
            .of(4, "player:p7's sister")
    };
    assert_eq!(told(true).ends(), [(3, Duplicate, Some(2))]);
    assert_eq!(told(false).ends(), []);
    let unnamed = told(true).stored().unsaid(1).settled();
    assert_eq!((unnamed.ends.len(), unnamed.lifts.len()), (0, 1));
}

#[test]
fn untouchable_facts_push_no_fact_out() {
    let mut told = TimelineCase::since(0).says(1, 1, "The player likes apples", 56.0);
    for n in 2..=400 {
        // Nearer to the last statement, each ended by the next, and no preferences.
        let id = u128::try_from(n).expect("a number");
        told = told
            .says(id, n, "The player saw a tree", 28.0)
            .with(id, |known| known.fact.statement.kind = FactKind::Event);
    }
    let told = told.says(999, 2_000, "The player hates apples", 0.0).judged(
        "The player likes apples",
        "The player hates apples",
        JudgeVerdict::Contradicts,
    );
    assert_eq!(told.ends()[0], (1, Superseded, Some(999)));
}

#[test]
fn renewed_promise_is_no_echo_of_its_vaguer_form() {
    let vague = "Voss takes the player to Morrow on the day the fever lifts";
    let dated = "Voss takes the player to Morrow at first light on 0212-02-25";
    let told = |first: &'static str, second: &'static str| {
        let by_voss = |known: &mut KnownFact| {
            let statement = &mut known.fact.statement;
            (statement.subject, statement.speaker) = ("Voss".into(), "Voss".into());
            (statement.kind, statement.tense) = (FactKind::Goal, Tense::Future);
            statement.object = "the player to Morrow".into();
        };
        TimelineCase::since(0)
            .says(1, 1, first, 0.0)
            .with(1, by_voss)
            .says(2, 2, second, 40.0)
            .with(2, by_voss)
            .brought(2, &[], &[1])
            .judged(first, second, JudgeVerdict::Same)
            .ends()
    };
    assert_eq!(told(vague, dated), [(1, Duplicate, Some(2))]);
    assert_eq!(told(dated, vague), [(2, Echo, Some(1))], "the date stays");
    let reworded = "Voss owes the player the way to Morrow on the day the fever lifts";
    assert_eq!(
        told(vague, reworded),
        [(1, Duplicate, Some(2))],
        "once, in the newer words"
    );
}

#[test]
fn addition_to_the_words_of_somebody_else_stands_beside_them() {
    let told = TimelineCase::since(0)
        .says(1, 1, "The player likes plums", 0.0)
        .says(2, 2, "The player likes plums from Oakford", 40.0)
        .with(2, |known| known.fact.statement.speaker = "Ergen".to_owned())
        .brought(2, &[], &[1])
        .judged(
            "The player likes plums",
            "The player likes plums from Oakford",
            JudgeVerdict::Same,
        );
    assert_eq!(told.ends(), []);
}

#[test]
fn names_of_a_player_stand_beside_each_other() {
    let told = TimelineCase::since(0)
        .names(1, 1, "player:p7", "Ida Marrable")
        .names(2, 2, "player:p7", "Wren")
        .names(3, 3, "player:p7", "Ida Marrable");
    assert_eq!(told.ends(), [(3, Duplicate, Some(1))], "the first name stays first");
}

#[test]
fn second_name_is_no_echo_of_the_first() {
    let named = |told: TimelineCase, id: u128, name: &'static str| {
        told.with(id, |known| {
            known.fact.statement.content = format!("The player is named {name}");
        })
    };
    let told = TimelineCase::since(0)
        .names(1, 1, "player:p7", "Ida Marrable")
        .names(2, 2, "player:p7", "Wren")
        .brought(2, &[], &[1]);
    let told = named(named(told, 1, "Ida Marrable"), 2, "Wren");
    assert_eq!(told.ends(), []);
}

/// Two promises, each with its locks. The judge says `verdict`.
fn promised_under_locks(older: (&str, &str), newer: (&str, &str), verdict: JudgeVerdict) -> TimelineCase {
    let mut case = TimelineCase::since(0).judged(older.0, newer.0, verdict);
    for (id, n, (content, locks), degrees) in [(1, 1, older, 0.0), (2, 2, newer, 40.0)] {
        case = case.says(id, n, content, degrees).with(id, |known| {
            known.fact.statement.kind = FactKind::Goal;
            known.fact.locks = locks.parse().expect("locks");
        });
    }
    case
}

#[test]
fn promise_under_other_locks_ends_where_all_its_readers_may_read_the_other_one() {
    const VAGUE: &str = "The player will bring salt";
    const AGAIN: &str = "The player will surely bring salt";
    const EXACT: &str = "The player will bring 3 sacks of salt";
    const CAVE: &str = "scenario:mira/cave";
    const BOTH: &str = "scenario:mira/cave;scenario:mira/well";
    for (older, newer, ends) in [
        // The repetition has more locks.
        ((VAGUE, ""), (AGAIN, CAVE), vec![(2, Echo, Some(1))]),
        ((EXACT, CAVE), (VAGUE, BOTH), vec![(2, Echo, Some(1))]),
        // The newer words have fewer locks, and lack nothing.
        ((VAGUE, CAVE), (AGAIN, ""), vec![(1, Superseded, Some(2))]),
        ((VAGUE, BOTH), (EXACT, CAVE), vec![(1, Superseded, Some(2))]),
        ((EXACT, CAVE), (VAGUE, ""), vec![]),
        // Readers without the lock would lose the promise.
        ((VAGUE, ""), (EXACT, CAVE), vec![]),
        ((VAGUE, "scenario:mira/well"), (AGAIN, CAVE), vec![]),
    ] {
        let told = promised_under_locks(older, newer, JudgeVerdict::Same);
        assert_eq!(told.ends(), ends, "{older:?} {newer:?}");
        let rest = told.stored().unsaid(1);
        let settled = rest.settled();
        let lifted = ends.iter().filter(|end| end.0 == 2).count();
        assert_eq!(
            (settled.ends, settled.lifts.len()),
            (vec![], lifted),
            "{older:?} {newer:?}"
        );
    }
    let contradicted = promised_under_locks((VAGUE, ""), (AGAIN, CAVE), JudgeVerdict::Contradicts);
    assert_eq!(contradicted.ends(), [], "some readers hear only of the older one");
}

#[test]
fn same_words_under_other_locks_are_folded_into_neither() {
    let case = |older: &str, newer: &str| {
        let mut case = TimelineCase::since(0);
        for (id, n, locks) in [(1, 1, older), (2, 2, newer)] {
            case = case
                .says(id, n, "The player likes apples", 0.0)
                .with(id, |known| known.fact.locks = locks.parse().expect("locks"));
        }
        case.ends()
    };
    assert_eq!(case("", ""), [(1, Duplicate, Some(2))]);
    assert_eq!(case("scenario:mira/cave", ""), [(1, Superseded, Some(2))]);
    assert_eq!(case("", "scenario:mira/cave"), [], "no promise");
}

#[test]
fn facts_ended_earlier_take_no_room() {
    let mut told = TimelineCase::since(1_000)
        .says(1, 1, "The player likes apples", 0.0)
        .with(1, |known| known.fact.statement.pinned = true);
    for n in 2..=400 {
        let id = u128::try_from(n).expect("a number");
        told = told.says(id, n, "The player likes apples", 0.0).with(id, |known| {
            known.ends.push(StoredEnd {
                id: InvalidationId::from_u128(id),
                reason: Duplicate,
                ended_by: Some(fact(1)),
                turn: Some(turn(n)),
                ended_at: second(n),
                restored_at: None,
            });
        });
    }
    let told = told.says(999, 2_000, "The player likes apples", 0.0);
    assert_eq!(told.ends(), [(999, Duplicate, Some(1))]);
}
