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

use crate::support::{RedisServer, eventually};

fn owners(server: &RedisServer, ttl: Duration) -> RedisOwners {
    let options = RedisOptions {
        url: server.url(),
        cluster: false,
        timeout: Duration::from_secs(10),
    };
    RedisOwners::new(&options, ttl).unwrap()
}

#[tokio::test]
async fn an_owner_is_remembered_for_a_while_and_for_its_tenant() {
    let mut server = RedisServer::start().await;
    let cache = owners(&server, Duration::from_mins(10));
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

    let short = owners(&server, Duration::from_millis(50));
    short.note(&studio, dialogue, one).await.unwrap();
    eventually("the owner to be forgotten", || async {
        short.owner(&studio, dialogue).await.unwrap().is_none().then_some(())
    })
    .await;

    server.kill();
    let gone = cache.owner(&studio, dialogue).await;
    assert!(matches!(gone, Err(StoreError::Unavailable(_))), "{gone:?}");
}
