//! The path of all resources that authors write: reads, lists, conditional puts with dry runs, and deletions.
//!
//! A file describes its resource: `authored_resource!` takes its names, ids and store, and makes the operations that read
//! and delete; `authored_list!` makes the list. The file itself has the body of a PUT and its rules.

use std::{fmt::Display, str::FromStr};

use actix_web::{HttpRequest, HttpResponse, web};
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{
    AppState,
    dry_run::{self, PutQuery},
    errors::Problem,
    etag::{self, IfMatch},
    extract::{Author, Authorized},
    uncancelled::run_uncancelled,
};
use colloquy_core::{ids::WorldId, scope::TenantScope};
use colloquy_ports::{
    StoreResult,
    ledger::{
        audit::Edit,
        authored::{DeleteOutcome, PutOutcome},
    },
};

/// A resource that authors write, with its ids, names and store.
pub trait AuthoredResource: Serialize + Sized + 'static {
    /// The ids in the path.
    type Key: 'static;
    /// The names of the edits in the audit log.
    const PUT_ACTION: &'static str;
    const DELETE_ACTION: &'static str;
    /// The resource and its parent, as errors name them.
    const KIND: &'static str;
    const PARENT: &'static str;

    fn world(key: &Self::Key) -> &WorldId;
    /// The ids, as the audit log names the object.
    fn object_name(key: &Self::Key) -> String;
    fn location(key: &Self::Key) -> String;
    fn version(&self) -> u32;
    fn set_version(&mut self, version: u32);
    async fn load(state: &AppState, scope: &TenantScope, key: &Self::Key) -> StoreResult<Option<Self>>;
    async fn delete(deletion: &ConditionalEdit<'_>, key: &Self::Key) -> StoreResult<DeleteOutcome>;
}

/// A resource that a PUT stores.
pub trait StoredByPut: AuthoredResource {
    /// Returns the present refusal of a put, or `None`. For dry runs.
    async fn find_refusal(&self, _put: &ConditionalEdit<'_>) -> Result<Option<PutOutcome>, Problem> {
        Ok(None)
    }
    async fn put(&self, put: &ConditionalEdit<'_>) -> Result<PutOutcome, Problem>;
    /// Takes over fields that no author writes. For dry runs.
    fn keep_derived_fields(&mut self, _stored: &Self) {}
}

/// An edit of one version of a resource, or of any.
pub struct ConditionalEdit<'e> {
    pub state: &'e AppState,
    pub scope: &'e TenantScope,
    pub if_version: Option<u32>,
    pub edit: &'e Edit,
}

/// Implements [`AuthoredResource`], and makes the operations `get` and `delete`.
macro_rules! authored_resource {
    (
        $row:ident is $kind:tt of $parent:tt, logged as $name:tt;
        tag $tag:tt, $path:tt, key $key:tt = $world_param:tt $world:ident $(, $param:tt $id:ident)*;
        store $store:ident: $load:ident, $remove:ident;
        $(#[doc = $get_doc:tt])+
        get $get:ident;
        $(#[doc = $delete_doc:tt])+
        delete $delete:ident;
    ) => {
        #[allow(unused_parens, unused_variables, reason = "a key may have one id")]
        impl $crate::authored::AuthoredResource for $row {
            type Key = $key;
            const PUT_ACTION: &'static str = concat!($name, ".put");
            const DELETE_ACTION: &'static str = concat!($name, ".delete");
            const KIND: &'static str = $kind;
            const PARENT: &'static str = $parent;

            fn world(($world $(, $id)*): &Self::Key) -> &WorldId {
                $world
            }
            fn object_name(($world $(, $id)*): &Self::Key) -> String {
                [$world.as_str() $(, $id.as_str())*].join("/")
            }
            fn location(($world $(, $id)*): &Self::Key) -> String {
                format!($path)
            }
            fn version(&self) -> u32 {
                self.version
            }
            fn set_version(&mut self, version: u32) {
                self.version = version;
            }
            async fn load(
                state: &AppState,
                scope: &colloquy_core::scope::TenantScope,
                ($world $(, $id)*): &Self::Key,
            ) -> colloquy_ports::StoreResult<Option<Self>> {
                state.services.ledger.$store.$load(scope, $world $(, $id)*).await
            }
            async fn delete(
                deletion: &$crate::authored::ConditionalEdit<'_>,
                ($world $(, $id)*): &Self::Key,
            ) -> colloquy_ports::StoreResult<colloquy_ports::ledger::authored::DeleteOutcome> {
                let store = &deletion.state.services.ledger.$store;
                store.$remove(deletion.scope, $world $(, $id)*, deletion.if_version, deletion.edit).await
            }
        }

        $(#[doc = $get_doc])+
        #[utoipa::path(
            tag = $tag,
            params(($world_param = String, Path) $(, ($param = String, Path))*),
            responses((status = 200, body = $row), (status = 304, description = "If-None-Match names this version")),
            extensions(("x-roles" = json!(["admin", "backend"]))),
        )]
        #[get($path)]
        pub async fn $get(
            state: web::Data<AppState>,
            caller: Authorized<Author>,
            path: Path<$key>,
            request: HttpRequest,
        ) -> Result<HttpResponse, Problem> {
            let stored: $row = $crate::authored::find_resource(&state, &caller, &path.0).await?;
            Ok($crate::etag::respond_found(&request, stored.version, &stored))
        }

        $(#[doc = $delete_doc])+
        #[utoipa::path(
            tag = $tag,
            params(($world_param = String, Path) $(, ($param = String, Path))*, ("If-Match" = Option<String>, Header, description = "The ETag of what is to be deleted, or *")),
            responses((status = 204), (status = 412, description = "Another version is stored")),
            extensions(("x-roles" = json!(["admin", "backend"]))),
        )]
        #[delete($path)]
        pub async fn $delete(
            state: web::Data<AppState>,
            caller: Authorized<Author>,
            path: Path<$key>,
            request: HttpRequest,
        ) -> Result<HttpResponse, Problem> {
            $crate::authored::delete_resource::<$row>(state, caller, path.0, &request).await
        }
    };
}
pub(crate) use authored_resource;

/// Makes the operation that lists the resources of a parent.
macro_rules! authored_list {
    (
        $(#[doc = $doc:tt])+
        $list:ident: $row:ident by $cursor:ident, of $parent:ident;
        tag $tag:tt, $path:tt, key $key:tt = $($param:tt $id:ident),+;
        store $store:ident: $read:ident;
    ) => {
        $(#[doc = $doc])+
        #[utoipa::path(
            tag = $tag,
            params($(($param = String, Path),)+ PageQuery),
            responses((status = 200, body = Items<$row>)),
            extensions(("x-roles" = json!(["admin", "backend"]))),
        )]
        #[get($path)]
        #[allow(unused_parens, reason = "a key may have one id")]
        pub async fn $list(
            state: web::Data<AppState>,
            caller: Authorized<Author>,
            path: Path<$key>,
            query: QueryParams<PageQuery>,
        ) -> Result<HttpResponse, Problem> {
            let page = query.0.parse_page::<$cursor>()?;
            $crate::authored::find_resource::<$parent, _>(&state, &caller, &path.0).await?;
            let ($($id),+) = &path.0;
            let store = &state.services.ledger.$store;
            let items = store.$read(&caller.scope, $($id,)+ &page).await?;
            Ok(HttpResponse::Ok().json(Items::from(items)))
        }
    };
}
pub(crate) use authored_list;

/// Parses the id of a PUT, of the parameter `param`.
///
/// # Errors
/// The reason for which the text is no id.
pub fn parse_id<T: FromStr<Err: Display>>(param: &str, text: &str) -> Result<T, Problem> {
    text.parse()
        .map_err(|error| Problem::invalid_field(param, format!("{error}")))
}

/// Loads a resource; 404 if missing.
pub async fn find_resource<R: AuthoredResource, A>(
    state: &AppState,
    caller: &Authorized<A>,
    key: &R::Key,
) -> Result<R, Problem> {
    let resource = R::load(state, &caller.scope, key).await?;
    resource.ok_or_else(|| Problem::not_found(R::KIND))
}

/// A PUT of a resource.
pub struct PutRequest<R: AuthoredResource> {
    pub state: web::Data<AppState>,
    pub caller: Authorized<Author>,
    pub key: R::Key,
    if_match: IfMatch,
    is_dry_run: bool,
}

impl<R: StoredByPut> PutRequest<R> {
    /// Reads the conditions of the request.
    ///
    /// # Errors
    /// As of [`IfMatch::from_put_request`].
    pub fn new(
        state: web::Data<AppState>,
        caller: Authorized<Author>,
        key: R::Key,
        query: &PutQuery,
        request: &HttpRequest,
    ) -> Result<Self, Problem> {
        Ok(Self {
            state,
            caller,
            key,
            if_match: IfMatch::from_put_request(request)?,
            is_dry_run: query.is_dry_run(),
        })
    }

    /// Stores the resource that `build` makes of the time of the edit, or answers what a PUT would store.
    pub async fn store(
        self,
        build: impl FnOnce(&AppState, &R::Key, DateTime<Utc>) -> Result<R, Problem> + 'static,
    ) -> Result<HttpResponse, Problem> {
        run_uncancelled(async move {
            let Self {
                state,
                caller,
                key,
                if_match,
                is_dry_run,
            } = self;
            let scope = &caller.scope;
            if if_match == IfMatch::MustExist && R::load(&state, scope, &key).await?.is_none() {
                return Err(etag::version_mismatch_error(0));
            }
            let edit = caller.new_edit(&state, R::PUT_ACTION, R::object_name(&key));
            let mut resource = build(&state, &key, edit.made_at)?;
            let put = ConditionalEdit {
                state: &state,
                scope,
                if_version: if_match.expected_version(),
                edit: &edit,
            };
            if is_dry_run {
                let refusal = resource.find_refusal(&put).await?;
                let stored = R::load(&state, scope, &key).await?;
                let stored_version = stored.as_ref().map(R::version);
                let version = dry_run::next_version_unless(refusal, stored_version, if_match, R::PARENT)?;
                resource.set_version(version);
                if let Some(stored) = &stored {
                    resource.keep_derived_fields(stored);
                }
                return Ok(HttpResponse::Ok().json(resource));
            }
            let outcome = resource.put(&put).await?;
            let created = etag::created_by_put(outcome, if_match, R::PARENT)?;
            state.sessions.forget_authored_everywhere(scope, R::world(&key)).await;
            let stored: R = find_resource(&state, &caller, &key).await?;
            let location = R::location(&key);
            Ok(etag::respond_stored(created, &location, stored.version(), &stored))
        })
        .await
    }
}

/// Deletes a resource, if the version is that of `If-Match`.
pub async fn delete_resource<R: AuthoredResource>(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    key: R::Key,
    request: &HttpRequest,
) -> Result<HttpResponse, Problem> {
    let if_version = IfMatch::from_request(request)?.expected_version();
    run_uncancelled(async move {
        let edit = caller.new_edit(&state, R::DELETE_ACTION, R::object_name(&key));
        let deletion = ConditionalEdit {
            state: &state,
            scope: &caller.scope,
            if_version,
            edit: &edit,
        };
        let outcome = R::delete(&deletion, &key).await?;
        state
            .sessions
            .forget_authored_everywhere(&caller.scope, R::world(&key))
            .await;
        etag::respond_deleted(outcome, R::KIND)
    })
    .await
}
