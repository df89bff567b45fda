//! `GET /v1/curator`: the tenant's jobs, and the summaries that a silence will make due.

use std::time::Duration;

use actix_web::{HttpResponse, get, web};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, OperatorOnly, Path},
};
use colloquy_actors::curator::NodeCurator;
use colloquy_core::{
    ids::{DialogueId, NodeId, TenantId, TurnId},
    scope::TenantScope,
};
use colloquy_ports::ledger::{
    curator::{CuratorReport, FailedJob, JobPass, KindQueue, PassOutcome},
    jobs::JobKind,
};

/// A job that has ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct CuratorPassView {
    kind: JobKind,
    #[schema(value_type = String)]
    dialogue_id: DialogueId,
    #[schema(value_type = String)]
    turn_id: TurnId,
    outcome: PassOutcome,
    /// Failed attempts before the end.
    failed_attempts: u32,
    ended_at: DateTime<Utc>,
    /// Milliseconds from the creation of the job to its end, with all waits. For a job that a person retried, or whose
    /// turn stood again: from then on.
    took_ms: u64,
}

/// Summaries after a silence (`summaries.after_silence_s`).
#[derive(Debug, Serialize, ToSchema)]
pub struct CuratorSummariesView {
    /// Dialogues that may have been silent for long enough, and are looked at next; counted up to 1,000.
    due: u64,
    /// When the next dialogue is to be looked at, unless it goes on; a moment in the past if one is due. Null: none.
    next_due_at: Option<DateTime<Utc>>,
}

/// The curator as the answering node sees it. Other nodes may answer differently.
#[derive(Debug, Serialize, ToSchema)]
pub struct CuratorNodeView {
    #[schema(value_type = String)]
    node_id: NodeId,
    /// False: this node has no curator of the tenant in memory. One starts with the next job.
    awake: bool,
    /// Jobs in memory, running jobs included.
    held_jobs: usize,
    running_jobs: usize,
    /// True: jobs wait, because the tenant's model budget of the day is used up.
    waits_for_budget: bool,
    /// When this curator next looks for silent dialogues.
    next_look_at: Option<DateTime<Utc>>,
}

/// The work after turns of a tenant. All but `this_node` is the same on every node.
#[derive(Debug, Serialize, ToSchema)]
pub struct CuratorView {
    /// All kinds of jobs.
    queue: Vec<KindQueue>,
    /// False if the tenant has more pending jobs than the 10,000 that are counted.
    queue_complete: bool,
    /// The last ended jobs, at most 10 of each kind, newest first.
    last_passes: Vec<CuratorPassView>,
    /// The last failures, at most 20, newest first.
    failures: Vec<FailedJob>,
    summaries: CuratorSummariesView,
    this_node: CuratorNodeView,
}

impl From<JobPass> for CuratorPassView {
    fn from(pass: JobPass) -> Self {
        Self {
            kind: pass.kind,
            dialogue_id: pass.dialogue,
            turn_id: pass.turn,
            outcome: pass.outcome,
            failed_attempts: pass.failed_attempts,
            ended_at: pass.ended_at,
            // Nodes' clocks differ by a little.
            took_ms: (pass.ended_at - pass.since)
                .num_milliseconds()
                .try_into()
                .unwrap_or_default(),
        }
    }
}

impl From<NodeCurator> for CuratorNodeView {
    fn from(node: NodeCurator) -> Self {
        let state = node.curator;
        Self {
            node_id: node.node,
            awake: state.is_some(),
            held_jobs: state.map_or(0, |state| state.held_jobs),
            running_jobs: state.map_or(0, |state| state.running_jobs),
            waits_for_budget: node.waits_for_budget,
            next_look_at: state.and_then(|state| state.next_look_at),
        }
    }
}

impl CuratorView {
    /// `after_silence`: the silence that makes a summary due; `None`: no silence does.
    fn new(report: CuratorReport, after_silence: Option<Duration>, this_node: NodeCurator) -> Self {
        Self {
            queue: report.queue,
            queue_complete: report.queue_is_complete,
            last_passes: report.passes.into_iter().map(CuratorPassView::from).collect(),
            failures: report.failures,
            summaries: CuratorSummariesView {
                due: after_silence.map_or(0, |_| report.silence_checks_due),
                next_due_at: report
                    .next_silence_check
                    .zip(after_silence)
                    .map(|(silent_since, duration)| silent_since + duration),
            },
            this_node: this_node.into(),
        }
    }
}

/// Shows the work after turns: the queue, the last ended jobs, failures, and summaries after a silence.
#[utoipa::path(
    tag = "operation",
    responses((status = 200, body = CuratorView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/curator")]
pub async fn get_curator(state: web::Data<AppState>, caller: Authorized<Author>) -> Result<HttpResponse, Problem> {
    show_curator(&state, &caller.scope).await
}

/// Shows the work after turns of a tenant to the operator.
#[utoipa::path(
    tag = "operation",
    params(("tenant" = String, Path)),
    responses((status = 200, body = CuratorView)),
    extensions(("x-roles" = json!(["operator"]))),
)]
#[get("/v1/tenants/{tenant}/curator")]
pub async fn get_tenant_curator(
    state: web::Data<AppState>,
    _: Authorized<OperatorOnly>,
    path: Path<TenantId>,
) -> Result<HttpResponse, Problem> {
    let tenant = path.0;
    let stored = state.services.ledger.tenants.load_tenant(&tenant).await?;
    stored.ok_or_else(|| Problem::not_found("tenant"))?;
    show_curator(&state, &TenantScope::new(tenant)).await
}

async fn show_curator(state: &AppState, scope: &TenantScope) -> Result<HttpResponse, Problem> {
    let services = &state.services;
    let now = services.clock.now();
    let after_silence = services.settings.summaries.rules().after_silence;
    let silent_until = now - after_silence.unwrap_or_default();
    let curator = &services.ledger.curator;
    let report = curator.load_curator_report(scope, now, silent_until).await?;
    let this_node = state.sessions.describe_curator(scope).await;
    Ok(HttpResponse::Ok().json(CuratorView::new(report, after_silence, this_node)))
}
