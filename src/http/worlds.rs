//! Worlds: `/v1/worlds`.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::Problem,
    etag::{self, IfMatch},
    extract::{Author, Authorized, Body, InWorld, Path, QueryParams},
    pagination::{self, Items, PageQuery},
    run_uncancelled,
    unlocks::UnlockBody,
    validate::{display_name, one_line_label},
};
use crate::{
    ids::WorldId,
    memory::{
        authored::{Greeting, Language, ReplyLanguage, SelfTold, World, WorldRecall, WorldSettings},
        scoring::RecallPreset,
        state_block::MAX_NAME_CHARS,
        vocabulary::{MAX_SYNONYMS, MAX_WORD_CHARS, MAX_WORDS, Vocabulary},
    },
    ports::ledger::audit::Edit,
};

/// A world as its author writes it.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct WorldBody {
    /// One line.
    #[garde(length(chars, max = 200), custom(display_name))]
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// What everybody in it takes for granted; in every prompt.
    #[serde(default)]
    #[garde(length(chars, max = 4000))]
    #[schema(max_length = 4000)]
    premise: String,
    #[serde(default)]
    language: Language,
    /// Rules no NPC may break, one a line.
    #[serde(default)]
    #[garde(length(max = 20), inner(length(chars, max = 200), custom(one_line_label)))]
    #[schema(max_items = 20)]
    rules: Vec<String>,
    #[serde(default)]
    #[garde(dive)]
    #[schema(inline)]
    settings: SettingsBody,
}

/// What a world may set for itself, and an NPC over its world.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct SettingsBody {
    /// Recency decay λ per day; default 0.002.
    #[garde(range(min = 0.0, max = 10.0))]
    #[schema(minimum = 0, maximum = 10)]
    recency_lambda_per_day: Option<f64>,
    /// How memories are weighed and chosen.
    #[garde(dive)]
    #[schema(inline)]
    recall: Option<WorldRecallBody>,
    /// What one player tells an NPC in private may be used with other players. Default false.
    share_between_players: Option<bool>,
    /// NPCs tell any player what they said to each other in conversations that are not open to that player. Default false.
    gossip: Option<bool>,
    /// With whom an NPC shares what it told one player of itself: `shared` (with every player, as long as it names no player
    /// and rests on nothing private or locked) or `private`. Default `shared`.
    self_told: Option<SelfTold>,
    /// Most that one turn may change a relationship; default 20.
    #[garde(range(min = 0, max = 1000))]
    #[schema(minimum = 0, maximum = 1000)]
    max_relationship_delta: Option<i32>,
    /// Most that one turn may change hit points; default 100.
    #[garde(range(min = 0, max = 1_000_000))]
    #[schema(minimum = 0, maximum = 1_000_000)]
    max_hp_delta: Option<i32>,
    /// When an NPC greets with the words of its persona: `first` (when it meets a player for the first time; later the
    /// model greets, with what it remembers) or `always`. Default `first`.
    #[schema(inline)]
    greeting: Option<Greeting>,
    /// The language that an NPC answers in: `own`, or the `player`'s (among NPCs that of the world). Default `own`.
    #[schema(inline)]
    reply_language: Option<ReplyLanguage>,
    /// Most of one item that one turn may give or take; default 1,000.
    #[garde(range(max = 9_999))]
    #[schema(maximum = 9_999)]
    max_item_delta: Option<u32>,
    /// Moods that NPCs of this world can be in. What a model writes is mapped to one of them, or left out, so that nothing
    /// of what one player said reaches another by it. Default: 20 words, such as `calm`, `happy`, `worried`. Of a world
    /// alone.
    #[garde(length(min = 1, max = MAX_WORDS), inner(inner(length(chars, max = MAX_WORD_CHARS), custom(one_line_label))))]
    #[schema(min_items = 1, max_items = 40)]
    moods: Option<Vec<String>>,
    /// Kinds of relationships: ASCII letters, digits, `_`, `-` and blanks, without regard to case. Other kinds are refused.
    /// Default `trust`, `affection`, `respect`, `fear`, `debt`, `loyalty`, `rivalry`, `hostility`. Of a world alone.
    #[garde(length(min = 1, max = MAX_WORDS), inner(inner(length(chars, max = MAX_WORD_CHARS), custom(one_line_label), custom(ascii_kind))))]
    #[schema(min_items = 1, max_items = 40)]
    relationship_kinds: Option<Vec<String>>,
    /// Further words for moods and kinds, from the word to a mood or a kind that is listed. Common English and Korean ones
    /// are known (`신뢰` is `trust`). Of a world alone.
    #[garde(custom(bounded_synonyms))]
    synonyms: Option<BTreeMap<String, String>>,
    /// All items that there are; what a state block says of others is refused. Default: any. Of a world alone.
    #[garde(length(max = MAX_NAMES), inner(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name))))]
    #[schema(max_items = 500)]
    items: Option<Vec<String>>,
    /// All places that there are; what a state block says of others is refused. Default: any. Of a world alone.
    #[garde(length(max = MAX_NAMES), inner(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name))))]
    #[schema(max_items = 500)]
    places: Option<Vec<String>>,
    /// What raises a player's progress with an NPC, and so unlocks its scenarios. Default none. Of a world alone: an NPC's
    /// are refused. The first 512 items, places, people and feelings of a player count, each; what comes later unlocks
    /// nothing.
    #[garde(length(max = 50), dive)]
    #[schema(max_items = 50)]
    unlocks: Option<Vec<UnlockBody>>,
}

/// How a world's memories are weighed and chosen.
#[derive(Debug, Default, Deserialize, Serialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct WorldRecallBody {
    /// `four_factor`: relevance .5, keywords .2, recency .15, importance .15. `rag`: relevance .7,
    /// recency .2, importance .1. Default: as configured.
    #[schema(inline)]
    preset: Option<RecallPreset>,
    /// How much a memory that resembles a better one gives way to one that does not, 0 (not at all) to 1;
    /// default: as configured.
    #[garde(range(min = 0.0, max = 1.0))]
    #[schema(minimum = 0, maximum = 1)]
    diversity: Option<f64>,
}

impl SettingsBody {
    /// An NPC's settings.
    ///
    /// # Errors
    /// They have what is of a world alone.
    pub fn into_npc_settings(self) -> Result<WorldSettings, Problem> {
        if self.unlocks.is_some() {
            let told = "is of a world alone; its rules name the NPC they are for";
            return Err(Problem::invalid_field("settings.unlocks", told));
        }
        let of_the_world = [
            ("settings.moods", self.moods.is_some()),
            ("settings.relationship_kinds", self.relationship_kinds.is_some()),
            ("settings.synonyms", self.synonyms.is_some()),
            ("settings.items", self.items.is_some()),
            ("settings.places", self.places.is_some()),
        ];
        if let Some((field, _)) = of_the_world.into_iter().find(|(_, is_set)| *is_set) {
            return Err(Problem::invalid_field(field, "is of a world alone"));
        }
        Ok(self.into())
    }
}

impl From<SettingsBody> for WorldSettings {
    fn from(body: SettingsBody) -> Self {
        Self {
            recency_lambda_per_day: body.recency_lambda_per_day,
            share_between_players: body.share_between_players,
            gossip: body.gossip,
            self_told: body.self_told,
            max_relationship_delta: body.max_relationship_delta,
            max_hp_delta: body.max_hp_delta,
            greeting: body.greeting,
            reply_language: body.reply_language,
            max_item_delta: body.max_item_delta,
            moods: body.moods,
            relationship_kinds: body.relationship_kinds,
            synonyms: body.synonyms,
            items: body.items,
            places: body.places,
            unlocks: body.unlocks.map(|rules| rules.into_iter().map(Into::into).collect()),
            recall: body.recall.map(|recall| WorldRecall {
                preset: recall.preset,
                diversity: recall.diversity,
            }),
        }
    }
}

/// Names of items and of places that a world may list, each.
const MAX_NAMES: usize = 500;

#[expect(clippy::ptr_arg, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
fn ascii_kind(word: &String, (): &()) -> garde::Result {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
    if word.chars().all(plain) {
        Ok(())
    } else {
        Err(garde::Error::new(
            "must be of ASCII letters, digits, `_`, `-` and blanks",
        ))
    }
}

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
fn bounded_synonyms(words: &Option<BTreeMap<String, String>>, (): &()) -> garde::Result {
    let words = words.iter().flatten();
    if words.clone().count() > MAX_SYNONYMS {
        return Err(garde::Error::new(format!("length is greater than {MAX_SYNONYMS}")));
    }
    for word in words.flat_map(|(from, to)| [from, to]) {
        one_line_label(word, &())?;
        if word.chars().count() > MAX_WORD_CHARS {
            return Err(garde::Error::new(format!(
                "a word is longer than {MAX_WORD_CHARS} characters"
            )));
        }
    }
    Ok(())
}

/// A world as it is stored.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorldView {
    #[schema(value_type = String)]
    id: WorldId,
    name: String,
    premise: String,
    language: Language,
    rules: Vec<String>,
    settings: WorldSettings,
    /// The `ETag`, without its quotes.
    version: u32,
    updated_at: DateTime<Utc>,
}

impl From<World> for WorldView {
    fn from(world: World) -> Self {
        Self {
            id: world.id,
            name: world.name,
            premise: world.premise,
            language: world.language,
            rules: world.rules,
            settings: world.settings,
            version: world.version,
            updated_at: world.updated_at,
        }
    }
}

/// A synonym of nothing would never be used, and nobody would know why.
fn check_synonyms(settings: &WorldSettings) -> Result<(), Problem> {
    let vocabulary = Vocabulary::from_settings(settings);
    let mut synonyms = settings.synonyms.iter().flatten();
    match synonyms.find(|(_, to)| !vocabulary.contains_word(to)) {
        None => Ok(()),
        Some((from, to)) => {
            let told =
                format!("`{from}` means `{to}`, which is neither a mood nor a kind of relationship of this world");
            Err(Problem::invalid_field("settings.synonyms", told))
        }
    }
}

impl WorldBody {
    fn into_world(self, id: WorldId, at: DateTime<Utc>) -> World {
        World {
            id,
            name: self.name,
            premise: self.premise,
            language: self.language,
            rules: self.rules,
            settings: self.settings.into(),
            version: 0,
            updated_at: at,
        }
    }
}

/// Makes or replaces a world. One that was deleted comes back with everything that it had but its NPCs, each of
/// which comes back when it is put again.
#[utoipa::path(
    tag = "worlds",
    params(("world" = String, Path, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet")),
    request_body = WorldBody,
    responses((status = 200, body = WorldView, description = "Replaced"), (status = 201, body = WorldView, description = "Made"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/worlds/{world}")]
pub async fn put_world(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<String>,
    request: HttpRequest,
    body: Body<WorldBody>,
) -> Result<HttpResponse, Problem> {
    let id: WorldId = path
        .0
        .parse()
        .map_err(|error| Problem::invalid_field("world", format!("{error}")))?;
    let wanted = IfMatch::from_put_request(&request)?;
    run_uncancelled(async move {
        let store = &state.services.ledger.authored;
        if wanted == IfMatch::MustExist && store.load_world(&caller.scope, &id).await?.is_none() {
            return Err(etag::version_mismatch_error(0));
        }
        let at = state.services.clock.now();
        let edit = Edit::made_by(&caller.principal, &state.services.ids, at, "world.put", &id);
        let world = body.value.into_world(id.clone(), at);
        check_synonyms(&world.settings)?;
        let outcome = store
            .put_world(&caller.scope, &world, wanted.expected_version(), &edit)
            .await?;
        state.sessions.forget_authored_everywhere(&caller.scope, &id).await;
        let created = etag::created_by_put(outcome, wanted, "world")?;
        let stored = find_world(&state, &caller, &id).await?;
        let location = format!("/v1/worlds/{id}");
        Ok(etag::respond_stored(
            created,
            &location,
            stored.version,
            &WorldView::from(stored),
        ))
    })
    .await
}

/// A world.
#[utoipa::path(
    tag = "worlds",
    params(("world" = String, Path)),
    responses((status = 200, body = WorldView), (status = 304, description = "If-None-Match names this version")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}")]
pub async fn get_world(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let world = find_world(&state, &caller, &path.0).await?;
    Ok(etag::respond_found(&request, world.version, &WorldView::from(world)))
}

/// The tenant's worlds.
#[utoipa::path(
    tag = "worlds",
    params(PageQuery),
    responses((status = 200, body = Items<WorldView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds")]
pub async fn list_worlds(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Author>>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = pagination::parse_page::<WorldId>(&state, query.0.limit, query.0.after)?;
    if let Some(world) = &caller.principal.world {
        // The only one there is to such a token.
        let is_next = page.after.as_deref().is_none_or(|after| world.as_str() > after);
        let found = state.services.ledger.authored.load_world(&caller.scope, world).await?;
        return Ok(HttpResponse::Ok().json(Items {
            items: found.filter(|_| is_next).into_iter().map(WorldView::from).collect(),
            next: None,
        }));
    }
    let found = state.services.ledger.authored.list_worlds(&caller.scope, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from_page(found, WorldView::from)))
}

/// Hides a world and its NPCs; its dialogues end. Nothing is destroyed: what was said and learned in it is there
/// again once the same id is put again.
#[utoipa::path(
    tag = "worlds",
    params(("world" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag of what is to be deleted, or *")),
    responses((status = 204), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[delete("/v1/worlds/{world}")]
pub async fn delete_world(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let wanted = IfMatch::from_request(&request)?;
    run_uncancelled(async move {
        let at = state.services.clock.now();
        let edit = Edit::made_by(&caller.principal, &state.services.ids, at, "world.delete", &path.0);
        let store = &state.services.ledger.authored;
        let outcome = store
            .delete_world(&caller.scope, &path.0, wanted.expected_version(), &edit)
            .await?;
        state.sessions.forget_authored_everywhere(&caller.scope, &path.0).await;
        etag::respond_deleted(outcome, "world")
    })
    .await
}

/// The world, or 404.
pub async fn find_world<A>(state: &AppState, caller: &Authorized<A>, id: &WorldId) -> Result<World, Problem> {
    state
        .services
        .ledger
        .authored
        .load_world(&caller.scope, id)
        .await?
        .ok_or_else(|| Problem::not_found("world"))
}
