//! Directives of worlds: `/v1/worlds/{w}/directives`.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    AppState,
    dry_run::{self, PutQuery},
    errors::{Code, Problem},
    etag::{self, IfMatch},
    extract::{Author, Authorized, Body, Path, QueryParams},
    pagination::{Items, PageQuery},
    uncancelled::run_uncancelled,
    validate::one_line_label,
    worlds,
};
use colloquy_core::ids::{DirectiveId, WorldId};
use colloquy_memory::directive::{Directive, KeyPattern, MAX_KEYS, MAX_LINE_CHARS, MAX_LINES, MAX_TEXT_CHARS};
use colloquy_ports::ledger::authored::PutOutcome;

/// A directive as its author writes it. A text, an instruction or a failure condition is needed.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct DirectiveBody {
    /// The dialogues that the directive is for: `world:<world>`, then `:npc:<npc>`, then `:session:<id>` or
    /// `:conversation:<id>`. In an id, `*` stands for any characters and `?` for one character. A shorter pattern
    /// selects everything below it.
    #[garde(length(min = 1, max = MAX_KEYS))]
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 16)]
    keys: Vec<KeyPattern>,
    /// What the NPC keeps to; may have several lines.
    #[serde(default)]
    #[garde(length(chars, max = MAX_TEXT_CHARS))]
    #[schema(max_length = 500)]
    text: String,
    /// Instructions of one line.
    #[serde(default)]
    #[garde(length(max = MAX_LINES), inner(length(chars, max = MAX_LINE_CHARS), custom(one_line_label)))]
    #[schema(max_items = 5)]
    instructions: Vec<String>,
    /// What makes a reply fail: each completes "A reply fails if it …".
    #[serde(default)]
    #[garde(length(max = MAX_LINES), inner(length(chars, max = MAX_LINE_CHARS), custom(one_line_label)))]
    #[schema(max_items = 5)]
    fails_if: Vec<String>,
    /// Directives with a higher priority come first. Equal priorities are in the order of the ids.
    #[serde(default)]
    #[garde(range(min = -1000, max = 1000))]
    #[schema(minimum = -1000, maximum = 1000)]
    priority: i32,
}

impl DirectiveBody {
    /// Returns a fault that a single field does not show, with its field.
    fn find_fault(&self, world: &WorldId) -> Option<(&'static str, String)> {
        if let Some(mismatched_key) = self.keys.iter().find(|key| !key.matches_world(world)) {
            return Some((
                "keys",
                format!("`{mismatched_key}` selects no dialogue of the world `{world}`"),
            ));
        }
        if self.text.trim().is_empty() && self.instructions.is_empty() && self.fails_if.is_empty() {
            return Some((
                "text",
                "a text, an instruction or a failure condition is needed".to_owned(),
            ));
        }
        None
    }
}

/// Creates or replaces a directive, which NPCs follow in the dialogues that its keys select.
///
/// A prompt has at most three texts, five instructions and ten failure conditions of directives. The trace of a turn
/// shows them. A world has at most 200 directives.
#[utoipa::path(
    tag = "directives",
    params(("world" = String, Path), ("directive" = String, Path, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet"), PutQuery),
    request_body = DirectiveBody,
    responses((status = 200, body = Directive, description = "Replaced"), (status = 201, body = Directive, description = "Made"), (status = 409, description = "The world has as many as it may (`too_many_directives`)"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/worlds/{world}/directives/{directive}")]
pub async fn put_directive(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, String)>,
    query: QueryParams<PutQuery>,
    request: HttpRequest,
    body: Body<DirectiveBody>,
) -> Result<HttpResponse, Problem> {
    let (world, name) = path.0;
    let id: DirectiveId = name
        .parse()
        .map_err(|error| Problem::invalid_field("directive", format!("{error}")))?;
    let if_match = IfMatch::from_put_request(&request)?;
    let body = body.value;
    if let Some((field, fault)) = body.find_fault(&world) {
        return Err(Problem::invalid_field(field, fault));
    }
    run_uncancelled(async move {
        let store = &state.services.ledger.directives;
        if if_match == IfMatch::MustExist && store.load_directive(&caller.scope, &world, &id).await?.is_none() {
            return Err(etag::version_mismatch_error(0));
        }
        let edit = caller.new_edit(&state, "directive.put", format!("{world}/{id}"));
        let mut directive = Directive {
            world: world.clone(),
            id: id.clone(),
            keys: body.keys,
            text: body.text.trim().to_owned(),
            instructions: body.instructions,
            fails_if: body.fails_if,
            priority: body.priority,
            version: 0,
            updated_at: edit.made_at,
        };
        if query.0.is_dry_run() {
            worlds::find_world(&state, &caller, &world).await?;
            let stored = store.load_directive(&caller.scope, &world, &id).await?;
            directive.version = dry_run::next_version(stored.map(|stored| stored.version), if_match)?;
            return Ok(HttpResponse::Ok().json(directive));
        }
        let version = if_match.expected_version();
        let outcome = store.put_directive(&caller.scope, &directive, version, &edit).await?;
        if let PutOutcome::Full { most: max } = outcome {
            let detail = format!("a world may have {max} directives; delete some that nobody needs");
            return Err(Problem::new(Code::TooManyDirectives, detail));
        }
        let created = etag::created_by_put(outcome, if_match, "world")?;
        state.sessions.forget_authored_everywhere(&caller.scope, &world).await;
        let stored = find_directive(&state, &caller, &world, &id).await?;
        let location = format!("/v1/worlds/{world}/directives/{id}");
        Ok(etag::respond_stored(created, &location, stored.version, &stored))
    })
    .await
}

/// Returns a directive.
#[utoipa::path(
    tag = "directives",
    params(("world" = String, Path), ("directive" = String, Path)),
    responses((status = 200, body = Directive), (status = 304, description = "If-None-Match names this version")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/directives/{directive}")]
pub async fn get_directive(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, DirectiveId)>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let (world, id) = path.0;
    let directive = find_directive(&state, &caller, &world, &id).await?;
    Ok(etag::respond_found(&request, directive.version, &directive))
}

/// Lists the directives of a world.
#[utoipa::path(
    tag = "directives",
    params(("world" = String, Path), PageQuery),
    responses((status = 200, body = Items<Directive>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/directives")]
pub async fn list_directives(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<DirectiveId>(&state)?;
    let world = path.0;
    worlds::find_world(&state, &caller, &world).await?;
    let store = &state.services.ledger.directives;
    let directives = store.list_directives(&caller.scope, &world, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from(directives)))
}

/// Deletes a directive. Later turns do without it.
#[utoipa::path(
    tag = "directives",
    params(("world" = String, Path), ("directive" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag of what is to be deleted, or *")),
    responses((status = 204), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[delete("/v1/worlds/{world}/directives/{directive}")]
pub async fn delete_directive(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, DirectiveId)>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let (world, id) = path.0;
    let if_match = IfMatch::from_request(&request)?;
    run_uncancelled(async move {
        let edit = caller.new_edit(&state, "directive.delete", format!("{world}/{id}"));
        let store = &state.services.ledger.directives;
        let version = if_match.expected_version();
        let outcome = store
            .delete_directive(&caller.scope, &world, &id, version, &edit)
            .await?;
        state.sessions.forget_authored_everywhere(&caller.scope, &world).await;
        etag::respond_deleted(outcome, "directive")
    })
    .await
}

async fn find_directive<A>(
    state: &AppState,
    caller: &Authorized<A>,
    world: &WorldId,
    id: &DirectiveId,
) -> Result<Directive, Problem> {
    let store = &state.services.ledger.directives;
    let directive = store.load_directive(&caller.scope, world, id).await?;
    directive.ok_or_else(|| Problem::not_found("directive"))
}
