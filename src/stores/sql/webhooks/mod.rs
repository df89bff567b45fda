//! Webhooks. `events` writes the messages in the transactions of what they tell, `deliveries` claims them and stores
//! attempts, and `content` reads the objects of events.

mod content;
mod deliveries;
pub(super) mod events;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use self::events::Event;
use super::{
    audit,
    authored_resource::delete_rejection,
    context::{Connection, Engine, acquire_lock},
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, from_micros, json_list, to_json, to_micros, without_nul},
    scope::{LedgerLock, RowScope},
    statements::{execute, fetch_optional, fetch_scalar},
};
use colloquy_core::{
    ids::{MessageId, NodeId, TenantId, WebhookId},
    scope::TenantScope,
};
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    ledger::{
        audit::Edit,
        authored::DeleteOutcome,
        webhooks::{
            Attempt, AttemptRecord, BudgetWarning, BusyOwners, ClaimedMessages, DisabledReason, DueMessage,
            MessageClaim, Replay, SignatureKind, SigningKey, SigningKeys, Webhook, WebhookBacklog, WebhookChange,
            WebhookEditOutcome, WebhookEventType, WebhookStore,
        },
    },
};

pub(super) struct SqlWebhookStore(pub(super) Arc<Engine>);

/// The columns of [`read_webhook`].
macro_rules! webhook_columns {
    () => {
        "id, url, description, types, worlds, include_text, signature, key, old_keys, disabled, disabled_at,
            failing_since, version, created_at, updated_at"
    };
}
/// Binds the values of [`UPDATE_WEBHOOK`], and of [`INSERT_WEBHOOK`] with one more.
macro_rules! webhook_values {
    ($statement:expr, $tenant:expr, $webhook:expr) => {
        bind!(
            $statement;
            $tenant, $webhook.id, without_nul(&$webhook.url), without_nul(&$webhook.description),
            to_json(&$webhook.types)?, to_json(&$webhook.worlds)?, $webhook.include_text, $webhook.signature.as_str(),
            $webhook.keys.current.expose(), old_keys_json(&$webhook.keys)?,
            $webhook.disabled.map(DisabledReason::as_str), $webhook.disabled_at.map(to_micros),
            $webhook.failing_since.map(to_micros), i64::from($webhook.version), to_micros($webhook.updated_at),
            to_micros($webhook.created_at)
        )
    };
}

const COUNT_WEBHOOKS: &str = "SELECT COUNT(*) FROM webhooks WHERE tenant = $1";
const INSERT_WEBHOOK: &str =
    "INSERT INTO webhooks (tenant, id, url, description, types, worlds, include_text, signature,
        key, old_keys, disabled, disabled_at, failing_since, version, updated_at, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
const UPDATE_WEBHOOK: &str =
    "UPDATE webhooks SET url = $3, description = $4, types = $5, worlds = $6, include_text = $7,
        signature = $8, key = $9, old_keys = $10, disabled = $11, disabled_at = $12, failing_since = $13, version = $14,
        updated_at = $15, created_at = $16
    WHERE tenant = $1 AND id = $2";
const WEBHOOK_BY_ID: &str = concat!(
    "SELECT ",
    webhook_columns!(),
    " FROM webhooks WHERE tenant = $1 AND id = $2"
);
const LOCK_WEBHOOK: &str = concat!(
    "SELECT ",
    webhook_columns!(),
    " FROM webhooks WHERE tenant = $1 AND id = $2",
    for_update!()
);
const LIST_WEBHOOKS: &str = concat!(
    "SELECT ",
    webhook_columns!(),
    " FROM webhooks WHERE tenant = $1 AND ($2 IS NULL OR id > $2) ORDER BY id LIMIT $3"
);
const DELETE_WEBHOOK: [&str; 3] = [
    "DELETE FROM webhook_messages WHERE tenant = $1 AND webhook = $2",
    "DELETE FROM webhook_attempts WHERE tenant = $1 AND webhook = $2",
    "DELETE FROM webhooks WHERE tenant = $1 AND id = $2",
];
/// A test is for one webhook, whatever its types.
const INSERT_TEST: &str = "INSERT INTO webhook_messages (tenant, webhook, id, type, queue, object, data, at, status,
        attempts, due_at)
    SELECT tenant, id, $3, $4, $5, id, '{}', $6, 'pending', 0, $6 FROM webhooks
    WHERE tenant = $1 AND id = $2 AND disabled IS NULL";

fn read_webhook(columns: &mut Columns<'_>) -> StoreResult<Webhook> {
    Ok(Webhook {
        id: columns.id()?,
        url: columns.next()?,
        description: columns.next()?,
        types: columns.json()?,
        worlds: columns.json()?,
        include_text: columns.next()?,
        signature: columns.parse_with(SignatureKind::parse)?,
        keys: SigningKeys {
            current: SigningKey::new(columns.next()?),
            previous: {
                let old: Vec<(String, i64)> = columns.json()?;
                let read_key = |(key, until)| Ok((SigningKey::new(key), from_micros(until)?));
                old.into_iter().map(read_key).collect::<StoreResult<_>>()?
            },
        },
        disabled: {
            let reason: Option<&str> = columns.next()?;
            reason.and_then(DisabledReason::parse)
        },
        disabled_at: columns.maybe_time()?,
        failing_since: columns.maybe_time()?,
        version: columns.number()?,
        created_at: columns.time()?,
        updated_at: columns.time()?,
    })
}

fn old_keys_json(keys: &SigningKeys) -> StoreResult<String> {
    let old: Vec<(&str, i64)> = (keys.previous.iter())
        .map(|(key, until)| (key.expose(), to_micros(*until)))
        .collect();
    to_json(&old)
}

/// Reads the webhook and locks it against other edits.
async fn lock_webhook(connection: &mut Connection, tenant: &TenantId, id: WebhookId) -> StoreResult<Option<Webhook>> {
    let row = fetch_optional!(connection, LOCK_WEBHOOK; tenant, id).await?;
    row.map(|row| read_webhook(&mut Columns::new(&row))).transpose()
}

fn apply_change(webhook: &mut Webhook, change: WebhookChange, now: DateTime<Utc>) {
    let WebhookChange {
        url,
        description,
        types,
        worlds,
        include_text,
        enabled,
        rotation,
    } = change;
    if let Some(url) = url {
        webhook.url = url;
    }
    if let Some(description) = description {
        webhook.description = description;
    }
    if let Some(types) = types {
        webhook.types = types;
    }
    if let Some(worlds) = worlds {
        webhook.worlds = worlds;
    }
    if let Some(include_text) = include_text {
        webhook.include_text = include_text;
    }
    match enabled {
        Some(true) => {
            (webhook.disabled, webhook.disabled_at, webhook.failing_since) = (None, None, None);
        }
        Some(false) if webhook.disabled.is_none() => {
            (webhook.disabled, webhook.disabled_at) = (Some(DisabledReason::ByHand), Some(now));
        }
        _ => {}
    }
    if let Some((key, until)) = rotation {
        webhook.keys.rotate(key, now, until);
    }
    webhook.version += 1;
    webhook.updated_at = now;
}

/// Returns the event of a warning. The id names the level and the day, so a day has at most one such message.
fn warning_event(warning: &BudgetWarning) -> Event {
    let budget = warning.budget.as_str();
    let level = if warning.spent { "spent" } else { "near" };
    let day = warning.reached_at.date_naive();
    let data = json!({"level": level, "used": warning.used, "limit": warning.limit, "day": day.to_string()});
    // The id begins with the time: the same time for all warnings of the day.
    let midnight = day.and_time(chrono::NaiveTime::MIN).and_utc();
    Event::in_tenant(WebhookEventType::BudgetWarning, budget, data, midnight).caused_by(format!("{level}/{day}"))
}

#[async_trait]
impl WebhookStore for SqlWebhookStore {
    async fn create_webhook(
        &self,
        scope: &TenantScope,
        webhook: &Webhook,
        max_webhooks: u32,
        edit: &Edit,
    ) -> StoreResult<bool> {
        let tenant = scope.tenant().clone();
        let mut webhook = webhook.clone();
        let edit = edit.clone();
        webhook.version = 1;
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::TenantSettings).await?;
            let stored: i64 = fetch_scalar!(connection, COUNT_WEBHOOKS; tenant).await?;
            if stored >= i64::from(max_webhooks) {
                return Ok(false);
            }
            execute(connection, webhook_values!(INSERT_WEBHOOK, tenant, webhook)).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(true)
        })
        .await
    }
    async fn load_webhook(&self, scope: &TenantScope, id: WebhookId) -> StoreResult<Option<Webhook>> {
        let query = bind!(WEBHOOK_BY_ID; scope.tenant(), id);
        self.0.fetch_optional(scope, query, read_webhook).await
    }
    async fn list_webhooks(&self, scope: &TenantScope, page: &PageRequest) -> StoreResult<Page<Webhook>> {
        let query = bind!(LIST_WEBHOOKS; scope.tenant(), page_cursor(page), page_row_limit(page));
        fetch_page(&self.0, scope, query, page, read_webhook, |webhook| {
            webhook.id.to_string()
        })
        .await
    }
    async fn change_webhook(
        &self,
        scope: &TenantScope,
        id: WebhookId,
        change: &WebhookChange,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<WebhookEditOutcome> {
        let tenant = scope.tenant().clone();
        let change = change.clone();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| {
            let Some(mut webhook) = lock_webhook(connection, &tenant, id).await? else {
                return Ok(WebhookEditOutcome::NotFound);
            };
            if if_version.is_some_and(|expected| expected != webhook.version) {
                let stored = webhook.version;
                return Ok(WebhookEditOutcome::VersionMismatch { stored });
            }
            let was_disabled = webhook.disabled.is_some();
            apply_change(&mut webhook, change, edit.made_at);
            execute(connection, webhook_values!(UPDATE_WEBHOOK, tenant, webhook)).await?;
            if was_disabled && webhook.disabled.is_none() {
                deliveries::wake_messages(connection, &tenant, id, edit.made_at).await?;
            }
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(WebhookEditOutcome::Done(Box::new(webhook)))
        })
        .await
    }
    async fn delete_webhook(
        &self,
        scope: &TenantScope,
        id: WebhookId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome> {
        let tenant = scope.tenant().clone();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| {
            let stored = lock_webhook(connection, &tenant, id).await?;
            let version = stored.map(|webhook| i64::from(webhook.version));
            if let Some(refused) = delete_rejection(version, if_version) {
                return Ok(refused);
            }
            for statement in DELETE_WEBHOOK {
                execute!(connection, statement; tenant, id).await?;
            }
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(DeleteOutcome::Deleted)
        })
        .await
    }
    async fn list_due_webhooks(
        &self,
        now: DateTime<Utc>,
        busy: &BusyOwners,
        limit: u32,
    ) -> StoreResult<Vec<(TenantScope, WebhookId)>> {
        let query = bind!(
            deliveries::DUE_WEBHOOKS;
            to_micros(now), json_list(&busy.webhooks), i64::from(limit), json_list(&busy.tenants)
        );
        self.0
            .fetch_all(RowScope::All, query, |columns| {
                Ok((TenantScope::new(columns.id()?), columns.id()?))
            })
            .await
    }
    async fn claim_messages(&self, scope: &TenantScope, claim: &MessageClaim) -> StoreResult<Option<ClaimedMessages>> {
        let tenant = scope.tenant().clone();
        let claim = *claim;
        write_transaction!(self.0, scope, |connection| {
            deliveries::claim_messages(connection, &tenant, &claim).await
        })
        .await
    }
    async fn load_message_content(
        &self,
        scope: &TenantScope,
        message: &DueMessage,
        include_text: bool,
    ) -> StoreResult<Map<String, Value>> {
        let mut connection = self.0.acquire_reader(scope).await?;
        content::load_content(&mut connection, scope.tenant(), message, include_text).await
    }
    async fn record_attempt(&self, scope: &TenantScope, record: &AttemptRecord) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        let record = record.clone();
        write_transaction!(self.0, scope, |connection| {
            deliveries::record_attempt(connection, &tenant, &record).await
        })
        .await
    }
    async fn release_message_leases(&self, node: NodeId, now: DateTime<Utc>) -> StoreResult<()> {
        let query = bind!(deliveries::RELEASE_LEASES; node, to_micros(now));
        self.0.execute(RowScope::All, query).await.map(drop)
    }
    async fn list_attempts(
        &self,
        scope: &TenantScope,
        id: WebhookId,
        page: &PageRequest,
    ) -> StoreResult<Page<Attempt>> {
        let query = bind!(deliveries::LIST_ATTEMPTS; scope.tenant(), id, page_cursor(page), page_row_limit(page));
        fetch_page(&self.0, scope, query, page, deliveries::read_attempt, |attempt| {
            attempt.id.to_string()
        })
        .await
    }
    async fn replay_messages(
        &self,
        scope: &TenantScope,
        id: WebhookId,
        replay: &Replay,
        now: DateTime<Utc>,
        edit: &Edit,
    ) -> StoreResult<Option<u64>> {
        let tenant = scope.tenant().clone();
        let replay = replay.clone();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| {
            deliveries::replay_messages(connection, &tenant, id, &replay, now, &edit).await
        })
        .await
    }
    async fn queue_test_message(
        &self,
        scope: &TenantScope,
        id: WebhookId,
        edit: &Edit,
    ) -> StoreResult<Option<MessageId>> {
        let tenant = scope.tenant().clone();
        let edit = edit.clone();
        let message = MessageId::from_u128(edit.id.as_u128());
        write_transaction!(self.0, scope, |connection| {
            let kind = WebhookEventType::Test.as_str();
            let inserted_rows =
                execute!(connection, INSERT_TEST; tenant, id, message, kind, message, to_micros(edit.made_at)).await?;
            if inserted_rows == 0 {
                return Ok(None);
            }
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(Some(message))
        })
        .await
    }
    async fn queue_budget_warnings(&self, scope: &TenantScope, warnings: &[BudgetWarning]) -> StoreResult<()> {
        // A row of the list is unique.
        let unique: BTreeMap<MessageId, Event> = warnings
            .iter()
            .map(warning_event)
            .map(|event| (event.message_id(), event))
            .collect();
        let events: Vec<Event> = unique.into_values().collect();
        if events.is_empty() {
            return Ok(());
        }
        let tenant = scope.tenant().clone();
        let rows = events::event_rows_json(&events)?;
        self.0
            .execute(scope, bind!(events::INSERT_MESSAGES; tenant, rows))
            .await
            .map(drop)
    }
    async fn load_webhook_backlog(&self) -> StoreResult<WebhookBacklog> {
        let query = bind!(deliveries::BACKLOG);
        self.0
            .fetch_one(RowScope::All, query, |columns| {
                Ok(WebhookBacklog {
                    messages: columns.number()?,
                    oldest: columns.maybe_time()?,
                })
            })
            .await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn webhooks_are_found_by_id() {
            for statement in [WEBHOOK_BY_ID, UPDATE_WEBHOOK, INSERT_TEST] {
                assert_searches(statement, &["sqlite_autoindex_webhooks_1 (tenant=? AND id=?)"]).await;
            }
            for statement in DELETE_WEBHOOK {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
