//! The searches of a turn with the intent first (`recall.speculative = false`), and with speculative recall.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use colloquy::{
    ids::FactId,
    memory::{
        authored::WorldSettings,
        disclosure::audience::Viewpoint,
        keywords::{TermStatistics, TermWeights},
    },
    ports::{
        StoreResult,
        llm::Task,
        vectors::{Candidate, CandidateQuery, FactIndex, IndexPoint, SimilarFactsQuery},
    },
    tenancy::TenantScope,
};
use serde_json::json;

use super::{Stage, liking_fact};
use crate::support::run;

/// An index that counts searches.
struct CountingIndex {
    index: Arc<dyn FactIndex>,
    searches: AtomicUsize,
}

#[async_trait]
impl FactIndex for CountingIndex {
    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>> {
        self.searches.fetch_add(1, Ordering::SeqCst);
        self.index.propose_candidates(scope, proposal).await
    }
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        self.index.term_statistics(scope, viewpoint, terms).await
    }
    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        self.index.find_similar(scope, with).await
    }
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.index.upsert_points(scope, points).await
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
}

const ASKS: &str = "What fruit do I like, grapes?";

#[test]
fn intent_without_recall_runs_no_search_unless_speculative() {
    run(async {
        for speculative in [false, true] {
            let mut stage = Stage::prepare_with(
                |settings| settings.recall.speculative = speculative,
                WorldSettings::default(),
            )
            .await;
            let index = Arc::new(CountingIndex {
                index: stage.services.index.clone(),
                searches: AtomicUsize::new(0),
            });
            stage.services.index = index.clone();
            // The NPC has a past, so that the intent may be `scenario`.
            stage.npc.has_scenarios = true;
            let mut talk = stage.session("p1").await;
            talk.say_and_learn("I like grapes.", &json!([liking_fact("grapes", &["grapes", "fruit"])]))
                .await;
            for (intent, embeddings, searches) in [
                ("chat", 0, 0),
                ("scenario", 1, 0),
                ("memory", 1, 1),
                ("world", 1, 1),
                ("overheard", 1, 1),
                // An unreadable intent.
                ("I cannot tell.", 1, 1),
            ] {
                let case = format!("{intent}, speculative: {speculative}");
                let before = index.searches.load(Ordering::SeqCst);
                let (queries, asked) = (stage.embedder.query_count(), stage.llm.prompts_of(Task::Intent).len());
                stage.llm.queue_text(Task::Intent, intent);
                talk.say_line(ASKS).await;
                assert_eq!(stage.llm.prompts_of(Task::Intent).len(), asked + 1, "{case}");
                let made = (
                    stage.embedder.query_count() - queries,
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
