//! Which collection holds the points, and how another takes its place.
//!
//! A collection is named `<name>_<length of vectors>_<vector space>_<number>`; the alias `<name>` says which
//! one counts. Whoever needs another vector space makes one with the next number (several who need the same
//! make the same), fills it and moves the alias; then what has a lower number is dropped. Everybody reads and
//! writes by the collection's own name, so that vectors of two spaces never meet; a node whose collection
//! does not count any longer finds nothing and takes nothing out of the outbox.

use qdrant_client::qdrant::{
    BoolIndexParams, CreateAlias, CreateCollection, CreateFieldIndexCollection, DeleteCollection, Distance, FieldType,
    HnswConfigDiff, IntegerIndexParams, KeywordIndexParams, PayloadIndexParams, SparseVectorConfig, SparseVectorParams,
    VectorParams, VectorParamsMap, VectorsConfig, payload_index_params::IndexParams, vectors_config,
};
use sha2::{Digest as _, Sha256};

use super::{QdrantFactIndex, points, search};
use crate::{
    memory::text::hexadecimal,
    ports::{
        StoreError, StoreResult,
        vectors::{IndexState, Prepared},
    },
};

/// Goes up when points are written differently: they are then all written anew.
const LAYOUT: u32 = 3;
/// Links of a vector among those that share a tenant or a partition. There are none across (`m` is 0): no
/// search goes there.
const LINKS: u64 = 16;
/// How many neighbours are weighed for those links.
const WEIGHED: u64 = 200;

/// A vector space, as it stands in a collection's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space {
    dimensions: usize,
    /// Of the embedder and of the layout of points, hexadecimal.
    fingerprint: String,
}

impl Space {
    pub(super) fn of(embedding_model: &str, dimensions: usize) -> Self {
        let digest = Sha256::digest(format!("{LAYOUT} {embedding_model}"));
        Self {
            dimensions,
            fingerprint: hexadecimal(&digest[..4]),
        }
    }
}

/// A collection of ours, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    name: String,
    space: Space,
    number: u32,
}

impl Named {
    fn new(alias: &str, space: Space, number: u32) -> Self {
        Self {
            name: format!("{alias}_{}_{}_{number}", space.dimensions, space.fingerprint),
            space,
            number,
        }
    }

    /// `None`: not one of ours.
    fn parse(alias: &str, name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(alias)?.strip_prefix('_')?.split('_');
        let space = Space {
            dimensions: parts.next()?.parse().ok()?,
            fingerprint: parts.next()?.to_owned(),
        };
        let named = Self::new(alias, space, parts.next()?.parse().ok()?);
        (named.name == name).then_some(named)
    }
}

/// What this node knows of its collection.
#[derive(Debug, Default)]
pub(super) struct Place {
    collection: Option<Named>,
    /// It is the one that counts.
    counts: bool,
    /// The number of the collection that was ready last: no older one counts for this node again.
    had: Option<u32>,
}

impl Place {
    pub(super) fn state(&self) -> IndexState {
        match (&self.collection, self.counts) {
            (Some(_), true) => IndexState::Ready,
            (Some(_), false) => IndexState::Filling,
            (None, _) => IndexState::Away,
        }
    }

    pub(super) fn searchable(&self) -> StoreResult<String> {
        match &self.collection {
            Some(collection) if self.counts => Ok(collection.name.clone()),
            Some(_) => Err(unavailable("the index is being filled from the ledger")),
            None => Err(unavailable("there is no index of this embedder")),
        }
    }

    pub(super) fn writable(&self) -> StoreResult<String> {
        let collection = self.collection.as_ref();
        let name = collection.map(|collection| collection.name.clone());
        name.ok_or_else(|| unavailable("there is no index of this embedder"))
    }

    pub(super) fn lose(&mut self) {
        self.collection = None;
        self.counts = false;
    }

    fn take(&mut self, collection: Named, counts: bool) {
        if counts {
            self.had = Some(collection.number);
        }
        self.collection = Some(collection);
        self.counts = counts;
    }
}

fn unavailable(why: &str) -> StoreError {
    StoreError::Unavailable(why.to_owned())
}

impl QdrantFactIndex {
    /// Finds this node's collection, or makes it if it may.
    pub(super) async fn find_place(&self, may_make: bool) -> StoreResult<Prepared> {
        let ours = self.collections().await?;
        let counting = self.counting(&ours).await?;
        if let Some(counting) = counting.as_ref().filter(|counting| counting.space == self.space) {
            let replaced = ours.iter().any(|other| is_replaced(other, counting));
            self.place.write().take(counting.clone(), true);
            return Ok(if replaced {
                Prepared::Unfinished
            } else {
                Prepared::Ready
            });
        }
        let last = counting.as_ref().map_or(0, |counting| counting.number);
        if self.place.read().had.is_some_and(|had| last > had) {
            self.place.write().lose();
            return Err(unavailable(
                "another node searches with another embedder; this one has to be started again with the same",
            ));
        }
        if !may_make {
            return Ok(Prepared::Empty);
        }
        // One that somebody has begun to fill, unless it is from before the one that counts.
        let begun = ours
            .iter()
            .filter(|named| named.space == self.space && named.number > last);
        let collection = if let Some(begun) = begun.max_by_key(|named| named.number) {
            begun.clone()
        } else {
            let highest = ours.iter().map(|named| named.number).max().unwrap_or(0);
            Named::new(&self.options.collection, self.space.clone(), highest.saturating_add(1))
        };
        self.create(&collection).await?;
        self.place.write().take(collection, false);
        Ok(Prepared::Empty)
    }

    /// Makes this node's collection the one that counts.
    pub(super) async fn take_place(&self) -> StoreResult<()> {
        let Some(collection) = self.place.read().collection.clone() else {
            return Err(unavailable("there is no index to take up"));
        };
        // Replaces the alias if there is one.
        let alias = CreateAlias {
            collection_name: collection.name.clone(),
            alias_name: self.options.collection.clone(),
        };
        self.call(self.options.write_timeout, self.client.create_alias(alias))
            .await?;
        tracing::info!(collection = collection.name, "the index was filled, and counts");
        self.place.write().take(collection, true);
        Ok(())
    }

    /// Drops what this node's collection has replaced.
    pub(super) async fn drop_replaced(&self) -> StoreResult<()> {
        let ours = self.collections().await?;
        let Some(counting) = self
            .counting(&ours)
            .await?
            .filter(|counting| counting.space == self.space)
        else {
            // Somebody else has taken over meanwhile, and drops it.
            return Ok(());
        };
        for replaced in ours.iter().filter(|other| is_replaced(other, &counting)) {
            let drop = DeleteCollection {
                collection_name: replaced.name.clone(),
                ..DeleteCollection::default()
            };
            let dropped = self.client.delete_collection(drop);
            self.call(self.options.write_timeout, dropped).await?;
            tracing::info!(collection = replaced.name, "dropped an index that was replaced");
        }
        Ok(())
    }

    /// Whether this node's collection is the one that counts.
    pub(super) async fn holds_place(&self) -> StoreResult<bool> {
        let Some(own) = self.place.read().collection.clone() else {
            return Ok(false);
        };
        let holds = self.alias_target().await?.is_some_and(|target| target == own.name);
        if !holds {
            self.place.write().counts = false;
        }
        Ok(holds)
    }

    async fn alias_target(&self) -> StoreResult<Option<String>> {
        let aliases = self.read(self.client.list_aliases()).await?.aliases;
        let own = aliases
            .into_iter()
            .find(|alias| alias.alias_name == self.options.collection);
        Ok(own.map(|alias| alias.collection_name))
    }

    async fn counting(&self, ours: &[Named]) -> StoreResult<Option<Named>> {
        let Some(target) = self.alias_target().await? else {
            return Ok(None);
        };
        let alias = &self.options.collection;
        let Some(named) = Named::parse(alias, &target) else {
            return Err(StoreError::Rejected(format!(
                "the alias {alias} in Qdrant is of the collection {target}, which is not this server's; \
                 choose another vectors.collection"
            )));
        };
        // The list may be older than the alias.
        Ok(ours.iter().find(|other| **other == named).cloned().or(Some(named)))
    }

    async fn collections(&self) -> StoreResult<Vec<Named>> {
        let alias = &self.options.collection;
        let listed = self.read(self.client.list_collections()).await?.collections;
        if listed.iter().any(|collection| collection.name == *alias) {
            return Err(StoreError::Rejected(format!(
                "Qdrant has a collection named {alias}, where this server wants an alias; choose another \
                 vectors.collection"
            )));
        }
        let named = |name: &str| Named::parse(alias, name);
        Ok(listed.iter().filter_map(|collection| named(&collection.name)).collect())
    }

    /// Makes a collection with its indexes; what is there already stays.
    async fn create(&self, collection: &Named) -> StoreResult<()> {
        let made = self.client.create_collection(layout(collection));
        if let Err(error) = self.call(self.options.write_timeout, made).await {
            // Somebody else was quicker, which is said in several ways.
            if !self.collections().await?.contains(collection) {
                return Err(error);
            }
        }
        for (field, kind, params) in indexes() {
            let index = CreateFieldIndexCollection {
                collection_name: collection.name.clone(),
                wait: Some(true),
                field_name: field.to_owned(),
                field_type: Some(kind.into()),
                field_index_params: Some(PayloadIndexParams {
                    index_params: Some(params),
                }),
                ..CreateFieldIndexCollection::default()
            };
            self.write(self.client.create_field_index(index)).await?;
        }
        Ok(())
    }
}

fn is_replaced(other: &Named, counting: &Named) -> bool {
    other != counting && other.number <= counting.number
}

fn layout(collection: &Named) -> CreateCollection {
    let dense = VectorParams {
        size: collection.space.dimensions as u64,
        // Of unit vectors: the cosine, and each stays the very one that the ledger has.
        distance: Distance::Dot.into(),
        ..VectorParams::default()
    };
    // How rare a word is in a memory comes with the query: Qdrant would count over all that the collection holds.
    let sparse = SparseVectorParams::default();
    CreateCollection {
        collection_name: collection.name.clone(),
        hnsw_config: Some(HnswConfigDiff {
            m: Some(0),
            payload_m: Some(LINKS),
            ef_construct: Some(WEIGHED),
            ..HnswConfigDiff::default()
        }),
        vectors_config: Some(VectorsConfig {
            config: Some(vectors_config::Config::ParamsMap(VectorParamsMap {
                map: [(search::DENSE.to_owned(), dense)].into(),
            })),
        }),
        sparse_vectors_config: Some(SparseVectorConfig {
            map: [(search::SPARSE.to_owned(), sparse)].into(),
        }),
        ..CreateCollection::default()
    }
}

/// What is searched by.
fn indexes() -> [(&'static str, FieldType, IndexParams); 8] {
    let keyword = |is_tenant: bool| {
        IndexParams::KeywordIndexParams(KeywordIndexParams {
            is_tenant: is_tenant.then_some(true),
            ..KeywordIndexParams::default()
        })
    };
    let ordered = || {
        IndexParams::IntegerIndexParams(IntegerIndexParams {
            lookup: Some(false),
            range: Some(true),
            ..IntegerIndexParams::default()
        })
    };
    [
        (points::TENANT, FieldType::Keyword, keyword(true)),
        (points::PARTITION, FieldType::Keyword, keyword(false)),
        (points::READER, FieldType::Keyword, keyword(false)),
        (points::AUDIENCE, FieldType::Keyword, keyword(false)),
        (points::SUBJECT, FieldType::Keyword, keyword(false)),
        (points::WEIGHT, FieldType::Integer, ordered()),
        (points::VALID_AT, FieldType::Integer, ordered()),
        (
            points::BARE,
            FieldType::Bool,
            IndexParams::BoolIndexParams(BoolIndexParams::default()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_those_of_others() {
        let space = Space::of("e5@384", 384);
        let named = Named::new("colloquy", space.clone(), 7);
        assert_eq!(Named::parse("colloquy", &named.name), Some(named.clone()));
        assert_eq!(named.name, format!("colloquy_384_{}_7", space.fingerprint));
        let longer = Named::new("colloquy_test", space, 7);
        for other in [
            "colloquy",
            "colloquy_384",
            "colloquy_384_a_7_b",
            "other_384_a_7",
            "colloquy_384_a_07",
            &longer.name,
        ] {
            assert_eq!(Named::parse("colloquy", other), None, "{other}");
        }
    }

    #[test]
    fn another_embedder_is_another_space() {
        assert_ne!(Space::of("a@384", 384), Space::of("b@384", 384));
        assert_ne!(Space::of("a@384", 384), Space::of("a@768", 768));
    }
}
