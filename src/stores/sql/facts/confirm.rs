//! Selects the candidates that a viewpoint may use: valid, known to the viewpoint, and not replaced by another usable
//! fact.

use std::collections::{BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Utc};

use super::{
    super::{
        context::Engine,
        rows::{json_list, to_micros},
    },
    parse_replaced_by,
};
use colloquy_core::{
    ids::{FactId, PlayerId, TenantId},
    planted_leak,
};
use colloquy_memory::disclosure::{audience::Viewpoint, locks::DisclosureLocks};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::facts::{ConfirmedFact, FactConfirmation},
};

/// Selects a narrow row per candidate and knower. The search uses the primary key and not the knower, which needs a
/// search per candidate instead of per candidate and knower. The answer is a single row, because every row is a message
/// between two threads.
const SELECT_USABLE: &str = concat!(
    "SELECT string_agg(k.fact || ' ' || k.version || ' ' || k.locked_by || ' ' || CASE WHEN k.pinned THEN '' ELSE k.replaced_by END, ',') FROM fact_knowers k
     WHERE k.tenant = $1 AND k.fact ",
    in_json_list!("$2"),
    " AND ",
    unindexed!("k.knower"),
    " ",
    in_json_list!("$3"),
    " AND k.world = $4
      AND k.valid_at <= $5 AND (k.ends_at IS NULL OR k.ends_at > $5)
      AND (k.private_to = '' OR k.private_to = $6 OR $7)"
);

/// Selects facts that ended as duplicates, each with the newer equivalent fact.
const SELECT_DUPLICATES: &str = concat!(
    "SELECT d.id, n.id FROM facts d CROSS JOIN facts n
     WHERE d.tenant = $1 AND d.id ",
    in_json_list!("$2"),
    " AND d.invalid_reason = 'duplicate' AND n.tenant = $1 AND n.id = d.invalid_by AND n.valid_at >= d.valid_at"
);
/// The limit of repetitions of the same statement that are followed.
const MAX_DUPLICATE_CHAIN: usize = 16;

/// A candidate that is valid and known.
struct ConfirmedCandidate {
    confirmed: ConfirmedFact,
    locks: DisclosureLocks,
    replaced_by: Vec<FactId>,
}

pub(super) fn knower_keys(viewpoint: &Viewpoint) -> Vec<String> {
    viewpoint.knowers().map(|knower| knower.store_key()).collect()
}

/// Returns the partitions that a viewpoint may read: each knower with each privacy. A designer sees all privacies, so
/// each knower appears once.
pub(super) fn readable_partitions(viewpoint: &Viewpoint) -> Vec<(String, &str)> {
    let player = viewpoint.player.as_ref().filter(|_| !viewpoint.sees_all_players);
    let privacies = std::iter::once("").chain(player.map(PlayerId::as_str));
    privacies
        .flat_map(|privacy| knower_keys(viewpoint).into_iter().map(move |key| (key, privacy)))
        .collect()
}

pub(super) async fn confirm_candidates(
    engine: &Engine,
    tenant: &TenantId,
    viewpoint: &Viewpoint,
    ids: &[FactId],
    as_of: DateTime<Utc>,
) -> StoreResult<FactConfirmation> {
    let mut candidates = find_candidates(engine, tenant, viewpoint, ids, as_of).await?;
    let replacing = candidates
        .values()
        .flat_map(|candidate| &candidate.replaced_by)
        .copied();
    let newer = find_usable(engine, tenant, viewpoint, replacing.collect(), as_of).await?;
    let mut confirmation = FactConfirmation::default();
    // Each fact once, in the requested order.
    for id in ids {
        let Some(candidate) = candidates.remove(id) else {
            continue;
        };
        // A replacing fact is visible wherever the replaced fact is.
        if candidate.replaced_by.iter().any(|successor| newer.contains(successor)) {
            continue;
        }
        if candidate.locks.is_empty() || viewpoint.sees_all_players {
            confirmation.open.push(candidate.confirmed);
        } else {
            confirmation.locked.push((candidate.confirmed, candidate.locks));
        }
    }
    Ok(confirmation)
}

/// Returns the replacing facts that are valid and known to the viewpoint. A replacing fact that ended as a duplicate
/// counts as long as its newer equivalent does. A designer sees every privacy and therefore also facts that are
/// replaced only for some viewers, so the result for a designer is empty. Few facts are replaced, so queries are rare.
pub(super) async fn find_usable(
    engine: &Engine,
    tenant: &TenantId,
    viewpoint: &Viewpoint,
    replacing: BTreeSet<FactId>,
    as_of: DateTime<Utc>,
) -> StoreResult<HashSet<FactId>> {
    let mut usable = HashSet::new();
    if viewpoint.sees_all_players {
        return Ok(usable);
    }
    // Each replacing fact with its latest equivalent found so far.
    let mut latest: Vec<(FactId, FactId)> = replacing.into_iter().map(|fact| (fact, fact)).collect();
    for _ in 0..MAX_DUPLICATE_CHAIN {
        let ids: Vec<FactId> = latest.iter().map(|(_, now)| *now).collect();
        let candidates = find_candidates(engine, tenant, viewpoint, &ids, as_of).await?;
        let (valid, invalid): (Vec<_>, Vec<_>) = latest.into_iter().partition(|(_, now)| candidates.contains_key(now));
        usable.extend(valid.into_iter().map(|(fact, _)| fact));
        let ids: Vec<FactId> = invalid.iter().map(|(_, now)| *now).collect();
        let said_again = load_newer_duplicates(engine, tenant, &ids).await?;
        let next = invalid
            .iter()
            .filter_map(|(fact, now)| Some((*fact, *said_again.get(now)?)));
        latest = next.collect();
        if latest.is_empty() {
            break;
        }
    }
    Ok(usable)
}

/// Returns the newer fact of each fact that ended as a duplicate.
async fn load_newer_duplicates(
    engine: &Engine,
    tenant: &TenantId,
    ids: &[FactId],
) -> StoreResult<HashMap<FactId, FactId>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let query = bind!(SELECT_DUPLICATES; tenant, json_list(ids));
    let pairs = engine.fetch_all(tenant, query, |columns| Ok((columns.id()?, columns.id()?)));
    Ok(pairs.await?.into_iter().collect())
}

async fn find_candidates(
    engine: &Engine,
    tenant: &TenantId,
    viewpoint: &Viewpoint,
    ids: &[FactId],
    as_of: DateTime<Utc>,
) -> StoreResult<HashMap<FactId, ConfirmedCandidate>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let query = bind!(
        SELECT_USABLE;
        tenant, json_list(ids), json_list(knower_keys(viewpoint)), viewpoint.world, to_micros(as_of), viewpoint.player,
        viewpoint.sees_all_players || planted_leak!("facts.audience")
    );
    let packed: Option<String> = engine.fetch_one(tenant, query, |columns| columns.next()).await?;
    let entries = packed.as_deref().unwrap_or_default().split_terminator(',');
    entries
        .map(|entry| {
            let candidate =
                parse_candidate(entry).ok_or_else(|| StoreError::Corrupt(format!("`{entry}` is no candidate")))?;
            Ok((candidate.confirmed.fact, candidate))
        })
        .collect()
}

/// Parses a fact id, the version, the locks and the replacing facts, separated by spaces.
fn parse_candidate(entry: &str) -> Option<ConfirmedCandidate> {
    let mut parts = entry.splitn(4, ' ');
    Some(ConfirmedCandidate {
        confirmed: ConfirmedFact {
            fact: parts.next()?.parse().ok()?,
            version: parts.next()?.parse().ok()?,
        },
        locks: parts.next()?.parse().ok()?,
        replaced_by: parse_replaced_by(parts.next()?).ok()?,
    })
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn candidates_are_confirmed_by_key() {
            assert_searches(SELECT_USABLE, &["SEARCH k USING PRIMARY KEY (tenant=? AND fact=?"]).await;
            assert_searches(SELECT_DUPLICATES, &["sqlite_autoindex_facts_1 (tenant=? AND id=?)"]).await;
        }
    }
}
