//! Facts on their way into the index while their turn becomes unsaid.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use colloquy::{
    dialogue::jobs,
    ids::FactId,
    ports::{
        StoreResult,
        ledger::facts::FactStore,
        llm::Task,
        vectors::{
            Candidate, CandidateQuery, FactIndex, IndexPoint, IndexState, PrepareOutcome, SimilarFactsQuery,
            StoredPointPage,
        },
    },
    tenancy::TenantScope,
};
use serde_json::json;
use tokio::sync::Notify;

use super::{Stage, liking_fact};
use crate::support::{QdrantDouble, run};

const ASKS: &str = "What fruit do I like?";

/// An index that pauses once, half-way through a batch of points.
struct PausingIndex {
    index: Arc<dyn FactIndex>,
    halts: AtomicBool,
    /// Signals that half of the points are written.
    halted: Notify,
    /// Releases the other half.
    goes_on: Notify,
}

#[async_trait]
impl FactIndex for PausingIndex {
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        if points.len() < 2 || !self.halts.swap(false, Ordering::SeqCst) {
            return self.index.upsert_points(scope, points).await;
        }
        let (first, second) = points.split_at(points.len() / 2);
        self.index.upsert_points(scope, first).await?;
        self.halted.notify_one();
        self.goes_on.notified().await;
        self.index.upsert_points(scope, second).await
    }

    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>> {
        self.index.propose_candidates(scope, proposal).await
    }
    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        self.index.find_similar(scope, with).await
    }
    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.index.remove_points(scope, facts).await
    }
    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.index.count_points(scope).await
    }
    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.index.clear_tenant(scope).await
    }
    fn is_shared(&self) -> bool {
        self.index.is_shared()
    }
    fn index_state(&self) -> IndexState {
        self.index.index_state()
    }
    async fn prepare_index(&self, may_make: bool) -> StoreResult<PrepareOutcome> {
        self.index.prepare_index(may_make).await
    }
    async fn is_current(&self) -> StoreResult<bool> {
        self.index.is_current().await
    }
    async fn list_stored_points(
        &self,
        scope: &TenantScope,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Option<StoredPointPage>> {
        self.index.list_stored_points(scope, after, limit).await
    }
}

/// Removes the points as another node does when it handles the outbox first.
async fn remove_as_other_node(index: &dyn FactIndex, facts: &dyn FactStore, scope: &TenantScope) {
    let rows = facts.load_outbox(99).await.unwrap();
    assert!(!rows.is_empty());
    let named: Vec<FactId> = rows.iter().map(|row| row.fact).collect();
    let stand = facts.load_points(scope, &named).await.unwrap();
    assert!(stand.iter().all(|point| !named.contains(&point.fact)));
    index.remove_points(scope, &named).await.unwrap();
    let rows: Vec<i64> = rows.iter().map(|row| row.seq).collect();
    facts.mark_outbox_done(&rows).await.unwrap();
}

/// Unsays the second turn while its facts are half-way into the index.
fn assert_unsaid_during_indexing(stage: impl Future<Output = Stage>, other_node: bool) {
    run(async {
        let mut stage = stage.await;
        let halting = Arc::new(PausingIndex {
            index: stage.services.index.clone(),
            halts: AtomicBool::new(false),
            halted: Notify::new(),
            goes_on: Notify::new(),
        });
        stage.services.index = halting.clone();
        let (services, scope) = (&stage.services, &stage.scope);
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;

        halting.halts.store(true, Ordering::SeqCst);
        let facts = json!([liking_fact("figs", &["fruit"]), liking_fact("plums", &["fruit"])]);
        stage
            .llm
            .queue_text(Task::Extraction, json!({ "facts": facts }).to_string());
        let committed = talk.say_line("I like figs and plums").await;
        let indexing = async {
            for job in &committed.jobs {
                stage.run_job(job).await.unwrap();
            }
        };
        let unsaying = async {
            halting.halted.notified().await;
            assert_eq!(halting.count_points(scope).await.unwrap(), 2, "half of them");
            talk.rewind(1, None).await;
            assert_not_found(&stage).await;
            if other_node {
                remove_as_other_node(&*halting.index, &*services.ledger.facts, scope).await;
            }
            halting.goes_on.notify_one();
        };
        tokio::join!(indexing, unsaying);
        assert_not_found(&stage).await;
        while jobs::relay_outbox(services).await.unwrap() > 0 {}
        assert!(services.ledger.facts.load_outbox(9).await.unwrap().is_empty());
        let counted = (
            services.index.count_points(scope).await.unwrap(),
            jobs::expected_points(services, scope).await.unwrap(),
        );
        assert_eq!(counted, (1, 1), "what was unsaid has no point");
        if services.index.is_shared() {
            let drift = jobs::find_drift(services, scope).await.unwrap().unwrap();
            assert_eq!(drift.point_count(), 0, "{drift:?}");
        }
        assert_not_found(&stage).await;
    });
}

/// Asserts that only the first of the two turns is remembered.
async fn assert_not_found(stage: &Stage) {
    let mut talk = stage.session("p1").await;
    talk.say_line(ASKS).await;
    let prompt = stage.llm.last_context();
    assert!(prompt.contains("The player likes grapes."), "{prompt}");
    assert!(!prompt.contains("figs") && !prompt.contains("plums"), "{prompt}");
    let seen = talk.trace(1).await.candidates;
    let unsaid = |content: &str| content.contains("figs") || content.contains("plums");
    assert!(!seen.iter().any(|candidate| unsaid(&candidate.content)), "{seen:?}");
    assert_eq!(stage.valid_contents().await, ["The player likes grapes."]);
}

#[test]
fn facts_unsaid_while_being_indexed_leave_no_index_entry() {
    assert_unsaid_during_indexing(Stage::prepare(), false);
}

#[test]
fn facts_unsaid_while_being_indexed_leave_no_qdrant_entry() {
    let double = QdrantDouble::start();
    assert_unsaid_during_indexing(async { Stage::prepare_on_qdrant(&double.url()).await }, false);
}

#[test]
fn facts_removed_by_another_node_before_indexing_leave_no_qdrant_entry() {
    let double = QdrantDouble::start();
    assert_unsaid_during_indexing(async { Stage::prepare_on_qdrant(&double.url()).await }, true);
}
