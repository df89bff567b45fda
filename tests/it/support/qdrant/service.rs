//! The double's services. Supported requests go to the collections; all others are refused.

use std::{net::TcpListener, pin::Pin, sync::Arc};

#[allow(
    clippy::wildcard_imports,
    reason = "one type for each request and answer of the protocol"
)]
use ::qdrant_client::qdrant::{
    alias_operations::Action,
    collections_server::{Collections, CollectionsServer},
    points_selector::PointsSelectorOneOf,
    points_server::{Points, PointsServer},
    *,
};
use parking_lot::Mutex;
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

use super::{
    KEY_HEADER, QdrantStore,
    collection::{Collection, reject_unless_modelled, reject_unsupported, uuid_of},
    query::selected,
};

type QdrantAnswer<T> = Result<Response<T>, Status>;

/// Serves until the runtime ends.
pub async fn serve(listener: TcpListener, store: Arc<Mutex<QdrantStore>>, key: Option<String>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let authorized = move |request: Request<()>| {
        let given = request.metadata().get(KEY_HEADER).and_then(|key| key.to_str().ok());
        if key.is_none() || given == key.as_deref() {
            Ok(request)
        } else {
            Err(Status::unauthenticated("Must provide an API key"))
        }
    };
    let points = PointsServer::new(QdrantService(store.clone())).max_decoding_message_size(usize::MAX);
    let collections = CollectionsServer::new(QdrantService(store));
    Server::builder()
        .add_service(tonic::service::interceptor::InterceptedService::new(
            points,
            authorized.clone(),
        ))
        .add_service(tonic::service::interceptor::InterceptedService::new(
            collections,
            authorized,
        ))
        .serve_with_incoming(TcpIncoming::from(listener))
        .await
        .unwrap();
}

struct QdrantService(Arc<Mutex<QdrantStore>>);

impl QdrantService {
    fn record_request(&self, method: &'static str) -> parking_lot::MutexGuard<'_, QdrantStore> {
        let mut store = self.0.lock();
        store.requests.push(method);
        store
    }

    fn record_search(&self, method: &'static str) -> Result<parking_lot::MutexGuard<'_, QdrantStore>, Status> {
        let store = self.record_request(method);
        if store.broken {
            return Err(Status::internal("Service internal error: out of order"));
        }
        Ok(store)
    }
}

/// Unsupported methods, in the form that the protocol's traits require.
macro_rules! refused {
    ($($method:ident($request:ident) -> $answer:ident;)*) => {
        $(fn $method<'life0, 'async_trait>(
            &'life0 self,
            _: Request<$request>,
        ) -> Pin<Box<dyn Future<Output = QdrantAnswer<$answer>> + Send + 'async_trait>>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(async { reject_unsupported(stringify!($method)) })
        })*
    };
}

fn write_response() -> Response<PointsOperationResponse> {
    Response::new(PointsOperationResponse {
        result: Some(UpdateResult {
            operation_id: Some(1),
            status: UpdateStatus::Completed.into(),
        }),
        ..PointsOperationResponse::default()
    })
}

fn change_response(result: bool) -> Response<CollectionOperationResponse> {
    Response::new(CollectionOperationResponse { result, time: 0.0 })
}

#[tonic::async_trait]
impl Points for QdrantService {
    async fn upsert(&self, request: Request<UpsertPoints>) -> QdrantAnswer<PointsOperationResponse> {
        let request = request.into_inner();
        reject_unless_modelled(
            &request,
            &UpsertPoints {
                collection_name: request.collection_name.clone(),
                wait: Some(true),
                points: request.points.clone(),
                ordering: request.ordering,
                ..UpsertPoints::default()
            },
        )?;
        let mut store = self.record_request("upsert");
        let collection = store.collection(&request.collection_name)?;
        for point in request.points {
            collection.upsert(point)?;
        }
        Ok(write_response())
    }

    async fn delete(&self, request: Request<DeletePoints>) -> QdrantAnswer<PointsOperationResponse> {
        let request = request.into_inner();
        reject_unless_modelled(
            &request,
            &DeletePoints {
                collection_name: request.collection_name.clone(),
                wait: Some(true),
                points: request.points.clone(),
                ordering: request.ordering,
                ..DeletePoints::default()
            },
        )?;
        let mut store = self.record_request("delete");
        let collection = store.collection(&request.collection_name)?;
        let gone: Vec<String> = match request.points.and_then(|points| points.points_selector_one_of) {
            Some(PointsSelectorOneOf::Points(list)) => {
                list.ids.iter().map(|id| uuid_of(Some(id))).collect::<Result<_, _>>()?
            }
            Some(PointsSelectorOneOf::Filter(filter)) => {
                collection.filter_points(Some(&filter))?.into_iter().cloned().collect()
            }
            None => return reject_unsupported("a delete of nothing"),
        };
        for id in gone {
            collection.points.remove(&id);
        }
        Ok(write_response())
    }

    async fn create_field_index(
        &self,
        request: Request<CreateFieldIndexCollection>,
    ) -> QdrantAnswer<PointsOperationResponse> {
        let request = request.into_inner();
        reject_unless_modelled(
            &request,
            &CreateFieldIndexCollection {
                collection_name: request.collection_name.clone(),
                wait: Some(true),
                field_name: request.field_name.clone(),
                field_type: request.field_type,
                field_index_params: request.field_index_params.clone(),
                ..CreateFieldIndexCollection::default()
            },
        )?;
        let mut store = self.record_request("create_field_index");
        store.collection(&request.collection_name)?.index(&request)?;
        Ok(write_response())
    }

    async fn scroll(&self, request: Request<ScrollPoints>) -> QdrantAnswer<ScrollResponse> {
        let request = request.into_inner();
        reject_unless_modelled(
            &request,
            &ScrollPoints {
                collection_name: request.collection_name.clone(),
                filter: request.filter.clone(),
                offset: request.offset.clone(),
                limit: request.limit,
                with_payload: request.with_payload.clone(),
                ..ScrollPoints::default()
            },
        )?;
        let mut store = self.record_search("scroll")?;
        let collection = store.collection(&request.collection_name)?;
        let from = request.offset.as_ref().map(|id| uuid_of(Some(id))).transpose()?;
        let ids = collection.filter_points(request.filter.as_ref())?;
        let mut rest = ids
            .into_iter()
            .filter(|id| from.as_ref().is_none_or(|from| *id >= from));
        let limit = request.limit.unwrap_or(10) as usize;
        let result = rest.by_ref().take(limit).map(|id| {
            Ok(RetrievedPoint {
                id: Some(PointId::from(id.clone())),
                payload: selected(&collection.points[id].payload, request.with_payload.as_ref())?,
                ..RetrievedPoint::default()
            })
        });
        let result = result.collect::<Result<_, Status>>()?;
        Ok(Response::new(ScrollResponse {
            next_page_offset: rest.next().map(|id| PointId::from(id.clone())),
            result,
            ..ScrollResponse::default()
        }))
    }

    async fn count(&self, request: Request<CountPoints>) -> QdrantAnswer<CountResponse> {
        let request = request.into_inner();
        reject_unless_modelled(
            &request,
            &CountPoints {
                collection_name: request.collection_name.clone(),
                filter: request.filter.clone(),
                exact: Some(true),
                ..CountPoints::default()
            },
        )?;
        let mut store = self.record_search("count")?;
        let collection = store.collection(&request.collection_name)?;
        let count = collection.filter_points(request.filter.as_ref())?.len() as u64;
        Ok(Response::new(CountResponse {
            result: Some(CountResult { count }),
            ..CountResponse::default()
        }))
    }

    async fn query(&self, request: Request<QueryPoints>) -> QdrantAnswer<QueryResponse> {
        let request = request.into_inner();
        let mut store = self.record_search("query")?;
        let result = store.collection(&request.collection_name)?.query(&request)?;
        Ok(Response::new(QueryResponse {
            result,
            ..QueryResponse::default()
        }))
    }

    async fn query_batch(&self, request: Request<QueryBatchPoints>) -> QdrantAnswer<QueryBatchResponse> {
        let request = request.into_inner();
        reject_unless_modelled(
            &request,
            &QueryBatchPoints {
                collection_name: request.collection_name.clone(),
                query_points: request.query_points.clone(),
                ..QueryBatchPoints::default()
            },
        )?;
        let mut store = self.record_search("query_batch")?;
        let collection = store.collection(&request.collection_name)?;
        let result = request.query_points.iter().map(|query| {
            let result = collection.query(query)?;
            Ok(BatchResult { result })
        });
        Ok(Response::new(QueryBatchResponse {
            result: result.collect::<Result<_, Status>>()?,
            ..QueryBatchResponse::default()
        }))
    }

    refused! {
        get(GetPoints) -> GetResponse;
        update_vectors(UpdatePointVectors) -> PointsOperationResponse;
        delete_vectors(DeletePointVectors) -> PointsOperationResponse;
        set_payload(SetPayloadPoints) -> PointsOperationResponse;
        overwrite_payload(SetPayloadPoints) -> PointsOperationResponse;
        delete_payload(DeletePayloadPoints) -> PointsOperationResponse;
        clear_payload(ClearPayloadPoints) -> PointsOperationResponse;
        delete_field_index(DeleteFieldIndexCollection) -> PointsOperationResponse;
        create_vector_name(CreateVectorNameRequest) -> PointsOperationResponse;
        delete_vector_name(DeleteVectorNameRequest) -> PointsOperationResponse;
        search(SearchPoints) -> SearchResponse;
        search_batch(SearchBatchPoints) -> SearchBatchResponse;
        search_groups(SearchPointGroups) -> SearchGroupsResponse;
        recommend(RecommendPoints) -> RecommendResponse;
        recommend_batch(RecommendBatchPoints) -> RecommendBatchResponse;
        recommend_groups(RecommendPointGroups) -> RecommendGroupsResponse;
        discover(DiscoverPoints) -> DiscoverResponse;
        discover_batch(DiscoverBatchPoints) -> DiscoverBatchResponse;
        update_batch(UpdateBatchPoints) -> UpdateBatchResponse;
        query_groups(QueryPointGroups) -> QueryGroupsResponse;
        facet(FacetCounts) -> FacetResponse;
        search_matrix_pairs(SearchMatrixPoints) -> SearchMatrixPairsResponse;
        search_matrix_offsets(SearchMatrixPoints) -> SearchMatrixOffsetsResponse;
    }
}

#[tonic::async_trait]
impl Collections for QdrantService {
    async fn list(&self, _: Request<ListCollectionsRequest>) -> QdrantAnswer<ListCollectionsResponse> {
        let names = self
            .record_request("list")
            .collections
            .keys()
            .cloned()
            .collect::<Vec<_>>();
        let collections = names.into_iter().map(|name| CollectionDescription { name });
        Ok(Response::new(ListCollectionsResponse {
            collections: collections.collect(),
            time: 0.0,
        }))
    }

    async fn create(&self, request: Request<CreateCollection>) -> QdrantAnswer<CollectionOperationResponse> {
        let request = request.into_inner();
        let collection = Collection::new(&request)?;
        let mut store = self.record_request("create");
        let name = request.collection_name;
        if store.collections.contains_key(&name) {
            let what = format!("Wrong input: Collection `{name}` already exists!");
            return Err(Status::already_exists(what));
        }
        if store.aliases.contains_key(&name) {
            return Err(Status::invalid_argument(format!("Wrong input: `{name}` is an alias")));
        }
        store.collections.insert(name, collection);
        Ok(change_response(true))
    }

    async fn delete(&self, request: Request<DeleteCollection>) -> QdrantAnswer<CollectionOperationResponse> {
        let request = request.into_inner();
        let mut store = self.record_request("delete_collection");
        let name = request.collection_name;
        store.aliases.retain(|_, target| *target != name);
        Ok(change_response(store.collections.remove(&name).is_some()))
    }

    async fn update_aliases(&self, request: Request<ChangeAliases>) -> QdrantAnswer<CollectionOperationResponse> {
        let request = request.into_inner();
        let mut store = self.record_request("update_aliases");
        for change in request.actions {
            let Some(Action::CreateAlias(alias)) = change.action else {
                return reject_unsupported(change);
            };
            if !store.collections.contains_key(&alias.collection_name) {
                let what = format!("Not found: Collection `{}` doesn't exist!", alias.collection_name);
                return Err(Status::not_found(what));
            }
            if store.collections.contains_key(&alias.alias_name) {
                let what = format!("Wrong input: Collection `{}` already exists!", alias.alias_name);
                return Err(Status::already_exists(what));
            }
            store.aliases.insert(alias.alias_name, alias.collection_name);
        }
        Ok(change_response(true))
    }

    async fn list_aliases(&self, _: Request<ListAliasesRequest>) -> QdrantAnswer<ListAliasesResponse> {
        let store = self.record_request("list_aliases");
        let aliases = store.aliases.iter().map(|(alias, collection)| AliasDescription {
            alias_name: alias.clone(),
            collection_name: collection.clone(),
        });
        Ok(Response::new(ListAliasesResponse {
            aliases: aliases.collect(),
            time: 0.0,
        }))
    }

    async fn get(&self, request: Request<GetCollectionInfoRequest>) -> QdrantAnswer<GetCollectionInfoResponse> {
        let name = request.into_inner().collection_name;
        if !self.record_request("get_collection").collections.contains_key(&name) {
            return Err(Status::not_found(format!(
                "Not found: Collection `{name}` doesn't exist!"
            )));
        }
        // The double creates no links.
        let info = CollectionInfo {
            status: CollectionStatus::Green.into(),
            ..CollectionInfo::default()
        };
        Ok(Response::new(GetCollectionInfoResponse {
            result: Some(info),
            time: 0.0,
        }))
    }

    refused! {
        update(UpdateCollection) -> CollectionOperationResponse;
        list_collection_aliases(ListCollectionAliasesRequest) -> ListAliasesResponse;
        collection_cluster_info(CollectionClusterInfoRequest) -> CollectionClusterInfoResponse;
        collection_exists(CollectionExistsRequest) -> CollectionExistsResponse;
        update_collection_cluster_setup(UpdateCollectionClusterSetupRequest) -> UpdateCollectionClusterSetupResponse;
        create_shard_key(CreateShardKeyRequest) -> CreateShardKeyResponse;
        delete_shard_key(DeleteShardKeyRequest) -> DeleteShardKeyResponse;
        list_shard_keys(ListShardKeysRequest) -> ListShardKeysResponse;
    }
}
