//! The buffer port on Redis.
//!
//! A dialogue's buffer is one hash, `{tenant}:d:{{dialogue}}:buffer`. The dialogue is the hash tag, so other keys of
//! the dialogue would share the same slot of a cluster. The hash has the fields `epoch` and `head`, and each turn as
//! JSON under its number. Every call with more than one operation is a script. A script runs in one step, and a cluster
//! redirects scripts to a moved slot; transactions are not redirected.

use std::{
    str::FromStr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use async_trait::async_trait;
use redis::Script;

use super::{Redis, RedisOptions};
use colloquy_core::{ids::DialogueId, scope::TenantScope};
use colloquy_ports::{
    StoreError, StoreResult,
    buffer::{BufferHead, BufferSnapshot, BufferStore, BufferedTurn},
};

static LOAD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("load.lua")));
static REPLACE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("replace.lua")));
static APPEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("append.lua")));
static TRUNCATE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("truncate.lua")));

const EPOCH_FIELD: &str = "epoch";
const HEAD_FIELD: &str = "head";

const MAX_TTL_MS: u64 = 1 << 47;

/// Buffers in Redis. Cheap to clone.
#[derive(Clone)]
pub struct RedisBuffers {
    redis: Arc<Redis>,
    ttl_ms: u64,
}

impl RedisBuffers {
    /// Connects at the first call. `ttl` is the lifetime of a buffer after its last use.
    ///
    /// # Errors
    /// [`StoreError::Rejected`]: the URL is invalid.
    pub fn new(options: &RedisOptions, ttl: Duration) -> StoreResult<Self> {
        Ok(Self {
            redis: Arc::new(Redis::new(options)?),
            // Redis adds the time to live to the time of day and refuses an overflow. A few thousand years are enough.
            ttl_ms: u64::try_from(ttl.as_millis()).map_or(MAX_TTL_MS, |ms| ms.clamp(1, MAX_TTL_MS)),
        })
    }
}

#[async_trait]
impl BufferStore for RedisBuffers {
    async fn load_buffer(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Option<BufferSnapshot>> {
        let mut load = LOAD.key(buffer_key(scope, dialogue));
        load.arg(self.ttl_ms);
        let fields: Vec<(String, String)> = self
            .redis
            .run_command(async |connection| load.invoke_async(connection).await)
            .await?;
        if fields.is_empty() {
            return Ok(None);
        }
        parse_snapshot(fields).map(Some)
    }

    async fn replace_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        snapshot: &BufferSnapshot,
    ) -> StoreResult<()> {
        debug_assert!(snapshot.is_contiguous(), "the turns of a buffer follow each other");
        let mut replace = REPLACE.key(buffer_key(scope, dialogue));
        replace
            .arg(self.ttl_ms)
            .arg(EPOCH_FIELD)
            .arg(snapshot.head.epoch)
            .arg(HEAD_FIELD)
            .arg(head_text(snapshot.head));
        for turn in &snapshot.turns {
            replace.arg(turn.number).arg(to_json(turn)?);
        }
        self.redis
            .run_command(async |connection| replace.invoke_async(connection).await)
            .await
    }

    async fn append_turn(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        turn: &BufferedTurn,
        keep_from: u32,
    ) -> StoreResult<bool> {
        let mut append = APPEND.key(buffer_key(scope, dialogue));
        append
            .arg(self.ttl_ms)
            .arg(expected.epoch)
            .arg(head_text(expected))
            .arg(turn.id.to_string())
            .arg(turn.number)
            .arg(to_json(turn)?)
            .arg(keep_from);
        self.redis
            .run_command(async |connection| append.invoke_async(connection).await)
            .await
    }

    async fn truncate_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        last: u32,
        head: BufferHead,
    ) -> StoreResult<bool> {
        debug_assert!(head.epoch >= expected.epoch, "the epochs of a buffer never fall");
        let mut truncate = TRUNCATE.key(buffer_key(scope, dialogue));
        truncate
            .arg(self.ttl_ms)
            .arg(expected.epoch)
            .arg(head_text(expected))
            .arg(last)
            .arg(head.epoch)
            .arg(head_text(head));
        self.redis
            .run_command(async |connection| truncate.invoke_async(connection).await)
            .await
    }

    async fn remove_buffer(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<()> {
        let key = buffer_key(scope, dialogue);
        self.redis
            .run_command(async |connection| redis::cmd("UNLINK").arg(key).exec_async(connection).await)
            .await
    }

    async fn ping(&self) -> StoreResult<()> {
        self.redis
            .run_command(async |connection| redis::cmd("PING").exec_async(connection).await)
            .await
    }
}

fn buffer_key(scope: &TenantScope, dialogue: DialogueId) -> String {
    format!("{}:d:{{{dialogue}}}:buffer", scope.tenant())
}

/// Empty before the first turn.
fn head_text(head: BufferHead) -> String {
    head.turn.map(|turn| turn.to_string()).unwrap_or_default()
}

fn to_json(turn: &BufferedTurn) -> StoreResult<String> {
    serde_json::to_string(turn).map_err(|error| StoreError::Rejected(format!("a turn has no JSON form: {error}")))
}

fn parse_snapshot(fields: Vec<(String, String)>) -> StoreResult<BufferSnapshot> {
    let mut epoch = None;
    let mut head = None;
    let mut turns: Vec<BufferedTurn> = Vec::with_capacity(fields.len().saturating_sub(2));
    for (field, value) in fields {
        match field.as_str() {
            EPOCH_FIELD => epoch = Some(parse_field(&value)?),
            HEAD_FIELD if value.is_empty() => head = Some(None),
            HEAD_FIELD => head = Some(Some(parse_field(&value)?)),
            _ => turns.push(serde_json::from_str(&value).map_err(|error| corrupt_error(&error.to_string()))?),
        }
    }
    turns.sort_by_key(|turn| turn.number);
    Ok(BufferSnapshot {
        head: BufferHead {
            epoch: epoch.ok_or_else(|| corrupt_error("no epoch"))?,
            turn: head.ok_or_else(|| corrupt_error("no head"))?,
        },
        turns,
    })
}

fn parse_field<T: FromStr>(text: &str) -> StoreResult<T> {
    text.parse().map_err(|_| corrupt_error("a field does not parse"))
}

fn corrupt_error(reason: &str) -> StoreError {
    StoreError::Corrupt(format!("a buffer in Redis: {reason}"))
}
