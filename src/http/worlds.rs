//! Worlds: `/v1/worlds`.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    AppState,
    authored::{ConditionalEdit, PutRequest, StoredByPut, authored_resource, parse_id},
    dry_run::PutQuery,
    errors::Problem,
    extract::{Author, Authorized, Body, InWorld, Path, QueryParams},
    pagination::{Items, PageQuery},
    unlocks::UnlockBody,
    validate::{
        action_rules, attribute_rules, changed_names, clock_settings, display_name, one_line_label, place_links,
    },
};
use colloquy_core::ids::WorldId;
use colloquy_memory::{
    actions::ActionRule,
    attributes::{AttributeAuthor, AttributeRule},
    authored::{Greeting, Language, ReplyLanguage, SelfTold, TenantTier, World, WorldSettings},
    game_clock::ClockSettings,
    state_block::MAX_NAME_CHARS,
    tiers::{CurationTuning, PromptTuning, RetentionTuning, SummaryTuning, TaskModels, WorldRecall},
    vocabulary::{MAX_SYNONYMS, MAX_WORD_CHARS, MAX_WORDS, Vocabulary},
};
use colloquy_ports::ledger::authored::PutOutcome;

/// A world as its author writes it.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct WorldBody {
    /// One line.
    #[garde(length(chars, max = 200), custom(display_name))]
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// Common knowledge of all NPCs in the world; part of every prompt.
    #[serde(default)]
    #[garde(length(chars, max = 4000))]
    #[schema(max_length = 4000)]
    premise: String,
    #[serde(default)]
    language: Language,
    /// Rules no NPC may break, one per line.
    #[serde(default)]
    #[garde(length(max = 20), inner(length(chars, max = 200), custom(one_line_label)))]
    #[schema(max_items = 20)]
    rules: Vec<String>,
    #[serde(default)]
    #[garde(dive)]
    #[schema(inline)]
    settings: SettingsBody,
}

/// Settings of a tenant, a world, an NPC or a session. A lower tier overrides the tiers above.
#[derive(Debug, Clone, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct SettingsBody {
    /// Recency decay λ per day; default 0.002.
    #[garde(range(min = 0.0, max = 10.0))]
    #[schema(minimum = 0, maximum = 10)]
    recency_lambda_per_day: Option<f64>,
    /// How long a line that points at the previous turn waits for what that turn taught, in ms; default 1,500.
    #[garde(range(max = 10_000))]
    #[schema(maximum = 10_000)]
    longest_wait_for_memory_ms: Option<u32>,
    /// How memories are weighted and selected.
    #[garde(custom(tier_group))]
    #[schema(inline)]
    recall: Option<WorldRecall>,
    /// Budgets of prompts' sections, and the state block.
    #[garde(custom(tier_group))]
    #[schema(inline)]
    prompt: Option<PromptTuning>,
    /// When a summary is due.
    #[garde(custom(tier_group))]
    #[schema(inline)]
    summaries: Option<SummaryTuning>,
    /// Curation passes.
    #[garde(custom(tier_group))]
    #[schema(inline)]
    curation: Option<CurationTuning>,
    /// Models per task, from the operator's list.
    #[garde(custom(tier_group))]
    #[schema(inline)]
    models: Option<TaskModels>,
    /// How long NPCs remember what they learn.
    #[garde(custom(tier_group))]
    #[schema(inline)]
    retention: Option<RetentionTuning>,
    /// True: private facts from one player may be used with other players. Default false.
    share_between_players: Option<bool>,
    /// True: NPCs tell every player about NPC conversations that are not open to the player. Default false.
    gossip: Option<bool>,
    /// With whom an NPC shares facts that the NPC told one player about itself. `shared`: with every player, if the
    /// fact names no player and has no private or locked source. `private`: only with that player. Default `private`.
    self_told: Option<SelfTold>,
    /// Maximum change of a relationship in one turn; default 20.
    #[garde(range(min = 0, max = 1000))]
    #[schema(minimum = 0, maximum = 1000)]
    max_relationship_delta: Option<i32>,
    /// Maximum change of hit points in one turn; default 100.
    #[garde(range(min = 0, max = 1_000_000))]
    #[schema(minimum = 0, maximum = 1_000_000)]
    max_hp_delta: Option<i32>,
    /// When an NPC greets with its persona's greeting. `first`: at the first meeting with a player; later, the model
    /// greets with its memories. `always`: at every meeting. Default `first`.
    #[schema(inline)]
    greeting: Option<Greeting>,
    /// The language of an NPC's replies: `own`, or the `player`'s (in NPC conversations the world's). Default `own`.
    #[schema(inline)]
    reply_language: Option<ReplyLanguage>,
    /// Maximum amount of one item that one turn may give or take; default 1,000.
    #[garde(range(max = 9_999))]
    #[schema(maximum = 9_999)]
    max_item_delta: Option<u32>,
    /// Moods of the world's NPCs. A mood from the model is mapped to a listed mood or dropped, so that no player's
    /// words leak to another player. Default: 20 words, such as `calm`, `happy`, `worried`. Only for worlds.
    #[garde(length(min = 1, max = MAX_WORDS), inner(inner(length(chars, max = MAX_WORD_CHARS), custom(one_line_label))))]
    #[schema(min_items = 1, max_items = 40)]
    moods: Option<Vec<String>>,
    /// Kinds of relationships: ASCII letters, digits, `_`, `-` and blanks; case does not matter. Other kinds are
    /// refused. Default `trust`, `affection`, `respect`, `fear`, `debt`, `loyalty`, `rivalry`, `hostility`. Only for
    /// worlds.
    #[garde(length(min = 1, max = MAX_WORDS), inner(inner(length(chars, max = MAX_WORD_CHARS), custom(one_line_label), custom(ascii_kind))))]
    #[schema(min_items = 1, max_items = 40)]
    relationship_kinds: Option<Vec<String>>,
    /// Synonyms: from a word to a listed mood or kind. Common English and Korean synonyms are built in (`신뢰` is
    /// `trust`). Only for worlds.
    #[garde(custom(bounded_synonyms))]
    synonyms: Option<BTreeMap<String, String>>,
    /// All existing items; changes of other items in a state block are refused. Default: any item. Only for worlds.
    #[garde(length(max = MAX_NAMES), inner(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name))))]
    #[schema(max_items = 500)]
    items: Option<Vec<String>>,
    /// All existing places; changes to other places in a state block are refused. Default: any place. Only for worlds.
    #[garde(length(max = MAX_NAMES), inner(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name))))]
    #[schema(max_items = 500)]
    places: Option<Vec<String>>,
    /// Who changes an item, or brings somebody to a place: by name. `replies`: state blocks of replies, and the backend;
    /// `backend`: the backend alone. Default: `backend` for the items and places that conditions of lore, scenarios or
    /// actions name, or rules in `unlocks`; `replies` for all others. At most 500 names of 64 characters. Only for
    /// worlds.
    #[garde(custom(changed_names))]
    changed_by: Option<BTreeMap<String, AttributeAuthor>>,
    /// The places next to a place. A link holds in both directions. In a state block, a character with a known place
    /// moves to linked places only, if its place has links. At most 500 places with 50 links each. Default: no links.
    /// Only for worlds.
    #[garde(custom(place_links))]
    adjacent: Option<BTreeMap<String, Vec<String>>>,
    /// Statuses of characters; other statuses are refused. `dead` is always a status. Default `alive`, `dead`,
    /// `wounded`, `unconscious`, `asleep`, `away`, `captive`, `hidden`. Only for worlds.
    #[garde(length(min = 1, max = MAX_WORDS), inner(inner(length(chars, max = MAX_WORD_CHARS), custom(one_line_label))))]
    #[schema(min_items = 1, max_items = 40)]
    statuses: Option<Vec<String>>,
    /// True: dead NPCs answer and act. Default false. Only for worlds.
    ghosts_speak: Option<bool>,
    /// Attributes of the studio's own, tracked in the world's state. Default none. Only for worlds.
    #[garde(custom(attribute_rules))]
    #[schema(inline, max_items = 40)]
    state: Option<Vec<AttributeRule>>,
    /// The clock of the world: its calendar, where it starts, and how fast it runs. Dates, ages, and conditions on the
    /// time go by the clock. Default: no clock. Only for worlds.
    #[garde(custom(clock_settings))]
    #[schema(inline)]
    clock: Option<ClockSettings>,
    /// Actions that NPCs may ask the backend for. Default none. Only for worlds.
    #[garde(custom(action_rules))]
    #[schema(inline, max_items = 40)]
    actions: Option<Vec<ActionRule>>,
    /// Rules that raise a player's progress with an NPC, and so unlock its scenarios. Default none. Only for worlds:
    /// refused for NPCs. For each player, the first 512 items, places, persons and relationships count; later entries
    /// unlock nothing.
    #[garde(length(max = 50), dive)]
    #[schema(max_items = 50)]
    unlocks: Option<Vec<UnlockBody>>,
}

/// The settings that only worlds have.
pub const WORLD_SETTINGS: [&str; 13] = [
    "moods",
    "relationship_kinds",
    "synonyms",
    "items",
    "places",
    "changed_by",
    "adjacent",
    "statuses",
    "ghosts_speak",
    "state",
    "actions",
    "clock",
    "unlocks",
];

impl SettingsBody {
    /// Converts the settings of a tenant, an NPC or a session.
    ///
    /// # Errors
    /// The settings contain a field that is only for worlds.
    pub fn into_tier_settings(self) -> Result<WorldSettings, Problem> {
        if self.unlocks.is_some() {
            let detail = "is of a world alone; its rules name the NPC they are for";
            return Err(Problem::invalid_field("settings.unlocks", detail));
        }
        let of_the_world = [
            ("settings.moods", self.moods.is_some()),
            ("settings.relationship_kinds", self.relationship_kinds.is_some()),
            ("settings.synonyms", self.synonyms.is_some()),
            ("settings.items", self.items.is_some()),
            ("settings.places", self.places.is_some()),
            ("settings.changed_by", self.changed_by.is_some()),
            ("settings.adjacent", self.adjacent.is_some()),
            ("settings.statuses", self.statuses.is_some()),
            ("settings.ghosts_speak", self.ghosts_speak.is_some()),
            ("settings.state", self.state.is_some()),
            ("settings.actions", self.actions.is_some()),
            ("settings.clock", self.clock.is_some()),
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
            longest_wait_for_memory_ms: body.longest_wait_for_memory_ms,
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
            changed_by: body.changed_by,
            adjacent: body.adjacent,
            statuses: body.statuses,
            ghosts_speak: body.ghosts_speak,
            state: body.state,
            clock: body.clock,
            actions: body.actions,
            unlocks: body.unlocks.map(|rules| rules.into_iter().map(Into::into).collect()),
            recall: body.recall,
            prompt: body.prompt,
            summaries: body.summaries,
            curation: body.curation,
            models: body.models,
            retention: body.retention,
        }
    }
}

/// A group of settings with ranges.
trait TierGroup {
    fn fault(&self) -> Option<String>;
}

macro_rules! tier_groups {
    ($($group:ty),+) => {$(
        impl TierGroup for $group {
            fn fault(&self) -> Option<String> {
                self.find_fault()
            }
        }
    )+};
}
tier_groups!(
    WorldRecall,
    PromptTuning,
    SummaryTuning,
    CurationTuning,
    TaskModels,
    RetentionTuning
);

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
fn tier_group<T: TierGroup>(group: &Option<T>, (): &()) -> garde::Result {
    let fault = group.as_ref().and_then(TierGroup::fault);
    fault.map_or(Ok(()), |fault| Err(garde::Error::new(fault)))
}

/// Checks that the operator allows the models of these settings.
///
/// # Errors
/// The first model that is not allowed.
pub fn check_models(state: &AppState, settings: &WorldSettings) -> Result<(), Problem> {
    let models = &state.services.models;
    let mut task_models = settings.models.iter().flat_map(TaskModels::named);
    match task_models.find(|(_, model)| !models.is_model_allowed(model)) {
        None => Ok(()),
        Some((task, _)) => {
            let detail = "is not one that the operator lets NPCs name";
            Err(Problem::invalid_field(format!("settings.models.{task}"), detail))
        }
    }
}

/// Maximum number of item names, and of place names, of a world.
const MAX_NAMES: usize = 500;

#[expect(clippy::ptr_arg, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
fn ascii_kind(word: &String, (): &()) -> garde::Result {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
    if word.chars().all(plain) {
        Ok(())
    } else {
        let rule = "must be of ASCII letters, digits, `_`, `-` and blanks";
        Err(garde::Error::new(rule))
    }
}

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
fn bounded_synonyms(synonyms: &Option<BTreeMap<String, String>>, (): &()) -> garde::Result {
    let synonyms = synonyms.iter().flatten();
    if synonyms.clone().count() > MAX_SYNONYMS {
        return Err(garde::Error::new(format!("length is greater than {MAX_SYNONYMS}")));
    }
    for word in synonyms.flat_map(|(synonym, meaning)| [synonym, meaning]) {
        one_line_label(word, &())?;
        if word.chars().count() > MAX_WORD_CHARS {
            let rule = format!("a word is longer than {MAX_WORD_CHARS} characters");
            return Err(garde::Error::new(rule));
        }
    }
    Ok(())
}

/// A synonym for an unknown word would never apply, without any sign of the mistake.
fn check_synonyms(settings: &WorldSettings) -> Result<(), Problem> {
    let vocabulary = Vocabulary::from_settings(settings);
    let mut synonyms = settings.synonyms.iter().flatten();
    match synonyms.find(|(_, meaning)| !vocabulary.contains_word(meaning)) {
        None => Ok(()),
        Some((synonym, meaning)) => {
            let detail = format!(
                "`{synonym}` means `{meaning}`, which is no mood, status or kind of relationship of this world"
            );
            Err(Problem::invalid_field("settings.synonyms", detail))
        }
    }
}

/// Checks that conditions of actions on the time can hold in this world.
fn check_time_conditions(settings: &WorldSettings) -> Result<(), Problem> {
    let rules = settings.action_rules().iter();
    let mut conditions = rules.flat_map(|rule| rule.when.iter().map(move |condition| (rule, condition)));
    let fault = conditions.find_map(|(rule, condition)| {
        let fault = condition.find_time_fault(settings)?;
        Some(format!("`{}` has a condition that never holds: {fault}", rule.name))
    });
    fault.map_or(Ok(()), |fault| Err(Problem::invalid_field("settings.actions", fault)))
}

impl WorldBody {
    fn into_world(self, id: WorldId, updated_at: DateTime<Utc>) -> World {
        World {
            id,
            name: self.name,
            premise: self.premise,
            language: self.language,
            rules: self.rules,
            settings: self.settings.into(),
            lore_version: 0,
            tenant: TenantTier::default(),
            version: 0,
            updated_at,
        }
    }
}

/// Creates or replaces a world.
///
/// A deleted world comes back with all its content except NPCs. Each NPC comes back with its own PUT. A change of
/// `clock.ratio` holds from now on: the clock does not jump.
#[utoipa::path(
    tag = "worlds",
    params(("world" = String, Path, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet"), PutQuery),
    request_body = WorldBody,
    responses((status = 200, body = World, description = "Replaced"), (status = 201, body = World, description = "Made"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/worlds/{world}")]
pub async fn put_world(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<String>,
    query: QueryParams<PutQuery>,
    request: HttpRequest,
    body: Body<WorldBody>,
) -> Result<HttpResponse, Problem> {
    let key = parse_id("world", &path.0)?;
    let put = PutRequest::<World>::new(state, caller, key, &query.0, &request)?;
    put.store(move |state, id, updated_at| {
        let world = body.value.into_world(id.clone(), updated_at);
        check_synonyms(&world.settings)?;
        check_time_conditions(&world.settings)?;
        check_models(state, &world.settings)?;
        Ok(world)
    })
    .await
}

impl StoredByPut for World {
    async fn put(&self, put: &ConditionalEdit<'_>) -> Result<PutOutcome, Problem> {
        let store = &put.state.services.ledger.authored;
        Ok(store.put_world(put.scope, self, put.if_version, put.edit).await?)
    }
}

authored_resource! {
    World is "world" of "world", logged as "world";
    tag "worlds", "/v1/worlds/{world}", key WorldId = "world" world;
    store authored: load_world, delete_world;
    /// Returns a world.
    get get_world;
    /// Hides a world and its NPCs, and ends their dialogues.
    ///
    /// No data is destroyed: a later PUT of the same id restores the dialogues and the facts.
    delete delete_world;
}

/// Lists the tenant's worlds.
#[utoipa::path(
    tag = "worlds",
    params(PageQuery),
    responses((status = 200, body = Items<World>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds")]
pub async fn list_worlds(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Author>>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<WorldId>()?;
    if let Some(world) = &caller.principal.world {
        // The only world of the token.
        let is_next = page.after.as_deref().is_none_or(|after| world.as_str() > after);
        let world = state.services.ledger.authored.load_world(&caller.scope, world).await?;
        return Ok(HttpResponse::Ok().json(Items::only_page(world.filter(|_| is_next))));
    }
    let worlds = state.services.ledger.authored.list_worlds(&caller.scope, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from(worlds)))
}

/// Loads the world; 404 if missing.
pub async fn find_world<A>(state: &AppState, caller: &Authorized<A>, id: &WorldId) -> Result<World, Problem> {
    let world = state.services.ledger.authored.load_world(&caller.scope, id).await?;
    world.ok_or_else(|| Problem::not_found("world"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_of_worlds_are_refused_for_other_tiers() {
        for name in WORLD_SETTINGS {
            let value = match name {
                "ghosts_speak" => json!(true),
                "synonyms" | "changed_by" | "adjacent" => json!({}),
                "clock" => json!({"start": "1024-03-05"}),
                _ => json!([]),
            };
            let body: SettingsBody = serde_json::from_value(json!({name: value})).unwrap();
            let problem = body.into_tier_settings().unwrap_err();
            assert_eq!(problem.param, Some(format!("settings.{name}")));
        }
        let body: SettingsBody = serde_json::from_value(json!({"gossip": true})).unwrap();
        assert_eq!(body.into_tier_settings().unwrap().gossip, Some(true));
    }
}
