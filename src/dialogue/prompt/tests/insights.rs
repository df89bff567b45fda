//! Insights in a prompt.

use super::*;
use colloquy_core::ids::InsightId;
use colloquy_memory::{
    disclosure::locks::DisclosureLocks,
    insight::{Insight, MAX_INSIGHT_LINES},
    trace::InsightFate,
};

/// Returns an insight about the player from turn `n` of another session, in the order of `n`.
fn insight(n: u32, text: &str) -> Insight {
    let at = at(0) + TimeDelta::seconds(i64::from(n));
    Insight {
        id: InsightId::from_u128(u128::from(n)),
        world: "vale".parse().unwrap(),
        npc: "mira".parse().unwrap(),
        player: Some("p7".parse().unwrap()),
        dialogue: DialogueId::new(DialogueKind::Session, ulid::Ulid(2)),
        number: n,
        entity: "player:p7".to_owned(),
        day: at.date_naive().to_string(),
        text: text.to_owned(),
        turns: Vec::new(),
        rests_on: Vec::new(),
        locks: DisclosureLocks::default(),
        last_turn_at: at,
    }
}

fn fates(prompt: &Prompt) -> Vec<InsightFate> {
    prompt.trace.insights.iter().map(|traced| traced.fate).collect()
}

fn section_of<'a>(prompt: &'a Prompt, name: &str) -> Option<&'a colloquy_memory::trace::SectionTrace> {
    prompt.trace.sections.iter().find(|section| section.name == name)
}

#[test]
fn insights_are_shown_newest_last_after_the_stable_parts() {
    for (language, block) in [
        (
            Language::En,
            "[What earlier talks have taught you]\n- 3 days ago | The player keeps promises.\n- 3 days ago | The player (hates) \
             bells.\n",
        ),
        (
            Language::Ko,
            "[지난 대화에서 알게 된 것]\n- 3일 전 | The player keeps promises.\n- 3일 전 | The player (hates) bells.\n",
        ),
    ] {
        let mut case = full(language);
        let before = case.assemble(&settings()).unwrap();
        case.insights = vec![
            insight(2, "The player\n[hates] bells."),
            insight(1, "The player keeps promises."),
        ];
        let prompt = case.assemble(&settings()).unwrap();
        let last = prompt.messages.len() - 1;
        assert!(
            prompt.messages[last].content.contains(block),
            "{}",
            prompt.messages[last].content
        );
        assert_eq!(
            prompt.messages[..last],
            before.messages[..last],
            "only the last message has insights"
        );
        assert_eq!(fates(&prompt), [InsightFate::Used; 2]);
        assert_eq!(
            prompt.trace.insights[0].shown_text.as_deref(),
            Some("The player (hates) bells.")
        );
    }
}

#[test]
fn insight_of_shown_lines_and_repeated_insight_are_left_out() {
    let mut case = PromptCase::of(Language::En, "x");
    case.history = (3..=4).map(|number| turn(number, "Hello.", "Hm.")).collect();
    let of_dialogue = |n| Insight {
        dialogue: dialogue(),
        ..insight(n, &format!("The player likes turn {n}."))
    };
    case.insights = vec![
        of_dialogue(4),
        insight(9, "The player hates bells."),
        of_dialogue(2),
        insight(1, "The player hates bells!"),
    ];
    let prompt = case.assemble(&settings()).unwrap();
    assert_eq!(
        fates(&prompt),
        [
            InsightFate::InHistory,
            InsightFate::Used,
            InsightFate::Used,
            InsightFate::Repeated
        ]
    );
}

#[test]
fn insights_stay_within_their_budget() {
    let mut case = PromptCase::of(Language::En, "x");
    let long = "The player told at length of a journey over the hills, and of everybody who came along on it, ";
    case.insights = (1..=9)
        .rev()
        .map(|n| insight(n, &format!("{long}on day {n}.")))
        .collect();
    let mut settings = settings();
    settings.prompt.insight_tokens = 120;
    let prompt = case.assemble(&settings).unwrap();
    let section = section_of(&prompt, "insights").unwrap();
    assert!(section.tokens > 0 && section.tokens <= 120, "{section:?}");
    assert_eq!(prompt.trace.insights[0].fate, InsightFate::Used, "the closest first");
    let over = fates(&prompt)
        .iter()
        .filter(|fate| **fate == InsightFate::OverBudget)
        .count();
    assert!((6..=8).contains(&over), "{over}");
    assert_eq!(section.dropped, [format!("{over} insights")]);
    settings.prompt.insight_tokens = 0;
    let prompt = case.assemble(&settings).unwrap();
    assert!(!shown(&prompt.messages).contains("[What earlier talks"));
}

#[test]
fn prompt_considers_two_hundred_insights_at_most() {
    let mut case = PromptCase::of(Language::En, "x");
    let all = u32::try_from(MAX_INSIGHT_LINES).unwrap() + 50;
    case.insights = (1..=all).rev().map(|n| insight(n, &format!("Line {n}."))).collect();
    let mut settings = settings();
    settings.prompt.insight_tokens = 1_000_000;
    settings.prompt.total_tokens = 1_000_000;
    let prompt = case.assemble(&settings).unwrap();
    let lines = shown(&prompt.messages).matches("| Line ").count();
    assert_eq!((MAX_INSIGHT_LINES, lines, prompt.trace.insights.len()), (200, 200, 200));
}

#[test]
fn insights_go_after_lore_and_before_summaries() {
    let mut case = PromptCase::of(Language::En, "x");
    case.summaries = vec![summary(&"They spoke of the harvest. ".repeat(10), 1, 2)];
    case.insights = (1..=3)
        .rev()
        .map(|n| insight(n, &format!("The player likes coin {n}.")))
        .collect();
    let whole = case.assemble(&settings()).unwrap();
    let count = |prompt: &Prompt, name: &str| section_of(prompt, name).map_or(0, |section| section.tokens);
    assert!(count(&whole, "summaries") > 0 && count(&whole, "insights") > 0);
    let mut tight = settings();
    tight.prompt.total_tokens = whole.trace.prompt_tokens - 20;
    let prompt = case.assemble(&tight).unwrap();
    assert_eq!(count(&prompt, "summaries"), count(&whole, "summaries"));
    assert!(count(&prompt, "insights") < count(&whole, "insights"));
    assert_eq!(prompt.trace.insights.last().unwrap().fate, InsightFate::OverBudget);
}
