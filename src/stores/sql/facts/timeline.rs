//! The input of reconciliation: the facts and extractions of a memory since a moment.

use std::collections::HashMap;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::{
    super::{
        joint_read::JointRead,
        rows::{Columns, from_micros, json_list, to_micros, vector_from_bytes},
    },
    SqlFactStore, fact_columns, read_fact,
    reconciliation::{guarding_memories, reconcile_memory},
    similarity, verdicts,
};
use colloquy_core::{
    ids::{DialogueId, FactId, InvalidationId, NpcId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    disclosure::audience::Audience,
    fact::InvalidReason,
    reconcile::JudgeVerdict,
    timeline::{JudgeBudgetShare, KnownFact, PastEdit, StoredEnd},
};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::facts::{
        Extraction, JudgedPair, MemoryPosition, ReconcileOutcome, Reconciliation, ReconciliationStore, TimelineRows,
    },
    vectors::{Candidate, SimilarFactsQuery},
};

/// A condition for ends that count. An end lifted by a person counts for the time until the lift.
macro_rules! end_counts {
    ($end:literal) => {
        concat!("(", $end, ".lifted_at IS NULL OR ", $end, ".lifted_by_kind = 'edit')")
    };
}
/// Selects the facts of a timeline. A promise may end by a turn of another memory, and reconciliation of this memory
/// does not decide that end. The query finds:
/// - the requested facts, facts said since the moment, and facts that name somebody;
/// - facts ended by turns since the moment, including ends that unsaid turns had caused;
/// - facts that people removed or corrected since the moment;
/// - once-pinned duplicates of any subject, with the absorbing facts. Such facts are few, and a subject may have
///   several spellings.
///
/// CROSS JOIN keeps the short list outside.
const TIMELINE_FACTS: &str = concat!(
    "WITH RECURSIVE found (id) AS (
        SELECT v.value FROM ",
    json_texts_table!("$5"),
    " v
        UNION
        SELECT id FROM facts WHERE tenant = $1 AND world = $2 AND audience = $3 AND valid_at >= $4
        UNION
        SELECT id FROM facts",
    by_index!("facts_that_name"),
    " WHERE tenant = $1 AND world = $2 AND audience = $3 AND predicate IN ('be named', '이름이다')
        UNION
        SELECT i.fact FROM extractions e CROSS JOIN invalidations i
        WHERE e.tenant = $1 AND e.world = $2 AND e.audience = $3 AND e.said_at >= $4
          AND i.tenant = $1 AND i.cause_id = e.turn
        UNION
        SELECT i.fact FROM invalidations i CROSS JOIN facts x
        WHERE i.tenant = $1 AND i.at >= $4 AND i.cause_kind = 'edit'
          AND x.tenant = $1 AND x.id = i.fact AND x.world = $2 AND x.audience = $3
        UNION
        SELECT c.fact FROM fact_edits c CROSS JOIN facts y
        WHERE c.tenant = $1 AND c.at >= $4
          AND y.tenant = $1 AND y.id = c.fact AND y.world = $2 AND y.audience = $3),
     pinned (id) AS (
        SELECT p.id FROM facts p
        WHERE p.tenant = $1 AND p.world = $2 AND p.audience = $3 AND p.pinned_once = TRUE
          AND EXISTS (SELECT 1 FROM invalidations i WHERE i.tenant = $1 AND i.fact = p.id AND i.reason = 'duplicate'
                      AND ",
    end_counts!("i"),
    ")
        UNION
        SELECT i.by_fact FROM pinned p CROSS JOIN invalidations i",
    by_index!("invalidations_of_fact"),
    "
        WHERE i.tenant = $1 AND i.fact = p.id AND i.reason = 'duplicate' AND i.by_fact IS NOT NULL AND ",
    end_counts!("i"),
    "),
     wanted (id) AS (SELECT id FROM found UNION SELECT id FROM pinned)
     SELECT f.audience = $3 AND f.world = $2, v.vector, f.written_at,
        (SELECT ",
    json_rows!(
        "'id', i.id, 'reason', i.reason, 'by', i.by_fact, 'at', i.at,
         'turn', CASE WHEN i.cause_kind = 'turn'
                       AND (i.reason NOT IN ('fulfilled', 'given_up', 'overdue')
                            OR EXISTS (SELECT 1 FROM extractions x
                                       WHERE x.tenant = $1 AND x.turn = i.cause_id AND x.audience = $3))
                  THEN i.cause_id END, 'restored_at', i.lifted_at"
    ),
    "
           FROM invalidations i WHERE i.tenant = $1 AND i.fact = f.id AND ",
    end_counts!("i"),
    "),
        (SELECT ",
    json_rows!(concat!(
        "'at', e.at, 'vector', ",
        hex_of_bytes!("CASE WHEN e.model_before = $6 THEN e.vector_before END"),
        ", 'patch', ",
        json_of!("e.patch")
    )),
    "
           FROM fact_edits e WHERE e.tenant = $1 AND e.fact = f.id), ",
    fact_columns!(),
    " FROM wanted w CROSS JOIN facts f
     LEFT JOIN fact_embeddings v ON v.tenant = $1 AND v.fact = f.id AND v.model = $6
     WHERE f.tenant = $1 AND f.id = w.id AND NOT EXISTS (SELECT 1 FROM invalidations u WHERE u.tenant = $1 AND u.fact = f.id AND u.reason = 'unsaid'
                       AND u.lifted_at IS NULL)"
);
const TIMELINE_EXTRACTIONS: &str =
    "SELECT e.turn, e.dialogue, e.number, e.npc, e.knowers, e.private_to, e.said_at, e.player, e.forget,
        e.injected, e.quoted, e.ends, e.room
    FROM extractions e CROSS JOIN turns t
    WHERE e.tenant = $1 AND e.world = $2 AND e.audience = $3 AND e.said_at >= $4
      AND t.tenant = $1 AND t.id = e.turn AND t.stands = TRUE
    ORDER BY e.said_at, e.turn";

const ASKED_TO_FORGET: &str = "SELECT e.forget FROM turns t CROSS JOIN extractions e
    WHERE t.tenant = $1 AND t.dialogue = $2 AND t.stands = TRUE AND t.number BETWEEN $3 AND $4
      AND e.tenant = $1 AND e.turn = t.id AND e.forget <> '[]'
    ORDER BY t.number, e.audience";

const FORGOTTEN_TURNS: &str = "SELECT t.number
    FROM turns t CROSS JOIN facts f CROSS JOIN invalidations i CROSS JOIN turns c
    WHERE t.tenant = $1 AND t.dialogue = $2 AND t.stands = TRUE AND t.number <= $3
      AND f.tenant = $1 AND f.cause_id = t.id AND f.cause_kind = 'turn'
      AND i.tenant = $1 AND i.fact = f.id AND i.lifted_at IS NULL AND i.reason = 'forgotten' AND i.cause_kind = 'turn'
      AND c.tenant = $1 AND c.id = i.cause_id AND c.dialogue = $2 AND c.number <= $3
    UNION SELECT t.number FROM turns t CROSS JOIN extractions e
    WHERE t.tenant = $1 AND t.dialogue = $2 AND t.stands = TRUE AND t.number <= $3
      AND e.tenant = $1 AND e.turn = t.id AND e.forget <> '[]'
    ORDER BY 1";

const MEMORY_POSITION: &str = concat!(
    "SELECT CAST(COALESCE(SUM(memory_seq), 0) AS BIGINT), NOT EXISTS (SELECT 1 FROM outbox WHERE tenant = $1)
     FROM npc_memories WHERE tenant = $1 AND world = $2 AND npc ",
    in_json_list!("$3")
);
#[derive(Deserialize)]
struct FactEndRow {
    id: InvalidationId,
    reason: String,
    #[serde(rename = "by")]
    ended_by: Option<FactId>,
    #[serde(rename = "at")]
    ended_at: i64,
    turn: Option<TurnId>,
    restored_at: Option<i64>,
}

#[derive(Deserialize)]
struct PastEditRow {
    #[serde(rename = "at")]
    edited_at: i64,
    /// Hexadecimal; empty if the wording did not change or another model embedded it.
    vector: Option<String>,
    patch: PastEditPatch,
}

/// The parts of a person's correction that affect how a fact is judged.
#[derive(Deserialize)]
struct PastEditPatch {
    content: Option<String>,
    keywords: Option<Vec<String>>,
    pinned: Option<bool>,
    restored: Option<bool>,
}

impl FactEndRow {
    fn into_ended(self) -> StoreResult<StoredEnd> {
        Ok(StoredEnd {
            reason: InvalidReason::parse(&self.reason)
                .ok_or_else(|| StoreError::Corrupt(format!("unknown reason `{}`", self.reason)))?,
            id: self.id,
            ended_by: self.ended_by,
            turn: self.turn,
            ended_at: from_micros(self.ended_at)?,
            restored_at: self.restored_at.map(from_micros).transpose()?,
        })
    }
}

impl PastEditRow {
    fn into_past_edit(self) -> StoreResult<PastEdit> {
        let vector = self.vector.filter(|text| !text.is_empty());
        Ok(PastEdit {
            edited_at: from_micros(self.edited_at)?,
            vector_before: vector.as_deref().map(vector_from_hexadecimal).transpose()?,
            content: self.patch.content,
            keywords: self.patch.keywords,
            pinned: self.patch.pinned,
            restored: self.patch.restored.unwrap_or(false),
        })
    }
}

fn vector_from_hexadecimal(hexadecimal: &str) -> StoreResult<Vec<f32>> {
    let corrupt = || StoreError::Corrupt("a vector that is not hexadecimal".to_owned());
    let bytes = (0..hexadecimal.len() / 2)
        .map(|index| {
            let digits = hexadecimal.get(2 * index..2 * index + 2).ok_or_else(corrupt)?;
            u8::from_str_radix(digits, 16).map_err(|_| corrupt())
        })
        .collect::<StoreResult<Vec<u8>>>()?;
    vector_from_bytes(&bytes)
}

/// Reads a fact with its history, and whether the fact belongs to the requested memory.
fn read_known_fact(columns: &mut Columns<'_>) -> StoreResult<(bool, KnownFact)> {
    let is_local: bool = columns.next()?;
    let vector = columns.maybe_vector()?;
    let written_at = columns.time()?;
    let ends = columns
        .json::<Vec<FactEndRow>>()?
        .into_iter()
        .map(FactEndRow::into_ended);
    let edits = columns
        .json::<Vec<PastEditRow>>()?
        .into_iter()
        .map(PastEditRow::into_past_edit);
    let mut edits: Vec<PastEdit> = edits.collect::<StoreResult<_>>()?;
    edits.sort_by_key(|edit| edit.edited_at);
    let known_fact = KnownFact {
        fact: read_fact(columns)?,
        vector,
        written_at,
        edits,
        ends: ends.collect::<StoreResult<_>>()?,
        foreign: !is_local,
    };
    Ok((is_local, known_fact))
}

fn read_extraction(columns: &mut Columns<'_>) -> StoreResult<Extraction> {
    Ok(Extraction {
        turn: columns.id()?,
        dialogue: columns.id()?,
        number: columns.number()?,
        npc: columns.id()?,
        audience: Audience {
            knowers: columns.json()?,
            private_to: columns.maybe_id()?,
        },
        said_at: columns.time()?,
        player: columns.maybe_id()?,
        forget: columns.json()?,
        injected: columns.json()?,
        quoted: columns.json()?,
        ends: columns.json()?,
        room: JudgeBudgetShare::from_quarters(columns.number()?)
            .ok_or_else(|| StoreError::Corrupt("a share of more than four quarters".to_owned()))?,
    })
}

fn read_memory_position(columns: &mut Columns<'_>) -> StoreResult<MemoryPosition> {
    Ok(MemoryPosition {
        seq: columns.number()?,
        is_indexed: columns.next()?,
    })
}

#[async_trait]
impl ReconciliationStore for SqlFactStore {
    async fn memory_position(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
    ) -> StoreResult<MemoryPosition> {
        let query = bind!(MEMORY_POSITION; scope.tenant(), world, guarding_memories(npcs));
        self.0.fetch_one(scope, query, read_memory_position).await
    }
    async fn load_timeline(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        audience: &Audience,
        since: DateTime<Utc>,
        ids: &[FactId],
    ) -> StoreResult<TimelineRows> {
        let tenant = scope.tenant();
        let audience = audience.audience_key();
        let since = to_micros(since);
        let mut read = JointRead::new();
        let facts = read.add(TIMELINE_FACTS, |query| {
            let listed = json_list(ids);
            Ok(bind_to!(query; tenant, world, audience, since, listed, self.0.embedding_model))
        });
        let extractions = read.add(TIMELINE_EXTRACTIONS, |query| {
            Ok(bind_to!(query; tenant, world, audience, since))
        });
        let found = read.fetch(&self.0, scope).await?;
        let mut rows = TimelineRows {
            known_facts: Vec::new(),
            foreign_facts: HashMap::new(),
            extractions: found.read_rows(extractions, read_extraction)?,
        };
        for (is_local, fact) in found.read_rows(facts, read_known_fact)? {
            // A conclusion only shows that a line repeats its prompt. The replay decides about the premises.
            if is_local && !fact.fact.is_conclusion() {
                rows.known_facts.push(fact);
                continue;
            }
            if fact.fact.authored && fact.fact.world == *world {
                rows.known_facts.push(fact.clone());
            }
            rows.foreign_facts.insert(fact.fact.id, fact.fact);
        }
        Ok(rows)
    }
    async fn find_similar_facts(
        &self,
        scope: &TenantScope,
        with: SimilarFactsQuery<'_>,
    ) -> StoreResult<Vec<Candidate>> {
        similarity::find_similar_facts(&self.0, scope, with).await
    }
    async fn list_forget_requests(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        from: u32,
        to: u32,
    ) -> StoreResult<Vec<String>> {
        let query = bind!(ASKED_TO_FORGET; scope.tenant(), dialogue, i64::from(from), i64::from(to));
        let requests: Vec<Vec<String>> = self.0.fetch_all(scope, query, |columns| columns.json()).await?;
        Ok(requests.into_iter().flatten().collect())
    }
    async fn list_forgotten_turns(&self, scope: &TenantScope, dialogue: DialogueId, to: u32) -> StoreResult<Vec<u32>> {
        let query = bind!(FORGOTTEN_TURNS; scope.tenant(), dialogue, i64::from(to));
        self.0.fetch_all(scope, query, |columns| columns.number()).await
    }
    async fn load_verdicts(
        &self,
        scope: &TenantScope,
        pairs: &[[u8; 32]],
    ) -> StoreResult<HashMap<[u8; 32], JudgeVerdict>> {
        verdicts::load_verdicts(&self.0, scope.tenant(), pairs).await
    }
    async fn store_verdicts(&self, scope: &TenantScope, judged: &[JudgedPair]) -> StoreResult<()> {
        verdicts::store_verdicts(&self.0, scope.tenant(), judged).await
    }
    async fn commit_reconciliation(
        &self,
        scope: &TenantScope,
        result: &Reconciliation,
    ) -> StoreResult<ReconcileOutcome> {
        reconcile_memory(&self.0, scope.tenant(), result).await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn timeline_is_read_from_its_moment() {
            let plan = plan(TIMELINE_FACTS).await;
            // Only lists of wanted rows are scanned, no tables.
            let walked = plan.lines().map(str::trim).filter_map(|step| step.strip_prefix("SCAN "));
            for list in walked {
                assert!(
                    ["v VIRTUAL TABLE INDEX 1:", "found", "n", "o", "p", "pinned", "w"].contains(&list),
                    "{list} in\n{plan}"
                );
            }
            for part in [
                "SCAN w\n",
                "facts_pinned_once (tenant=? AND world=? AND audience=?)",
                "facts_that_name (tenant=? AND world=? AND audience=?)",
                "facts_in_order (tenant=? AND world=? AND audience=? AND valid_at>?)",
                "extractions_in_order (tenant=? AND world=? AND audience=? AND said_at>?)",
                "invalidations_by_cause",
                "invalidations_by_hand (tenant=? AND at>?)",
                "fact_edits_in_order (tenant=? AND at>?)",
            ] {
                assert!(plan.contains(part), "no `{part}` in\n{plan}");
            }
            assert_searches(TIMELINE_EXTRACTIONS, &["extractions_in_order"]).await;
            let indexes = ["turns_standing (tenant=? AND dialogue=? AND number>? AND number<?)", "(tenant=? AND turn=?)"];
            assert_searches(ASKED_TO_FORGET, &indexes).await;
            let indexes = ["turns_standing (tenant=? AND dialogue=? AND number<?)", "facts_by_cause", "invalidations_of_fact"];
            assert_searches(FORGOTTEN_TURNS, &indexes).await;
            assert_searches(MEMORY_POSITION, &["outbox_of_tenant (tenant=?)"]).await;
        }
    }
}
