//! What only the index in Qdrant has to keep: its place among collections, one trip, and outages.

use std::{sync::Arc, time::Duration};

use colloquy::{
    adapters::qdrant::{QdrantFactIndex, QdrantOptions},
    memory::keywords::TermWeights,
    ports::{
        StoreError, StoreResult,
        vectors::{Candidate, FactIndex, IndexPoint, IndexState, LegLimits, Prepared, Proposal},
    },
};

use super::vectors::{DIMENSIONS, audience, ergen_with, leaning, point, scope};
use crate::support::{PATIENCE, QdrantDouble, eventually};

/// Of the contracts' vectors.
pub fn options(url: &str) -> QdrantOptions {
    QdrantOptions {
        url: url.to_owned(),
        api_key: None,
        collection: "colloquy".to_owned(),
        timeout: PATIENCE,
        write_timeout: PATIENCE,
        hnsw_ef: 64,
        embedding_model: format!("axes@{DIMENSIONS}"),
        dimensions: DIMENSIONS,
    }
}

/// For the contract: a double with these points.
pub async fn qdrant(points: Vec<IndexPoint>) -> Arc<dyn FactIndex> {
    let double = QdrantDouble::start();
    let index = filled(&double.url(), "colloquy", points).await;
    // It lives as long as the test, which does not know of it.
    std::mem::forget(double);
    index
}

/// An index in Qdrant that is in use and has these points.
async fn filled(url: &str, collection: &str, points: Vec<IndexPoint>) -> Arc<dyn FactIndex> {
    let index = QdrantFactIndex::new(QdrantOptions {
        collection: collection.to_owned(),
        ..options(url)
    })
    .unwrap();
    assert_eq!(index.prepare(true).await.unwrap(), Prepared::Empty);
    index.upsert(&scope("acme"), &points).await.unwrap();
    index.adopt().await.unwrap();
    Arc::new(index)
}

/// On the server that `QDRANT_URL` names: its gRPC address.
pub async fn on_a_real_server<Case: AsyncFnOnce(RealServer)>(case: &str, run: Case) {
    let url = std::env::var("QDRANT_URL").expect("QDRANT_URL does not name a Qdrant");
    let collection = format!("colloquy_contract_{case}");
    let server = RealServer { url, collection };
    server.clean().await;
    run(server.clone()).await;
    server.clean().await;
}

#[derive(Clone)]
pub struct RealServer {
    url: String,
    collection: String,
}

impl RealServer {
    pub async fn filled(self, points: Vec<IndexPoint>) -> Arc<dyn FactIndex> {
        filled(&self.url, &self.collection, points).await
    }

    /// Drops what this case made, now or when it failed before.
    async fn clean(&self) {
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

fn of_another_embedder(double: &QdrantDouble) -> QdrantFactIndex {
    QdrantFactIndex::new(QdrantOptions {
        embedding_model: "short@4".to_owned(),
        dimensions: 4,
        ..options(&double.url())
    })
    .unwrap()
}

async fn in_use(double: &QdrantDouble) -> QdrantFactIndex {
    let index = index(double);
    assert_eq!(index.prepare(true).await.unwrap(), Prepared::Empty);
    index.adopt().await.unwrap();
    index
}

async fn ask(index: &QdrantFactIndex) -> StoreResult<Vec<Candidate>> {
    let query = leaning(0, 1.0);
    let proposal = Proposal {
        viewpoint: &ergen_with(None),
        embedding: Some(&query),
        terms: &TermWeights(vec![(1, 1.0)]),
        limits: LegLimits::default(),
    };
    index.propose(&scope("acme"), proposal).await
}

fn is_unavailable<T: std::fmt::Debug>(answer: &StoreResult<T>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(_)))
}

#[tokio::test]
async fn a_search_is_one_trip() {
    let double = QdrantDouble::start();
    let index = in_use(&double).await;
    let known = audience(&["npc:ergen"], None);
    let points = [point(1, known.clone(), leaning(0, 1.0)), point(2, known, Vec::new())];
    index.upsert(&scope("acme"), &points).await.unwrap();
    double.take_requests();
    assert_eq!(ask(&index).await.unwrap().len(), 2);
    assert_eq!(double.take_requests(), ["query_batch"]);
}

#[tokio::test]
async fn tenants_are_told_apart_by_an_index() {
    let double = QdrantDouble::start();
    in_use(&double).await;
    let (indexes, tenants) = double.indexes("colloquy");
    assert_eq!(tenants, ["tenant"]);
    assert_eq!(indexes.len(), 8, "{indexes:?}");
}

#[tokio::test]
async fn an_index_that_is_not_filled_finds_nothing() {
    let double = QdrantDouble::start();
    let index = index(&double);
    assert_eq!(index.state(), IndexState::Away);
    assert!(is_unavailable(&ask(&index).await));
    assert_eq!(index.prepare(false).await.unwrap(), Prepared::Empty);
    assert!(double.collections().is_empty(), "nothing was to be made");
    assert_eq!(index.prepare(true).await.unwrap(), Prepared::Empty);
    assert_eq!(index.state(), IndexState::Filling);
    assert!(is_unavailable(&ask(&index).await));
    assert!(!index.is_current().await.unwrap());
    index.adopt().await.unwrap();
    assert_eq!(index.state(), IndexState::Ready);
    assert!(index.is_current().await.unwrap());
    assert!(ask(&index).await.unwrap().is_empty());
}

#[tokio::test]
async fn several_nodes_that_start_at_once_share_one_collection() {
    let double = QdrantDouble::start();
    let nodes: Vec<_> = (0..4).map(|_| index(&double)).collect();
    let prepared = futures_util::future::join_all(nodes.iter().map(|node| node.prepare(true))).await;
    assert!(
        prepared
            .iter()
            .all(|prepared| *prepared.as_ref().unwrap() == Prepared::Empty)
    );
    let known = audience(&["npc:ergen"], None);
    for node in &nodes {
        let points = [point(1, known.clone(), leaning(0, 1.0))];
        node.upsert(&scope("acme"), &points).await.unwrap();
        node.adopt().await.unwrap();
        node.retire().await.unwrap();
    }
    assert_eq!(double.collections().len(), 1);
    assert_eq!(ask(&nodes[0]).await.unwrap().len(), 1);
    // One that starts later finds it filled.
    assert_eq!(index(&double).prepare(true).await.unwrap(), Prepared::Ready);
}

#[tokio::test]
async fn another_embedder_has_a_collection_of_its_own_and_then_the_place() {
    let double = QdrantDouble::start();
    let before = in_use(&double).await;
    let known = audience(&["npc:ergen"], None);
    let points = [point(1, known.clone(), leaning(0, 1.0))];
    before.upsert(&scope("acme"), &points).await.unwrap();

    let after = of_another_embedder(&double);
    assert_eq!(after.prepare(true).await.unwrap(), Prepared::Empty);
    let short = [point(1, known, vec![1.0, 0.0, 0.0, 0.0])];
    after.upsert(&scope("acme"), &short).await.unwrap();
    // While it is filled, the one before goes on.
    assert!(before.is_current().await.unwrap() && !after.is_current().await.unwrap());
    assert_eq!(ask(&before).await.unwrap().len(), 1);
    assert_eq!(double.collections().len(), 2);

    after.adopt().await.unwrap();
    assert!(after.is_current().await.unwrap() && !before.is_current().await.unwrap());
    assert!(
        is_unavailable(&ask(&before).await),
        "its vectors are of no use any longer"
    );
    // A node that comes now finds that the one before has still to be dropped.
    let late = of_another_embedder(&double);
    assert_eq!(late.prepare(true).await.unwrap(), Prepared::Unfinished);
    late.retire().await.unwrap();
    assert_eq!(double.collections().len(), 1);
    assert_eq!(late.prepare(true).await.unwrap(), Prepared::Ready);

    // The node before does not take the place back while it runs; one that is started does.
    assert!(is_unavailable(&before.prepare(true).await));
    assert_eq!(double.alias("colloquy"), Some(double.collections()[0].clone()));
    let again = index(&double);
    assert_eq!(again.prepare(true).await.unwrap(), Prepared::Empty);
    again.adopt().await.unwrap();
    again.retire().await.unwrap();
    let collections = double.collections();
    assert!(
        collections.len() == 1 && collections[0].ends_with("_3"),
        "{collections:?}"
    );
}

#[tokio::test]
async fn what_was_begun_is_gone_on_with() {
    let double = QdrantDouble::start();
    let first = index(&double);
    first.prepare(true).await.unwrap();
    let points = [point(1, audience(&["npc:ergen"], None), leaning(0, 1.0))];
    first.upsert(&scope("acme"), &points).await.unwrap();
    drop(first);
    let second = index(&double);
    assert_eq!(second.prepare(true).await.unwrap(), Prepared::Empty);
    assert_eq!(double.collections().len(), 1);
    assert_eq!(second.count(&scope("acme")).await.unwrap(), 1);
}

#[tokio::test]
async fn an_index_that_was_lost_is_made_anew() {
    let double = QdrantDouble::start();
    let index = in_use(&double).await;
    double.forget();
    assert!(is_unavailable(&ask(&index).await));
    assert_eq!(index.prepare(true).await.unwrap(), Prepared::Empty);
    index.adopt().await.unwrap();
    assert!(ask(&index).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_kept_comes_in_pages() {
    let double = QdrantDouble::start();
    let index = in_use(&double).await;
    let known = audience(&["npc:ergen"], None);
    let points: Vec<_> = (1..=7).map(|n| point(n, known.clone(), leaning(1, 0.1))).collect();
    index.upsert(&scope("acme"), &points).await.unwrap();
    index.upsert(&scope("rival"), &points[..3]).await.unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = index
            .stored(&scope("acme"), after.as_deref(), 3)
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
async fn an_outage_fails_soon_and_ends_by_itself() {
    let mut double = QdrantDouble::start();
    let index = in_use(&double).await;
    double.go_away();
    for _ in 0..8 {
        assert!(is_unavailable(&ask(&index).await));
    }
    assert_eq!(index.state(), IndexState::Away);
    double.come_back();
    eventually("Qdrant is asked again", async || ask(&index).await.ok()).await;
    assert_eq!(index.state(), IndexState::Ready);
}

/// Something listens, and says nothing.
#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let index = QdrantFactIndex::new(QdrantOptions {
        timeout: Duration::from_millis(50),
        ..options(&format!("http://{}", silent.local_addr().unwrap()))
    })
    .unwrap();
    let answer = tokio::time::timeout(PATIENCE * 2, index.prepare(true)).await.unwrap();
    assert!(is_unavailable(&answer), "{answer:?}");
}

#[tokio::test]
async fn a_key_is_sent_and_never_shown() {
    let double = QdrantDouble::start_with_key("open sesame");
    let with = |key: &str| QdrantOptions {
        api_key: Some(key.to_owned().into()),
        ..options(&double.url())
    };
    let right = QdrantFactIndex::new(with("open sesame")).unwrap();
    assert_eq!(right.prepare(true).await.unwrap(), Prepared::Empty);
    let wrong = QdrantFactIndex::new(with("sesame, open")).unwrap();
    let refused = wrong.prepare(true).await.unwrap_err();
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
async fn a_place_that_is_somebody_elses_is_left_alone() {
    let double = QdrantDouble::start();
    in_use(&double).await;
    // The name of the collection, where an alias is wanted.
    let taken = QdrantFactIndex::new(QdrantOptions {
        collection: double.collections()[0].clone(),
        ..options(&double.url())
    })
    .unwrap();
    let refused = taken.prepare(true).await.unwrap_err();
    assert!(matches!(refused, StoreError::Rejected(_)), "{refused:?}");
    assert_eq!(double.collections().len(), 1);
}
