//! What is searched for where the intent comes first (`recall.speculative = false`), and where it does not.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use colloquy::{
    ids::FactId,
    memory::{
        authored::WorldSettings,
        fact::Viewpoint,
        keywords::{TermStatistics, TermWeights},
    },
    ports::{
        StoreResult,
        llm::Task,
        vectors::{Candidate, Comparison, FactIndex, IndexPoint, Proposal},
    },
    tenancy::TenantScope,
};
use serde_json::json;

use super::{Stage, likes};
use crate::support::run;

/// An index that counts the searches.
struct Counting {
    index: Arc<dyn FactIndex>,
    searches: AtomicUsize,
}

#[async_trait]
impl FactIndex for Counting {
    async fn propose(&self, scope: &TenantScope, proposal: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        self.searches.fetch_add(1, Ordering::SeqCst);
        self.index.propose(scope, proposal).await
    }
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        self.index.term_statistics(scope, viewpoint, terms).await
    }
    async fn similar(&self, scope: &TenantScope, with: Comparison<'_>) -> StoreResult<Vec<Candidate>> {
        self.index.similar(scope, with).await
    }
    async fn upsert(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.index.upsert(scope, points).await
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
}

const ASKS: &str = "What fruit do I like, grapes?";

#[test]
fn an_intent_that_needs_no_search_makes_none_where_it_comes_first() {
    run(async {
        for speculative in [false, true] {
            let mut stage = Stage::set_with(
                |settings| settings.recall.speculative = speculative,
                WorldSettings::default(),
            )
            .await;
            let index = Arc::new(Counting {
                index: stage.services.index.clone(),
                searches: AtomicUsize::new(0),
            });
            stage.services.index = index.clone();
            // So that its past may be what the line is after.
            stage.npc.has_scenarios = true;
            let mut talk = stage.session("p1").await;
            talk.teach("I like grapes.", &json!([likes("grapes", &["grapes", "fruit"])]))
                .await;
            for (intent, embeddings, searches) in [
                ("chat", 0, 0),
                ("scenario", 1, 0),
                ("memory", 1, 1),
                ("world", 1, 1),
                ("overheard", 1, 1),
                // Nobody knows what it needs.
                ("I cannot tell.", 1, 1),
            ] {
                let case = format!("{intent}, speculative: {speculative}");
                let before = index.searches.load(Ordering::SeqCst);
                let (queries, asked) = (stage.embedder.queries(), stage.llm.asked(Task::Intent).len());
                stage.llm.tell_text(Task::Intent, intent);
                talk.say(ASKS).await;
                assert_eq!(stage.llm.asked(Task::Intent).len(), asked + 1, "{case}");
                let made = (
                    stage.embedder.queries() - queries,
                    index.searches.load(Ordering::SeqCst) - before,
                );
                let needed = if speculative { (1, 1) } else { (embeddings, searches) };
                assert_eq!(made, needed, "{case}");
                if searches > 0 {
                    assert!(stage.llm.last_context().contains("likes grapes"), "{case}");
                }
            }
        }
    });
}
