//! Reading a memory: lists, hybrid search with score parts, history.

use std::{collections::HashMap, sync::Arc};

use actix_web::{HttpRequest, HttpResponse, get, web};
use chrono::{DateTime, Utc};

use super::view::{FactView, HistoryView};
use crate::{
    AppState,
    errors::Problem,
    etag,
    extract::{Author, Authorized, Path, QueryParams},
    npcs,
    pagination::{self, Items, list_query},
    worlds,
};
use colloquy_core::ids::{FactId, NpcId, PlayerId, WorldId};
use colloquy_dialogue::{game_time::WorldDays, recall};
use colloquy_memory::{
    authored::Npc,
    disclosure::audience::{Knower, Viewpoint, Watchers},
    fact::{Fact, FactKind},
    party,
};
use colloquy_ports::{
    PageRequest,
    ledger::facts::{Contradiction, FactFilter},
};

/// Longest search text, in characters.
const MAX_QUERY_CHARS: usize = 2_000;

list_query! {
    pub struct FactsQuery {
        /// Hybrid search: best match first, each with the parts of its score. Not together with `after`, `subject`, `kind`,
        /// `from`, `to`, `flagged` or `include_invalid`.
        #[param(min_length = 1, max_length = 2000)]
        q: Option<String>,
        /// The exact subject. With `player_id`, `player` means that player; without `player_id`, use `player:<id>`.
        subject: Option<String>,
        #[param(inline)]
        kind: Option<FactKind>,
        /// Earliest `valid_at`.
        from: Option<DateTime<Utc>>,
        /// Latest `valid_at`.
        to: Option<DateTime<Utc>>,
        /// Facts valid at this time; default now.
        #[serde(rename = "at")]
        as_of: Option<DateTime<Utc>>,
        /// Also include facts that are no longer valid.
        include_invalid: Option<bool>,
        /// Only pinned or manually written facts that a valid fact contradicts, each with the contradicting facts.
        /// Contradictions with a decision of a person are left out (`GET /v1/worlds/{world}/flags`).
        flagged: Option<bool>,
        /// The NPC's view in a dialogue with this player; unset: facts of all players.
        #[param(value_type = Option<String>)]
        player_id: Option<PlayerId>,
    }
}

/// Lists the facts that an NPC knows: newest first, or best match first with `q`.
#[utoipa::path(
    tag = "facts",
    params(("world" = String, Path), ("npc" = String, Path), FactsQuery),
    responses((status = 200, body = Items<FactView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/npcs/{npc}/facts")]
pub async fn list_facts(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
    query: QueryParams<FactsQuery>,
) -> Result<HttpResponse, Problem> {
    let query = query.0;
    let page = query.parse_page::<FactId>()?;
    let npc = npcs::find_npc(&state, &caller, &path.0.0, &path.0.1).await?;
    let as_of = query.as_of.unwrap_or_else(|| state.services.clock.now());
    let viewpoint = viewpoint_of(&npc, query.player_id.clone());
    check_cursor(&state, &caller, &path.0.0, &page).await?;
    let world = worlds::find_world(&state, &caller, &path.0.0).await?;
    let days = WorldDays::load(&state.services, &caller.scope, &world).await?;
    if let Some(text) = &query.q {
        reject_filters(&query)?;
        check_search_text(text)?;
        let world = Arc::new(world.clone()).for_npc(&npc);
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let services = state.services.tuned_by(&world.settings);
        let (hits, _) = recall::search_facts(&services, &caller.scope, &world, &viewpoint, text, as_of, limit).await?;
        let views = hits.into_iter().map(|hit| {
            let score = hit.score;
            FactView::new_at(hit.into_fact(), as_of)
                .with_score(score)
                .with_game_time(&days)
        });
        return Ok(HttpResponse::Ok().json(Items::only_page(views)));
    }
    let filter = FactFilter {
        viewpoint,
        subject: query.subject.map(|subject| match &query.player_id {
            Some(player) => party::bind_to_player(&subject, Some(player)),
            None => subject,
        }),
        kind: query.kind,
        from: query.from,
        to: query.to,
        as_of,
        include_invalid: query.include_invalid.unwrap_or(false),
        flagged: query.flagged.unwrap_or(false),
    };
    let facts = &state.services.ledger.facts;
    let page_of_facts = facts.list_facts(&caller.scope, &filter, &page).await?;
    let mut contradictions_by_fact = if filter.flagged {
        load_contradictions(&state, &caller, &page_of_facts.items, as_of).await?
    } else {
        HashMap::new()
    };
    Ok(HttpResponse::Ok().json(Items::from_page(page_of_facts, |fact| {
        let contradictions = contradictions_by_fact.remove(&fact.id).unwrap_or_default();
        FactView::new_at(fact, as_of)
            .with_contradictions(contradictions)
            .with_game_time(&days)
    })))
}

/// The viewpoint of an NPC in a dialogue with `player`; `None`: with all players.
fn viewpoint_of(npc: &Npc, player: Option<PlayerId>) -> Viewpoint {
    Viewpoint {
        world: npc.world.clone(),
        npc: npc.id.clone(),
        factions: npc.factions.clone(),
        sees_all_players: player.is_none(),
        player,
        watchers: Watchers::default(),
    }
}

/// Checks that the next page starts at the row of a fact of the world.
async fn check_cursor(
    state: &AppState,
    caller: &Authorized<Author>,
    world: &WorldId,
    page: &PageRequest,
) -> Result<(), Problem> {
    let Some(id) = page.after.as_deref().and_then(|cursor| cursor.parse().ok()) else {
        return Ok(());
    };
    let fact = state.services.ledger.facts.load_fact(&caller.scope, id).await?;
    if fact.is_none_or(|fact| fact.world != *world) {
        return Err(pagination::invalid_cursor());
    }
    Ok(())
}

fn check_search_text(text: &str) -> Result<(), Problem> {
    if text.trim().is_empty() || text.chars().count() > MAX_QUERY_CHARS {
        return Err(Problem::invalid_field(
            "q",
            format!("must be 1 to {MAX_QUERY_CHARS} characters"),
        ));
    }
    Ok(())
}

/// Returns the valid facts that contradict each of `facts`.
async fn load_contradictions(
    state: &AppState,
    caller: &Authorized<Author>,
    facts: &[Fact],
    as_of: DateTime<Utc>,
) -> Result<HashMap<FactId, Vec<Contradiction>>, Problem> {
    let ids: Vec<FactId> = facts.iter().map(|fact| fact.id).collect();
    let store = &state.services.ledger.facts;
    let mut by_fact: HashMap<FactId, Vec<Contradiction>> = HashMap::new();
    for contradiction in store.list_contradictions(&caller.scope, &ids, as_of).await? {
        by_fact.entry(contradiction.fact).or_default().push(contradiction);
    }
    Ok(by_fact)
}

/// Filters are refused: a search that ignores a filter would give wrong results without a warning.
fn reject_filters(query: &FactsQuery) -> Result<(), Problem> {
    let filters = [
        ("subject", query.subject.is_some()),
        ("kind", query.kind.is_some()),
        ("from", query.from.is_some()),
        ("to", query.to.is_some()),
        ("include_invalid", query.include_invalid.is_some()),
        ("flagged", query.flagged.is_some()),
        ("after", query.after.is_some()),
    ];
    let errors: Vec<_> = filters
        .into_iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(name, _)| crate::errors::FieldError {
            param: name.to_owned(),
            detail: "does not go together with q".to_owned(),
        })
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Problem::invalid_fields(errors))
    }
}

/// Loads the fact. 404 also while its world is deleted, or while every NPC that knows the fact is deleted.
pub async fn find_fact(state: &AppState, caller: &Authorized<Author>, id: FactId) -> Result<Fact, Problem> {
    let not_found = || Problem::not_found("fact");
    let ledger = &state.services.ledger;
    let fact = ledger.facts.load_fact(&caller.scope, id).await?.ok_or_else(not_found)?;
    let authored = &ledger.authored;
    if authored.load_world(&caller.scope, &fact.world).await?.is_none() {
        return Err(not_found());
    }
    for knower in &fact.audience.knowers {
        let knower_exists = match knower {
            Knower::Npc(npc) => authored.load_npc(&caller.scope, &fact.world, npc).await?.is_some(),
            Knower::Faction(_) | Knower::World => true,
        };
        if knower_exists {
            return Ok(fact);
        }
    }
    Err(not_found())
}

/// Returns a fact.
///
/// 404 while its world is deleted, or while every NPC that knows the fact is deleted.
#[utoipa::path(
    tag = "facts",
    params(("fact" = String, Path)),
    responses((status = 200, body = FactView), (status = 304, description = "If-None-Match names this version")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/facts/{fact}")]
pub async fn get_fact(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<FactId>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let fact = find_fact(&state, &caller, path.0).await?;
    Ok(etag::respond_found(
        &request,
        fact.version,
        &FactView::new_at(fact, state.services.clock.now()),
    ))
}

/// Lists the history of a fact, oldest entry first.
#[utoipa::path(
    tag = "facts",
    params(("fact" = String, Path)),
    responses((status = 200, body = Items<HistoryView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/facts/{fact}/history")]
pub async fn fact_history(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<FactId>,
) -> Result<HttpResponse, Problem> {
    let store = &state.services.ledger.facts;
    let fact = find_fact(&state, &caller, path.0).await?;
    let history = store.load_history(&caller.scope, path.0).await?;
    let replaced_facts = store.list_invalidated_by(&caller.scope, path.0).await?;
    let mut entries: Vec<HistoryView> = std::iter::once(HistoryView::creation_entry(&fact))
        .chain(history.into_iter().map(HistoryView::from))
        .chain(replaced_facts.iter().map(HistoryView::replacement_entry))
        .collect();
    entries.sort_by_key(HistoryView::happened_at);
    Ok(HttpResponse::Ok().json(Items::only_page(entries)))
}
