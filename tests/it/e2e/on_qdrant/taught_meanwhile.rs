//! Players teach while the index or the embedder is away. The next line finds what was told, no line waits for what
//! cannot come, and nothing is there twice afterwards.

use std::time::{Duration, Instant};

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::{Value, json};

use crate::{
    e2e::on_postgres::outages::{eventually_after_outage, readiness, say, session, turns_of},
    support::{QdrantDouble, RestClient, ServerData, run},
};

/// Taught during the outage, one per line. The last line repeats the first.
const FRUITS: [&str; 5] = ["plums", "figs", "melons", "quinces", "plums"];
/// A fact is found by a line this much later.
const MAX_DELAY: Duration = Duration::from_secs(2);
/// The server's longest own work in a turn, on a busy machine.
const MAX_ADDED_MS: f64 = 1_000.0;
/// The longest wait for the facts of the last turn, on a busy machine. The server waits up to 1.5 s for a line that
/// points at them.
const MAX_WAIT_MS: f64 = 1_700.0;

fn mock() -> MockHandle {
    let options = MockOptions {
        // Every line searches the index.
        intent: "memory".into(),
        ..MockOptions::default()
    };
    mock_llm::start_on_thread(options).unwrap()
}

/// Says a line, and returns the turn's trace.
async fn trace_of(rest: &RestClient, session: &str, key: &str, text: &str) -> Value {
    let answer = rest
        .post_answer(&turns_of(session), &json!({"text": text, "key": key}))
        .await;
    let turn = &answer.body["turn"];
    rest.get(&format!("{}/{turn}/trace", turns_of(session))).await
}

/// Teaches each fruit, and asks until a prompt has it.
async fn teach_and_ask(rest: &RestClient, session: &str) {
    for (at, fruit) in FRUITS.into_iter().enumerate() {
        say(rest, session, &format!("teach {at}"), &format!("I like {fruit}."))
            .await
            .unwrap();
        #[expect(clippy::disallowed_methods, reason = "how long it takes is what is looked at")]
        let taught = Instant::now();
        for ask in 0.. {
            let trace = trace_of(
                rest,
                session,
                &format!("ask {at} {ask}"),
                &format!("What about {fruit}?"),
            )
            .await;
            let timings = &trace["timings"];
            let [added, memory_wait] = ["added", "memory_wait"].map(|phase| timings[phase].as_f64().unwrap());
            assert!(added - memory_wait < MAX_ADDED_MS, "{timings}");
            assert!(memory_wait < MAX_WAIT_MS, "{timings}");
            let candidates = trace["candidates"].as_array().unwrap();
            let content = format!("The player likes {fruit}.");
            let shown = |fact: &&Value| fact["content"] == content.as_str() && fact["fate"] == "used";
            if candidates.iter().any(|fact| shown(&fact)) {
                break;
            }
            assert!(taught.elapsed() < MAX_DELAY, "{fruit}: {candidates:?}");
        }
    }
    rest.idle().await;
    let report = rest.get("/v1/curator").await;
    assert_eq!(report["failures"], json!([]), "no job failed");
}

/// Waits until each fruit is one valid fact, and all facts are in the index.
async fn assert_each_fruit_once(rest: &RestClient, data: &ServerData) {
    eventually_after_outage("each fruit to be one fact", async || {
        let facts = rest.facts("mira").await;
        let valid = facts.iter().filter(|fact| fact["invalid_at"].is_null());
        let mut contents: Vec<&str> = valid.map(|fact| fact["content"].as_str().unwrap()).collect();
        contents.sort_unstable();
        let mut expected: Vec<String> = FRUITS[..4]
            .iter()
            .map(|fruit| format!("The player likes {fruit}."))
            .collect();
        expected.sort_unstable();
        (contents == expected).then_some(())
    })
    .await;
    eventually_after_outage("the outbox to be empty", async || {
        (data.count("SELECT COUNT(*) FROM outbox").await == 0).then_some(())
    })
    .await;
}

#[test]
fn facts_taught_without_the_index_are_found_by_the_next_line() {
    run(async {
        let mock = mock();
        let mut qdrant = QdrantDouble::start();
        let data = ServerData::new(&[
            ("COLLOQUY__VECTORS__URL", &qdrant.url()),
            ("COLLOQUY__LLM__BASE_URL", &mock.base_url()),
            ("COLLOQUY__LLM__MODEL", "mock"),
        ]);
        let server = data.spawn();
        let rest = server.backend();
        let wait_for_index = async |wanted: &str| {
            eventually_after_outage("the index to change", async || {
                (readiness(&rest, "index").await == wanted).then_some(())
            })
            .await;
        };
        wait_for_index("ready").await;
        let talk = session(&rest, "p1").await;
        qdrant.stop_serving();
        teach_and_ask(&rest, &talk).await;
        assert_eq!(readiness(&rest, "index").await, "away");
        assert_eq!(qdrant.points("colloquy"), 0);

        qdrant.serve_again();
        wait_for_index("ready").await;
        assert_each_fruit_once(&rest, &data).await;
        assert_eq!(qdrant.points("colloquy"), 4);
        let trace = trace_of(&rest, &talk, "afterwards", "What about figs?").await;
        assert!(!trace["notes"].to_string().contains("recall in the ledger"), "{trace}");
    });
}

#[test]
fn facts_taught_without_the_embedder_are_found_by_the_next_line_and_compared_later() {
    run(async {
        let mock = mock();
        let data = ServerData::new(&[
            ("COLLOQUY__EMBEDDER__BASE_URL", &mock.base_url()),
            ("COLLOQUY__EMBEDDER__MODEL", "text-embedding-3-small"),
            ("COLLOQUY__EMBEDDER__DIMENSIONS", "384"),
            ("COLLOQUY__LLM__BASE_URL", &mock.base_url()),
            ("COLLOQUY__LLM__MODEL", "mock"),
            ("COLLOQUY__LLM__BREAKER__OPEN_MS", "500"),
            ("COLLOQUY__JOBS__POLL_S", "1"),
        ]);
        let server = data.spawn();
        let rest = server.backend();
        let talk = session(&rest, "p1").await;
        mock.apply_settings(&json!({"faults": ["embedding=500"]})).unwrap();
        teach_and_ask(&rest, &talk).await;
        let unembedded = "SELECT COUNT(*) FROM facts f WHERE NOT EXISTS
            (SELECT 1 FROM fact_embeddings e WHERE e.tenant = f.tenant AND e.fact = f.id)";
        assert_eq!(data.count(unembedded).await, 5);

        mock.apply_settings(&json!({"faults": []})).unwrap();
        assert_each_fruit_once(&rest, &data).await;
        for (rows, awaited) in [
            (unembedded, "each fact to have a vector"),
            ("SELECT COUNT(*) FROM unsettled", "each memory to be compared"),
        ] {
            eventually_after_outage(awaited, async || (data.count(rows).await == 0).then_some(())).await;
        }
    });
}
