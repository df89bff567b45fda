//! An index that is elsewhere: away, lost, overtaken, or of another embedder.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use colloquy::{
    adapters::in_process::shared_index::{OwnFactIndex, SharedFactIndex},
    dialogue::{jobs, remember, remember::HandWritten},
    ids::FactId,
    memory::fact::{Audience, FactKind, Importance, Knower},
    ports::{
        StoreError, StoreResult,
        clock::Clock as _,
        ledger::{Ledger, audit::Edit, facts::FactPatch, tenants::Tenant},
        peers::{Notice, OwnIndex as _, Peers},
        vectors::{Candidate, Comparison, FactIndex, IndexPoint, IndexState, Prepared, Proposal},
    },
    tenancy::TenantScope,
};
use parking_lot::Mutex;
use serde_json::json;

use super::{Stage, Talk, likes, picky::Picky};
use crate::support::{QdrantDouble, run};

const GRAPES: &str = "The player likes grapes.";
const ASKS: &str = "What fruit do I like?";

/// Whether the last turn's prompt has the fact, and whether it was found without the index.
async fn found(talk: &Talk<'_>, content: &str) -> (bool, bool) {
    let trace = talk.trace(talk.open.dialogue.head_turn).await;
    let without_index = trace
        .notes
        .iter()
        .any(|note| note.contains("by words alone, in the ledger"));
    (talk.stage.llm.last_context().contains(content), without_index)
}

#[test]
fn what_was_learned_is_found_in_qdrant() {
    run(async {
        let double = QdrantDouble::start();
        let stage = Stage::set_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        talk.teach("I like grapes", &json!([likes("grapes", &["fruit"])])).await;
        assert_eq!(double.points("colloquy"), 1);
        talk.say(ASKS).await;
        assert_eq!(found(&talk, GRAPES).await, (true, false));
        // Of the words nothing is kept there.
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
fn while_the_index_is_away_facts_are_found_by_their_words() {
    run(async {
        let mut double = QdrantDouble::start();
        let stage = Stage::set_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        talk.teach("I like grapes", &json!([likes("grapes", &["fruit"])])).await;
        double.go_away();
        talk.say(ASKS).await;
        assert_eq!(found(&talk, GRAPES).await, (true, true));
        // What one player told in private stays private.
        let mut stranger = stage.session("p2").await;
        stranger.say(ASKS).await;
        assert_eq!(found(&stranger, "grapes").await, (false, true));
        // What is unsaid meanwhile is not found, and is out of the index once it is back.
        talk.rewind(0, None).await;
        let mut talk = stage.session("p1").await;
        talk.say(ASKS).await;
        assert_eq!(found(&talk, "grapes").await, (false, true));
        assert_eq!(jobs::relay_outbox(&stage.services).await.unwrap(), 0);
        assert!(!stage.services.ledger.facts.outbox(9).await.unwrap().is_empty());
        assert_eq!(stage.services.index.state(), IndexState::Away);

        double.come_back();
        crate::support::eventually("the outbox is moved", async || {
            (jobs::relay_outbox(&stage.services).await.unwrap() > 0).then_some(())
        })
        .await;
        assert_eq!(double.points("colloquy"), 0);
        talk.say(ASKS).await;
        assert_eq!(found(&talk, "grapes").await, (false, false));
        assert!(stage.services.ledger.facts.outbox(9).await.unwrap().is_empty());
    });
}

#[test]
fn searches_that_fail_are_done_in_the_ledger() {
    run(async {
        let double = QdrantDouble::start();
        let stage = Stage::set_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        talk.teach("I like grapes", &json!([likes("grapes", &["fruit"])])).await;
        double.break_searches(true);
        talk.say(ASKS).await;
        assert_eq!(found(&talk, GRAPES).await, (true, true));
    });
}

#[test]
fn a_lost_index_is_filled_again() {
    run(async {
        let double = QdrantDouble::start();
        let stage = Stage::set_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        talk.teach("I like grapes", &json!([likes("grapes", &["fruit"])])).await;
        double.forget();
        stage.break_embedder(true);
        talk.say(ASKS).await;
        assert_eq!(found(&talk, GRAPES).await, (true, true));
        jobs::ready_index(&stage.services).await.unwrap();
        stage.break_embedder(false);
        assert_eq!(double.points("colloquy"), 1);
        talk.say(ASKS).await;
        assert_eq!(found(&talk, GRAPES).await, (true, false));
    });
}

#[test]
fn drift_is_found_and_put_right() {
    run(async {
        let double = QdrantDouble::start();
        let stage = Stage::set_on_qdrant(&double.url()).await;
        let mut talk = stage.session("p1").await;
        let facts = json!([likes("grapes", &["fruit"]), likes("rain", &[])]);
        talk.teach("I like grapes and rain", &facts).await;
        let counted = async || {
            let drift = jobs::drift(&stage.services, &stage.scope).await.unwrap().unwrap();
            (drift.missing.len(), drift.stale.len(), drift.surplus.len())
        };
        assert_eq!(counted().await, (0, 0, 0));
        double.lose_a_point("colloquy");
        assert_eq!(counted().await, (1, 0, 0));
        double.spoil_points("colloquy");
        assert_eq!(counted().await, (1, 1, 0));
        let surplus = IndexPoint {
            fact: FactId::from_u128(7),
            ..stage
                .services
                .ledger
                .facts
                .all_points(&stage.scope, None, 1)
                .await
                .unwrap()
                .remove(0)
        };
        stage.services.index.upsert(&stage.scope, &[surplus]).await.unwrap();
        assert_eq!(counted().await, (1, 1, 1));
        // What is only on its way is no drift.
        talk.rewind(0, None).await;
        assert_eq!(counted().await, (0, 0, 1));

        let repaired = jobs::reindex(&stage.services, &stage.scope).await.unwrap().unwrap();
        assert!(repaired.surplus.contains(&FactId::from_u128(7)), "{repaired:?}");
        assert_eq!((counted().await, double.points("colloquy")), ((0, 0, 0), 0));
    });
}

#[test]
fn another_embedder_takes_over_without_a_gap_in_words() {
    run(async {
        let double = QdrantDouble::start();
        let mut stage = Stage::set_on_qdrant(&double.url()).await;
        {
            let mut talk = stage.session("p1").await;
            talk.teach("I like grapes", &json!([likes("grapes", &["fruit"])])).await;
        }
        let before = stage.services.index.clone();
        stage.change_embedder("other").await;
        stage.services.index = stage.index_in_qdrant(&double.url(), "other");
        let mut talk = stage.session("p1").await;
        talk.say(ASKS).await;
        assert_eq!(found(&talk, GRAPES).await, (true, true), "it is not filled yet");
        // What comes meanwhile waits.
        let edit = stage.edit("fact.create");
        remember::write_by_hand(&stage.services, &stage.scope, note(&stage), &edit)
            .await
            .unwrap();
        jobs::relay_outbox(&stage.services).await.unwrap();
        assert_eq!(stage.services.ledger.facts.outbox(9).await.unwrap().len(), 1);

        jobs::ready_index(&stage.services).await.unwrap();
        assert_eq!(double.collections().len(), 1);
        assert_eq!(double.points("colloquy"), 2);
        assert!(!before.is_current().await.unwrap());
        assert_eq!(jobs::relay_outbox(&stage.services).await.unwrap(), 1);
        talk.say(ASKS).await;
        assert_eq!(found(&talk, GRAPES).await, (true, false));
    });
}

fn note(stage: &Stage) -> HandWritten {
    HandWritten {
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

/// An index that others write to: between what this node reads and what it writes, another node moves in what
/// the ledger says then.
struct Overtaken {
    index: Arc<dyn FactIndex>,
    ledger: Ledger,
    edit: Edit,
    done: AtomicBool,
}

#[async_trait]
impl FactIndex for Overtaken {
    async fn propose(&self, scope: &TenantScope, proposal: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        self.index.propose(scope, proposal).await
    }
    async fn similar(&self, scope: &TenantScope, with: Comparison<'_>) -> StoreResult<Vec<Candidate>> {
        self.index.similar(scope, with).await
    }
    async fn upsert(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        if !self.done.swap(true, Ordering::SeqCst) {
            let facts = &self.ledger.facts;
            let patch = FactPatch {
                importance: Importance::new(9),
                ..FactPatch::default()
            };
            facts.edit(scope, points[0].fact, &patch, None, &self.edit).await?;
            // The other node has moved that in already, and taken its row out of the outbox.
            let rows: Vec<i64> = facts.outbox(99).await?.iter().map(|row| row.seq).collect();
            let newer = facts.points(scope, &[points[0].fact]).await?;
            self.index.upsert(scope, &newer).await?;
            facts.outbox_done(&rows).await?;
        }
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
    fn is_shared(&self) -> bool {
        true
    }
}

#[test]
fn what_another_node_wrote_last_is_not_overwritten_for_good() {
    run(async {
        let double = QdrantDouble::start();
        let mut stage = Stage::set_on_qdrant(&double.url()).await;
        let index = stage.services.index.clone();
        stage.services.index = Arc::new(Overtaken {
            index: index.clone(),
            ledger: stage.services.ledger.clone(),
            edit: stage.edit("fact.correct"),
            done: AtomicBool::new(false),
        });
        let edit = stage.edit("fact.create");
        remember::write_by_hand(&stage.services, &stage.scope, note(&stage), &edit)
            .await
            .unwrap();
        jobs::relay_outbox(&stage.services).await.unwrap();
        stage.services.index = index;
        let drift = jobs::drift(&stage.services, &stage.scope).await.unwrap().unwrap();
        assert_eq!(drift.count(), 0, "{drift:?}");
        assert_eq!(stage.services.index.prepare(true).await.unwrap(), Prepared::Ready);
    });
}

#[test]
fn a_tenant_whose_facts_cannot_be_moved_holds_up_nobody_else() {
    run(async {
        let double = QdrantDouble::start();
        let mut stage = Stage::set_on_qdrant(&double.url()).await;
        // Its name comes first.
        let odd = Tenant {
            id: "awry".parse().unwrap(),
            name: "Awry".to_owned(),
            enabled: true,
            budget: None,
            created_at: stage.clock.now(),
            version: 1,
        };
        stage.services.ledger.tenants.ensure(&odd).await.unwrap();
        let awry = TenantScope::new(odd.id.clone());
        for scope in [&awry, &stage.scope] {
            let edit = stage.edit("fact.create");
            remember::write_by_hand(&stage.services, scope, note(&stage), &edit)
                .await
                .unwrap();
        }
        double.forget();
        let picky = Arc::new(Picky {
            index: stage.index_in_qdrant(&double.url(), "words"),
            refused: awry.clone(),
            with: StoreError::Rejected("a point of this tenant is odd".to_owned()),
            refuses: AtomicBool::new(true),
        });
        stage.services.index = picky.clone();
        let behind = jobs::ready_index(&stage.services).await.unwrap();
        assert_eq!(behind.into_iter().collect::<Vec<_>>(), [odd.id]);
        assert_eq!(stage.services.index.state(), IndexState::Ready);
        assert_eq!(double.points("colloquy"), 1);
        // It comes later.
        picky.refuses.store(false, Ordering::SeqCst);
        assert_eq!(jobs::heal(&stage.services, &awry).await.unwrap(), 1);
        assert_eq!(double.points("colloquy"), 2);
        // What a node wrote that died before it saw that it was overtaken.
        double.spoil_points("colloquy");
        assert_eq!(jobs::heal(&stage.services, &stage.scope).await.unwrap(), 1);
        let drift = jobs::drift(&stage.services, &stage.scope).await.unwrap().unwrap();
        assert_eq!(drift.count(), 0, "{drift:?}");
    });
}

/// What was written last of each fact.
#[derive(Default)]
struct Written(Mutex<BTreeMap<FactId, u32>>);

#[async_trait]
impl FactIndex for Written {
    async fn propose(&self, _: &TenantScope, _: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        Ok(Vec::new())
    }
    async fn similar(&self, _: &TenantScope, _: Comparison<'_>) -> StoreResult<Vec<Candidate>> {
        Ok(Vec::new())
    }
    async fn upsert(&self, _: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        let versions = points.iter().map(|point| (point.fact, point.version));
        self.0.lock().extend(versions);
        Ok(())
    }
    async fn remove(&self, _: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.0.lock().retain(|fact, _| !facts.contains(fact));
        Ok(())
    }
    async fn count(&self, _: &TenantScope) -> StoreResult<u64> {
        Ok(self.0.lock().len() as u64)
    }
    async fn clear(&self, _: &TenantScope) -> StoreResult<()> {
        self.0.lock().clear();
        Ok(())
    }
}

struct Alone;

#[async_trait]
impl Peers for Alone {
    async fn tell(&self, _: &Notice) -> StoreResult<()> {
        Ok(())
    }
}

#[test]
fn what_a_relay_read_before_a_notice_came_does_not_replace_what_came_with_it() {
    run(async {
        let stage = Stage::set().await;
        let (facts, scope) = (&stage.services.ledger.facts, &stage.scope);
        let edit = stage.edit("fact.create");
        let fact = remember::write_by_hand(&stage.services, scope, note(&stage), &edit)
            .await
            .unwrap()
            .id;
        let written = Arc::new(Written::default());
        let own = Arc::new(OwnFactIndex::new(written.clone(), facts.clone()));
        let shared = SharedFactIndex::new(own.clone(), Arc::new(Alone));
        let held = || written.0.lock().get(&fact).copied();
        // The relay has read this when another node edits the fact, and tells of it.
        let old = facts.points(scope, &[fact]).await.unwrap();
        let patch = FactPatch {
            importance: Importance::new(9),
            ..FactPatch::default()
        };
        facts
            .edit(scope, fact, &patch, None, &stage.edit("fact.correct"))
            .await
            .unwrap();
        own.refresh(scope, &[fact]).await.unwrap();
        let newest = held();
        assert!(newest > Some(old[0].version));
        shared.upsert(scope, &old).await.unwrap();
        assert_eq!(held(), newest);
        // Nor does what was gone a moment ago, and is there again.
        shared.remove(scope, &[fact]).await.unwrap();
        assert_eq!(held(), newest);
    });
}
