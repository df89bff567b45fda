//! Fact index with metrics: the time per call, and the failures, which a turn does not show.

use std::sync::Arc;

use async_trait::async_trait;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::{
    fact::Viewpoint,
    keywords::{TermStatistics, TermWeights},
};
use colloquy_ports::{
    StoreResult,
    vectors::{
        Candidate, CandidateQuery, FactIndex, IndexPoint, IndexState, PrepareOutcome, SimilarFactsQuery,
        StoredPointPage,
    },
};
use colloquy_telemetry as telemetry;
use colloquy_telemetry::MetricKind;

const CALL_SECONDS_BUCKETS: [f64; 11] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0,
];

/// An index that measures its calls.
pub(in crate::app) struct InstrumentedIndex {
    inner: Arc<dyn FactIndex>,
    calls: IntCounterVec,
    seconds: HistogramVec,
}

impl InstrumentedIndex {
    pub(in crate::app) fn new(inner: Arc<dyn FactIndex>, registry: &Registry) -> prometheus::Result<Self> {
        let observed = Self {
            calls: IntCounterVec::new(
                Opts::new(
                    "colloquy_index_calls_total",
                    "Calls to the index of facts, by what came of them",
                ),
                &["call", "outcome"],
            )?,
            seconds: HistogramVec::new(
                HistogramOpts::new("colloquy_index_seconds", "Seconds per call to the index of facts")
                    .buckets(CALL_SECONDS_BUCKETS.to_vec()),
                &["call"],
            )?,
            inner: Arc::clone(&inner),
        };
        registry.register(Box::new(observed.calls.clone()))?;
        registry.register(Box::new(observed.seconds.clone()))?;
        telemetry::register_metric(
            registry,
            MetricKind::Gauge,
            "colloquy_index_ready",
            "1: the index of facts is in use; 0: it is away or being filled",
            move || f64::from(u8::from(inner.index_state() == IndexState::Ready)),
        )?;
        Ok(observed)
    }

    async fn observe_call<T>(&self, call: &str, running: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        let timer = self.seconds.with_label_values(&[call]).start_timer();
        let result = running.await;
        timer.observe_duration();
        let outcome = if result.is_ok() { "done" } else { "failed" };
        self.calls.with_label_values(&[call, outcome]).inc();
        result
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
    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        self.observe_call("similar", self.inner.find_similar(scope, with)).await
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
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
    fn index_state(&self) -> IndexState {
        self.inner.index_state()
    }
    async fn prepare_index(&self, may_make: bool) -> StoreResult<PrepareOutcome> {
        self.inner.prepare_index(may_make).await
    }
    async fn adopt_index(&self) -> StoreResult<()> {
        self.inner.adopt_index().await
    }
    async fn drop_replaced_index(&self) -> StoreResult<()> {
        self.inner.drop_replaced_index().await
    }
    async fn is_current(&self) -> StoreResult<bool> {
        self.inner.is_current().await
    }
    async fn list_stored_points(
        &self,
        scope: &TenantScope,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Option<StoredPointPage>> {
        self.inner.list_stored_points(scope, after, limit).await
    }
}
