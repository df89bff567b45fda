//! An OpenAI-compatible server that answers from a cassette: chat completions and embeddings.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    dev::ServerHandle,
    rt::{
        System,
        time::{sleep, timeout},
    },
    web::{self, Data, PayloadConfig},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::cassette::{Cassette, RecordedAnswer, hash_texts};

/// The header in which the server names the task of a call.
const TASK_HEADER: &str = "x-colloquy-task";
/// How long a person may take for an answer.
const HAND_PATIENCE: Duration = Duration::from_hours(1);

/// What happens with a request that the cassette does not have.
#[derive(Clone)]
pub enum OnStale {
    /// The old answer of the same step and task is used, and the request is reported.
    Report,
    /// As `Report`. Each prompt is also written into this folder, with its answer, and the trace of each line.
    Write(PathBuf),
    /// The old answer of the same step and task is used and recorded for the new request. Without an old answer, the request
    /// is written into the folder, if there is one.
    Accept(Option<PathBuf>),
    /// The request is written into this folder, and the answer comes from there.
    Ask(PathBuf),
}

/// A request without a recorded answer.
#[derive(Clone)]
pub struct StaleRequest {
    pub step: String,
    pub task: String,
    /// Whether an old answer of the same step and task could be used.
    pub has_old_answer: bool,
}

struct PlayState {
    cassette: Cassette,
    on_stale: OnStale,
    /// The base URL of a real embedder, for texts without a recorded vector.
    embedder: Option<String>,
    step: String,
    /// Prompts of the present step, oldest first: the task, and the texts of its messages.
    prompts: Vec<(String, String)>,
    /// Chat requests of the whole story.
    chat_requests: u32,
    /// Recorded answers that no request has used yet, by step and task, oldest first.
    unused_answers: BTreeMap<(String, String), Vec<RecordedAnswer>>,
    used_answers: Vec<RecordedAnswer>,
    used_vectors: BTreeSet<String>,
    stale: Vec<StaleRequest>,
    requests_by_hand: usize,
}

/// The running server. Stops when dropped.
pub struct PlayModel {
    address: SocketAddr,
    state: Arc<Mutex<PlayState>>,
    server: ServerHandle,
    thread: Option<thread::JoinHandle<()>>,
}

impl PlayModel {
    pub fn start(cassette: Cassette, on_stale: OnStale, embedder: Option<String>) -> Self {
        let mut unused_answers: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for answer in &cassette.answers {
            let key = (answer.step.clone(), answer.task.clone());
            unused_answers.entry(key).or_default().push(answer.clone());
        }
        let state = Arc::new(Mutex::new(PlayState {
            cassette,
            on_stale,
            embedder,
            step: String::new(),
            prompts: Vec::new(),
            chat_requests: 0,
            unused_answers,
            used_answers: Vec::new(),
            used_vectors: BTreeSet::new(),
            stale: Vec::new(),
            requests_by_hand: 0,
        }));
        let served_state = Data::from(state.clone());
        let (started, ready) = std::sync::mpsc::sync_channel(1);
        let thread = thread::spawn(move || {
            System::new().block_on(async move {
                let server = HttpServer::new(move || {
                    App::new()
                        .app_data(served_state.clone())
                        .app_data(PayloadConfig::new(8 * 1024 * 1024))
                        .route("/v1/chat/completions", web::post().to(answer_chat))
                        .route("/v1/embeddings", web::post().to(answer_embeddings))
                })
                .workers(1)
                // A person may take long, and a call on a connection that was just closed would be lost.
                .keep_alive(HAND_PATIENCE)
                .disable_signals()
                .bind(("127.0.0.1", 0))
                .unwrap();
                let address = server.addrs()[0];
                let server = server.run();
                started.send((server.handle(), address)).unwrap();
                let _ = server.await;
            });
        });
        let (server, address) = ready.recv().unwrap();
        Self {
            address,
            state,
            server,
            thread: Some(thread),
        }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Names the step to which the next requests belong.
    pub fn begin_step(&self, label: &str) {
        let mut state = self.state.lock();
        label.clone_into(&mut state.step);
        state.prompts.clear();
    }

    /// Returns the last prompt of a task in the present step.
    pub fn last_prompt(&self, task: &str) -> Option<String> {
        let state = self.state.lock();
        let mut prompts = state.prompts.iter().rev();
        prompts
            .find(|(asked_task, _)| asked_task == task)
            .map(|(_, text)| text.clone())
    }

    pub fn stale_requests(&self) -> Vec<StaleRequest> {
        self.state.lock().stale.clone()
    }

    /// Returns the recorded answers that no request has used, as they were recorded.
    pub fn unused_answers(&self) -> Vec<RecordedAnswer> {
        let state = self.state.lock();
        let unused = state.unused_answers.values().flatten();
        let unused: BTreeSet<&String> = unused.map(|answer| &answer.request).collect();
        // A request may come in another step than the recorded one.
        let used: BTreeSet<&String> = state.used_answers.iter().map(|answer| &answer.request).collect();
        let recorded = state.cassette.answers.iter();
        let left = recorded.filter(|answer| unused.contains(&answer.request) && !used.contains(&answer.request));
        left.cloned().collect()
    }

    /// Returns the number of chat requests since the story began.
    pub fn chat_requests(&self) -> u32 {
        self.state.lock().chat_requests
    }

    /// True if a request could not be answered at all.
    pub fn has_unanswered_request(&self) -> bool {
        self.state.lock().stale.iter().any(|request| !request.has_old_answer)
    }

    /// Writes the used answers and vectors into the cassette's files, without those that the story no longer needs.
    pub fn write_cassette(&self) {
        let state = self.state.lock();
        state.cassette.write(state.used_answers.clone(), &state.used_vectors);
    }

    /// Writes what is recorded so far, and keeps what later steps may still need. So a broken play can go on.
    pub fn write_progress(&self) {
        let state = self.state.lock();
        let unused_answers = state.unused_answers.values().flatten();
        let answers = state.used_answers.iter().chain(unused_answers).cloned().collect();
        state.cassette.write(answers, state.cassette.hashes());
    }
}

impl Drop for PlayModel {
    fn drop(&mut self) {
        drop(self.server.stop(false));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn refuse(message: &str) -> HttpResponse {
    HttpResponse::BadRequest().json(json!({"error": {"message": message, "type": "play", "code": null}}))
}

async fn answer_chat(http: HttpRequest, request: web::Json<Value>, state: Data<Mutex<PlayState>>) -> HttpResponse {
    let task = http.headers().get(TASK_HEADER).and_then(|name| name.to_str().ok());
    let task = task.unwrap_or("unknown").to_owned();
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let texts: Vec<String> = messages
        .iter()
        .flat_map(|message| [message["role"].clone(), message["content"].clone()])
        .map(|value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned))
        .collect();
    let hash = hash_texts(std::iter::once(task.as_str()).chain(texts.iter().map(String::as_str)));
    let prompt = texts.join("\n");
    match find_answer(&state, &task, &hash, &prompt).await {
        Some(text) => {
            let state = state.lock();
            if let OnStale::Write(folder) = &state.on_stale {
                write_numbered(folder, &task, &format!("{prompt}\n\n=== answer\n{text}"));
            }
            chat_response(request["stream"] == true, &text)
        }
        None => refuse("the cassette has no answer to this request"),
    }
}

async fn find_answer(state: &Mutex<PlayState>, task: &str, hash: &str, prompt: &str) -> Option<String> {
    let (folder, file_name, step, old_answer) = {
        let mut state = state.lock();
        state.prompts.push((task.to_owned(), prompt.to_owned()));
        state.chat_requests += 1;
        let key = (state.step.clone(), task.to_owned());
        // A repeated request gets the same answer again.
        let same = |answer: &&RecordedAnswer| answer.request == hash;
        if let Some(answer) = state.used_answers.iter().find(same) {
            return Some(answer.text.clone());
        }
        let recorded = state.cassette.answers.iter().find(same).cloned();
        if let Some(answer) = recorded {
            if let Some(unused) = state.unused_answers.get_mut(&key) {
                unused.retain(|other| other.request != hash);
            }
            state.used_answers.push(RecordedAnswer {
                step: key.0,
                ..answer.clone()
            });
            return Some(answer.text);
        }
        let old_answer = state.unused_answers.get_mut(&key).and_then(|unused| {
            let of_most_keys = |at: &usize| (count_asked_keys(prompt, &unused[*at].text), Reverse(*at));
            let best = (0..unused.len()).max_by_key(of_most_keys)?;
            Some(unused.remove(best).text)
        });
        let folder = match &state.on_stale {
            OnStale::Ask(folder) => Some(folder.clone()),
            OnStale::Accept(folder) if old_answer.is_none() => folder.clone(),
            OnStale::Accept(_) | OnStale::Report | OnStale::Write(_) => None,
        };
        let Some(folder) = folder else {
            let request = StaleRequest {
                step: key.0.clone(),
                task: key.1.clone(),
                has_old_answer: old_answer.is_some(),
            };
            state.stale.push(request);
            if let Some(text) = &old_answer {
                state.used_answers.push(RecordedAnswer {
                    request: hash.to_owned(),
                    task: key.1,
                    step: key.0,
                    text: text.clone(),
                });
            }
            return old_answer;
        };
        state.requests_by_hand += 1;
        (
            folder,
            format!("{:04}.{task}", state.requests_by_hand),
            key.0,
            old_answer,
        )
    };
    let text = answer_by_hand(&folder, &file_name, prompt, old_answer).await?;
    state.lock().used_answers.push(RecordedAnswer {
        request: hash.to_owned(),
        task: task.to_owned(),
        step,
        text: text.clone(),
    });
    Some(text)
}

/// Writes a text to `<number>.<name>.txt`, with the number of files that the folder has so far.
pub fn write_numbered(folder: &Path, name: &str, text: &str) {
    fs::create_dir_all(folder).unwrap();
    let number = fs::read_dir(folder).unwrap().count();
    fs::write(folder.join(format!("{number:04}.{name}.txt")), text).unwrap();
}

/// Returns how many keys of a JSON answer the prompt speaks of, less those that it does not. A step may have two requests of
/// one task, for facts and for the state.
fn count_asked_keys(prompt: &str, answer: &str) -> i32 {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let keys = answer.as_object().into_iter().flat_map(|fields| fields.keys());
    keys.map(|key| if prompt.contains(&format!("\"{key}\"")) { 1 } else { -1 })
        .sum()
}

/// Writes the prompt to `<name>.prompt.txt`, an old answer to `<name>.old.txt`, and waits for `<name>.answer.txt`.
async fn answer_by_hand(folder: &PathBuf, name: &str, prompt: &str, old_answer: Option<String>) -> Option<String> {
    fs::create_dir_all(folder).unwrap();
    if let Some(text) = old_answer {
        fs::write(folder.join(format!("{name}.old.txt")), text).unwrap();
    }
    let partial = folder.join(format!("{name}.partial"));
    fs::write(&partial, prompt).unwrap();
    fs::rename(&partial, folder.join(format!("{name}.prompt.txt"))).unwrap();
    let answer = folder.join(format!("{name}.answer.txt"));
    let answered = async {
        while !answer.exists() {
            sleep(Duration::from_millis(100)).await;
        }
        // The file may be in the middle of a write.
        sleep(Duration::from_millis(100)).await;
    };
    timeout(HAND_PATIENCE, answered).await.ok()?;
    Some(fs::read_to_string(&answer).unwrap().trim_end_matches('\n').to_owned())
}

/// Answers without numbers of tokens, so that the server counts them.
fn chat_response(is_streamed: bool, text: &str) -> HttpResponse {
    if !is_streamed {
        let message = json!({"role": "assistant", "content": text});
        return HttpResponse::Ok().json(json!({
            "id": "play", "object": "chat.completion", "created": 0, "model": "play",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }));
    }
    let event = |choices: Value| {
        let chunk = json!({
            "id": "play", "object": "chat.completion.chunk", "created": 0, "model": "play", "choices": choices,
        });
        format!("data: {chunk}\n\n")
    };
    let pieces: Vec<char> = text.chars().collect();
    let mut body = String::new();
    for piece in pieces.chunks(12) {
        let content: String = piece.iter().collect();
        let delta = json!([{"index": 0, "delta": {"content": content}, "finish_reason": null}]);
        body.push_str(&event(delta));
    }
    let end = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
    body.push_str(&event(end));
    body.push_str("data: [DONE]\n\n");
    HttpResponse::Ok().content_type("text/event-stream").body(body)
}

async fn answer_embeddings(request: web::Json<Value>, state: Data<Mutex<PlayState>>) -> HttpResponse {
    let texts: Vec<String> = match &request["input"] {
        Value::String(text) => vec![text.clone()],
        Value::Array(texts) => texts
            .iter()
            .filter_map(|text| Some(text.as_str()?.to_owned()))
            .collect(),
        _ => return refuse("there is no input"),
    };
    let input_type = request["input_type"].as_str().unwrap_or("passage");
    let hashes: Vec<String> = texts.iter().map(|text| hash_texts([input_type, text])).collect();
    let missing: Vec<usize> = {
        let state = state.lock();
        let indexes = 0..texts.len();
        indexes
            .filter(|index| state.cassette.vector(&hashes[*index]).is_none())
            .collect()
    };
    if !missing.is_empty() {
        let embedder = state.lock().embedder.clone();
        let Some(embedder) = embedder else {
            let mut state = state.lock();
            let step = state.step.clone();
            let task = format!("vector of “{}”", texts[missing[0]]);
            state.stale.push(StaleRequest {
                step,
                task,
                has_old_answer: false,
            });
            return refuse("the cassette has no vector of this text");
        };
        let input: Vec<&String> = missing.iter().map(|index| &texts[*index]).collect();
        let body = json!({"model": format!("e5-{input_type}"), "input": input, "input_type": input_type});
        let response = reqwest::Client::new()
            .post(format!("{embedder}/embeddings"))
            .json(&body)
            .send()
            .await;
        let answer: Value = response.unwrap().json().await.unwrap();
        let mut state = state.lock();
        for row in answer["data"].as_array().unwrap() {
            let index = usize::try_from(row["index"].as_u64().unwrap()).unwrap();
            #[expect(clippy::cast_possible_truncation, reason = "vectors have single precision")]
            let vector: Vec<f32> = row["embedding"]
                .as_array()
                .unwrap()
                .iter()
                .map(|value| value.as_f64().unwrap() as f32)
                .collect();
            state.cassette.record_vector(hashes[missing[index]].clone(), &vector);
        }
    }
    let mut state = state.lock();
    let mut rows = Vec::new();
    for (index, hash) in hashes.into_iter().enumerate() {
        let vector = state.cassette.vector(&hash);
        rows.push(json!({"object": "embedding", "index": index, "embedding": vector}));
        state.used_vectors.insert(hash);
    }
    HttpResponse::Ok().json(json!({
        "object": "list", "data": rows, "model": request["model"], "usage": {"prompt_tokens": 0, "total_tokens": 0},
    }))
}
