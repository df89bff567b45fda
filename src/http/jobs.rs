//! `/v1/jobs`: the jobs after turns, mainly to list and retry failed jobs.

use actix_web::{HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    AppState,
    errors::{Code, Problem},
    extract::{Author, Authorized, NoOptions, OptionalBody, Path, QueryParams},
    pagination::{self, Items},
    run_uncancelled,
};
use colloquy_core::ids::{DialogueId, JobId, TurnId};
use colloquy_ports::ledger::{
    audit::Edit,
    jobs::{JobKind, JobRetry, JobRow, JobStatus},
};

/// A job.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobView {
    #[schema(value_type = String)]
    id: JobId,
    kind: JobKind,
    #[schema(value_type = String)]
    dialogue_id: DialogueId,
    #[schema(value_type = String)]
    turn_id: TurnId,
    status: JobStatus,
    attempts: u32,
    last_error: Option<String>,
    created_at: DateTime<Utc>,
}

impl From<JobRow> for JobView {
    fn from(job: JobRow) -> Self {
        Self {
            id: job.id,
            kind: job.kind,
            dialogue_id: job.dialogue,
            turn_id: job.turn,
            status: job.status,
            attempts: job.attempts,
            last_error: job.last_error,
            created_at: job.created_at,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobsQuery {
    #[param(inline)]
    status: Option<JobStatus>,
    /// 1–200; default 50.
    limit: Option<u32>,
    /// `next` of the previous page.
    after: Option<String>,
}

/// Lists the jobs after turns, newest first.
#[utoipa::path(
    tag = "operation",
    params(JobsQuery),
    responses((status = 200, body = Items<JobView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/jobs")]
pub async fn list_jobs(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    query: QueryParams<JobsQuery>,
) -> Result<HttpResponse, Problem> {
    let page = pagination::parse_page::<JobId>(&state, query.0.limit, query.0.after)?;
    let store = &state.services.ledger.jobs;
    let found = store.list_jobs(&caller.scope, query.0.status, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from_page(found, JobView::from)))
}

/// Retries a job that was given up.
///
/// The job starts again as if it had never been tried. The body may be omitted.
#[utoipa::path(
    tag = "operation",
    params(("job" = String, Path)),
    request_body = NoOptions,
    responses((status = 200, body = JobView), (status = 409, description = "The job is pending or done")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/jobs/{job}:retry")]
pub async fn retry_job(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<JobId>,
    _: OptionalBody<NoOptions>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let services = &state.services;
        let edit = Edit::made_by(
            &caller.principal,
            &services.ids,
            services.clock.now(),
            "job.retry",
            path.0,
        );
        match services
            .ledger
            .jobs
            .retry_dead_job(&caller.scope, path.0, &edit)
            .await?
        {
            JobRetry::Done(job) => Ok(HttpResponse::Ok().json(JobView::from(job))),
            JobRetry::NotDead(status) => {
                let status = match status {
                    JobStatus::Pending => "pending",
                    JobStatus::Done => "done",
                    JobStatus::Dead => "dead",
                };
                let detail = format!("the job is {status}; only one that was given up is tried again");
                Err(Problem::new(Code::JobNotDead, detail))
            }
            JobRetry::NotFound => Err(Problem::not_found("job")),
        }
    })
    .await
}
