//! `GET /v1/usage`: model calls and tokens per day, task and model.

use actix_web::{HttpResponse, get, web};
use chrono::{Days, NaiveDate};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Caller, Query},
    pagination::Items,
};
use crate::ports::ledger::usage::UsageRow;

/// Longest span of one request, in days.
const MAX_DAYS: i64 = 366;

/// Sums of one day.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageView {
    day: NaiveDate,
    /// A model task, or `embedding`.
    task: String,
    model: String,
    calls: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
}

impl From<UsageRow> for UsageView {
    fn from(row: UsageRow) -> Self {
        Self {
            day: row.day,
            task: row.task,
            model: row.model,
            calls: row.calls,
            prompt_tokens: row.prompt_tokens,
            cached_tokens: row.cached_tokens,
            completion_tokens: row.completion_tokens,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// First day; default 30 days before `to`.
    from: Option<NaiveDate>,
    /// Last day; default today (UTC).
    to: Option<NaiveDate>,
}

/// What the tenant used.
#[utoipa::path(
    tag = "operation",
    params(UsageQuery),
    responses((status = 200, body = Items<UsageView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/usage")]
pub async fn get_usage(
    state: web::Data<AppState>,
    caller: Caller<Author>,
    query: Query<UsageQuery>,
) -> Result<HttpResponse, Problem> {
    let to = query.0.to.unwrap_or_else(|| state.services.clock.now().date_naive());
    let from = query
        .0
        .from
        .unwrap_or_else(|| to.checked_sub_days(Days::new(30)).unwrap_or(to));
    let span = to.signed_duration_since(from).num_days();
    if !(0..=MAX_DAYS).contains(&span) {
        return Err(Problem::field(
            "from",
            format!("must be at most {MAX_DAYS} days before `to`, and not after it"),
        ));
    }
    let rows = state.services.ledger.usage.between(&caller.scope, from, to).await?;
    Ok(HttpResponse::Ok().json(Items {
        items: rows.into_iter().map(UsageView::from).collect(),
        next: None,
    }))
}
