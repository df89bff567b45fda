//! Random histories of a chat program: its user says lines, edits and deletes them, asks for other replies, stops, and
//! lets replies go on. Afterwards, the NPC's world equals a world in which only the lines that the program shows were
//! said, over REST and one after the other.
//!
//! `COLLOQUY_CHAT_HISTORIES` sets the number of histories, and `COLLOQUY_REPLAY_SEED` the first seed.

mod model;
mod observation;
mod program;

use std::{slice, sync::Arc, thread};

use colloquy::http::ChatSettings;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use reqwest::StatusCode;
use serde_json::json;

use self::{
    model::HistoryLlm,
    observation::{finish_jobs, observe},
    program::{ChatProgram, GREETING, Step, World, histories},
};
use super::harness::{HttpTestOptions, HttpTestServer};
use crate::replay::env_number;

/// The default number of histories in all.
const HISTORIES: u32 = 100;
/// The number of threads, each with a server of its own.
const THREADS: u32 = 2;
/// The maximum number of steps. A talk of ten turns would be summarised, at a moment that depends on the clock.
const LONGEST: usize = 14;

/// A server and the model that speaks for its NPCs.
struct Stage {
    server: HttpTestServer,
    llm: Arc<HistoryLlm>,
}

impl Stage {
    fn start() -> Self {
        let llm = Arc::new(HistoryLlm::default());
        let server = HttpTestServer::with(HttpTestOptions {
            llm: llm.clone(),
            ask_for_state: true,
            chat: ChatSettings {
                // The server notices a client that hung up when it writes.
                heartbeat_ms: 20,
                ..ChatSettings::default()
            },
            ..HttpTestOptions::default()
        });
        Self { server, llm }
    }

    /// Lives through a history, and compares the end with a replay of what stands.
    async fn check_history(&self, number: u32, steps: &[Step]) -> Result<(), String> {
        let lived_in = World::create(&self.server, &format!("lived-{number}")).await;
        let mut program = ChatProgram::new(&lived_in, &self.llm, number.is_multiple_of(2));
        for (at, step) in steps.iter().enumerate() {
            let asked = program.take_step(step).await;
            asked.map_err(|error| format!("step {at}, {step:?}: {error}"))?;
        }
        let Some(lived) = program.session.clone() else {
            return Ok(());
        };
        // The last request shows all edits.
        program.say_farewell().await?;
        let replayed_in = World::create(&self.server, &format!("replayed-{number}")).await;
        let replayed = self.replay(&lived_in, &lived, &replayed_in).await;
        finish_jobs(&self.server, &[(&lived_in, &lived), (&replayed_in, &replayed)]).await;
        let is = observe(&lived_in, &lived).await;
        let ought = observe(&replayed_in, &replayed).await;
        is.compare_with(&ought)
    }

    /// Says the standing lines of a session in another world, and returns the new session. The greeting comes by the door.
    async fn replay(&self, lived_in: &World, lived: &str, world: &World) -> String {
        let turns = lived_in.turns(lived).await;
        let mut session = None;
        for turn in &turns[1..] {
            self.llm.say_next(slice::from_ref(&turn.reply));
            if let Some(session) = &session {
                let body = json!({"text": turn.line});
                world.client.post(&format!("/v1/sessions/{session}/turns"), &body).await;
                continue;
            }
            let body = json!({"model": world.model(), "user": "ann", "messages": [
                {"role": "assistant", "content": GREETING}, {"role": "user", "content": turn.line}]});
            let (status, id, answer) = world.ask(&body, None).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            session = id;
        }
        session.expect("a talk has a line")
    }
}

fn check_histories(thread: u32, cases: u32, seed: u32) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stage = Stage::start();
    let mut bytes = [0_u8; 32];
    bytes[..4].copy_from_slice(&seed.to_le_bytes());
    bytes[4..8].copy_from_slice(&thread.to_le_bytes());
    let config = Config {
        cases,
        max_shrink_iters: 300,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let number = std::cell::Cell::new(0);
    let outcome = runner.run(&histories(LONGEST), |steps| {
        number.set(number.get() + 1);
        runtime
            .block_on(stage.check_history(number.get(), &steps))
            .map_err(TestCaseError::fail)
    });
    outcome.map_err(|error| error.to_string())
}

#[test]
fn histories_of_a_chat_program_equal_their_replays() {
    let cases = env_number("COLLOQUY_CHAT_HISTORIES")
        .unwrap_or(HISTORIES)
        .div_ceil(THREADS);
    let seed = env_number("COLLOQUY_REPLAY_SEED").unwrap_or(0);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| thread::spawn(move || check_histories(thread, cases, seed)))
        .collect();
    let failures: Vec<String> = threads
        .into_iter()
        .filter_map(|thread| thread.join().unwrap().err())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
