//! Queries: nearest, ordered, fused, and rescored results of other queries.

use std::collections::{BTreeMap, HashMap, HashSet};

use qdrant_client::qdrant::{
    Direction, Fusion, OrderBy, PointId, PrefetchQuery, Query, QueryPoints, ScoredPoint, SearchParams, Value,
    VectorInput, WithPayloadSelector, query, value::Kind, vector_input, with_payload_selector::SelectorOptions,
};
use tonic::Status;

use super::collection::{Collection, FieldIndex, reject_unless_modelled, reject_unsupported, sparse_of};

/// Ids with their scores, best first.
type ScoredIds = Vec<(String, f32)>;
/// The constant of reciprocal rank fusion.
const K: f32 = 2.0;

impl Collection {
    pub fn query(&self, request: &QueryPoints) -> Result<Vec<ScoredPoint>, Status> {
        reject_unless_modelled(
            request,
            &QueryPoints {
                collection_name: request.collection_name.clone(),
                prefetch: request.prefetch.clone(),
                query: request.query.clone(),
                using: request.using.clone(),
                filter: request.filter.clone(),
                params: request.params.clone(),
                score_threshold: request.score_threshold,
                limit: request.limit,
                with_payload: request.with_payload.clone(),
                ..QueryPoints::default()
            },
        )?;
        let leaf = PrefetchQuery {
            prefetch: request.prefetch.clone(),
            query: request.query.clone(),
            using: request.using.clone(),
            filter: request.filter.clone(),
            params: request.params.clone(),
            score_threshold: request.score_threshold,
            limit: request.limit,
            lookup_from: None,
        };
        let found = self.run_prefetch(&leaf)?;
        let scored = found.into_iter().map(|(id, score)| {
            let payload = selected(&self.points[&id].payload, request.with_payload.as_ref())?;
            Ok(ScoredPoint {
                id: Some(PointId::from(id)),
                payload,
                score,
                ..ScoredPoint::default()
            })
        });
        scored.collect()
    }

    fn run_prefetch(&self, query: &PrefetchQuery) -> Result<ScoredIds, Status> {
        let Some(Query { variant: Some(wanted) }) = &query.query else {
            return reject_unsupported(query);
        };
        if query.lookup_from.is_some() {
            return reject_unsupported(query);
        }
        let params = query.params.clone().unwrap_or_default();
        reject_unless_modelled(
            &params,
            &SearchParams {
                hnsw_ef: params.hnsw_ef,
                ..SearchParams::default()
            },
        )?;
        let limit = usize::try_from(query.limit.unwrap_or(10)).unwrap();
        if limit == 0 {
            return Err(Status::invalid_argument("Validation error: limit must be 1 or larger"));
        }
        let mut found = if query.prefetch.is_empty() {
            let among = self.filter_points(query.filter.as_ref())?;
            self.leaf(wanted, query.using.as_deref(), among)?
        } else {
            if query.filter.is_some() || query.params.is_some() {
                return reject_unsupported(query);
            }
            let parts: Vec<ScoredIds> = query
                .prefetch
                .iter()
                .map(|part| self.run_prefetch(part))
                .collect::<Result<_, _>>()?;
            match wanted {
                query::Variant::Fusion(fusion) if *fusion == i32::from(Fusion::Rrf) => fuse_rankings(&parts),
                query::Variant::Nearest(_) => {
                    let union: HashSet<&String> = parts.iter().flatten().map(|(id, _)| id).collect();
                    self.leaf(wanted, query.using.as_deref(), union.into_iter().collect())?
                }
                other => return reject_unsupported(other),
            }
        };
        if let Some(threshold) = query.score_threshold {
            found.retain(|(_, score)| *score > threshold);
        }
        found.truncate(limit);
        Ok(found)
    }

    fn leaf(&self, wanted: &query::Variant, using: Option<&str>, among: Vec<&String>) -> Result<ScoredIds, Status> {
        match (wanted, using) {
            (query::Variant::Nearest(VectorInput { variant: Some(input) }), Some(using)) => match input {
                vector_input::Variant::Dense(dense) => self.nearest(using, &dense.data, &among),
                vector_input::Variant::Sparse(sparse) => {
                    let query = sparse_of(&sparse.indices, &sparse.values)?;
                    self.score_by_shared_terms(using, &query, &among)
                }
                other => reject_unsupported(other),
            },
            (query::Variant::OrderBy(order), None) => self.ordered(order, among),
            other => reject_unsupported(other),
        }
    }

    /// Omits points without the vector.
    fn nearest(&self, using: &str, query: &[f32], among: &[&String]) -> Result<ScoredIds, Status> {
        self.check_length(using, query.len())?;
        Ok(best_first(among.iter().filter_map(|id| {
            let vector = self.points[*id].dense.get(using)?;
            Some(((*id).clone(), vector.iter().zip(query).map(|(a, b)| a * b).sum()))
        })))
    }

    /// Omits points without a common dimension.
    fn score_by_shared_terms(
        &self,
        using: &str,
        query: &BTreeMap<u32, f32>,
        among: &[&String],
    ) -> Result<ScoredIds, Status> {
        if !self.sparse.contains(using) {
            return Err(Status::invalid_argument(format!(
                "Wrong input: Not existing vector name error: {using}"
            )));
        }
        Ok(best_first(among.iter().filter_map(|id| {
            let vector = self.points[*id].sparse.get(using)?;
            let shared: Vec<f32> = query
                .iter()
                .filter_map(|(at, weight)| Some(weight * vector.get(at)?))
                .collect();
            (!shared.is_empty()).then(|| ((*id).clone(), shared.iter().sum()))
        })))
    }

    /// Omits points without the field.
    fn ordered(&self, order: &OrderBy, among: Vec<&String>) -> Result<ScoredIds, Status> {
        reject_unless_modelled(
            order,
            &OrderBy {
                key: order.key.clone(),
                direction: Some(Direction::Desc.into()),
                start_from: None,
            },
        )?;
        if self.indexes.get(&order.key) != Some(&FieldIndex::Integer) {
            return Err(Status::invalid_argument(format!(
                "Bad request: No range index for `order_by` key: `{}`. Please create one to use `order_by`.",
                order.key
            )));
        }
        let mut all: Vec<(i64, &String)> = among
            .into_iter()
            .filter_map(|id| match self.points[id].payload.get(&order.key)?.kind {
                Some(Kind::IntegerValue(number)) => Some((number, id)),
                _ => None,
            })
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        Ok(all.into_iter().map(|(_, id)| (id.clone(), 1.0)).collect())
    }
}

fn best_first(scored: impl Iterator<Item = (String, f32)>) -> ScoredIds {
    let mut all: ScoredIds = scored.collect();
    all.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}

#[allow(clippy::cast_precision_loss)]
fn fuse_rankings(parts: &[ScoredIds]) -> ScoredIds {
    let mut scores: HashMap<&String, f32> = HashMap::new();
    for part in parts {
        for (rank, (id, _)) in part.iter().enumerate() {
            *scores.entry(id).or_default() += 1.0 / (rank as f32 + K);
        }
    }
    best_first(scores.into_iter().map(|(id, score)| (id.clone(), score)))
}

/// Returns the requested payload fields; none by default.
pub fn selected(
    payload: &HashMap<String, Value>,
    selector: Option<&WithPayloadSelector>,
) -> Result<HashMap<String, Value>, Status> {
    match selector {
        None => Ok(HashMap::new()),
        Some(WithPayloadSelector {
            selector_options: Some(SelectorOptions::Include(include)),
        }) => Ok(payload
            .iter()
            .filter(|(key, _)| include.fields.contains(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()),
        other => reject_unsupported(other),
    }
}
