//! Queries for facts: standing memory for recall, inputs for reconciliation, lists for people.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};

use super::super::{
    Connection, Engine, Row,
    rows::{Columns, into_page, json_list, page_row_limit, to_json, to_micros, vector_from_bytes, without_nul},
    statements::{fetch_all, fetch_one, fetch_optional},
};
use super::{
    confirm, fact_columns, newest_names, parse_polarity, parse_tense, read_fact, read_view,
    reconciliation::guarding_memories,
};
use colloquy_core::ids::{FactId, NpcId, TenantId, WorldId};
use colloquy_memory::{
    aliases,
    fact::{Fact, FactKind, InvalidReason, Invalidation, Viewpoint},
    reconcile::JudgeVerdict,
    text::to_hexadecimal,
};
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    ledger::facts::{
        Contradiction, FactFilter, FactHistoryEntry, MemoryPosition, NamingFact, RecallBody, RemovedStatement,
        StandingMemory,
    },
};

const SELECT_BODIES: &str = concat!(
    "SELECT f.id, f.version, f.subject, f.predicate, f.object, f.speaker, f.polarity, f.tense, f.kind,
        f.view_content, f.view_keywords, f.view_importance, f.view_pinned, f.valid_at, f.source_dialogue, f.source_turn, f.locked_by,
        f.private_to IS NOT NULL, e.vector
    FROM facts f LEFT JOIN fact_embeddings e ON e.tenant = f.tenant AND e.fact = f.id AND e.model = $3
    WHERE f.tenant = $1 AND f.id ",
    in_json_list!("$2")
);
const FACT_BY_ID: &str = concat!(
    "SELECT ",
    fact_columns!(),
    " FROM facts f WHERE f.tenant = $1 AND f.id = $2"
);
const FACTS_BY_ID: &str = concat!(
    "SELECT ",
    fact_columns!(),
    " FROM facts f WHERE f.tenant = $1 AND f.id ",
    in_json_list!("$2")
);

macro_rules! of_partition {
    () => {
        concat!(
            "k.tenant = $1 AND k.world = $2 AND k.knower = ",
            row_key!("p", 0),
            " AND k.private_to = ",
            row_key!("p", 1)
        )
    };
}
/// Selects the best facts of each partition (a knower and a privacy) straight from an index. A large memory therefore
/// costs no more than a small one, and ended facts cost nothing. Facts with a future end are few, and sorted. `$3`
/// lists the partitions; `$6` is a pattern of locks ([`hearer_pattern`]).
macro_rules! standing_class {
    ($class:expr) => {
        concat!(
            "SELECT k.fact FROM fact_knowers k WHERE ",
            of_partition!(),
            " AND ",
            $class,
            " AND +k.valid_at <= $4
             ORDER BY k.importance DESC, k.valid_at DESC, k.fact LIMIT $5"
        )
    };
}
macro_rules! is_pinned {
    () => {
        "k.pinned = TRUE AND k.ends_at IS NULL AND (k.locked_by NOT LIKE '%hearers:%' OR k.locked_by LIKE $6)"
    };
}
macro_rules! is_unlocked {
    () => {
        "k.mutable = TRUE AND k.ends_at IS NULL AND k.locked_by = ''"
    };
}
macro_rules! is_locked {
    () => {
        "k.mutable = TRUE AND k.ends_at IS NULL AND k.locked_by <> '' AND (k.locked_by NOT LIKE '%hearers:%' OR k.locked_by LIKE $6)"
    };
}
macro_rules! is_ending {
    () => {
        "(k.pinned = TRUE OR k.mutable = TRUE) AND k.ends_at > $4 AND (k.locked_by NOT LIKE '%hearers:%' OR k.locked_by LIKE $6)"
    };
}
/// Selects the latest removed facts of a partition, from an index of their own.
macro_rules! newest_taken_out {
    () => {
        concat!(
            "SELECT k.fact FROM fact_knowers k",
            by_index!("knowers_taken_out"),
            " WHERE ",
            of_partition!(),
            " AND k.taken_out = TRUE AND k.ends_at <= $4 ORDER BY k.ends_at DESC LIMIT $5"
        )
    };
}
const STANDING_FACTS: &str = facts_of_each!(
    fact_columns!(),
    json_arrays_table!("$3"),
    standing_class!(is_pinned!()),
    standing_class!(is_unlocked!()),
    standing_class!(is_locked!()),
    standing_class!(is_ending!()),
    newest_names!(concat!(" AND k.private_to = ", row_key!("p", 1))),
    newest_taken_out!(),
);
/// The same for a designer, who sees every privacy. The query has to sort.
macro_rules! standing_for_all {
    ($class:expr) => {
        concat!(
            "SELECT ",
            fact_columns!(),
            " FROM facts f
              WHERE f.tenant = $1 AND f.id IN (
                SELECT k.fact FROM fact_knowers k
                WHERE k.tenant = $1 AND k.world = $2
                  AND k.knower IN (SELECT ",
            row_key!("v", 0),
            " FROM ",
            json_arrays_table!("$3"),
            " v)
                  AND ",
            $class,
            " AND +k.valid_at <= $4
                GROUP BY k.fact
                ORDER BY MAX(k.importance) DESC, MAX(k.valid_at) DESC, k.fact LIMIT $5)"
        )
    };
}
const STANDING_FACTS_FOR_DESIGNER: &str = concat!(
    standing_for_all!(is_pinned!()),
    " UNION ALL ",
    standing_for_all!(is_unlocked!()),
    " UNION ALL ",
    standing_for_all!(is_locked!()),
    " UNION ALL ",
    standing_for_all!(is_ending!()),
);

const MEMORY_POSITION: &str = concat!(
    "SELECT CAST(COALESCE(SUM(memory_seq), 0) AS BIGINT), NOT EXISTS (SELECT 1 FROM outbox WHERE tenant = $1)
     FROM npc_memories WHERE tenant = $1 AND world = $2 AND npc ",
    in_json_list!("$3")
);
const SELECT_VERDICTS: &str = concat!(
    "SELECT pair, verdict FROM verdicts WHERE tenant = $1 AND pair ",
    in_json_list!("$2")
);

// The flagging fact is looked up as a value: in a join, Postgres would read all facts.
const LIST_FACTS: &str =
    "SELECT k.fact, k.valid_at FROM fact_knowers k JOIN facts f ON f.tenant = k.tenant AND f.id = k.fact
    WHERE k.tenant = $1 AND k.world = $2 AND k.knower = $3
      AND ($4 OR k.private_to = '' OR k.private_to = $5)
      AND k.valid_at >= $6 AND k.valid_at <= $7
      AND ($8 OR (k.valid_at <= $9 AND (k.ends_at IS NULL OR k.ends_at > $9)))
      AND ($10 IS NULL OR f.subject = $10) AND ($11 IS NULL OR f.kind = $11)
      AND ($12 IS NULL OR (k.valid_at, k.fact) < (SELECT valid_at, id FROM facts WHERE tenant = $1 AND id = $12))
      AND (NOT $14 OR EXISTS (SELECT 1 FROM fact_flags g
                              WHERE g.tenant = $1 AND g.fact = k.fact AND g.lifted_at IS NULL
                                AND (SELECT b.invalid_at IS NULL OR b.invalid_at > $9 FROM facts b
                                     WHERE b.tenant = $1 AND b.id = g.by_fact)))
    ORDER BY k.valid_at DESC, k.fact DESC LIMIT $13";
const CONTRADICTIONS: &str = concat!(
    "SELECT g.fact, g.by_fact, b.view_content, g.at FROM fact_flags g CROSS JOIN facts b
     WHERE g.tenant = $1 AND g.lifted_at IS NULL AND b.tenant = $1 AND b.id = g.by_fact
       AND (b.invalid_at IS NULL OR b.invalid_at > $3) AND g.fact ",
    in_json_list!("$2"),
    " ORDER BY g.at, g.by_fact"
);

macro_rules! invalidation_columns {
    () => {
        "i.id, i.fact, i.reason, i.by_fact, i.cause_kind, i.cause_id, i.at, i.lifted_at"
    };
}
const INVALIDATIONS_OF: &str = concat!(
    "SELECT ",
    invalidation_columns!(),
    " FROM invalidations i WHERE i.tenant = $1 AND i.fact = $2"
);
const INVALIDATED_BY: &str = concat!(
    "SELECT ",
    invalidation_columns!(),
    " FROM invalidations i WHERE i.tenant = $1 AND i.by_fact = $2 ORDER BY i.at, i.id"
);
const EDITS_OF: &str = "SELECT edit, at, patch FROM fact_edits WHERE tenant = $1 AND fact = $2";
const FLAGS_OF: &str = "SELECT by_fact, at FROM fact_flags WHERE tenant = $1 AND fact = $2 AND lifted_at IS NULL";

pub(super) async fn load_bodies(engine: &Engine, tenant: &TenantId, ids: &[FactId]) -> StoreResult<Vec<RecallBody>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut connection = engine.acquire_reader(tenant).await?;
    let rows = fetch_all!(connection, SELECT_BODIES; tenant, json_list(ids), engine.embedding_model).await?;
    drop(connection);
    rows.iter()
        .map(|row| {
            let columns = &mut Columns::new(row);
            Ok(RecallBody {
                id: columns.id()?,
                version: columns.number()?,
                subject: columns.next()?,
                predicate: columns.next()?,
                object: columns.next()?,
                speaker: columns.next()?,
                polarity: columns.parse_with(parse_polarity)?,
                tense: columns.parse_with(parse_tense)?,
                kind: FactKind::parse_lenient(columns.next()?),
                view: read_view(columns)?,
                valid_at: columns.time()?,
                source: super::read_source(columns)?,
                locks: columns.id()?,
                is_private: columns.next()?,
                embedding: vector_from_bytes(columns.next::<Option<&[u8]>>()?.unwrap_or_default())?.into(),
            })
        })
        .collect()
}

/// Returns a lock pattern for statements that a hearer of this viewpoint may have heard. The pattern is a first filter,
/// so that facts for other hearers do not use up the limit. `%` means no filter: no hearer is known, or NPCs gossip.
fn hearer_pattern(viewpoint: &Viewpoint, gossip: bool) -> String {
    let hearer = viewpoint.player.iter().chain(&viewpoint.watchers.players).next();
    match hearer.filter(|_| !viewpoint.sees_all_players && !gossip) {
        Some(player) => format!("%hearers:%{player}%"),
        None => "%".to_owned(),
    }
}

pub(super) async fn load_standing(
    engine: &Engine,
    tenant: &TenantId,
    viewpoint: &Viewpoint,
    gossip: bool,
    at: DateTime<Utc>,
    limit: u32,
) -> StoreResult<StandingMemory> {
    let mut connection = engine.acquire_reader(tenant).await?;
    let rows = fetch_all!(
        connection, if viewpoint.sees_all_players { STANDING_FACTS_FOR_DESIGNER } else { STANDING_FACTS };
        tenant, viewpoint.world, to_json(&confirm::readable_partitions(viewpoint))?, to_micros(at), i64::from(limit),
        hearer_pattern(viewpoint, gossip)
    )
    .await?;
    drop(connection);

    let by_weight = |a: &Fact, b: &Fact| {
        (b.view.importance, b.valid_at)
            .cmp(&(a.view.importance, a.valid_at))
            .then(a.id.cmp(&b.id))
    };
    let facts = rows
        .iter()
        .map(|row| read_fact(Columns::new(row)))
        .collect::<StoreResult<Vec<Fact>>>()?;
    let (mut standing, mut gone): (Vec<Fact>, Vec<Fact>) = facts.into_iter().partition(|fact| fact.is_valid_at(at));
    for facts in [&mut standing, &mut gone] {
        facts.sort_by(by_weight);
        facts.dedup_by_key(|fact| fact.id);
    }
    let replacing = standing.iter().flat_map(|fact| &fact.replaced_by).copied();
    let newer = confirm::find_usable(engine, tenant, viewpoint, replacing.collect(), at).await?;
    let is_replaced = |fact: &Fact| fact.replaced_by.iter().any(|by| newer.contains(by));
    let names = standing
        .iter()
        .filter(|fact| aliases::states_name(&fact.statement) && !is_replaced(fact));
    let names = names.map(NamingFact::from_fact).collect();
    standing.retain(|fact| fact.view.pinned || !is_replaced(fact));
    // At most `limit` facts of each class; a fact in two classes counts for both.
    let (mut pinned, mut unlocked, mut locked) = (0, 0, 0);
    standing.retain(|fact| {
        let (may_stand, is_locked) = (fact.may_stand(), !fact.locks.is_empty());
        let of = [
            (fact.view.pinned, &mut pinned),
            (may_stand && !is_locked, &mut unlocked),
            (may_stand && is_locked, &mut locked),
        ];
        of.into_iter().fold(false, |kept, (is, count)| {
            *count += u32::from(is);
            kept || (is && *count <= limit)
        })
    });
    let taken_out = gone.into_iter().filter_map(|fact| {
        let at = fact.invalid?.at;
        Some(RemovedStatement {
            content: fact.view.content,
            at,
        })
    });
    let mut taken_out: Vec<RemovedStatement> = taken_out.collect();
    taken_out.sort_by_key(|gone| std::cmp::Reverse(gone.at));
    Ok(StandingMemory {
        facts: standing,
        names,
        taken_out,
    })
}

pub(super) async fn load_memory_position(
    engine: &Engine,
    tenant: &TenantId,
    world: &WorldId,
    npcs: &[NpcId],
) -> StoreResult<MemoryPosition> {
    let mut connection = engine.acquire_reader(tenant).await?;
    let row = fetch_one!(connection, MEMORY_POSITION; tenant, world, guarding_memories(npcs)).await?;
    let columns = &mut Columns::new(&row);
    Ok(MemoryPosition {
        seq: u64::try_from(columns.next::<i64>()?).unwrap_or_default(),
        is_indexed: columns.next()?,
    })
}

pub(super) async fn load_verdicts(
    engine: &Engine,
    tenant: &TenantId,
    pairs: &[[u8; 32]],
) -> StoreResult<HashMap<[u8; 32], JudgeVerdict>> {
    if pairs.is_empty() {
        return Ok(HashMap::new());
    }
    let named: HashMap<String, [u8; 32]> = pairs.iter().map(|pair| (to_hexadecimal(pair), *pair)).collect();
    let mut connection = engine.acquire_reader(tenant).await?;
    let rows = fetch_all!(connection, SELECT_VERDICTS; tenant, json_list(named.keys())).await?;
    let mut verdicts = HashMap::with_capacity(rows.len());
    for row in &rows {
        let mut columns = Columns::new(row);
        let pair = named.get(columns.next::<&str>()?).copied();
        let verdict = columns.parse_with(JudgeVerdict::parse)?;
        verdicts.extend(pair.map(|pair| (pair, verdict)));
    }
    Ok(verdicts)
}

pub(super) async fn load_fact(connection: &mut Connection, tenant: &TenantId, id: FactId) -> StoreResult<Option<Fact>> {
    let row = fetch_optional!(connection, FACT_BY_ID; tenant, id).await?;
    row.as_ref().map(|row| read_fact(Columns::new(row))).transpose()
}

/// Lists facts, newest first. Each knower's partition is read in index order and only as far as the page needs.
pub(super) async fn list_facts(
    engine: &Engine,
    tenant: &TenantId,
    filter: &FactFilter,
    page: &PageRequest,
) -> StoreResult<Page<Fact>> {
    let viewpoint = &filter.viewpoint;
    let mut connection = engine.acquire_reader(tenant).await?;
    let mut found: Vec<(i64, FactId)> = Vec::new();
    for knower in viewpoint.knowers() {
        let rows = fetch_all!(
            connection, LIST_FACTS;
            tenant, viewpoint.world, knower.store_key(), viewpoint.sees_all_players, viewpoint.player,
            filter.from.map_or(i64::MIN, to_micros), filter.to.map_or(i64::MAX, to_micros), filter.include_invalid,
            to_micros(filter.at), filter.subject.as_deref().map(without_nul), filter.kind.map(FactKind::as_str),
            page.after.as_deref().map(without_nul), page_row_limit(page), filter.flagged
        )
        .await?;
        for row in &rows {
            let mut columns = Columns::new(row);
            let fact = columns.id()?;
            found.push((columns.next()?, fact));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.dedup();
    let page = into_page(found, page, |(_, fact)| fact.to_string());
    let rows = fetch_all!(connection, FACTS_BY_ID; tenant, json_list(page.items.iter().map(|(_, fact)| fact))).await?;
    let mut facts = rows
        .iter()
        .map(|row| read_fact(Columns::new(row)).map(|fact| (fact.id, fact)))
        .collect::<StoreResult<HashMap<_, _>>>()?;
    Ok(Page {
        items: page.items.iter().filter_map(|(_, fact)| facts.remove(fact)).collect(),
        next: page.next,
    })
}

pub(super) async fn load_contradictions(
    engine: &Engine,
    tenant: &TenantId,
    ids: &[FactId],
    at: DateTime<Utc>,
) -> StoreResult<Vec<Contradiction>> {
    let mut connection = engine.acquire_reader(tenant).await?;
    let rows = fetch_all!(connection, CONTRADICTIONS; tenant, json_list(ids), to_micros(at)).await?;
    rows.iter()
        .map(|row| {
            let mut columns = Columns::new(row);
            Ok(Contradiction {
                fact: columns.id()?,
                by: columns.id()?,
                content: columns.next()?,
                at: columns.time()?,
            })
        })
        .collect()
}

fn read_invalidation(row: &Row) -> StoreResult<Invalidation> {
    let mut columns = Columns::new(row);
    Ok(Invalidation {
        id: columns.id()?,
        fact: columns.id()?,
        reason: columns.parse_with(InvalidReason::parse)?,
        by: columns.maybe_id()?,
        cause: columns.cause()?,
        at: columns.time()?,
        lifted_at: columns.maybe_time()?,
    })
}

pub(super) async fn load_invalidated_by(
    engine: &Engine,
    tenant: &TenantId,
    id: FactId,
) -> StoreResult<Vec<Invalidation>> {
    let mut connection = engine.acquire_reader(tenant).await?;
    let rows = fetch_rows_of_fact(&mut connection, INVALIDATED_BY, tenant, id).await?;
    rows.iter().map(read_invalidation).collect()
}

pub(super) async fn load_history(engine: &Engine, tenant: &TenantId, id: FactId) -> StoreResult<Vec<FactHistoryEntry>> {
    let mut connection = engine.acquire_reader(tenant).await?;
    let mut entries: Vec<(DateTime<Utc>, FactHistoryEntry)> = Vec::new();
    for row in fetch_rows_of_fact(&mut connection, INVALIDATIONS_OF, tenant, id).await? {
        let invalidation = read_invalidation(&row)?;
        entries.push((invalidation.at, FactHistoryEntry::Invalidated(invalidation)));
    }
    for row in fetch_rows_of_fact(&mut connection, EDITS_OF, tenant, id).await? {
        let mut columns = Columns::new(&row);
        let (edit, at, patch) = (columns.id()?, columns.time()?, columns.json()?);
        entries.push((at, FactHistoryEntry::Edited { edit, at, patch }));
    }
    let mut merged = HashSet::new();
    for row in fetch_rows_of_fact(&mut connection, INVALIDATED_BY, tenant, id).await? {
        let by = read_invalidation(&row)?;
        if by.reason == InvalidReason::Duplicate && by.lifted_at.is_none() && merged.insert(by.fact) {
            entries.push((
                by.at,
                FactHistoryEntry::Merged {
                    from: by.fact,
                    at: by.at,
                },
            ));
        }
    }
    for row in fetch_rows_of_fact(&mut connection, FLAGS_OF, tenant, id).await? {
        let mut columns = Columns::new(&row);
        let (by, at) = (columns.id()?, columns.time()?);
        entries.push((at, FactHistoryEntry::Flagged { by, at }));
    }
    entries.sort_by_key(|(at, _)| *at);
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

async fn fetch_rows_of_fact(
    connection: &mut Connection,
    statement: &'static str,
    tenant: &TenantId,
    id: FactId,
) -> StoreResult<Vec<Row>> {
    fetch_all!(connection, statement; tenant, id).await
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn recall_queries_stay_on_their_indexes() {
            assert_searches(SELECT_BODIES, &["SEARCH f USING INDEX", "SEARCH e USING INDEX"]).await;
            assert_searches(
                STANDING_FACTS,
                &[
                    "knowers_pinned",
                    "knowers_mutable",
                    "knowers_locked",
                    "knowers_taken_out (tenant=? AND world=? AND knower=? AND private_to=? AND ends_at<?)",
                    "knowers_ending (tenant=? AND world=? AND knower=? AND private_to=? AND ends_at>?)",
                    "SEARCH f USING INDEX",
                ],
            )
            .await;
            assert_searches(LIST_FACTS, &["knowers_newest"]).await;
        }

        #[tokio::test]
        async fn fact_history_is_found_by_fact() {
            assert_searches(INVALIDATIONS_OF, &["invalidations_of_fact"]).await;
            assert_searches(INVALIDATED_BY, &["invalidations_by_fact"]).await;
            for statement in [FACT_BY_ID, FACTS_BY_ID, EDITS_OF, FLAGS_OF, CONTRADICTIONS, SELECT_VERDICTS] {
                assert_searches(statement, &[]).await;
            }
            assert_searches(MEMORY_POSITION, &["outbox_of_tenant (tenant=?)"]).await;
        }

        #[tokio::test]
        async fn standing_facts_and_lists_are_sorted_by_the_index() {
            assert!(!plan(LIST_FACTS).await.contains("TEMP B-TREE"));
            let standing = plan(STANDING_FACTS).await;
            // The query for facts with a future end.
            assert_eq!(standing.matches("TEMP B-TREE").count(), 1, "{standing}");
        }
    }
}
