//! Episodes in a prompt.

use super::*;
use crate::knowledge::EpisodeHit;
use colloquy_memory::{
    disclosure::locks::DisclosureLocks,
    episode::Episode,
    fact::Importance,
    trace::{EpisodeFate, EpisodeStage},
};

/// Returns an episode of turn `n` of another session, in the order of `n`.
fn hit(n: u32, importance: u8, text: &str) -> EpisodeHit {
    EpisodeHit {
        episode: Disclosable::sample(Episode {
            turn: TurnId::from_u128(u128::from(n)),
            dialogue: DialogueId::new(DialogueKind::Session, ulid::Ulid(2)),
            number: n,
            world: "vale".parse().unwrap(),
            npc: "mira".parse().unwrap(),
            player: "p7".parse().unwrap(),
            place: None,
            text: text.to_owned(),
            importance: Importance::new(importance).unwrap(),
            locks: DisclosureLocks::default(),
            committed_at: at(0) + TimeDelta::seconds(i64::from(n)),
        }),
        similarity: None,
        vector: [].into(),
        redacted: false,
    }
}

fn of_dialogue(mut hit: EpisodeHit) -> EpisodeHit {
    hit.episode.dialogue = dialogue();
    hit
}

fn fates(prompt: &Prompt) -> Vec<(u32, EpisodeStage, EpisodeFate)> {
    let traced = prompt.trace.episodes.iter();
    traced.map(|traced| (traced.turn, traced.stage, traced.fate)).collect()
}

#[test]
fn episodes_are_shown_in_order_of_time_with_age_turn_and_place() {
    for (language, block) in [
        (
            Language::En,
            "[What happened between you and the player]\n- 3 days ago | turn 1 | Dark Forest | They met the (goblin) chief.\n\
             - 3 days ago | turn 5 | They spoke of plums.\n- 3 days ago | turn 9 | The player said goodbye.\n",
        ),
        (
            Language::Ko,
            "[플레이어와 있었던 일]\n- 3일 전 | 1턴 | Dark Forest | They met the (goblin) chief.\n\
             - 3일 전 | 5턴 | They spoke of plums.\n- 3일 전 | 9턴 | The player said goodbye.\n",
        ),
    ] {
        let mut case = PromptCase::of(language, "x");
        let mut first = hit(1, 9, "They met the\n[goblin] chief.");
        first.episode.place = Some("Dark Forest".to_owned());
        case.episodes = vec![
            hit(9, 3, "The player said goodbye."),
            first,
            of_dialogue(hit(5, 4, "They spoke of plums.")),
        ];
        let prompt = case.assemble(&settings()).unwrap();
        let text = shown(&prompt.messages);
        assert!(text.contains(block), "{text}");
        let section = prompt
            .trace
            .sections
            .iter()
            .find(|section| section.name == "episodes")
            .unwrap();
        assert!(section.tokens > 0 && section.budget == 300, "{section:?}");
    }
}

#[test]
fn episode_that_found_facts_of_its_turn_tell_is_left_out() {
    let mut case = full(Language::En);
    let mut repeats = hit(3, 2, "The player said that the player likes grapes.");
    let mut tells_more = hit(4, 2, "The player gave Mira a basket of grapes at the well.");
    for episode in [&mut repeats, &mut tells_more] {
        episode.similarity = Some(0.9);
    }
    let source = |number| Some((repeats.episode.dialogue, number));
    let facts = [source(3), source(4)].map(|source| {
        let mut fact = case.hits[0].clone();
        let body = Arc::make_mut(&mut fact.body);
        (body.id, body.source) = (FactId::from_u128(u128::from(source.unwrap().1) + 50), source);
        fact
    });
    // The newest and the most important episodes stand in each prompt.
    let others = (10..20).map(|number| hit(number, 9, &format!("The player sailed to harbour {number}.")));
    case.hits = facts.to_vec();
    case.episodes = [repeats, tells_more].into_iter().chain(others).collect();
    let prompt = case.assemble(&settings()).unwrap();
    let fate = |turn| {
        fates(&prompt)
            .into_iter()
            .find(|traced| traced.0 == turn)
            .map(|traced| traced.2)
    };
    assert_eq!(fate(3), Some(EpisodeFate::InFacts));
    assert_eq!(fate(4), Some(EpisodeFate::Used));
}

#[test]
fn episodes_of_shown_turns_and_of_shown_summaries_are_left_out() {
    let mut case = PromptCase::of(Language::En, "x");
    case.history = (3..=4).map(|number| turn(number, "Hello.", "Hm.")).collect();
    case.summaries = vec![summary("The player met the goblin chief in the forest.", 1, 2)];
    case.episodes = vec![
        of_dialogue(hit(4, 8, "The player promised salt.")),
        of_dialogue(hit(2, 8, "The player met the chief of the goblins.")),
        hit(4, 8, "The player promised bread."),
    ];
    let prompt = case.assemble(&settings()).unwrap();
    let used = fates(&prompt);
    assert_eq!(used[0], (4, EpisodeStage::Recent, EpisodeFate::Used));
    let others: Vec<EpisodeFate> = used[1..].iter().map(|traced| traced.2).collect();
    assert_eq!(others, [EpisodeFate::InHistory, EpisodeFate::InSummary]);
    let text = shown(&prompt.messages);
    assert!(
        text.contains("promised bread") && !text.contains("promised salt"),
        "{text}"
    );
}

#[test]
fn episodes_stay_within_their_budget() {
    let mut case = PromptCase::of(Language::En, "x");
    let long = "The player told at length of a journey over the hills, and of everybody who came along on it, ";
    case.episodes = (1..=9).map(|n| hit(n, 5, &format!("{long}on day {n}."))).collect();
    let mut settings = settings();
    settings.prompt.episode_tokens = 120;
    let prompt = case.assemble(&settings).unwrap();
    let section = prompt
        .trace
        .sections
        .iter()
        .find(|section| section.name == "episodes")
        .unwrap();
    assert!(section.tokens > 0 && section.tokens <= 120, "{section:?}");
    let fates = fates(&prompt);
    assert_eq!(fates.len(), 3, "the most important are the newest");
    let over = fates
        .iter()
        .filter(|traced| traced.2 == EpisodeFate::OverBudget)
        .count();
    assert!((1..=2).contains(&over), "{fates:?}");
    assert_eq!(section.dropped, [format!("{over} episodes")]);
    settings.prompt.episode_tokens = 0;
    let prompt = case.assemble(&settings).unwrap();
    assert!(!shown(&prompt.messages).contains("What happened between"));
}

#[test]
fn recent_episode_that_does_not_fit_may_come_with_the_line() {
    let mut case = PromptCase::of(Language::En, "x");
    let told =
        |n: u32| format!("The player told at length of a journey over the hills and of all who came, on day {n}.");
    case.episodes = (1..=3).map(|n| hit(n, 5, &told(n))).collect();
    let mut settings = settings();
    settings.prompt.episode_tokens = 90;
    let is_shown = |case: &PromptCase, n: u32| {
        let prompt = case.assemble(&settings).unwrap();
        shown(&prompt.messages).contains(&told(n))
    };
    assert!(is_shown(&case, 3) && !is_shown(&case, 1));
    case.episodes[0].similarity = Some(0.6);
    assert!(is_shown(&case, 3) && is_shown(&case, 1), "similar to the line");
}

#[test]
fn summaries_go_before_episodes_and_episodes_before_memories() {
    let mut case = PromptCase::of(Language::En, "x");
    case.summaries = vec![summary(&"They spoke of the harvest. ".repeat(40), 1, 2)];
    case.episodes = (1..=3)
        .map(|n| hit(n, 5, &format!("The player found coin {n}.")))
        .collect();
    let whole = case.assemble(&settings()).unwrap();
    let count = |prompt: &Prompt, name: &str| {
        let section = prompt.trace.sections.iter().find(|section| section.name == name);
        section.map_or(0, |section| section.tokens)
    };
    assert!(count(&whole, "summaries") > 0 && count(&whole, "episodes") > 0);
    let mut tight = settings();
    tight.prompt.total_tokens = whole.trace.prompt_tokens - 20;
    let prompt = case.assemble(&tight).unwrap();
    assert_eq!(count(&prompt, "summaries"), 0);
    assert_eq!(count(&prompt, "episodes"), count(&whole, "episodes"));
}
