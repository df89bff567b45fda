//! Summaries in a prompt.

use super::*;

#[test]
fn summary_of_turns_that_the_history_shows_is_left_out() {
    let mut case = PromptCase::of(Language::En, "x");
    case.history = (3..=12).map(|number| turn(number, "Hello.", "Hm.")).collect();
    case.summaries = vec![
        summary("They spoke of plums.", 1, 2),
        summary("They spoke of pears.", 2, 5),
        summary("They spoke of figs.", 6, 9),
    ];
    let whole = case.assemble(&settings()).unwrap();
    assert_eq!(shown_summaries(&whole), [1, 2].map(SummaryId::from_u128));
    assert!(!shown(&whole.messages).contains("figs"));
    assert_eq!(
        whole.trace.notes,
        ["the summary of turns 6 to 9 was left out: the history has these turns"]
    );
    let section = |name: &str| {
        whole
            .trace
            .sections
            .iter()
            .find(|section| section.name == name)
            .unwrap()
    };
    assert!(
        section("summaries").dropped.is_empty(),
        "no budget was too small: {:?}",
        whole.trace.sections
    );
    // The history then begins with turn 9.
    let mut tight = settings();
    tight.prompt.history_tokens = section("history").tokens - 1;
    let prompt = case.assemble(&tight).unwrap();
    assert_eq!(shown_summaries(&prompt), [1, 2, 6].map(SummaryId::from_u128));
    assert!(shown(&prompt.messages).contains("figs"));
    // When the summary is written, the prompt keeps its bytes.
    case.summaries.pop();
    assert_eq!(
        case.assemble(&settings()).unwrap().trace.prompt_hash,
        whole.trace.prompt_hash
    );
}
