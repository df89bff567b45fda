//! Character cards and lorebooks of other programs, in and out.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppState,
    errors::Problem,
    etag::{self, IfMatch},
    extract::{Author, Authorized, ImportFile, Path},
    npcs,
    uncancelled::run_uncancelled,
    worlds,
};
use colloquy_core::ids::{LoreId, NpcId, WorldId};
use colloquy_dialogue::knowledge::lore;
use colloquy_memory::{
    authored::Npc,
    character_card::{self, CardError, ImportedNpc, Lorebook, NotTaken},
    lore::{KnownBy, LoreEntry, LoreText},
};
use colloquy_ports::ledger::{audit::Edit, lore::ImportOutcome};
use colloquy_tenancy::limits::ImportInFlight;

/// Most entries of one import.
const MAX_IMPORTED: usize = 1_000;

/// The number of written entries.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ImportedLoreView {
    created: u32,
    updated: u32,
}

/// The outcome of an import.
#[derive(Debug, Serialize, ToSchema)]
pub struct ImportView {
    /// The NPC of the card. Absent for a lorebook.
    #[serde(skip_serializing_if = "Option::is_none")]
    npc: Option<Npc>,
    lore: ImportedLoreView,
    /// What could not be taken over, and why.
    not_taken: Vec<NotTaken>,
}

/// Writes the entries of a lorebook: all of them, or with any fault none.
///
/// Reads a lorebook of Character Card V2 or V3, "world info", and the book of a card, as JSON or PNG. At most 1,000
/// entries. Entries with the ids of existing entries replace them, so a repeat is safe.
#[utoipa::path(
    tag = "lore",
    params(("world" = String, Path)),
    request_body(content((Object = "application/json"), (Vec<u8> = "image/png"))),
    responses((status = 200, body = ImportView), (status = 409, description = "The world would have more than it may (`too_many_lore_entries`)")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/lore:import")]
pub async fn import_lorebook(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    file: ImportFile,
) -> Result<HttpResponse, Problem> {
    let world = path.0;
    let (file, import) = file.read(&state, &caller).await?;
    let parse = move || character_card::parse_lorebook(&file).map(|book| book.to_entries());
    let ((entries, not_taken), import) = read_file(import, parse).await?;
    run_uncancelled(async move {
        let _import = import;
        let edit = caller.new_edit(&state, "lore.import", &world);
        let counts = write_entries(&state, &caller, &world, entries, &edit).await?;
        state.sessions.forget_authored_everywhere(&caller.scope, &world).await;
        Ok(HttpResponse::Ok().json(ImportView {
            npc: None,
            lore: counts,
            not_taken,
        }))
    })
    .await
}

/// Creates or replaces an NPC from a character card, with the lore of the card's book.
///
/// Reads Character Card V1, V2 and V3, as JSON or PNG. Only this NPC knows the lore; the ids of its entries begin with
/// the NPC's id. Factions, model and settings of an existing NPC stay. A repeat is safe.
#[utoipa::path(
    tag = "npcs",
    params(("world" = String, Path), ("npc" = String, Path, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet")),
    request_body(content((Object = "application/json"), (Vec<u8> = "image/png"))),
    responses((status = 200, body = ImportView), (status = 409, description = "The world would have more lore than it may (`too_many_lore_entries`)"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/npcs/{npc}:import")]
pub async fn import_card(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, String)>,
    request: HttpRequest,
    file: ImportFile,
) -> Result<HttpResponse, Problem> {
    let (world, name) = path.0;
    let id: NpcId = name
        .parse()
        .map_err(|error| Problem::invalid_field("npc", format!("{error}")))?;
    let if_match = IfMatch::from_put_request(&request)?;
    let (file, import) = file.read(&state, &caller).await?;
    let ((imported, book, mut not_taken), import) = read_file(import, move || {
        let card = character_card::parse_card(&file)?;
        let (npc, mut not_taken) = card.to_npc();
        let (entries, of_lorebook) = card.lorebook().map(Lorebook::to_entries).unwrap_or_default();
        not_taken.extend(of_lorebook);
        Ok((npc, entries, not_taken))
    })
    .await?;
    run_uncancelled(async move {
        let _import = import;
        let authored = &state.services.ledger.authored;
        let existing = authored.load_npc(&caller.scope, &world, &id).await?;
        if if_match == IfMatch::MustExist && existing.is_none() {
            return Err(etag::version_mismatch_error(0));
        }
        let stored_version = existing.as_ref().map_or(0, |npc| npc.version);
        if if_match
            .expected_version()
            .is_some_and(|version| version != stored_version)
        {
            return Err(if_match.mismatch_error(stored_version));
        }
        let edit = caller.new_edit(&state, "npc.import", format!("{world}/{id}"));
        let npc = npc_of_card(imported, existing, &world, &id, &edit);
        // The lore first: it can fail in more ways, and nobody knows it without the NPC.
        let entries = entries_of_npc(&id, book, &mut not_taken);
        let lore_edit = caller.new_edit(&state, "lore.import", format!("{world}/{id}"));
        let counts = write_entries(&state, &caller, &world, entries, &lore_edit).await?;
        let outcome = authored
            .put_npc(&caller.scope, &npc, if_match.expected_version(), &edit)
            .await?;
        etag::created_by_put(outcome, if_match, "world")?;
        state.sessions.forget_authored_everywhere(&caller.scope, &world).await;
        let npc = npcs::find_npc(&state, &caller, &world, &id).await?;
        Ok(HttpResponse::Ok().json(ImportView {
            npc: Some(npc),
            lore: counts,
            not_taken,
        }))
    })
    .await
}

/// Returns the lore of a world as a lorebook of Character Card V3.
///
/// Fields without a place in the format are in `extensions.colloquy`; an import reads them again. Other programs ignore
/// the conditions of an entry, so secrets are open there.
#[utoipa::path(
    tag = "lore",
    params(("world" = String, Path)),
    responses((status = 200, body = Object)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/lore:export")]
pub async fn export_lorebook(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
) -> Result<HttpResponse, Problem> {
    let world = worlds::find_world(&state, &caller, &path.0).await?;
    let entries = all_entries(&state, &caller, &world.id).await?;
    Ok(HttpResponse::Ok().json(Lorebook::from_entries(&world.name, &entries)))
}

/// Returns an NPC as a Character Card V3, with the lore that `known_by` gives to this NPC.
#[utoipa::path(
    tag = "npcs",
    params(("world" = String, Path), ("npc" = String, Path)),
    responses((status = 200, body = Object)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/npcs/{npc}:export")]
pub async fn export_card(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(card_of_npc(&state, &caller, &path.0.0, &path.0.1).await?))
}

/// Returns a PNG picture with the card of an NPC inside, as `GET …:export` has the card.
///
/// The body is the picture. A card that is inside already is replaced.
#[utoipa::path(
    tag = "npcs",
    params(("world" = String, Path), ("npc" = String, Path)),
    request_body(content((Vec<u8> = "image/png"))),
    responses((status = 200, body = Vec<u8>, content_type = "image/png")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/npcs/{npc}:export")]
pub async fn export_png_card(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
    picture: ImportFile,
) -> Result<HttpResponse, Problem> {
    let (picture, import) = picture.read(&state, &caller).await?;
    let card = card_of_npc(&state, &caller, &path.0.0, &path.0.1).await?;
    let (png, _import) = read_file(import, move || character_card::write_png_card(&picture, &card)).await?;
    Ok(HttpResponse::Ok().content_type("image/png").body(png))
}

async fn card_of_npc(
    state: &AppState,
    caller: &Authorized<Author>,
    world: &WorldId,
    id: &NpcId,
) -> Result<serde_json::Value, Problem> {
    let npc = npcs::find_npc(state, caller, world, id).await?;
    let mut entries = all_entries(state, caller, world).await?;
    entries.retain(|(_, text)| text.known_by.npcs.contains(id));
    Ok(character_card::card_from_npc(&ImportedNpc::from(&npc), &entries))
}

/// Reads a file outside the threads of requests: a large file takes a while. The import goes on until then, even if the
/// caller has left.
async fn read_file<T: Send + 'static>(
    import: ImportInFlight,
    parse: impl FnOnce() -> Result<T, CardError> + Send + 'static,
) -> Result<(T, ImportInFlight), Problem> {
    let (result, import) = web::block(move || (parse(), import))
        .await
        .map_err(|error| Problem::internal_error(&error))?;
    let content = result.map_err(|error| Problem::invalid_field("body", error.to_string()))?;
    Ok((content, import))
}

fn npc_of_card(card: ImportedNpc, existing: Option<Npc>, world: &WorldId, id: &NpcId, edit: &Edit) -> Npc {
    let (factions, model, settings) = existing
        .map(|npc| (npc.factions, npc.model, npc.settings))
        .unwrap_or_default();
    Npc {
        world: world.clone(),
        id: id.clone(),
        name: card.name,
        persona: card.persona,
        language: card.language,
        factions,
        model,
        settings,
        has_scenarios: false,
        has_tells: false,
        version: 0,
        updated_at: edit.made_at,
    }
}

/// An entry of a card's book: only the NPC knows it, and its id begins with the NPC's id. `None`: the id is too long.
fn of_npc(npc: &NpcId, entry: &LoreId, mut text: LoreText) -> Option<(LoreId, LoreText)> {
    let is_own = |id: &LoreId| id.as_str().starts_with(&format!("{npc}-"));
    let own_id = |id: &LoreId| {
        if is_own(id) {
            Some(id.clone())
        } else {
            format!("{npc}-{id}").parse().ok()
        }
    };
    text.related = text.related.iter().filter_map(own_id).collect();
    text.known_by = KnownBy {
        npcs: vec![npc.clone()],
        factions: Vec::new(),
    };
    Some((own_id(entry)?, text))
}

/// Returns the entries of a card's book as the NPC's own. Entries whose id is too long are added to `not_taken`.
fn entries_of_npc(
    npc: &NpcId,
    book: Vec<(LoreId, LoreText)>,
    not_taken: &mut Vec<NotTaken>,
) -> Vec<(LoreId, LoreText)> {
    let mut entries = Vec::with_capacity(book.len());
    for (entry, text) in book {
        match of_npc(npc, &entry, text) {
            Some(entry) => entries.push(entry),
            None => not_taken.push(NotTaken {
                entry: Some(entry.to_string()),
                field: "id".to_owned(),
                reason: "with the NPC's id in front, the id is longer than 64 characters".to_owned(),
            }),
        }
    }
    entries
}

async fn write_entries<A>(
    state: &AppState,
    caller: &Authorized<A>,
    world: &WorldId,
    entries: Vec<(LoreId, LoreText)>,
    edit: &Edit,
) -> Result<ImportedLoreView, Problem> {
    worlds::find_world(state, caller, world).await?;
    if entries.len() > MAX_IMPORTED {
        let detail = format!("has {} entries; one import takes {MAX_IMPORTED}", entries.len());
        return Err(Problem::invalid_field("body", detail));
    }
    if entries.is_empty() {
        return Ok(ImportedLoreView::default());
    }
    // Two long ids may become one.
    let by_id: std::collections::BTreeMap<LoreId, LoreText> = entries.into_iter().collect();
    let entries = by_id.into_iter().map(|(id, text)| LoreEntry {
        world: world.clone(),
        id,
        text,
        version: 0,
        updated_at: edit.made_at,
    });
    let outcome = lore::import_lore(&state.services, &caller.scope, world, entries.collect(), edit).await?;
    match outcome {
        ImportOutcome::Written { created, updated } => Ok(ImportedLoreView { created, updated }),
        ImportOutcome::NoParent => Err(Problem::not_found("world")),
        ImportOutcome::Full { most: max } => Err(etag::too_much_lore_error(max)),
    }
}

async fn all_entries<A>(
    state: &AppState,
    caller: &Authorized<A>,
    world: &WorldId,
) -> Result<Vec<(LoreId, LoreText)>, Problem> {
    let lore = state.services.ledger.lore.load_world_lore(&caller.scope, world).await?;
    Ok(lore
        .entries
        .into_iter()
        .map(|lore| (lore.entry.id, lore.entry.text))
        .collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;
    use colloquy_core::ids::TenantId;
    use colloquy_tenancy::limits::{LimitSettings, RateLimits};

    #[actix_web::test]
    async fn import_of_a_caller_who_left_goes_on_until_its_file_is_read() {
        let settings = LimitSettings {
            player_sessions_per_min: 0,
            tenant_requests_per_s: 0,
            player_requests_per_s: 0,
            player_sockets: 0,
            player_turns_per_min: 0,
            player_cuts_per_min: 0,
            socket_messages_per_s: 0,
            socket_strikes: 0,
            player_in_flight: 0,
            address_in_flight: 0,
            imports: 0,
        };
        let limits = RateLimits::new(settings, 10);
        let tenant = "demo".parse::<TenantId>().unwrap();
        let import = limits.begin_import(&tenant).unwrap();
        let (begun, is_begun) = oneshot::channel::<()>();
        let (end, is_ended) = mpsc::channel::<()>();
        let reading = actix_web::rt::spawn(read_file(import, move || {
            begun.send(()).ok();
            is_ended.recv().ok();
            Ok(())
        }));
        is_begun.await.unwrap();
        reading.abort();
        assert!(reading.await.is_err(), "the request has ended");
        assert!(limits.begin_import(&tenant).is_err(), "the file is still read");
        drop(end);
    }
}
