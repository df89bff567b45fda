//! Company, first meetings, deaths and news in prompts.

use super::*;
use crate::knowledge::{TurnActions, actions::ActionOutcome, scenarios::ScenarioHit};
use colloquy_memory::{progress::Progress, scenario::ScenarioNews, state::StateChange};

fn member(id: &str, name: &str, faction: Option<&str>) -> SceneMember {
    SceneMember {
        id: id.parse().unwrap(),
        name: name.to_owned(),
        factions: faction.into_iter().map(|faction| faction.parse().unwrap()).collect(),
    }
}

#[test]
fn action_of_another_talk_is_unknown_to_those_who_hear() {
    let mut case = in_company(Language::En, &[Knower::World]);
    let elsewhere = DialogueId::new(DialogueKind::Session, ulid::Ulid(77));
    let outcome = |dialogue, text: &str| ActionOutcome {
        dialogue,
        line: text.into(),
    };
    case.actions = TurnActions::with_outcomes(vec![
        outcome(dialogue(), "Your action wave was done"),
        outcome(elsewhere, "Your action open_gate still waits"),
    ]);
    let text = shown(&case.assemble(&settings()).unwrap().messages);
    assert!(text.contains("- Your action wave was done"), "{text}");
    assert!(
        text.contains("- (unknown to Bram) Your action open_gate still waits"),
        "{text}"
    );
}

#[test]
fn fact_of_another_talk_that_repeats_a_standing_fact_is_not_shown_again() {
    let mut case = full(Language::En);
    let standing = case.standing[0].clone();
    let shown_facts = |case: &PromptCase| {
        let text = shown(&case.assemble(&settings()).unwrap().messages);
        text.matches(&*standing.view.content).count()
    };
    assert_eq!(shown_facts(&case), 1);
    let mut repeated = case.hits[0].clone();
    let body = Arc::make_mut(&mut repeated.body);
    (body.subject, body.predicate) = (standing.statement.subject.clone(), standing.statement.predicate.clone());
    body.object.clone_from(&standing.statement.object);
    body.view = standing.view.clone();
    body.speaker = standing.statement.speaker.clone();
    case.hits.push(repeated);
    assert_eq!(shown_facts(&case), 1);
}

/// Returns a prompt with a promise, a found fact, an episode and an insight, of which the other NPC hears.
fn in_company(language: Language, knowers: &[Knower]) -> PromptCase {
    let mut case = full(language);
    case.scene = Some(Scene {
        cast: vec![member("mira", "Mira", None), member("bram", "Bram", Some("guild"))],
        ..Scene::default()
    });
    for fact in &mut case.standing {
        fact.audience.knowers = knowers.iter().cloned().collect();
    }
    for hit in &mut case.hits {
        let body = Arc::make_mut(&mut hit.body);
        body.knowers = Arc::new(knowers.iter().cloned().collect());
    }
    case
}

#[test]
fn what_not_all_who_hear_know_is_marked_with_the_rule_to_keep_it() {
    let npc = |id: &str| Knower::Npc(id.parse().unwrap());
    let known_to_all = [
        vec![npc("mira"), npc("bram")],
        vec![Knower::Faction("guild".parse().unwrap())],
        vec![Knower::World],
    ];
    for (language, mark, rule) in [
        (Language::En, "(unknown to Bram)", "keep it to yourself"),
        (Language::Ko, "(Bram은(는) 모르는 일)", "먼저 말하기 전에는"),
    ] {
        let prompt = in_company(language, &[npc("mira")]).assemble(&settings()).unwrap();
        let text = shown(&prompt.messages);
        assert_eq!(text.matches(mark).count(), 3, "pinned, promised and found: {text}");
        assert!(prompt.messages[0].content.contains(rule), "{text}");
        for knowers in &known_to_all {
            let prompt = in_company(language, knowers).assemble(&settings()).unwrap();
            assert!(!shown(&prompt.messages).contains(mark), "{knowers:?}");
        }
        let mut left = in_company(language, &[npc("mira")]);
        left.scene.as_mut().unwrap().dead = vec!["bram".parse().unwrap()];
        let text = shown(&left.assemble(&settings()).unwrap().messages);
        assert!(
            !text.contains(mark) && !text.contains(rule),
            "the dead hear nothing: {text}"
        );
    }
}

#[test]
fn witness_hears_and_may_not_know() {
    let mut case = in_company(Language::En, &[Knower::Npc("mira".parse().unwrap())]);
    case.scene = None;
    assert!(!shown(&case.assemble(&settings()).unwrap().messages).contains("unknown"));
    case.witnesses = vec![member("bram", "Bram", None)];
    let text = shown(&case.assemble(&settings()).unwrap().messages);
    assert!(
        text.contains("[Who listens]\nBesides the player, Bram can hear you."),
        "{text}"
    );
    assert_eq!(text.matches("(unknown to Bram)").count(), 3, "{text}");
}

#[test]
fn greeting_is_for_a_stranger_until_there_was_a_meeting_or_a_name() {
    for (language, stranger, known, silent, said_nothing, came_up) in [
        (
            Language::En,
            "You have never met this player",
            "You know this player",
            "says nothing and waits",
            "[The player says nothing]",
            "[The player came up to you]",
        ),
        (
            Language::Ko,
            "처음 보는 사람이다",
            "아는 사람이다",
            "아무 말 없이 기다린다",
            "[플레이어는 아무 말도 하지 않는다]",
            "[플레이어가 다가왔다]",
        ),
    ] {
        let line = |case: &PromptCase| {
            let prompt = case.assemble(&settings()).unwrap();
            prompt.messages.last().unwrap().content.clone()
        };
        let mut case = PromptCase::of(language, "");
        assert!(line(&case).contains(stranger) && !line(&case).contains(known));
        case.meeting = Some(Meeting {
            last_turn_at: at(1),
            since: at(1),
            summary: None,
        });
        assert!(line(&case).contains(known) && !line(&case).contains(stranger));
        let mut again = PromptCase::of(language, "");
        again.history = vec![turn(1, "Hello!", "Good day.")];
        assert!(
            line(&again).contains(silent) && !line(&again).contains(stranger),
            "they are talking"
        );
        again.history.push(turn(2, "", "Well?"));
        let prompt = shown(&again.assemble(&settings()).unwrap().messages);
        assert!(prompt.contains(said_nothing) && !prompt.contains(came_up), "{prompt}");
        again.history = vec![turn(1, "", "Well?")];
        let prompt = shown(&again.assemble(&settings()).unwrap().messages);
        assert!(prompt.contains(came_up) && !prompt.contains(said_nothing), "{prompt}");
    }
}

#[test]
fn present_of_the_dead_is_told_as_of_their_life() {
    let mut case = full(Language::En);
    let body = Arc::make_mut(&mut case.hits[0].body);
    body.subject = "the guard Dunstan".to_owned();
    body.view.content = "The guard Dunstan has a cough.".to_owned();
    let die = StateChange::Status {
        who: "Dunstan".to_owned(),
        status: "dead".to_owned(),
    };
    let remark = "(said while Dunstan was alive) The player says: The guard Dunstan has a cough.";
    assert!(!shown(&case.assemble(&settings()).unwrap().messages).contains(remark));
    case.state.apply_change(&die, at(2), None);
    assert!(shown(&case.assemble(&settings()).unwrap().messages).contains(remark));
    let body = Arc::make_mut(&mut case.hits[0].body);
    body.valid_at = at(3);
    let text = shown(&case.assemble(&settings()).unwrap().messages);
    assert!(!text.contains("was alive"), "said after the death: {text}");
}

#[test]
fn prompt_says_what_has_just_opened_and_what_was_told() {
    let mut case = full(Language::En);
    case.opened = vec![OpenedScenario {
        id: "mill".parse().unwrap(),
        title: Disclosable::sample("The mill".to_owned()),
    }];
    let prompt = case.assemble(&settings()).unwrap();
    let text = shown(&prompt.messages);
    assert!(text.contains("Newly open to this player: \"The mill\""), "{text}");
    assert_eq!(opened_scenarios(&prompt), ["mill".parse().unwrap()]);
    case.past = Some(NpcPast {
        progress: Progress::new(7).unwrap(),
        is_asked: true,
        hits: vec![
            ScenarioHit::sample("mill", Some(ScenarioNews::Opened)),
            ScenarioHit::sample("well", Some(ScenarioNews::Told)),
            ScenarioHit::sample("ford", None),
        ],
    });
    let prompt = case.assemble(&settings()).unwrap();
    let text = shown(&prompt.messages);
    for line in [
        "- (only now open to this player: you have never told it) The mill: It burnt.\n",
        "- (you have told this player already) The well: It burnt.\n",
        "- The ford: It burnt.\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(
        opened_scenarios(&prompt).is_empty() && !text.contains("Newly open"),
        "its content is there: {text}"
    );
    let past = text.split("[Your past]").nth(1).unwrap();
    assert!(
        !past.contains('7') && !past.contains('3'),
        "no number of progress: {past}"
    );
}
