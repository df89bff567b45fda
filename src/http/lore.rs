//! The lore of worlds: `/v1/worlds/{w}/lore`.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    authored::{ConditionalEdit, PutRequest, StoredByPut, authored_list, authored_resource, find_resource, parse_id},
    dry_run::PutQuery,
    errors::Problem,
    extract::{Author, Authorized, Body, Path, QueryParams},
    pagination::{Items, PageQuery},
    world_state::CauseView,
};
use colloquy_core::ids::{LoreId, WorldId};
use colloquy_dialogue::knowledge::lore;
use colloquy_memory::{
    authored::World,
    lore::{LoreEntry, LoreText},
    state::StateChange,
};
use colloquy_ports::ledger::authored::PutOutcome;

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
    let key = (world, parse_id("lore", &name)?);
    let put = PutRequest::<LoreEntry>::new(state, caller, key, &query.0, &request)?;
    put.store(move |_, (world, id), updated_at| {
        Ok(LoreEntry {
            world: world.clone(),
            id: id.clone(),
            text: body.value.0,
            version: 0,
            updated_at,
        })
    })
    .await
}

impl StoredByPut for LoreEntry {
    async fn find_refusal(&self, put: &ConditionalEdit<'_>) -> Result<Option<PutOutcome>, Problem> {
        let store = &put.state.services.ledger.lore;
        Ok(store.check_put(put.scope, self, put.if_version).await?)
    }
    async fn put(&self, put: &ConditionalEdit<'_>) -> Result<PutOutcome, Problem> {
        Ok(lore::write_lore(&put.state.services, put.scope, self.clone(), put.if_version, put.edit).await?)
    }
}

authored_resource! {
    LoreEntry is "lore entry" of "world", logged as "lore";
    tag "lore", "/v1/worlds/{world}/lore/{lore}", key (WorldId, LoreId) = "world" world, "lore" lore;
    store lore: load_lore, delete_lore;
    /// Returns an entry of the world's lore.
    get get_lore;
    /// Hides an entry: from now on, the entry is in no prompt.
    delete delete_lore;
}

authored_list! {
    /// Lists the lore of a world.
    list_lore: LoreEntry by LoreId, of World;
    tag "lore", "/v1/worlds/{world}/lore", key WorldId = "world" world;
    store lore: list_lore;
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
    let entry: LoreEntry = find_resource(&state, &caller, &path.0).await?;
    let changes = state
        .services
        .ledger
        .state
        .load_changes_since(&caller.scope, &entry.world, 0)
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
