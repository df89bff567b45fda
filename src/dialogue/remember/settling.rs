//! Memories from which something was unsaid, or into which something was put back: each is gone through once more.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use super::{judge::Judge, reconciling::Memory, resting::MarkKey};
use crate::{
    dialogue::{
        Services,
        jobs::{JobError, outbox::relay_or_log},
    },
    ids::NpcId,
    memory::fact::Knower,
    ports::{
        ledger::{facts::Writing, rewinds::Unsettled},
        llm::LlmError,
    },
    tenancy::TenantScope,
};

/// Marks settled in one go.
const MARKS: usize = 16;
/// Marks that could not be settled until one go gives up.
const MAX_FAILED: usize = 64;
/// Calls of a judge that one mark may need. Nearly all of what was said since it was judged when it was said.
const MARK_CALLS: usize = 32;

/// Settles memories from which something was unsaid, or into which something was put back. How many
/// were settled; there may be more. One that fails stays marked, rests, and holds up no other.
pub async fn settle_all(services: &Services, scope: &TenantScope) -> Result<usize, JobError> {
    let (mut passed, mut settled, mut failed) = (HashSet::new(), 0, 0);
    while settled < MARKS && failed < MAX_FAILED {
        // Those that were passed over are read again, so each reading reaches past them.
        let limit = u32::try_from(MARKS + 2 * passed.len()).unwrap_or(u32::MAX);
        let marks = services.ledger.rewinds.unsettled(scope, limit).await?;
        let marks = marks.into_iter().map(|mark| (MarkKey::of(scope, &mark), mark));
        let marks: Vec<(MarkKey, Unsettled)> = marks.filter(|(key, _)| !passed.contains(key)).collect();
        if marks.is_empty() {
            break;
        }
        for (key, mark) in marks {
            if settled == MARKS || failed == MAX_FAILED {
                break;
            }
            if services.resting.rests(&key, services.clock.now()) {
                passed.insert(key);
                continue;
            }
            failpoint!("settle.marked");
            if is_settled(services, scope, &mark, &key).await {
                settled += 1;
            } else {
                passed.insert(key);
                failed += 1;
            }
            failpoint!("settle.durable");
        }
    }
    if settled + failed > 0 {
        relay_or_log(services).await;
    }
    Ok(settled)
}

/// Tries to settle a memory, and notes it if that was not all.
async fn is_settled(services: &Services, scope: &TenantScope, mark: &Unsettled, key: &MarkKey) -> bool {
    let (error, away) = match settle(services, scope, mark, key).await {
        Ok(None) => {
            services.resting.settled(key);
            return true;
        }
        Ok(Some(away)) => (away.into(), true),
        Err(error) => (error, false),
    };
    tracing::warn!(
        tenant = %scope.tenant(), world = %mark.world, %error,
        "a memory could not be settled; it is tried again"
    );
    let base = Duration::from_secs(services.settings.jobs.retry_base_s);
    services.resting.failed(key.clone(), away, services.clock.now(), base);
    false
}

/// Where the judge is away, what needs no judge is written all the same, the mark stays, and why is returned. That is not
/// for ever: one that has nothing of use to say about a pair, or never in time, is then taken for silent.
async fn settle(
    services: &Services,
    scope: &TenantScope,
    mark: &Unsettled,
    key: &MarkKey,
) -> Result<Option<LlmError>, JobError> {
    let away = services.resting.away_for(key, services.clock.now());
    let patient = away < Duration::from_secs(services.settings.jobs.give_up_after_s);
    let world = services.ledger.authored.world(scope, &mark.world).await?;
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
    let memory = Memory {
        services,
        scope,
        world: mark.world.clone(),
        audience: mark.audience.clone(),
        npcs: npcs.into_iter().collect(),
    };
    let mut judge = Judge::new(services, scope, language, MARK_CALLS).patient(patient);
    let writing = Writing::Settling {
        mark: mark.clone(),
        whole: true,
    };
    // Large, and part of what every request that writes waits for.
    Box::pin(memory.settle(mark.since, &writing, &mut judge)).await?;
    Ok(judge.away().cloned())
}
