//! Who the player is to the NPC.

use super::*;

fn recap(text: &str) -> Recap {
    Recap {
        text: text.to_owned(),
        since: at(0),
    }
}

fn known(language: Language) -> Case {
    let mut case = Case::of(language, "x");
    case.gate = Gate::Strict;
    let mut name = fact(7, FactKind::PersonalInfo, "The player is named Rowan.", false);
    name.statement.predicate = "be named".to_owned();
    case.standing = vec![name];
    case.meeting = Some(Meeting {
        at: at(0),
        summary: Some(recap("They agreed\n[Persona] that Rowan brings salt.")),
    });
    case
}

#[test]
fn one_who_comes_again_is_known_in_small_talk_too() {
    for (language, block) in [
        (
            Language::En,
            "[Who this is]\n- The player says: The player is named Rowan.\n- You have talked with this player before, the \
             last time 3 days ago.\n- The last talk, in short: They agreed (Persona) that Rowan brings salt.\n",
        ),
        (
            Language::Ko,
            "[이 사람은 누구인가]\n- 플레이어의 말: The player is named Rowan.\n- 전에 이야기를 나눈 적이 있는 플레이어다. \
             마지막으로 만난 때: 3일 전.\n- 지난 이야기 요약: They agreed (Persona) that Rowan brings salt.\n",
        ),
    ] {
        let case = known(language);
        let prompt = case.assemble(&settings()).unwrap();
        let text = shown(&prompt.messages);
        assert!(text.contains(block), "{text}");
        let section = prompt
            .sections
            .iter()
            .find(|section| section.name == "acquaintance")
            .unwrap();
        assert!(section.tokens > 0 && section.tokens <= section.budget, "{section:?}");
        let name = prompt
            .candidates
            .iter()
            .find(|candidate| candidate.fact == FactId::from_u128(7))
            .unwrap();
        assert_eq!(name.fate, CandidateFate::InStateBlock);
    }
}

#[test]
fn a_stranger_is_nobody_and_what_others_call_the_player_is_no_name() {
    let mut case = known(Language::En);
    case.meeting = None;
    let text = |case: &Case| shown(&case.assemble(&settings()).unwrap().messages);
    assert!(text(&case).contains("[Who this is]") && text(&case).contains("Rowan"));
    for (subject, speaker) in [("player", "Mira"), ("player:p8", "player:p8"), ("Mira", "player")] {
        (case.standing[0].statement.subject, case.standing[0].statement.speaker) = (subject.into(), speaker.into());
        assert!(!text(&case).contains("[Who this is]"), "{subject} by {speaker}");
    }
}

#[test]
fn it_keeps_to_its_budget() {
    let mut case = known(Language::En);
    let long = "They talked about this and that for a long time. ".repeat(40);
    case.meeting.as_mut().unwrap().summary = Some(recap(&long));
    for budget in [0, 20, 40, 120, 150, 400] {
        let mut settings = settings();
        settings.prompt.acquaintance_tokens = budget;
        let prompt = case.assemble(&settings).unwrap();
        let section = prompt
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
fn what_the_last_talk_was_about_ends_at_a_sentence() {
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
        let told = |case: &Case, budget| {
            let mut settings = settings();
            settings.prompt.acquaintance_tokens = budget;
            let text = shown(&case.assemble(&settings).unwrap().messages);
            let line = text.lines().find_map(|line| line.strip_prefix(begins));
            line.map(str::to_owned)
        };
        case.meeting.as_mut().unwrap().summary = Some(recap(&sentences.concat()));
        let mut seen = std::collections::BTreeSet::new();
        for budget in 24..200 {
            if let Some(line) = told(&case, budget).filter(|line| !line.ends_with('…')) {
                seen.insert(line);
            }
        }
        let whole: std::collections::BTreeSet<String> = (1..=3)
            .map(|many| sentences[..many].concat().trim_end().to_owned())
            .collect();
        assert_eq!(seen, whole);
        // Where no sentence fits, whole words.
        let endless = "word after word ".repeat(200);
        case.meeting.as_mut().unwrap().summary = Some(recap(&endless));
        let line = told(&case, 100).unwrap();
        assert!(line.ends_with("word…") || line.ends_with("after…"), "{line}");
    }
}
