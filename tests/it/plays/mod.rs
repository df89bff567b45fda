//! Stories that a capable model has answered: what is stored, what is in which prompt, and what must not be there.
//!
//! A story is a folder of `tests/plays/`: its script (`story.toml`), the answers of the model (`answers.toml`) and the
//! vectors of an embedder (`vectors.txt`). The server is the real one, over HTTP. `scripts/plays.sh` records a story.

mod cassette;
mod model;
mod precision;
mod story;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use colloquy::{adapters::openai::install_crypto, ids::FactId, memory::trace::TurnTrace, tenancy::Role};
use reqwest::Method;
use serde_json::{Value, json};

use self::{
    cassette::{Cassette, hash_texts},
    model::{OnStale, PlayModel, write_numbered},
    precision::ShownItems,
    story::{Expectation, LineCost, PrecisionLimits, Step, Story, fill_text, fill_variables},
};
use crate::support::{ServerData, TestServer, run};

/// How long jobs may take, with the answers that a person writes.
const JOBS_PATIENCE: Duration = Duration::from_hours(1);
/// A person may think for a while about an answer, so no call and no job times out before.
const SETTINGS: [(&str, &str); 15] = [
    ("COLLOQUY__LLM__MODEL", "gpt-4o-mini"),
    ("COLLOQUY__LLM__RETRY__RETRIES", "0"),
    ("COLLOQUY__LLM__TASKS__REPLY__TIMEOUT_MS", "600000"),
    ("COLLOQUY__LLM__TASKS__INTENT__TIMEOUT_MS", "600000"),
    ("COLLOQUY__LLM__TASKS__EXTRACTION__TIMEOUT_MS", "600000"),
    ("COLLOQUY__LLM__TASKS__JUDGE__TIMEOUT_MS", "600000"),
    ("COLLOQUY__LLM__TASKS__SUMMARY__TIMEOUT_MS", "600000"),
    ("COLLOQUY__LLM__TASKS__CURATION__TIMEOUT_MS", "600000"),
    ("COLLOQUY__TURN__TIMEOUT_MS", "600000"),
    // An early call with the prompt for another intent would need an answer that nobody hears.
    ("COLLOQUY__TURN__INTENT_CLASSIFICATION", "before_reply"),
    ("COLLOQUY__JOBS__LEASE_S", "3600"),
    ("COLLOQUY__EMBEDDER__MODEL", "multilingual-e5-small"),
    ("COLLOQUY__EMBEDDER__DIMENSIONS", "384"),
    ("COLLOQUY__EMBEDDER__INPUT_TYPE", "field"),
    ("COLLOQUY__EMBEDDER__TIMEOUT_MS", "60000"),
];

struct Play {
    server: TestServer,
    model: PlayModel,
    http: reqwest::Client,
    token: String,
    variables: BTreeMap<String, String>,
    /// What did not hold, one sentence each.
    faults: Vec<String>,
}

fn stories_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plays")
}

/// Reads `COLLOQUY_PLAYS`: `accept`, `accept:<folder>`, `ask:<folder>` or `prompts:<folder>`.
fn chosen_mode() -> OnStale {
    match std::env::var("COLLOQUY_PLAYS").ok().as_deref() {
        None | Some("") => OnStale::Report,
        Some("accept") => OnStale::Accept(None),
        Some(mode) => match mode.split_once(':') {
            Some(("prompts", folder)) => OnStale::Write(folder.into()),
            Some(("ask", folder)) => OnStale::Ask(folder.into()),
            Some(("accept", folder)) => OnStale::Accept(Some(folder.into())),
            _ => panic!(
                "COLLOQUY_PLAYS is `accept`, `accept:<folder>`, `ask:<folder>` or `prompts:<folder>`, not `{mode}`"
            ),
        },
    }
}

impl Play {
    fn start(story: &Story, model: PlayModel) -> Self {
        let url = model.base_url();
        let server = ServerData::new(&SETTINGS).with(&[
            ("COLLOQUY__LLM__BASE_URL", &url),
            ("COLLOQUY__EMBEDDER__BASE_URL", &url),
        ]);
        let settings: Vec<_> = story
            .settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let server = server.with(&settings).start();
        let token = server.token_for("demo", Role::Backend, None, Duration::from_hours(24));
        Self {
            server,
            model,
            http: reqwest::Client::new(),
            token,
            variables: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let url = format!("http://{}{path}", self.server.address);
        let mut request = self.http.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Takes a step, waits for its jobs, and checks what is expected.
    async fn take_step(&mut self, step: &Step) {
        let label = step.label();
        self.model.begin_step(&label);
        let (status, answer) = self.send_step(step).await;
        let is_expected = step.status.map_or(status < 300, |expected| status == expected);
        // What follows rests on the step.
        assert!(is_expected, "{label}: the answer is {status} {answer}");
        if step.say.is_some() {
            self.variables.insert("turn".to_owned(), answer["turn"].to_string());
        }
        if let Some(name) = &step.bind {
            let id = answer["id"].as_str().unwrap_or_default();
            self.variables.insert(name.clone(), id.to_owned());
        }
        self.wait_for_jobs(&label).await;
        for expectation in &step.expect {
            self.check(&label, expectation).await;
        }
    }

    async fn send_step(&self, step: &Step) -> (u16, Value) {
        if let Some(line) = &step.say {
            let session = step.session.as_ref().expect("a line needs `session`");
            let id = self
                .variables
                .get(session)
                .unwrap_or_else(|| panic!("no session is bound to `{session}`"));
            let path = format!("/v1/sessions/{id}/turns");
            return self.call(Method::POST, &path, Some(&json!({ "text": line }))).await;
        }
        let request = step.request.as_ref().expect("a step has `say` or `request`");
        let (method, path) = request.split_once(' ').expect("a request is a method and a path");
        let path = fill_text(path, &self.variables);
        let body = step.body.as_ref().map(|body| fill_variables(body, &self.variables));
        self.call(method.parse().unwrap(), &path, body.as_ref()).await
    }

    /// Waits until no job is left, or until a request could not be answered.
    async fn wait_for_jobs(&mut self, label: &str) {
        let ended = async {
            loop {
                let (_, jobs) = self.call(Method::GET, "/v1/jobs?status=pending", None).await;
                if jobs["items"].as_array().is_some_and(Vec::is_empty) || self.model.has_unanswered_request() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(JOBS_PATIENCE, ended).await.is_err() {
            self.faults.push(format!("{label}: jobs do not end"));
        }
    }

    /// Reads the trace of the line that was just said.
    async fn read_trace(&self, step: &Step) -> Value {
        let session = step.session.as_ref().and_then(|name| self.variables.get(name));
        let (session, turn) = (session.expect("a line has a session"), &self.variables["turn"]);
        let path = format!("/v1/sessions/{session}/turns/{turn}/trace");
        let (status, trace) = self.call(Method::GET, &path, None).await;
        assert_eq!(status, 200, "{path} answers {trace}");
        trace
    }

    async fn check(&mut self, label: &str, expectation: &Expectation) {
        let (place, text) = match (&expectation.prompt, &expectation.get) {
            (Some(task), None) => {
                let Some(prompt) = self.model.last_prompt(task) else {
                    self.faults.push(format!("{label}: there is no prompt of {task}"));
                    return;
                };
                (format!("the prompt of {task}"), prompt)
            }
            (None, Some(path)) => {
                let path = fill_text(path, &self.variables);
                let (status, answer) = self.call(Method::GET, &path, None).await;
                if status >= 300 {
                    self.faults.push(format!("{label}: {path} answers {status} {answer}"));
                }
                (path, answer.to_string())
            }
            _ => panic!("{label}: an expectation has `prompt` or `get`"),
        };
        assert!(
            !expectation.has.is_empty() || !expectation.lacks.is_empty(),
            "{label}: an expectation has `has` or `lacks`"
        );
        for part in &expectation.has {
            if !text.contains(part.as_str()) {
                self.faults.push(format!("{label}: no “{part}” in {place}: {text}"));
            }
        }
        for part in &expectation.lacks {
            if text.contains(part.as_str()) {
                self.faults.push(format!("{label}: “{part}” is in {place}: {text}"));
            }
        }
    }
}

impl Play {
    /// Returns what the story has cost for each of its lines. The server writes its usage every few seconds.
    async fn wait_for_cost(&self, lines: u32) -> LineCost {
        let calls = f64::from(self.model.chat_requests());
        loop {
            let (_, usage) = self.call(Method::GET, "/v1/usage", None).await;
            let sums = usage["items"].as_array().unwrap().iter();
            let sums: Vec<&Value> = sums.filter(|sum| sum["task"] != "embedding").collect();
            let total = |field: &str| sums.iter().filter_map(|sum| sum[field].as_f64()).sum::<f64>();
            if total("calls") >= calls {
                return LineCost {
                    calls: calls / f64::from(lines),
                    prompt_tokens: total("prompt_tokens") / f64::from(lines),
                };
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Prints what the prompts of the story have shown, and checks the limits.
    async fn check_precision(&mut self, name: &str, shown: &ShownItems, most: PrecisionLimits) {
        let stored = self.list_stored_facts().await;
        println!("{name}: shown for each line, {:?}", shown.for_each_line());
        for (measure, value, most) in [
            (
                "found facts for each question about memory",
                shown.facts_per_question(),
                most.facts_per_question,
            ),
            (
                "the share of stored facts that no prompt has shown",
                shown.never_shown(&stored),
                most.never_shown,
            ),
        ] {
            println!("{name}: {measure}, {value:.2}");
            if let Some(most) = most
                && value > most
            {
                self.faults.push(format!("{measure}: {value:.2}, and may be {most}"));
            }
        }
    }

    /// Reads the ids of the facts of all NPCs, valid or not, without those of unsaid turns.
    async fn list_stored_facts(&self) -> BTreeSet<FactId> {
        let mut stored = BTreeSet::new();
        for world in self.list_all("/v1/worlds?limit=200").await {
            let npcs = format!("/v1/worlds/{}/npcs", world["id"].as_str().unwrap());
            for npc in self.list_all(&format!("{npcs}?limit=200")).await {
                let facts = format!("{npcs}/{}/facts", npc["id"].as_str().unwrap());
                let facts = self.list_all(&format!("{facts}?include_invalid=true&limit=200")).await;
                let facts = facts.iter().filter(|fact| fact["invalid_reason"] != "unsaid");
                stored.extend(facts.map(|fact| fact["id"].as_str().unwrap().parse::<FactId>().unwrap()));
            }
        }
        stored
    }

    /// Reads all pages of a list. `path` has a query.
    async fn list_all(&self, path: &str) -> Vec<Value> {
        let (mut items, mut after) = (Vec::new(), String::new());
        loop {
            let (status, page) = self.call(Method::GET, &format!("{path}{after}"), None).await;
            assert_eq!(status, 200, "{path} answers {page}");
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            let Some(next) = page["next"].as_str() else {
                return items;
            };
            after = format!("&after={next}");
        }
    }
}

/// Describes how the requests of a play differ from the recorded requests. `None`: they are the same.
fn describe_differences(model: &PlayModel) -> Option<String> {
    let mut report = String::new();
    let stale = model.stale_requests();
    if !stale.is_empty() {
        let count = stale.len();
        let _ = writeln!(
            report,
            "{count} requests have changed since their answers were recorded:"
        );
    }
    for request in &stale {
        let missing = if request.has_old_answer { "" } else { " (no old answer)" };
        let _ = writeln!(report, "  {}: {}{missing}", request.task, request.step);
    }
    // A story that cannot go on does not reach the answers of its later steps.
    let unused = if model.has_unanswered_request() {
        Vec::new()
    } else {
        model.unused_answers()
    };
    if !unused.is_empty() {
        let count = unused.len();
        let _ = writeln!(report, "{count} recorded answers were not asked for:");
    }
    for answer in &unused {
        let _ = writeln!(report, "  {}: {}", answer.task, answer.step);
    }
    if report.is_empty() {
        return None;
    }
    report.push_str("read the new prompts and answer them: see “Stories” in CONTRIBUTING.md");
    Some(report)
}

/// Plays a story and reports what does not hold.
fn play_story(name: &str) {
    let folder = stories_folder().join(name);
    let script = std::fs::read_to_string(folder.join("story.toml")).unwrap();
    let story: Story = toml::from_str(&script).unwrap_or_else(|fault| panic!("{name}/story.toml: {fault}"));
    assert!(!story.about.is_empty(), "{name} does not say what it is about");
    let mode = chosen_mode();
    let embedder = std::env::var("COLLOQUY_PLAYS_EMBEDDER").ok();
    let model = PlayModel::start(Cassette::read(&folder), mode.clone(), embedder);
    run(async {
        let mut play = Play::start(&story, model);
        let mut shown = ShownItems::default();
        for step in &story.steps {
            play.take_step(step).await;
            if step.say.is_some() {
                let trace = play.read_trace(step).await;
                if let OnStale::Write(folder) = &mode {
                    write_numbered(folder, "trace", &serde_json::to_string_pretty(&trace).unwrap());
                }
                shown.add_line(&serde_json::from_value::<TurnTrace>(trace).unwrap());
            }
            if play.model.has_unanswered_request() {
                play.faults.push(format!("{}: the story cannot go on", step.label()));
                break;
            }
            if matches!(mode, OnStale::Ask(_) | OnStale::Accept(Some(_))) {
                play.model.write_progress();
            }
        }
        if play.faults.is_empty() {
            play.check_precision(name, &shown, story.precision).await;
            if let Some(most) = story.cost {
                let lines = story.steps.iter().filter(|step| step.say.is_some()).count();
                let cost = play.wait_for_cost(lines.try_into().unwrap()).await;
                println!("{name}: for each line, {cost:?}");
                if cost.calls > most.calls || cost.prompt_tokens > most.prompt_tokens {
                    play.faults
                        .push(format!("each line costs {cost:?}, and may cost {most:?}"));
                }
            }
        }
        if matches!(mode, OnStale::Ask(_) | OnStale::Accept(_)) && !play.model.has_unanswered_request() {
            play.model.write_cassette();
        } else {
            play.faults.extend(describe_differences(&play.model));
        }
        assert!(play.faults.is_empty(), "{name}:\n{}", play.faults.join("\n"));
    });
}

/// Names a test for each story.
macro_rules! stories {
    ($($name:ident),*) => {
        const STORIES: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { play_story(stringify!($name)); })*
    };
}

stories!(orchard, pellmouth, haesol, quarry, naru);

#[test]
fn answer_that_no_request_asks_for_is_reported() {
    let answer = |task: &str, request: &str| {
        format!("[[answers]]\nrequest = \"{request}\"\ntask = \"{task}\"\nstep = \"Good day.\"\ntext = \"yes\"\n")
    };
    let asked = hash_texts(["judge", "user", "Is it so?"]);
    let folder = tempfile::tempdir().unwrap();
    let answers = answer("judge", &asked) + &answer("curation", "0000000000000000");
    std::fs::write(folder.path().join("answers.toml"), answers).unwrap();
    let model = PlayModel::start(Cassette::read(folder.path()), OnStale::Report, None);
    install_crypto();
    run(async {
        // The recorded step is another one.
        model.begin_step("Hello.");
        let request = reqwest::Client::new().post(format!("{}/chat/completions", model.base_url()));
        let body = json!({"messages": [{"role": "user", "content": "Is it so?"}]});
        let request = request.header("x-colloquy-task", "judge").json(&body);
        assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
        let report = describe_differences(&model).unwrap();
        let named = report.lines().nth(1);
        assert_eq!(named, Some("  curation: Good day."), "{report}");
        assert_eq!(report.lines().count(), 3, "{report}");
    });
}

#[test]
fn each_folder_is_a_story() {
    let folders = std::fs::read_dir(stories_folder()).unwrap();
    for folder in folders {
        let name = folder.unwrap().file_name().into_string().unwrap();
        assert!(STORIES.contains(&name.as_str()), "add {name} to `stories!`");
    }
}
