//! The collection of the points, and the replacement of a collection.
//!
//! A collection has the name `<name>_<length of vectors>_<vector space>_<number>`. The alias `<name>` names the current
//! collection. A node with another vector space replaces the current collection in three steps. The node creates a
//! collection with the next number (several nodes create the same one), fills it, and moves the alias. Then all
//! collections with a lower number are dropped.
//!
//! All nodes use the collection's own name, so vectors of two spaces never meet. A node whose collection is no longer
//! current finds no points and leaves the outbox unchanged.

use qdrant_client::qdrant::{
    BoolIndexParams, CreateAlias, CreateCollection, CreateFieldIndexCollectionBuilder, Distance, FieldType,
    HnswConfigDiff, IntegerIndexParamsBuilder, KeywordIndexParamsBuilder, SparseVectorConfig, SparseVectorParams,
    VectorParams, VectorParamsMap, payload_index_params::IndexParams, vectors_config,
};
use sha2::{Digest as _, Sha256};

use super::{
    QdrantFactIndex,
    points::{self, DENSE, SPARSE},
};
use colloquy_memory::text::to_hexadecimal;
use colloquy_ports::{
    StoreError, StoreResult,
    vectors::{IndexState, PrepareOutcome},
};

/// Raised when the layout of points changes: all points are then written again.
const LAYOUT_VERSION: u32 = 3;
/// Links of a vector within a tenant or a partition. Links across do not exist (`m` is 0), since no search needs them.
const HNSW_LINKS: u64 = 16;
/// How many neighbours are compared for the links.
const HNSW_EF_CONSTRUCT: u64 = 200;

/// A vector space, in the form of a collection's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VectorSpace {
    dimensions: usize,
    /// The fingerprint of the embedder and of the layout of points, hexadecimal.
    fingerprint: String,
}

impl VectorSpace {
    pub(super) fn of_embedder(embedding_model: &str, dimensions: usize) -> Self {
        let digest = Sha256::digest(format!("{LAYOUT_VERSION} {embedding_model}"));
        Self {
            dimensions,
            fingerprint: to_hexadecimal(&digest[..4]),
        }
    }
}

/// The name of a collection of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CollectionName {
    name: String,
    space: VectorSpace,
    number: u32,
}

impl CollectionName {
    fn new(alias: &str, space: VectorSpace, number: u32) -> Self {
        Self {
            name: format!("{alias}_{}_{}_{number}", space.dimensions, space.fingerprint),
            space,
            number,
        }
    }

    /// `None`: not a collection of this server.
    fn parse(alias: &str, name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(alias)?.strip_prefix('_')?.split('_');
        let space = VectorSpace {
            dimensions: parts.next()?.parse().ok()?,
            fingerprint: parts.next()?.to_owned(),
        };
        let parsed = Self::new(alias, space, parts.next()?.parse().ok()?);
        (parsed.name == name).then_some(parsed)
    }
}

/// This node's knowledge of its collection.
#[derive(Debug, Default)]
pub(super) struct CollectionState {
    collection: Option<CollectionName>,
    /// True if the collection is current.
    counts: bool,
    /// The number of the last collection that was current for this node. If a later collection of another embedder
    /// becomes current, this node does not replace it.
    had: Option<u32>,
}

impl CollectionState {
    pub(super) fn index_state(&self) -> IndexState {
        match (&self.collection, self.counts) {
            (Some(_), true) => IndexState::Ready,
            (Some(_), false) => IndexState::Filling,
            (None, _) => IndexState::Away,
        }
    }

    pub(super) fn searchable_name(&self) -> StoreResult<String> {
        match &self.collection {
            Some(collection) if self.counts => Ok(collection.name.clone()),
            Some(_) => Err(unavailable_error("the index is being filled from the ledger")),
            None => Err(unavailable_error("there is no index of this embedder")),
        }
    }

    pub(super) fn writable_name(&self) -> StoreResult<String> {
        let collection = self.collection.as_ref();
        let name = collection.map(|collection| collection.name.clone());
        name.ok_or_else(|| unavailable_error("there is no index of this embedder"))
    }

    pub(super) fn forget_collection(&mut self) {
        self.collection = None;
        self.counts = false;
    }

    fn set_collection(&mut self, collection: CollectionName, counts: bool) {
        if counts {
            self.had = Some(collection.number);
        }
        self.collection = Some(collection);
        self.counts = counts;
    }
}

fn unavailable_error(reason: &str) -> StoreError {
    StoreError::Unavailable(reason.to_owned())
}

impl QdrantFactIndex {
    /// Finds this node's collection, or creates it if `may_make`.
    pub(super) async fn find_or_make_collection(&self, may_make: bool) -> StoreResult<PrepareOutcome> {
        let ours = self.list_collections().await?;
        let counting = self.active_collection(&ours).await?;
        if let Some(counting) = counting.as_ref().filter(|counting| counting.space == self.space) {
            let replaced = ours.iter().any(|other| is_replaced(other, counting));
            self.collection_state.write().set_collection(counting.clone(), true);
            return Ok(if replaced {
                PrepareOutcome::Unfinished
            } else {
                PrepareOutcome::Ready
            });
        }
        let last = counting.as_ref().map_or(0, |counting| counting.number);
        if self.collection_state.read().had.is_some_and(|had| last > had) {
            self.collection_state.write().forget_collection();
            return Err(unavailable_error(
                "another node searches with another embedder; this one has to be started again with the same",
            ));
        }
        if !may_make {
            return Ok(PrepareOutcome::Empty);
        }
        // A collection which another node has begun to fill, unless it is older than the current collection.
        let candidates = ours
            .iter()
            .filter(|candidate| candidate.space == self.space && candidate.number > last);
        let collection = if let Some(newest) = candidates.max_by_key(|candidate| candidate.number) {
            newest.clone()
        } else {
            let highest = ours.iter().map(|collection| collection.number).max().unwrap_or(0);
            CollectionName::new(&self.options.collection, self.space.clone(), highest.saturating_add(1))
        };
        self.create_collection(&collection).await?;
        self.collection_state.write().set_collection(collection, false);
        Ok(PrepareOutcome::Empty)
    }

    /// Makes this node's collection current.
    pub(super) async fn adopt_collection(&self) -> StoreResult<()> {
        let Some(collection) = self.collection_state.read().collection.clone() else {
            return Err(unavailable_error("there is no index to take up"));
        };
        // Replaces the alias if it exists.
        let alias = CreateAlias {
            collection_name: collection.name.clone(),
            alias_name: self.options.collection.clone(),
        };
        self.call_within(self.options.write_timeout, self.client.create_alias(alias))
            .await?;
        tracing::info!(collection = collection.name, "the index was filled, and counts");
        self.collection_state.write().set_collection(collection, true);
        Ok(())
    }

    /// Drops the collections that this node's collection has replaced.
    pub(super) async fn drop_replaced_collections(&self) -> StoreResult<()> {
        let ours = self.list_collections().await?;
        let Some(counting) = self
            .active_collection(&ours)
            .await?
            .filter(|counting| counting.space == self.space)
        else {
            // Another node has taken over meanwhile, and drops the old collections.
            return Ok(());
        };
        for replaced in ours.iter().filter(|other| is_replaced(other, &counting)) {
            let dropped = self.client.delete_collection(&replaced.name);
            self.call_within(self.options.write_timeout, dropped).await?;
            tracing::info!(collection = replaced.name, "dropped an index that was replaced");
        }
        Ok(())
    }

    /// True if this node's collection is current.
    pub(super) async fn is_alias_target(&self) -> StoreResult<bool> {
        let Some(current) = self.collection_state.read().collection.clone() else {
            return Ok(false);
        };
        let is_target = self.alias_target().await?.is_some_and(|target| target == current.name);
        if !is_target {
            self.collection_state.write().counts = false;
        }
        Ok(is_target)
    }

    async fn alias_target(&self) -> StoreResult<Option<String>> {
        let aliases = self.call_read(self.client.list_aliases()).await?.aliases;
        let alias = aliases
            .into_iter()
            .find(|alias| alias.alias_name == self.options.collection);
        Ok(alias.map(|alias| alias.collection_name))
    }

    async fn active_collection(&self, ours: &[CollectionName]) -> StoreResult<Option<CollectionName>> {
        let Some(target) = self.alias_target().await? else {
            return Ok(None);
        };
        let alias = &self.options.collection;
        let Some(parsed) = CollectionName::parse(alias, &target) else {
            return Err(StoreError::Rejected(format!(
                "the alias {alias} in Qdrant is of the collection {target}, which is not this server's; \
                 choose another vectors.collection"
            )));
        };
        // The list may be older than the alias.
        Ok(ours.iter().find(|other| **other == parsed).cloned().or(Some(parsed)))
    }

    async fn list_collections(&self) -> StoreResult<Vec<CollectionName>> {
        let alias = &self.options.collection;
        let listed = self.call_read(self.client.list_collections()).await?.collections;
        if listed.iter().any(|collection| collection.name == *alias) {
            return Err(StoreError::Rejected(format!(
                "Qdrant has a collection named {alias}, where this server wants an alias; choose another \
                 vectors.collection"
            )));
        }
        let parse_name = |name: &str| CollectionName::parse(alias, name);
        Ok(listed
            .iter()
            .filter_map(|collection| parse_name(&collection.name))
            .collect())
    }

    /// Creates a collection with its indexes. Existing parts stay.
    async fn create_collection(&self, collection: &CollectionName) -> StoreResult<()> {
        let creation = self.client.create_collection(collection_layout(collection));
        if let Err(error) = self.call_within(self.options.write_timeout, creation).await {
            // Another node was faster, which Qdrant reports in several ways.
            if !self.list_collections().await?.contains(collection) {
                return Err(error);
            }
        }
        for (field, kind, params) in payload_indexes() {
            let index = CreateFieldIndexCollectionBuilder::new(&collection.name, field, kind).wait(true);
            let index = index.field_index_params(params);
            self.call_write(self.client.create_field_index(index)).await?;
        }
        Ok(())
    }
}

fn is_replaced(other: &CollectionName, counting: &CollectionName) -> bool {
    other != counting && other.number <= counting.number
}

fn collection_layout(collection: &CollectionName) -> CreateCollection {
    let dense = VectorParams {
        size: collection.space.dimensions as u64,
        // Of unit vectors, the dot product is the cosine, and each vector stays exactly as in the ledger.
        distance: Distance::Dot.into(),
        ..VectorParams::default()
    };
    let dense = VectorParamsMap {
        map: [(DENSE.to_owned(), dense)].into(),
    };
    // The query carries each word's weight in a memory, since Qdrant would count over the whole collection.
    let sparse = SparseVectorConfig {
        map: [(SPARSE.to_owned(), SparseVectorParams::default())].into(),
    };
    CreateCollection {
        collection_name: collection.name.clone(),
        hnsw_config: Some(HnswConfigDiff {
            m: Some(0),
            payload_m: Some(HNSW_LINKS),
            ef_construct: Some(HNSW_EF_CONSTRUCT),
            ..HnswConfigDiff::default()
        }),
        vectors_config: Some(vectors_config::Config::ParamsMap(dense).into()),
        sparse_vectors_config: Some(sparse),
        ..CreateCollection::default()
    }
}

/// Returns the payload fields of searches, with their index types.
fn payload_indexes() -> [(&'static str, FieldType, IndexParams); 8] {
    let keyword = KeywordIndexParamsBuilder::default;
    let ordered = || IntegerIndexParamsBuilder::new(false, true).into();
    [
        (points::TENANT, FieldType::Keyword, keyword().is_tenant(true).into()),
        (points::PARTITION, FieldType::Keyword, keyword().into()),
        (points::READER, FieldType::Keyword, keyword().into()),
        (points::AUDIENCE, FieldType::Keyword, keyword().into()),
        (points::SUBJECT, FieldType::Keyword, keyword().into()),
        (points::WEIGHT, FieldType::Integer, ordered()),
        (points::VALID_AT, FieldType::Integer, ordered()),
        (points::BARE, FieldType::Bool, BoolIndexParams::default().into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collection_names_are_distinguished_from_foreign_names() {
        let space = VectorSpace::of_embedder("e5@384", 384);
        let named = CollectionName::new("colloquy", space.clone(), 7);
        assert_eq!(CollectionName::parse("colloquy", &named.name), Some(named.clone()));
        assert_eq!(named.name, format!("colloquy_384_{}_7", space.fingerprint));
        let longer = CollectionName::new("colloquy_test", space, 7);
        for other in [
            "colloquy",
            "colloquy_384",
            "colloquy_384_a_7_b",
            "other_384_a_7",
            "colloquy_384_a_07",
            &longer.name,
        ] {
            assert_eq!(CollectionName::parse("colloquy", other), None, "{other}");
        }
    }

    #[test]
    fn embedders_have_separate_collections() {
        assert_ne!(
            VectorSpace::of_embedder("a@384", 384),
            VectorSpace::of_embedder("b@384", 384)
        );
        assert_ne!(
            VectorSpace::of_embedder("a@384", 384),
            VectorSpace::of_embedder("a@768", 768)
        );
    }
}
