//! Settings and counters of the mock server.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{
    answers::ReplyScript,
    options::{CallKind, FaultKind, MockFault, MockOptions},
};

/// The number of stored requests.
const MAX_REMEMBERED_REQUESTS: usize = 64;

/// Settings that can change at run time: `POST /control` accepts any subset as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MockSettings {
    pub latency_ms: u64,
    pub jitter_ms: u64,
    pub tokens_per_s: u32,
    pub deltas: u32,
    pub reply: String,
    pub intent: String,
    pub verdict: String,
    pub next_speaker: String,
    pub facts_per_turn: f64,
    pub dimensions: usize,
    pub slow_ms: u64,
    pub retry_after_ms: u64,
    pub faults: Vec<MockFault>,
}

impl MockSettings {
    /// Returns these settings with the fields of `patch` replaced.
    ///
    /// # Errors
    /// Describes an unknown field or an invalid value.
    pub(super) fn with_patch(&self, patch: &serde_json::Value) -> Result<Self, String> {
        let mut all = serde_json::to_value(self).map_err(|error| error.to_string())?;
        let fields = patch.as_object().ok_or("the body must be a JSON object")?;
        for (name, value) in fields {
            all[name] = value.clone();
        }
        let settings: Self = serde_json::from_value(all).map_err(|error| error.to_string())?;
        if !(1..=16_384).contains(&settings.dimensions) {
            return Err("dimensions must be 1 to 16384".into());
        }
        if settings.deltas > 100_000 {
            return Err("deltas must be at most 100000".into());
        }
        if !(0.0..=16.0).contains(&settings.facts_per_turn) {
            return Err("facts_per_turn must be 0 to 16".into());
        }
        Ok(settings)
    }
}

/// Counters since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockStats {
    /// Calls by task, `embedding` included.
    pub calls: BTreeMap<String, u64>,
    /// Calls with a fault.
    pub faults: u64,
    /// Answers whose client left early.
    pub aborted: u64,
}

pub(super) struct MockState {
    settings: RwLock<(Arc<MockSettings>, Arc<ReplyScript>)>,
    patched: watch::Sender<()>,
    calls: [AtomicU64; CallKind::ALL.len()],
    faults: AtomicU64,
    aborted: watch::Sender<u64>,
    requests: Mutex<VecDeque<(CallKind, Bytes)>>,
}

impl MockState {
    pub(super) fn new(options: &MockOptions) -> Result<Self, String> {
        let settings = MockSettings::from(options).with_patch(&serde_json::json!({}))?;
        let script = ReplyScript::new(&settings);
        Ok(Self {
            settings: RwLock::new((Arc::new(settings), Arc::new(script))),
            patched: watch::Sender::new(()),
            calls: Default::default(),
            faults: AtomicU64::new(0),
            aborted: watch::Sender::new(0),
            requests: Mutex::default(),
        })
    }
    pub(super) fn settings(&self) -> (Arc<MockSettings>, Arc<ReplyScript>) {
        self.settings.read().clone()
    }
    pub(super) fn apply_patch(&self, patch: &serde_json::Value) -> Result<Arc<MockSettings>, String> {
        let mut settings = self.settings.write();
        let patched = Arc::new(settings.0.with_patch(patch)?);
        *settings = (patched.clone(), Arc::new(ReplyScript::new(&patched)));
        self.patched.send_replace(());
        Ok(patched)
    }
    /// Waits until no fault delays calls of `asked`.
    pub(super) async fn wait_until_released(&self, asked: CallKind) {
        let mut patched = self.patched.subscribe();
        while self.settings().0.faults.iter().any(|fault| fault.holds_call(asked)) {
            // The sender lives as long as `self`.
            let _ = patched.changed().await;
        }
    }
    /// Counts and stores a call. Returns its number within its task, and its fault.
    pub(super) fn record_call(&self, asked: CallKind, body: &Bytes, settings: &MockSettings) -> (u64, FaultKind) {
        let number = self.calls[asked.slot_index()].fetch_add(1, Relaxed) + 1;
        {
            let mut requests = self.requests.lock();
            if requests.len() == MAX_REMEMBERED_REQUESTS {
                requests.pop_front();
            }
            requests.push_back((asked, body.clone()));
        }
        let fault = settings
            .faults
            .iter()
            .find(|fault| fault.hits_call(asked, number))
            .map_or(FaultKind::None, |fault| fault.kind);
        if fault != FaultKind::None {
            self.faults.fetch_add(1, Relaxed);
        }
        (number, fault)
    }
    pub(super) fn stats(&self) -> MockStats {
        MockStats {
            calls: CallKind::ALL
                .into_iter()
                .map(|asked| (asked.as_str().to_owned(), self.calls[asked.slot_index()].load(Relaxed)))
                .collect(),
            faults: self.faults.load(Relaxed),
            aborted: *self.aborted.borrow(),
        }
    }
    /// Returns the last requests of a task in the order of arrival.
    pub(super) fn requests_of(&self, asked: CallKind) -> Vec<serde_json::Value> {
        let requests = self.requests.lock();
        requests
            .iter()
            .filter(|(of, _)| *of == asked)
            .filter_map(|(_, body)| serde_json::from_slice(body).ok())
            .collect()
    }
    pub(super) fn subscribe_aborted(&self) -> watch::Receiver<u64> {
        self.aborted.subscribe()
    }
}

/// Guards one answer. If dropped before `mark_done`, the answer counts as aborted.
pub(super) struct AnswerGuard {
    state: Arc<MockState>,
    done: bool,
}

impl AnswerGuard {
    pub(super) fn new(state: Arc<MockState>) -> Self {
        Self { state, done: false }
    }
    pub(super) fn mark_done(&mut self) {
        self.done = true;
    }
    /// Waits until no fault delays calls of `asked`.
    pub(super) async fn wait_until_released(&self, asked: CallKind) {
        self.state.wait_until_released(asked).await;
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        if !self.done {
            self.state.aborted.send_modify(|count| *count += 1);
        }
    }
}
