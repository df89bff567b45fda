//! The cache of owners. Only Redis has one: without it the ledger is asked.

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

fn owners(url: &str, cluster: bool, ttl: Duration) -> RedisOwners {
    let options = RedisOptions {
        url: url.to_owned(),
        cluster,
        timeout: Duration::from_secs(10),
    };
    RedisOwners::new(&options, ttl).unwrap()
}

#[tokio::test]
async fn an_owner_is_remembered_for_a_while_and_for_its_tenant() {
    let mut server = RedisServer::start().await;
    assert_remembers(&server.url(), false, || server.kill()).await;
}

#[tokio::test]
async fn so_it_is_in_a_cluster() {
    let mut cluster = RedisCluster::start().await;
    assert_remembers(&cluster.url(), true, || cluster.kill()).await;
}

#[tokio::test]
async fn a_cluster_is_followed_where_its_slots_go() {
    let cluster = RedisCluster::start().await;
    let cache = owners(&cluster.url(), true, Duration::from_mins(10));
    let ids = IdSource::random(Arc::new(SystemClock));
    let (scope, node) = (TenantScope::new("studio".parse().unwrap()), ids.next());
    let mut all = Vec::new();
    let new = || ids.dialogue(DialogueKind::NpcConversation);
    for number in 0..32 {
        let mut dialogue = new();
        if number >= 30 {
            // The client has connected, and believes that it is where it was.
            while !cluster.move_slot_of(&format!("studio:d:{{{dialogue}}}:owner")).await {
                dialogue = new();
            }
        }
        cache.note(&scope, dialogue, node).await.unwrap();
        all.push(dialogue);
    }
    let sizes = cluster.sizes().await;
    assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
    assert!(cluster.moved().await > 0, "nobody was sent on");
    for dialogue in all {
        assert_eq!(cache.owner(&scope, dialogue).await.unwrap(), Some(node));
    }
}

async fn assert_remembers(url: &str, cluster: bool, kill: impl FnOnce()) {
    let cache = owners(url, cluster, Duration::from_mins(10));
    let ids = IdSource::random(Arc::new(SystemClock));
    let scope = |tenant: &str| TenantScope::new(tenant.parse().unwrap());
    let (studio, rival) = (scope("studio"), scope("rival"));
    let dialogue = ids.dialogue(DialogueKind::Session);
    let (one, two): (NodeId, NodeId) = (ids.next(), ids.next());

    assert_eq!(cache.owner(&studio, dialogue).await.unwrap(), None);
    cache.note(&studio, dialogue, one).await.unwrap();
    assert_eq!(cache.owner(&studio, dialogue).await.unwrap(), Some(one));
    assert_eq!(cache.owner(&rival, dialogue).await.unwrap(), None);
    cache.note(&studio, dialogue, two).await.unwrap();
    assert_eq!(cache.owner(&studio, dialogue).await.unwrap(), Some(two));
    cache.forget(&studio, dialogue).await.unwrap();
    cache.forget(&studio, dialogue).await.unwrap();
    assert_eq!(cache.owner(&studio, dialogue).await.unwrap(), None);

    let short = owners(url, cluster, Duration::from_millis(50));
    short.note(&studio, dialogue, one).await.unwrap();
    eventually("the owner to be forgotten", || async {
        short.owner(&studio, dialogue).await.unwrap().is_none().then_some(())
    })
    .await;

    kill();
    let gone = cache.owner(&studio, dialogue).await;
    assert!(matches!(gone, Err(StoreError::Unavailable(_))), "{gone:?}");
}
