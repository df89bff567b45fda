//! The search for similar facts in the ledger, for the time in which the index does not answer. It returns what a
//! complete index would return, with exact cosines. The cost is a read of every vector of the searched memories.

use super::super::{
    context::Engine,
    rows::{Columns, ReadRow, to_micros},
};
use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::{
    disclosure::audience::{Audience, Knower},
    party,
    scoring::dot_product,
};
use colloquy_ports::{
    StoreResult,
    vectors::{Candidate, MemoryScope, SimilarFactsQuery},
};

/// The number of facts per read; between pages, other readers get a turn.
const FACTS_PER_READ: i64 = 1_000;

/// Selects a page of facts that are points of the index and have a vector, in the order of an index.
macro_rules! select_vectors {
    ($from:literal, $time:literal, $id:literal) => {
        concat!(
            "SELECT f.id, f.valid_at, f.subject, e.vector FROM ",
            $from,
            " AND (",
            $time,
            ", ",
            $id,
            ") > ($4, $5) AND ",
            $time,
            " < $6 AND (f.invalid_at IS NULL OR f.invalid_at > $7)
               AND (f.expires_at IS NULL OR f.expires_at > $7 OR f.view_pinned = TRUE)
               AND e.tenant = $1 AND e.fact = f.id AND e.model = $8
             ORDER BY ",
            $time,
            ", ",
            $id,
            " LIMIT $9"
        )
    };
}
/// Facts of exactly the audience `$3`.
const VECTORS_OF_AUDIENCE: &str = select_vectors!(
    "facts f CROSS JOIN fact_embeddings e WHERE f.tenant = $1 AND f.world = $2 AND f.audience = $3",
    "f.valid_at",
    "f.id"
);
/// Facts of the knower `$10` in other audiences than `$3`. `$11` is the player of the audience; empty: any privacy.
const VECTORS_BESIDE_AUDIENCE: &str = select_vectors!(
    "fact_knowers k CROSS JOIN facts f CROSS JOIN fact_embeddings e
     WHERE k.tenant = $1 AND k.world = $2 AND k.knower = $10
       AND ($11 = '' OR k.private_to = '' OR k.private_to = $11)
       AND f.tenant = $1 AND f.id = k.fact AND f.audience <> $3",
    "k.valid_at",
    "k.fact"
);

/// A fact of a page.
struct FactVector {
    fact: FactId,
    valid_at: i64,
    subject: String,
    vector: Vec<f32>,
}

fn read_vector(columns: &mut Columns<'_>) -> StoreResult<FactVector> {
    Ok(FactVector {
        fact: columns.id()?,
        valid_at: columns.next()?,
        subject: columns.next()?,
        vector: columns.maybe_vector()?,
    })
}

pub(super) async fn find_similar_facts(
    engine: &Engine,
    scope: &TenantScope,
    search: SimilarFactsQuery<'_>,
) -> StoreResult<Vec<Candidate>> {
    let mut nearest = Vec::new();
    match search.memories {
        MemoryScope::Of(audience) => scan_memory(engine, scope, &search, audience, None, &mut nearest).await?,
        MemoryScope::Overlapping(audience) => {
            for knower in &audience.knowers {
                scan_memory(engine, scope, &search, audience, Some(knower), &mut nearest).await?;
            }
        }
    }
    Ok(nearest)
}

/// Adds the similar facts of an audience to `nearest`, or those that `knower` has beside it. `nearest` stays sorted.
async fn scan_memory(
    engine: &Engine,
    scope: &TenantScope,
    search: &SimilarFactsQuery<'_>,
    audience: &Audience,
    knower: Option<&Knower>,
    nearest: &mut Vec<Candidate>,
) -> StoreResult<()> {
    let now = to_micros(engine.clock.now());
    let key = audience.audience_key();
    let before = search.before.map_or(i64::MAX, to_micros);
    let knower = knower.map(Knower::store_key);
    let player = audience
        .private_to
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut valid_at = i64::MIN;
    let mut after = String::new();
    loop {
        let statement = match knower {
            Some(_) => VECTORS_BESIDE_AUDIENCE,
            None => VECTORS_OF_AUDIENCE,
        };
        let mut query = bind!(
            statement;
            scope.tenant(), search.world, key, valid_at, after, before, now, engine.embedding_model, FACTS_PER_READ
        );
        if let Some(knower) = &knower {
            query = query.bind(knower).bind(&player);
        }
        let read_row: ReadRow<FactVector> = read_vector;
        let page = engine.fetch_all(scope, query, read_row).await?;
        let comparable = page
            .iter()
            .filter(|fact| fact.vector.len() == search.embedding.len() && is_about(&fact.subject, search.subjects));
        let candidates = comparable.map(|fact| Candidate {
            fact: fact.fact,
            cosine: dot_product(&fact.vector, search.embedding),
            hint: None,
        });
        nearest.extend(candidates.filter(|candidate| candidate.cosine >= search.min_cosine));
        nearest.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then(a.fact.cmp(&b.fact)));
        // A fact of several knowers is found once for each.
        nearest.dedup_by_key(|candidate| candidate.fact);
        nearest.truncate(search.limit);
        let is_last = page.len() < usize::try_from(FACTS_PER_READ).unwrap_or(usize::MAX);
        match page.last() {
            Some(last) if !is_last => {
                valid_at = last.valid_at;
                after = last.fact.to_string();
            }
            _ => return Ok(()),
        }
    }
}

/// True if one of the keys names the subject. `None`: any subject.
fn is_about(subject: &str, keys: Option<&[String]>) -> bool {
    keys.is_none_or(|keys| keys.contains(&party::subject_key(subject)))
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn vectors_are_read_in_index_order() {
            assert_searches(VECTORS_OF_AUDIENCE, &["facts_in_order (tenant=? AND world=? AND audience=?"]).await;
            assert_searches(VECTORS_BESIDE_AUDIENCE, &["knowers_newest (tenant=? AND world=? AND knower=?"]).await;
            assert!(!plan(VECTORS_BESIDE_AUDIENCE).await.contains("FOR ORDER BY"));
        }
    }
}
