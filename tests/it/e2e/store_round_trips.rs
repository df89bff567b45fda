//! Counts a turn's round trips to the stores, so that the number cannot grow unnoticed. A trip delays the player or
//! loads the store for every line.
//!
//! The counted line is in a session with earlier turns, and teaches no fact. The NPC knows some facts about the player.
//! docs/internals/turn-costs.md#round-trips has the same numbers.

use std::time::Duration;

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::json;

use super::scenarios::put;
use crate::support::{
    QdrantDouble, RecordedRequest, RedisServer, RestClient, ServerData, TestServer, TestSocket, WireRecorder,
    eventually, in_sequence, run,
};

/// Concurrent trips to Postgres before the reply is requested.
const BEFORE: usize = 3;
/// The maximum of dependent trips among them, including the search in Qdrant if the index is there.
const IN_SEQUENCE: usize = 2;
/// The commit of the turn, in one statement.
const COMMIT: usize = 1;
/// Trips after the reply: the read and the write of the turn's one job.
const AFTERWARDS: usize = 2;
/// Commands to Redis.
const BUFFER: usize = 1;
/// The same for SQLite: uses of a reader, and writes. A write is one or a few messages to the writer.
const READS: usize = 4;
const WRITES: usize = 2;

const WHAT_TO_DO: &str = "a turn goes to its stores another number of times than before. More: read it with what is \
     read anyway, keep it in the actor that owns it, or write it with the turn. Fewer: well done. If it has to be, \
     or is better, change the number here and in docs/internals/turn-costs.md";

/// The lines at the start.
const TEACHES: [&str; 4] = [
    "I like grapes.",
    "I hate figs.",
    "I live in Harbor.",
    "My sister is called Anna.",
];
/// The line said repeatedly.
const ASKS: &str = "What fruit do I like?";
/// The number of repetitions before counting. By then the first keys have been pruned with their turns.
const WARM: usize = 16;
pub(super) const SAID: usize = TEACHES.len() + WARM;
/// The number of counted lines.
const LINES: usize = 16;
/// The number of lines said to slow stores, and the delay, which is longer than any other step of a turn.
const SLOW_LINES: usize = 5;
const SLOW: Duration = Duration::from_millis(150);

fn mock() -> MockHandle {
    let options = MockOptions {
        // Puts facts into the prompt.
        intent: "memory".into(),
        ..MockOptions::default()
    };
    mock_llm::start_on_thread(options).unwrap()
}

/// Starts a server that accesses its stores only for turns and the jobs of turns.
fn start(data: &ServerData, mock: &MockHandle, stores: &[(&str, &str)]) -> TestServer {
    let url = mock.base_url();
    let mut env = vec![
        ("COLLOQUY__LLM__BASE_URL", url.as_str()),
        ("COLLOQUY__LLM__MODEL", "mock"),
        ("COLLOQUY__ACTORS__CHORES_MS", "600000"),
        ("COLLOQUY__WEBHOOKS__POLL_MS", "60000"),
        ("COLLOQUY__ACTORS__OWNERSHIP_S", "3600"),
        // A line waits for the facts of the previous line.
        ("COLLOQUY__TURN__WAIT_FOR_MEMORY_MS", "60000"),
        ("COLLOQUY__SUMMARIES__FIRST_AFTER_TURNS", "200"),
        ("COLLOQUY__SUMMARIES__FORCE_TURNS", "200"),
        ("COLLOQUY__CURATION__EVERY_TURNS", "0"),
        // The mock model writes no state blocks. Nothing more is extracted for that.
        ("COLLOQUY__TURN__REPLIES_WITHOUT_BLOCK", "0"),
    ];
    env.extend_from_slice(stores);
    data.with(&env).start()
}

/// Opens a session with earlier turns.
pub(super) async fn open_warm_session(server: &TestServer) -> (TestSocket, String) {
    let mut socket = server.player("p1").await;
    let session = socket.session("mira", "p1").await;
    for line in TEACHES.into_iter().chain([ASKS; WARM]) {
        assert_eq!(socket.say_line(&session, line).await.status, "completed");
    }
    (socket, session)
}

/// A server on Postgres and Redis, with recorded traffic.
pub(super) struct RecordedServer {
    pub mock: MockHandle,
    // Fields drop in order, so the server is before the stores.
    pub server: TestServer,
    pub ledger: WireRecorder,
    buffers: WireRecorder,
    /// Set if the index is in Qdrant.
    index: Option<WireRecorder>,
    _redis: RedisServer,
    _qdrant: Option<QdrantDouble>,
}

/// The requests of one line.
pub(super) struct LineRequests {
    before: Vec<RecordedRequest>,
    commit: Vec<RecordedRequest>,
    afterwards: Vec<RecordedRequest>,
    buffer: Vec<RecordedRequest>,
}

impl RecordedServer {
    pub async fn new() -> Self {
        Self::with(None).await
    }

    async fn with(qdrant: Option<QdrantDouble>) -> Self {
        let mock = mock();
        let redis = RedisServer::start().await;
        let data = ServerData::on_postgres(&[]);
        let (ledger, ledger_url) = WireRecorder::on_postgres(&data.database().url);
        let (buffers, buffers_url) = WireRecorder::on_redis(redis.port);
        let mut stores = vec![
            ("COLLOQUY__LEDGER__URL", ledger_url.as_str()),
            ("COLLOQUY__BUFFER__URL", buffers_url.as_str()),
            // The number of trips must not depend on when the classifier answers.
            ("COLLOQUY__TURN__INTENT_CLASSIFICATION", "before_reply"),
        ];
        let (index, index_url) = qdrant
            .as_ref()
            .map(|qdrant| WireRecorder::on_qdrant(&qdrant.url()))
            .unzip();
        if let Some(url) = &index_url {
            let more = [
                ("COLLOQUY__VECTORS__URL", url.as_str()),
                ("COLLOQUY__VECTORS__TIMEOUT_MS", "10000"),
            ];
            stores.extend(more);
        }
        Self {
            server: start(&data, &mock, &stores),
            mock,
            ledger,
            buffers,
            index,
            _redis: redis,
            _qdrant: qdrant,
        }
    }

    /// Waits until `jobs` ends of jobs were written. An end that another write has overtaken is written again.
    pub async fn jobs_done(&self, jobs: usize) {
        eventually("the jobs to end", || async {
            (self.ends_of_jobs() >= jobs).then_some(())
        })
        .await;
    }

    fn ends_of_jobs(&self) -> usize {
        count_containing("SET status = 'done'", &self.ledger.requests_since(0))
    }

    /// Waits for the jobs of the previous `lines` lines, and then says a line.
    pub async fn line_requests(&self, socket: &mut TestSocket, session: &str, lines: usize) -> LineRequests {
        self.delayed_line_requests(Duration::ZERO, socket, session, lines).await
    }

    /// Says a line while the stores answer with a delay, until the reply is requested.
    async fn delayed_line_requests(
        &self,
        delay: Duration,
        socket: &mut TestSocket,
        session: &str,
        lines: usize,
    ) -> LineRequests {
        self.jobs_done(lines).await;
        self.server.backend().idle().await;
        let ended_jobs = self.ends_of_jobs();
        let hold_back = |delay| {
            let taps = [&self.ledger, &self.buffers].into_iter().chain(&self.index);
            taps.for_each(|tap| tap.set_delay(delay));
        };
        let indexed = self.index.as_ref().map_or(0, WireRecorder::count);
        hold_back(delay);
        let hold = |faults: &[&str]| self.mock.apply_settings(&json!({ "faults": faults })).unwrap();
        let (start, buffered) = (self.ledger.count(), self.buffers.count());
        let asked = self.mock.calls_of("reply");
        hold(&["reply=hold"]);
        socket.send_line(session, &format!("line {lines}"), ASKS).await;
        eventually("a reply to be asked for", || async {
            (self.mock.calls_of("reply") > asked).then_some(())
        })
        .await;
        let mut before = self.ledger.requests_since(start);
        before.extend(self.index.iter().flat_map(|index| index.requests_since(indexed)));
        assert_eq!(self.buffers.count(), buffered, "Redis is asked before the reply");
        let asked = self.ledger.count();
        hold_back(Duration::ZERO);
        hold(&[]);
        socket.reply().await;
        self.jobs_done(ended_jobs + 1).await;
        let (commit, afterwards) = split_commit(self.ledger.requests_since(asked));
        LineRequests {
            before,
            commit,
            afterwards,
            buffer: self.buffers.requests_since(buffered),
        }
    }
}

/// Splits requests into the turn's commit and all others.
fn split_commit(requests: Vec<RecordedRequest>) -> (Vec<RecordedRequest>, Vec<RecordedRequest>) {
    requests
        .into_iter()
        .partition(|request| request.text.contains("INSERT INTO turns"))
}

#[test]
fn store_requests_of_a_turn_are_pinned_on_postgres_and_redis() {
    run(async {
        let tapped = RecordedServer::new().await;
        let (mut socket, session) = open_warm_session(&tapped.server).await;
        for number in 0..LINES {
            let line = tapped.line_requests(&mut socket, &session, SAID + number).await;
            for (what, requests, ought) in [
                ("before the reply", &line.before, BEFORE),
                ("to commit", &line.commit, COMMIT),
                ("afterwards", &line.afterwards, AFTERWARDS),
                ("to Redis", &line.buffer, BUFFER),
            ] {
                let shown: Vec<&str> = requests.iter().map(|request| request.text.as_str()).collect();
                let (count, shown) = (requests.len(), shown.join("\n"));
                assert_eq!(count, ought, "line {number}, {what}: {WHAT_TO_DO}\n{shown}");
            }
        }
    });
}

#[test]
fn store_requests_in_sequence_before_a_reply_are_two_at_most() {
    assert_sequential_requests(None);
}

#[test]
fn store_requests_in_sequence_are_no_more_with_qdrant() {
    assert_sequential_requests(Some(QdrantDouble::start()));
}

fn assert_sequential_requests(qdrant: Option<QdrantDouble>) {
    run(async {
        let tapped = RecordedServer::with(qdrant).await;
        let (mut socket, session) = open_warm_session(&tapped.server).await;
        let mut shortest: Option<Vec<String>> = None;
        for number in 0..SLOW_LINES {
            let line = tapped
                .delayed_line_requests(SLOW, &mut socket, &session, SAID + number)
                .await;
            let row = in_sequence(&line.before);
            // Truly dependent requests are dependent in every line. A busy machine may delay single requests.
            if shortest.as_ref().is_none_or(|shortest| row.len() < shortest.len()) {
                shortest = Some(row.into_iter().map(|request| request.text.clone()).collect());
            }
        }
        let row = shortest.unwrap();
        assert!(row.len() <= IN_SEQUENCE, "one after the other:\n{}", row.join("\n"));
    });
}

/// Returns the number of requests with `part` in their text.
fn count_containing(part: &str, requests: &[RecordedRequest]) -> usize {
    requests.iter().filter(|request| request.text.contains(part)).count()
}

/// The line names the scenario with the keyword "fruit". Titles tell what has opened lately, and whether a line that is
/// not about the past names a scenario. Only for such a scenario is the past itself read.
#[test]
fn npc_past_is_read_when_requested_or_named() {
    let cases = [
        ("memory", 1, 1),
        ("scenario", 1, 1),
        ("scenario", 1, 1),
        ("memory", 1, 1),
    ];
    assert_reads_of_past("fruit", &cases);
}

#[test]
fn npc_past_that_a_line_does_not_name_is_not_read() {
    assert_reads_of_past("anvil", &[("memory", 1, 0), ("memory", 1, 0)]);
}

/// Says a line for each case, to an NPC with a scenario of this keyword. A case is the intent of the line, and the reads
/// of titles and of scenarios.
fn assert_reads_of_past(keyword: &str, cases: &[(&str, usize, usize)]) {
    run(async {
        let tapped = RecordedServer::new().await;
        let (title, content) = (
            format!("The {keyword} years"),
            format!("I sold {keyword} at the market."),
        );
        let past = json!({"title": title, "content": content, "keywords": [keyword]});
        let backend = tapped.server.backend();
        put(&backend, "/v1/worlds/vale/npcs/mira/scenarios/market", &past).await;
        let (mut socket, session) = open_warm_session(&tapped.server).await;
        for (said, &(intent, titles, whole)) in (SAID..).zip(cases) {
            tapped.mock.apply_settings(&json!({ "intent": intent })).unwrap();
            let line = tapped.line_requests(&mut socket, &session, said).await;
            let case = format!("line {said}, {intent}, {keyword}: {WHAT_TO_DO}");
            assert_eq!(line.before.len(), BEFORE + titles + whole, "{case}");
            assert_eq!(
                count_containing("required_progress FROM scenarios", &line.before),
                titles,
                "{case}"
            );
            assert_eq!(
                count_containing("embedding FROM scenarios", &line.before),
                whole,
                "{case}"
            );
            assert_eq!(line.commit.len(), COMMIT, "{case}");
            assert_eq!(line.afterwards.len(), AFTERWARDS, "{case}");
        }
    });
}

#[test]
fn scenario_unlocked_by_a_turn_is_read_after_its_commit() {
    run(async {
        let tapped = RecordedServer::new().await;
        let backend = tapped.server.backend();
        let past = json!({"title": "The well", "content": "It is dry.", "required_progress": 1});
        put(&backend, "/v1/worlds/vale/npcs/mira/scenarios/well", &past).await;
        let (mut socket, session) = open_warm_session(&tapped.server).await;
        let world = backend.get("/v1/worlds/vale").await;
        let rules = json!([{"npc": "mira", "progress": 1, "when": {"item": "lamp"}}]);
        let cases = [
            (json!([]), json!({"hp_change": -1}), 0, 0),
            (rules.clone(), json!({}), 0, 0),
            (rules.clone(), json!({"hp_change": -1}), 1, 0),
            (rules, json!({"items_gained": ["lamp"]}), 1, 1),
        ];
        for (said, (rules, block, states, titles)) in (SAID..).zip(cases) {
            let body = json!({"name": world["name"], "premise": world["premise"], "language": world["language"],
                "rules": world["rules"], "settings": {"unlocks": rules, "changed_by": {"lamp": "replies"}}});
            put(&backend, "/v1/worlds/vale", &body).await;
            let reply = format!("Well.\n```state\n{block}\n```");
            tapped.mock.apply_settings(&json!({ "reply": reply })).unwrap();
            let start = tapped.ledger.count();
            tapped.line_requests(&mut socket, &session, said).await;
            let after = || {
                let all = tapped.ledger.requests_since(start);
                let turn = all
                    .iter()
                    .position(|request| request.text.contains("INSERT INTO turns"));
                let after = &all[turn.unwrap()..];
                (
                    count_containing("LEFT JOIN state_events", after),
                    count_containing("required_progress FROM scenarios", after),
                )
            };
            eventually("what was unlocked to be read", || async {
                (after() >= (states, titles)).then_some(())
            })
            .await;
            assert_eq!(after(), (states, titles), "{block}: {WHAT_TO_DO}");
        }
    });
}

/// Returns the numbers of reads and writes.
async fn store_uses(rest: &RestClient) -> [usize; 2] {
    let text = rest.text("/metrics").await;
    ["read", "write"].map(|what| {
        let line = format!("colloquy_ledger_wait_seconds_count{{for=\"{what}\"}} ");
        let count = text.lines().find_map(|shown| shown.strip_prefix(&line));
        count.expect("it is not shown").parse().unwrap()
    })
}

#[test]
fn store_requests_of_a_turn_are_pinned_on_sqlite() {
    let mock = mock();
    run(async {
        let server = start(&ServerData::new(&[]), &mock, &[]);
        let (mut socket, session) = open_warm_session(&server).await;
        let rest = server.backend();
        let before = store_uses(&rest).await;
        for _ in 0..LINES {
            socket.say_line(&session, ASKS).await;
        }
        let after = store_uses(&rest).await;
        // Rounds, because a job may cross either end of the measurement, and reading the metrics also reads.
        let each = [0, 1].map(|n| (after[n] - before[n] + LINES / 2) / LINES);
        assert_eq!(each, [READS, WRITES], "reads and writes: {WHAT_TO_DO}");
    });
}
