//! Extractors, the typed edge of every route. The extractor is the authorization: a handler that takes an
//! `Authorized<Author>` cannot run for other roles.

use std::{
    future::Future,
    marker::PhantomData,
    net::{IpAddr, SocketAddr},
    ops::Deref,
    pin::Pin,
    time::Duration,
};

use actix_web::{
    FromRequest, HttpMessage, HttpRequest,
    dev::Payload,
    http::{Method, header},
    web,
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use garde::Validate;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::{
    AppState, bounds,
    errors::{Code, Problem},
    nodes, validate,
};
use colloquy_core::{
    ids::PlayerId,
    scope::{Principal, Role, TenantScope},
};
use colloquy_ports::ledger::audit::Edit;
use colloquy_tenancy::{auth::AuthError, limits::ImportInFlight};
use colloquy_transport::network_of;

/// The roles that may call an operation.
pub trait RolePolicy: 'static {
    /// The permitted roles.
    const ROLES: &'static [Role];
    /// True if the handler itself limits a backend's token to its world. Otherwise a path without a world is about the
    /// whole tenant ([`bounds`]).
    const KEEPS_TO_WORLD: bool = false;
}

/// The roles of `A`, for an operation that limits its results to the token's world.
pub struct InWorld<A>(PhantomData<A>);
impl<A: RolePolicy> RolePolicy for InWorld<A> {
    const ROLES: &'static [Role] = A::ROLES;
    const KEEPS_TO_WORLD: bool = true;
}

/// True if the role is permitted. A viewer may read all that a backend may read.
fn is_role_allowed(roles: &[Role], role: Role, method: &Method) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    roles.contains(&role) || (role == Role::Viewer && reads && roles.contains(&Role::Backend))
}

/// Any valid token.
pub struct Anyone;
impl RolePolicy for Anyone {
    const ROLES: &'static [Role] = &[Role::Operator, Role::Admin, Role::Backend, Role::Viewer, Role::Player];
}
/// Callers in sessions: backends in all sessions, players in their own.
pub struct Talker;
impl RolePolicy for Talker {
    const ROLES: &'static [Role] = &[Role::Admin, Role::Backend, Role::Player];
}
/// Authors: they write worlds and read memories.
pub struct Author;
impl RolePolicy for Author {
    const ROLES: &'static [Role] = &[Role::Admin, Role::Backend];
}
/// The tenant's administrators.
pub struct Administrator;
impl RolePolicy for Administrator {
    const ROLES: &'static [Role] = &[Role::Admin];
}

/// The operator of the server.
pub struct OperatorOnly;
impl RolePolicy for OperatorOnly {
    const ROLES: &'static [Role] = &[Role::Operator];
}

/// An authenticated caller with a role of `A`, counted against the rate limits.
pub struct Authorized<A> {
    pub principal: Principal,
    pub scope: TenantScope,
    rate_limit_scope: RateLimitScope,
    roles: PhantomData<A>,
}

/// Which limits this node counts a request for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RateLimitScope {
    /// The request came from a client.
    Everything,
    /// Another node forwarded the request and counted it for the tenant. This node counts the player's limits, so that
    /// no player gets more through other nodes.
    PlayerOnly,
    /// The request was counted when it first arrived here.
    Nothing,
    /// A request that was counted here calls this operation ([`CountedRequest`]), or a message of a socket does. What the operation itself counts is
    /// counted, such as lines.
    OperationOnly,
}

/// Marks a request to an operation from inside the process, by a request that was counted and is under way itself. No
/// client can set the mark.
pub struct CountedRequest;

impl RateLimitScope {
    /// A forwarded request counts where it is accepted. A stopping node accepts no line.
    fn for_forwarded(hop: &nodes::ForwardToken, state: &AppState) -> Self {
        if hop.is_to_itself() || state.sessions.is_draining() {
            Self::Nothing
        } else {
            Self::PlayerOnly
        }
    }
}

impl<A> Authorized<A> {
    /// The caller of an open socket. The socket has checked the role, and counts its messages itself; what an operation
    /// counts is counted, such as lines.
    pub fn on_socket(principal: Principal) -> Self {
        Self {
            scope: principal.scope(),
            principal,
            rate_limit_scope: RateLimitScope::OperationOnly,
            roles: PhantomData,
        }
    }
    /// An edit by the caller, made now, for the audit log, within the budgets of the tenant.
    pub fn new_edit(&self, state: &AppState, action: &'static str, object: impl ToString) -> Edit {
        let ids = &state.services.ids;
        let now = state.services.clock.now();
        let limits = state.services.models.budgets().authored_limits(self.scope.tenant());
        Edit::made_by(&self.principal, ids, now, action, object).within(limits)
    }
    /// Counts a turn of `player`.
    ///
    /// # Errors
    /// The player has reached the limit of lines.
    pub fn count_turn(&self, state: &AppState, player: &PlayerId) -> Result<(), Problem> {
        if self.rate_limit_scope != RateLimitScope::Nothing {
            state.limits.check_player_turn(self.scope.tenant(), player)?;
        }
        Ok(())
    }
    /// Counts a resume of `player`, or an interrupt that may take an earlier turn back.
    ///
    /// # Errors
    /// The player has reached the limit of cuts.
    pub fn count_cut(&self, state: &AppState, player: &PlayerId) -> Result<(), Problem> {
        if self.rate_limit_scope != RateLimitScope::Nothing {
            state.limits.check_player_cut(self.scope.tenant(), player)?;
        }
        Ok(())
    }
    /// Counts a new session of a player's token. Other tokens are not counted.
    ///
    /// # Errors
    /// The player has reached the limit of new sessions.
    pub fn count_new_session(&self, state: &AppState) -> Result<(), Problem> {
        if self.rate_limit_scope != RateLimitScope::Nothing {
            let player = self.principal.player.as_ref();
            state.limits.check_new_session(self.scope.tenant(), player)?;
        }
        Ok(())
    }
}

impl<A: RolePolicy> FromRequest for Authorized<A> {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let state = app_state(&request)?;
            let hop = nodes::forward_token(&request)?.filter(|hop| hop.principal.is_some());
            let rate_limit_scope = match &hop {
                Some(hop) => RateLimitScope::for_forwarded(hop, &state),
                None if request.extensions().contains::<CountedRequest>() => RateLimitScope::OperationOnly,
                None => RateLimitScope::Everything,
            };
            let by_hop = hop.is_some();
            let principal = match hop.and_then(|hop| hop.principal) {
                Some(principal) => {
                    // The first node may not yet know of a revocation or a disabled tenant.
                    state.auth.check_not_refused(&principal)?;
                    principal
                }
                None => state.auth.verify_token(bearer_token(&request)?).await?,
            };
            tracing::Span::current().record("tenant", principal.tenant.as_str());
            if !is_role_allowed(A::ROLES, principal.role, request.method()) {
                return Err(Problem::new(Code::Forbidden, "this token's role may not do that"));
            }
            if by_hop && let Some(dialogue) = nodes::dialogue_of(&request) {
                // If another node owns the dialogue, that node counts the next attempt.
                state.sessions.ensure_owned(&principal.scope(), dialogue).await?;
            }
            let player = principal
                .player
                .as_ref()
                .filter(|_| rate_limit_scope != RateLimitScope::Nothing);
            let address = client_address(&request, &state).filter(|_| !by_hop).map(network_of);
            match rate_limit_scope {
                RateLimitScope::Everything => state.limits.check_request(&principal.tenant, player)?,
                RateLimitScope::PlayerOnly => state.limits.check_forwarded_request(&principal.tenant, player)?,
                RateLimitScope::Nothing | RateLimitScope::OperationOnly => {}
            }
            if rate_limit_scope != RateLimitScope::OperationOnly {
                let under_way = state.limits.begin_request(&principal.tenant, player, address)?;
                request.extensions_mut().insert(under_way);
            }
            bounds::check_world_bounds(&state, &request, &principal, A::KEEPS_TO_WORLD).await?;
            if state.nodes.is_some() {
                // For the middleware that may forward the request.
                request.extensions_mut().insert(principal.clone());
            }
            Ok(Self {
                scope: principal.scope(),
                principal,
                rate_limit_scope,
                roles: PhantomData,
            })
        })
    }
}

/// The token of the `Authorization` header.
pub fn bearer_token(request: &HttpRequest) -> Result<&str, AuthError> {
    let credentials = request
        .headers()
        .get(header::AUTHORIZATION)
        .ok_or(AuthError::Missing)?
        .to_str()
        .map_err(|_| AuthError::Missing)?;
    let (scheme, token) = credentials.split_once(' ').ok_or(AuthError::Missing)?;
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        Ok(token.trim())
    } else {
        Err(AuthError::Missing)
    }
}

pub fn app_state(request: &HttpRequest) -> Result<web::Data<AppState>, Problem> {
    request
        .app_data::<web::Data<AppState>>()
        .cloned()
        .ok_or_else(|| Problem::internal_error(&"the application was built without its state"))
}

/// The client's address, if known. Behind trusted proxies: the nearest address before them. Otherwise the peer, whatever
/// the request says: any client can send `X-Forwarded-For`.
fn client_address(request: &HttpRequest, state: &AppState) -> Option<IpAddr> {
    let proxies = &state.settings.trusted_proxies;
    let is_trusted = |address: &IpAddr| proxies.iter().any(|network| network.contains(address));
    let peer = request.peer_addr()?.ip().to_canonical();
    if !is_trusted(&peer) {
        return Some(peer);
    }
    let entries: Vec<&str> = request
        .headers()
        .get_all(header::X_FORWARDED_FOR)
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .collect();
    // Each proxy appends its peer. Entries before an unreadable entry may be invented by the client.
    let addresses = entries.into_iter().rev().map_while(parse_address);
    let mut client = peer;
    for address in addresses {
        client = address;
        if !is_trusted(&address) {
            break;
        }
    }
    Some(client)
}

/// Parses an address, with or without a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = || text.trim_start_matches('[').trim_end_matches(']').parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

/// A JSON body: within the size limit, without unknown fields, and valid.
pub struct Body<T> {
    pub value: T,
    /// The raw bytes, for the idempotency fingerprint.
    pub raw: Bytes,
}

impl<T> Deref for Body<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> FromRequest for Body<T>
where
    T: DeserializeOwned + Validate + utoipa::ToSchema + 'static,
    T::Context: Default,
{
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let payload = payload.take();
        Box::pin(async move {
            let raw = raw_body(&request, payload).await?;
            let value = validate::read_json(&raw)?;
            Ok(Self { value, raw })
        })
    }
}

/// For an operation without options. The body may be omitted. Fields are refused: they were meant for another
/// operation.
#[derive(Debug, Default, serde::Deserialize, Validate, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NoOptions {}

/// As [`Body`], for a body with options only: an empty body equals `{}`.
pub struct OptionalBody<T>(pub T);

impl<T> FromRequest for OptionalBody<T>
where
    T: DeserializeOwned + Default + Validate + utoipa::ToSchema + 'static,
    T::Context: Default,
{
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let payload = payload.take();
        Box::pin(async move {
            let raw = raw_body(&request, payload).await?;
            if raw.is_empty() {
                return Ok(Self(T::default()));
            }
            validate::read_json(&raw).map(Self)
        })
    }
}

/// A body that is not read yet.
pub struct UnreadBody {
    request: HttpRequest,
    payload: Payload,
}

impl FromRequest for UnreadBody {
    type Error = Problem;
    type Future = std::future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        std::future::ready(Ok(Self {
            request: request.clone(),
            payload: payload.take(),
        }))
    }
}

impl UnreadBody {
    /// Reads the body, whatever its type.
    ///
    /// # Errors
    /// The body is larger than `limit` bytes, or comes too slowly.
    pub async fn read(self, limit: usize) -> Result<Bytes, Problem> {
        limited_body(&self.request, self.payload, limit).await
    }
}

/// The file of an import, not read yet: JSON, or a picture with JSON inside.
pub struct ImportFile(UnreadBody);

impl FromRequest for ImportFile {
    type Error = Problem;
    type Future = std::future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        std::future::ready(UnreadBody::from_request(request, payload).into_inner().map(Self))
    }
}

impl ImportFile {
    /// Reads the file of an authorized caller. The file and all that is made of it count as the running import, which
    /// ends on drop.
    ///
    /// # Errors
    /// Without reading: another import of the tenant, or as many as the node may have, are under way. Otherwise the
    /// errors of a body.
    pub async fn read<A>(self, state: &AppState, caller: &Authorized<A>) -> Result<(Bytes, ImportInFlight), Problem> {
        let under_way = state.limits.begin_import(caller.scope.tenant())?;
        let bytes = self.0.read(state.settings.max_import_bytes).await?;
        Ok((bytes, under_way))
    }
}

async fn raw_body(request: &HttpRequest, payload: Payload) -> Result<Bytes, Problem> {
    let limit = app_state(request)?.settings.max_body_bytes;
    json_body(request, payload, limit).await
}

/// Reads a JSON body of at most `limit` bytes.
pub async fn json_body(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Bytes, Problem> {
    require_json_content(request)?;
    limited_body(request, payload, limit).await
}

async fn limited_body(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Bytes, Problem> {
    let state = app_state(request)?;
    let patience = Duration::from_millis(state.settings.body_timeout_ms);
    let body = timeout(patience, read_body(request, payload, limit));
    let body = body.await.map_err(|_| {
        Problem::new(
            Code::RequestTimeout,
            format!("the body did not come within {} ms", state.settings.body_timeout_ms),
        )
    })??;
    nodes::check_body_hash(request, &body)?;
    if state.nodes.is_some() {
        request.extensions_mut().insert(nodes::RawBody(body.clone()));
    }
    Ok(body)
}

fn require_json_content(request: &HttpRequest) -> Result<(), Problem> {
    let Some(value) = request.headers().get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let kind = value.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") || kind.is_empty() {
        Ok(())
    } else {
        Err(Problem::new(
            Code::UnsupportedMediaType,
            "send the body as application/json",
        ))
    }
}

async fn read_body(request: &HttpRequest, mut payload: Payload, limit: usize) -> Result<Bytes, Problem> {
    let too_large = || Problem::new(Code::PayloadTooLarge, format!("the body is larger than {limit} bytes"));
    let declared = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| Problem::new(Code::MalformedRequest, error.to_string()))?;
        if body.len() + chunk.len() > limit {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// The path's parameters. A value that is no id matches no object, so the answer is 404.
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for Path<T> {
    type Error = Problem;
    type Future = std::future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let path = web::Path::<T>::extract(request).into_inner();
        std::future::ready(path.map(|path| Self(path.into_inner())).map_err(|_| {
            // One invalid segment is enough; the reader does not say which of the segments is invalid.
            let segments: Vec<_> = request
                .match_info()
                .iter()
                .map(|(name, value)| format!("{name} \"{value}\""))
                .collect();
            Problem::new(
                Code::NotFound,
                format!("there is no such thing: {}", segments.join(", ")),
            )
        }))
    }
}

/// The query string, without unknown parameters.
pub struct QueryParams<T>(pub T);

impl<T: DeserializeOwned + IntoParams + 'static> FromRequest for QueryParams<T> {
    type Error = Problem;
    type Future = std::future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        std::future::ready(validate::parse_query(request.query_string()).map(Self))
    }
}

#[cfg(test)]
mod tests {
    use super::parse_address;

    #[test]
    fn client_addresses_are_parsed_with_and_without_a_port() {
        for (text, address) in [
            (" 192.0.2.1 ", Some("192.0.2.1")),
            ("192.0.2.1:567", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:567", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(
                parse_address(text).map(|address| address.to_string()).as_deref(),
                address,
                "{text}"
            );
        }
    }
}
