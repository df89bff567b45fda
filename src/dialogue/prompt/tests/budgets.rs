//! Every prompt stays within its budgets.

use proptest::prelude::*;

use super::*;
use crate::prompt::system::BlockRequest;
use colloquy_memory::directive::SelectedDirectives;

fn text(max: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::collection::vec("[a-z]{1,9}", 0..max / 4).prop_map(|words| words.join(" ")),
        proptest::collection::vec("[가-힣]{1,5}", 0..max / 6).prop_map(|words| words.join(" ")),
        "\\PC{0,60}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn prompt_never_exceeds_its_budgets(
        line in text(400),
        turns in proptest::collection::vec((text(300), text(300)), 0..30),
        first in 1_u32..20,
        summaries in proptest::collection::vec(text(400), 0..5),
        standing in proptest::collection::vec((text(200), any::<bool>()), 0..20),
        hits in proptest::collection::vec((text(300), 0.0..1.0_f64), 0..40),
        total in 900_u32..4_000,
        history_tokens in 0_u32..3_000,
        exact in any::<bool>(),
        korean in any::<bool>(),
    ) {
        let mut case = PromptCase::of(if korean { Language::Ko } else { Language::En }, &line);
        case.counter = if exact { TokenCounter::O200k } else { TokenCounter::Estimated };
        case.history = (first..).zip(&turns).map(|(n, (line, reply))| turn(n, line, reply)).collect();
        case.summaries = (1..).zip(&summaries).map(|(n, text)| summary(text, n, n)).collect();
        case.standing = (1..)
            .zip(&standing)
            .map(|(id, (text, pinned))| fact(id, FactKind::Goal, text, *pinned))
            .collect();
        case.hits = (100..)
            .zip(&hits)
            .enumerate()
            .map(|(axis, (id, (text, score)))| hit(id, text, *score, *score, axis))
            .collect();
        let mut settings = settings();
        settings.prompt.total_tokens = total;
        settings.prompt.history_tokens = history_tokens;
        match case.assemble(&settings) {
            Ok(prompt) => {
                let counted: u32 = prompt.messages.iter().map(|m| case.counter.count_tokens(&m.content) + 4).sum::<u32>() + 3;
                prop_assert_eq!(counted, prompt.trace.prompt_tokens);
                prop_assert!(prompt.trace.prompt_tokens <= total);
                let section = |name: &str| prompt.trace.sections.iter().find(|s| s.name == name).unwrap();
                for name in ["pinned", "summaries", "history", "memory"] {
                    prop_assert!(section(name).tokens <= section(name).budget, "{} {:?}", name, section(name));
                }
                // The persona is always first and the line last; history never has two messages of the same role in a
                // row.
                prop_assert_eq!(prompt.messages[0].role, ChatRole::System);
                prop_assert!(line.is_empty() != prompt.messages.last().unwrap().content.contains("<player_line>"));
                let again = case.assemble(&settings).unwrap();
                prop_assert_eq!(again.trace.prompt_hash, prompt.trace.prompt_hash);
            }
            Err(TurnError::PromptTooLarge { over }) => {
                let bare = PromptCase { history: vec![], summaries: vec![], standing: vec![], hits: vec![], ..case };
                let bare_over = match bare.assemble(&settings) {
                    Err(TurnError::PromptTooLarge { over }) => over,
                    _ => 0,
                };
                // A request to greet has other words for a player whom the NPC knows.
                prop_assert!(line.is_empty() || bare_over == over, "{bare_over} {over}");
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn instructions_of_a_prompt_are_short() {
    let actions = serde_json::json!({"actions": [{"name": "wave", "description": "Waves."}]});
    for (language, counter, most) in [
        (Language::En, TokenCounter::Estimated, 1_120),
        (Language::Ko, TokenCounter::O200k, 970),
    ] {
        let mut world = world(language);
        world.settings = serde_json::from_value(actions.clone()).unwrap();
        world.premise = String::new();
        world.rules = vec![];
        let mut npc = npc(language);
        npc.persona = Persona::default();
        let asked = BlockRequest {
            state: true,
            nothing_new: true,
        };
        let text = TEMPLATES
            .render_system(&world, &npc, &SelectedDirectives::default(), asked)
            .unwrap();
        let tokens = counter.count_tokens(&text);
        assert!(tokens <= most, "{tokens} tokens: {text}");
    }
}
