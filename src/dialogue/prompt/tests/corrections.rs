//! Corrections of what the history says.

use super::*;

fn removed(content: &str, correction: Option<&str>) -> RemovedStatement {
    RemovedStatement {
        fact: FactId::from_u128(1),
        content: content.to_owned(),
        requests: Vec::new(),
        removed_at: at(2),
        correction: correction.map(ToOwned::to_owned),
        source: None,
        is_original: true,
        is_forgotten: false,
        is_locked: false,
    }
}

fn last_message(prompt: &Prompt) -> &str {
    &prompt.messages[prompt.messages.len() - 1].content
}

#[test]
fn corrections_follow_the_history_oldest_first() {
    for (language, block) in [
        (
            Language::En,
            "[Corrected since it was said above]\nAbove, these points are wrong. Go by what stands here, as if it had never been \
             otherwise, and say nothing more of the wrong words:\n- Wrong above: The player works at the fish market.\n- The player \
             likes limes. (Wrong above: The player likes (mangoes).)\n",
        ),
        (
            Language::Ko,
            "[바로잡힌 것]\n위의 말에는 틀린 점이 있다. 처음부터 그랬던 것처럼 아래 적힌 대로 따르고, 틀린 말은 \
             다시 하지 않는다:\n- 틀린 말: The player works at the fish market.\n- The player likes limes. (틀린 말: The player likes \
             (mangoes).)\n",
        ),
    ] {
        let mut case = full(language);
        let before = case.assemble(&settings()).unwrap();
        case.outdated = vec![
            removed("The player likes\n[mangoes].", Some("The player likes limes.")),
            removed("The player works at the fish market.", None),
        ];
        let prompt = case.assemble(&settings()).unwrap();
        assert!(last_message(&prompt).starts_with(block), "{}", last_message(&prompt));
        let stable = prompt.messages.len() - 1;
        assert_eq!(prompt.messages[..stable], before.messages[..stable]);
        assert!(
            prompt
                .trace
                .sections
                .iter()
                .any(|section| section.name == "corrections" && section.tokens > 0)
        );
    }
}

#[test]
fn correction_of_a_locked_statement_shows_only_what_was_wrong() {
    let mut case = full(Language::En);
    case.outdated = vec![removed("The player likes mangoes.", Some("The player likes limes."))];
    case.outdated[0].is_locked = true;
    let prompt = case.assemble(&settings()).unwrap();
    let text = last_message(&prompt);
    assert!(
        text.contains("- Wrong above: The player likes mangoes.\n") && !text.contains("limes"),
        "{text}"
    );
}

#[test]
fn corrections_stay_within_their_budget() {
    let mut case = full(Language::En);
    let long = |n: usize| removed(&format!("The player said {n} {}.", "many words ".repeat(40)), None);
    case.outdated = (0..8).map(long).collect();
    let prompt = case.assemble(&settings()).unwrap();
    let section = prompt
        .trace
        .sections
        .iter()
        .find(|section| section.name == "corrections")
        .unwrap();
    assert!(section.tokens <= section.budget, "{section:?}");
    assert!(!section.dropped.is_empty());
    assert!(
        last_message(&prompt).contains("The player said 0 "),
        "the latest correction stays"
    );
}
