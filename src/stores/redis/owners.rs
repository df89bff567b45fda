//! Owners of dialogues, cached for all nodes: `{tenant}:d:{{dialogue}}:owner`, with a time to live.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{Redis, RedisOptions};
use colloquy_core::{
    ids::{DialogueId, NodeId},
    scope::TenantScope,
};
use colloquy_ports::{StoreError, StoreResult, owners::OwnerCache};

/// Owners in Redis. Cheap to clone.
#[derive(Clone)]
pub struct RedisOwners {
    redis: Arc<Redis>,
    ttl_ms: u64,
}

impl RedisOwners {
    /// Connects at the first call. `ttl` is the lifetime of an entry.
    ///
    /// # Errors
    /// [`StoreError::Rejected`]: the URL is invalid.
    pub fn new(options: &RedisOptions, ttl: Duration) -> StoreResult<Self> {
        Ok(Self {
            redis: Arc::new(Redis::new(options)?),
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1),
        })
    }
}

fn owner_key(scope: &TenantScope, dialogue: DialogueId) -> String {
    format!("{}:d:{{{dialogue}}}:owner", scope.tenant())
}

#[async_trait]
impl OwnerCache for RedisOwners {
    async fn load_owner(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Option<NodeId>> {
        let get = redis::Cmd::get(owner_key(scope, dialogue));
        let node_text: Option<String> = self
            .redis
            .run_command(async |connection| get.query_async(connection).await)
            .await?;
        node_text
            .map(|text| {
                text.parse()
                    .map_err(|_| StoreError::Corrupt(format!("{text} is no node")))
            })
            .transpose()
    }

    async fn record_owner(&self, scope: &TenantScope, dialogue: DialogueId, node: NodeId) -> StoreResult<()> {
        let command = redis::Cmd::pset_ex(owner_key(scope, dialogue), node.to_string(), self.ttl_ms);
        self.redis
            .run_command(async |connection| command.exec_async(connection).await)
            .await
    }

    async fn forget_owner(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<()> {
        let delete = redis::Cmd::del(owner_key(scope, dialogue));
        self.redis
            .run_command(async |connection| delete.exec_async(connection).await)
            .await
    }
}
