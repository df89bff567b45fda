//! The index of facts with a stopwatch: how long it takes, and how often it fails, which a turn does not show.

use std::sync::Arc;

use async_trait::async_trait;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::{
    ids::FactId,
    memory::{
        fact::Viewpoint,
        keywords::{TermStatistics, TermWeights},
    },
    ports::{
        StoreResult,
        vectors::{Candidate, Comparison, FactIndex, IndexPoint, IndexState, Prepared, Proposal, StoredPoints},
    },
    telemetry::{self, Kind},
    tenancy::TenantScope,
};

const SECONDS: [f64; 11] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0,
];

/// An index that counts what passes through.
pub(in crate::app) struct ObservedIndex {
    inner: Arc<dyn FactIndex>,
    calls: IntCounterVec,
    seconds: HistogramVec,
}

impl ObservedIndex {
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
                    .buckets(SECONDS.to_vec()),
                &["call"],
            )?,
            inner: Arc::clone(&inner),
        };
        registry.register(Box::new(observed.calls.clone()))?;
        registry.register(Box::new(observed.seconds.clone()))?;
        telemetry::observe(
            registry,
            Kind::Gauge,
            "colloquy_index_ready",
            "1: the index of facts is in use; 0: it is away or being filled",
            move || f64::from(u8::from(inner.state() == IndexState::Ready)),
        )?;
        Ok(observed)
    }

    async fn observe<T>(&self, call: &str, running: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        let timer = self.seconds.with_label_values(&[call]).start_timer();
        let result = running.await;
        timer.observe_duration();
        let outcome = if result.is_ok() { "done" } else { "failed" };
        self.calls.with_label_values(&[call, outcome]).inc();
        result
    }
}

#[async_trait]
impl FactIndex for ObservedIndex {
    async fn propose(&self, scope: &TenantScope, proposal: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        self.observe("propose", self.inner.propose(scope, proposal)).await
    }
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        self.inner.term_statistics(scope, viewpoint, terms).await
    }
    async fn similar(&self, scope: &TenantScope, with: Comparison<'_>) -> StoreResult<Vec<Candidate>> {
        self.observe("similar", self.inner.similar(scope, with)).await
    }
    async fn upsert(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.observe("upsert", self.inner.upsert(scope, points)).await
    }
    async fn remove(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.observe("remove", self.inner.remove(scope, facts)).await
    }

    async fn count(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.inner.count(scope).await
    }
    async fn clear(&self, scope: &TenantScope) -> StoreResult<()> {
        self.inner.clear(scope).await
    }
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
    fn state(&self) -> IndexState {
        self.inner.state()
    }
    async fn prepare(&self, may_make: bool) -> StoreResult<Prepared> {
        self.inner.prepare(may_make).await
    }
    async fn adopt(&self) -> StoreResult<()> {
        self.inner.adopt().await
    }
    async fn retire(&self) -> StoreResult<()> {
        self.inner.retire().await
    }
    async fn is_current(&self) -> StoreResult<bool> {
        self.inner.is_current().await
    }
    async fn stored(&self, scope: &TenantScope, after: Option<&str>, limit: u32) -> StoreResult<Option<StoredPoints>> {
        self.inner.stored(scope, after, limit).await
    }
}
