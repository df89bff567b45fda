//! The lore of worlds: `/v1/worlds/{w}/lore`.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    dry_run::{self, PutQuery},
    errors::Problem,
    etag::{self, IfMatch},
    extract::{Author, Authorized, Body, Path, QueryParams},
    pagination::{Items, PageQuery},
    uncancelled::run_uncancelled,
    world_state::CauseView,
    worlds,
};
use colloquy_core::ids::{LoreId, WorldId};
use colloquy_dialogue::knowledge::lore;
use colloquy_memory::{
    lore::{LoreEntry, LoreText},
    state::StateChange,
};

/// Most changes in the history of an entry.
const MAX_HISTORY: usize = 200;

/// An entry of the lore as its author writes it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct LoreBody(LoreText);

impl Validate for LoreBody {
    type Context = ();
    fn validate_into(&self, (): &(), parent: &mut dyn FnMut() -> garde::Path, report: &mut garde::Report) {
        for (field, fault) in self.0.find_faults() {
            report.append(parent().join(field), garde::Error::new(fault));
        }
    }
}

/// Creates or replaces an entry of the world's lore.
///
/// NPCs are told of an entry if the line is about it, if they know it (`known_by`), and if its conditions (`when`)
/// hold. A world has at most 10,000 entries.
#[utoipa::path(
    tag = "lore",
    params(("world" = String, Path), ("lore" = String, Path, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet"), PutQuery),
    request_body = LoreBody,
    responses((status = 200, body = LoreEntry, description = "Replaced"), (status = 201, body = LoreEntry, description = "Made"), (status = 409, description = "The world has as many as it may (`too_many_lore_entries`)"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/worlds/{world}/lore/{lore}")]
pub async fn put_lore(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, String)>,
    query: QueryParams<PutQuery>,
    request: HttpRequest,
    body: Body<LoreBody>,
) -> Result<HttpResponse, Problem> {
    let (world, name) = path.0;
    let id: LoreId = name
        .parse()
        .map_err(|error| Problem::invalid_field("lore", format!("{error}")))?;
    let if_match = IfMatch::from_put_request(&request)?;
    run_uncancelled(async move {
        let store = &state.services.ledger.lore;
        if if_match == IfMatch::MustExist && store.load_lore(&caller.scope, &world, &id).await?.is_none() {
            return Err(etag::version_mismatch_error(0));
        }
        let edit = caller.new_edit(&state, "lore.put", format!("{world}/{id}"));
        let mut entry = LoreEntry {
            world: world.clone(),
            id: id.clone(),
            text: body.value.0,
            version: 0,
            updated_at: edit.made_at,
        };
        let version = if_match.expected_version();
        if query.0.is_dry_run() {
            let refusal = store.check_put(&caller.scope, &entry, version).await?;
            let stored = store.load_lore(&caller.scope, &world, &id).await?;
            let stored_version = stored.map(|entry| entry.version);
            entry.version = dry_run::next_version_unless(refusal, stored_version, if_match, "world")?;
            return Ok(HttpResponse::Ok().json(entry));
        }
        let outcome = lore::write_lore(&state.services, &caller.scope, entry, version, &edit).await?;
        let created = etag::created_by_put(outcome, if_match, "world")?;
        state.sessions.forget_authored_everywhere(&caller.scope, &world).await;
        let stored = find_lore(&state, &caller, &world, &id).await?;
        let location = format!("/v1/worlds/{world}/lore/{id}");
        Ok(etag::respond_stored(created, &location, stored.version, &stored))
    })
    .await
}

/// Returns an entry of the world's lore.
#[utoipa::path(
    tag = "lore",
    params(("world" = String, Path), ("lore" = String, Path)),
    responses((status = 200, body = LoreEntry), (status = 304, description = "If-None-Match names this version")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/lore/{lore}")]
pub async fn get_lore(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, LoreId)>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let (world, id) = path.0;
    let entry = find_lore(&state, &caller, &world, &id).await?;
    Ok(etag::respond_found(&request, entry.version, &entry))
}

/// Lists the lore of a world.
#[utoipa::path(
    tag = "lore",
    params(("world" = String, Path), PageQuery),
    responses((status = 200, body = Items<LoreEntry>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/lore")]
pub async fn list_lore(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<LoreId>(&state)?;
    let world = path.0;
    worlds::find_world(&state, &caller, &world).await?;
    let entries = state
        .services
        .ledger
        .lore
        .list_lore(&caller.scope, &world, &page)
        .await?;
    Ok(HttpResponse::Ok().json(Items::from(entries)))
}

/// A change of the world's state that an entry follows.
#[derive(Debug, Serialize, ToSchema)]
pub struct LoreChangeView {
    /// The change: `change` names its sort, as in `world.changed`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    change: StateChange,
    cause: CauseView,
}

/// The changes that an entry follows.
#[derive(Debug, Serialize, ToSchema)]
pub struct LoreHistoryView {
    /// Oldest first, the last 200.
    items: Vec<LoreChangeView>,
}

/// Returns how the state of an entry came about: where its characters were, their status, and who had its items.
///
/// Only changes that stand are listed: a rewind takes the changes of a reply back.
#[utoipa::path(
    tag = "lore",
    params(("world" = String, Path), ("lore" = String, Path)),
    responses((status = 200, body = LoreHistoryView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/lore/{lore}/history")]
pub async fn lore_history(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, LoreId)>,
) -> Result<HttpResponse, Problem> {
    let (world, id) = path.0;
    let entry = find_lore(&state, &caller, &world, &id).await?;
    let changes = state
        .services
        .ledger
        .state
        .load_changes_since(&caller.scope, &world, 0)
        .await?;
    let mut related_changes: Vec<_> = changes
        .changes
        .into_iter()
        .filter(|stored| entry.text.follows_change(&stored.change))
        .collect();
    let entries = related_changes.split_off(related_changes.len().saturating_sub(MAX_HISTORY));
    let entries = entries.into_iter().map(|stored| LoreChangeView {
        cause: CauseView::new(&stored.cause, stored.changed_at),
        change: stored.change,
    });
    Ok(HttpResponse::Ok().json(LoreHistoryView {
        items: entries.collect(),
    }))
}

/// Hides an entry: from now on, the entry is in no prompt.
#[utoipa::path(
    tag = "lore",
    params(("world" = String, Path), ("lore" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag of what is to be deleted, or *")),
    responses((status = 204), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[delete("/v1/worlds/{world}/lore/{lore}")]
pub async fn delete_lore(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, LoreId)>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let (world, id) = path.0;
    let if_match = IfMatch::from_request(&request)?;
    run_uncancelled(async move {
        let edit = caller.new_edit(&state, "lore.delete", format!("{world}/{id}"));
        let store = &state.services.ledger.lore;
        let version = if_match.expected_version();
        let outcome = store.delete_lore(&caller.scope, &world, &id, version, &edit).await?;
        state.sessions.forget_authored_everywhere(&caller.scope, &world).await;
        etag::respond_deleted(outcome, "lore entry")
    })
    .await
}

async fn find_lore<A>(
    state: &AppState,
    caller: &Authorized<A>,
    world: &WorldId,
    id: &LoreId,
) -> Result<LoreEntry, Problem> {
    let entry = state.services.ledger.lore.load_lore(&caller.scope, world, id).await?;
    entry.ok_or_else(|| Problem::not_found("lore entry"))
}
