//! Flagged facts: the list that a person works off, and decisions.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    edit::{FactPatchBody, ended_error, unsaid_error},
    find::find_fact,
    view::FactView,
};
use crate::{
    AppState,
    errors::{FieldError, Problem},
    extract::{Author, Authorized, Body, Path, QueryParams},
    idempotency::{self, IdempotentResponse},
    npcs,
    pagination::{Items, list_query},
    validate::one_line_label,
    worlds,
};
use colloquy_core::{
    ids::{DialogueId, FactId, NpcId, WorldId},
    scope::Role,
};
use colloquy_dialogue::{
    jobs,
    remember::{self, FlagVerdict},
};
use colloquy_memory::{
    disclosure::audience::Knower,
    fact::Fact,
    flags::{FlagDecision, FlagEntry, FlagKind, MAX_REASON_CHARS},
};
use colloquy_ports::{
    StoreError,
    ledger::flags::{FlagCursor, FlagFilter, FlagOutcome},
};

/// Which flags to list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FlagStateFilter {
    /// Flags without a decision.
    #[default]
    Open,
    /// Flags with a decision.
    Decided,
}

/// The state of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FlagState {
    Open,
    Accepted,
    Corrected,
    Dismissed,
}

impl From<FlagDecision> for FlagState {
    fn from(decision: FlagDecision) -> Self {
        match decision {
            FlagDecision::Accepted => Self::Accepted,
            FlagDecision::Corrected => Self::Corrected,
            FlagDecision::Dismissed => Self::Dismissed,
        }
    }
}

/// A statement behind a flag.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlagStatementView {
    /// The fact that holds the statement.
    #[schema(value_type = String)]
    id: FactId,
    subject: String,
    predicate: String,
    object: String,
    /// The sentence as said.
    content: String,
    /// Who stated it: `player:<id>`, an NPC's name, or `author`.
    speaker: String,
    said_at: DateTime<Utc>,
    #[schema(value_type = Option<String>)]
    source_dialogue_id: Option<DialogueId>,
    source_turn: Option<u32>,
}

impl From<Fact> for FlagStatementView {
    fn from(fact: Fact) -> Self {
        let statement = fact.statement;
        Self {
            id: fact.id,
            subject: statement.subject,
            predicate: statement.predicate,
            object: statement.object,
            content: statement.content,
            speaker: statement.speaker,
            said_at: fact.valid_at,
            source_dialogue_id: fact.source.map(|(dialogue, _)| dialogue),
            source_turn: fact.source.map(|(_, turn)| turn),
        }
    }
}

/// A fact that a person should check.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlagView {
    flag: FlagKind,
    state: FlagState,
    /// When the newest of the statements was found.
    flagged_at: DateTime<Utc>,
    fact: FactView,
    /// Oldest first. `contradicted`: the contradicting statements. `over_merged`: the merged statements. `pii`: empty;
    /// the kinds of personal data are in `fact.pii`.
    statements: Vec<FlagStatementView>,
    /// Of the decision; may be empty.
    reason: Option<String>,
    /// The subject of the token of the person who decided.
    decided_by: Option<String>,
    /// The role of that token.
    decided_role: Option<Role>,
    decided_at: Option<DateTime<Utc>>,
}

impl From<FlagEntry> for FlagView {
    fn from(entry: FlagEntry) -> Self {
        let decided = entry.decided;
        Self {
            flag: entry.flag,
            state: decided
                .as_ref()
                .map_or(FlagState::Open, |decided| decided.decision.into()),
            flagged_at: entry.flagged_at,
            fact: entry.fact.into(),
            statements: entry.statements.into_iter().map(FlagStatementView::from).collect(),
            decided_role: decided.as_ref().map(|decided| decided.role),
            decided_at: decided.as_ref().map(|decided| decided.decided_at),
            decided_by: decided.as_ref().map(|decided| decided.decided_by.clone()),
            reason: decided.map(|decided| decided.reason),
        }
    }
}

list_query! {
    pub struct FlagsQuery {
        /// Only facts that this NPC knows, alone, through its factions or with everybody.
        #[param(value_type = Option<String>)]
        npc_id: Option<NpcId>,
        /// Only flags of this kind.
        #[param(inline)]
        flag: Option<FlagKind>,
        /// `open` (default) or `decided`.
        #[param(inline)]
        state: Option<FlagStateFilter>,
    }
}

/// Lists the facts of a world that a person should check, newest fact first.
///
/// A fact may have several flags. A flag disappears with the turn that caused it.
#[utoipa::path(
    tag = "facts",
    params(("world" = String, Path), FlagsQuery),
    responses((status = 200, body = Items<FlagView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/flags")]
pub async fn list_flags(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<FlagsQuery>,
) -> Result<HttpResponse, Problem> {
    let world = worlds::find_world(&state, &caller, &path.0).await?;
    let query = query.0;
    let page = query.parse_page::<FlagCursor>()?;
    let knowers = match &query.npc_id {
        None => None,
        Some(npc) => {
            let npc = npcs::find_npc(&state, &caller, &world.id, npc).await?;
            let shared_knowers = npc.factions.into_iter().map(Knower::Faction).chain([Knower::World]);
            Some(shared_knowers.chain([Knower::Npc(npc.id)]).collect())
        }
    };
    let filter = FlagFilter {
        flag: query.flag,
        knowers,
        decided: query.state.unwrap_or_default() == FlagStateFilter::Decided,
    };
    let facts = &state.services.ledger.facts;
    let flags = facts.list_flags(&caller.scope, &world.id, &filter, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from_page(flags, FlagView::from)))
}

/// A person's decision about a flag.
///
/// - `accepted`: the flag is right. A contradicted fact ends, and the contradicting statements stay. Personal data are
///   known and may stay. A merged fact stays as it is.
/// - `corrected`: the fact gets the values of `correction`.
/// - `dismissed`: the flag is wrong, and the fact stays.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct DecideFlagBody {
    #[schema(inline)]
    decision: FlagDecision,
    /// One line.
    #[garde(inner(length(chars, min = 1, max = MAX_REASON_CHARS), custom(one_line_label)))]
    #[schema(min_length = 1, max_length = 300)]
    reason: Option<String>,
    /// Required with `corrected`, and only then. The fields of `PATCH /v1/facts/{fact}`.
    #[garde(dive)]
    correction: Option<FactPatchBody>,
}

/// Decides about a flag of a fact.
///
/// A later decision replaces an earlier one, and takes back the end of a contradicted fact. A repeated decision gets the
/// same answer. The decision covers the statements of the flag: a new statement opens the flag again, unless it repeats
/// one of them.
#[utoipa::path(
    tag = "facts",
    params(("world" = String, Path), ("fact" = String, Path), ("flag" = FlagKind, Path), ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the first answer")),
    request_body = DecideFlagBody,
    responses(
        (status = 200, body = FlagView),
        (status = 404, description = "No such fact, or the fact has no such flag (any more)"),
        (status = 409, description = "The turn of the fact was taken back (`fact_unsaid`), the fact has ended meanwhile (`fact_ended`), or the same request is being handled"),
    ),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/flags/{fact}/{flag}:decide")]
pub async fn decide_flag(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, FactId, FlagKind)>,
    request: HttpRequest,
    body: Body<DecideFlagBody>,
) -> Result<HttpResponse, Problem> {
    let (world, fact, flag) = path.0;
    let world = worlds::find_world(&state, &caller, &world).await?;
    let stored_fact = find_fact(&state, &caller, fact).await?;
    if stored_fact.world != world.id {
        return Err(Problem::not_found("fact"));
    }
    let raw = body.raw.clone();
    let verdict = body
        .value
        .into_verdict(flag, &stored_fact, state.services.clock.now())?;
    let edit = caller.new_edit(&state, "flag.decide", format!("{fact}/{}", flag.as_str()));
    let work = {
        let state = state.clone();
        let scope = caller.scope.clone();
        async move {
            let services = &state.services;
            let outcome = remember::decide_flag(services, &scope, (&world.id, fact), &verdict, &edit).await?;
            let entry = match outcome {
                FlagOutcome::Decided(entry) => *entry,
                FlagOutcome::NotFound => return Err(Problem::not_found("flag")),
                FlagOutcome::Unsaid => return Err(unsaid_error()),
                FlagOutcome::Ended { by: replacement } => return Err(ended_error(replacement)),
                FlagOutcome::VersionMismatch { .. } => {
                    let error = StoreError::Unavailable("this fact is written to all the time".to_owned());
                    return Err(error.into());
                }
            };
            // A designer's next search finds the updated fact.
            if let Err(error) = jobs::relay_outbox(services).await {
                tracing::warn!(%error, "the index is updated later");
            }
            IdempotentResponse::done(&FlagView::from(entry))
        }
    };
    // Boxed: the future of a correction is large.
    Box::pin(idempotency::run_once(&state, &caller.principal, &request, &raw, work)).await
}

impl DecideFlagBody {
    fn into_verdict(self, flag: FlagKind, fact: &Fact, now: DateTime<Utc>) -> Result<FlagVerdict, Problem> {
        let fault = |detail: &str| Problem::invalid_field("correction", detail);
        let correction = match (self.decision, self.correction) {
            (FlagDecision::Corrected, Some(correction)) if !correction.is_empty() => Some(correction),
            (FlagDecision::Corrected, _) => return Err(fault("must have a value to correct, with decision corrected")),
            (_, Some(_)) => return Err(fault("goes only with decision corrected")),
            (_, None) => None,
        };
        let correction = correction
            .map(|correction| correction.into_correction(fact, now))
            .transpose()
            .map_err(|fault| {
                Problem::invalid_fields(vec![FieldError {
                    param: format!("correction.{}", fault.param),
                    ..fault
                }])
            })?;
        Ok(FlagVerdict {
            flag,
            decision: self.decision,
            reason: self.reason.unwrap_or_default(),
            correction,
        })
    }
}
