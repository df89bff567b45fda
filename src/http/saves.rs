//! Saves of a world: `/v1/worlds/{w}/saves`.

use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{Code, Problem},
    extract::{Author, Authorized, OptionalBody, Path, QueryParams},
    idempotency::{self, IdempotentResponse},
    pagination::{Items, PageQuery},
    uncancelled::run_uncancelled,
    validate::display_name,
    worlds,
};
use colloquy_core::ids::{SaveId, WorldId};
use colloquy_dialogue::saves;
use colloquy_ports::ledger::{
    rewinds::RolledBack,
    saves::{RestoreOutcome, RestoreReport, Save, SaveOutcome},
};

/// The name of a new save.
#[derive(Debug, Default, Deserialize, Serialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct SaveBody {
    /// For people; need not be unique. One line.
    #[garde(inner(length(chars, max = 200), custom(display_name)))]
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
}

/// Creates a save: the heads of all dialogues of the world at one moment.
///
/// Running replies are not saved. Content from other sources is not saved either: manual facts and corrections, and
/// authored content. The body may be omitted.
#[utoipa::path(
    tag = "saves",
    params(("world" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "Makes a retry safe")),
    request_body = SaveBody,
    responses((status = 201, body = Save), (status = 409, description = "The world has the maximum number of saves (`too_many_saves`), or the same request is being handled")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/saves")]
pub async fn create_save(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    request: HttpRequest,
    body: OptionalBody<SaveBody>,
) -> Result<HttpResponse, Problem> {
    let raw = serde_json::to_vec(&body.0).map_err(|error| Problem::internal_error(&error))?;
    let name = body.0.name.unwrap_or_default();
    let work = {
        let state = state.clone();
        let principal = caller.principal.clone();
        let world = path.0;
        async move {
            let max = state.services.settings.saves.max_per_world;
            match saves::take_save(&state.services, &principal, &world, name).await? {
                SaveOutcome::Saved(save) => {
                    let location = format!("/v1/worlds/{world}/saves/{}", save.id);
                    IdempotentResponse::created(&save, location)
                }
                SaveOutcome::NoSuchWorld => Err(Problem::not_found("world")),
                SaveOutcome::Full => {
                    let detail = format!("a world may have {max} saves; delete one that nobody needs");
                    Err(Problem::new(Code::TooManySaves, detail))
                }
            }
        }
    };
    idempotency::run_once(&state, &caller.principal, &request, &raw, work).await
}

/// Lists the world's saves, newest first.
#[utoipa::path(
    tag = "saves",
    params(("world" = String, Path), PageQuery),
    responses((status = 200, body = Items<Save>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/saves")]
pub async fn list_saves(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<SaveId>()?;
    worlds::find_world(&state, &caller, &path.0).await?;
    let saves = &state.services.ledger.saves;
    let page_of_saves = saves.list_saves(&caller.scope, &path.0, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from(page_of_saves)))
}

/// Returns a save.
#[utoipa::path(
    tag = "saves",
    params(("world" = String, Path), ("save" = String, Path)),
    responses((status = 200, body = Save)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/saves/{save}")]
pub async fn get_save(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, SaveId)>,
) -> Result<HttpResponse, Problem> {
    let (world, id) = path.0;
    let save = state.services.ledger.saves.load_save(&caller.scope, &world, id).await?;
    let save = save.ok_or_else(|| Problem::not_found("save"))?;
    Ok(HttpResponse::Ok().json(save))
}

/// Deletes a save.
///
/// The world does not change. Turns that only this save retained cannot stand again.
#[utoipa::path(
    tag = "saves",
    params(("world" = String, Path), ("save" = String, Path)),
    responses((status = 204)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[delete("/v1/worlds/{world}/saves/{save}")]
pub async fn delete_save(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, SaveId)>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let (world, id) = path.0;
        if !saves::delete_save(&state.services, &caller.principal, &world, id).await? {
            return Err(Problem::not_found("save"));
        }
        Ok(HttpResponse::NoContent().finish())
    })
    .await
}

/// Options for a restore.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct RestoreBody {
    /// Makes a retry safe: the same key gets the same result, and no save is restored twice. `Idempotency-Key` does the
    /// same.
    #[garde(inner(length(chars, min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    key: Option<String>,
}

/// The result of a restore.
#[derive(Debug, Serialize, ToSchema)]
pub struct RestoredView {
    #[schema(value_type = String)]
    save_id: SaveId,
    #[schema(value_type = String)]
    world_id: WorldId,
    restored_at: DateTime<Utc>,
    /// Dialogues that changed. Each changed dialogue sent `dialogue.rewound` to its listeners.
    changed_dialogues: u32,
    /// Changed dialogues that were open and are closed now: created after the save, or closed in the save.
    ended_dialogues: u32,
    /// Changed dialogues that were closed and are open now.
    reopened_dialogues: u32,
    /// Turns that no longer stand.
    removed_turns: u32,
    /// Turns that stand again.
    reinstated_turns: u32,
    rolled_back: RolledBack,
}

impl From<RestoreReport> for RestoredView {
    fn from(restored: RestoreReport) -> Self {
        Self {
            save_id: restored.save,
            world_id: restored.world,
            restored_at: restored.restored_at,
            changed_dialogues: restored.changed,
            ended_dialogues: restored.ended_dialogues,
            reopened_dialogues: restored.reopened,
            removed_turns: restored.removed_turns,
            reinstated_turns: restored.reinstated_turns,
            rolled_back: restored.rolled_back,
        }
    }
}

/// Restores every dialogue of the world to its state in the save, backward or forward.
///
/// All dialogues change at once, and running replies are cancelled. Turns after the save are taken back, and return if
/// a later save is loaded. Dialogues created after the save end. The body may be omitted.
#[utoipa::path(
    tag = "saves",
    params(("world" = String, Path), ("save" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same as `key` in the body")),
    request_body = RestoreBody,
    responses((status = 200, body = RestoredView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/saves/{save}:restore")]
pub async fn restore_save(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, SaveId)>,
    request: HttpRequest,
    body: OptionalBody<RestoreBody>,
) -> Result<HttpResponse, Problem> {
    let key = idempotency::header_or_body_key(&request, body.0.key)?;
    run_uncancelled(async move {
        let (world, save) = path.0;
        worlds::find_world(&state, &caller, &world).await?;
        let sessions = &state.sessions;
        match sessions.restore_world(&caller.principal, &world, save, key).await? {
            RestoreOutcome::Done { restored, .. } | RestoreOutcome::Repeated(restored) => {
                Ok(HttpResponse::Ok().json(RestoredView::from(restored)))
            }
            RestoreOutcome::NotFound => Err(Problem::not_found("save")),
            RestoreOutcome::KeyTaken => {
                let detail = "this key was used to restore another save";
                Err(Problem::new(Code::IdempotencyMismatch, detail).with_param("key"))
            }
        }
    })
    .await
}
