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
    options::{CallKind, FaultKind, MockOptions},
};

/// The number of stored requests.
const MAX_REMEMBERED_REQUESTS: usize = 64;

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
    settings: RwLock<(Arc<MockOptions>, Arc<ReplyScript>)>,
    patched: watch::Sender<()>,
    calls: [AtomicU64; CallKind::ALL.len()],
    faults: AtomicU64,
    aborted: watch::Sender<u64>,
    requests: Mutex<VecDeque<(CallKind, Bytes)>>,
}

impl MockState {
    pub(super) fn new(options: &MockOptions) -> Result<Self, String> {
        let settings = options.with_patch(&serde_json::json!({}))?;
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
    pub(super) fn settings(&self) -> (Arc<MockOptions>, Arc<ReplyScript>) {
        self.settings.read().clone()
    }
    pub(super) fn apply_patch(&self, patch: &serde_json::Value) -> Result<Arc<MockOptions>, String> {
        let mut settings = self.settings.write();
        let patched = Arc::new(settings.0.with_patch(patch)?);
        *settings = (patched.clone(), Arc::new(ReplyScript::new(&patched)));
        self.patched.send_replace(());
        Ok(patched)
    }
    /// Waits until no fault delays calls of `call`.
    pub(super) async fn wait_until_released(&self, call: CallKind) {
        let mut patched = self.patched.subscribe();
        while self.settings().0.faults.iter().any(|fault| fault.holds_call(call)) {
            // The sender lives as long as `self`.
            let _ = patched.changed().await;
        }
    }
    /// Counts and stores a call. Returns its number within its task, and its fault.
    pub(super) fn record_call(&self, call: CallKind, body: &Bytes, settings: &MockOptions) -> (u64, FaultKind) {
        let number = self.calls[call.slot_index()].fetch_add(1, Relaxed) + 1;
        {
            let mut requests = self.requests.lock();
            if requests.len() == MAX_REMEMBERED_REQUESTS {
                requests.pop_front();
            }
            requests.push_back((call, body.clone()));
        }
        let fault = settings
            .faults
            .iter()
            .find(|fault| fault.hits_call(call, number))
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
                .map(|call| (call.as_str().to_owned(), self.calls[call.slot_index()].load(Relaxed)))
                .collect(),
            faults: self.faults.load(Relaxed),
            aborted: *self.aborted.borrow(),
        }
    }
    /// Returns the last requests of a task in the order of arrival.
    pub(super) fn requests_of(&self, call: CallKind) -> Vec<serde_json::Value> {
        let requests = self.requests.lock();
        requests
            .iter()
            .filter(|(recorded_call, _)| *recorded_call == call)
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
    is_done: bool,
}

impl AnswerGuard {
    pub(super) fn new(state: Arc<MockState>) -> Self {
        Self { state, is_done: false }
    }
    pub(super) fn mark_done(&mut self) {
        self.is_done = true;
    }
    /// Waits until no fault delays calls of `call`.
    pub(super) async fn wait_until_released(&self, call: CallKind) {
        self.state.wait_until_released(call).await;
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        if !self.is_done {
            self.state.aborted.send_modify(|count| *count += 1);
        }
    }
}
