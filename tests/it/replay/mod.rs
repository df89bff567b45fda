//! Replay equivalence (docs/internals/tests.md#replay-equivalence): after lines, corrections and rewinds, a world equals
//! a world in which only the standing turns were said.
//!
//! A random history runs in one world, with late and reordered jobs and with interrupts. Then a second, empty world
//! replays the standing part in order. The replay has the lines, the heard parts of replies, the contents of their
//! prompts, and the corrections of living facts. All observable state must be equal. A failing history is shrunk and
//! saved under `regressions/`, whose histories run first every time.
//!
//! `COLLOQUY_REPLAYS` sets the number of histories, and `COLLOQUY_REPLAY_SEED` the first seed.

mod adventure;
pub mod history;
mod history_text;
mod model;
mod prompt_recorder;
mod saved_failures;
mod store;
mod world;

use proptest::{
    strategy::{BoxedStrategy, Strategy as _},
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};

use self::{
    history::{Op, histories},
    world::{Observation, ReplayWorld, Stage},
};

/// The default number of histories in all. `scripts/replays.sh` runs 50,000 with new seeds.
const HISTORIES: u32 = 1_000;
/// The number of threads. Every thread has its own sequence of random numbers.
const THREADS: u32 = 2;
/// The maximum number of operations in a history.
const LONGEST: usize = 24;
/// The same, in a history of the adventure: about 6 to 14 turns.
const LONGEST_ADVENTURE: usize = 16;
/// Game seconds per real second in a replayed world: the time of an operation is about an hour.
const RATIO: f64 = 3_000.0;
/// The time limit for shrinking a failing history, in milliseconds.
const SHRINKING_MS: u32 = 300_000;

/// A property that must hold for all histories.
type HistoryProperty = fn(&[Op]) -> Result<(), String>;

pub fn env_number(name: &str) -> Option<u32> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

/// Compares a history's final state with the replay of its standing part.
fn check_replay(history: &[Op]) -> Result<(), String> {
    let (shares, ratio) = (true, RATIO);
    check_replay_on(Stage::Vale { shares, ratio }, history)
}

/// The same in a world that keeps players' private facts private but shares NPCs' self-facts.
fn check_private_replay(history: &[Op]) -> Result<(), String> {
    let (shares, ratio) = (false, RATIO);
    check_replay_on(Stage::Vale { shares, ratio }, history)
}

/// The same in the world of the adventure.
fn check_adventure(history: &[Op]) -> Result<(), String> {
    check_replay_on(Stage::Harrow, history)
}

fn check_replay_on(stage: Stage, history: &[Op]) -> Result<(), String> {
    on_a_runtime(async {
        let mut lived = ReplayWorld::new(stage).await;
        for (number, op) in history.iter().enumerate() {
            lived.apply_op(number, op).await;
        }
        let record = lived.record().await;
        let lived_seen = lived.observe_world().await;
        lived.close().await;
        let mut replayed = ReplayWorld::new(stage).await;
        replayed.replay(&record).await;
        let replayed_seen = replayed.observe_world().await;
        replayed.close().await;
        compare_observations(&lived_seen, &replayed_seen)
    })
}

/// Restores the older and then the newer of two saves, and checks that both are whole. Manual edits are not part of a
/// save, so the history has none.
fn check_saves(history: &[Op]) -> Result<(), String> {
    let said: Vec<&Op> = history
        .iter()
        .filter(|op| {
            !matches!(
                op,
                Op::Edit { .. } | Op::Write { .. } | Op::Progress { .. } | Op::Events { .. }
            )
        })
        .collect();
    let (before, after) = said.split_at(said.len() / 2);
    on_a_runtime(async {
        // The clock stands between events, so that a restored save has the time of its moment.
        let mut world = ReplayWorld::new(Stage::Vale {
            shares: true,
            ratio: 0.0,
        })
        .await;
        let mut moments = Vec::new();
        for (part, from) in [(before, 0), (after, before.len())] {
            for (number, op) in part.iter().enumerate() {
                world.apply_op(from + number, op).await;
            }
            // The save also contains pending jobs.
            let save = world.save().await;
            world.reinstate_cut_turn().await;
            world.acknowledge_all().await;
            world.run_all_jobs().await;
            // A conclusion depends on the standing facts alone, whenever it was made.
            world.consolidate().await;
            world.run_all_jobs().await;
            moments.push((save, world.observe_world().await));
        }
        for (save, seen) in &moments {
            world.restore(*save).await;
            world.acknowledge_all().await;
            world.run_all_jobs().await;
            world.consolidate().await;
            world.run_all_jobs().await;
            let again = world.observe_world().await;
            compare_observations(
                &again.without_time_dependent_parts(),
                &seen.without_time_dependent_parts(),
            )?;
        }
        world.close().await;
        Ok(())
    })
}

/// Facts of two sessions are consolidated, repeated from prompts, taken back, contradicted and consolidated again.
const CONSOLIDATED: &str = "
say 0 asks=pears learns=player:red-grapes:preference:5 words=2
say 0 asks=pears learns=player:dry-plums:preference:3 words=2
say 0 asks=plums learns=player:red-pears:habit:4 words=2
consolidate
say 0 asks=grapes echoes=0 words=2
say 1 asks=grapes echoes=1 words=2
say 0 asks=grapes learns=player:red-plums:preference:8 echoes=3 words=2
consolidate
save
say 0 asks=plums learns=player:dry-plums:preference:6:hated words=2
consolidate
rewind 0 to=50000
consolidate
restore 0
say 0 asks=grapes learns=player:dry-grapes:preference:2 words=2
rewind 0 to=60000
";

#[test]
fn replay_of_consolidated_facts_is_equal() {
    let history = history_text::read_history(CONSOLIDATED).unwrap();
    check_replay(&history).unwrap();
    check_private_replay(&history).unwrap();
    check_saves(&history).unwrap();
    let seen = on_a_runtime(async {
        let mut world = ReplayWorld::new(Stage::Vale {
            shares: true,
            ratio: RATIO,
        })
        .await;
        for (number, op) in history.iter().enumerate() {
            world.apply_op(number, op).await;
        }
        world.record().await;
        let seen = world.observe_world().await;
        world.close().await;
        format!("{seen:?}")
    });
    assert!(seen.contains("The player likes much grapes"), "{seen}");
}

/// Compares part by part, and returns the differing lines of the first differing part.
fn compare_observations(is: &Observation, ought: &Observation) -> Result<(), String> {
    for (what, of) in Observation::PARTS {
        let (is, ought) = (of(is), of(ought));
        let only = |mark: &str, these: &[String], those: &[String]| -> String {
            let gone = these.iter().filter(|line| !those.contains(line));
            gone.map(|line| format!("{mark} {line}")).collect::<Vec<_>>().join("\n")
        };
        if is != ought {
            let differing = [only("-", ought, is), only("+", is, ought)].join("\n");
            return Err(format!("{what} differ (- as it ought to be, + as it is)\n{differing}"));
        }
    }
    Ok(())
}

#[test]
fn replay_without_rewound_turns_is_equal() {
    try_all("replayed", HISTORIES, check_replay);
}

/// Runs fewer histories, because each takes longer here.
#[test]
fn replay_without_rewound_turns_is_equal_on_postgres() {
    try_all("replayed", HISTORIES / 10, |history| {
        store::on_postgres(|| check_replay(history))
    });
}

#[test]
fn replay_of_private_talk_without_rewound_turns_is_equal() {
    try_all("told", HISTORIES / 2, check_private_replay);
}

#[test]
fn replay_of_private_talk_without_rewound_turns_is_equal_on_postgres() {
    try_all("told", HISTORIES / 20, |history| {
        store::on_postgres(|| check_private_replay(history))
    });
}

/// Compares the contents of the index, too, with all stores as in production.
#[test]
fn replay_without_rewound_turns_is_equal_on_postgres_and_qdrant() {
    try_all("replayed", HISTORIES / 50, |history| {
        store::on_postgres(|| store::on_qdrant(|| check_replay(history)))
    });
}

#[test]
fn replay_of_two_saves_restores_both_whole_on_postgres() {
    try_all("saved", HISTORIES / 50, |history| {
        store::on_postgres(|| check_saves(history))
    });
}

#[test]
fn replay_of_two_saves_restores_both_whole() {
    try_all("saved", HISTORIES / 10, check_saves);
}

#[test]
fn replay_of_the_adventure_without_rewound_turns_is_equal() {
    try_all_of(adventures, "adventure", HISTORIES / 2, check_adventure);
}

#[test]
fn replay_of_the_adventure_without_rewound_turns_is_equal_on_postgres() {
    try_all_of(adventures, "adventure", HISTORIES / 20, |history| {
        store::on_postgres(|| check_adventure(history))
    });
}

fn adventures() -> BoxedStrategy<Vec<Op>> {
    adventure::histories(LONGEST_ADVENTURE).boxed()
}

fn try_all(name: &'static str, by_default: u32, holds: HistoryProperty) {
    try_all_of(|| histories(LONGEST).boxed(), name, by_default, holds);
}

/// Runs the saved histories, then new histories.
fn try_all_of(strategy: fn() -> BoxedStrategy<Vec<Op>>, name: &'static str, by_default: u32, holds: HistoryProperty) {
    saved_failures::retry_saved(name, holds);
    let seed = env_number("COLLOQUY_REPLAY_SEED").unwrap_or(0);
    let wanted = env_number("COLLOQUY_REPLAYS").map(|all| all.div_ceil(HISTORIES / by_default));
    let cases = wanted.unwrap_or(by_default).div_ceil(THREADS);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            std::thread::spawn(move || {
                let config = Config {
                    cases,
                    max_shrink_iters: u32::MAX,
                    max_shrink_time: SHRINKING_MS,
                    failure_persistence: None,
                    ..Config::default()
                };
                let mut bytes = [0_u8; 32];
                bytes[..4].copy_from_slice(&seed.to_le_bytes());
                bytes[4..8].copy_from_slice(&thread.to_le_bytes());
                let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
                let mut runner = TestRunner::new_with_rng(config, rng);
                let outcome = runner.run(&strategy(), |history| {
                    saved_failures::catch_panic(holds, &history).map_err(TestCaseError::fail)
                });
                match outcome {
                    Ok(()) => None,
                    Err(TestError::Fail(why, history)) => {
                        Some(saved_failures::save_failure(name, &history, why.message()))
                    }
                    Err(TestError::Abort(why)) => Some(format!("given up: {why}")),
                }
            })
        })
        .collect();
    let failures: Vec<String> = threads
        .into_iter()
        .filter_map(|thread| thread.join().unwrap())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
