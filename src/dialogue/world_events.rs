//! Events of the game that a backend reports, and the state of a world for backends.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::{Services, scene::SceneMember};
use colloquy_core::{ids::EventId, scope::TenantScope};
use colloquy_memory::{
    authored::World,
    fact::Cause,
    keywords::normalise_text,
    state::{StatePart, WorldState},
    vocabulary::Vocabulary,
    world_event::{EventFault, EventRules, WorldEvent},
};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::{
        audit::Edit,
        state::{NewStateChange, StoredStateChange},
    },
};

/// Why events were not recorded.
#[derive(Debug, thiserror::Error)]
pub enum WorldEventError {
    /// Every fault, with the position of its event.
    #[error("some events are not valid")]
    Invalid(Vec<(usize, EventFault)>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Records events of the game, all or none, in their order. The changes have the same moment and the returned cause.
///
/// # Errors
/// The faults of all events, or the store's error.
pub async fn record_world_events(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    events: &[WorldEvent],
    edit: &Edit,
) -> Result<EventId, WorldEventError> {
    let mut people: Vec<String> = events
        .iter()
        .flat_map(WorldEvent::named_people)
        .map(str::to_owned)
        .collect();
    people.sort_unstable();
    people.dedup();
    let known_npcs = services
        .ledger
        .authored
        .find_npc_names(scope, &world.id, &people)
        .await?;
    // An id comes before the name of another NPC.
    let by_id = known_npcs.iter().map(|npc| (npc.id.to_string(), npc.name.clone()));
    let by_name = known_npcs
        .iter()
        .map(|npc| (normalise_text(&npc.name), npc.name.clone()));
    let rules = EventRules {
        settings: &world.settings,
        vocabulary: Vocabulary::from_settings(&world.settings),
        npc_names: by_name.chain(by_id).collect(),
    };
    let mut changes = Vec::with_capacity(events.len());
    let mut faults = Vec::new();
    for (index, event) in events.iter().enumerate() {
        match event.to_change(&rules) {
            Ok(change) => changes.push(change),
            Err(event_faults) => faults.extend(event_faults.into_iter().map(|fault| (index, fault))),
        }
    }
    if !faults.is_empty() {
        return Err(WorldEventError::Invalid(faults));
    }
    let id: EventId = services.ids.next_id();
    let rows: Vec<NewStateChange> = changes
        .into_iter()
        .map(|change| NewStateChange {
            id: services.ids.next_id(),
            world: world.id.clone(),
            dialogue: None,
            change,
            cause: Cause::Event(id),
            changed_at: edit.made_at,
        })
        .collect();
    services
        .ledger
        .state
        .record_changes(scope, &world.id, &rows, edit)
        .await?;
    Ok(id)
}

/// Returns the cast without those who are dead and do not answer in their world.
///
/// # Errors
/// The store's, if the state of the world cannot be read.
pub async fn living_members(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    cast: &[SceneMember],
) -> StoreResult<Vec<SceneMember>> {
    if world.settings.lets_ghosts_speak() {
        return Ok(cast.to_vec());
    }
    let state = services.memory_cache.world_state(services, scope, &world.id).await?;
    let living = cast
        .iter()
        .filter(|member| !state.is_npc_dead(&member.name, &member.id));
    Ok(living.cloned().collect())
}

/// The cause of a value, and the time of the change.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueCause {
    pub cause: Cause,
    pub changed_at: DateTime<Utc>,
}

/// The state of a world, with the last cause of each value.
#[derive(Debug, Default)]
pub struct CausedState {
    pub state: WorldState,
    pub causes: BTreeMap<StatePart, ValueCause>,
}

impl CausedState {
    /// Folds changes, oldest first.
    pub(crate) fn from_changes<'a>(changes: impl Iterator<Item = &'a StoredStateChange>) -> Self {
        let mut folded = Self::default();
        for stored in changes {
            folded
                .state
                .apply_change(&stored.change, stored.changed_at, stored.dialogue);
            if let Some(part) = stored.change.changed_part() {
                let cause = ValueCause {
                    cause: stored.cause,
                    changed_at: stored.changed_at,
                };
                folded.causes.insert(part, cause);
            }
        }
        folded
    }
}

/// Returns the state of a world: the present state, or the state of a moment, from the changes that stand now.
pub async fn load_caused_state(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    until: Option<DateTime<Utc>>,
) -> StoreResult<CausedState> {
    let stored = services.ledger.state.load_changes_since(scope, &world.id, 0).await?;
    let changes = stored.changes.iter();
    Ok(CausedState::from_changes(
        changes.filter(|stored| until.is_none_or(|until| stored.changed_at <= until)),
    ))
}
