//! Tests of the Qdrant index alone: its collection and alias, one round trip per search, and outages.

use std::{sync::Arc, time::Duration};

use colloquy::{
    adapters::qdrant::{QdrantFactIndex, QdrantOptions},
    memory::keywords::TermWeights,
    ports::{
        StoreError, StoreResult,
        vectors::{Candidate, CandidateLimits, CandidateQuery, FactIndex, IndexPoint, IndexState, PrepareOutcome},
    },
};

use super::vectors::{DIMENSIONS, audience, ergen_with, point, scope, vector_leaning_to};
use crate::support::{PATIENCE, QdrantDouble, eventually};

/// Returns options for the vectors of the contract tests.
pub fn options(url: &str) -> QdrantOptions {
    QdrantOptions {
        url: url.to_owned(),
        api_key: None,
        collection: "colloquy".to_owned(),
        timeout: PATIENCE,
        write_timeout: PATIENCE,
        embedding_model: format!("axes@{DIMENSIONS}"),
        dimensions: DIMENSIONS,
    }
}

/// Returns the contract's index: a Qdrant double with the given points.
pub async fn qdrant(points: Vec<IndexPoint>) -> Arc<dyn FactIndex> {
    let double = QdrantDouble::start();
    let index = filled_index(&double.url(), "colloquy", points).await;
    // Leaks the double, so that the double lives as long as the test.
    std::mem::forget(double);
    index
}

/// Returns an adopted Qdrant index with the given points.
async fn filled_index(url: &str, collection: &str, points: Vec<IndexPoint>) -> Arc<dyn FactIndex> {
    let index = QdrantFactIndex::new(QdrantOptions {
        collection: collection.to_owned(),
        ..options(url)
    })
    .unwrap();
    assert_eq!(index.prepare_index(true).await.unwrap(), PrepareOutcome::Empty);
    index.upsert_points(&scope("acme"), &points).await.unwrap();
    index.adopt_index().await.unwrap();
    Arc::new(index)
}

/// Runs `run` on the server at the gRPC address in `QDRANT_URL`.
pub async fn run_on_real_server<Case: AsyncFnOnce(RealServer)>(case: &str, run: Case) {
    let url = std::env::var("QDRANT_URL").expect("QDRANT_URL does not name a Qdrant");
    let collection = format!("colloquy_contract_{case}");
    let server = RealServer { url, collection };
    server.drop_collections().await;
    run(server.clone()).await;
    server.drop_collections().await;
}

#[derive(Clone)]
pub struct RealServer {
    url: String,
    collection: String,
}

impl RealServer {
    pub async fn filled(self, points: Vec<IndexPoint>) -> Arc<dyn FactIndex> {
        filled_index(&self.url, &self.collection, points).await
    }

    /// Drops the collections of the case, including leftovers of an earlier failed run.
    async fn drop_collections(&self) {
        let client = qdrant_client::Qdrant::from_url(&self.url)
            .skip_compatibility_check()
            .build()
            .unwrap();
        for collection in client.list_collections().await.unwrap().collections {
            if collection.name.starts_with(&self.collection) {
                client.delete_collection(collection.name).await.unwrap();
            }
        }
    }
}

fn index(double: &QdrantDouble) -> QdrantFactIndex {
    QdrantFactIndex::new(options(&double.url())).unwrap()
}

fn index_of_other_embedder(double: &QdrantDouble) -> QdrantFactIndex {
    QdrantFactIndex::new(QdrantOptions {
        embedding_model: "short@4".to_owned(),
        dimensions: 4,
        ..options(&double.url())
    })
    .unwrap()
}

async fn prepared_index(double: &QdrantDouble) -> QdrantFactIndex {
    let index = index(double);
    assert_eq!(index.prepare_index(true).await.unwrap(), PrepareOutcome::Empty);
    index.adopt_index().await.unwrap();
    index
}

async fn propose_candidates(index: &QdrantFactIndex) -> StoreResult<Vec<Candidate>> {
    let query = vector_leaning_to(0, 1.0);
    let proposal = CandidateQuery {
        viewpoint: &ergen_with(None),
        embedding: Some(&query),
        terms: &TermWeights(vec![(1, 1.0)]),
        limits: CandidateLimits::default(),
    };
    index.propose_candidates(&scope("acme"), proposal).await
}

fn is_unavailable<T: std::fmt::Debug>(answer: &StoreResult<T>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(_)))
}

#[tokio::test]
async fn search_is_one_request() {
    let double = QdrantDouble::start();
    let index = prepared_index(&double).await;
    let known = audience(&["npc:ergen"], None);
    let points = [
        point(1, known.clone(), vector_leaning_to(0, 1.0)),
        point(2, known, Vec::new()),
    ];
    index.upsert_points(&scope("acme"), &points).await.unwrap();
    double.take_requests();
    assert_eq!(propose_candidates(&index).await.unwrap().len(), 2);
    assert_eq!(double.take_requests(), ["query_batch"]);
}

#[tokio::test]
async fn tenants_are_separated_by_a_payload_index() {
    let double = QdrantDouble::start();
    prepared_index(&double).await;
    let (indexes, tenants) = double.indexes("colloquy");
    assert_eq!(tenants, ["tenant"]);
    assert_eq!(indexes.len(), 8, "{indexes:?}");
}

#[tokio::test]
async fn unfilled_index_finds_nothing() {
    let double = QdrantDouble::start();
    let index = index(&double);
    assert_eq!(index.index_state(), IndexState::Away);
    assert!(is_unavailable(&propose_candidates(&index).await));
    assert_eq!(index.prepare_index(false).await.unwrap(), PrepareOutcome::Empty);
    assert!(double.collections().is_empty(), "nothing was to be made");
    assert_eq!(index.prepare_index(true).await.unwrap(), PrepareOutcome::Empty);
    assert_eq!(index.index_state(), IndexState::Filling);
    assert!(is_unavailable(&propose_candidates(&index).await));
    assert!(!index.is_current().await.unwrap());
    index.adopt_index().await.unwrap();
    assert_eq!(index.index_state(), IndexState::Ready);
    assert!(index.is_current().await.unwrap());
    assert!(propose_candidates(&index).await.unwrap().is_empty());
}

#[tokio::test]
async fn nodes_that_start_at_once_share_one_collection() {
    let double = QdrantDouble::start();
    let nodes: Vec<_> = (0..4).map(|_| index(&double)).collect();
    let prepared = futures_util::future::join_all(nodes.iter().map(|node| node.prepare_index(true))).await;
    assert!(
        prepared
            .iter()
            .all(|prepared| *prepared.as_ref().unwrap() == PrepareOutcome::Empty)
    );
    let known = audience(&["npc:ergen"], None);
    for node in &nodes {
        let points = [point(1, known.clone(), vector_leaning_to(0, 1.0))];
        node.upsert_points(&scope("acme"), &points).await.unwrap();
        node.adopt_index().await.unwrap();
        node.drop_replaced_index().await.unwrap();
    }
    assert_eq!(double.collections().len(), 1);
    assert_eq!(propose_candidates(&nodes[0]).await.unwrap().len(), 1);
    // A node that starts later finds the collection filled.
    assert_eq!(index(&double).prepare_index(true).await.unwrap(), PrepareOutcome::Ready);
}

#[tokio::test]
async fn new_embedder_fills_its_own_collection_and_then_takes_the_alias() {
    let double = QdrantDouble::start();
    let before = prepared_index(&double).await;
    let known = audience(&["npc:ergen"], None);
    let points = [point(1, known.clone(), vector_leaning_to(0, 1.0))];
    before.upsert_points(&scope("acme"), &points).await.unwrap();

    let after = index_of_other_embedder(&double);
    assert_eq!(after.prepare_index(true).await.unwrap(), PrepareOutcome::Empty);
    let short = [point(1, known, vec![1.0, 0.0, 0.0, 0.0])];
    after.upsert_points(&scope("acme"), &short).await.unwrap();
    // During the fill, the previous collection stays in use.
    assert!(before.is_current().await.unwrap() && !after.is_current().await.unwrap());
    assert_eq!(propose_candidates(&before).await.unwrap().len(), 1);
    assert_eq!(double.collections().len(), 2);

    after.adopt_index().await.unwrap();
    assert!(after.is_current().await.unwrap() && !before.is_current().await.unwrap());
    assert!(
        is_unavailable(&propose_candidates(&before).await),
        "its vectors are of no use any longer"
    );
    // A node that starts now finds the previous collection not yet dropped.
    let late = index_of_other_embedder(&double);
    assert_eq!(late.prepare_index(true).await.unwrap(), PrepareOutcome::Unfinished);
    late.drop_replaced_index().await.unwrap();
    assert_eq!(double.collections().len(), 1);
    assert_eq!(late.prepare_index(true).await.unwrap(), PrepareOutcome::Ready);

    // The old node does not retake the alias while running; a newly started node does.
    assert!(is_unavailable(&before.prepare_index(true).await));
    assert_eq!(double.alias("colloquy"), Some(double.collections()[0].clone()));
    let again = index(&double);
    assert_eq!(again.prepare_index(true).await.unwrap(), PrepareOutcome::Empty);
    again.adopt_index().await.unwrap();
    again.drop_replaced_index().await.unwrap();
    let collections = double.collections();
    assert!(
        collections.len() == 1 && collections[0].ends_with("_3"),
        "{collections:?}"
    );
}

#[tokio::test]
async fn interrupted_fill_is_continued() {
    let double = QdrantDouble::start();
    let first = index(&double);
    first.prepare_index(true).await.unwrap();
    let points = [point(1, audience(&["npc:ergen"], None), vector_leaning_to(0, 1.0))];
    first.upsert_points(&scope("acme"), &points).await.unwrap();
    drop(first);
    let second = index(&double);
    assert_eq!(second.prepare_index(true).await.unwrap(), PrepareOutcome::Empty);
    assert_eq!(double.collections().len(), 1);
    assert_eq!(second.count_points(&scope("acme")).await.unwrap(), 1);
}

#[tokio::test]
async fn lost_index_is_created_again() {
    let double = QdrantDouble::start();
    let index = prepared_index(&double).await;
    double.lose_all_data();
    assert!(is_unavailable(&propose_candidates(&index).await));
    assert_eq!(index.prepare_index(true).await.unwrap(), PrepareOutcome::Empty);
    index.adopt_index().await.unwrap();
    assert!(propose_candidates(&index).await.unwrap().is_empty());
}

#[tokio::test]
async fn stored_points_are_listed_in_pages() {
    let double = QdrantDouble::start();
    let index = prepared_index(&double).await;
    let known = audience(&["npc:ergen"], None);
    let points: Vec<_> = (1..=7)
        .map(|n| point(n, known.clone(), vector_leaning_to(1, 0.1)))
        .collect();
    index.upsert_points(&scope("acme"), &points).await.unwrap();
    index.upsert_points(&scope("rival"), &points[..3]).await.unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = index
            .list_stored_points(&scope("acme"), after.as_deref(), 3)
            .await
            .unwrap()
            .unwrap();
        assert!(page.points.len() <= 3);
        seen.extend(page.points.iter().map(|stored| (stored.fact, stored.digest)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    seen.sort_unstable();
    let wanted: Vec<_> = points.iter().map(|point| (point.fact, point.digest())).collect();
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn outage_fails_fast_and_ends_by_itself() {
    let mut double = QdrantDouble::start();
    let index = prepared_index(&double).await;
    double.stop_serving();
    for _ in 0..8 {
        assert!(is_unavailable(&propose_candidates(&index).await));
    }
    assert_eq!(index.index_state(), IndexState::Away);
    double.serve_again();
    eventually("Qdrant is asked again", async || propose_candidates(&index).await.ok()).await;
    assert_eq!(index.index_state(), IndexState::Ready);
}

/// The server accepts connections and never answers.
#[tokio::test]
async fn unresponsive_server_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let index = QdrantFactIndex::new(QdrantOptions {
        timeout: Duration::from_millis(50),
        ..options(&format!("http://{}", silent.local_addr().unwrap()))
    })
    .unwrap();
    let answer = tokio::time::timeout(PATIENCE * 2, index.prepare_index(true))
        .await
        .unwrap();
    assert!(is_unavailable(&answer), "{answer:?}");
}

#[tokio::test]
async fn api_key_is_sent_and_never_shown() {
    let double = QdrantDouble::start_with_key("open sesame");
    let with = |key: &str| QdrantOptions {
        api_key: Some(key.to_owned().into()),
        ..options(&double.url())
    };
    let right = QdrantFactIndex::new(with("open sesame")).unwrap();
    assert_eq!(right.prepare_index(true).await.unwrap(), PrepareOutcome::Empty);
    let wrong = QdrantFactIndex::new(with("sesame, open")).unwrap();
    let refused = wrong.prepare_index(true).await.unwrap_err();
    assert!(matches!(refused, StoreError::Rejected(_)), "{refused:?}");
    for shown in [
        format!("{refused:?}"),
        format!("{wrong:?}"),
        format!("{:?}", with("open sesame")),
    ] {
        assert!(!shown.contains("sesame"), "{shown}");
    }
    let nonsense = QdrantFactIndex::new(options("http://"));
    assert!(matches!(nonsense, Err(StoreError::Rejected(_))), "{nonsense:?}");
}

#[tokio::test]
async fn foreign_collection_is_left_alone() {
    let double = QdrantDouble::start();
    prepared_index(&double).await;
    // Here the configured alias is the name of an existing collection.
    let taken = QdrantFactIndex::new(QdrantOptions {
        collection: double.collections()[0].clone(),
        ..options(&double.url())
    })
    .unwrap();
    let refused = taken.prepare_index(true).await.unwrap_err();
    assert!(matches!(refused, StoreError::Rejected(_)), "{refused:?}");
    assert_eq!(double.collections().len(), 1);
}
