mod ends;
mod forgetting;
mod matters;
mod overlaps;

use std::collections::BTreeSet;

use super::*;
use crate::{
    agreement::{polarity_of, tense_of},
    calibration::Calibration,
    disclosure::audience::{Audience, Knower},
    fact::{Cause, FactKind, FoldedFact, Importance},
    keywords,
};
use colloquy_core::ids::EditId;

/// The cosine counts unchanged: the thresholds are 0.90 and 0.55.
const CALIBRATION: Calibration = Calibration::IDENTITY;

/// A memory under test. Facts are named by numbers; turn `n` is at second `n`.
#[derive(Clone, Default)]
struct TimelineCase {
    timeline: Timeline,
    verdicts: Vec<((String, String), JudgeVerdict)>,
}

fn second(n: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(n, 0).expect("a moment")
}

fn turn(n: i64) -> TurnId {
    TurnId::from_u128(u128::try_from(n).expect("a number"))
}
fn fact(n: u128) -> FactId {
    FactId::from_u128(n)
}

/// A unit vector at an angle of `degrees`: the cosine of two vectors is the cosine of the angle between them.
fn at_angle(degrees: f32) -> Vec<f32> {
    vec![degrees.to_radians().cos(), degrees.to_radians().sin()]
}

impl TimelineCase {
    fn since(n: i64) -> Self {
        Self {
            timeline: Timeline {
                since: second(n),
                ..Timeline::default()
            },
            verdicts: Vec::new(),
        }
    }
    /// Adds a statement of the player in turn `n`.
    fn says(mut self, id: u128, n: i64, content: &str, degrees: f32) -> Self {
        let statement = Statement {
            subject: "player:p7".into(),
            predicate: "says".into(),
            object: content.rsplit(' ').next().unwrap_or_default().into(),
            content: content.into(),
            keywords: Vec::new(),
            speaker: "player:p7".into(),
            kind: FactKind::Preference,
            importance: Importance::DEFAULT,
            polarity: polarity_of(content),
            tense: tense_of(content),
            pinned: false,
        };
        let fact = Fact {
            id: fact(id),
            world: "vale".parse().expect("an id"),
            audience: Audience {
                knowers: BTreeSet::from([Knower::World]),
                private_to: Some("p7".parse().expect("an id")),
            },
            view: FoldedFact::from_statement(&statement),
            statement,
            valid_at: second(n),
            invalid: None,
            locks: crate::disclosure::locks::DisclosureLocks::default(),
            replaced_by: Vec::new(),
            expires_at: None,
            cause: Cause::Turn(turn(n)),
            source: None,
            derived_from: Vec::new(),
            pii: Vec::new(),
            authored: false,
            corrects: None,
            earlier_wordings: Vec::new(),
            version: 1,
        };
        self.timeline.known_facts.push(KnownFact {
            fact,
            vector: at_angle(degrees),
            written_at: second(n),
            edits: Vec::new(),
            ends: Vec::new(),
            foreign: false,
        });
        self
    }
    fn known(&mut self, id: u128) -> &mut KnownFact {
        let found = self
            .timeline
            .known_facts
            .iter_mut()
            .find(|known| known.fact.id == fact(id));
        found.expect("the case has it")
    }
    fn with(mut self, id: u128, change: impl FnOnce(&mut KnownFact)) -> Self {
        change(self.known(id));
        self
    }
    /// Adds the effects of turn `n` other than facts.
    fn brought(mut self, n: i64, forget: &[(&str, f32)], injected: &[u128]) -> Self {
        self.timeline.turns.push(SpokenTurn {
            judge_share: JudgeBudgetShare::WHOLE,
            turn: turn(n),
            committed_at: second(n),
            player: Some("p7".parse().expect("an id")),
            forget: forget
                .iter()
                .map(|(text, degrees)| ForgetRequest {
                    terms: keywords::query_terms(text),
                    vector: at_angle(*degrees),
                })
                .collect(),
            ends: Vec::new(),
            injected: injected.iter().map(|id| fact(*id)).collect(),
        });
        self
    }
    fn judged(mut self, older: &str, newer: &str, verdict: JudgeVerdict) -> Self {
        self.verdicts.push(((older.to_owned(), newer.to_owned()), verdict));
        self
    }
    fn settled(&self) -> TimelineResolution {
        PreparedTimeline::new(&CALIBRATION, self.timeline.clone()).reconcile_timeline(
            &JudgeBudget::UNLIMITED,
            |older, newer| {
                let asked = (older.content.clone(), newer.content.clone());
                let known = self.verdicts.iter().find(|(pair, _)| *pair == asked);
                known.map_or(JudgeAnswer::NotAsked, |(_, verdict)| JudgeAnswer::Verdict(*verdict))
            },
        )
    }
    /// The (fact, reason, by) of the decided ends, in order.
    fn ends(&self) -> Vec<(u128, InvalidReason, Option<u128>)> {
        let settled = self.settled();
        assert_eq!(settled.unjudged, [], "a verdict is missing");
        let mut ends: Vec<_> = settled
            .ends
            .iter()
            .map(|end| (end.fact.as_u128(), end.reason, end.ended_by.map(FactId::as_u128)))
            .collect();
        ends.sort_by_key(|end| (end.0, end.2));
        ends
    }
    /// Stores the decisions, as a ledger would.
    fn stored(mut self) -> Self {
        let settled = self.settled();
        for known in &mut self.timeline.known_facts {
            known.ends.retain(|end| !settled.lifts.contains(&end.id));
        }
        for (nth, end) in settled.ends.iter().enumerate() {
            let id = InvalidationId::from_u128(1_000 + nth as u128 + (end.fact.as_u128() << 32));
            self.known(end.fact.as_u128()).ends.push(StoredEnd {
                id,
                reason: end.reason,
                ended_by: end.ended_by,
                turn: Some(end.turn),
                ended_at: end.ended_at,
                restored_at: end.restored_at,
            });
        }
        self
    }
    /// Unsays a turn: removes its facts and the ends it caused.
    fn unsaid(mut self, n: i64) -> Self {
        self.timeline
            .known_facts
            .retain(|known| known.fact.cause != Cause::Turn(turn(n)));
        self.timeline.turns.retain(|said| said.turn != turn(n));
        for known in &mut self.timeline.known_facts {
            known.ends.retain(|end| end.turn != Some(turn(n)));
        }
        self
    }
}

use InvalidReason::{Duplicate, Echo, Forgotten, Superseded};

#[test]
fn middle_fact_of_three_may_be_unsaid() {
    let told = TimelineCase::since(0)
        .says(1, 1, "The player likes apples", 0.0)
        .says(2, 2, "The player hates apples", 40.0)
        .says(3, 3, "The player hates apples", 45.0)
        .judged(
            "The player likes apples",
            "The player hates apples",
            JudgeVerdict::Contradicts,
        );
    assert_eq!(told.ends(), [(1, Superseded, Some(2)), (2, Duplicate, Some(3))]);
    let rest = told.stored().unsaid(2);
    assert_eq!(
        rest.ends(),
        [(1, Superseded, Some(3))],
        "the two that are left are judged"
    );
    assert_eq!(rest.settled().lifts, []);
}

#[test]
fn manual_fact_takes_part_from_its_writing_however_long_valid() {
    let written = |at| {
        TimelineCase::since(0)
            .says(2, 2, "The player likes apples", 0.0)
            .says(1, 1, "The player likes apples", 0.0)
            .with(1, |known| {
                known.fact.authored = true;
                known.fact.cause = Cause::Edit(EditId::from_u128(1));
                known.written_at = second(at);
            })
            .brought(4, &[("likes apples", 0.0)], &[])
            .ends()
    };
    assert_eq!(written(1), [(2, Duplicate, Some(1))]);
    assert_eq!(written(3), [(2, Forgotten, None)]);
}

#[test]
fn reconciliation_is_idempotent() {
    let told = TimelineCase::since(0)
        .says(1, 1, "The player likes apples", 0.0)
        .says(2, 2, "The player likes apples", 5.0)
        .brought(2, &[], &[])
        .brought(3, &[("likes apples", 0.0)], &[])
        .stored();
    let again = told.settled();
    assert_eq!((again.ends, again.lifts), (vec![], vec![]));
}

#[test]
fn late_turn_is_placed_where_it_was_said() {
    let verdict = |case: TimelineCase| {
        case.judged(
            "The player likes apples",
            "The player hates apples",
            JudgeVerdict::Contradicts,
        )
        .judged(
            "The player hates apples",
            "The player likes apples",
            JudgeVerdict::Contradicts,
        )
    };
    let mut late = verdict(TimelineCase::since(0).says(1, 1, "The player likes apples", 0.0).says(
        3,
        3,
        "The player likes apples",
        2.0,
    ))
    .stored();
    assert_eq!(late.known(1).ends.len(), 1, "the third repeats the first");
    let late = late.says(2, 2, "The player hates apples", 40.0);
    let settled = late.settled();
    assert_eq!(settled.lifts.len(), 1, "which the second had ended before");
    assert_eq!(late.ends(), [(1, Superseded, Some(2)), (2, Superseded, Some(3))]);
}

#[test]
fn pinned_or_authored_fact_is_only_flagged() {
    let told = |pinned: bool| {
        TimelineCase::since(2)
            .says(1, 1, "The player likes apples", 0.0)
            .with(1, |known| {
                known.fact.statement.pinned = pinned;
                known.fact.authored = !pinned;
            })
            .says(2, 2, "The player hates apples", 40.0)
            .says(3, 3, "The player likes apples", 1.0)
            .judged(
                "The player likes apples",
                "The player hates apples",
                JudgeVerdict::Contradicts,
            )
            .judged(
                "The player hates apples",
                "The player likes apples",
                JudgeVerdict::Independent,
            )
    };
    for case in [told(true), told(false)] {
        assert_eq!(case.ends(), [(3, Duplicate, Some(1))]);
        let flags = case.settled().flags;
        assert_eq!(flags.len(), 1);
        assert_eq!(
            (flags[0].fact, flags[0].statement, flags[0].turn),
            (fact(1), fact(2), turn(2))
        );
    }
}

#[test]
fn pin_protects_from_the_moment_it_was_set() {
    let pinned_at = |n| {
        TimelineCase::since(2)
            .says(1, 1, "The player likes apples", 0.0)
            .with(1, |known| {
                known.edits.push(PastEdit {
                    edited_at: second(n),
                    pinned: Some(true),
                    ..PastEdit::default()
                });
            })
            .says(3, 3, "The player likes apples", 1.0)
    };
    assert_eq!(pinned_at(2).ends(), [(3, Duplicate, Some(1))]);
    assert_eq!(pinned_at(4).ends(), [(1, Duplicate, Some(3))]);
}

#[test]
fn echo_becomes_news_when_its_original_is_unsaid() {
    let told = TimelineCase::since(0)
        .says(1, 1, "The player likes apples", 0.0)
        .says(2, 2, "The player likes apples!", 60.0)
        .brought(2, &[], &[1]);
    assert_eq!(told.ends(), [(2, Echo, Some(1))]);
    let rest = told.stored().unsaid(1);
    let settled = rest.settled();
    assert_eq!((settled.ends.len(), settled.lifts.len()), (0, 1));
}

#[test]
fn npc_paraphrase_of_its_prompt_adds_no_fact() {
    let told = |speaker: &'static str| {
        TimelineCase::since(0)
            .says(1, 1, "The player likes apples", 0.0)
            .says(2, 2, "Apples are what the player likes", 50.0)
            .with(2, |known| known.fact.statement.speaker = speaker.to_owned())
            .brought(2, &[], &[1])
            .judged(
                "The player likes apples",
                "Apples are what the player likes",
                JudgeVerdict::Same,
            )
    };
    assert_eq!(told("Ergen").ends(), [(2, Echo, Some(1))]);
    assert_eq!(
        told("player:p7").ends(),
        [(1, Duplicate, Some(2))],
        "the player meant it"
    );
}

#[test]
fn repetition_of_another_memory_is_recognised_too() {
    let mut told = TimelineCase::since(0)
        .says(2, 2, "The mill burned down.", 0.0)
        .brought(2, &[], &[9]);
    assert_eq!(told.ends(), []);
    let elsewhere = TimelineCase::default().says(9, 1, "The mill burned down", 0.0);
    let heard = elsewhere.timeline.known_facts[0].fact.clone();
    told.timeline.other_memories.insert(fact(9), heard);
    assert_eq!(told.ends(), [(2, Echo, Some(9))]);
}

#[test]
fn first_statement_among_repetitions_is_the_original() {
    // The first statement is learned last.
    let told = TimelineCase::since(0)
        .says(9, 1, "The player likes plums.", 0.0)
        .says(2, 2, "The player likes plums", 0.0)
        .says(3, 3, "The player likes plums!", 0.0)
        .brought(3, &[], &[2, 9]);
    assert_eq!(told.ends(), [(3, Echo, Some(9)), (9, Duplicate, Some(2))]);
}

#[test]
fn forget_request_ends_the_named_fact_of_the_player() {
    let told = TimelineCase::since(3)
        .says(1, 1, "The player likes apples", 0.0)
        .says(2, 2, "The player likes pears", 20.0)
        .brought(3, &[("likes pears", 15.0)], &[]);
    assert_eq!(told.ends(), [(2, Forgotten, None)]);
    let of_another = told.with(2, |known| known.fact.statement.subject = "player:p8".into());
    assert_eq!(of_another.ends(), []);
}

#[test]
fn pin_protects_the_target_of_a_fold() {
    let pinned_at = |n| {
        let told = TimelineCase::since(1)
            .says(1, 1, "The player likes apples", 0.0)
            .says(2, 2, "The player likes apples", 1.0)
            .says(4, 4, "The player likes apples", 2.0);
        told.with(1, |known| {
            known.edits.push(PastEdit {
                edited_at: second(n),
                pinned: Some(true),
                ..PastEdit::default()
            });
        })
    };
    assert_eq!(pinned_at(3).ends(), [(1, Duplicate, Some(2)), (4, Duplicate, Some(2))]);
    assert_eq!(pinned_at(5).ends(), [(1, Duplicate, Some(2)), (2, Duplicate, Some(4))]);
}

#[test]
fn forgotten_fact_is_named_by_its_original_words() {
    let told = |reworded_at| {
        TimelineCase::since(3)
            .says(1, 1, "The player likes pears", 20.0)
            .with(1, |known| {
                known.fact.view.content = "The player likes plums".to_owned();
                known.edits.push(PastEdit {
                    edited_at: second(reworded_at),
                    content: Some("The player likes plums".to_owned()),
                    ..PastEdit::default()
                });
            })
            .brought(3, &[("likes pears", 15.0)], &[])
    };
    assert_eq!(told(4).ends(), [(1, Forgotten, None)]);
    assert_eq!(told(2).ends(), []);
}

#[test]
fn forget_request_ends_only_earlier_statements() {
    let told = TimelineCase::since(2)
        .says(3, 3, "The player likes pears", 0.0)
        .brought(2, &[("likes pears", 0.0)], &[])
        .brought(3, &[("likes pears", 0.0)], &[]);
    assert_eq!(told.ends(), [], "neither a later turn nor the same one");
}

#[test]
fn manual_reinstatements_and_removals_apply_in_order() {
    let restored = |case: TimelineCase, n| {
        case.with(1, |known| {
            known.edits.push(PastEdit {
                edited_at: second(n),
                restored: true,
                ..PastEdit::default()
            });
        })
    };
    let told = || {
        TimelineCase::since(2)
            .says(1, 1, "The player likes apples", 0.0)
            .says(2, 2, "The player likes apples", 3.0)
    };
    let settled = restored(told(), 4).settled();
    assert_eq!(settled.ends.len(), 1);
    assert_eq!(
        settled.ends[0].restored_at,
        Some(second(4)),
        "it ended, and was put back"
    );
    let twice = restored(told().says(5, 5, "The player likes apples", 1.0), 4);
    assert_eq!(
        twice.ends(),
        [
            (1, Duplicate, Some(2)),
            (1, Duplicate, Some(5)),
            (2, Duplicate, Some(5))
        ]
    );
    let removed = told().with(1, |known| {
        known.ends.push(StoredEnd {
            id: InvalidationId::from_u128(1),
            reason: InvalidReason::Removed,
            ended_by: None,
            turn: None,
            ended_at: second(1),
            restored_at: None,
        });
    });
    let settled = removed.settled();
    assert_eq!(
        (settled.ends, settled.lifts),
        (vec![], vec![]),
        "what is out takes no part"
    );
}

#[test]
fn reworded_fact_is_compared_by_its_original_words() {
    let told = |reworded_at| {
        TimelineCase::since(2)
            .says(1, 1, "The player likes apples", 80.0)
            .with(1, |known| {
                known.edits.push(PastEdit {
                    edited_at: second(reworded_at),
                    vector_before: Some(at_angle(0.0)),
                    ..PastEdit::default()
                });
            })
            .says(3, 3, "The player likes apples", 1.0)
    };
    assert_eq!(told(4).ends(), [(1, Duplicate, Some(3))]);
    assert_eq!(told(2).ends(), []);
}

#[test]
fn unjudged_statements_are_listed_and_change_nothing() {
    let told = TimelineCase::since(0).says(1, 1, "The player likes apples", 0.0).says(
        2,
        2,
        "The player hates apples at night",
        40.0,
    );
    let settled = told.settled();
    assert_eq!((settled.ends, settled.unjudged.len()), (vec![], 1));
    let silent = |told: &TimelineCase| {
        PreparedTimeline::new(&CALIBRATION, told.timeline.clone())
            .reconcile_timeline(&JudgeBudget::UNLIMITED, |_, _| JudgeAnswer::NoAnswer)
    };
    assert!(!silent(&told).has_changes() && silent(&told).undecided_pairs.len() == 1);
    let (like, hate) = ("The player likes apples", "The player hates apples at night");
    let mut told = told.judged(like, hate, JudgeVerdict::Contradicts).stored();
    told.verdicts.clear();
    for settled in [told.settled(), silent(&told)] {
        assert_eq!(settled, TimelineResolution::default(), "what is stored was judged once");
    }
}

#[test]
fn repeated_statement_is_ended_by_the_last_repetition_alone() {
    let mut told = TimelineCase::since(0);
    for n in 1..=300 {
        told = told.says(u128::try_from(n).expect("a number"), n, "The player likes apples", 0.0);
    }
    let ends = told.ends();
    let once: Vec<_> = (1..300).map(|n| (n, Duplicate, Some(n + 1))).collect();
    assert_eq!(ends, once, "each is ended by the next one and by no other");
    assert!(
        told.timeline.needs_own_thread(),
        "three hundred are compared with three hundred"
    );
}

#[test]
fn nearest_statements_only_are_compared() {
    let mut told = TimelineCase::since(1_000);
    for n in 1..=60_u8 {
        // One degree apart: all facts are near the next statement, and the first facts are nearest.
        let fact = format!("The player likes apple number {n}");
        told = told.says(u128::from(n), i64::from(n), &fact, f32::from(n) / 2.0 + 20.0);
    }
    let told = told.says(99, 2_000, "The player hates apples", 0.0);
    let unasked = told.settled().unjudged;
    assert_eq!(unasked.len(), MAX_NEAREST);
    assert!(
        unasked.windows(2).all(|pair| pair[0].cosine >= pair[1].cosine),
        "nearest first"
    );
    assert!(!told.timeline.needs_own_thread());
}

#[test]
fn nearest_statements_count_across_kinds_and_starting_points() {
    let told = |since, others: u8| {
        let mut told = TimelineCase::since(since).says(1, 1, "The player likes apples", 50.0);
        for n in 0..others {
            let id = u128::from(n) + 2;
            // Nearer to the next statement, and no preferences: the judge gets no question about them.
            told = told
                .says(
                    id,
                    i64::from(n) + 2,
                    &format!("The player saw tree {n}"),
                    f32::from(n) / 4.0 + 30.0,
                )
                .with(id, |known| known.fact.statement.kind = FactKind::Event);
        }
        let told = told.says(99, 2_000, "The player hates apples at night", 0.0);
        let of = |pair: &&UnjudgedPair| pair.older.content.ends_with("apples") && pair.newer.content.ends_with("night");
        told.settled().unjudged.iter().filter(of).count()
    };
    for since in [0, 20, 1_000] {
        assert_eq!(told(since, 15), 1, "since {since}");
        assert_eq!(told(since, 16), 0, "since {since}");
    }
}
