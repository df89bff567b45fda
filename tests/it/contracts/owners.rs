//! The cache of owners. Only Redis has a cache; without Redis, callers ask the ledger.

use std::{sync::Arc, time::Duration};

use colloquy::{
    adapters::redis::{RedisOptions, owners::RedisOwners},
    ids::{DialogueKind, NodeId},
    ports::{
        StoreError,
        clock::{IdSource, SystemClock},
        owners::OwnerCache as _,
    },
    tenancy::TenantScope,
};

use crate::support::{RedisCluster, RedisServer, eventually};

fn redis_owners(url: &str, cluster: bool, ttl: Duration) -> RedisOwners {
    let options = RedisOptions {
        url: url.to_owned(),
        cluster,
        timeout: Duration::from_secs(10),
    };
    RedisOwners::new(&options, ttl).unwrap()
}

#[tokio::test]
async fn owner_is_cached_briefly_and_per_tenant() {
    let mut server = RedisServer::start().await;
    assert_owner_is_cached(&server.url(), false, || server.kill()).await;
}

#[tokio::test]
async fn owner_is_cached_in_a_redis_cluster_too() {
    let mut cluster = RedisCluster::start().await;
    assert_owner_is_cached(&cluster.url(), true, || cluster.kill()).await;
}

#[tokio::test]
async fn redis_cluster_slots_are_followed_when_moved() {
    let cluster = RedisCluster::start().await;
    let cache = redis_owners(&cluster.url(), true, Duration::from_mins(10));
    let ids = IdSource::from_thread_rng(Arc::new(SystemClock));
    let (scope, node) = (TenantScope::new("studio".parse().unwrap()), ids.next_id());
    let mut all = Vec::new();
    let new = || ids.next_dialogue_id(DialogueKind::NpcConversation);
    for number in 0..32 {
        let mut dialogue = new();
        if number >= 30 {
            // The client is connected and still has the old slot map.
            while !cluster.move_slot_of(&format!("studio:d:{{{dialogue}}}:owner")).await {
                dialogue = new();
            }
        }
        cache.record_owner(&scope, dialogue, node).await.unwrap();
        all.push(dialogue);
    }
    let sizes = cluster.sizes().await;
    assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
    assert!(cluster.moved_redirects().await > 0, "nobody was sent on");
    for dialogue in all {
        assert_eq!(cache.load_owner(&scope, dialogue).await.unwrap(), Some(node));
    }
}

async fn assert_owner_is_cached(url: &str, cluster: bool, kill: impl FnOnce()) {
    let cache = redis_owners(url, cluster, Duration::from_mins(10));
    let ids = IdSource::from_thread_rng(Arc::new(SystemClock));
    let scope = |tenant: &str| TenantScope::new(tenant.parse().unwrap());
    let (studio, rival) = (scope("studio"), scope("rival"));
    let dialogue = ids.next_dialogue_id(DialogueKind::Session);
    let (one, two): (NodeId, NodeId) = (ids.next_id(), ids.next_id());

    assert_eq!(cache.load_owner(&studio, dialogue).await.unwrap(), None);
    cache.record_owner(&studio, dialogue, one).await.unwrap();
    assert_eq!(cache.load_owner(&studio, dialogue).await.unwrap(), Some(one));
    assert_eq!(cache.load_owner(&rival, dialogue).await.unwrap(), None);
    cache.record_owner(&studio, dialogue, two).await.unwrap();
    assert_eq!(cache.load_owner(&studio, dialogue).await.unwrap(), Some(two));
    cache.forget_owner(&studio, dialogue).await.unwrap();
    cache.forget_owner(&studio, dialogue).await.unwrap();
    assert_eq!(cache.load_owner(&studio, dialogue).await.unwrap(), None);

    let short = redis_owners(url, cluster, Duration::from_millis(50));
    short.record_owner(&studio, dialogue, one).await.unwrap();
    eventually("the owner to be forgotten", || async {
        short
            .load_owner(&studio, dialogue)
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;

    kill();
    let gone = cache.load_owner(&studio, dialogue).await;
    assert!(matches!(gone, Err(StoreError::Unavailable(_))), "{gone:?}");
}
