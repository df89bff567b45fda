//! Twin worlds (docs/internals/secrets.md): two worlds differ only in a secret. Whoever may not know the secret sees the
//! same bytes in both.
//!
//! A random history runs on two servers over REST and the socket. Prompts, events, answers and explanations of all
//! observers must be equal. A failing history is shortened by leaving out steps.
//!
//! `COLLOQUY_TWINS` sets the number of histories, and `COLLOQUY_TWIN_SEED` the first seed.

#[cfg(feature = "failpoints")]
mod leaks;
mod model;
mod observers;
mod program;
mod record;
mod server;
mod words;
mod world;

use std::time::Duration;

use self::{
    program::{Program, Secret, Step},
    record::{Difference, Record},
    server::TwinServer,
    words::Side,
    world::TwinWorld,
};
use crate::{replay::env_number, support::run};

/// The number of histories in all; one share for each kind of secret.
const HISTORIES: u32 = 300;
/// The most steps of a history.
const LONGEST: usize = 14;

/// The time of a step.
const STEP: Duration = Duration::from_secs(1);

/// The two servers.
struct Twins {
    servers: [TwinServer; 2],
    histories: u32,
}

impl Twins {
    fn start() -> Self {
        Self {
            servers: Side::BOTH.map(|_| TwinServer::start()),
            histories: 0,
        }
    }

    /// Runs a history in both worlds, and returns the first difference.
    async fn compare(&mut self, program: &Program) -> Option<Difference> {
        self.histories += 1;
        let tenant = format!("studio-{}", self.histories);
        let [first, second] = &self.servers;
        let (first, second) = tokio::join!(
            Box::pin(run_history(first, &tenant, Side::First, program)),
            Box::pin(run_history(second, &tenant, Side::Second, program)),
        );
        assert!(first.len() > 10, "the observers saw too little");
        first.first_difference(&second)
    }

    /// Leaves out steps while the worlds differ in the same channel.
    async fn shorten(&mut self, mut program: Program, mut difference: Difference) -> (Program, Difference) {
        let mut index = program.steps.len();
        while index > 0 {
            index -= 1;
            let shorter = program.without_step(index);
            let still = self.compare(&shorter).await;
            if let Some(still) = still.filter(|still| still.channel() == difference.channel()) {
                program = shorter;
                difference = still;
            }
        }
        (program, difference)
    }

    /// Runs random histories of one kind.
    ///
    /// # Panics
    /// With the shortened history, if the worlds differ.
    async fn run_histories(&mut self, secret: Secret, seeds: impl Iterator<Item = u64>) {
        for seed in seeds {
            let program = Program::random(secret, seed, LONGEST);
            println!("seed {seed}\n{program}");
            if let Some(difference) = self.compare(&program).await {
                let (program, difference) = self.shorten(program, difference).await;
                panic!("the worlds of seed {seed} differ\n{program}\n{difference}");
            }
        }
    }
}

/// Runs a history in one world.
async fn run_history(twin: &TwinServer, tenant: &str, side: Side, program: &Program) -> Record {
    let mut world = TwinWorld::open(twin, tenant, side, program).await;
    let rival_program = Program {
        secret: Secret::Confidence,
        ..program.clone()
    };
    let mut rival = match (program.secret, side) {
        (Secret::Tenant, Side::First) => {
            Some(TwinWorld::open_beside(twin, &format!("rival-{tenant}"), side, &rival_program).await)
        }
        _ => None,
    };
    twin.model.take_requests();
    for (index, step) in program.steps.iter().enumerate() {
        world.record.step = index;
        twin.clock.advance(STEP);
        let is_inside = world.is_inside(step);
        world.perform(step).await;
        world.record_prompts(step, is_inside);
        if let Some(rival) = rival.as_mut().filter(|_| !matches!(step, Step::Wait { .. })) {
            rival.perform(&Step::Confide { number: 0 }).await;
            rival.perform(step).await;
            twin.model.take_requests();
        }
    }
    world.record.step = program.steps.len();
    world.observe().await;
    world.record
}

/// Runs the share of one kind of secret.
fn check_secret(secret: Secret) {
    let kinds = u32::try_from(Secret::ALL.len()).unwrap();
    let count = env_number("COLLOQUY_TWINS").unwrap_or(HISTORIES).div_ceil(kinds);
    let first = u64::from(env_number("COLLOQUY_TWIN_SEED").unwrap_or(0));
    run(Twins::start().run_histories(secret, first..first + u64::from(count)));
}

#[test]
fn twins_with_another_scenario_look_the_same() {
    check_secret(Secret::Scenario);
}

#[test]
fn twins_with_another_lore_entry_look_the_same() {
    check_secret(Secret::Lore);
}

#[test]
fn twins_with_another_confidence_look_the_same() {
    check_secret(Secret::Confidence);
}

#[test]
fn twins_with_another_conversation_look_the_same() {
    check_secret(Secret::Conversation);
}

#[test]
fn twins_with_another_removed_statement_look_the_same() {
    check_secret(Secret::Removed);
}

#[test]
fn twins_with_another_tenant_look_the_same() {
    check_secret(Secret::Tenant);
}

#[test]
fn twins_with_an_unsaid_turn_look_the_same() {
    check_secret(Secret::UnsaidTurn);
}
