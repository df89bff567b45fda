//! Webhooks of a tenant: `/v1/webhooks`, for its administrators.

mod views;

use std::collections::BTreeSet;

use actix_web::{HttpRequest, HttpResponse, delete, get, patch, post, web};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use self::views::{
    AttemptView, ReplayBody, ReplayView, TestView, WebhookBody, WebhookPatchBody, WebhookView, WebhookWithKeyView,
};
use super::{
    AppState,
    errors::{Code, Problem},
    etag::{self, IfMatch},
    extract::{Administrator, Authorized, Body, NoOptions, OptionalBody, Path, QueryParams},
    idempotency::{self, IdempotentResponse},
    pagination::{Items, PageQuery},
    uncancelled::run_uncancelled,
};
use colloquy_core::{
    ids::{AttemptId, WebhookId},
    scope::{Principal, TenantScope},
};
use colloquy_ports::ledger::{
    audit::Edit,
    webhooks::{DisabledReason, SigningKeys, Webhook, WebhookChange, WebhookEditOutcome, WebhookEventType},
};
use colloquy_webhooks::keys;

/// How long the old key signs beside the new key after a rotation: a receiver has a day to take the new key.
const ROTATION_OVERLAP: TimeDelta = TimeDelta::days(1);

/// Adds the retraction of each type.
fn with_retractions(mut types: BTreeSet<WebhookEventType>) -> BTreeSet<WebhookEventType> {
    let retractions: Vec<_> = types.iter().filter_map(|event_type| event_type.retraction()).collect();
    types.extend(retractions);
    types
}

async fn check_url(state: &AppState, url: &str) -> Result<(), Problem> {
    let checked = state.webhooks.addresses.check_new_url(url).await;
    checked.map_err(|refusal| Problem::invalid_field("url", refusal.to_string()))
}

fn check_enabled(state: &AppState) -> Result<(), Problem> {
    if state.webhooks.settings.enabled {
        return Ok(());
    }
    let detail = "the operator has turned webhooks off (webhooks.enabled)";
    Err(Problem::new(Code::NotSupported, detail))
}

/// Creates a webhook. The answer has the secret.
///
/// From now on, each event of the chosen types is sent to the URL: signed, at least once, and in order within a
/// dialogue. A tenant has at most 20 webhooks, unless the operator permits more.
#[utoipa::path(
    tag = "webhooks",
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the same webhook")),
    request_body = WebhookBody,
    responses((status = 201, body = WebhookWithKeyView), (status = 409, description = "The tenant has the maximum number of webhooks (`too_many_webhooks`), or the same request is being handled"), (status = 501, description = "The operator has turned webhooks off")),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[post("/v1/webhooks")]
pub async fn create_webhook(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    request: HttpRequest,
    body: Body<WebhookBody>,
) -> Result<HttpResponse, Problem> {
    check_enabled(&state)?;
    let Body { value: body, raw } = body;
    check_url(&state, &body.url).await?;
    let work = {
        let state = state.clone();
        let principal = caller.principal.clone();
        async move { insert_webhook(&state, &principal, body).await }
    };
    let replay = |stored_response| repeat_answer(state.clone(), caller.scope.clone(), stored_response);
    idempotency::run_once_with_replay(&state, &caller.principal, &request, &raw, work, replay).await
}

/// What is stored of the answer to a creation: no secret.
#[derive(Serialize, Deserialize)]
struct CreatedWebhook {
    id: WebhookId,
}

/// Completes the stored answer with the webhook as it is now.
async fn repeat_answer(
    state: web::Data<AppState>,
    scope: TenantScope,
    stored_response: IdempotentResponse,
) -> Result<IdempotentResponse, Problem> {
    let created: CreatedWebhook =
        serde_json::from_str(stored_response.body()).map_err(|error| Problem::internal_error(&error))?;
    let webhook = find_webhook(&state, &scope, created.id).await?;
    stored_response.with_body(&WebhookWithKeyView::new(webhook, state.services.clock.now()))
}

async fn insert_webhook(
    state: &AppState,
    principal: &Principal,
    body: WebhookBody,
) -> Result<IdempotentResponse, Problem> {
    let services = &state.services;
    let id: WebhookId = services.ids.next_id();
    let now = services.clock.now();
    let disabled = (body.enabled == Some(false)).then_some(DisabledReason::ByHand);
    let webhook = Webhook {
        id,
        url: body.url,
        description: body.description,
        types: with_retractions(body.types),
        worlds: body.world_ids,
        include_text: body.include_text,
        signature: body.signature,
        keys: SigningKeys {
            current: keys::new_key(body.signature, rand::random()),
            previous: Vec::new(),
        },
        disabled,
        disabled_at: disabled.map(|_| now),
        failing_since: None,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    let edit = Edit::made_by(principal, &services.ids, now, "webhook.create", id);
    let max = state.webhooks.settings.max_per_tenant;
    let store = &services.ledger.webhooks;
    if !store.create_webhook(&principal.scope(), &webhook, max, &edit).await? {
        let detail = format!("a tenant may have {max} webhooks; delete one that nobody needs");
        return Err(Problem::new(Code::TooManyWebhooks, detail));
    }
    IdempotentResponse::created(&WebhookWithKeyView::new(webhook, now), format!("/v1/webhooks/{id}"))?
        .with_stored_body(&CreatedWebhook { id })
}

/// Lists the webhooks of the tenant.
#[utoipa::path(
    tag = "webhooks",
    params(PageQuery),
    responses((status = 200, body = Items<WebhookView>)),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[get("/v1/webhooks")]
pub async fn list_webhooks(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<WebhookId>()?;
    let page_of_webhooks = state
        .services
        .ledger
        .webhooks
        .list_webhooks(&caller.scope, &page)
        .await?;
    let now = state.services.clock.now();
    Ok(HttpResponse::Ok().json(Items::from_page(page_of_webhooks, |webhook| {
        WebhookView::new(webhook, now)
    })))
}

/// Returns a webhook.
#[utoipa::path(
    tag = "webhooks",
    params(("webhook" = String, Path)),
    responses((status = 200, body = WebhookView), (status = 304, description = "If-None-Match names this version")),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[get("/v1/webhooks/{webhook}")]
pub async fn get_webhook(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    path: Path<WebhookId>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let webhook = find_webhook(&state, &caller.scope, path.0).await?;
    let version = webhook.version;
    let view = WebhookView::new(webhook, state.services.clock.now());
    Ok(etag::respond_found(&request, version, &view))
}

/// Changes, disables or enables a webhook.
///
/// While a webhook is disabled, no messages are written for it. Messages that waited are sent when it is enabled.
#[utoipa::path(
    tag = "webhooks",
    params(("webhook" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *")),
    request_body = WebhookPatchBody,
    responses((status = 200, body = WebhookView), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[patch("/v1/webhooks/{webhook}")]
pub async fn edit_webhook(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    path: Path<WebhookId>,
    request: HttpRequest,
    body: Body<WebhookPatchBody>,
) -> Result<HttpResponse, Problem> {
    let if_match = IfMatch::from_request(&request)?;
    let body = body.value;
    if let Some(url) = &body.url {
        check_url(&state, url).await?;
    }
    let action = match body.enabled {
        Some(true) => "webhook.enable",
        Some(false) => "webhook.disable",
        None => "webhook.edit",
    };
    let change = WebhookChange {
        url: body.url,
        description: body.description,
        types: body.types.map(with_retractions),
        worlds: body.world_ids,
        include_text: body.include_text,
        enabled: body.enabled,
        rotation: None,
    };
    run_uncancelled(async move {
        let webhook = apply_change(&state, &caller, path.0, &change, if_match, action).await?;
        Ok(respond_changed(&state, webhook, WebhookView::new))
    })
    .await
}

/// Deletes a webhook, with its messages and attempts.
#[utoipa::path(
    tag = "webhooks",
    params(("webhook" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag of what is to be deleted, or *")),
    responses((status = 204), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[delete("/v1/webhooks/{webhook}")]
pub async fn delete_webhook(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    path: Path<WebhookId>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let if_match = IfMatch::from_request(&request)?;
    let id = path.0;
    run_uncancelled(async move {
        let edit = caller.new_edit(&state, "webhook.delete", id);
        let store = &state.services.ledger.webhooks;
        let version = if_match.expected_version();
        let outcome = store.delete_webhook(&caller.scope, id, version, &edit).await?;
        etag::respond_deleted(outcome, "webhook")
    })
    .await
}

/// Makes a new key. The answer has the new secret.
///
/// For a day, messages have a signature of each key, so that the backend can change to the new key meanwhile.
#[utoipa::path(
    tag = "webhooks",
    params(("webhook" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *")),
    responses((status = 200, body = WebhookWithKeyView), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[post("/v1/webhooks/{webhook}:rotate")]
pub async fn rotate_webhook_key(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    path: Path<WebhookId>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let if_match = IfMatch::from_request(&request)?;
    let id = path.0;
    run_uncancelled(async move {
        let stored = find_webhook(&state, &caller.scope, id).await?;
        let now = state.services.clock.now();
        let change = WebhookChange {
            rotation: Some((keys::new_key(stored.signature, rand::random()), now + ROTATION_OVERLAP)),
            ..WebhookChange::default()
        };
        let webhook = apply_change(&state, &caller, id, &change, if_match, "webhook.rotate").await?;
        Ok(respond_changed(&state, webhook, WebhookWithKeyView::new))
    })
    .await
}

/// Lists attempts to deliver messages, newest first.
#[utoipa::path(
    tag = "webhooks",
    params(("webhook" = String, Path), PageQuery),
    responses((status = 200, body = Items<AttemptView>)),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[get("/v1/webhooks/{webhook}/attempts")]
pub async fn list_attempts(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    path: Path<WebhookId>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<AttemptId>()?;
    find_webhook(&state, &caller.scope, path.0).await?;
    let store = &state.services.ledger.webhooks;
    let attempts = store.list_attempts(&caller.scope, path.0, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from_page(attempts, AttemptView::from)))
}

/// Sends stored messages again, in their old order.
///
/// Messages keep their ids, so a backend that has handled a message ignores its repetition.
#[utoipa::path(
    tag = "webhooks",
    params(("webhook" = String, Path)),
    request_body = ReplayBody,
    responses((status = 200, body = ReplayView)),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[post("/v1/webhooks/{webhook}:replay")]
pub async fn replay_webhook(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    path: Path<WebhookId>,
    body: Body<ReplayBody>,
) -> Result<HttpResponse, Problem> {
    let id = path.0;
    let replay = body.value.selection().ok_or_else(|| {
        let detail = "name a message, or the first of several messages, or a time: one of the three";
        Problem::invalid_field("message_id", detail)
    })?;
    run_uncancelled(async move {
        let edit = caller.new_edit(&state, "webhook.replay", id);
        let store = &state.services.ledger.webhooks;
        let replayed = store
            .replay_messages(&caller.scope, id, &replay, edit.made_at, &edit)
            .await?;
        let messages = replayed.ok_or_else(|| Problem::not_found("webhook or message"))?;
        Ok(HttpResponse::Ok().json(ReplayView { messages }))
    })
    .await
}

/// Sends a test message (`webhook.test`). Its attempts are in the list of attempts.
#[utoipa::path(
    tag = "webhooks",
    params(("webhook" = String, Path)),
    request_body = NoOptions,
    responses((status = 202, body = TestView), (status = 409, description = "The webhook is disabled (`webhook_disabled`)")),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[post("/v1/webhooks/{webhook}:test")]
pub async fn test_webhook(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    path: Path<WebhookId>,
    _: OptionalBody<NoOptions>,
) -> Result<HttpResponse, Problem> {
    let id = path.0;
    run_uncancelled(async move {
        find_webhook(&state, &caller.scope, id).await?;
        let edit = caller.new_edit(&state, "webhook.test", id);
        let store = &state.services.ledger.webhooks;
        let queued = store.queue_test_message(&caller.scope, id, &edit).await?;
        let disabled = || Problem::new(Code::WebhookDisabled, "the webhook is disabled; enable it first");
        let message_id = queued.ok_or_else(disabled)?;
        Ok(HttpResponse::Accepted().json(TestView { message_id }))
    })
    .await
}

async fn find_webhook(state: &AppState, scope: &TenantScope, id: WebhookId) -> Result<Webhook, Problem> {
    let webhook = state.services.ledger.webhooks.load_webhook(scope, id).await?;
    webhook.ok_or_else(|| Problem::not_found("webhook"))
}

/// Answers with a webhook that was just changed.
fn respond_changed<V: Serialize>(
    state: &AppState,
    webhook: Webhook,
    view: impl FnOnce(Webhook, DateTime<Utc>) -> V,
) -> HttpResponse {
    let version = webhook.version;
    etag::respond_stored(false, "", version, &view(webhook, state.services.clock.now()))
}

async fn apply_change(
    state: &AppState,
    caller: &Authorized<Administrator>,
    id: WebhookId,
    change: &WebhookChange,
    if_match: IfMatch,
    action: &'static str,
) -> Result<Webhook, Problem> {
    let edit = caller.new_edit(state, action, id);
    let store = &state.services.ledger.webhooks;
    let version = if_match.expected_version();
    match store.change_webhook(&caller.scope, id, change, version, &edit).await? {
        WebhookEditOutcome::Done(webhook) => Ok(*webhook),
        WebhookEditOutcome::NotFound => Err(Problem::not_found("webhook")),
        WebhookEditOutcome::VersionMismatch { stored } => Err(etag::version_mismatch_error(stored)),
    }
}
