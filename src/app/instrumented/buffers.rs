//! Buffer store with metrics: the time per call, and how often the buffer had the turns.

use std::sync::Arc;

use async_trait::async_trait;
use prometheus::Registry;

use super::call_metrics::CallMetrics;
use colloquy_core::{ids::DialogueId, scope::TenantScope};
use colloquy_ports::{
    StoreResult,
    buffer::{BufferHead, BufferSnapshot, BufferStore, BufferedTurn},
};

const CALL_SECONDS_BUCKETS: [f64; 10] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.01, 0.05, 0.25, 1.0,
];

/// A buffer store that measures its calls.
pub(in crate::app) struct InstrumentedBuffers {
    inner: Arc<dyn BufferStore>,
    metrics: CallMetrics,
}

impl InstrumentedBuffers {
    pub(in crate::app) fn new(inner: Arc<dyn BufferStore>, registry: &Registry) -> prometheus::Result<Self> {
        let names = ["colloquy_buffer_calls_total", "colloquy_buffer_seconds"];
        let metrics = CallMetrics::register_in(registry, names, "the buffer of raw turns", &CALL_SECONDS_BUCKETS)?;
        Ok(Self { inner, metrics })
    }
}

#[async_trait]
impl BufferStore for InstrumentedBuffers {
    async fn load_buffer(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Option<BufferSnapshot>> {
        let loading = self.inner.load_buffer(scope, dialogue);
        self.metrics
            .observe_call(
                "load",
                loading,
                |snapshot| if snapshot.is_some() { "found" } else { "missed" },
            )
            .await
    }
    async fn replace_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        snapshot: &BufferSnapshot,
    ) -> StoreResult<()> {
        let replacing = self.inner.replace_buffer(scope, dialogue, snapshot);
        self.metrics.observe_call("replace", replacing, |()| "done").await
    }
    async fn append_turn(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        turn: &BufferedTurn,
        keep_from: u32,
    ) -> StoreResult<bool> {
        let appending = self.inner.append_turn(scope, dialogue, expected, turn, keep_from);
        self.metrics
            .observe_call("append", appending, |is_done| if *is_done { "done" } else { "missed" })
            .await
    }
    async fn truncate_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        last: u32,
        head: BufferHead,
    ) -> StoreResult<bool> {
        let truncating = self.inner.truncate_buffer(scope, dialogue, expected, last, head);
        self.metrics
            .observe_call(
                "truncate",
                truncating,
                |is_done| if *is_done { "done" } else { "missed" },
            )
            .await
    }
    async fn remove_buffer(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<()> {
        self.metrics
            .observe_call("remove", self.inner.remove_buffer(scope, dialogue), |()| "done")
            .await
    }
    async fn ping(&self) -> StoreResult<()> {
        self.inner.ping().await
    }
}
