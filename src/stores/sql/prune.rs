//! Deletion of rows past their retention time.
//!
//! Jobs and traces are found by id: ids begin with their creation time, so no index is needed for deletion alone.

mod first_ids;
mod unchanged;
mod unsaid;

use self::first_ids::first_id;
use super::{
    context::{Connection, Engine},
    rows::to_micros,
    statements::execute,
    usage::{DELETE_OLD_NPC_USAGE, DELETE_OLD_PLAYER_USAGE},
};
use colloquy_core::ids::{AttemptId, AuditId, JobId, TenantId, TurnId};
use colloquy_ports::{StoreResult, ledger::PruneBefore};

/// Keeps a job that ended with its unsaid turn while a save may make the turn stand again.
const DELETE_DONE_JOBS: &str = concat!(
    "DELETE FROM jobs WHERE tenant = $1 AND id ",
    in_subquery!(
        "SELECT id FROM jobs j WHERE tenant = $1 AND id < $2 AND status = 'done' AND finished_at < $3
        AND (last_error IS DISTINCT FROM 'unsaid'
            OR NOT EXISTS (SELECT 1 FROM save_items i WHERE i.tenant = $1 AND i.dialogue = j.dialogue))
        ORDER BY id LIMIT $4"
    )
);
/// Keeps a turn's trace while the turn has an unsaid or pending job: the trace shows what the turn only repeated. The
/// jobs are counted, because for `NOT EXISTS` Postgres would read all jobs.
const DELETE_OLD_TRACES: &str = concat!(
    "DELETE FROM traces WHERE tenant = $1 AND turn ",
    in_subquery!(
        "SELECT c.turn FROM traces c WHERE c.tenant = $1 AND c.turn < $2
         AND (SELECT COUNT(*) FROM turns t CROSS JOIN jobs j
            WHERE t.tenant = $1 AND t.id = c.turn AND j.tenant = $1 AND j.dialogue = t.dialogue AND j.turn = t.id
              AND (j.last_error = 'unsaid' OR j.status = 'pending')) = 0
         ORDER BY c.turn LIMIT $3"
    )
);
/// Keeps all verdicts while saves exist: a save may pin turns older than itself, and any verdict may be needed again.
const DELETE_OLD_VERDICTS: &str = concat!(
    "DELETE FROM verdicts WHERE tenant = $1 AND pair ",
    in_subquery!(
        "SELECT pair FROM verdicts WHERE tenant = $1 AND at < $2
         AND (SELECT MIN(s.id) FROM saves s WHERE s.tenant = $1) IS NULL ORDER BY at LIMIT $3"
    )
);
/// By then all revoked tokens have expired.
const DELETE_EXPIRED_REVOCATIONS: &str = "DELETE FROM revocations WHERE tenant = $1 AND (kind, name) IN (
        SELECT kind, name FROM revocations WHERE tenant = $1 AND matters_until < $2 ORDER BY matters_until LIMIT $3)";

/// Ids begin with the time of their line. A trigger refuses to delete a line of the last 30 days.
const DELETE_OLD_AUDIT: &str = concat!(
    "DELETE FROM audit WHERE tenant = $1 AND id ",
    in_subquery!("SELECT id FROM audit WHERE tenant = $1 AND id < $2 ORDER BY id LIMIT $3")
);

/// Messages of enabled webhooks stay until their end.
const DELETE_OLD_MESSAGES: &str = concat!(
    "DELETE FROM webhook_messages WHERE seq ",
    in_subquery!(
        "SELECT m.seq FROM webhook_messages m WHERE m.tenant = $1 AND m.at < $2
         AND (m.status <> 'pending' OR NOT EXISTS (SELECT 1 FROM webhooks w
            WHERE w.tenant = $1 AND w.id = m.webhook AND w.disabled IS NULL))
         ORDER BY m.at LIMIT $3"
    )
);
/// Ids begin with the time of their attempt.
const DELETE_OLD_ATTEMPTS: &str = concat!(
    "DELETE FROM webhook_attempts WHERE tenant = $1 AND id ",
    in_subquery!("SELECT id FROM webhook_attempts WHERE tenant = $1 AND id < $2 ORDER BY id LIMIT $3")
);

pub(super) async fn prune_expired(
    engine: &Engine,
    tenant: &TenantId,
    before: &PruneBefore,
    limit: u32,
) -> StoreResult<u64> {
    let unsaid = match before.unsaid {
        Some(cutoff) => unsaid::prune_unsaid(engine, tenant, cutoff, limit).await?,
        None => 0,
    };
    let unchanged = match before.unchanged {
        Some(cutoff) => unchanged::prune_unchanged(engine, tenant, cutoff, limit).await?,
        None => 0,
    };
    let tenant_id = tenant.clone();
    let before = *before;
    let deleted = write_transaction!(engine, tenant, |connection| {
        delete_expired_rows(connection, &tenant_id, &before, limit).await
    })
    .await?;
    Ok(unsaid + unchanged + deleted)
}

async fn delete_expired_rows(
    connection: &mut Connection,
    tenant: &TenantId,
    before: &PruneBefore,
    limit: u32,
) -> StoreResult<u64> {
    let limit = i64::from(limit);
    let mut deleted = 0;
    if let Some(cutoff) = before.done_jobs {
        deleted +=
            execute!(connection, DELETE_DONE_JOBS; tenant, first_id::<JobId>(cutoff), to_micros(cutoff), limit).await?;
    }
    if let Some(cutoff) = before.traces {
        deleted += execute!(connection, DELETE_OLD_TRACES; tenant, first_id::<TurnId>(cutoff), limit).await?;
    }
    if let Some(cutoff) = before.verdicts {
        deleted += execute!(connection, DELETE_OLD_VERDICTS; tenant, to_micros(cutoff), limit).await?;
    }
    if let Some(cutoff) = before.revocations {
        deleted += execute!(connection, DELETE_EXPIRED_REVOCATIONS; tenant, to_micros(cutoff), limit).await?;
    }
    if let Some(cutoff) = before.npc_usage {
        deleted += execute!(connection, DELETE_OLD_NPC_USAGE; tenant, cutoff.date_naive().to_string()).await?;
    }
    if let Some(cutoff) = before.audit {
        deleted += execute!(connection, DELETE_OLD_AUDIT; tenant, first_id::<AuditId>(cutoff), limit).await?;
    }
    if let Some(cutoff) = before.webhook_messages {
        deleted += execute!(connection, DELETE_OLD_MESSAGES; tenant, to_micros(cutoff), limit).await?;
        deleted += execute!(connection, DELETE_OLD_ATTEMPTS; tenant, first_id::<AttemptId>(cutoff), limit).await?;
    }
    if let Some(cutoff) = before.player_usage {
        deleted += execute!(connection, DELETE_OLD_PLAYER_USAGE; tenant, cutoff.date_naive().to_string()).await?;
    }
    Ok(deleted)
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn expired_rows_are_found_without_reading_the_rest() {
            assert_searches(DELETE_DONE_JOBS, &["sqlite_autoindex_jobs_1 (tenant=? AND id<?)"]).await;
            let indexes = ["(tenant=? AND turn<?)", "sqlite_autoindex_turns_1 (tenant=? AND id=?)", "jobs_once"];
            assert_searches(DELETE_OLD_TRACES, &indexes).await;
            assert_searches(DELETE_EXPIRED_REVOCATIONS, &["revocations_by_end (tenant=? AND matters_until<?)"]).await;
            let messages = ["webhook_messages_by_time (tenant=? AND at<?)", "INTEGER PRIMARY KEY (rowid=?)"];
            assert_searches(DELETE_OLD_MESSAGES, &messages).await;
            assert_searches(DELETE_OLD_ATTEMPTS, &["webhook_attempts_by_id (tenant=? AND id<?)"]).await;
            assert_searches(DELETE_OLD_AUDIT, &["audit_by_id (tenant=? AND id<?)"]).await;
            let verdicts = plan(DELETE_OLD_VERDICTS).await;
            // The first save is enough.
            assert!(verdicts.contains("verdicts_by_age") && !verdicts.contains("SCAN"), "{verdicts}");
        }
    }
}
