//! Facts that are on their way into the index while the turn that taught them is unsaid.

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
        vectors::{Candidate, Comparison, FactIndex, IndexPoint, IndexState, Prepared, Proposal, StoredPoints},
    },
    tenancy::TenantScope,
};
use serde_json::json;
use tokio::sync::Notify;

use super::{Stage, likes};
use crate::support::{QdrantDouble, run};

const ASKS: &str = "What fruit do I like?";

/// An index that stops once, half-way through several points.
struct Halting {
    index: Arc<dyn FactIndex>,
    halts: AtomicBool,
    /// Half of them are in it.
    halted: Notify,
    /// The other half may follow.
    goes_on: Notify,
}

#[async_trait]
impl FactIndex for Halting {
    async fn upsert(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        if points.len() < 2 || !self.halts.swap(false, Ordering::SeqCst) {
            return self.index.upsert(scope, points).await;
        }
        let (first, second) = points.split_at(points.len() / 2);
        self.index.upsert(scope, first).await?;
        self.halted.notify_one();
        self.goes_on.notified().await;
        self.index.upsert(scope, second).await
    }

    async fn propose(&self, scope: &TenantScope, proposal: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        self.index.propose(scope, proposal).await
    }
    async fn similar(&self, scope: &TenantScope, with: Comparison<'_>) -> StoreResult<Vec<Candidate>> {
        self.index.similar(scope, with).await
    }
    async fn remove(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.index.remove(scope, facts).await
    }
    async fn count(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.index.count(scope).await
    }
    async fn clear(&self, scope: &TenantScope) -> StoreResult<()> {
        self.index.clear(scope).await
    }
    fn is_shared(&self) -> bool {
        self.index.is_shared()
    }
    fn state(&self) -> IndexState {
        self.index.state()
    }
    async fn prepare(&self, may_make: bool) -> StoreResult<Prepared> {
        self.index.prepare(may_make).await
    }
    async fn is_current(&self) -> StoreResult<bool> {
        self.index.is_current().await
    }
    async fn stored(&self, scope: &TenantScope, after: Option<&str>, limit: u32) -> StoreResult<Option<StoredPoints>> {
        self.index.stored(scope, after, limit).await
    }
}

/// What another node does that finds the rows of the outbox first.
async fn moved_by_another_node(index: &dyn FactIndex, facts: &dyn FactStore, scope: &TenantScope) {
    let rows = facts.outbox(99).await.unwrap();
    assert!(!rows.is_empty());
    let named: Vec<FactId> = rows.iter().map(|row| row.fact).collect();
    let stand = facts.points(scope, &named).await.unwrap();
    assert!(stand.iter().all(|point| !named.contains(&point.fact)));
    index.remove(scope, &named).await.unwrap();
    let rows: Vec<i64> = rows.iter().map(|row| row.seq).collect();
    facts.outbox_done(&rows).await.unwrap();
}

/// A second turn's facts are half-way in the index when it is unsaid.
fn is_unsaid_while_its_facts_are_indexed(stage: impl Future<Output = Stage>, other_node: bool) {
    run(async {
        let mut stage = stage.await;
        let halting = Arc::new(Halting {
            index: stage.services.index.clone(),
            halts: AtomicBool::new(false),
            halted: Notify::new(),
            goes_on: Notify::new(),
        });
        stage.services.index = halting.clone();
        let (services, scope) = (&stage.services, &stage.scope);
        let mut talk = stage.session("p1").await;
        talk.teach("I like grapes", &json!([likes("grapes", &["fruit"])])).await;

        halting.halts.store(true, Ordering::SeqCst);
        let facts = json!([likes("figs", &["fruit"]), likes("plums", &["fruit"])]);
        stage
            .llm
            .tell_text(Task::Extraction, json!({ "facts": facts }).to_string());
        let committed = talk.say("I like figs and plums").await;
        let indexing = async {
            for job in &committed.jobs {
                stage.run(job).await.unwrap();
            }
        };
        let unsaying = async {
            halting.halted.notified().await;
            assert_eq!(halting.count(scope).await.unwrap(), 2, "half of them");
            talk.rewind(1, None).await;
            nothing_is_found_of_it(&stage).await;
            if other_node {
                moved_by_another_node(&*halting.index, &*services.ledger.facts, scope).await;
            }
            halting.goes_on.notify_one();
        };
        tokio::join!(indexing, unsaying);
        nothing_is_found_of_it(&stage).await;
        while jobs::relay_outbox(services).await.unwrap() > 0 {}
        assert!(services.ledger.facts.outbox(9).await.unwrap().is_empty());
        let counted = (
            services.index.count(scope).await.unwrap(),
            jobs::expected_points(services, scope).await.unwrap(),
        );
        assert_eq!(counted, (1, 1), "what was unsaid has no point");
        if services.index.is_shared() {
            let drift = jobs::drift(services, scope).await.unwrap().unwrap();
            assert_eq!(drift.count(), 0, "{drift:?}");
        }
        nothing_is_found_of_it(&stage).await;
    });
}

/// Of the two turns, the first alone is remembered.
async fn nothing_is_found_of_it(stage: &Stage) {
    let mut talk = stage.session("p1").await;
    talk.say(ASKS).await;
    let prompt = stage.llm.last_context();
    assert!(prompt.contains("The player likes grapes."), "{prompt}");
    assert!(!prompt.contains("figs") && !prompt.contains("plums"), "{prompt}");
    let seen = talk.trace(1).await.candidates;
    let unsaid = |content: &str| content.contains("figs") || content.contains("plums");
    assert!(!seen.iter().any(|candidate| unsaid(&candidate.content)), "{seen:?}");
    assert_eq!(stage.valid().await, ["The player likes grapes."]);
}

#[test]
fn nothing_is_left_in_the_index_of_facts_that_were_on_their_way_into_it() {
    is_unsaid_while_its_facts_are_indexed(Stage::set(), false);
}

#[test]
fn nothing_is_left_in_qdrant_of_facts_that_were_on_their_way_into_it() {
    let double = QdrantDouble::start();
    is_unsaid_while_its_facts_are_indexed(async { Stage::set_on_qdrant(&double.url()).await }, false);
}

#[test]
fn nothing_is_left_in_qdrant_where_another_node_had_taken_them_out_before_they_were_in() {
    let double = QdrantDouble::start();
    is_unsaid_while_its_facts_are_indexed(async { Stage::set_on_qdrant(&double.url()).await }, true);
}
