//! `/v1/jobs`: the jobs after turns, mainly to list and retry failed jobs.

use actix_web::{HttpResponse, get, post, web};

use super::{
    AppState,
    errors::{Code, Problem},
    extract::{Author, Authorized, NoOptions, OptionalBody, Path, QueryParams},
    pagination::{Items, list_query},
    uncancelled::run_uncancelled,
};
use colloquy_core::ids::JobId;
use colloquy_ports::ledger::jobs::{JobRetry, JobRow, JobStatus};

list_query! {
    pub struct JobsQuery {
        #[param(inline)]
        status: Option<JobStatus>,
    }
}

/// Lists the jobs after turns, newest first.
#[utoipa::path(
    tag = "operation",
    params(JobsQuery),
    responses((status = 200, body = Items<JobRow>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/jobs")]
pub async fn list_jobs(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    query: QueryParams<JobsQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<JobId>()?;
    let store = &state.services.ledger.jobs;
    let jobs = store.list_jobs(&caller.scope, query.0.status, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from(jobs)))
}

/// Retries a job that was given up.
///
/// The job starts again as if it had never been tried. The body may be omitted.
#[utoipa::path(
    tag = "operation",
    params(("job" = String, Path)),
    request_body = NoOptions,
    responses((status = 200, body = JobRow), (status = 409, description = "The job is pending or done")),
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
        let edit = caller.new_edit(&state, "job.retry", path.0);
        let jobs = &state.services.ledger.jobs;
        match jobs.retry_dead_job(&caller.scope, path.0, &edit).await? {
            JobRetry::Done(job) => Ok(HttpResponse::Ok().json(job)),
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
