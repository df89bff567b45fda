//! Planted leaks: the histories find each of them.
//!
//! A leak is planted in the whole process. `cargo nextest` gives each test a process of its own.

use colloquy::planted_leak::{LEAKS, plant_leak};

use super::{
    LONGEST, Twins,
    program::{Program, Secret},
};
use crate::support::run;

/// The histories after which a leak counts as not found.
const MAX_HISTORIES: u64 = 60;

/// Runs histories until the worlds differ with the leak alone.
///
/// # Panics
/// If no history finds the leak, or the worlds of a history differ without the leak too.
fn find_leak(name: &str, secret: Secret) {
    let found = run(async {
        let mut twins = Twins::start();
        plant_leak(Some(name));
        for seed in 0..MAX_HISTORIES {
            let program = Program::random(secret, seed, LONGEST);
            if let Some(difference) = twins.compare(&program).await {
                plant_leak(None);
                let without_leak = twins.compare(&program).await;
                assert!(without_leak.is_none(), "history {seed} differs without {name}");
                return Some((seed, difference.channel()));
            }
        }
        None
    });
    plant_leak(None);
    let (seed, channel) = found.unwrap_or_else(|| panic!("no history finds {name}"));
    println!("{name} is found by history {seed}, {channel}");
}

macro_rules! leak_tests {
    ($($test:ident: $name:literal by $secret:ident;)*) => {
        $(
            #[test]
            fn $test() {
                find_leak($name, Secret::$secret);
            }
        )*

        #[test]
        fn planted_leaks_all_have_a_test() {
            assert_eq!(LEAKS, [$($name),*]);
        }
    };
}

leak_tests! {
    planted_leak_of_locked_scenarios_is_found: "scenario.locked" by Scenario;
    planted_leak_of_locked_lore_is_found: "lore.locked" by Lore;
    planted_leak_of_guarded_lore_is_found: "lore.guarded" by Lore;
    planted_leak_of_hearers_is_found: "locks.hearers" by Conversation;
    planted_leak_of_inherited_locks_is_found: "facts.locks" by Scenario;
    planted_leak_of_private_facts_is_found: "facts.audience" by Confidence;
    planted_leak_of_word_rarity_is_found: "recall.rarity" by Confidence;
    planted_leak_of_relationships_is_found: "state.relationships" by Confidence;
    planted_leak_of_removed_statements_is_found: "episodes.removed" by Removed;
    planted_leak_of_unsaid_facts_is_found: "facts.unsaid" by UnsaidTurn;
    planted_leak_of_a_cursor_is_found: "sessions.cursor" by Confidence;
}
