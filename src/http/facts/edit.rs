//! Manual changes of a memory: create, correct, remove and restore facts.

use std::collections::BTreeSet;

use actix_web::{HttpRequest, HttpResponse, delete, http::header, patch, post, web};
use chrono::{DateTime, SubsecRound as _, Utc};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{find::find_fact, view::FactView};
use crate::{
    AppState,
    errors::{Code, FieldError, Problem},
    etag::{self, IfMatch},
    extract::{Author, Authorized, Body, NoOptions, OptionalBody, Path},
    idempotency::{self, IdempotentResponse},
    npcs,
    uncancelled::run_uncancelled,
    validate::{display_name, display_name_with_emoji, one_line_label, visible_text},
};
use colloquy_core::ids::{FactId, NpcId, PlayerId, WorldId};
use colloquy_dialogue::{
    jobs,
    remember::{self, FactCorrection, ManualFact},
};
use colloquy_memory::{
    disclosure::audience::{Audience, Knower},
    fact::{Fact, FactKind, Importance},
    keywords::{document_terms, query_coverage, query_terms},
    party,
};
use colloquy_ports::ledger::facts::FactEditOutcome;

/// A fact written by a person.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct FactBody {
    /// The person or thing that the fact is about. Use `player:<id>`, a player's relation (`player:<id>'s sister`), an
    /// NPC's name, or a thing. With `private_to`, `player` means that player; without `private_to`, `player` means no
    /// specific player.
    #[garde(length(chars, max = 200), custom(display_name))]
    #[schema(min_length = 1, max_length = 200)]
    subject: String,
    #[garde(length(chars, max = 200), custom(one_line_label))]
    #[schema(min_length = 1, max_length = 200)]
    predicate: String,
    #[garde(length(chars, max = 500), custom(display_name_with_emoji))]
    #[schema(min_length = 1, max_length = 500)]
    object: String,
    /// One self-contained sentence.
    #[garde(length(chars, max = 2000), custom(visible_text))]
    #[schema(min_length = 1, max_length = 2000)]
    content: String,
    /// Specific keywords and their broader categories.
    #[serde(default)]
    #[garde(length(max = 32), inner(length(chars, max = 64), custom(one_line_label)))]
    #[schema(max_items = 32)]
    keywords: Vec<String>,
    kind: FactKind,
    /// 1 (trivial) to 10 (vital); default 5.
    #[garde(range(min = 1, max = 10))]
    #[schema(minimum = 1, maximum = 10)]
    importance: Option<u8>,
    /// Pinned facts are in every prompt.
    #[serde(default)]
    pinned: bool,
    /// Who may know the fact: `npc:<id>`, `faction:<id>` or `world`; default: this NPC.
    #[garde(inner(length(min = 1, max = 64)))]
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 64)]
    knowers: Option<BTreeSet<Knower>>,
    /// Used only in dialogues with this player.
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
    private_to: Option<PlayerId>,
    /// Since when the fact holds; default now.
    valid_at: Option<DateTime<Utc>>,
}

/// Creates a fact.
///
/// If another statement contradicts the fact, the fact is flagged and stays valid.
#[utoipa::path(
    tag = "facts",
    params(("world" = String, Path), ("npc" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the first answer")),
    request_body = FactBody,
    responses((status = 201, body = FactView), (status = 409, description = "The same request is being handled")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/npcs/{npc}/facts")]
pub async fn create_fact(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
    request: HttpRequest,
    body: Body<FactBody>,
) -> Result<HttpResponse, Problem> {
    let npc = npcs::find_npc(&state, &caller, &path.0.0, &path.0.1).await?;
    check_knowers(&state, &caller, &path.0.0, &body.value).await?;
    let raw = body.raw.clone();
    let fact = body.value.into_fact(path.0.0.clone(), npc.id);
    // The fact's id is created later, so the audit row names the NPC.
    let edit = caller.new_edit(&state, "fact.create", format!("{}/{}", path.0.0, path.0.1));
    let work = {
        let state = state.clone();
        let scope = caller.scope.clone();
        async move {
            let services = &state.services;
            let fact = remember::write_manual_fact(services, &scope, fact, &edit).await?;
            let location = format!("/v1/facts/{}", fact.id);
            IdempotentResponse::created(&FactView::from(fact), location)
        }
    };
    // Boxed: the future of the reconciliation is too large for the stack of a request.
    Box::pin(idempotency::run_once(&state, &caller.principal, &request, &raw, work)).await
}

/// A fact whose only knower is misspelt would never be found again. Factions need no check: NPCs define them.
async fn check_knowers(
    state: &AppState,
    caller: &Authorized<Author>,
    world: &WorldId,
    body: &FactBody,
) -> Result<(), Problem> {
    let authored = &state.services.ledger.authored;
    let mut errors = Vec::new();
    for knower in body.knowers.iter().flatten() {
        if let Knower::Npc(npc) = knower
            && authored.load_npc(&caller.scope, world, npc).await?.is_none()
        {
            errors.push(FieldError {
                param: "knowers".to_owned(),
                detail: format!("there is no NPC {npc} in this world"),
            });
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Problem::invalid_fields(errors))
    }
}

impl FactBody {
    fn into_fact(self, world: WorldId, npc: NpcId) -> ManualFact {
        let subject = match &self.private_to {
            Some(player) => party::bind_to_player(&self.subject, Some(player)),
            None => self.subject,
        };
        ManualFact {
            world,
            audience: Audience {
                knowers: self.knowers.unwrap_or_else(|| BTreeSet::from([Knower::Npc(npc)])),
                private_to: self.private_to,
            },
            subject,
            predicate: self.predicate,
            object: self.object,
            content: self.content,
            keywords: self.keywords,
            kind: self.kind,
            importance: self.importance.and_then(Importance::new).unwrap_or(Importance::DEFAULT),
            pinned: self.pinned,
            valid_at: self.valid_at,
        }
    }
}

/// A correction of a fact. Unset fields stay unchanged.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
#[derive(Default, PartialEq)]
pub struct FactPatchBody {
    #[garde(inner(length(chars, max = 2000), custom(visible_text)))]
    #[schema(min_length = 1, max_length = 2000)]
    content: Option<String>,
    #[garde(inner(length(max = 32), inner(length(chars, max = 64), custom(one_line_label))))]
    #[schema(max_items = 32)]
    keywords: Option<Vec<String>>,
    #[garde(range(min = 1, max = 10))]
    #[schema(minimum = 1, maximum = 10)]
    importance: Option<u8>,
    pinned: Option<bool>,
    /// The person or thing that the fact is about, as in a new fact.
    #[garde(inner(length(chars, max = 200), custom(display_name)))]
    #[schema(min_length = 1, max_length = 200)]
    subject: Option<String>,
    #[garde(inner(length(chars, max = 200), custom(one_line_label)))]
    #[schema(min_length = 1, max_length = 200)]
    predicate: Option<String>,
    #[garde(inner(length(chars, max = 500), custom(display_name_with_emoji)))]
    #[schema(min_length = 1, max_length = 500)]
    object: Option<String>,
    #[schema(inline)]
    kind: Option<FactKind>,
    /// Since when the fact holds.
    valid_at: Option<DateTime<Utc>>,
    /// Until when the fact held: later than `valid_at`, and not in the future.
    invalid_at: Option<DateTime<Utc>>,
}

impl FactPatchBody {
    /// True if no field is set.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The correction of `fact` at `now`.
    ///
    /// # Errors
    /// The fact would end before it begins, or in the future; or the content would contradict the object.
    pub(super) fn into_correction(self, fact: &Fact, now: DateTime<Utc>) -> Result<FactCorrection, FieldError> {
        // The ledger stores microseconds.
        let to_stored_precision = |moment: DateTime<Utc>| moment.trunc_subsecs(6);
        let valid_at = self.valid_at.map(to_stored_precision);
        let invalid_at = self.invalid_at.map(to_stored_precision);
        let fault = |detail: &str| FieldError {
            param: "invalid_at".to_owned(),
            detail: detail.to_owned(),
        };
        if let Some(content) = self.content.as_deref().filter(|_| self.object.is_none())
            && drops_object(fact, content)
        {
            let object = &fact.statement.object;
            return Err(FieldError {
                param: "object".to_owned(),
                detail: format!("the new content no longer says `{object}`; set the object that it says"),
            });
        }
        if let Some(end) = invalid_at {
            if end <= valid_at.unwrap_or(fact.valid_at) {
                return Err(fault("must be later than valid_at"));
            }
            if end > now {
                return Err(fault("must not be in the future"));
            }
        }
        Ok(FactCorrection {
            content: self.content,
            keywords: self.keywords,
            importance: self.importance.and_then(Importance::new),
            pinned: self.pinned,
            subject: self.subject,
            predicate: self.predicate,
            object: self.object,
            kind: self.kind,
            valid_at,
            invalid_at,
        })
    }
}

/// True if a new content leaves out words of the fact's object that the present content has.
fn drops_object(fact: &Fact, content: &str) -> bool {
    let object = query_terms(&fact.statement.object);
    let share = |content: &str| query_coverage(&object, &document_terms(content, &[]));
    share(content) < share(&fact.view.content)
}

/// Corrects a fact.
///
/// A new `content` that no longer says the fact's object needs the new `object` too.
/// A correction of the subject, the predicate, the object, the kind or the dates is a new fact, because a statement never
/// changes. The answer is the new fact, with another id. The corrected fact ends as `superseded`.
#[utoipa::path(
    tag = "facts",
    params(("fact" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *")),
    request_body = FactPatchBody,
    responses((status = 200, body = FactView), (status = 409, description = "The turn it came from was taken back (`fact_unsaid`), or the fact has ended and cannot be replaced (`fact_ended`)"), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[patch("/v1/facts/{fact}")]
pub async fn edit_fact(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<FactId>,
    request: HttpRequest,
    body: Body<FactPatchBody>,
) -> Result<HttpResponse, Problem> {
    let if_match = IfMatch::from_request(&request)?;
    let body = body.value;
    run_uncancelled(async move {
        let fact = find_fact(&state, &caller, path.0).await?;
        let edit = caller.new_edit(&state, "fact.edit", path.0);
        let services = &state.services;
        let correction = body.into_correction(&fact, services.clock.now());
        let correction = correction.map_err(|fault| Problem::invalid_fields(vec![fault]))?;
        let outcome = remember::correct_fact(
            services,
            &caller.scope,
            path.0,
            correction,
            if_match.expected_version(),
            &edit,
        )
        .await?;
        respond_to_edit(&state, outcome).await
    })
    .await
}

/// Removes a fact.
///
/// The fact is invalid from now on, with the reason `removed`. A removed fact can be restored.
#[utoipa::path(
    tag = "facts",
    params(("fact" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *")),
    responses((status = 200, body = FactView), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[delete("/v1/facts/{fact}")]
pub async fn remove_fact(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<FactId>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let if_match = IfMatch::from_request(&request)?;
    apply_fact_action(state, caller, path.0, if_match, FactAction::Remove).await
}

/// Restores an invalid fact.
///
/// Exception: a fact whose turn was taken back returns only with its turn. The body may be omitted.
#[utoipa::path(
    tag = "facts",
    params(("fact" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *")),
    request_body = NoOptions,
    responses((status = 200, body = FactView), (status = 409, description = "The turn it came from was taken back (`fact_unsaid`)"), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/facts/{fact}:restore")]
pub async fn restore_fact(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<FactId>,
    request: HttpRequest,
    _: OptionalBody<NoOptions>,
) -> Result<HttpResponse, Problem> {
    let if_match = IfMatch::from_request(&request)?;
    apply_fact_action(state, caller, path.0, if_match, FactAction::Restore).await
}

/// An action on a fact as a whole.
#[derive(Clone, Copy)]
enum FactAction {
    Remove,
    Restore,
}

async fn apply_fact_action(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    fact: FactId,
    if_match: IfMatch,
    action: FactAction,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        find_fact(&state, &caller, fact).await?;
        let facts = &state.services.ledger.facts;
        let version = if_match.expected_version();
        let outcome = match action {
            FactAction::Remove => {
                let edit = caller.new_edit(&state, "fact.remove", fact);
                facts.remove_fact(&caller.scope, fact, version, &edit).await?
            }
            FactAction::Restore => {
                let edit = caller.new_edit(&state, "fact.restore", fact);
                facts.restore_fact(&caller.scope, fact, version, &edit).await?
            }
        };
        respond_to_edit(&state, outcome).await
    })
    .await
}

/// The error for a fact whose turn was taken back.
pub(super) fn unsaid_error() -> Problem {
    Problem::new(
        Code::FactUnsaid,
        "the turn this fact came from was taken back; the fact is valid again when that turn stands again",
    )
}

/// The error for a fact that has ended; `replacement`: the fact that ended it.
pub(super) fn ended_error(replacement: Option<FactId>) -> Problem {
    let detail = replacement.map_or_else(
        || "the fact has ended; restore it first".to_owned(),
        |replacement| format!("the fact was replaced by {replacement}; change that fact"),
    );
    Problem::new(Code::FactEnded, detail)
}

async fn respond_to_edit(state: &AppState, outcome: FactEditOutcome) -> Result<HttpResponse, Problem> {
    match outcome {
        FactEditOutcome::NotFound => Err(Problem::not_found("fact")),
        FactEditOutcome::VersionMismatch { stored } => Err(etag::version_mismatch_error(stored)),
        FactEditOutcome::Unsaid => Err(unsaid_error()),
        FactEditOutcome::Ended { by: replacement } => Err(ended_error(replacement)),
        FactEditOutcome::Done(fact) => {
            // The index would follow by itself a little later. Relaying now lets a designer's next search find the
            // updated fact.
            if let Err(error) = jobs::relay_outbox(&state.services).await {
                tracing::warn!(%error, "the index is updated later");
            }
            Ok(HttpResponse::Ok()
                .insert_header((header::ETAG, etag::etag_of(fact.version)))
                .json(FactView::from(*fact)))
        }
    }
}
