//! Model calls, tokens and cost: of the tenant per day, task and model with the use of its budgets (`GET /v1/usage`), of
//! its worlds, and of the NPCs of a world.

use actix_web::{HttpResponse, get, web};
use chrono::{DateTime, Days, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Path, QueryParams},
    pagination::{self, Items},
};
use colloquy_core::ids::{NpcId, WorldId};
use colloquy_dialogue::models::{BudgetLine, ModelRouter};
use colloquy_ports::{
    Page,
    ledger::usage::{Budgeted, OwnerUsageRow, UsageRow},
};

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
    /// Prompt tokens of replies that the NPC's previous prompt in the dialogue shares: a cache can serve these.
    unchanged_tokens: u64,
    completion_tokens: u64,
    /// Cost by `llm.prices`, in its currency; null if the model has no price.
    cost: Option<f64>,
}

/// The use of a budget.
#[derive(Debug, Serialize, ToSchema)]
pub struct BudgetView {
    budget: Budgeted,
    /// Use of today (UTC), or the stored amount. Dialogues and turns are counted only up to their limits, and not at all
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
    /// All six budgets.
    budgets: Vec<BudgetView>,
}

impl BudgetView {
    fn from_line(line: BudgetLine, tomorrow: DateTime<Utc>) -> Self {
        let is_spent = line.limit.is_some_and(|limit| line.used >= limit);
        Self {
            budget: line.budget,
            used: line.used,
            limit: line.limit,
            warning: match (is_spent, line.warned) {
                (true, _) => Some(BudgetWarning::Spent),
                (false, true) => Some(BudgetWarning::Near),
                (false, false) => None,
            },
            resets_at: line.budget.is_daily().then_some(tomorrow),
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
            unchanged_tokens: row.unchanged_tokens,
            completion_tokens: row.completion_tokens,
        }
    }
}

/// The sums of one task and model.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskUsageView {
    /// A model task, or `embedding`.
    task: String,
    model: String,
    calls: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    /// Prompt tokens of replies that the NPC's previous prompt in the dialogue shares: a cache can serve these.
    unchanged_tokens: u64,
    completion_tokens: u64,
    /// Cost by `llm.prices`, in its currency; null if the model has no price.
    cost: Option<f64>,
}

/// The usage of a world's dialogues.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorldUsageView {
    world_id: String,
    /// Cost of all tasks by `llm.prices`; null if a model has no price.
    cost: Option<f64>,
    tasks: Vec<TaskUsageView>,
}

/// The usage of an NPC's dialogues.
#[derive(Debug, Serialize, ToSchema)]
pub struct NpcUsageView {
    npc_id: String,
    /// Cost of all tasks by `llm.prices`; null if a model has no price.
    cost: Option<f64>,
    tasks: Vec<TaskUsageView>,
}

/// Returns the rows of each owner, in the order of the rows, with their cost.
fn group_by_owner(rows: Vec<OwnerUsageRow>, models: &ModelRouter) -> Vec<(String, Option<f64>, Vec<TaskUsageView>)> {
    let mut groups: Vec<(String, Option<f64>, Vec<TaskUsageView>)> = Vec::new();
    for row in rows {
        let cost = models.cost_of(&row.model, row.prompt_tokens, row.cached_tokens, row.completion_tokens);
        let task = TaskUsageView {
            task: row.task,
            model: row.model,
            calls: row.calls,
            prompt_tokens: row.prompt_tokens,
            cached_tokens: row.cached_tokens,
            unchanged_tokens: row.unchanged_tokens,
            completion_tokens: row.completion_tokens,
            cost,
        };
        match groups.last_mut().filter(|(owner, ..)| *owner == row.owner) {
            Some((_, sum, tasks)) => {
                *sum = sum.zip(cost).map(|(sum, cost)| sum + cost);
                tasks.push(task);
            }
            None => groups.push((row.owner, cost, vec![task])),
        }
    }
    groups
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
    let (from, to) = parse_span(&state, query.0.from, query.0.to)?;
    let usage = &state.services.ledger.usage;
    let rows = usage.list_usage_between(&caller.scope, from, to).await?;
    let models = &state.services.models;
    let budgets = models.budgets();
    let lines = budgets.budget_lines(&state.services.ledger, &caller.scope).await?;
    let lines = lines.into_iter();
    let tomorrow = budgets.next_day_start();
    Ok(HttpResponse::Ok().json(UsageReport {
        items: rows.into_iter().map(|row| UsageView::from_row(row, models)).collect(),
        next: None,
        budgets: lines.map(|line| BudgetView::from_line(line, tomorrow)).collect(),
    }))
}

/// Returns the first and the last day of a request.
fn parse_span(
    state: &AppState,
    from: Option<NaiveDate>,
    to: Option<NaiveDate>,
) -> Result<(NaiveDate, NaiveDate), Problem> {
    let to = to.unwrap_or_else(|| state.services.clock.now().date_naive());
    let month_before = || to.checked_sub_days(Days::new(30)).unwrap_or(to);
    let from = from.unwrap_or_else(month_before);
    let span = to.signed_duration_since(from).num_days();
    if !(0..=MAX_DAYS).contains(&span) {
        let detail = format!("must be at most {MAX_DAYS} days before `to`, and not after it");
        return Err(Problem::invalid_field("from", detail));
    }
    Ok((from, to))
}

/// Reports the usage of each world's dialogues, by task and model.
///
/// Calls outside of dialogues, such as the embedding of authored content, belong to no world. `GET /v1/usage` has them.
#[utoipa::path(
    tag = "operation",
    params(UsageQuery),
    responses((status = 200, body = Items<WorldUsageView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/usage/worlds")]
pub async fn get_usage_of_worlds(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    query: QueryParams<UsageQuery>,
) -> Result<HttpResponse, Problem> {
    let (from, to) = parse_span(&state, query.0.from, query.0.to)?;
    let usage = &state.services.ledger.usage;
    let rows = usage.sum_usage_of_worlds(&caller.scope, from, to).await?;
    let groups = group_by_owner(rows, &state.services.models).into_iter();
    let views = groups.map(|(world_id, cost, tasks)| WorldUsageView { world_id, cost, tasks });
    Ok(HttpResponse::Ok().json(Items::only_page(views)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NpcUsageQuery {
    /// First day; default 30 days before `to`.
    from: Option<NaiveDate>,
    /// Last day; default today (UTC).
    to: Option<NaiveDate>,
    /// NPCs, 1–200; default 50.
    limit: Option<u32>,
    /// `next` of the previous page.
    after: Option<String>,
}

/// Reports the usage of each NPC's dialogues in a world, by task and model.
///
/// In a conversation of several NPCs, a reply counts for its speaker, and a job after a turn for the speaker of the turn.
#[utoipa::path(
    tag = "operation",
    params(("world" = String, Path), NpcUsageQuery),
    responses((status = 200, body = Items<NpcUsageView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/usage")]
pub async fn get_usage_of_npcs(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<NpcUsageQuery>,
) -> Result<HttpResponse, Problem> {
    let (from, to) = parse_span(&state, query.0.from, query.0.to)?;
    let page = pagination::parse_page::<NpcId>(query.0.limit, query.0.after)?;
    let usage = &state.services.ledger.usage;
    let cursor = page.after.as_deref();
    let rows = usage
        .sum_usage_of_npcs(&caller.scope, &path.0, (from, to), cursor, page.limit + 1)
        .await?;
    let mut groups = group_by_owner(rows, &state.services.models);
    let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let has_more = groups.len() > limit;
    groups.truncate(limit);
    let next_owner = groups.last().filter(|_| has_more).map(|(npc, ..)| npc.clone());
    let views = groups
        .into_iter()
        .map(|(npc_id, cost, tasks)| NpcUsageView { npc_id, cost, tasks });
    let items = views.collect();
    Ok(HttpResponse::Ok().json(Items::from(Page {
        items,
        next: next_owner,
    })))
}
