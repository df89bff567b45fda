//! `GET /v1/usage`: model calls, tokens and cost per day, task and model, and the use of the tenant's budgets.

use actix_web::{HttpResponse, get, web};
use chrono::{DateTime, Days, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, QueryParams},
};
use colloquy_dialogue::models::{BudgetLine, ModelRouter};
use colloquy_ports::ledger::usage::{Budgeted, UsageRow};

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
    /// Cost by `llm.prices`, in its currency; null if the model has no price.
    cost: Option<f64>,
}

/// The use of a budget.
#[derive(Debug, Serialize, ToSchema)]
pub struct BudgetView {
    budget: Budgeted,
    /// Use of today (UTC), or the stored amount. A stored amount is counted only up to its limit, and not at all
    /// without a limit.
    used: f64,
    /// Null: no limit.
    limit: Option<f64>,
    /// `near`: most of the budget is used. `spent`: requests that need the budget are refused with 429
    /// (`budget_spent`).
    warning: Option<BudgetWarning>,
    /// When a daily budget starts again.
    resets_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetWarning {
    Near,
    Spent,
}

/// A tenant's usage and budgets.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageReport {
    /// Sums, by day, task and model.
    items: Vec<UsageView>,
    /// Always null: the list has only one page.
    next: Option<String>,
    /// All four budgets.
    budgets: Vec<BudgetView>,
}

impl BudgetView {
    fn from_line(line: BudgetLine, tomorrow: DateTime<Utc>) -> Self {
        let is_spent = line.limit.is_some_and(|limit| line.used >= limit);
        Self {
            budget: line.of,
            used: line.used,
            limit: line.limit,
            warning: match (is_spent, line.warned) {
                (true, _) => Some(BudgetWarning::Spent),
                (false, true) => Some(BudgetWarning::Near),
                (false, false) => None,
            },
            resets_at: line.of.is_daily().then_some(tomorrow),
        }
    }
}

impl UsageView {
    fn from_row(row: UsageRow, models: &ModelRouter) -> Self {
        Self {
            cost: models.cost_of(&row.model, row.prompt_tokens, row.cached_tokens, row.completion_tokens),
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

/// Reports the tenant's usage, and the use of its budgets.
#[utoipa::path(
    tag = "operation",
    params(UsageQuery),
    responses((status = 200, body = UsageReport)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/usage")]
pub async fn get_usage(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    query: QueryParams<UsageQuery>,
) -> Result<HttpResponse, Problem> {
    let to = query.0.to.unwrap_or_else(|| state.services.clock.now().date_naive());
    let month_before = || to.checked_sub_days(Days::new(30)).unwrap_or(to);
    let from = query.0.from.unwrap_or_else(month_before);
    let span = to.signed_duration_since(from).num_days();
    if !(0..=MAX_DAYS).contains(&span) {
        let why = format!("must be at most {MAX_DAYS} days before `to`, and not after it");
        return Err(Problem::invalid_field("from", why));
    }
    let usage = &state.services.ledger.usage;
    let rows = usage.list_usage_between(&caller.scope, from, to).await?;
    let models = &state.services.models;
    let budgets = models.budgets();
    let lines = budgets.budget_lines(&state.services.ledger, &caller.scope).await?;
    let (lines, tomorrow) = (lines.into_iter(), budgets.next_day_start());
    Ok(HttpResponse::Ok().json(UsageReport {
        items: rows.into_iter().map(|row| UsageView::from_row(row, models)).collect(),
        next: None,
        budgets: lines.map(|line| BudgetView::from_line(line, tomorrow)).collect(),
    }))
}
