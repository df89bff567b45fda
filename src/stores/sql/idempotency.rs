//! Stored answers of `Idempotency-Key` requests.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    context::Engine,
    rows::{Columns, to_micros},
    scope::RowScope,
    statements::{execute, fetch_optional},
};
use colloquy_core::scope::TenantScope;
use colloquy_ports::{
    StoreResult,
    ledger::idempotency::{IdempotencyStore, KeyState},
};

pub(super) struct SqlIdempotencyStore(pub(super) Arc<Engine>);

/// The age in microseconds at which an unanswered reservation is free again: its process has died.
const RESERVED_FOR_MICROS: i64 = 60_000_000;

const RESERVE_KEY: &str = "INSERT INTO idempotency (tenant, key, fingerprint, reserved_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (tenant, key) DO UPDATE
        SET fingerprint = excluded.fingerprint, reserved_at = excluded.reserved_at
        WHERE idempotency.status IS NULL AND idempotency.reserved_at <= $5";
const FIND_KEY: &str = "SELECT fingerprint, status, body FROM idempotency WHERE tenant = $1 AND key = $2";
const STORE_RESPONSE: &str = "UPDATE idempotency SET status = $3, body = $4
    WHERE tenant = $1 AND key = $2 AND status IS NULL";
const RELEASE_KEY: &str = "DELETE FROM idempotency WHERE tenant = $1 AND key = $2 AND status IS NULL";
const DELETE_OLD_KEYS: &str = "DELETE FROM idempotency WHERE reserved_at < $1";

#[async_trait]
impl IdempotencyStore for SqlIdempotencyStore {
    async fn reserve_key(
        &self,
        scope: &TenantScope,
        key: &str,
        fingerprint: &[u8; 32],
        now: DateTime<Utc>,
    ) -> StoreResult<KeyState> {
        let tenant = scope.tenant().clone();
        let key = key.to_owned();
        let fingerprint = fingerprint.to_vec();
        write_transaction!(self.0, scope, |connection| {
            let reserved = execute!(
                connection, RESERVE_KEY;
                tenant, key, fingerprint, to_micros(now), to_micros(now) - RESERVED_FOR_MICROS
            )
            .await?;
            if reserved == 1 {
                return Ok(KeyState::Reserved);
            }
            let row = fetch_optional!(connection, FIND_KEY; tenant, key).await?;
            // The key was released after the reservation attempt, during which the key was in use.
            let Some(row) = row else { return Ok(KeyState::InFlight) };
            let mut columns = Columns::new(&row);
            let stored: Vec<u8> = columns.next()?;
            if stored != fingerprint {
                return Ok(KeyState::Mismatch);
            }
            let Some(status) = columns.maybe_number()? else {
                return Ok(KeyState::InFlight);
            };
            let body = columns.next::<Option<String>>()?.unwrap_or_default();
            Ok(KeyState::Answered { status, body })
        })
        .await
    }
    async fn record_answer(&self, scope: &TenantScope, key: &str, status: u16, body: &str) -> StoreResult<()> {
        let query = bind!(STORE_RESPONSE; scope.tenant(), key, i64::from(status), body);
        self.0.execute(scope, query).await.map(drop)
    }
    async fn release_key(&self, scope: &TenantScope, key: &str) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        let key = key.to_owned();
        write_transaction!(self.0, scope, |connection| {
            execute!(connection, RELEASE_KEY; tenant, key).await.map(drop)
        })
        .await
    }
    async fn forget_answers_before(&self, before: DateTime<Utc>) -> StoreResult<()> {
        let query = bind!(DELETE_OLD_KEYS; to_micros(before));
        self.0.execute(RowScope::All, query).await.map(drop)
    }
}
