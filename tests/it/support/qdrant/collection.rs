//! A collection: its layout, its points, and its filters.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use qdrant_client::qdrant::{
    BoolIndexParams, Condition, CreateCollection, CreateFieldIndexCollection, Distance, FieldCondition, FieldType,
    Filter, ListValue, Match, PayloadIndexParams, PointId, PointStruct, Range, SparseVectorParams, Value, Vector,
    VectorParams, Vectors, VectorsConfig, condition::ConditionOneOf, r#match::MatchValue,
    payload_index_params::IndexParams, point_id::PointIdOptions, value::Kind, vector, vectors::VectorsOptions,
    vectors_config,
};
use tonic::Status;

/// Refuses a request that the double does not support.
pub fn reject_unsupported<T>(what: impl std::fmt::Debug) -> Result<T, Status> {
    Err(Status::invalid_argument(format!("the double does not model {what:?}")))
}

/// Refuses a request with more fields than `modelled`.
pub fn reject_unless_modelled<T: PartialEq + std::fmt::Debug>(given: &T, modelled: &T) -> Result<(), Status> {
    if given == modelled {
        Ok(())
    } else {
        reject_unsupported(given)
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum FieldIndex {
    Keyword {
        is_tenant: bool,
    },
    /// Has a range index, so that results can be ordered by the field.
    Integer,
    Bool,
}

impl FieldIndex {
    pub fn is_tenant(self) -> bool {
        self == Self::Keyword { is_tenant: true }
    }
}

#[derive(Default)]
pub struct CollectionPoint {
    pub payload: HashMap<String, Value>,
    pub dense: HashMap<String, Vec<f32>>,
    pub sparse: HashMap<String, BTreeMap<u32, f32>>,
}

#[derive(Default)]
pub struct Collection {
    /// The lengths of the vectors by name. Vectors are compared by their dot product.
    pub dense: BTreeMap<String, usize>,
    /// The sparse vectors, weighted by inverse document frequency.
    pub sparse: BTreeSet<String>,
    pub indexes: BTreeMap<String, FieldIndex>,
    pub points: BTreeMap<String, CollectionPoint>,
}

impl Collection {
    pub fn new(request: &CreateCollection) -> Result<Self, Status> {
        reject_unless_modelled(
            request,
            &CreateCollection {
                collection_name: request.collection_name.clone(),
                hnsw_config: request.hnsw_config,
                vectors_config: request.vectors_config.clone(),
                sparse_vectors_config: request.sparse_vectors_config.clone(),
                ..CreateCollection::default()
            },
        )?;
        let mut collection = Self::default();
        let dense = match request.vectors_config.clone() {
            Some(VectorsConfig {
                config: Some(vectors_config::Config::ParamsMap(named)),
            }) => named.map,
            other => return reject_unsupported(other),
        };
        for (name, params) in dense {
            let modelled = VectorParams {
                size: params.size,
                distance: Distance::Dot.into(),
                ..VectorParams::default()
            };
            reject_unless_modelled(&params, &modelled)?;
            collection.dense.insert(name, usize::try_from(params.size).unwrap());
        }
        for (name, params) in request.sparse_vectors_config.clone().unwrap_or_default().map {
            reject_unless_modelled(&params, &SparseVectorParams::default())?;
            collection.sparse.insert(name);
        }
        Ok(collection)
    }

    pub fn index(&mut self, request: &CreateFieldIndexCollection) -> Result<(), Status> {
        let params = match request.field_index_params {
            Some(PayloadIndexParams {
                index_params: Some(ref params),
            }) => params.clone(),
            ref other => return reject_unsupported(other),
        };
        let index = match (request.field_type(), params) {
            (FieldType::Keyword, IndexParams::KeywordIndexParams(params)) => {
                let is_tenant = params.is_tenant;
                reject_unless_modelled(
                    &params,
                    &qdrant_client::qdrant::KeywordIndexParams {
                        is_tenant,
                        ..Default::default()
                    },
                )?;
                FieldIndex::Keyword {
                    is_tenant: is_tenant == Some(true),
                }
            }
            (FieldType::Integer, IndexParams::IntegerIndexParams(params)) => {
                reject_unless_modelled(
                    &params,
                    &qdrant_client::qdrant::IntegerIndexParams {
                        lookup: Some(false),
                        range: Some(true),
                        ..Default::default()
                    },
                )?;
                FieldIndex::Integer
            }
            (FieldType::Bool, IndexParams::BoolIndexParams(params)) => {
                reject_unless_modelled(&params, &BoolIndexParams::default())?;
                FieldIndex::Bool
            }
            other => return reject_unsupported(other),
        };
        self.indexes.insert(request.field_name.clone(), index);
        Ok(())
    }

    pub fn upsert(&mut self, given: PointStruct) -> Result<(), Status> {
        let id = uuid_of(given.id.as_ref())?;
        let mut point = CollectionPoint {
            payload: given.payload,
            ..CollectionPoint::default()
        };
        let named = match given.vectors {
            None => HashMap::new(),
            Some(Vectors {
                vectors_options: Some(VectorsOptions::Vectors(named)),
            }) => named.vectors,
            other => return reject_unsupported(other),
        };
        for (name, vector) in named {
            reject_unless_modelled(
                &vector,
                &Vector {
                    vector: vector.vector.clone(),
                    ..Vector::default()
                },
            )?;
            match vector.vector {
                Some(vector::Vector::Dense(dense)) if self.dense.contains_key(&name) => {
                    self.check_length(&name, dense.data.len())?;
                    point.dense.insert(name, dense.data);
                }
                Some(vector::Vector::Sparse(sparse)) if self.sparse.contains(&name) => {
                    point.sparse.insert(name, sparse_of(&sparse.indices, &sparse.values)?);
                }
                _ => {
                    let what = format!("Wrong input: Not existing vector name error: {name}");
                    return Err(Status::invalid_argument(what));
                }
            }
        }
        self.points.insert(id, point);
        Ok(())
    }

    pub fn check_length(&self, name: &str, length: usize) -> Result<(), Status> {
        match self.dense.get(name) {
            Some(expected) if *expected == length => Ok(()),
            Some(expected) => Err(Status::invalid_argument(format!(
                "Wrong input: Vector dimension error: expected dim: {expected}, got {length}"
            ))),
            None => Err(Status::invalid_argument(format!(
                "Wrong input: Not existing vector name error: {name}"
            ))),
        }
    }

    /// Returns the ids of the points that match a filter.
    pub fn filter_points(&self, filter: Option<&Filter>) -> Result<Vec<&String>, Status> {
        let Some(filter) = filter else {
            return reject_unsupported("a search over everything");
        };
        reject_unless_modelled(
            filter,
            &Filter {
                must: filter.must.clone(),
                must_not: filter.must_not.clone(),
                ..Filter::default()
            },
        )?;
        let mut through = Vec::new();
        for (id, point) in &self.points {
            let mut all = true;
            for condition in &filter.must {
                all &= self.matches_condition(condition, point)?;
            }
            for condition in &filter.must_not {
                all &= !self.matches_condition(condition, point)?;
            }
            if all {
                through.push(id);
            }
        }
        // Checks the conditions even for an empty collection.
        let nobody = CollectionPoint::default();
        for condition in filter.must.iter().chain(&filter.must_not) {
            self.matches_condition(condition, &nobody)?;
        }
        Ok(through)
    }

    fn matches_condition(&self, condition: &Condition, point: &CollectionPoint) -> Result<bool, Status> {
        let Some(ConditionOneOf::Field(field)) = &condition.condition_one_of else {
            return reject_unsupported(condition);
        };
        reject_unless_modelled(
            field,
            &FieldCondition {
                key: field.key.clone(),
                r#match: field.r#match.clone(),
                range: field.range,
                ..FieldCondition::default()
            },
        )?;
        let values = point.payload.get(&field.key).map(kinds).unwrap_or_default();
        let any = |test: &dyn Fn(&Kind) -> bool| values.iter().any(test);
        let index = self.indexes.get(&field.key);
        let wanted = match (&field.r#match, &field.range) {
            (
                Some(Match {
                    match_value: Some(wanted),
                }),
                None,
            ) => wanted,
            (
                None,
                Some(Range {
                    lt: Some(limit),
                    lte: None,
                    gt: None,
                    gte: None,
                }),
            ) if index == Some(&FieldIndex::Integer) => {
                #[expect(clippy::cast_precision_loss, reason = "as Qdrant compares them")]
                let below = |kind: &Kind| matches!(kind, Kind::IntegerValue(number) if (*number as f64) < *limit);
                return Ok(any(&below));
            }
            _ => return reject_unsupported(field),
        };
        match (index, wanted) {
            (Some(FieldIndex::Keyword { .. }), MatchValue::Keyword(word)) => {
                Ok(any(&|kind| matches!(kind, Kind::StringValue(text) if text == word)))
            }
            (Some(FieldIndex::Keyword { .. }), MatchValue::Keywords(words)) => Ok(any(
                &|kind| matches!(kind, Kind::StringValue(text) if words.strings.contains(text)),
            )),
            (Some(FieldIndex::Bool), MatchValue::Boolean(flag)) => {
                Ok(any(&|kind| matches!(kind, Kind::BoolValue(value) if value == flag)))
            }
            _ => Err(Status::invalid_argument(format!(
                "Bad request: Index required but not found for \"{}\"",
                field.key
            ))),
        }
    }

    pub fn texts(&self) -> Vec<String> {
        let values = self.points.values().flat_map(|point| point.payload.values());
        values
            .flat_map(kinds)
            .filter_map(|kind| match kind {
                Kind::StringValue(text) => Some(text),
                _ => None,
            })
            .collect()
    }
}

/// Returns a value, or the values of a list.
fn kinds(value: &Value) -> Vec<Kind> {
    match value.kind.clone() {
        Some(Kind::ListValue(ListValue { values })) => values.iter().flat_map(kinds).collect(),
        Some(kind) => vec![kind],
        None => Vec::new(),
    }
}

pub fn uuid_of(id: Option<&PointId>) -> Result<String, Status> {
    let Some(PointId {
        point_id_options: Some(PointIdOptions::Uuid(uuid)),
    }) = id
    else {
        return reject_unsupported(id);
    };
    let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
    let is_hex = uuid
        .bytes()
        .all(|b| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if parts == [8, 4, 4, 4, 12] && is_hex {
        Ok(uuid.clone())
    } else {
        Err(Status::invalid_argument(format!("Unable to parse UUID: {uuid}")))
    }
}

pub fn sparse_of(indices: &[u32], values: &[f32]) -> Result<BTreeMap<u32, f32>, Status> {
    let entries: BTreeMap<u32, f32> = indices.iter().copied().zip(values.iter().copied()).collect();
    if entries.len() == indices.len() && indices.len() == values.len() {
        Ok(entries)
    } else {
        Err(Status::invalid_argument("Validation error: indices must be unique"))
    }
}
