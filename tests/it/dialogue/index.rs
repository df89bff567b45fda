//! A remote index: unreachable, lost, overtaken by another node, or of another embedder.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use colloquy::{
    adapters::in_process::shared_index::{LocalFactIndex, SharedFactIndex},
    dialogue::{jobs, remember, remember::ManualFact},
    ids::FactId,
    memory::{
        disclosure::audience::{Audience, Knower},
        fact::{FactKind, Importance},
    },
    ports::{
        StoreError, StoreResult,
        clock::Clock as _,
        ledger::{Ledger, audit::Edit, facts::FactPatch, tenants::Tenant},
        peers::{LocalIndex as _, Notice, Peers},
        vectors::{Candidate, CandidateQuery, FactIndex, IndexPoint, IndexState, PrepareOutcome, SimilarFactsQuery},
    },
    tenancy::TenantScope,
};
use parking_lot::Mutex;
use serde_json::json;

use super::{Stage, TestDialogue, liking_fact, rejecting_index::RejectingIndex};
use crate::support::{QdrantDouble, run};

const GRAPES: &str = "The player likes grapes.";
const ASKS: &str = "What fruit do I like?";

/// Returns whether the last prompt has the fact, and whether the search ran without the index.
async fn is_found(talk: &TestDialogue<'_>, content: &str) -> (bool, bool) {
    let trace = talk.trace(talk.open.dialogue.head_turn).await;
    let without_index = trace.notes.iter().any(|note| note.contains("recall in the ledger"));
    (talk.stage.llm.last_context().contains(content), without_index)
}

#[test]
fn learned_fact_is_found_in_qdrant() {
    run(async {
        let double = QdrantDouble::start();
        let stage = Stage::prepare_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        assert_eq!(double.points("colloquy"), 1);
        talk.say_line(ASKS).await;
        assert_eq!(is_found(&talk, GRAPES).await, (true, false));
        // The index stores no words.
        let texts = double.texts();
        assert!(
            texts
                .iter()
                .all(|text| !text.contains("grape") && !text.contains("likes")),
            "{texts:?}"
        );

        talk.rewind(0, None).await;
        jobs::relay_outbox(&stage.services).await.unwrap();
        assert_eq!(double.points("colloquy"), 0);
    });
}

#[test]
fn facts_are_found_by_words_while_the_index_is_down() {
    run(async {
        let mut double = QdrantDouble::start();
        let stage = Stage::prepare_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        double.stop_serving();
        talk.say_line(ASKS).await;
        assert_eq!(is_found(&talk, GRAPES).await, (true, true));
        // A private fact of one player stays private.
        let mut stranger = stage.session("p2").await;
        stranger.say_line(ASKS).await;
        assert_eq!(is_found(&stranger, "grapes").await, (false, true));
        // Unsaid facts are not found meanwhile. Once the index is back, they are removed there.
        talk.rewind(0, None).await;
        let mut talk = stage.session("p1").await;
        talk.say_line(ASKS).await;
        assert_eq!(is_found(&talk, "grapes").await, (false, true));
        assert_eq!(jobs::relay_outbox(&stage.services).await.unwrap(), 0);
        assert!(!stage.services.ledger.facts.load_outbox(9).await.unwrap().is_empty());
        assert_eq!(stage.services.index.index_state(), IndexState::Away);

        double.serve_again();
        crate::support::eventually("the outbox is moved", async || {
            (jobs::relay_outbox(&stage.services).await.unwrap() > 0).then_some(())
        })
        .await;
        assert_eq!(double.points("colloquy"), 0);
        talk.say_line(ASKS).await;
        assert_eq!(is_found(&talk, "grapes").await, (false, false));
        assert!(stage.services.ledger.facts.load_outbox(9).await.unwrap().is_empty());
    });
}

#[test]
fn failed_index_searches_are_done_in_the_ledger() {
    run(async {
        let double = QdrantDouble::start();
        let stage = Stage::prepare_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        double.break_searches(true);
        talk.say_line(ASKS).await;
        assert_eq!(is_found(&talk, GRAPES).await, (true, true));
    });
}

#[test]
fn lost_index_is_filled_again() {
    run(async {
        let double = QdrantDouble::start();
        let stage = Stage::prepare_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        double.lose_all_data();
        stage.break_embedder(true);
        talk.say_line(ASKS).await;
        assert_eq!(is_found(&talk, GRAPES).await, (true, true));
        jobs::activate_index(&stage.services).await.unwrap();
        stage.break_embedder(false);
        assert_eq!(double.points("colloquy"), 1);
        talk.say_line(ASKS).await;
        assert_eq!(is_found(&talk, GRAPES).await, (true, false));
    });
}

#[test]
fn index_drift_is_detected_and_repaired() {
    run(async {
        let double = QdrantDouble::start();
        let stage = Stage::prepare_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        let facts = json!([liking_fact("grapes", &["fruit"]), liking_fact("rain", &[])]);
        talk.say_and_learn("I like grapes and rain", &facts).await;
        let counted = async || {
            let drift = jobs::find_drift(&stage.services, &stage.scope).await.unwrap().unwrap();
            (drift.missing.len(), drift.stale.len(), drift.surplus.len())
        };
        assert_eq!(counted().await, (0, 0, 0));
        double.lose_a_point("colloquy");
        assert_eq!(counted().await, (1, 0, 0));
        double.corrupt_points("colloquy");
        assert_eq!(counted().await, (1, 1, 0));
        let surplus = IndexPoint {
            fact: FactId::from_u128(7),
            ..stage
                .services
                .ledger
                .facts
                .list_all_points(&stage.scope, None, 1)
                .await
                .unwrap()
                .remove(0)
        };
        stage
            .services
            .index
            .upsert_points(&stage.scope, &[surplus])
            .await
            .unwrap();
        assert_eq!(counted().await, (1, 1, 1));
        // Rows still in the outbox are no drift.
        talk.rewind(0, None).await;
        assert_eq!(counted().await, (0, 0, 1));

        let repaired = jobs::reindex_tenant(&stage.services, &stage.scope)
            .await
            .unwrap()
            .unwrap();
        assert!(repaired.surplus.contains(&FactId::from_u128(7)), "{repaired:?}");
        assert_eq!((counted().await, double.points("colloquy")), ((0, 0, 0), 0));
    });
}

#[test]
fn embedder_change_leaves_keyword_search_working() {
    run(async {
        let double = QdrantDouble::start();
        let mut stage = Stage::prepare_on_qdrant(&double.url()).await;
        {
            let mut talk = stage.session("p1").await;
            talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
                .await;
        }
        let before = stage.services.index.clone();
        stage.change_embedder("other").await;
        stage.services.index = stage.index_in_qdrant(&double.url(), "other");
        let mut talk = stage.session("p1").await;
        talk.say_line(ASKS).await;
        assert_eq!(is_found(&talk, GRAPES).await, (true, true), "it is not filled yet");
        // New facts wait meanwhile.
        let edit = stage.edit("fact.create");
        remember::write_manual_fact(&stage.services, &stage.scope, hand_written_note(&stage), &edit)
            .await
            .unwrap();
        jobs::relay_outbox(&stage.services).await.unwrap();
        assert_eq!(stage.services.ledger.facts.load_outbox(9).await.unwrap().len(), 1);

        jobs::activate_index(&stage.services).await.unwrap();
        assert_eq!(double.collections().len(), 1);
        assert_eq!(double.points("colloquy"), 2);
        assert!(!before.is_current().await.unwrap());
        assert_eq!(jobs::relay_outbox(&stage.services).await.unwrap(), 1);
        talk.say_line(ASKS).await;
        assert_eq!(is_found(&talk, GRAPES).await, (true, false));
    });
}

fn hand_written_note(stage: &Stage) -> ManualFact {
    ManualFact {
        world: stage.world.id.clone(),
        audience: Audience {
            knowers: [Knower::World].into(),
            private_to: None,
        },
        subject: "Mira".to_owned(),
        predicate: "own".to_owned(),
        object: "a boat".to_owned(),
        content: "Mira owns a boat.".to_owned(),
        keywords: vec![],
        kind: FactKind::Profile,
        importance: Importance::DEFAULT,
        pinned: false,
        valid_at: Some(stage.clock.now()),
    }
}

/// An index with a second writer. Between this node's read and write, another node writes the ledger's newer state.
struct OvertakenIndex {
    index: Arc<dyn FactIndex>,
    ledger: Ledger,
    edit: Edit,
    done: AtomicBool,
}

#[async_trait]
impl FactIndex for OvertakenIndex {
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
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        if !self.done.swap(true, Ordering::SeqCst) {
            let facts = &self.ledger.facts;
            let patch = FactPatch {
                importance: Importance::new(9),
                ..FactPatch::default()
            };
            facts.edit_fact(scope, points[0].fact, &patch, None, &self.edit).await?;
            // The other node has already written the edit and removed its outbox row.
            let rows: Vec<i64> = facts.load_outbox(99).await?.iter().map(|row| row.seq).collect();
            let newer = facts.load_points(scope, &[points[0].fact]).await?;
            self.index.upsert_points(scope, &newer).await?;
            facts.mark_outbox_done(&rows).await?;
        }
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
    fn is_shared(&self) -> bool {
        true
    }
}

#[test]
fn newer_write_of_another_node_is_not_overwritten_for_good() {
    run(async {
        let double = QdrantDouble::start();
        let mut stage = Stage::prepare_on_qdrant(&double.url()).await;
        let index = stage.services.index.clone();
        stage.services.index = Arc::new(OvertakenIndex {
            index: index.clone(),
            ledger: stage.services.ledger.clone(),
            edit: stage.edit("fact.correct"),
            done: AtomicBool::new(false),
        });
        let edit = stage.edit("fact.create");
        remember::write_manual_fact(&stage.services, &stage.scope, hand_written_note(&stage), &edit)
            .await
            .unwrap();
        jobs::relay_outbox(&stage.services).await.unwrap();
        stage.services.index = index;
        let drift = jobs::find_drift(&stage.services, &stage.scope).await.unwrap().unwrap();
        assert_eq!(drift.point_count(), 0, "{drift:?}");
        assert_eq!(
            stage.services.index.prepare_index(true).await.unwrap(),
            PrepareOutcome::Ready
        );
    });
}

#[test]
fn tenant_with_unmovable_facts_blocks_no_other_tenant() {
    run(async {
        let double = QdrantDouble::start();
        let mut stage = Stage::prepare_on_qdrant(&double.url()).await;
        // The tenant's id comes first in order.
        let odd = Tenant {
            id: "awry".parse().unwrap(),
            name: "Awry".to_owned(),
            enabled: true,
            budget: None,
            created_at: stage.clock.now(),
            version: 1,
        };
        stage.services.ledger.tenants.ensure_tenant(&odd).await.unwrap();
        let awry = TenantScope::new(odd.id.clone());
        for scope in [&awry, &stage.scope] {
            let edit = stage.edit("fact.create");
            remember::write_manual_fact(&stage.services, scope, hand_written_note(&stage), &edit)
                .await
                .unwrap();
        }
        double.lose_all_data();
        let picky = Arc::new(RejectingIndex {
            index: stage.index_in_qdrant(&double.url(), "words"),
            refused: awry.clone(),
            with: StoreError::Rejected("a point of this tenant is odd".to_owned()),
            refuses: AtomicBool::new(true),
        });
        stage.services.index = picky.clone();
        let behind = jobs::activate_index(&stage.services).await.unwrap();
        assert_eq!(behind.into_iter().collect::<Vec<_>>(), [odd.id]);
        assert_eq!(stage.services.index.index_state(), IndexState::Ready);
        assert_eq!(double.points("colloquy"), 1);
        // The tenant's facts follow later.
        picky.refuses.store(false, Ordering::SeqCst);
        assert_eq!(jobs::heal_drift(&stage.services, &awry).await.unwrap(), 1);
        assert_eq!(double.points("colloquy"), 2);
        // A stale write by a node that died before noticing the newer version.
        double.corrupt_points("colloquy");
        assert_eq!(jobs::heal_drift(&stage.services, &stage.scope).await.unwrap(), 1);
        let drift = jobs::find_drift(&stage.services, &stage.scope).await.unwrap().unwrap();
        assert_eq!(drift.point_count(), 0, "{drift:?}");
    });
}

/// The last written version of each fact.
#[derive(Default)]
struct LatestVersionIndex(Mutex<BTreeMap<FactId, u32>>);

#[async_trait]
impl FactIndex for LatestVersionIndex {
    async fn propose_candidates(&self, _: &TenantScope, _: CandidateQuery<'_>) -> StoreResult<Vec<Candidate>> {
        Ok(Vec::new())
    }
    async fn find_similar(&self, _: &TenantScope, _: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        Ok(Vec::new())
    }
    async fn upsert_points(&self, _: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        let versions = points.iter().map(|point| (point.fact, point.version));
        self.0.lock().extend(versions);
        Ok(())
    }
    async fn remove_points(&self, _: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.0.lock().retain(|fact, _| !facts.contains(fact));
        Ok(())
    }
    async fn count_points(&self, _: &TenantScope) -> StoreResult<u64> {
        Ok(self.0.lock().len() as u64)
    }
    async fn clear_tenant(&self, _: &TenantScope) -> StoreResult<()> {
        self.0.lock().clear();
        Ok(())
    }
}

struct NoPeers;

#[async_trait]
impl Peers for NoPeers {
    async fn notify_peers(&self, _: &Notice) -> StoreResult<()> {
        Ok(())
    }
}

#[test]
fn stale_relay_read_does_not_overwrite_a_newer_notice() {
    run(async {
        let stage = Stage::prepare().await;
        let (facts, scope) = (&stage.services.ledger.facts, &stage.scope);
        let edit = stage.edit("fact.create");
        let fact = remember::write_manual_fact(&stage.services, scope, hand_written_note(&stage), &edit)
            .await
            .unwrap()
            .id;
        let written = Arc::new(LatestVersionIndex::default());
        let own = Arc::new(LocalFactIndex::new(written.clone(), facts.clone()));
        let shared = SharedFactIndex::new(own.clone(), Arc::new(NoPeers));
        let held = || written.0.lock().get(&fact).copied();
        // The relay has read the old version. Then another node edits the fact and notifies this node.
        let old = facts.load_points(scope, &[fact]).await.unwrap();
        let patch = FactPatch {
            importance: Importance::new(9),
            ..FactPatch::default()
        };
        facts
            .edit_fact(scope, fact, &patch, None, &stage.edit("fact.correct"))
            .await
            .unwrap();
        own.refresh_facts(scope, &[fact]).await.unwrap();
        let newest = held();
        assert!(newest > Some(old[0].version));
        shared.upsert_points(scope, &old).await.unwrap();
        assert_eq!(held(), newest);
        // A stale removal does not overwrite the newer version either.
        shared.remove_points(scope, &[fact]).await.unwrap();
        assert_eq!(held(), newest);
    });
}
