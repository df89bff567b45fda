//! The state of a world for backends: `/v1/worlds/{w}/state`.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, get, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Path, QueryParams},
    validate, worlds,
};
use colloquy_core::ids::{DialogueId, WorldId};
use colloquy_dialogue::world_events::{self, CausedState, ValueCause};
use colloquy_memory::{
    attributes::AttributeValue,
    authored::World,
    calendar::PartOfDay,
    fact::Cause,
    game_clock::GameClock,
    keywords::normalise_text,
    state::{Character, Relationship, StatePart},
};

/// Which part of the state, and of which time.
#[derive(Debug, Default, Deserialize, Validate, IntoParams, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WorldStateQuery {
    /// Only this character: the name or the id of an NPC, `player:` with the id of a player, or another name in the
    /// state.
    #[param(max_length = 200)]
    #[garde(inner(length(chars, max = 200)))]
    who: Option<String>,
    /// Only the characters at this place. The dead are not at any place.
    #[param(max_length = 64)]
    #[garde(inner(length(chars, max = 64)))]
    place: Option<String>,
    /// The state right after a turn of this dialogue: with `turn`.
    #[param(value_type = Option<String>)]
    #[schema(value_type = Option<String>)]
    dialogue: Option<DialogueId>,
    /// A turn that stands, from 1.
    #[param(minimum = 1)]
    #[garde(inner(range(min = 1)))]
    turn: Option<u32>,
}

/// Who caused a value, and when.
#[derive(Debug, Serialize, ToSchema)]
pub struct CauseView {
    /// `turn` (a reply), `event` (`POST …/events`), `action` (the answer to an action), `edit` (another request) or
    /// `job`.
    kind: &'static str,
    id: String,
    #[serde(rename = "at")]
    caused_at: DateTime<Utc>,
}

impl CauseView {
    pub fn new(cause: &Cause, caused_at: DateTime<Utc>) -> Self {
        let (kind, id) = cause.to_columns();
        Self { kind, id, caused_at }
    }
}

/// The clock of the world.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClockView {
    /// Date and time of the game, in the numbers of its calendar, such as `1024-03-05 14:30`.
    time: String,
    /// Seconds of the game since the beginning of year 1.
    seconds: i64,
    /// `null`: the calendar has no weeks.
    weekday: Option<String>,
    month: String,
    /// The year in words, such as `year 1024 of the Third Age`; the number alone without a label of the calendar.
    year: String,
    #[schema(inline)]
    part_of_day: PartOfDay,
    /// Game seconds per real second.
    ratio: f64,
    /// The last change of the clock.
    cause: Option<CauseView>,
}

impl ClockView {
    /// Returns the clock at a real moment, or now.
    fn new(state: &AppState, world: &World, caused_state: &CausedState, until: Option<DateTime<Utc>>) -> Option<Self> {
        let clock = GameClock::new(&world.settings, &caused_state.state)?;
        let moment = match until {
            Some(until) => clock.game_time_at(until),
            None => clock.game_time_now(state.services.clock.now()),
        };
        Some(Self {
            time: moment.text(),
            seconds: moment.time.seconds(),
            weekday: moment.weekday(world.language).map(str::to_owned),
            month: moment.month_name(world.language).to_owned(),
            year: moment.year_text(),
            part_of_day: moment.part_of_day(),
            ratio: clock.ratio(),
            cause: cause_of(caused_state, &StatePart::Time),
        })
    }
}

/// A value with its cause.
#[derive(Debug, Serialize, ToSchema)]
pub struct CausedText {
    value: String,
    cause: Option<CauseView>,
}

/// A number with its cause.
#[derive(Debug, Serialize, ToSchema)]
pub struct CausedNumber {
    value: i64,
    cause: Option<CauseView>,
}

/// An attribute's value. The initial value has no cause.
#[derive(Debug, Serialize, ToSchema)]
pub struct CausedAttribute {
    #[schema(inline)]
    value: AttributeValue,
    cause: Option<CauseView>,
}

/// A character in the state. Unset values were never changed.
#[derive(Debug, Serialize, ToSchema)]
pub struct CharacterView {
    /// An NPC's name, `player:` with the id of a player, or another name.
    name: String,
    location: Option<CausedText>,
    hp: Option<CausedNumber>,
    status: Option<CausedText>,
    mood: Option<CausedText>,
    /// Items with their counts.
    items: BTreeMap<String, CausedNumber>,
    /// The companions.
    with: Vec<CausedText>,
    attributes: BTreeMap<String, CausedAttribute>,
}

/// A directed relationship.
#[derive(Debug, Serialize, ToSchema)]
pub struct RelationshipView {
    from: String,
    to: String,
    kind: String,
    /// -100 to 100.
    strength: i32,
    cause: Option<CauseView>,
}

/// The state of a world, folded from all changes that stand.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorldStateView {
    /// `null`: the world has no clock.
    #[schema(inline)]
    clock: Option<ClockView>,
    #[schema(value_type = String)]
    world_id: WorldId,
    /// In the order of their names.
    characters: Vec<CharacterView>,
    relationships: Vec<RelationshipView>,
    /// Attributes of the world itself.
    attributes: BTreeMap<String, CausedAttribute>,
    /// The last events and notes, oldest first, at most 20 each.
    events: Vec<CausedText>,
    notes: Vec<CausedText>,
}

/// Returns the state of a world with the cause of each value: of all characters, or of one, or of those at a place.
///
/// With `dialogue` and `turn` it is the state right after that turn, from the changes that stand now.
#[utoipa::path(
    tag = "world state",
    params(("world" = String, Path), WorldStateQuery),
    responses((status = 200, body = WorldStateView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/state")]
pub async fn get_world_state(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<WorldStateQuery>,
) -> Result<HttpResponse, Problem> {
    let world = worlds::find_world(&state, &caller, &path.0).await?;
    validate::check_rules(&query.0)?;
    let WorldStateQuery {
        who: character,
        place,
        dialogue,
        turn,
    } = query.0;
    let until = match (dialogue, turn) {
        (Some(dialogue), Some(turn)) => Some(turn_time(&state, &caller, &world.id, dialogue, turn).await?),
        (None, None) => None,
        (Some(_), None) => return Err(Problem::invalid_field("turn", "is missing beside `dialogue`")),
        (None, Some(_)) => return Err(Problem::invalid_field("dialogue", "is missing beside `turn`")),
    };
    let caused_state = world_events::load_caused_state(&state.services, &caller.scope, &world, until).await?;
    let names = names_of_character(&state, &caller, &world.id, character.as_deref()).await?;
    let is_asked_for = |name: &str| names.contains(&normalise_text(name));
    let at_place: Option<Vec<&str>> = place
        .as_deref()
        .map(|place| caused_state.state.people_at(place).map(|(name, _)| name).collect());
    let is_wanted = |name: &str| {
        (character.is_none() || is_asked_for(name)) && at_place.as_ref().is_none_or(|names| names.contains(&name))
    };
    let is_unfiltered = character.is_none() && place.is_none();
    let characters = caused_state.state.characters.iter().filter(|(name, _)| is_wanted(name));
    let relationships = caused_state.state.relationships.iter();
    let relationships = relationships
        .filter(|relationship| is_unfiltered || is_wanted(&relationship.from) || is_wanted(&relationship.to));
    let sentences = |texts: &[String], part: fn(String) -> StatePart| -> Vec<CausedText> {
        let texts = texts.iter().filter(|_| is_unfiltered);
        texts
            .map(|text| caused_text(&caused_state, text, &part(text.clone())))
            .collect()
    };
    Ok(HttpResponse::Ok().json(WorldStateView {
        clock: ClockView::new(&state, &world, &caused_state, until),
        characters: characters
            .map(|(name, character)| character_view(&caused_state, &world, name, character))
            .collect(),
        relationships: relationships
            .map(|relationship| relationship_view(&caused_state, relationship))
            .collect(),
        attributes: attribute_views(&caused_state, &world, None, &caused_state.state.attributes),
        events: sentences(&caused_state.state.events, StatePart::Event),
        notes: sentences(&caused_state.state.notes, StatePart::Note),
        world_id: world.id,
    }))
}

/// Returns the normalised names of a character, which may be asked for by the id of its NPC.
async fn names_of_character(
    state: &AppState,
    caller: &Authorized<Author>,
    world: &WorldId,
    character: Option<&str>,
) -> Result<Vec<String>, Problem> {
    let Some(character) = character else {
        return Ok(Vec::new());
    };
    let mut names = vec![character.to_owned()];
    let authored = &state.services.ledger.authored;
    let by_id = authored.find_npc_names(&caller.scope, world, &names).await?;
    names.extend(by_id.into_iter().map(|npc| npc.name));
    Ok(names.iter().map(|name| normalise_text(name)).collect())
}

/// Returns the time of a turn that stands.
async fn turn_time(
    state: &AppState,
    caller: &Authorized<Author>,
    world: &WorldId,
    dialogue: DialogueId,
    turn: u32,
) -> Result<DateTime<Utc>, Problem> {
    let dialogues = &state.services.ledger.dialogues;
    let stored_dialogue = dialogues.load_dialogue(&caller.scope, dialogue).await?;
    if stored_dialogue.is_none_or(|stored_dialogue| stored_dialogue.world != *world) {
        return Err(Problem::not_found("dialogue"));
    }
    let turns = dialogues.load_turns(&caller.scope, dialogue, turn, turn).await?;
    let committed_at = turns.first().map(|turn| turn.committed_at);
    committed_at.ok_or_else(|| Problem::not_found("turn"))
}

fn cause_of(caused_state: &CausedState, part: &StatePart) -> Option<CauseView> {
    let ValueCause { cause, changed_at } = caused_state.causes.get(part)?;
    Some(CauseView::new(cause, *changed_at))
}

fn caused_text(caused_state: &CausedState, value: &str, part: &StatePart) -> CausedText {
    CausedText {
        value: value.to_owned(),
        cause: cause_of(caused_state, part),
    }
}

fn caused_number(caused_state: &CausedState, value: impl Into<i64>, part: &StatePart) -> CausedNumber {
    CausedNumber {
        value: value.into(),
        cause: cause_of(caused_state, part),
    }
}

fn relationship_view(caused_state: &CausedState, relationship: &Relationship) -> RelationshipView {
    let Relationship {
        from,
        to,
        kind,
        strength,
    } = relationship.clone();
    let part = StatePart::Relationship(from.clone(), to.clone(), kind.clone());
    RelationshipView {
        from,
        to,
        kind,
        strength,
        cause: cause_of(caused_state, &part),
    }
}

fn character_view(caused_state: &CausedState, world: &World, name: &str, character: &Character) -> CharacterView {
    let owner_name = || name.to_owned();
    let text =
        |value: &Option<String>, part: StatePart| value.as_deref().map(|value| caused_text(caused_state, value, &part));
    CharacterView {
        name: owner_name(),
        location: text(&character.location, StatePart::Location(owner_name())),
        hp: character
            .hp
            .map(|hp| caused_number(caused_state, hp, &StatePart::Hp(owner_name()))),
        status: text(&character.status, StatePart::Status(owner_name())),
        mood: text(&character.mood, StatePart::Mood(owner_name())),
        items: character
            .items
            .iter()
            .map(|(item, count)| {
                let part = StatePart::Item(owner_name(), item.clone());
                (item.clone(), caused_number(caused_state, *count, &part))
            })
            .collect(),
        with: character
            .with
            .iter()
            .map(|companion| {
                caused_text(
                    caused_state,
                    companion,
                    &StatePart::With(owner_name(), companion.clone()),
                )
            })
            .collect(),
        attributes: attribute_views(caused_state, world, Some(name), &character.attributes),
    }
}

/// Returns the attributes of `owner` (`None`: the world), with the initial values of those that were never changed.
fn attribute_views(
    caused_state: &CausedState,
    world: &World,
    owner: Option<&str>,
    stored_values: &BTreeMap<String, AttributeValue>,
) -> BTreeMap<String, CausedAttribute> {
    let rules = world.settings.attribute_rules().iter();
    let initial = rules
        .filter(|rule| rule.is_owned_by(owner))
        .filter_map(|rule| Some((rule.name.clone(), rule.initial_value()?)));
    let mut values: BTreeMap<String, AttributeValue> = initial.collect();
    values.extend(stored_values.clone());
    let view = |(name, value): (String, AttributeValue)| {
        let part = StatePart::Attribute(owner.map(str::to_owned), name.clone());
        let cause = cause_of(caused_state, &part);
        (name, CausedAttribute { value, cause })
    };
    values.into_iter().map(view).collect()
}
