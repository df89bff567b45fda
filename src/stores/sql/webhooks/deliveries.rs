//! Claims of messages, and the attempts to deliver them.
//!
//! `due_at` of a pending message is the time of the next attempt. A claim moves it to the end of the lease, so a message
//! of a dead node is due again by itself. Only the oldest pending message of a queue is claimed. A later message that is
//! due waits as long as the oldest, and is due when the oldest has ended.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::{
    super::{
        audit,
        context::Connection,
        rows::{Columns, json_list, to_micros, without_nul},
        statements::{execute, fetch_all, fetch_optional},
    },
    WEBHOOK_BY_ID, read_webhook,
};
use colloquy_core::ids::{TenantId, WebhookId};
use colloquy_ports::{
    StoreResult,
    ledger::{
        audit::Edit,
        webhooks::{
            AfterAttempt, Attempt, AttemptRecord, ClaimedMessages, DueMessage, MessageClaim, MessageStatus, Replay,
            WebhookEventType,
        },
    },
};

/// Selects webhooks with a due message. A disabled tenant's messages wait. Postgres would join an EXISTS, and read all
/// waiting messages.
pub(super) const DUE_WEBHOOKS: &str = concat!(
    "SELECT w.tenant, w.id FROM webhooks w
     WHERE w.disabled IS NULL AND NOT (w.id ",
    in_json_list!("$2"),
    ") AND NOT (w.tenant ",
    in_json_list!("$4"),
    ") AND (SELECT m.seq FROM webhook_messages m WHERE m.tenant = w.tenant AND m.webhook = w.id
            AND m.status = 'pending' AND m.due_at <= $1 ORDER BY m.due_at, m.seq LIMIT 1) IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM tenants t WHERE t.id = w.tenant AND t.enabled = FALSE)
     LIMIT $3"
);
/// Selects due messages. Messages that another node is just claiming are skipped.
const DUE_MESSAGES: &str = concat!(
    "SELECT m.seq, m.queue FROM webhook_messages m
     WHERE m.tenant = $1 AND m.webhook = $2 AND m.status = 'pending' AND m.due_at <= $3
     ORDER BY m.due_at, m.seq LIMIT $4",
    skip_locked!()
);
/// Selects the oldest pending message of each queue.
const QUEUE_HEADS: &str = concat!(
    "SELECT (SELECT MIN(m.seq) FROM webhook_messages m
        WHERE m.tenant = $1 AND m.webhook = $2 AND m.queue = q.value AND m.status = 'pending')
     FROM ",
    json_texts_table!("$3"),
    " q"
);
macro_rules! listed_seqs {
    ($list:literal) => {
        in_subquery!(concat!(
            "SELECT CAST(v.value AS BIGINT) FROM ",
            json_texts_table!($list),
            " v"
        ))
    };
}
/// The waiting messages of a webhook. `|| ''` keeps the engines from the indexes of waiting messages: the statement looks up a
/// few rows by their numbers.
macro_rules! waits_for_webhook {
    () => {
        "tenant || '' = $1 AND webhook || '' = $2 AND status || '' = 'pending'"
    };
}
/// Claims messages that are still due. Returns the claimed messages.
const CLAIM_MESSAGES: &str = concat!(
    "UPDATE webhook_messages SET due_at = $4, leased_to = $5
     WHERE ",
    waits_for_webhook!(),
    " AND due_at <= $3 AND seq ",
    listed_seqs!("$6"),
    " RETURNING seq, id, webhook, type, at, world, dialogue, object, data, attempts"
);
/// Lets due messages wait for the oldest message of their queue.
const DEFER_MESSAGES: &str = concat!(
    "UPDATE webhook_messages SET due_at = (SELECT h.due_at FROM webhook_messages h
        WHERE h.tenant = $1 AND h.webhook = $2 AND h.queue = webhook_messages.queue AND h.status = 'pending'
        ORDER BY h.seq LIMIT 1)
     WHERE ",
    waits_for_webhook!(),
    " AND seq ",
    listed_seqs!("$3")
);
const END_ATTEMPT: &str = "UPDATE webhook_messages
    SET status = $4, attempts = $5, due_at = $6, finished_at = $7, leased_to = NULL
    WHERE tenant = $1 AND seq = $2 AND leased_to = $3 AND status = 'pending' RETURNING queue";
/// Makes the next message of a queue due.
const PROMOTE_NEXT: &str = "UPDATE webhook_messages SET due_at = $4
    WHERE tenant = $1 AND webhook = $2 AND seq = (SELECT MIN(n.seq) FROM webhook_messages n
        WHERE n.tenant = $1 AND n.webhook = $2 AND n.queue = $3 AND n.status = 'pending')
      AND leased_to IS NULL AND attempts = 0 AND due_at > $4";
const INSERT_ATTEMPT: &str = "INSERT INTO webhook_attempts
        (tenant, id, webhook, message, type, number, at, duration_ms, delivered, status, detail)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
    WHERE EXISTS (SELECT 1 FROM webhooks WHERE tenant = $1 AND id = $3)
    ON CONFLICT (tenant, webhook, id) DO NOTHING";
const RECORD_SUCCESS: &str = "UPDATE webhooks SET failing_since = NULL
    WHERE tenant = $1 AND id = $2 AND failing_since IS NOT NULL";
const RECORD_FAILURE: &str = "UPDATE webhooks SET failing_since = $3
    WHERE tenant = $1 AND id = $2 AND failing_since IS NULL";
const DISABLE_WEBHOOK: &str = "UPDATE webhooks SET disabled = $3, disabled_at = $4, version = version + 1
    WHERE tenant = $1 AND id = $2 AND disabled IS NULL";
/// Of all tenants: the claims are those of a node.
pub(super) const RELEASE_LEASES: &str = "UPDATE webhook_messages SET due_at = $2, leased_to = NULL
    WHERE leased_to = $1 AND status = 'pending'";
pub(super) const LIST_ATTEMPTS: &str = "SELECT id, webhook, message, type, number, at, duration_ms, delivered, status,
        detail FROM webhook_attempts
    WHERE tenant = $1 AND webhook = $2 AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4";
/// Makes messages due again.
macro_rules! replay_messages {
    ($which:literal) => {
        concat!(
            "UPDATE webhook_messages SET status = 'pending', attempts = 0, due_at = $3, finished_at = NULL, leased_to = NULL
             WHERE tenant = $1 AND webhook = $2 AND ",
            $which
        )
    };
}
const REPLAY_MESSAGE: &str = replay_messages!("id = $4");
const REPLAY_FROM: &str = replay_messages!(
    "seq >= (SELECT f.seq FROM webhook_messages f WHERE f.tenant = $1 AND f.webhook = $2 AND f.id = $4)"
);
const REPLAY_SINCE: &str = replay_messages!("at >= $4");
/// A webhook that is enabled again gets its waiting messages at once.
const WAKE_MESSAGES: &str = "UPDATE webhook_messages SET due_at = $3, attempts = 0, leased_to = NULL
    WHERE tenant = $1 AND webhook = $2 AND status = 'pending'";
pub(super) const BACKLOG: &str = "SELECT COUNT(*), MIN(m.at) FROM webhooks w CROSS JOIN webhook_messages m
    WHERE w.disabled IS NULL AND m.tenant = w.tenant AND m.webhook = w.id AND m.status = 'pending'";

/// Due messages that a claim looks at: those behind an earlier message of their queue are deferred.
const LOOKED_AT: usize = 256;

fn read_message(columns: &mut Columns<'_>) -> StoreResult<DueMessage> {
    Ok(DueMessage {
        seq: columns.next()?,
        id: columns.id()?,
        webhook: columns.id()?,
        event: columns.parse_with(WebhookEventType::parse)?,
        occurred_at: columns.time()?,
        world: columns.maybe_id()?,
        dialogue: columns.maybe_id()?,
        object: columns.next()?,
        data: columns.json()?,
        attempts: columns.number()?,
    })
}

pub(super) fn read_attempt(columns: &mut Columns<'_>) -> StoreResult<Attempt> {
    Ok(Attempt {
        id: columns.id()?,
        webhook: columns.id()?,
        message: columns.id()?,
        event: columns.parse_with(WebhookEventType::parse)?,
        number: columns.number()?,
        sent_at: columns.time()?,
        duration_ms: columns.number()?,
        delivered: columns.next()?,
        status: columns.maybe_number()?,
        detail: columns.next()?,
    })
}

/// Claims the oldest message of each due queue.
pub(super) async fn claim_messages(
    connection: &mut Connection,
    tenant: &TenantId,
    claim: &MessageClaim,
) -> StoreResult<Option<ClaimedMessages>> {
    let webhook = claim.webhook;
    let Some(row) = fetch_optional!(connection, WEBHOOK_BY_ID; tenant, webhook).await? else {
        return Ok(None);
    };
    let stored = read_webhook(&mut Columns::new(&row))?;
    if stored.disabled.is_some() {
        return Ok(None);
    }
    let now = to_micros(claim.now);
    let rows = fetch_all!(connection, DUE_MESSAGES; tenant, webhook, now, to_i64(LOOKED_AT)).await?;
    let due: Vec<(i64, String)> = Columns::read_rows(&rows, |columns| Ok((columns.next()?, columns.next()?)))?;
    // Names of queues are ids, without characters that JSON escapes.
    let queues: BTreeSet<&str> = due.iter().map(|(_, queue)| queue.as_str()).collect();
    let rows = fetch_all!(connection, QUEUE_HEADS; tenant, webhook, json_list(queues)).await?;
    let heads: Vec<Option<i64>> = Columns::read_rows(&rows, |columns| columns.next())?;
    let heads: BTreeSet<i64> = heads.into_iter().flatten().collect();
    let claimed = json_list(heads.iter().take(claim.limit as usize));
    let rows = fetch_all!(
        connection, CLAIM_MESSAGES;
        tenant, webhook, now, to_micros(claim.until), claim.node, claimed
    )
    .await?;
    let mut messages = Columns::read_rows(&rows, read_message)?;
    messages.sort_by_key(|message| message.seq);
    let behind = json_list(due.iter().map(|(seq, _)| *seq).filter(|seq| !heads.contains(seq)));
    execute!(connection, DEFER_MESSAGES; tenant, webhook, behind).await?;
    Ok(Some(ClaimedMessages {
        webhook: stored,
        messages,
        has_more: due.len() == LOOKED_AT,
    }))
}

fn to_i64(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Stores an attempt, and what follows from it.
pub(super) async fn record_attempt(
    connection: &mut Connection,
    tenant: &TenantId,
    record: &AttemptRecord,
) -> StoreResult<()> {
    let attempt = &record.attempt;
    let now = to_micros(record.now);
    let (status, due_at) = match record.after {
        AfterAttempt::Delivered => (MessageStatus::Delivered, now),
        AfterAttempt::RetryAt(retry_at) => (MessageStatus::Pending, to_micros(retry_at)),
        AfterAttempt::GiveUp => (MessageStatus::Failed, now),
    };
    let finished = (status != MessageStatus::Pending).then_some(now);
    execute!(
        connection, INSERT_ATTEMPT;
        tenant, attempt.id, attempt.webhook, attempt.message, attempt.event.as_str(), i64::from(attempt.number),
        to_micros(attempt.sent_at), i64::try_from(attempt.duration_ms).unwrap_or(i64::MAX), attempt.delivered,
        attempt.status.map(i64::from), without_nul(&attempt.detail)
    )
    .await?;
    let queue_row = fetch_optional!(
        connection, END_ATTEMPT;
        tenant, record.seq, record.node, status.as_str(), i64::from(attempt.number), due_at, finished
    )
    .await?;
    if let Some(queue_row) = queue_row
        && finished.is_some()
    {
        let queue: String = Columns::new(&queue_row).next()?;
        execute!(connection, PROMOTE_NEXT; tenant, attempt.webhook, queue, now).await?;
    }
    if attempt.delivered {
        execute!(connection, RECORD_SUCCESS; tenant, attempt.webhook).await?;
    } else {
        execute!(connection, RECORD_FAILURE; tenant, attempt.webhook, to_micros(attempt.sent_at)).await?;
    }
    if let Some(reason) = record.disable {
        execute!(connection, DISABLE_WEBHOOK; tenant, attempt.webhook, reason.as_str(), now).await?;
    }
    Ok(())
}

/// Makes waiting messages due, after their webhook was enabled.
pub(super) async fn wake_messages(
    connection: &mut Connection,
    tenant: &TenantId,
    webhook: WebhookId,
    now: DateTime<Utc>,
) -> StoreResult<()> {
    execute!(connection, WAKE_MESSAGES; tenant, webhook, to_micros(now))
        .await
        .map(drop)
}

/// Makes messages due again. `None`: there is no such webhook or message.
pub(super) async fn replay_messages(
    connection: &mut Connection,
    tenant: &TenantId,
    webhook: WebhookId,
    replay: &Replay,
    now: DateTime<Utc>,
    edit: &Edit,
) -> StoreResult<Option<u64>> {
    if fetch_optional!(connection, WEBHOOK_BY_ID; tenant, webhook)
        .await?
        .is_none()
    {
        return Ok(None);
    }
    let now = to_micros(now);
    let replayed = match replay {
        Replay::Message(id) => execute!(connection, REPLAY_MESSAGE; tenant, webhook, now, *id).await?,
        Replay::From(id) => execute!(connection, REPLAY_FROM; tenant, webhook, now, *id).await?,
        Replay::Since(since) => execute!(connection, REPLAY_SINCE; tenant, webhook, now, to_micros(*since)).await?,
    };
    if replayed == 0 && !matches!(replay, Replay::Since(_)) {
        return Ok(None);
    }
    audit::record_audit(connection, tenant, edit).await?;
    Ok(Some(replayed))
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn due_messages_are_found_by_index() {
            assert_searches(DUE_MESSAGES, &["webhook_messages_due (tenant=? AND webhook=? AND due_at<?)"]).await;
            let of_queue = "webhook_messages_of_queue (tenant=? AND webhook=? AND queue=?)";
            assert_searches(QUEUE_HEADS, &[of_queue]).await;
            for statement in [CLAIM_MESSAGES, END_ATTEMPT] {
                assert_searches(statement, &["INTEGER PRIMARY KEY (rowid=?)"]).await;
            }
            assert_searches(DEFER_MESSAGES, &[of_queue]).await;
            assert_searches(PROMOTE_NEXT, &[of_queue]).await;
            assert_searches(RELEASE_LEASES, &["webhook_messages_leased (leased_to=?)"]).await;
            assert_searches(LIST_ATTEMPTS, &["(tenant=? AND webhook=?"]).await;
            assert_searches(REPLAY_MESSAGE, &["webhook_messages_by_id (tenant=? AND webhook=? AND id=?)"]).await;
            assert_searches(REPLAY_SINCE, &[]).await;
        }
    }
}
