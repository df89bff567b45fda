//! Recall gives the same results for any hints of the index, and for any part of the index that is read.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use colloquy::{
    dialogue::{jobs, preview, recall},
    ids::FactId,
    memory::{
        disclosure::audience::{Audience, Knower},
        fact::{Cause, FactKind, Importance, NewFact, Polarity, Statement, Tense},
        trace::{CandidateTrace, ScoreParts},
    },
    ports::{
        StoreResult,
        clock::Clock as _,
        embedder::{EmbedAs, Embedder as _},
        ledger::facts::FactPatch,
        vectors::{Candidate, CandidateQuery, FactIndex, IndexPoint, ScoreHint, SimilarFactsQuery},
    },
    tenancy::TenantScope,
};

use super::Stage;
use crate::support::run;

/// An index with altered hints.
struct HintingIndex(Arc<dyn FactIndex>, fn(ScoreHint) -> Option<ScoreHint>);

#[async_trait]
impl FactIndex for HintingIndex {
    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>> {
        let mut candidates = self.0.propose_candidates(scope, proposal).await?;
        for candidate in &mut candidates {
            assert!(candidate.hint.is_some(), "the index knows what it holds");
            candidate.hint = candidate.hint.and_then(self.1);
        }
        Ok(candidates)
    }
    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        self.0.find_similar(scope, with).await
    }
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.0.upsert_points(scope, points).await
    }
    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.0.remove_points(scope, facts).await
    }
    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.0.count_points(scope).await
    }
    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.0.clear_tenant(scope).await
    }
}

const PLACES: [&str; 5] = ["mill", "ferry", "tower", "market", "bridge"];

/// Learns facts that are similar, duplicated, pinned, or of kinds always in the prompt.
async fn learn_many(stage: &Stage, count: u32) -> Vec<FactId> {
    let mut ids = Vec::new();
    for n in 0..count {
        let place = PLACES[n as usize % PLACES.len()];
        let statement = Statement {
            subject: "player".to_owned(),
            predicate: "saw".to_owned(),
            object: format!("companion{}", n / 7),
            content: format!("The player saw companion{} at the {place}.", n / 7),
            keywords: vec![place.to_owned()],
            speaker: "player".to_owned(),
            kind: if n % 11 == 0 {
                FactKind::Event
            } else {
                FactKind::Timeline
            },
            importance: Importance::from_clamped(f64::from(1 + n % 10)),
            polarity: Polarity::Positive,
            tense: Tense::Past,
            pinned: n % 40 == 0,
        };
        let text = statement.embedded_text();
        let embedding = stage
            .embedder
            .embed_texts(EmbedAs::Passage, &[text])
            .await
            .unwrap()
            .remove(0);
        let fact = NewFact {
            id: stage.services.ids.next_id(),
            world: stage.world.id.clone(),
            audience: Audience {
                knowers: BTreeSet::from([Knower::Npc(stage.npc.id.clone())]),
                private_to: None,
            },
            statement,
            valid_at: stage.clock.now() - chrono::Duration::days((n * 37 % 400).into()),
            locks: colloquy::memory::disclosure::locks::DisclosureLocks::default(),
            expires_at: None,
            cause: Cause::Edit(stage.services.ids.next_id()),
            source: None,
            derived_from: vec![],
            pii: vec![],
            authored: true,
            embedding,
        };
        let facts = &stage.services.ledger.facts;
        facts
            .create_fact(&stage.scope, &fact, false, &stage.edit("fact.create"))
            .await
            .unwrap();
        ids.push(fact.id);
    }
    ids
}

/// The prompt hash and trace of a line, and the result of a designer's search.
type RecallOutcome = (String, Vec<CandidateTrace>, Vec<(FactId, ScoreParts)>);

async fn recall_outcome(stage: &Stage, line: &str) -> RecallOutcome {
    let mut talk = stage.session("p1").await;
    let preview = preview::preview_prompt(
        &stage.services,
        &talk.turn_input(line).await,
        preview::IntentSource::Assumed,
    )
    .await
    .unwrap();
    talk.say_line(line).await;
    let viewpoint = stage.viewpoint();
    let now = stage.clock.now();
    let found = recall::search_facts(&stage.services, &stage.scope, &stage.world, &viewpoint, line, now, 20);
    let (hits, _) = found.await.unwrap();
    let candidates = talk.trace(1).await.candidates;
    // The rewind prevents the player from being known the next time.
    talk.rewind(0, None).await;
    (
        preview.prompt_hash,
        candidates,
        hits.into_iter().map(|hit| (hit.fact().id, hit.score)).collect(),
    )
}

#[test]
fn index_hints_change_no_score_and_no_prompt() {
    run(async {
        let mut stage = Stage::prepare().await;
        learn_many(&stage, 150).await;
        let index = stage.services.index.clone();
        let hints: [fn(ScoreHint) -> Option<ScoreHint>; 3] = [
            Some,
            |_| None,
            // Wrong hints of a version that no ledger row confirms.
            |hint| {
                Some(ScoreHint {
                    version: hint.version + 1,
                    importance: Importance::from_clamped(10.0),
                    keyword: 1.0,
                    ..hint
                })
            },
        ];
        for line in [
            "Who did I see at the mill?",
            "Tell me of companion3 and the ferry",
            "Hello there, good day",
        ] {
            let mut all = Vec::new();
            for hint in hints {
                stage.services.index = Arc::new(HintingIndex(index.clone(), hint));
                stage.services.memory_cache = Arc::new(recall::MemoryCache::new(1_000));
                all.push(recall_outcome(&stage, line).await);
            }
            assert!(all[0].1.len() >= 32 && all[0].2.len() == 20, "{line}");
            assert_eq!(all[0], all[1], "{line}");
            assert_eq!(all[0], all[2], "{line}");
        }
    });
}

#[test]
fn correction_counts_before_it_is_indexed() {
    run(async {
        let stage = Stage::prepare().await;
        let ids = learn_many(&stage, 3).await;
        let line = "What do you know of the harbour?";
        let keyword_of = |seen: &RecallOutcome, id: FactId| {
            let found = seen.2.iter().find(|(fact, _)| *fact == id);
            found.map(|(_, score)| (score.keyword, score.importance)).unwrap()
        };
        assert_eq!(keyword_of(&recall_outcome(&stage, line).await, ids[1]), (0.0, 0.2));
        let patch = FactPatch {
            content: Some("The player saw companion0 at the harbour.".to_owned()),
            importance: Some(Importance::from_clamped(9.0)),
            embedding: Some(
                stage
                    .embedder
                    .embed_texts(EmbedAs::Passage, &["harbour".to_owned()])
                    .await
                    .unwrap()
                    .remove(0),
            ),
            ..FactPatch::default()
        };
        let edit = stage.edit("fact.correct");
        let facts = &stage.services.ledger.facts;
        facts
            .edit_fact(&stage.scope, ids[1], &patch, None, &edit)
            .await
            .unwrap();
        let lagging = keyword_of(&recall_outcome(&stage, line).await, ids[1]);
        assert!(lagging.0 > 0.4 && (lagging.1 - 0.9).abs() < 1e-9, "{lagging:?}");
        jobs::relay_outbox(&stage.services).await.unwrap();
        // The index now counts the words as well: one fact has "harbour".
        let counted = keyword_of(&recall_outcome(&stage, line).await, ids[1]);
        assert!((0.3..lagging.0).contains(&counted.0), "{counted:?}");
        assert!((counted.1 - lagging.1).abs() < 1e-9);
    });
}
