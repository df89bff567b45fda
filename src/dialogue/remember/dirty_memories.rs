//! Reconciles memories again after a rewind has unsaid or restored some of their facts.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use super::{judge::Judge, memory_update::AudienceMemory, reconcile_backoff::MarkKey};
use crate::{
    Services,
    jobs::{JobError, outbox::relay_or_log},
};
use colloquy_core::{ids::NpcId, scope::TenantScope};
use colloquy_memory::disclosure::audience::Knower;
use colloquy_ports::{
    ledger::{facts::ReconcileTrigger, rewinds::DirtyMemory},
    llm::LlmError,
};

/// The maximum number of marks reconciled in one run.
const MARKS_PER_RUN: usize = 16;
/// The number of failed marks after which a run gives up.
const MAX_FAILURES_PER_RUN: usize = 64;
/// The maximum number of judge calls for one mark. Nearly all pairs were judged when their lines were said.
const MAX_CALLS_PER_MARK: usize = 32;

/// Reconciles memories after a rewind has unsaid or restored some of their facts. Returns the number of reconciled
/// memories; more may remain. A failed memory stays marked, backs off, and delays no other memory.
pub async fn reconcile_dirty_memories(services: &Services, scope: &TenantScope) -> Result<usize, JobError> {
    let mut skipped = HashSet::new();
    let mut reconciled = 0;
    let mut failures = 0;
    while reconciled < MARKS_PER_RUN && failures < MAX_FAILURES_PER_RUN {
        // Skipped marks are read again, so each read reaches past them.
        let limit = u32::try_from(MARKS_PER_RUN + 2 * skipped.len()).unwrap_or(u32::MAX);
        let marks = services.ledger.rewinds.list_dirty_memories(scope, limit).await?;
        let marks = marks.into_iter().map(|mark| (MarkKey::for_mark(scope, &mark), mark));
        let marks: Vec<(MarkKey, DirtyMemory)> = marks.filter(|(key, _)| !skipped.contains(key)).collect();
        if marks.is_empty() {
            break;
        }
        for (key, mark) in marks {
            if reconciled == MARKS_PER_RUN || failures == MAX_FAILURES_PER_RUN {
                break;
            }
            if services.reconcile_backoff.is_backing_off(&key, services.clock.now()) {
                skipped.insert(key);
                continue;
            }
            failpoint!("settle.marked");
            if try_reconcile_mark(services, scope, &mark, &key).await {
                reconciled += 1;
            } else {
                skipped.insert(key);
                failures += 1;
            }
            failpoint!("settle.durable");
        }
    }
    if reconciled + failures > 0 {
        relay_or_log(services).await;
    }
    Ok(reconciled)
}

/// Tries to reconcile a memory, and records a failure or a partial result.
async fn try_reconcile_mark(services: &Services, scope: &TenantScope, mark: &DirtyMemory, key: &MarkKey) -> bool {
    let (error, is_away) = match reconcile_mark(services, scope, mark, key).await {
        Ok(None) => {
            services.reconcile_backoff.clear_mark(key);
            return true;
        }
        Ok(Some(outage)) => (outage.into(), true),
        Err(error) => (error, false),
    };
    tracing::warn!(
        tenant = %scope.tenant(), world = %mark.world, %error,
        "a memory could not be settled; it is tried again"
    );
    let base = Duration::from_secs(services.settings.jobs.retry_base_s);
    services
        .reconcile_backoff
        .record_failure(key.clone(), is_away, services.clock.now(), base);
    false
}

/// Reconciles a marked memory. If the judge is away, the part without a judge is written, the mark stays, and the error
/// is returned. After `jobs.give_up_after_s` without a useful or timely answer, the judge counts as silent.
async fn reconcile_mark(
    services: &Services,
    scope: &TenantScope,
    mark: &DirtyMemory,
    key: &MarkKey,
) -> Result<Option<LlmError>, JobError> {
    let away_for = services.reconcile_backoff.away_for(key, services.clock.now());
    let patient = away_for < Duration::from_secs(services.settings.jobs.give_up_after_s);
    let world = services.ledger.authored.load_world(scope, &mark.world).await?;
    let language = world.map(|world| world.language).unwrap_or_default();
    let npcs: BTreeSet<NpcId> = mark
        .audience
        .knowers
        .iter()
        .filter_map(|knower| match knower {
            Knower::Npc(npc) => Some(npc.clone()),
            Knower::Faction(_) | Knower::World => None,
        })
        .collect();
    let memory = AudienceMemory {
        services,
        scope,
        world: mark.world.clone(),
        audience: mark.audience.clone(),
        npcs: npcs.into_iter().collect(),
    };
    let mut judge = Judge::new(services, scope, language, MAX_CALLS_PER_MARK).with_patience(patient);
    let trigger = ReconcileTrigger::DirtyMemory {
        mark: mark.clone(),
        whole: true,
    };
    // The future is large, and belongs to every request that writes.
    Box::pin(memory.reconcile_since(mark.since, &trigger, &mut judge)).await?;
    Ok(judge.away_reason().cloned())
}
