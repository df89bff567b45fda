//! Facts as points: their stored fields, and the filters over them. No text of a fact is stored.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use chrono::{DateTime, Utc};
use qdrant_client::{
    Payload,
    qdrant::{Condition, Filter, PointId, PointStruct, Range, ScrollResponse, Vector, point_id::PointIdOptions},
};
use sha2::{Digest as _, Sha256};

use colloquy_core::{
    ids::{FactId, PlayerId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    disclosure::audience::{Audience, Knower, Viewpoint},
    fact::Importance,
    keywords::TermWeights,
    text::to_hexadecimal,
};
use colloquy_ports::{
    StoreError, StoreResult,
    vectors::{IndexPoint, MemoryScope, SimilarFactsQuery, StoredPoint, StoredPointPage},
};

/// The named vectors.
pub(super) const DENSE: &str = "dense";
pub(super) const SPARSE: &str = "sparse";

pub(super) const TENANT: &str = "tenant";
/// The fact's knowers: one `tenant/world/knower` for each.
pub(super) const PARTITION: &str = "partition";
/// `open`, or the player to whom the fact is private.
pub(super) const READER: &str = "reader";
/// `world/fingerprint` of the whole audience.
pub(super) const AUDIENCE: &str = "audience";
/// The fact's subject, as a hash, since a subject may contain a player's words.
pub(super) const SUBJECT: &str = "subject";
/// Importance and then age in one number: the most important facts come first, the newest first among equals.
pub(super) const WEIGHT: &str = "weight";
/// Microseconds since 1970.
pub(super) const VALID_AT: &str = "valid_at";
/// True; only at points without a vector.
pub(super) const BARE: &str = "bare";
pub(super) const FACT: &str = "fact";
pub(super) const VERSION: &str = "version";
pub(super) const IMPORTANCE: &str = "importance";
/// Terms and weights, 8 and 4 bytes each, as Base64, since sparse vectors only have half of each term's hash.
pub(super) const TERMS: &str = "terms";
pub(super) const DIGEST: &str = "digest";

const OPEN: &str = "open";
/// Bits of [`WEIGHT`] for the age: more than 9,000 years around 1970, in microseconds.
const AGE_BITS: u32 = 58;
/// Bytes of a term in [`TERMS`].
const TERM_BYTES: usize = 12;

/// Returns the id of a fact's point, which is always the same, and differs from the ids of other tenants' facts.
pub(super) fn point_id(scope: &TenantScope, fact: FactId) -> PointId {
    let digest = Sha256::digest(format!("{}/{fact}", scope.tenant()));
    let mut bytes: [u8; 16] = std::array::from_fn(|index| digest[index]);
    // A UUID of version 8, with custom contents (RFC 9562 §5.8).
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = to_hexadecimal(&bytes);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    PointId::from(parts.join("-"))
}

/// Returns a fact as a point, without a vector if its length differs from the collection's.
pub(super) fn encode_point(scope: &TenantScope, point: &IndexPoint, dimensions: usize) -> PointStruct {
    let bare = point.embedding.len() != dimensions;
    let mut vectors: HashMap<String, Vector> = HashMap::new();
    if !bare {
        vectors.insert(DENSE.to_owned(), point.embedding.clone().into());
    }
    let sparse = sparse_vector(&point.terms);
    if !sparse.is_empty() {
        vectors.insert(SPARSE.to_owned(), sparse.into());
    }
    let knowers = point.audience.knowers.iter();
    let partitions = knowers.map(|knower| partition_key(scope, &point.world, knower));
    let mut payload = Payload::new();
    payload.insert(TENANT, scope.tenant().to_string());
    payload.insert(PARTITION, partitions.collect::<Vec<_>>());
    payload.insert(READER, reader_key(point.audience.private_to.as_ref()));
    payload.insert(AUDIENCE, audience_key(&point.world, &point.audience));
    payload.insert(SUBJECT, subject_key(&point.subject));
    payload.insert(WEIGHT, importance_weight(point.importance, point.valid_at));
    payload.insert(VALID_AT, point.valid_at.timestamp_micros());
    payload.insert(FACT, point.fact.to_string());
    payload.insert(VERSION, i64::from(point.version));
    payload.insert(IMPORTANCE, i64::from(point.importance.get()));
    payload.insert(TERMS, encode_terms(&point.terms));
    payload.insert(DIGEST, point.digest().cast_signed());
    if bare {
        payload.insert(BARE, true);
    }
    PointStruct::new(point_id(scope, point.fact), vectors, payload)
}

/// Returns terms as the dimensions and values of a sparse vector. If two terms fold into one dimension, the greater
/// weight counts. The vector only serves for proposals.
pub(super) fn sparse_vector(terms: &TermWeights) -> Vec<(u32, f32)> {
    #[expect(clippy::cast_possible_truncation, reason = "folded into half of the bits on purpose")]
    let mut folded: Vec<(u32, f32)> = terms
        .0
        .iter()
        .map(|(term, weight)| ((term ^ (term >> 32)) as u32, *weight))
        .collect();
    folded.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
    folded.dedup_by_key(|entry| entry.0);
    folded
}

fn partition_key(scope: &TenantScope, world: &WorldId, knower: &Knower) -> String {
    format!("{}/{world}/{}", scope.tenant(), knower.store_key())
}

fn reader_key(private_to: Option<&PlayerId>) -> String {
    private_to.map_or_else(|| OPEN.to_owned(), |player| format!("player:{player}"))
}

fn audience_key(world: &WorldId, audience: &Audience) -> String {
    format!("{world}/{}", audience.audience_key())
}

fn subject_key(subject: &str) -> String {
    to_hexadecimal(&Sha256::digest(subject)[..16])
}

fn importance_weight(importance: Importance, valid_at: DateTime<Utc>) -> i64 {
    const HALF: i64 = 1 << (AGE_BITS - 1);
    let age = valid_at.timestamp_micros().clamp(-HALF, HALF - 1) + HALF;
    (i64::from(importance.get()) << AGE_BITS) + age
}

fn encode_terms(terms: &TermWeights) -> String {
    let mut bytes = Vec::with_capacity(terms.0.len() * TERM_BYTES);
    for (term, weight) in &terms.0 {
        bytes.extend_from_slice(&term.to_le_bytes());
        bytes.extend_from_slice(&weight.to_le_bytes());
    }
    STANDARD_NO_PAD.encode(bytes)
}

/// Returns the terms of a payload; `None` if they are unreadable.
pub(super) fn decode_terms(text: &str) -> Option<TermWeights> {
    let bytes = STANDARD_NO_PAD.decode(text).ok()?;
    let (entries, []) = bytes.as_chunks::<TERM_BYTES>() else {
        return None;
    };
    let entry = |bytes: &[u8; TERM_BYTES]| {
        let (term, weight) = bytes.split_at(8);
        Some((
            u64::from_le_bytes(term.try_into().ok()?),
            f32::from_le_bytes(weight.try_into().ok()?),
        ))
    };
    entries.iter().map(entry).collect::<Option<_>>().map(TermWeights)
}

/// Returns the first condition of every filter.
pub(super) fn tenant_condition(scope: &TenantScope) -> Condition {
    Condition::matches(TENANT, scope.tenant().to_string())
}

/// Returns the filter for the facts visible to a viewpoint.
pub(super) fn viewpoint_filter(scope: &TenantScope, viewpoint: &Viewpoint) -> Filter {
    let partitions: Vec<String> = viewpoint
        .knowers()
        .map(|knower| partition_key(scope, &viewpoint.world, &knower))
        .collect();
    let mut must = vec![tenant_condition(scope), Condition::matches(PARTITION, partitions)];
    if !viewpoint.sees_all_players {
        let mut readers = vec![OPEN.to_owned()];
        readers.extend(viewpoint.player.as_ref().map(|player| reader_key(Some(player))));
        must.push(Condition::matches(READER, readers));
    }
    Filter::must(must)
}

/// Returns the filter for the points of a similarity search.
pub(super) fn comparison_filter(scope: &TenantScope, with: SimilarFactsQuery<'_>) -> Filter {
    let mut must = vec![tenant_condition(scope)];
    let mut must_not = Vec::new();
    match with.memories {
        MemoryScope::Of(audience) => must.push(Condition::matches(AUDIENCE, audience_key(with.world, audience))),
        MemoryScope::Overlapping(audience) => {
            let knowers = audience.knowers.iter();
            let partitions: Vec<String> = knowers.map(|knower| partition_key(scope, with.world, knower)).collect();
            must.push(Condition::matches(PARTITION, partitions));
            if let Some(player) = &audience.private_to {
                must.push(Condition::matches(
                    READER,
                    vec![OPEN.to_owned(), reader_key(Some(player))],
                ));
            }
            must_not.push(Condition::matches(AUDIENCE, audience_key(with.world, audience)));
        }
    }
    must.extend(with.subjects.map(|subjects| {
        let keys: Vec<String> = subjects.iter().map(|subject| subject_key(subject)).collect();
        Condition::matches(SUBJECT, keys)
    }));
    must.extend(with.before.map(|before| {
        #[expect(
            clippy::cast_precision_loss,
            reason = "microseconds since 1970 fit for 200 years more"
        )]
        let lt = Some(before.timestamp_micros() as f64);
        Condition::range(VALID_AT, Range { lt, ..Range::default() })
    }));
    Filter {
        must,
        must_not,
        ..Filter::default()
    }
}

/// Narrows `filter` to points without a vector.
pub(super) fn without_vector(mut filter: Filter) -> Filter {
    filter.must.push(Condition::matches(BARE, true));
    filter
}

pub(super) fn decode_stored_points(page: ScrollResponse) -> StoreResult<StoredPointPage> {
    let corrupt = |part: &str| StoreError::Corrupt(format!("a point in Qdrant has no {part}"));
    let points = page.result.into_iter().map(|point| {
        let fact = point.get(FACT).as_str().and_then(|id| id.parse().ok());
        Ok(StoredPoint {
            fact: fact.ok_or_else(|| corrupt("fact"))?,
            // A point without a digest differs from the ledger.
            digest: point.get(DIGEST).as_integer().map_or(0, i64::cast_unsigned),
        })
    });
    let next = match page.next_page_offset.and_then(|id| id.point_id_options) {
        None => None,
        Some(PointIdOptions::Uuid(uuid)) => Some(uuid),
        Some(PointIdOptions::Num(_)) => return Err(corrupt("UUID")),
    };
    Ok(StoredPointPage {
        points: points.collect::<StoreResult<_>>()?,
        next,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(micros).unwrap_or_default()
    }

    #[test]
    fn weight_orders_by_importance_then_age() {
        let of =
            |importance: u8, micros| importance_weight(Importance::from_clamped(f64::from(importance)), at(micros));
        let ordered = [
            of(1, i64::MIN / 4),
            of(1, -5),
            of(1, 0),
            of(1, 1_750_000_000_000_000),
            of(2, -5),
            of(9, 7),
            of(10, -1),
            of(10, 3),
        ];
        assert!(ordered.is_sorted_by(|a, b| a < b), "{ordered:?}");
        assert!(ordered[0] >= 0);
    }

    #[test]
    fn terms_round_trip_bit_by_bit() {
        let all = TermWeights(vec![(0, 0.1), (7, 1.0 / 3.0), (u64::MAX, 0.95)]);
        assert_eq!(decode_terms(&encode_terms(&all)), Some(all));
        assert_eq!(decode_terms(""), Some(TermWeights::default()));
        assert_eq!(decode_terms("AAAA"), None);
        assert_eq!(decode_terms("?"), None);
    }

    #[test]
    fn sparse_vector_has_each_dimension_once() {
        // 1 and 2³² fold into the same dimension.
        let vector = sparse_vector(&TermWeights(vec![(1, 0.2), (9, 0.5), (1 << 32, 0.7)]));
        assert_eq!(vector, [(1, 0.7), (9, 0.5)]);
    }

    #[test]
    fn point_ids_differ_by_tenant() {
        let scope = |name: &str| TenantScope::new(name.parse().unwrap_or_else(|_| unreachable!()));
        let fact = FactId::from_u128(7);
        assert_eq!(point_id(&scope("a"), fact), point_id(&scope("a"), fact));
        assert_ne!(point_id(&scope("a"), fact), point_id(&scope("b"), fact));
        let Some(PointIdOptions::Uuid(uuid)) = point_id(&scope("a"), fact).point_id_options else {
            unreachable!("a UUID")
        };
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "8"));
    }
}
