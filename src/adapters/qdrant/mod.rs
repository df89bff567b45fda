//! The index in Qdrant, shared by every node of the server.
//!
//! One collection holds the points of all tenants, each found by its tenant first. A collection belongs to
//! one vector space: vectors of another embedder, or of another length, get a collection of their own, which
//! is filled from the ledger and then takes the place of the old one ([`collection`]). What a point is made of is
//! said in [`points`], how it is searched for in [`search`].
//!
//! Owns the connection and what is done while there is none: what Qdrant does not answer in time fails, and
//! after a few such calls they fail at once for a moment, so that turns do not wait for it. The connection
//! comes back by itself.

mod collection;
mod points;
mod search;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use qdrant_client::{
    Qdrant, QdrantError,
    qdrant::{
        CountPoints, DeletePoints, Filter, PointsIdsList, PointsOperationResponse, PointsSelector, ScrollPoints,
        UpdateStatus, UpsertPoints, WriteOrdering, WriteOrderingType, points_selector::PointsSelectorOneOf,
    },
};
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{Code, Status};

use self::collection::{CollectionState, VectorSpace};
use super::breaker::StoreBreaker;
use crate::{
    ids::FactId,
    ports::{
        StoreError, StoreResult, redaction,
        vectors::{
            Candidate, CandidateQuery, FactIndex, IndexPoint, IndexState, PrepareOutcome, SimilarFactsQuery,
            StoredPointPage,
        },
    },
    tenancy::TenantScope,
};

/// How Qdrant is reached and what is kept there.
#[derive(Debug, Clone)]
pub struct QdrantOptions {
    /// Its gRPC address, `http://host:6334`, or `https://` for TLS.
    pub url: String,
    pub api_key: Option<SecretString>,
    /// The alias of the collection that counts, and what the names of collections begin with.
    pub collection: String,
    /// How long a search may take.
    pub timeout: Duration,
    /// How long a write may take, or a change of collections.
    pub write_timeout: Duration,
    /// How widely a large tenant's graph is searched.
    pub hnsw_ef: u64,
    /// Names the vector space: vectors of two embedders are never compared.
    pub embedding_model: String,
    /// Length of its vectors.
    pub dimensions: usize,
}

/// Points in one request.
const CHUNK_POINTS: usize = 128;

/// The index in Qdrant.
pub struct QdrantFactIndex {
    client: Qdrant,
    options: QdrantOptions,
    breaker: StoreBreaker,
    space: VectorSpace,
    collection_state: RwLock<CollectionState>,
    /// The last call found nobody.
    away: AtomicBool,
}

impl QdrantFactIndex {
    /// Connects at the first call.
    ///
    /// # Errors
    /// [`StoreError::Rejected`]: the address is none.
    pub fn new(options: QdrantOptions) -> StoreResult<Self> {
        // Fails if another part of the program has chosen already, which is just as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = options.api_key.as_ref().map(|key| key.expose_secret().to_owned());
        let client = Qdrant::from_url(&options.url)
            .timeout(options.write_timeout)
            .connect_timeout(options.timeout)
            .api_key(key)
            // It prints, and asks before there is anything to ask.
            .skip_compatibility_check()
            .build()
            .map_err(store_error)?;
        Ok(Self {
            client,
            breaker: StoreBreaker::new("Qdrant"),
            space: VectorSpace::of_embedder(&options.embedding_model, options.dimensions),
            collection_state: RwLock::default(),
            away: AtomicBool::new(false),
            options,
        })
    }

    /// Asks Qdrant within `limit`, unless it has just failed. Boxed, since the client's futures are large.
    fn call_within<'a, T: Send + 'a>(
        &'a self,
        limit: Duration,
        work: impl Future<Output = Result<T, QdrantError>> + Send + 'a,
    ) -> BoxFuture<'a, StoreResult<T>> {
        let work = Box::pin(work);
        Box::pin(async move {
            let mut gone = false;
            let asked = async {
                work.await.map_err(|error| {
                    gone = is_not_found(&error);
                    store_error(error)
                })
            };
            let answer = self.breaker.call_within(limit, asked).await;
            let away = matches!(&answer, Err(StoreError::Unavailable(_))) && !gone;
            self.away.store(away, Ordering::Relaxed);
            if gone {
                // Somebody dropped the collection; another has to be found or made.
                self.collection_state.write().forget_collection();
            }
            answer
        })
    }

    fn call_read<'a, T: Send + 'a>(
        &'a self,
        work: impl Future<Output = Result<T, QdrantError>> + Send + 'a,
    ) -> BoxFuture<'a, StoreResult<T>> {
        self.call_within(self.options.timeout, work)
    }

    fn call_write<'a>(
        &'a self,
        work: impl Future<Output = Result<PointsOperationResponse, QdrantError>> + Send + 'a,
    ) -> BoxFuture<'a, StoreResult<()>> {
        let writing = self.call_within(self.options.write_timeout, work);
        Box::pin(async move {
            let status = writing.await?.result.map(|result| result.status());
            if status == Some(UpdateStatus::Completed) {
                Ok(())
            } else {
                // Received and perhaps done later: whoever wrote has to write again.
                let unfinished = format!("Qdrant did not finish a write: {status:?}");
                Err(StoreError::Unavailable(unfinished))
            }
        })
    }

    async fn delete_points(&self, points: PointsSelectorOneOf) -> StoreResult<()> {
        let request = DeletePoints {
            collection_name: self.collection_state.read().writable_name()?,
            wait: Some(true),
            points: Some(PointsSelector {
                points_selector_one_of: Some(points),
            }),
            ordering: Some(write_ordering()),
            ..DeletePoints::default()
        };
        self.call_write(self.client.delete_points(request)).await
    }
}

#[async_trait]
impl FactIndex for QdrantFactIndex {
    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>> {
        let collection = self.collection_state.read().searchable_name()?;
        let asked = search::CandidateSearch {
            collection,
            dimensions: self.options.dimensions,
            hnsw_ef: self.options.hnsw_ef,
        };
        let Some(request) = asked.build_request(scope, &proposal) else {
            return Ok(Vec::new());
        };
        let response = self.call_read(self.client.query_batch(request)).await?;
        let with_query = asked.has_query(&proposal);
        Ok(search::merge_candidates(response, proposal.terms, with_query))
    }

    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        let collection = self.collection_state.read().searchable_name()?;
        if with.embedding.len() != self.options.dimensions || with.limit == 0 {
            return Ok(Vec::new());
        }
        let request = search::nearest_request(
            collection,
            points::comparison_filter(scope, with),
            with,
            self.options.hnsw_ef,
        );
        let response = self.call_read(self.client.query(request)).await?;
        Ok(search::sort_candidates(&response, with.min_cosine))
    }

    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        for chunk in points.chunks(CHUNK_POINTS) {
            let request = UpsertPoints {
                collection_name: self.collection_state.read().writable_name()?,
                wait: Some(true),
                points: chunk
                    .iter()
                    .map(|point| points::encode_point(scope, point, self.options.dimensions))
                    .collect(),
                ordering: Some(write_ordering()),
                ..UpsertPoints::default()
            };
            self.call_write(self.client.upsert_points(request)).await?;
        }
        Ok(())
    }

    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        for chunk in facts.chunks(CHUNK_POINTS) {
            let ids = chunk.iter().map(|fact| points::point_id(scope, *fact)).collect();
            self.delete_points(PointsSelectorOneOf::Points(PointsIdsList { ids }))
                .await?;
        }
        Ok(())
    }

    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64> {
        let request = CountPoints {
            collection_name: self.collection_state.read().writable_name()?,
            filter: Some(Filter::must([points::tenant_condition(scope)])),
            exact: Some(true),
            ..CountPoints::default()
        };
        let counted = self
            .call_within(self.options.write_timeout, self.client.count(request))
            .await?;
        Ok(counted.result.map_or(0, |result| result.count))
    }

    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        let filter = Filter::must([points::tenant_condition(scope)]);
        self.delete_points(PointsSelectorOneOf::Filter(filter)).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn index_state(&self) -> IndexState {
        if self.away.load(Ordering::Relaxed) {
            return IndexState::Away;
        }
        self.collection_state.read().index_state()
    }

    async fn prepare_index(&self, may_make: bool) -> StoreResult<PrepareOutcome> {
        self.find_or_make_collection(may_make).await
    }

    async fn adopt_index(&self) -> StoreResult<()> {
        self.adopt_collection().await
    }

    async fn drop_replaced_index(&self) -> StoreResult<()> {
        self.drop_replaced_collections().await
    }

    async fn is_current(&self) -> StoreResult<bool> {
        self.is_alias_target().await
    }

    async fn list_stored_points(
        &self,
        scope: &TenantScope,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Option<StoredPointPage>> {
        let request = ScrollPoints {
            collection_name: self.collection_state.read().writable_name()?,
            filter: Some(Filter::must([points::tenant_condition(scope)])),
            offset: after.map(Into::into),
            limit: Some(limit),
            with_payload: Some(points::stored_fields()),
            ..ScrollPoints::default()
        };
        let page = self
            .call_within(self.options.write_timeout, self.client.scroll(request))
            .await?;
        points::decode_stored_points(page).map(Some)
    }
}

/// Writes of one point are done in the order in which they came.
fn write_ordering() -> WriteOrdering {
    WriteOrdering {
        r#type: WriteOrderingType::Medium.into(),
    }
}

fn error_status(error: &QdrantError) -> Option<&Status> {
    match error {
        QdrantError::ResponseError { status } | QdrantError::ResourceExhaustedError { status, .. } => Some(status),
        _ => None,
    }
}

fn is_not_found(error: &QdrantError) -> bool {
    error_status(error).is_some_and(|status| status.code() == Code::NotFound)
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn store_error(error: QdrantError) -> StoreError {
    let Some(status) = error_status(&error) else {
        return StoreError::Rejected(format!(
            "Qdrant cannot be used: {}",
            redaction::to_log_line(&error.to_string())
        ));
    };
    // Without the metadata, which is the other side's.
    let why = format!(
        "Qdrant: {} ({:?})",
        redaction::to_log_line(status.message()),
        status.code()
    );
    match status.code() {
        Code::InvalidArgument
        | Code::Unauthenticated
        | Code::PermissionDenied
        | Code::Unimplemented
        | Code::FailedPrecondition
        | Code::OutOfRange => StoreError::Rejected(why),
        // `Internal` is also what the client says when it cannot connect.
        _ => StoreError::Unavailable(why),
    }
}

impl std::fmt::Debug for QdrantFactIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QdrantFactIndex")
            .field("collection", &self.options.collection)
            .finish_non_exhaustive()
    }
}
