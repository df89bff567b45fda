//! Fact index with metrics: the time per call, and the failures, which a turn does not show.

use std::sync::Arc;

use async_trait::async_trait;
use prometheus::Registry;

use super::call_metrics::CallMetrics;
use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::{
    disclosure::audience::Viewpoint,
    keywords::{TermStatistics, TermWeights},
};
use colloquy_ports::{
    StoreResult,
    vectors::{Candidate, CandidateQuery, FactIndex, IndexPoint, IndexState, SimilarFactsQuery},
};
use colloquy_telemetry as telemetry;
use colloquy_telemetry::MetricKind;

const CALL_SECONDS_BUCKETS: [f64; 11] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0,
];

/// An index that measures its calls.
pub(in crate::app) struct InstrumentedIndex {
    inner: Arc<dyn FactIndex>,
    metrics: CallMetrics,
}

impl InstrumentedIndex {
    pub(in crate::app) fn new(inner: Arc<dyn FactIndex>, registry: &Registry) -> prometheus::Result<Self> {
        let names = ["colloquy_index_calls_total", "colloquy_index_seconds"];
        let metrics = CallMetrics::register_in(registry, names, "the index of facts", &CALL_SECONDS_BUCKETS)?;
        let measured = Arc::clone(&inner);
        telemetry::register_metric(
            registry,
            MetricKind::Gauge,
            "colloquy_index_ready",
            "1: the index of facts is in use; 0: it is away or being filled",
            move || f64::from(u8::from(measured.index_state() == IndexState::Ready)),
        )?;
        Ok(Self { inner, metrics })
    }

    async fn observe_call<T>(&self, call: &str, running: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        self.metrics.observe_call(call, running, |_| "done").await
    }
}

#[async_trait]
impl FactIndex for InstrumentedIndex {
    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>> {
        self.observe_call("propose", self.inner.propose_candidates(scope, proposal))
            .await
    }
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        self.inner.term_statistics(scope, viewpoint, terms).await
    }
    async fn find_similar(&self, scope: &TenantScope, query: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        self.observe_call("similar", self.inner.find_similar(scope, query))
            .await
    }
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.observe_call("upsert", self.inner.upsert_points(scope, points))
            .await
    }
    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.observe_call("remove", self.inner.remove_points(scope, facts))
            .await
    }

    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.inner.count_points(scope).await
    }
    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.inner.clear_tenant(scope).await
    }
    fn stored_in(&self) -> Option<&dyn FactIndex> {
        Some(&*self.inner)
    }
}
