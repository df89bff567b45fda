//! Events of the game that a backend reports: `/v1/worlds/{w}/events`.

use actix_web::{HttpRequest, HttpResponse, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{FieldError, Problem},
    extract::{Author, Authorized, Body, Path},
    idempotency::{self, IdempotentResponse},
    worlds,
};
use colloquy_core::ids::{EventId, WorldId};
use colloquy_dialogue::world_events::{self, WorldEventError};
use colloquy_memory::world_event::{EventFault, MAX_EVENTS, WorldEvent};

/// Events of the game, in their order.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct WorldEventsBody {
    #[garde(length(min = 1, max = MAX_EVENTS))]
    #[schema(min_items = 1, max_items = 200)]
    events: Vec<WorldEvent>,
}

/// The recorded events.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorldEventsView {
    /// The cause of the changes in `GET …/state`.
    #[schema(value_type = String)]
    id: EventId,
    #[schema(value_type = String)]
    world_id: WorldId,
    /// The number of events.
    recorded: usize,
    #[serde(rename = "at")]
    recorded_at: DateTime<Utc>,
}

/// Reports events of the game. They change the world's state at once: all of them, or with any fault none.
///
/// Interrupts and restored saves do not take the changes back. The next reply of every NPC of the world knows them.
#[utoipa::path(
    tag = "world state",
    params(("world" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "Makes a retry safe")),
    request_body = WorldEventsBody,
    responses((status = 201, body = WorldEventsView), (status = 409, description = "The same request is being handled"), (status = 422, description = "Some events are not valid; `errors` names each fault, and nothing was recorded")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/events")]
pub async fn record_world_events(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    request: HttpRequest,
    body: Body<WorldEventsBody>,
) -> Result<HttpResponse, Problem> {
    let raw = body.raw;
    let events = body.value.events;
    let world = worlds::find_world(&state, &caller, &path.0).await?;
    let edit = caller.new_edit(&state, "world.events", &world.id);
    let principal = caller.principal.clone();
    let scope = caller.scope.clone();
    let work = {
        let state = state.clone();
        async move {
            let recording = world_events::record_world_events(&state.services, &scope, &world, &events, &edit);
            let id = recording.await.map_err(events_problem)?;
            let location = format!("/v1/worlds/{}/state", world.id);
            let view = WorldEventsView {
                id,
                world_id: world.id,
                recorded: events.len(),
                recorded_at: edit.made_at,
            };
            IdempotentResponse::created(&view, location)
        }
    };
    idempotency::run_once(&state, &principal, &request, &raw, work).await
}

fn events_problem(error: WorldEventError) -> Problem {
    match error {
        WorldEventError::Store(error) => error.into(),
        WorldEventError::Invalid(faults) => {
            let error = |(index, fault): (usize, EventFault)| FieldError {
                param: format!("events[{index}].{}", fault.field),
                detail: fault.reason,
            };
            Problem::invalid_fields(faults.into_iter().map(error).collect())
        }
    }
}
