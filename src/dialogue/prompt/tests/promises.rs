//! Promises: open, overdue and ended ones, what the NPC told the player to do, and claims about promises.

use super::*;
use colloquy_memory::{
    disclosure::locks::DisclosureLocks,
    fact::{EffectiveInvalidation, InvalidReason},
    state::StateChange,
};

/// A promise of `speaker` that `subject` will do something.
fn promise(id: u128, subject: &str, speaker: &str, content: &str) -> Fact {
    let mut promise = fact(id, FactKind::Goal, content, false);
    (promise.statement.subject, promise.statement.speaker) = (subject.to_owned(), speaker.to_owned());
    // The promises are of different deeds.
    promise.statement.object = String::new();
    promise
}

fn ended(mut promise: Fact, day: i64, reason: InvalidReason) -> Fact {
    promise.invalid = Some(EffectiveInvalidation {
        ended_at: at(day),
        reason,
        ended_by: None,
    });
    promise
}

/// The text of a prompt on 2026-01-04.
fn text_with(language: Language, standing: Vec<Fact>) -> (String, Prompt) {
    let case = PromptCase {
        standing,
        ..PromptCase::of(language, "x")
    };
    let prompt = case.assemble(&settings()).unwrap();
    (shown(&prompt.messages), prompt)
}

#[test]
fn promises_are_told_apart_by_day_and_end() {
    for (language, block) in [
        (
            Language::En,
            "[Open promises and goals]\n\
             - [3 days ago] The player says: The player brings salt by Saturday, 3 January (yesterday). (overdue)\n\
             - [3 days ago] You said: Mira bakes a pie on Sunday, 4 January (today).\n\n\
             [What you told the player to do]\n\
             - [3 days ago] The player returns the book by Friday, 2 January (2 days ago). (overdue)\n\n\
             [Promises and goals that are over]\n\
             - [2 days ago, kept] The player says: The player feeds the cat.\n\
             - [yesterday, given up] You said: Mira learns to sing.\n\
             - [earlier today, not kept in time] The player says: The player pays on Thursday, 1 January (3 days ago).\n",
        ),
        (
            Language::Ko,
            "[남은 약속과 목표]\n\
             - [3일 전] 플레이어의 말: The player brings salt by 1월 3일 토요일(어제). (기한 지남)\n\
             - [3일 전] 당신의 말: Mira bakes a pie on 1월 4일 일요일(오늘).\n\n\
             [당신이 플레이어에게 시킨 일]\n\
             - [3일 전] The player returns the book by 1월 2일 금요일(그저께). (기한 지남)\n\n\
             [끝난 약속과 목표]\n\
             - [그저께, 지킴] 플레이어의 말: The player feeds the cat.\n\
             - [어제, 그만둠] 당신의 말: Mira learns to sing.\n\
             - [오늘, 기한을 넘김] 플레이어의 말: The player pays on 1월 1일 목요일(3일 전).\n",
        ),
    ] {
        let npc = npc(language).name;
        let player = "player:p7";
        let standing = vec![
            promise(1, player, player, "The player brings salt by 2026-01-03."),
            promise(2, &npc, &npc, "Mira bakes a pie on 2026-01-04."),
            promise(3, player, &npc, "The player returns the book by 2026-01-02."),
            ended(
                promise(4, player, player, "The player feeds the cat."),
                1,
                InvalidReason::Fulfilled,
            ),
            ended(
                promise(5, &npc, &npc, "Mira learns to sing."),
                2,
                InvalidReason::GivenUp,
            ),
            ended(
                promise(6, player, player, "The player pays on 2026-01-01."),
                3,
                InvalidReason::Overdue,
            ),
        ];
        let (text, prompt) = text_with(language, standing);
        assert!(text.contains(block), "{text}");
        let open = |id: u128| {
            let of = |candidate: &&colloquy_memory::trace::CandidateTrace| candidate.fact == FactId::from_u128(id);
            let traced = prompt.trace.candidates.iter().find(of).unwrap();
            (traced.promise, traced.over)
        };
        // A line may end the open promises and the duty, and nothing twice.
        assert_eq!([1, 2, 3].map(open), [(true, false); 3]);
        assert_eq!([4, 5, 6].map(open), [(false, true); 3]);
    }
}

#[test]
fn promise_with_a_new_day_is_not_shown_as_given_up() {
    let player = "player:p7";
    let given_up = |id, content| ended(promise(id, player, player, content), 3, InvalidReason::GivenUp);
    let mut standing = vec![
        promise(1, player, player, "The player brings the copper kettle on 2026-01-08."),
        given_up(2, "The player brings the copper kettle on 2026-01-04."),
        given_up(3, "The player learns to sing."),
    ];
    standing[0].valid_at = at(3);
    let (text, _) = text_with(Language::En, standing.clone());
    assert_eq!(text.matches("kettle").count(), 1, "{text}");
    assert!(text.contains("The player learns to sing."), "{text}");
    standing[0].valid_at = at(2);
    let (text, _) = text_with(Language::En, standing);
    assert_eq!(
        text.matches("kettle").count(),
        2,
        "an older promise is another one: {text}"
    );
}

#[test]
fn promise_to_somebody_who_has_died_is_over() {
    let player = "player:p7";
    for (language, content, other, remark) in [
        (
            Language::En,
            "The player brings Bram salt by 2026-01-02.",
            "The player feeds Bram's finches by 2026-01-02.",
            "(Bram has died since: nothing more can be done for Bram) The player says: The player brings Bram salt",
        ),
        (
            Language::Ko,
            "플레이어는 최덕수에게 2026-01-02까지 소금을 가져다준다.",
            "플레이어는 2026-01-02까지 최덕수의 새들에게 모이를 준다.",
            "(그 뒤 최덕수가 죽어, 그를 위해 할 수 있는 일이 더는 없음) 플레이어의 말: 플레이어는 최덕수에게",
        ),
    ] {
        let (name, late) = match language {
            Language::En => ("Bram", "(overdue)"),
            Language::Ko => ("최덕수", "(기한 지남)"),
        };
        let mut case = PromptCase::of(language, "x");
        case.standing = vec![promise(1, player, player, content), promise(2, player, player, other)];
        let text = |case: &PromptCase| shown(&case.assemble(&settings()).unwrap().messages);
        let before = text(&case);
        assert!(
            !before.contains(remark) && before.matches(late).count() == 2,
            "{before}"
        );
        let die = StateChange::Status {
            who: name.to_owned(),
            status: "dead".to_owned(),
        };
        case.state.apply_change(&die, at(1), None);
        let after = text(&case);
        assert!(after.contains(remark), "{after}");
        assert_eq!(after.matches(late).count(), 1, "the other can be kept: {after}");
        case.world.settings.ghosts_speak = Some(true);
        let with_ghosts = text(&case);
        assert!(
            !with_ghosts.contains(remark) && with_ghosts.matches(late).count() == 2,
            "a ghost can take salt: {with_ghosts}"
        );
        case.world.settings.ghosts_speak = None;
        for promise in &mut case.standing {
            promise.valid_at = at(2);
        }
        let made_since = text(&case);
        assert!(!made_since.contains(remark), "made after the death: {made_since}");
    }
}

#[test]
fn past_day_in_a_promise_makes_it_not_overdue() {
    let player = "player:p7";
    for (language, content, mark) in [
        (
            Language::En,
            "The player returns the coat that Mira lent on 2026-01-02.",
            "(overdue)",
        ),
        (
            Language::Ko,
            "플레이어는 2026-01-02에 빌린 외투를 돌려주기로 했다.",
            "(기한 지남)",
        ),
    ] {
        let mut coat = promise(1, player, player, content);
        coat.valid_at = at(2);
        let (text, _) = text_with(language, vec![coat]);
        assert!(!text.contains(mark), "{text}");
    }
}

#[test]
fn only_the_last_ended_promises_are_shown_and_never_pinned() {
    let player = "player:p7";
    let mut standing: Vec<Fact> = (1..=6)
        .map(|id| {
            let content = format!("The player carries sack number {id}.");
            ended(
                promise(id, player, player, &content),
                i64::try_from(id).unwrap() - 6,
                InvalidReason::Fulfilled,
            )
        })
        .collect();
    standing[0].view.pinned = true;
    let (text, _) = text_with(Language::En, standing);
    assert_eq!(text.matches("sack number").count(), 4, "{text}");
    assert!(text.contains("number 6") && !text.contains("number 1."), "{text}");
    assert!(!text.contains("[Always keep in mind]"), "{text}");
}

#[test]
fn last_ended_promises_go_before_open_ones_of_less_importance() {
    let player = "player:p7";
    let of = |id, content: &str| promise(id, player, player, content);
    let mut standing = vec![
        of(1, "The player returns the anvil by 2025-12-01."),
        of(2, "The player returns the ladder by 2025-12-29."),
    ];
    for overdue in &mut standing {
        overdue.valid_at = at(-60);
    }
    standing.extend((3..10).map(|id| of(id, &format!("The player carries sack number {id} to the mill."))));
    for (id, content, day) in [
        (20, "The player feeds the cat.", 3),
        (21, "The player pays the toll.", 2),
        (
            22,
            "The player sweeps the whole yard before the first snow of the winter falls.",
            1,
        ),
    ] {
        standing.push(ended(of(id, content), day, InvalidReason::Fulfilled));
    }
    let mut case = PromptCase::of(Language::En, "x");
    case.standing = standing;
    let mut settings = settings();
    settings.prompt.fixed.state_chars = 600;
    let text = shown(&case.assemble(&settings).unwrap().messages);
    for shown in ["ladder", "sack number 3", "feeds the cat", "pays the toll"] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    for left_out in ["anvil", "sack number 9", "sweeps the whole yard"] {
        assert!(!text.contains(left_out), "{left_out} is in {text}");
    }
}

#[test]
fn claim_about_a_promise_and_duty_of_another_player_are_no_promises() {
    let npc = npc(Language::En).name;
    for (subject, speaker) in [
        (npc.as_str(), "player:p7"),
        ("player:p8", npc.as_str()),
        ("Dorran", npc.as_str()),
    ] {
        for end in [None, Some(InvalidReason::Fulfilled)] {
            let claim = promise(1, subject, speaker, "So and so gives the boat away.");
            let claim = match end {
                Some(reason) => ended(claim, 2, reason),
                None => claim,
            };
            let (text, _) = text_with(Language::En, vec![claim]);
            assert!(!text.contains("gives the boat away"), "{subject} by {speaker}: {text}");
        }
    }
    // Found by a search, a claim is still no promise that a line may end.
    let mut found = hit(1, "Mira gives the boat away.", 0.9, 0.9, 0);
    let body = Arc::make_mut(&mut found.body);
    (body.subject, body.kind) = (npc, FactKind::Goal);
    let mut case = PromptCase::of(Language::En, "x");
    case.hits = vec![found];
    let prompt = case.assemble(&settings()).unwrap();
    assert!(!prompt.trace.candidates[0].promise, "{:?}", prompt.trace.candidates);
}

#[test]
fn promise_with_another_day_hides_the_earlier_one_that_other_hearers_keep() {
    let duty = |id: u128, day: i64, content: &str| {
        let mut duty = promise(id, "player:p7", "Mira", content);
        duty.valid_at = at(day);
        duty
    };
    let earlier = duty(1, 0, "The player returns the poetry book by 2026-01-05.");
    let mut later = duty(2, 1, "The player returns the poetry book by 2026-01-09.");
    let other = duty(3, 1, "The player sweeps the yard by 2026-01-08.");
    let shown_days = |later: &Fact| {
        let (text, _) = text_with(Language::En, vec![earlier.clone(), later.clone(), other.clone()]);
        ["5 January", "8 January", "9 January"].map(|day| text.contains(day))
    };
    // Facts with the same locks are compared when they are learned.
    assert_eq!(shown_days(&later), [true, true, true]);
    let locks: DisclosureLocks = "lore:mira/bram-death".parse().unwrap();
    later.locks = locks;
    assert_eq!(shown_days(&later), [false, true, true]);
}
