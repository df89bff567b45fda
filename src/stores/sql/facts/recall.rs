//! Reads for a turn: standing memory, names, and the words of facts for recall without an index.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    super::{
        context::Engine,
        rows::{Columns, json_list, to_json, to_micros},
        statements::BoundQuery,
    },
    SqlFactStore, confirm, fact_columns, lists, parse_replaced_by, read_fact, read_importance, read_polarity,
    read_source, read_tense, read_view,
};
use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::{
    aliases,
    disclosure::audience::Viewpoint,
    fact::{Fact, FactKind, InvalidReason},
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        facts::{
            FactConfirmation, KeywordFact, NamingFact, RecallBody, RecallStore, StandingMemory, Supersession,
            add_requests, list_next_corrections, list_removed_statements,
        },
        turn_memory::StandingRequest,
    },
};

/// The most corrections, each of the one before, that a turn follows to the sentence that holds. Each takes a query.
const MAX_CORRECTIONS_IN_A_ROW: usize = 16;

const SELECT_BODIES: &str = concat!(
    "SELECT f.id, f.version, f.subject, f.predicate, f.object, f.speaker, f.polarity, f.tense, f.kind,
        f.view_content, f.view_keywords, f.view_importance, f.view_pinned, f.valid_at, f.source_dialogue, f.source_turn, f.locked_by,
        f.private_to IS NOT NULL, f.knowers, e.vector
    FROM facts f LEFT JOIN fact_embeddings e ON e.tenant = f.tenant AND e.fact = f.id AND e.model = $3
    WHERE f.tenant = $1 AND f.id ",
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
/// Selects a partition's newest facts about names from an index of their own: the facts valid at `$4`, at most `$5`.
/// The knower is in the row `p`.
macro_rules! newest_names {
    ($privacy:expr) => {
        concat!(
            "SELECT k.fact FROM fact_knowers k",
            by_index!("knowers_of_names"),
            " WHERE k.tenant = $1 AND k.world = $2 AND k.knower = ",
            row_key!("p", 0),
            $privacy,
            " AND k.names_subject = TRUE AND k.valid_at <= $4 AND (k.ends_at IS NULL OR k.ends_at > $4)
             ORDER BY k.valid_at DESC, k.fact DESC LIMIT $5"
        )
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
            " AND k.taken_out_at <= $4 ORDER BY k.taken_out_at DESC LIMIT $5"
        )
    };
}
/// Selects the latest ended promises of a partition, from an index of their own.
macro_rules! newest_ended_promises {
    () => {
        concat!(
            "SELECT k.fact FROM fact_knowers k",
            by_index!("knowers_promise_over"),
            " WHERE ",
            of_partition!(),
            " AND k.promise_over = TRUE AND k.ends_at <= $4 ORDER BY k.ends_at DESC LIMIT 8"
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
    newest_ended_promises!(),
);
const REQUESTS_OF_FACTS: &str = concat!(
    "SELECT i.fact, e.forget FROM invalidations i",
    by_index!("invalidations_of_fact"),
    " CROSS JOIN extractions e
      WHERE i.tenant = $1 AND i.fact ",
    in_json_list!("$2"),
    " AND i.reason = 'forgotten' AND i.cause_kind = 'turn' AND i.lifted_at IS NULL
        AND e.tenant = $1 AND e.turn = i.cause_id AND e.forget <> '[]'
      ORDER BY i.fact, i.id"
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

macro_rules! keyword_facts {
    ($privacy:expr) => {
        facts_of_each!(
            "f.id, f.version, f.view_importance, f.valid_at, f.subject, f.predicate, f.object, f.view_content, f.view_keywords",
            json_arrays_table!("$3"),
            concat!(
                "SELECT k.fact FROM fact_knowers k
                 WHERE k.tenant = $1 AND k.world = $2 AND k.knower = ",
                row_key!("p", 0),
                $privacy,
                " AND k.valid_at <= $4 AND (k.ends_at IS NULL OR k.ends_at > $4)
                 ORDER BY k.valid_at DESC, k.fact DESC LIMIT $5"
            )
        )
    };
}
/// Selects the newest facts of each partition (a knower and a privacy) straight from an index. `$3` lists the
/// partitions.
const KEYWORD_FACTS: &str = keyword_facts!(concat!(" AND k.private_to = ", row_key!("p", 1)));
/// The same for a designer, who sees every privacy.
const KEYWORD_FACTS_FOR_DESIGNER: &str = keyword_facts!("");

macro_rules! naming_facts {
    ($privacy:expr) => {
        facts_of_each!(
            "f.id, f.subject, f.object, f.speaker, f.authored, f.locked_by, f.replaced_by, f.predicate, f.content",
            json_arrays_table!("$3"),
            newest_names!($privacy)
        )
    };
}
/// Selects the newest facts of each partition (a knower and a privacy) straight from an index. `$3` lists the
/// partitions.
const NAMING_FACTS: &str = naming_facts!(concat!(" AND k.private_to = ", row_key!("p", 1)));
/// The same for a designer, who sees every privacy. The query has to sort.
const NAMING_FACTS_FOR_DESIGNER: &str = naming_facts!("");

fn read_body(columns: &mut Columns<'_>) -> StoreResult<RecallBody> {
    Ok(RecallBody {
        id: columns.id()?,
        version: columns.number()?,
        subject: columns.next()?,
        predicate: columns.next()?,
        object: columns.next()?,
        speaker: columns.next()?,
        polarity: read_polarity(columns)?,
        tense: read_tense(columns)?,
        kind: FactKind::parse_lenient(columns.next()?),
        view: read_view(columns)?,
        valid_at: columns.time()?,
        source: read_source(columns)?,
        locks: columns.id()?,
        is_private: columns.next()?,
        knowers: Arc::new(columns.json()?),
        embedding: columns.maybe_vector()?.into(),
    })
}

fn read_keyword_fact(columns: &mut Columns<'_>) -> StoreResult<KeywordFact> {
    Ok(KeywordFact {
        fact: columns.id()?,
        version: columns.number()?,
        importance: read_importance(columns)?,
        valid_at: columns.time()?,
        subject: columns.next()?,
        predicate: columns.next()?,
        object: columns.next()?,
        content: columns.next()?,
        keywords: columns.json()?,
    })
}

/// Reads a fact about a name, and the facts that replace it.
fn read_naming_fact(columns: &mut Columns<'_>) -> StoreResult<(NamingFact, Vec<FactId>)> {
    let mut fact = NamingFact {
        fact: columns.id()?,
        subject: columns.next()?,
        name: columns.next()?,
        speaker: columns.next()?,
        authored: columns.next()?,
        nickname: false,
        locks: columns.id()?,
    };
    let replaced_by = parse_replaced_by(columns.next()?)?;
    fact.nickname = aliases::is_nickname(columns.next()?, columns.next()?);
    Ok((fact, replaced_by))
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

/// Sorts the most important facts first, then the newest, and removes repetitions.
fn sort_by_weight(facts: &mut Vec<Fact>) {
    facts.sort_by(|a, b| {
        (b.view.importance, b.valid_at)
            .cmp(&(a.view.importance, a.valid_at))
            .then(a.id.cmp(&b.id))
    });
    facts.dedup_by_key(|fact| fact.id);
}

/// Retains at most `limit` facts of each class: pinned, and standing with and without locks. A fact in two classes
/// counts for both.
fn retain_first_of_classes(facts: &mut Vec<Fact>, limit: u32) {
    let mut pinned = 0;
    let mut unlocked = 0;
    let mut locked = 0;
    facts.retain(|fact| {
        let may_stand = fact.may_stand();
        let is_locked = !fact.locks.is_empty();
        let classes = [
            (fact.view.pinned, &mut pinned),
            (may_stand && !is_locked, &mut unlocked),
            (may_stand && is_locked, &mut locked),
        ];
        classes.into_iter().fold(false, |is_kept, (is_in_class, count)| {
            *count += u32::from(is_in_class);
            is_kept || (is_in_class && *count <= limit)
        })
    });
}

/// Loads the facts that ended `facts` as superseded, and the corrections of their corrections, by id. No query without
/// such facts.
async fn load_successors(engine: &Engine, scope: &TenantScope, facts: &[Fact]) -> StoreResult<HashMap<FactId, Fact>> {
    let mut successors: HashMap<FactId, Fact> = HashMap::new();
    let mut steps: Vec<Supersession> = facts.iter().filter_map(Supersession::of_fact).collect();
    for _ in 0..MAX_CORRECTIONS_IN_A_ROW {
        if steps.is_empty() {
            break;
        }
        let fact_ids = json_list(steps.iter().map(|step| step.successor));
        let query = bind!(lists::FACTS_BY_ID; scope.tenant(), fact_ids);
        let loaded: Vec<Fact> = engine.fetch_all(scope, query, read_fact).await?;
        steps = list_next_corrections(&steps, &loaded);
        successors.extend(loaded.into_iter().map(|fact| (fact.id, fact)));
    }
    Ok(successors)
}

/// Returns the query for the rows of a standing memory.
pub(in super::super) const fn standing_statement(request: &StandingRequest<'_>) -> &'static str {
    if request.viewpoint.sees_all_players {
        STANDING_FACTS_FOR_DESIGNER
    } else {
        STANDING_FACTS
    }
}

/// Binds the values of [`standing_statement`].
pub(in super::super) fn bind_standing<'q>(
    query: BoundQuery<'q>,
    scope: &TenantScope,
    request: &StandingRequest<'_>,
) -> StoreResult<BoundQuery<'q>> {
    let viewpoint = request.viewpoint;
    let partitions = to_json(&confirm::readable_partitions(viewpoint))?;
    let hearers = hearer_pattern(viewpoint, request.gossip);
    Ok(bind_to!(
        query;
        scope.tenant(), viewpoint.world, partitions, to_micros(request.as_of), i64::from(request.limit), hearers
    ))
}

impl SqlFactStore {
    /// Returns the standing memory with these rows. Reads the facts that replaced some of them, and requests to forget.
    pub(in super::super) async fn complete_standing(
        &self,
        scope: &TenantScope,
        request: &StandingRequest<'_>,
        facts: Vec<Fact>,
    ) -> StoreResult<StandingMemory> {
        let StandingRequest {
            viewpoint,
            as_of,
            limit,
            ..
        } = *request;
        let is_corrected = |fact: &&Fact| !fact.earlier_wordings.is_empty();
        let corrected: Vec<Fact> = facts.iter().filter(is_corrected).cloned().collect();
        let (mut valid, invalid): (Vec<Fact>, Vec<Fact>) = facts.into_iter().partition(|fact| fact.is_valid_at(as_of));
        let is_promise_end = |fact: &Fact| {
            let end = fact.invalid.as_ref();
            end.is_some_and(|end| InvalidReason::ENDS_OF_PROMISES.contains(&end.reason))
        };
        let (mut ended_promises, invalid): (Vec<Fact>, Vec<Fact>) = invalid.into_iter().partition(is_promise_end);
        ended_promises.sort_by_key(|fact| std::cmp::Reverse((fact.invalid.as_ref().map(|end| end.ended_at), fact.id)));
        ended_promises.dedup_by_key(|fact| fact.id);
        let mut taken_out: Vec<Fact> = invalid.into_iter().chain(corrected).collect();
        sort_by_weight(&mut valid);
        sort_by_weight(&mut taken_out);
        let replacing = valid.iter().flat_map(|fact| &fact.replaced_by).copied();
        let newer = confirm::find_usable(&self.0, scope.tenant(), viewpoint, replacing.collect(), as_of).await?;
        let is_replaced = |fact: &Fact| fact.replaced_by.iter().any(|successor| newer.contains(successor));
        let names = valid
            .iter()
            .filter(|fact| aliases::states_name(&fact.statement) && !is_replaced(fact));
        let names = names.map(NamingFact::from_fact).collect();
        valid.retain(|fact| fact.view.pinned || !is_replaced(fact));
        retain_first_of_classes(&mut valid, limit);
        let successors = load_successors(&self.0, scope, &taken_out).await?;
        let mut taken_out = list_removed_statements(&taken_out, &successors, as_of);
        let forgotten_ids: Vec<FactId> = taken_out
            .iter()
            .filter(|removed| removed.is_forgotten)
            .map(|removed| removed.fact)
            .collect();
        add_requests(
            &mut taken_out,
            &self.list_requests_of_facts(scope, &forgotten_ids).await?,
        );
        Ok(StandingMemory {
            facts: valid,
            names,
            taken_out,
            ended_promises,
        })
    }
}

#[async_trait]
impl RecallStore for SqlFactStore {
    async fn confirm_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        ids: &[FactId],
        as_of: DateTime<Utc>,
    ) -> StoreResult<FactConfirmation> {
        confirm::confirm_candidates(&self.0, scope.tenant(), viewpoint, ids, as_of).await
    }
    async fn load_bodies(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<RecallBody>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let query = bind!(SELECT_BODIES; scope.tenant(), json_list(ids), self.0.embedding_model);
        self.0.fetch_all(scope, query, read_body).await
    }
    async fn load_standing(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        gossip: bool,
        as_of: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<StandingMemory> {
        let request = StandingRequest {
            viewpoint,
            gossip,
            as_of,
            limit,
        };
        let query = bind_standing(sqlx::query(standing_statement(&request)), scope, &request)?;
        let facts = self.0.fetch_all(scope, query, read_fact).await?;
        self.complete_standing(scope, &request, facts).await
    }
    async fn list_requests_of_facts(
        &self,
        scope: &TenantScope,
        facts: &[FactId],
    ) -> StoreResult<HashMap<FactId, Vec<String>>> {
        if facts.is_empty() {
            return Ok(HashMap::new());
        }
        let query = bind!(REQUESTS_OF_FACTS; scope.tenant(), json_list(facts));
        let read_row = |columns: &mut Columns<'_>| Ok((columns.id()?, columns.json::<Vec<String>>()?));
        let rows: Vec<(FactId, Vec<String>)> = self.0.fetch_all(scope, query, read_row).await?;
        let mut requests: HashMap<FactId, Vec<String>> = HashMap::new();
        for (fact, words) in rows {
            requests.entry(fact).or_default().extend(words);
        }
        Ok(requests)
    }
    async fn list_keyword_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        as_of: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<KeywordFact>> {
        let query = bind!(
            if viewpoint.sees_all_players { KEYWORD_FACTS_FOR_DESIGNER } else { KEYWORD_FACTS };
            scope.tenant(), viewpoint.world, to_json(&confirm::readable_partitions(viewpoint))?, to_micros(as_of),
            i64::from(limit)
        );
        let facts = self.0.fetch_all(scope, query, read_keyword_fact).await?;
        // A fact with several of the knowers comes once for each knower.
        let worded: HashMap<FactId, KeywordFact> = facts.into_iter().map(|fact| (fact.fact, fact)).collect();
        Ok(worded.into_values().collect())
    }
    async fn list_naming_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        as_of: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<NamingFact>> {
        let query = bind!(
            if viewpoint.sees_all_players { NAMING_FACTS_FOR_DESIGNER } else { NAMING_FACTS };
            scope.tenant(), viewpoint.world, to_json(&confirm::readable_partitions(viewpoint))?, to_micros(as_of),
            i64::from(limit)
        );
        let facts = self.0.fetch_all(scope, query, read_naming_fact).await?;
        // A fact with several of the knowers comes once for each knower.
        let mut names: BTreeMap<FactId, _> = facts
            .into_iter()
            .map(|naming_fact| (naming_fact.0.fact, naming_fact))
            .collect();
        let newer = names.values().flat_map(|(_, replaced_by)| replaced_by).copied();
        let newer = confirm::find_usable(&self.0, scope.tenant(), viewpoint, newer.collect(), as_of).await?;
        names.retain(|_, (_, replaced_by)| !replaced_by.iter().any(|successor| newer.contains(successor)));
        Ok(names.into_values().map(|(name, _)| name).collect())
    }
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
                    "knowers_taken_out (tenant=? AND world=? AND knower=? AND private_to=? AND taken_out_at<?)",
                    "knowers_promise_over (tenant=? AND world=? AND knower=? AND private_to=? AND ends_at<?)",
                    "knowers_ending (tenant=? AND world=? AND knower=? AND private_to=? AND ends_at>?)",
                    "SEARCH f USING INDEX",
                ],
            )
            .await;
        }

        #[tokio::test]
        async fn requests_are_found_by_the_facts_that_they_ended() {
            let indexes = ["invalidations_of_fact (tenant=? AND fact=?)", "(tenant=? AND turn=?)"];
            assert_searches(REQUESTS_OF_FACTS, &indexes).await;
        }

        #[tokio::test]
        async fn standing_facts_are_sorted_by_the_index() {
            let standing = plan(STANDING_FACTS).await;
            // The query for facts with a future end.
            assert_eq!(standing.matches("TEMP B-TREE").count(), 1, "{standing}");
        }

        #[tokio::test]
        async fn newest_worded_facts_are_sorted_by_an_index() {
            let own = "knowers_by_reader (tenant=? AND world=? AND knower=? AND private_to=? AND valid_at<?)";
            assert_searches(KEYWORD_FACTS, &[own, "SEARCH f USING INDEX"]).await;
            assert_searches(KEYWORD_FACTS_FOR_DESIGNER, &["knowers_newest", "SEARCH f USING INDEX"]).await;
            for statement in [KEYWORD_FACTS, KEYWORD_FACTS_FOR_DESIGNER] {
                assert!(!plan(statement).await.contains("FOR ORDER BY"), "{statement}");
            }
        }

        #[tokio::test]
        async fn names_are_found_by_their_own_index() {
            let own = "knowers_of_names (tenant=? AND world=? AND knower=? AND private_to=? AND valid_at<?)";
            assert_searches(NAMING_FACTS, &[own, "SEARCH f USING INDEX"]).await;
            assert!(!plan(NAMING_FACTS).await.contains("FOR ORDER BY"));
            assert_searches(NAMING_FACTS_FOR_DESIGNER, &["knowers_of_names (tenant=? AND world=? AND knower=?)", "SEARCH f USING INDEX"]).await;
        }
    }
}
