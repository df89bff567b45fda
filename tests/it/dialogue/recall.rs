//! Recall is the same whatever the index knows beside a fact's place, and however much of it is read.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use colloquy::{
    dialogue::{jobs, prompt, recall},
    ids::FactId,
    memory::{
        fact::{Audience, Cause, FactKind, Importance, Knower, NewFact, Polarity, Statement, Tense},
        trace::{CandidateTrace, ScoreParts},
    },
    ports::{
        StoreResult,
        clock::Clock as _,
        embedder::{EmbedAs, Embedder as _},
        ledger::facts::FactPatch,
        vectors::{Candidate, Comparison, FactIndex, Hint, IndexPoint, Proposal},
    },
    tenancy::TenantScope,
};

use super::Stage;
use crate::support::run;

/// An index whose hints are changed on the way.
struct Hinting(Arc<dyn FactIndex>, fn(Hint) -> Option<Hint>);

#[async_trait]
impl FactIndex for Hinting {
    async fn propose(&self, scope: &TenantScope, proposal: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        let mut candidates = self.0.propose(scope, proposal).await?;
        for candidate in &mut candidates {
            assert!(candidate.hint.is_some(), "the index knows what it holds");
            candidate.hint = candidate.hint.and_then(self.1);
        }
        Ok(candidates)
    }
    async fn similar(&self, scope: &TenantScope, with: Comparison<'_>) -> StoreResult<Vec<Candidate>> {
        self.0.similar(scope, with).await
    }
    async fn upsert(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.0.upsert(scope, points).await
    }
    async fn remove(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.0.remove(scope, facts).await
    }
    async fn count(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.0.count(scope).await
    }
    async fn clear(&self, scope: &TenantScope) -> StoreResult<()> {
        self.0.clear(scope).await
    }
}

const PLACES: [&str; 5] = ["mill", "ferry", "tower", "market", "bridge"];

/// Facts that are near each other, twice the same, pinned, of kinds that stand in the prompt anyway.
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
            importance: Importance::clamped(f64::from(1 + n % 10)),
            polarity: Polarity::Positive,
            tense: Tense::Past,
            pinned: n % 40 == 0,
        };
        let text = statement.embedded_text();
        let embedding = stage.embedder.embed(EmbedAs::Passage, &[text]).await.unwrap().remove(0);
        let fact = NewFact {
            id: stage.services.ids.next(),
            world: stage.world.id.clone(),
            audience: Audience {
                knowers: BTreeSet::from([Knower::Npc(stage.npc.id.clone())]),
                private_to: None,
            },
            statement,
            valid_at: stage.clock.now() - chrono::Duration::days((n * 37 % 400).into()),
            locks: colloquy::memory::locks::Locks::default(),
            expires_at: None,
            cause: Cause::Edit(stage.services.ids.next()),
            source: None,
            derived_from: vec![],
            pii: vec![],
            authored: true,
            embedding,
        };
        let facts = &stage.services.ledger.facts;
        facts
            .create(&stage.scope, &fact, false, &stage.edit("fact.create"))
            .await
            .unwrap();
        ids.push(fact.id);
    }
    ids
}

/// What a line's prompt and trace have, and what a designer's search finds.
type Seen = (String, Vec<CandidateTrace>, Vec<(FactId, ScoreParts)>);

async fn seen(stage: &Stage, line: &str) -> Seen {
    let mut talk = stage.session("p1").await;
    let preview = prompt::preview(&stage.services, &talk.input(line).await).await.unwrap();
    talk.say(line).await;
    let viewpoint = stage.viewpoint();
    let now = stage.clock.now();
    let found = recall::search(&stage.services, &stage.scope, &stage.world, &viewpoint, line, now, 20);
    let (hits, _) = found.await.unwrap();
    let candidates = talk.trace(1).await.candidates;
    // Or the player would be known the next time.
    talk.rewind(0, None).await;
    (
        preview.prompt_hash,
        candidates,
        hits.into_iter().map(|hit| (hit.fact.id, hit.score)).collect(),
    )
}

#[test]
fn what_the_index_knows_changes_no_score_and_no_prompt() {
    run(async {
        let mut stage = Stage::set().await;
        learn_many(&stage, 150).await;
        let index = stage.services.index.clone();
        let hints: [fn(Hint) -> Option<Hint>; 3] = [
            Some,
            |_| None,
            // Of a version that nobody confirms, and wrong.
            |hint| {
                Some(Hint {
                    version: hint.version + 1,
                    importance: Importance::clamped(10.0),
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
                stage.services.index = Arc::new(Hinting(index.clone(), hint));
                stage.services.bodies = Arc::new(recall::BodyCache::new(1_000));
                all.push(seen(&stage, line).await);
            }
            assert!(all[0].1.len() >= 32 && all[0].2.len() == 20, "{line}");
            assert_eq!(all[0], all[1], "{line}");
            assert_eq!(all[0], all[2], "{line}");
        }
    });
}

#[test]
fn a_correction_counts_before_the_index_has_it() {
    run(async {
        let stage = Stage::set().await;
        let ids = learn_many(&stage, 3).await;
        let line = "What do you know of the harbour?";
        let keyword_of = |seen: &Seen, id: FactId| {
            let found = seen.2.iter().find(|(fact, _)| *fact == id);
            found.map(|(_, score)| (score.keyword, score.importance)).unwrap()
        };
        assert_eq!(keyword_of(&seen(&stage, line).await, ids[1]), (0.0, 0.2));
        let patch = FactPatch {
            content: Some("The player saw companion0 at the harbour.".to_owned()),
            importance: Some(Importance::clamped(9.0)),
            embedding: Some(
                stage
                    .embedder
                    .embed(EmbedAs::Passage, &["harbour".to_owned()])
                    .await
                    .unwrap()
                    .remove(0),
            ),
            ..FactPatch::default()
        };
        let edit = stage.edit("fact.correct");
        let facts = &stage.services.ledger.facts;
        facts.edit(&stage.scope, ids[1], &patch, None, &edit).await.unwrap();
        let lagging = keyword_of(&seen(&stage, line).await, ids[1]);
        assert!(lagging.0 > 0.4 && (lagging.1 - 0.9).abs() < 1e-9, "{lagging:?}");
        jobs::relay_outbox(&stage.services).await.unwrap();
        // Now that the index has it, its words are counted too: there is a fact about a harbour.
        let counted = keyword_of(&seen(&stage, line).await, ids[1]);
        assert!((0.3..lagging.0).contains(&counted.0), "{counted:?}");
        assert!((counted.1 - lagging.1).abs() < 1e-9);
    });
}
