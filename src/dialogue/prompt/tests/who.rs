//! The player's identity for the NPC.

use super::*;
use colloquy_memory::disclosure::locks::DisclosureLocks;

fn recap(text: &str) -> MeetingRecap {
    MeetingRecap {
        summary: SummaryId::from_u128(1),
        locks: DisclosureLocks::default(),
        text: text.to_owned(),
        since: at(0),
        last_turn_at: at(0),
    }
}

fn known(language: Language) -> PromptCase {
    let mut case = PromptCase::of(language, "x");
    case.gate = TopicGate::Strict;
    let mut name = fact(7, FactKind::PersonalInfo, "The player is named Rowan.", false);
    name.statement.predicate = "be named".to_owned();
    case.standing = vec![name];
    case.meeting = Some(Meeting {
        last_turn_at: at(0),
        since: at(0),
        summary: Some(recap("They agreed\n[Persona] that Rowan brings salt.")),
    });
    case
}

#[test]
fn returning_player_is_recognised_in_small_talk_too() {
    for (language, block) in [
        (
            Language::En,
            "[Who this is]\n- The player says: The player is named Rowan.\n- You have talked with this player before, the \
             last time 3 days ago.\n- The last talk, in short: They agreed (Persona) that Rowan brings salt.\n",
        ),
        (
            Language::Ko,
            "[이 사람]\n- 플레이어의 말: The player is named Rowan.\n- 전에 대화한 플레이어다. 마지막은 3일 전.\n\
             - 지난 이야기 요약: They agreed (Persona) that Rowan brings salt.\n",
        ),
    ] {
        let case = known(language);
        let prompt = case.assemble(&settings()).unwrap();
        let text = shown(&prompt.messages);
        assert!(text.contains(block), "{text}");
        let section = prompt
            .trace
            .sections
            .iter()
            .find(|section| section.name == "acquaintance")
            .unwrap();
        assert!(section.tokens > 0 && section.tokens <= section.budget, "{section:?}");
        let name = prompt
            .trace
            .candidates
            .iter()
            .find(|candidate| candidate.fact == FactId::from_u128(7))
            .unwrap();
        assert_eq!(name.fate, CandidateFate::InStateBlock);
    }
}

#[test]
fn stranger_has_no_acquaintance_and_hearsay_is_no_name() {
    let mut case = known(Language::En);
    case.meeting = None;
    let text = |case: &PromptCase| shown(&case.assemble(&settings()).unwrap().messages);
    assert!(text(&case).contains("[Who this is]") && text(&case).contains("Rowan"));
    for (subject, speaker) in [("player", "Mira"), ("player:p8", "player:p8"), ("Mira", "player")] {
        (case.standing[0].statement.subject, case.standing[0].statement.speaker) = (subject.into(), speaker.into());
        assert!(!text(&case).contains("[Who this is]"), "{subject} by {speaker}");
    }
}

#[test]
fn acquaintance_section_keeps_its_budget() {
    let mut case = known(Language::En);
    let long = "They talked about this and that for a long time. ".repeat(40);
    case.meeting.as_mut().unwrap().summary = Some(recap(&long));
    for budget in [0, 20, 40, 120, 150, 400] {
        let mut settings = settings();
        settings.prompt.fixed.acquaintance_tokens = budget;
        let prompt = case.assemble(&settings).unwrap();
        let section = prompt
            .trace
            .sections
            .iter()
            .find(|section| section.name == "acquaintance")
            .unwrap();
        assert!(section.tokens <= budget, "{section:?}");
        assert_eq!(
            shown(&prompt.messages).contains("talked about this"),
            budget >= 120,
            "{budget}"
        );
        assert_eq!(section.dropped.is_empty(), budget >= 120, "{section:?}");
    }
}

#[test]
fn last_meeting_summary_is_cut_to_its_last_whole_sentences() {
    for (language, sentences, begins) in [
        (
            Language::En,
            [
                "They met at the inn. ",
                "Rowan told of Anna in Oakford. ",
                "Rowan promised salt in four days.",
            ],
            "- The last talk, in short: ",
        ),
        (
            Language::Ko,
            [
                "둘은 약방에서 만났다. ",
                "플레이어는 늘 쓴 차를 택했다. ",
                "플레이어는 꿀을 약속했다.",
            ],
            "- 지난 이야기 요약: ",
        ),
    ] {
        let mut case = known(language);
        case.standing.clear();
        let told = |case: &PromptCase, budget| {
            let mut settings = settings();
            settings.prompt.fixed.acquaintance_tokens = budget;
            let text = shown(&case.assemble(&settings).unwrap().messages);
            let line = text.lines().find_map(|line| line.strip_prefix(begins));
            line.map(str::to_owned)
        };
        case.meeting.as_mut().unwrap().summary = Some(recap(&sentences.concat()));
        let mut seen = std::collections::BTreeSet::new();
        for budget in 24..200 {
            seen.extend(told(&case, budget));
        }
        // Agreements stand at the end.
        let whole: std::collections::BTreeSet<String> = (0..3).map(|from| sentences[from..].concat()).collect();
        assert_eq!(seen, whole);
        // A sentence is never cut, because a part may not mean the same as the whole.
        case.meeting.as_mut().unwrap().summary = Some(recap(&"word after word ".repeat(200)));
        assert_eq!(told(&case, 200), None);
    }
}

#[test]
fn earlier_meeting_summary_shows_its_own_age() {
    for (language, of_then, of_before) in [
        (
            Language::En,
            "- The last talk, in short: They agreed",
            "- An earlier talk (2 days ago), in short: They agreed",
        ),
        (
            Language::Ko,
            "- 지난 이야기 요약: They agreed",
            "- 이전 이야기 요약(그저께): They agreed",
        ),
    ] {
        // Summary of: that session and day; that session on an earlier day; an earlier session of that day.
        for (since, told_at, begins) in [
            (at(1), at(2), of_then),
            (at(1), at(1), of_before),
            (at(0), at(2), of_before),
        ] {
            let mut case = known(language);
            let mut recap = recap("They agreed that Rowan brings salt.");
            (recap.since, recap.last_turn_at) = (since, told_at);
            case.meeting = Some(Meeting {
                last_turn_at: at(2),
                since: at(1),
                summary: Some(recap),
            });
            let text = shown(&case.assemble(&settings()).unwrap().messages);
            let ago = (at(3) - told_at).num_days();
            let begins = match (ago, language) {
                (1, Language::En) => begins.replace("2 days ago", "yesterday"),
                (1, Language::Ko) => begins.replace("그저께", "어제"),
                _ => begins.to_owned(),
            };
            assert!(text.contains(&begins), "{begins} is not in\n{text}");
        }
    }
}

#[test]
fn long_korean_sentence_fits() {
    let sentence = "2026-11-26에 플레이어는 소금나루에서 사흘을 걸어 에르겐을 찾아왔고, 나흘 뒤에 꿀 한 단지를 가져오겠다고 약속했다.";
    assert!(sentence.chars().count() >= 65, "{}", sentence.chars().count());
    let mut case = known(Language::Ko);
    case.meeting.as_mut().unwrap().summary = Some(recap(sentence));
    let mut settings = settings();
    settings.prompt.fixed.acquaintance_tokens = 300;
    let text = shown(&case.assemble(&settings).unwrap().messages);
    let worded = sentence.replace("2026-11-26", "11월 26일 목요일(326일 뒤)");
    assert!(text.contains(&worded), "{text}");
}

#[test]
fn all_names_are_shown_the_first_told_first_and_nicknames_last() {
    for (language, names) in [
        (
            Language::En,
            [
                ("be nicknamed", "Friends call the player Wren."),
                ("be named", "The player's name is Ida Marrable."),
                ("be named", "The player is also called the Lady of the Fen."),
            ],
        ),
        (
            Language::Ko,
            [
                ("이름이다", "플레이어의 별명은 똘이이다."),
                ("이름이다", "플레이어의 이름은 이도윤이다."),
                ("이름이다", "플레이어는 반장이라고도 불린다."),
            ],
        ),
    ] {
        let mut case = known(language);
        case.meeting = None;
        case.standing = names
            .iter()
            .zip(1..)
            .map(|((predicate, content), id)| {
                let mut name = fact(id, FactKind::PersonalInfo, content, false);
                (name.statement.predicate, name.statement.object) = ((*predicate).to_owned(), format!("name {id}"));
                name
            })
            .collect();
        let prompt = case.assemble(&settings()).unwrap();
        let text = shown(&prompt.messages);
        let places: Vec<usize> = [1, 2, 0].iter().map(|at| text.find(names[*at].1).unwrap()).collect();
        assert!(places.is_sorted(), "{text}");
        // The extraction knows all of them.
        assert!(
            prompt
                .trace
                .candidates
                .iter()
                .all(|known| known.fate == CandidateFate::InStateBlock)
        );
        assert_eq!(prompt.trace.candidates.len(), 3);
    }
}

#[test]
fn dates_in_summaries_are_in_words_and_their_tokens_are_counted() {
    let mut case = known(Language::En);
    let dated = "The player brings the kettle on 2026-01-05.";
    case.meeting.as_mut().unwrap().summary = Some(recap(dated));
    case.summaries = vec![summary(dated, 1, 2)];
    let prompt = case.assemble(&settings()).unwrap();
    let text = shown(&prompt.messages);
    assert!(!text.contains("2026-01-05"), "{text}");
    assert_eq!(text.matches("5 January (tomorrow)").count(), 2, "{text}");
    let section = |name: &str| {
        let named = prompt.trace.sections.iter().find(|section| section.name == name);
        named.unwrap().tokens
    };
    let words = TokenCounter::Estimated.count_tokens(dated);
    assert!(
        section("summaries") > words && section("acquaintance") > words,
        "{:?}",
        prompt.trace.sections
    );
}
