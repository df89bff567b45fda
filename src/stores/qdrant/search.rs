//! The searches, and the conversion of their answers.

use std::collections::HashMap;

use chrono::DateTime;
use qdrant_client::qdrant::{
    Direction, Filter, Fusion, OrderBy, PrefetchQuery, Query, QueryBatchPoints, QueryBatchResponse, QueryPoints,
    QueryResponse, ScoredPoint, SearchParams,
};

use super::points::{self, DENSE, FACT, IMPORTANCE, SPARSE, TERMS, VALID_AT, VERSION, WEIGHT};
use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::{
    fact::Importance,
    keywords::{self, TermWeights},
};
use colloquy_ports::vectors::{Candidate, CandidateQuery, ScoreHint, SimilarFactsQuery};

/// How many points a search in the graph of a large tenant keeps in view. More find more of the nearest points and are
/// slower. 200 is almost seven times the 30 nearest facts of a search.
const HNSW_EF: u64 = 200;

/// The legs of a candidate search, as one request.
pub(super) struct CandidateSearch {
    pub(super) collection: String,
    pub(super) dimensions: usize,
}

impl CandidateSearch {
    /// True if the search has a query vector of the right length.
    pub(super) fn has_query(&self, proposal: &CandidateQuery<'_>) -> bool {
        self.query_embedding(proposal).is_some()
    }

    fn query_embedding<'a>(&self, proposal: &CandidateQuery<'a>) -> Option<&'a [f32]> {
        proposal.embedding.filter(|query| query.len() == self.dimensions)
    }

    /// Builds one request with up to two searches; `None` without a leg. The first is the union of the legs, scored by
    /// cosine. The second has the legs over points without a vector, which scoring by cosine leaves out. Without a
    /// query vector, only the second search is made, over all points.
    pub(super) fn build_request(&self, scope: &TenantScope, proposal: &CandidateQuery<'_>) -> Option<QueryBatchPoints> {
        let filter = points::viewpoint_filter(scope, proposal.viewpoint);
        let mut query_points = Vec::with_capacity(2);
        let remaining_filter = match self.query_embedding(proposal) {
            None => filter,
            Some(query) => {
                let nearest = Query::from(query.to_vec());
                let mut legs = queryless_prefetches(proposal, &filter);
                if proposal.limits.dense > 0 {
                    legs.push(PrefetchQuery {
                        query: Some(nearest.clone()),
                        using: Some(DENSE.to_owned()),
                        filter: Some(filter.clone()),
                        params: Some(search_params()),
                        limit: Some(proposal.limits.dense as u64),
                        ..PrefetchQuery::default()
                    });
                }
                query_points.extend(self.union_query(legs, nearest, Some(DENSE)));
                points::without_vector(filter)
            }
        };
        query_points.extend(self.union_query(
            queryless_prefetches(proposal, &remaining_filter),
            Fusion::Rrf.into(),
            None,
        ));
        (!query_points.is_empty()).then(|| QueryBatchPoints {
            collection_name: self.collection.clone(),
            query_points,
            ..QueryBatchPoints::default()
        })
    }

    fn union_query(&self, prefetch: Vec<PrefetchQuery>, query: Query, using: Option<&str>) -> Option<QueryPoints> {
        if prefetch.is_empty() {
            return None;
        }
        let limit = prefetch.iter().filter_map(|leg| leg.limit).sum();
        Some(QueryPoints {
            collection_name: self.collection.clone(),
            prefetch,
            query: Some(query),
            using: using.map(str::to_owned),
            limit: Some(limit),
            with_payload: Some(vec![FACT, VERSION, IMPORTANCE, VALID_AT, TERMS].into()),
            ..QueryPoints::default()
        })
    }
}

/// Returns the legs that need no query vector.
fn queryless_prefetches(proposal: &CandidateQuery<'_>, filter: &Filter) -> Vec<PrefetchQuery> {
    let limits = proposal.limits;
    let leg = |query: Query, using: Option<&str>, limit: usize| PrefetchQuery {
        query: Some(query),
        using: using.map(str::to_owned),
        filter: Some(filter.clone()),
        limit: Some(limit as u64),
        ..PrefetchQuery::default()
    };
    let mut legs = Vec::with_capacity(4);
    let terms = points::sparse_vector(proposal.terms);
    if limits.sparse > 0 && !terms.is_empty() {
        legs.push(leg(terms.into(), Some(SPARSE), limits.sparse));
    }
    for (key, limit) in [(WEIGHT, limits.important), (VALID_AT, limits.recent)] {
        if limit > 0 {
            let order = OrderBy {
                key: key.to_owned(),
                direction: Some(Direction::Desc.into()),
                start_from: None,
            };
            legs.push(leg(order.into(), None, limit));
        }
    }
    legs
}

/// Returns a search for the nearest points of `filter`, from the least cosine on.
pub(super) fn nearest_request(collection: String, filter: Filter, with: SimilarFactsQuery<'_>) -> QueryPoints {
    QueryPoints {
        collection_name: collection,
        query: Some(with.embedding.to_vec().into()),
        using: Some(DENSE.to_owned()),
        filter: Some(filter),
        params: Some(search_params()),
        // Qdrant leaves out points exactly at the threshold.
        score_threshold: Some(with.min_cosine.next_down()),
        limit: Some(with.limit as u64),
        with_payload: Some(vec![FACT].into()),
        ..QueryPoints::default()
    }
}

fn search_params() -> SearchParams {
    SearchParams {
        hnsw_ef: Some(HNSW_EF),
        ..SearchParams::default()
    }
}

/// Returns each fact once. With a query vector, only the first answer has cosines. Facts of only the second answer have
/// the cosine 0.
pub(super) fn merge_candidates(response: QueryBatchResponse, terms: &TermWeights, with_query: bool) -> Vec<Candidate> {
    let mut candidates: HashMap<FactId, Candidate> = HashMap::new();
    for (index, answer) in response.result.into_iter().enumerate() {
        for point in answer.result {
            let Some(fact) = fact_of(&point) else { continue };
            candidates.entry(fact).or_insert_with(|| Candidate {
                fact,
                cosine: if with_query && index == 0 { cosine(&point) } else { 0.0 },
                hint: decode_hint(&point, terms),
            });
        }
    }
    candidates.into_values().collect()
}

/// Returns candidates, nearest first.
pub(super) fn sort_candidates(response: &QueryResponse, min_cosine: f32) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = response
        .result
        .iter()
        .filter_map(|point| {
            Some(Candidate {
                fact: fact_of(point)?,
                cosine: cosine(point),
                hint: None,
            })
        })
        .filter(|candidate| candidate.cosine >= min_cosine)
        .collect();
    candidates.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then(a.fact.cmp(&b.fact)));
    candidates
}

fn cosine(point: &ScoredPoint) -> f32 {
    point.score.clamp(-1.0, 1.0)
}

/// `None`: not a point of this server. The point proposes no fact.
fn fact_of(point: &ScoredPoint) -> Option<FactId> {
    point.get(FACT).as_str()?.parse().ok()
}

/// `None`: a field is missing. The caller then reads the fact.
fn decode_hint(point: &ScoredPoint, terms: &TermWeights) -> Option<ScoreHint> {
    let number = |key: &str| point.get(key).as_integer();
    let of_point = points::decode_terms(point.get(TERMS).as_str()?)?;
    Some(ScoreHint {
        version: u32::try_from(number(VERSION)?).ok()?,
        importance: Importance::new(u8::try_from(number(IMPORTANCE)?).ok()?)?,
        valid_at: DateTime::from_timestamp_micros(number(VALID_AT)?)?,
        keyword: keywords::bm25_score(terms, &of_point),
    })
}
