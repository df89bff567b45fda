//! The index in Qdrant, shared by every node of the server.
//!
//! One collection holds the points of all tenants, and every search filters by tenant first. A collection belongs to
//! one vector space. Vectors of another embedder, or of another length, get their own collection, which is filled from
//! the ledger and then replaces the old one ([`collection`]). [`points`] describes the points, and [`search`] the
//! searches.
//!
//! This module owns the connection and the handling of outages. A call without an answer in time fails. After a few
//! failures, calls fail at once for a moment, so that turns do not wait. The connection recovers by itself.

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
        CountPointsBuilder, DeletePointsBuilder, Filter, PointId, PointsOperationResponse, ScrollPoints, UpdateStatus,
        UpsertPointsBuilder, WriteOrdering, WriteOrderingType, points_selector::PointsSelectorOneOf,
    },
};
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{Code, Status};

use self::collection::{CollectionState, VectorSpace};
use super::breaker::StoreBreaker;
use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_ports::{
    StoreError, StoreResult, redaction,
    vectors::{
        Candidate, CandidateQuery, FactIndex, IndexPoint, IndexState, PrepareOutcome, SimilarFactsQuery,
        StoredPointPage,
    },
};

/// The connection to Qdrant and the properties of the stored vectors.
#[derive(Debug, Clone)]
pub struct QdrantOptions {
    /// Qdrant's gRPC address, `http://host:6334`, or `https://` for TLS.
    pub url: String,
    pub api_key: Option<SecretString>,
    /// The alias of the current collection, and the prefix of all collections' names.
    pub collection: String,
    /// The time limit of a search.
    pub timeout: Duration,
    /// The time limit of a write or a change of collections.
    pub write_timeout: Duration,
    /// The name of the vector space. Vectors of two embedders are never compared.
    pub embedding_model: String,
    /// The length of the embedder's vectors.
    pub dimensions: usize,
}

/// Writes of one point are executed in their order of arrival.
const ORDERING: WriteOrdering = WriteOrdering {
    r#type: WriteOrderingType::Medium as i32,
};
/// The largest number of points in one request.
const CHUNK_POINTS: usize = 128;

/// The index in Qdrant.
pub struct QdrantFactIndex {
    client: Qdrant,
    options: QdrantOptions,
    breaker: StoreBreaker,
    space: VectorSpace,
    collection_state: RwLock<CollectionState>,
    /// True if the last call did not reach Qdrant.
    is_unavailable: AtomicBool,
}

impl QdrantFactIndex {
    /// Connects at the first call.
    ///
    /// # Errors
    /// [`StoreError::Rejected`]: the address is invalid.
    pub fn new(options: QdrantOptions) -> StoreResult<Self> {
        // Fails, harmlessly, if another part of the program has already installed a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = options.api_key.as_ref().map(|key| key.expose_secret().to_owned());
        let client = Qdrant::from_url(&options.url)
            .timeout(options.write_timeout)
            .connect_timeout(options.timeout)
            .api_key(key)
            // The check prints, and calls Qdrant too early.
            .skip_compatibility_check()
            .build()
            .map_err(store_error)?;
        Ok(Self {
            client,
            breaker: StoreBreaker::new("Qdrant"),
            space: VectorSpace::of_embedder(&options.embedding_model, options.dimensions),
            collection_state: RwLock::default(),
            is_unavailable: AtomicBool::new(false),
            options,
        })
    }

    /// Calls Qdrant within `limit`, unless Qdrant has just failed. Boxed, since the client's futures are large.
    fn call_within<'a, T: Send + 'a>(
        &'a self,
        limit: Duration,
        work: impl Future<Output = Result<T, QdrantError>> + Send + 'a,
    ) -> BoxFuture<'a, StoreResult<T>> {
        let work = Box::pin(work);
        Box::pin(async move {
            let mut is_missing = false;
            let request = async {
                work.await.map_err(|error| {
                    is_missing = is_not_found(&error);
                    store_error(error)
                })
            };
            let answer = self.breaker.call_within(limit, request).await;
            let is_unavailable = matches!(&answer, Err(StoreError::Unavailable(_))) && !is_missing;
            self.is_unavailable.store(is_unavailable, Ordering::Relaxed);
            if is_missing {
                // The collection was dropped. The node must find or create another.
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
                // Qdrant has the write but may execute it later, so the caller must repeat the write.
                let unfinished = format!("Qdrant did not finish a write: {status:?}");
                Err(StoreError::Unavailable(unfinished))
            }
        })
    }

    async fn delete_points(&self, points: impl Into<PointsSelectorOneOf>) -> StoreResult<()> {
        let collection = self.collection_state.read().writable_name()?;
        let request = DeletePointsBuilder::new(collection).points(points).wait(true);
        let request = request.ordering(ORDERING);
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
        let candidate_search = search::CandidateSearch {
            collection,
            dimensions: self.options.dimensions,
        };
        let Some(request) = candidate_search.build_request(scope, &proposal) else {
            return Ok(Vec::new());
        };
        let response = self.call_read(self.client.query_batch(request)).await?;
        let with_query = candidate_search.has_query(&proposal);
        Ok(search::merge_candidates(response, proposal.terms, with_query))
    }

    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        let collection = self.collection_state.read().searchable_name()?;
        if with.embedding.len() != self.options.dimensions || with.limit == 0 {
            return Ok(Vec::new());
        }
        let request = search::nearest_request(collection, points::comparison_filter(scope, with), with);
        let response = self.call_read(self.client.query(request)).await?;
        Ok(search::sort_candidates(&response, with.min_cosine))
    }

    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        for chunk in points.chunks(CHUNK_POINTS) {
            let collection = self.collection_state.read().writable_name()?;
            let points = chunk.iter();
            let points = points.map(|point| points::encode_point(scope, point, self.options.dimensions));
            let request = UpsertPointsBuilder::new(collection, points.collect::<Vec<_>>()).wait(true);
            let request = request.ordering(ORDERING);
            self.call_write(self.client.upsert_points(request)).await?;
        }
        Ok(())
    }

    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        for chunk in facts.chunks(CHUNK_POINTS) {
            let ids: Vec<PointId> = chunk.iter().map(|fact| points::point_id(scope, *fact)).collect();
            self.delete_points(ids).await?;
        }
        Ok(())
    }

    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64> {
        let collection = self.collection_state.read().writable_name()?;
        let of_tenant = Filter::must([points::tenant_condition(scope)]);
        let request = CountPointsBuilder::new(collection).filter(of_tenant).exact(true);
        let counted = self
            .call_within(self.options.write_timeout, self.client.count(request))
            .await?;
        Ok(counted.result.map_or(0, |result| result.count))
    }

    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.delete_points(Filter::must([points::tenant_condition(scope)]))
            .await
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn index_state(&self) -> IndexState {
        if self.is_unavailable.load(Ordering::Relaxed) {
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
            with_payload: Some(vec![points::FACT, points::DIGEST].into()),
            ..ScrollPoints::default()
        };
        let page = self
            .call_within(self.options.write_timeout, self.client.scroll(request))
            .await?;
        points::decode_stored_points(page).map(Some)
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
    // Without the metadata, which comes from Qdrant.
    let message = format!(
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
        | Code::OutOfRange => StoreError::Rejected(message),
        // The client also reports `Internal` for a failed connection.
        _ => StoreError::Unavailable(message),
    }
}

impl std::fmt::Debug for QdrantFactIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QdrantFactIndex")
            .field("collection", &self.options.collection)
            .finish_non_exhaustive()
    }
}
