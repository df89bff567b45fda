//! How Postgres executes the server's statements on filled tables. No plan may read a large table, or all of a tenant's
//! rows, from end to end. The statements are recorded from a real server.

use std::collections::{BTreeMap, BTreeSet};

use colloquy::tenancy::Role;
use regex::Regex;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    scenarios::put,
    store_round_trips::{RecordedServer, SAID, open_warm_session},
};
use crate::support::{RecordedRequest, RestClient, ServerData, WireRecorder, eventually, run};

/// A template for rows like the existing rows: the table, a filter, and the columns that must differ.
type RowTemplate = (&'static str, &'static str, &'static [&'static str]);

/// Rows that sessions leave behind.
const SESSION_ROWS: [RowTemplate; 11] = [
    ("dialogues", "cause_id IS NULL", &["id"]),
    ("turns", "TRUE", &["id", "dialogue", "key"]),
    ("checkpoints", "TRUE", &["turn"]),
    ("traces", "TRUE", &["turn"]),
    ("jobs", "TRUE", &["id", "dialogue", "turn"]),
    ("extractions", "TRUE", &["turn", "dialogue", "audience"]),
    ("facts", "TRUE", &["id", "cause_id", "audience"]),
    // The NPC knows all of the facts.
    ("fact_knowers", "TRUE", &["fact"]),
    ("fact_embeddings", "TRUE", &["fact"]),
    ("state_events", "TRUE", &["id", "cause_id"]),
    ("episodes", "TRUE", &["cause_id"]),
];
/// Further rows left by rewinds and saves.
const REWIND_ROWS: [RowTemplate; 9] = [
    ("turns", "NOT stands", &["id", "dialogue", "key", "unsaid_by"]),
    ("participants", "TRUE", &["dialogue"]),
    ("invalidations", "TRUE", &["id", "fact", "by_fact", "cause_id"]),
    ("summaries", "TRUE", &["id", "dialogue", "cause_id"]),
    ("rewinds", "TRUE", &["id", "dialogue", "key"]),
    ("saves", "TRUE", &["id"]),
    ("save_items", "TRUE", &["save", "dialogue", "turn"]),
    ("restores", "TRUE", &["id", "key"]),
    ("audit", "TRUE", &["id"]),
];
/// Tables that may be empty, filled with arbitrary rows.
const OTHER_TABLES: [&str; 11] = [
    "outbox",
    "fact_flags",
    "fact_edits",
    "flag_decisions",
    "verdicts",
    "unsettled",
    "summary_changes",
    "actions",
    "insights",
    "fact_premises",
    "consolidations",
];
/// The number of rows per table.
const ROWS: u32 = 10_000;
/// Allowed full scans of a table or of a tenant's part of an index: its name, and a part of the statement.
const ALLOWED_SCANS: [(&str, &str); 22] = [
    // A save covers all dialogues of its world.
    ("dialogues", "INSERT INTO save_items"),
    ("dialogues", "LEFT JOIN save_items"),
    ("dialogues", "sealed (id) AS"),
    ("dialogues_pkey", "ORDER BY id FOR UPDATE"),
    // The NPC takes part in all dialogues.
    ("participants", "id IN (SELECT dialogue FROM participants"),
    // The planner expects to follow a thousand turns. Above about 20,000 rows, it uses the index.
    ("turns", "SELECT t.replaces FROM"),
    // Sessions joined at a line. A tenant has few.
    ("dialogues_by_cause", "cause_kind = 'turn' AND"),
    // A tenant has few saves.
    ("saves", "SELECT COUNT(*) FROM saves"),
    // Reads only the first row.
    ("saves_pkey", "SELECT MIN(s.id) FROM saves"),
    // Reads only the tenant's first row, by the index if rows of other tenants wait.
    ("outbox", "NOT EXISTS (SELECT 1 FROM outbox"),
    ("outbox_of_tenant", "NOT EXISTS (SELECT 1 FROM outbox"),
    // Queues, which are read whole.
    ("jobs_open", ""),
    ("jobs_due", ""),
    ("jobs_dead", ""),
    ("dialogues_replacing", ""),
    ("outbox_pkey", "FROM outbox ORDER BY seq LIMIT"),
    ("unsettled", "FROM unsettled"),
    // Occasional background work on three kinds of rows: turns unsaid long ago, rows no longer pinned, and facts
    // without a vector.
    ("turns_unsaid_at", ""),
    ("save_items", "kept (id, previous) AS"),
    ("save_items", "DELETE FROM jobs"),
    ("save_items_of_dialogue", "DELETE FROM jobs"),
    ("fact_embeddings", "NOT EXISTS (SELECT 1 FROM fact_embeddings"),
];

async fn execute(connection: &mut PgConnection, statement: String) {
    let done = sqlx::raw_sql(AssertSqlSafe(statement.clone()))
        .execute(connection)
        .await;
    done.unwrap_or_else(|error| panic!("{error}: {statement}"));
}

/// Returns the columns of a table except row numbers, with whether the column is in a key, and its type.
async fn columns(connection: &mut PgConnection, table: &str) -> Vec<(String, bool, String)> {
    sqlx::query_as(
        "SELECT attname::text, attnotnull, format_type(atttypid, NULL) FROM pg_attribute
         WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = '' ORDER BY attnum",
    )
    .bind(table)
    .fetch_all(connection)
    .await
    .unwrap()
}

async fn fill_like(connection: &mut PgConnection, (table, which, apart): RowTemplate) {
    let columns = columns(connection, table).await;
    let columns: Vec<&str> = columns.iter().map(|(column, ..)| column.as_str()).collect();
    let apart: Vec<String> = apart
        .iter()
        .map(|column| format!("'{column}', (s.t).{column} || '-{}-' || n", which.len()))
        .collect();
    let (columns, apart) = (columns.join(", "), apart.join(", "));
    execute(
        connection,
        format!(
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM
             (SELECT (jsonb_populate_record(s.t, jsonb_build_object({apart}))).*
              FROM (SELECT t FROM {table} t WHERE {which} LIMIT 1) s, generate_series(1, {ROWS}) n) r"
        ),
    )
    .await;
}

async fn fill_with_anything(connection: &mut PgConnection, table: &str) {
    let columns = columns(connection, table).await;
    let values = columns.iter().map(|(column, needed, kind)| match kind.as_str() {
        _ if column == "tenant" => "'demo'".to_owned(),
        _ if column == "cause_kind" => "'turn'".to_owned(),
        _ if !needed => "NULL".to_owned(),
        "bigint" => "n".to_owned(),
        "boolean" => "TRUE".to_owned(),
        _ => format!("'{column}-' || n"),
    });
    let values: Vec<String> = values.collect();
    let names: Vec<&str> = columns.iter().map(|(column, ..)| column.as_str()).collect();
    execute(
        connection,
        format!(
            "INSERT INTO {table} ({}) SELECT {} FROM generate_series(1, {ROWS}) n",
            names.join(", "),
            values.join(", ")
        ),
    )
    .await;
}

/// Fills tables, updates their statistics, and returns their names.
async fn fill(connection: &mut PgConnection, like: &[RowTemplate], others: &[&'static str]) -> BTreeSet<&'static str> {
    // Adds a change of state, in case the dialogue has none.
    execute(
        connection,
        "INSERT INTO state_events (tenant, id, world, change, cause_kind, cause_id, at)
         VALUES ('demo', 'some', 'vale', '{}', 'turn', 'some', 1)"
            .to_owned(),
    )
    .await;
    for like in like {
        fill_like(connection, *like).await;
    }
    for table in others {
        fill_with_anything(connection, table).await;
    }
    let tables: BTreeSet<&str> = like.iter().map(|(table, ..)| table).chain(others).copied().collect();
    for table in &tables {
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}")))
            .fetch_one(&mut *connection)
            .await
            .unwrap();
        assert!(count >= i64::from(ROWS), "{table} has {count} rows");
        execute(connection, format!("ANALYZE {table}")).await;
    }
    tables
}

/// Returns the generic plan that a server's connection caches for a statement.
async fn generic_plan(connection: &mut PgConnection, statement: &str, types: &[u32]) -> String {
    let oids: Vec<i64> = types.iter().map(|oid| i64::from(*oid)).collect();
    let names: Vec<String> = sqlx::query_scalar("SELECT format_type(t::oid, NULL) FROM unnest($1::bigint[]) t")
        .bind(&oids)
        .fetch_all(&mut *connection)
        .await
        .unwrap();
    let (mut types, mut nothing) = (names.join(", "), vec!["NULL"; names.len()].join(", "));
    if !names.is_empty() {
        (types, nothing) = (format!("({types})"), format!("({nothing})"));
    }
    execute(connection, format!("PREPARE it{types} AS {statement}")).await;
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE it{nothing}");
    let steps: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain))
        .persistent(false)
        .fetch_all(&mut *connection)
        .await
        .unwrap();
    execute(connection, "DEALLOCATE it".to_owned()).await;
    steps.join("\n")
}

/// Connects to a server's database with the server's own settings.
async fn connect_as_server(data: &ServerData, tap: &WireRecorder) -> PgConnection {
    let mut connection = data.database().connect().await;
    let settings = tap.options();
    assert!(!settings.is_empty());
    for (name, value) in settings {
        execute(&mut connection, format!("SET {name} = '{value}'")).await;
    }
    execute(
        &mut connection,
        "SELECT set_config('colloquy.tenant', 'demo', false); SET plan_cache_mode = force_generic_plan".to_owned(),
    )
    .await;
    connection
}

/// Returns the distinct statements that read or write rows.
fn statements(requests: Vec<RecordedRequest>) -> BTreeMap<String, Vec<u32>> {
    let asks = |request: &RecordedRequest| {
        let kind = request.text.split_whitespace().next().unwrap_or_default();
        ["SELECT", "WITH", "INSERT", "UPDATE", "DELETE"].contains(&kind)
    };
    let requests = requests.into_iter().filter(asks);
    requests.map(|request| (request.text, request.types)).collect()
}

/// Returns the first maintenance statement that starts with `of`.
async fn first_maintenance_statement(ledger: &WireRecorder, of: &str) -> RecordedRequest {
    eventually("the node to tidy up", || async {
        let all = ledger.requests_since(0);
        all.into_iter().find(|request| request.text.starts_with(of))
    })
    .await
}

/// Asserts that every part occurs in a statement.
fn assert_statements_contain(statements: &BTreeMap<String, Vec<u32>>, parts: &[&str]) {
    for part in parts {
        assert!(
            statements.keys().any(|statement| statement.contains(part)),
            "no {part} among {statements:#?}"
        );
    }
}

/// Returns the full scans of a plan: whole tables, and indexes searched by tenant alone.
fn full_scans(plan: &str, tables: &BTreeSet<&str>) -> Vec<String> {
    let step = Regex::new(
        r"(Seq|Bitmap Heap|Bitmap Index|Index|Index Only) Scan (?:Backward )?(?:using ([a-z_]+) )?on ([a-z_]+)",
    )
    .unwrap();
    let tenant = Regex::new(r"Index Cond: \(tenant = [^ ]+\)$").unwrap();
    let (mut all, mut table) = (Vec::new(), "");
    let mut lines = plan.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(found) = step.captures(line) else {
            continue;
        };
        let part = |n| found.get(n).map(|part| part.as_str());
        let (kind, on) = (part(1).unwrap(), part(3).unwrap());
        // A bitmap's index scan does not name its table, but the previous step does.
        let index = part(2).unwrap_or(on);
        if kind != "Bitmap Index" {
            table = on;
        }
        let condition = lines.peek().filter(|line| line.contains("Index Cond: "));
        let all_of_it = match kind {
            "Seq" => true,
            "Bitmap Heap" => false,
            _ => condition.is_none_or(|condition| tenant.is_match(condition)),
        };
        if all_of_it && tables.contains(table) {
            all.push(index.to_owned());
        }
    }
    all
}

async fn assert_plans(connection: &mut PgConnection, statements: BTreeMap<String, Vec<u32>>, tables: &BTreeSet<&str>) {
    let mut wrong = Vec::new();
    for (statement, types) in statements {
        let plan = generic_plan(connection, &statement, &types).await;
        let mut all = full_scans(&plan, tables);
        all.retain(|what| {
            !ALLOWED_SCANS
                .iter()
                .any(|(name, part)| name == what && statement.contains(part))
        });
        if !all.is_empty() {
            wrong.push(format!("all of {}:\n{statement}\n{plan}", all.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "read {}", wrong.join("\n\nread "));
}

#[test]
fn turn_statements_all_stay_on_their_indexes() {
    run(async {
        let tapped = RecordedServer::new().await;
        let past = json!({"title": "The fruit years", "content": "I sold fruit at the market.", "keywords": ["fruit"],
            "when": [{"not": {"item": "crown"}}], "tell": {"text": "You look at the fruit."}});
        put(
            &tapped.server.backend(),
            "/v1/worlds/vale/npcs/mira/scenarios/market",
            &past,
        )
        .await;
        let (mut socket, session) = open_warm_session(&tapped.server).await;
        tapped.jobs_done(SAID).await;
        let mut heard = Vec::new();
        // The maintenance statements of these tables are included.
        for of in ["DELETE FROM jobs ", "DELETE FROM traces "] {
            heard.push(first_maintenance_statement(&tapped.ledger, of).await);
        }
        let start = tapped.ledger.count();
        // A new fact, a fact that ends an old one, and a repeated fact.
        for line in ["I like plums. I hate grapes.", "I like plums."] {
            socket.say_line(&session, line).await;
        }
        tapped.line_requests(&mut socket, &session, SAID + 2).await;
        // The NPC's past, and its titles after a recent use.
        tapped.mock.apply_settings(&json!({"intent": "scenario"})).unwrap();
        for number in 3..5 {
            tapped.line_requests(&mut socket, &session, SAID + number).await;
        }
        heard.extend(tapped.ledger.requests_since(start));
        let statements = statements(heard);
        let writes = [
            "INSERT INTO facts ",
            "INSERT INTO invalidations ",
            "UPDATE fact_knowers ",
        ];
        assert_statements_contain(&statements, &writes);
        assert_statements_contain(
            &statements,
            &[
                "embedding FROM scenarios",
                "required_progress FROM scenarios",
                "tell FROM scenarios",
            ],
        );
        let mut connection = connect_as_server(&tapped.server.data, &tapped.ledger).await;
        let others: RowTemplate = ("scenarios", "TRUE", &["npc"]);
        let tables = fill(&mut connection, &[&SESSION_ROWS[..], &[others][..]].concat(), &[]).await;
        assert_plans(&mut connection, statements, &tables).await;
    });
}

/// A server with recorded stores and both kinds of dialogues.
struct RecordedStack {
    // Fields drop in order, so the server is before the ledger.
    server: crate::support::TestServer,
    ledger: WireRecorder,
    rest: RestClient,
}

impl RecordedStack {
    fn start() -> Self {
        let data = ServerData::on_postgres(&[]);
        let (ledger, url) = WireRecorder::on_postgres(&data.database().url);
        let server = data
            .with(&[
                ("COLLOQUY__LEDGER__URL", url.as_str()),
                ("COLLOQUY__ACTORS__SWEEP_S", "1"),
                ("COLLOQUY__JOBS__POLL_S", "1"),
                ("COLLOQUY__SUMMARIES__FIRST_AFTER_TURNS", "2"),
                ("COLLOQUY__SUMMARIES__THEN_EVERY_TURNS", "2"),
                ("COLLOQUY__SUMMARIES__BUFFER_MIN_TURNS", "2"),
                ("COLLOQUY__TURN__SEAL_S", "3600"),
            ])
            .start();
        Self {
            rest: server.rest(Role::Admin),
            server,
            ledger,
        }
    }

    /// Sends a request, and waits for all jobs.
    async fn request_and_settle(&self, path: &str, body: Value) -> Value {
        let done = self.rest.post(path, &body).await;
        eventually("the end of all jobs", || async {
            let left = self.server.data.count(
                "SELECT (SELECT COUNT(*) FROM jobs WHERE status = 'pending') + (SELECT COUNT(*) FROM outbox)
                + (SELECT COUNT(*) FROM unsettled)",
            );
            (left.await == 0).then_some(())
        })
        .await;
        done
    }

    async fn open_dialogue(&self, path: &str, body: Value) -> String {
        let made = self.request_and_settle(path, body).await;
        format!("{path}/{}", made["id"].as_str().unwrap())
    }

    /// Reads the first two pages of a list, with one item each.
    async fn read_two_pages(&self, list: &str) {
        let first = self.rest.get(&format!("{list}limit=1")).await;
        let next = match &first["next"] {
            Value::Null => return,
            Value::String(next) => next.clone(),
            next => next.to_string(),
        };
        self.rest.get(&format!("{list}limit=1&after={next}")).await;
    }
}

/// Runs a session with all kinds of rewinds.
async fn run_session(stack: &RecordedStack) -> String {
    let session = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"});
    let session = stack.open_dialogue("/v1/sessions", session).await;
    for line in [
        "I like grapes.",
        "My sister Yuna lives in Harbour Town.",
        "I hate plums. Let's go to the old mill.",
        "I don't like grapes anymore.",
        "I like plums now. Let's go to the market.",
    ] {
        stack
            .request_and_settle(&format!("{session}/turns"), json!({"text": line}))
            .await;
    }
    for (verb, body) in [
        ("interrupt", json!({"turn": 3, "heard_chars": 9, "key": "cut"})),
        ("resume", json!({"key": "up"})),
        ("regenerate", json!({"key": "anew"})),
        ("rewind", json!({"turn": 2, "key": "back"})),
        // A repeated request.
        ("rewind", json!({"turn": 2, "key": "back"})),
    ] {
        stack.request_and_settle(&format!("{session}:{verb}"), body).await;
    }
    session
}

/// Runs a conversation with a joined player, and cuts the line before.
async fn run_conversation(stack: &RecordedStack) -> String {
    let conversation = json!({"world_id": "vale", "npc_ids": ["mira", "ergen"], "topic": "grapes",
        "auto": false, "open": true, "interrupters": "all"});
    let conversation = stack.open_dialogue("/v1/npc-conversations", conversation).await;
    let verb = |verb: &str| format!("{conversation}:{verb}");
    for _ in 0..3 {
        stack.request_and_settle(&verb("step"), json!({})).await;
    }
    let joined = stack
        .request_and_settle(&verb("join"), json!({"player_id": "p2"}))
        .await;
    let turns = format!("/v1/sessions/{}/turns", joined["id"].as_str().unwrap());
    stack.request_and_settle(&turns, json!({"text": "I like figs."})).await;
    stack.request_and_settle(&verb("resume"), json!({})).await;
    stack
        .request_and_settle(&verb("interrupt"), json!({"turn": 2, "heard_chars": 12, "key": "cut"}))
        .await;
    stack.request_and_settle(&verb("resume"), json!({})).await;
    conversation
}

/// Restores an older and a newer save.
async fn run_restores(stack: &RecordedStack, session: &str, conversation: &str) {
    const SAVES: &str = "/v1/worlds/vale/saves";
    let older = stack.open_dialogue(SAVES, json!({"name": "older"})).await;
    let line = json!({"text": "I like pears. Let's go to the lake."});
    stack.request_and_settle(&format!("{session}/turns"), line).await;
    stack
        .request_and_settle(&format!("{conversation}:step"), json!({}))
        .await;
    let another = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p3"});
    stack.open_dialogue("/v1/sessions", another).await;
    let newer = stack.open_dialogue(SAVES, json!({"name": "newer"})).await;
    for (save, key) in [(&older, "a"), (&newer, "b"), (&newer, "b")] {
        stack
            .request_and_settle(&format!("{save}:restore"), json!({ "key": key }))
            .await;
    }
    stack.rest.get(&older).await;
    let (status, gone) = stack.rest.call(Method::DELETE, &older, None).await;
    assert!(status.is_success(), "{gone}");
}

/// Flags two facts for personal data, and decides about one of them.
async fn run_flag_decisions(stack: &RecordedStack) {
    let mut flagged = Vec::new();
    for number in ["010-1234-5678", "010-2345-6789"] {
        let fact = json!({"subject": "The smith", "predicate": "have", "object": "a telephone", "kind": "profile",
            "content": format!("The smith can be called at {number}.")});
        let made = stack.request_and_settle("/v1/worlds/vale/npcs/mira/facts", fact).await;
        flagged.push(made["id"].as_str().unwrap().to_owned());
    }
    let decide = |flag: &str| format!("/v1/worlds/vale/flags/{}/{flag}:decide", flagged[0]);
    stack
        .request_and_settle(&decide("pii"), json!({"decision": "accepted"}))
        .await;
    let correction = json!({"object": "a horn", "content": "The smith has a horn."});
    let body = json!({"decision": "corrected", "correction": correction});
    stack.request_and_settle(&decide("pii"), body.clone()).await;
    for flag in ["contradicted", "over_merged"] {
        let (status, answer) = stack.rest.call(Method::POST, &decide(flag), Some(&body)).await;
        assert_eq!(status, 404, "{answer}");
    }
}

/// Reads all lists with all filters.
async fn run_lists(stack: &RecordedStack, session: &str, conversation: &str) {
    let mut lists: Vec<String> = [
        "/v1/worlds?",
        "/v1/worlds/vale/npcs?",
        "/v1/worlds/vale/saves?",
        "/v1/audit?",
        "/v1/jobs?",
        "/v1/jobs?status=pending&",
        "/v1/jobs?status=done&",
        "/v1/jobs?status=dead&",
    ]
    .map(str::to_owned)
    .into();
    for (kind, by) in [
        (
            "sessions",
            ["world_id=vale", "npc_id=mira", "player_id=p1", "status=open"],
        ),
        (
            "npc-conversations",
            ["world_id=vale", "npc_id=mira", "heard_by=ergen", "status=open"],
        ),
    ] {
        // All combinations of filters.
        for set in 0..16 {
            let by = by.iter().enumerate().filter(|(n, _)| set & (1 << n) != 0);
            let by: Vec<String> = by.map(|(_, by)| format!("{by}&")).collect();
            lists.push(format!("/v1/{kind}?{}", by.concat()));
        }
    }
    for by in [
        "",
        "subject=Yuna&",
        "kind=preference&",
        "from=2020-01-01T00:00:00Z&",
        "to=2120-01-01T00:00:00Z&",
        "at=2120-01-01T00:00:00Z&",
        "include_invalid=true&",
        "player_id=p1&",
        "player_id=p1&include_invalid=true&subject=player&kind=preference&",
    ] {
        lists.push(format!("/v1/worlds/vale/npcs/mira/facts?{by}"));
    }
    for dialogue in [session, conversation] {
        lists.push(format!("{dialogue}/turns?"));
    }
    run_flag_decisions(stack).await;
    for by in ["", "npc_id=mira&", "state=decided&", "state=decided&npc_id=mira&"] {
        lists.push(format!("/v1/worlds/vale/flags?{by}"));
    }
    lists.push("/v1/worlds/vale/npcs/mira/facts?flagged=true&".to_owned());
    for list in &lists {
        stack.read_two_pages(list).await;
    }
    for path in [
        &format!("{session}/summaries"),
        &format!("{conversation}/summaries"),
        &format!("{session}/turns/1/trace"),
        session,
        conversation,
        "/v1/usage",
        "/v1/worlds/vale/npcs/mira/facts?q=grapes",
    ] {
        stack.rest.get(path).await;
    }
    for fact in stack.rest.facts("mira").await {
        let fact = fact["id"].as_str().unwrap().to_owned();
        stack.rest.get(&format!("/v1/facts/{fact}/history")).await;
    }
}

#[test]
fn rewind_restore_and_list_statements_all_stay_on_their_indexes() {
    run(async {
        let stack = RecordedStack::start();
        let session = run_session(&stack).await;
        let conversation = run_conversation(&stack).await;
        run_restores(&stack, &session, &conversation).await;
        run_lists(&stack, &session, &conversation).await;
        // Verdicts are stored for saves.
        first_maintenance_statement(&stack.ledger, "DELETE FROM verdicts ").await;
        let statements = statements(stack.ledger.requests_since(0));
        let parts = [
            "UPDATE turns SET stands = FALSE",
            "UPDATE turns SET stands = TRUE",
            "'unsaid', 'rewind'",
            "DELETE FROM checkpoints ",
            "INSERT INTO rewinds ",
            "INSERT INTO unsettled ",
            "INSERT INTO save_items ",
            "INSERT INTO restores ",
            "DELETE FROM save_items ",
            "FROM participants WHERE part = 'speaker'",
            "AND (created_at, id) < (SELECT created_at, id FROM dialogues",
            "(created_at, id) < (SELECT created_at, id FROM saves",
            "FROM audit ",
            "FROM flag_decisions",
            "FROM fact_flags g",
            "UPDATE facts SET corrects",
        ];
        assert_statements_contain(&statements, &parts);
        // The running server would fail on rows without valid references.
        let data = stack.server.stop();
        let mut connection = connect_as_server(&data, &stack.ledger).await;
        let like = [&SESSION_ROWS[..], &REWIND_ROWS].concat();
        let tables = fill(&mut connection, &like, &OTHER_TABLES).await;
        assert_plans(&mut connection, statements, &tables).await;
    });
}
