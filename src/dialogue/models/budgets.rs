//! Budgets of tenants: tokens and money per day (UTC), and numbers of stored dialogues and turns.
//!
//! Admitted work continues to its end ([`run_admitted`]): no turn stops between two of its calls.
//!
//! Each node counts its own calls and stored turns. The usage of other nodes, and the usage before a start, is read
//! from the ledger periodically ([`Budgets::refresh_from_ledger`]). A budget can therefore be exceeded by running
//! work, and by the usage of other nodes between two readings.

mod accounts;
mod player_shares;
mod settings;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use parking_lot::Mutex;

pub use self::settings::BudgetSettings;
use self::{
    accounts::{BudgetAccounts, StoredCount},
    settings::{as_f64, whole_limit},
};
use super::metrics::ModelMetrics;
use colloquy_core::{
    ids::{PlayerId, TenantId},
    scope::TenantScope,
};
use colloquy_memory::turn::Usage;
use colloquy_ports::{
    StoreResult,
    clock::Clock,
    ledger::{
        Ledger,
        usage::{AuthoredLimits, Budgeted, DailyModelUsage, OverBudget, StoredAmounts, TenantBudget},
        webhooks::BudgetWarning,
    },
};

/// The retry delay after a refusal for stored rows. Stored rows do not disappear within minutes.
const STORED_RETRY_AFTER: Duration = Duration::from_hours(1);
/// The share of a daily budget available to jobs. The rest is reserved for turns.
const JOBS_BUDGET_SHARE: f64 = 0.9;

/// Warnings in memory while the ledger is away.
const MAX_WARNINGS: usize = 10_000;

tokio::task_local! {
    static ADMITTED_WORK: ();
}

/// Runs admitted `work`. Its calls are made even if the daily budget runs out meanwhile.
pub async fn run_admitted<F: Future>(work: F) -> F::Output {
    ADMITTED_WORK.scope((), work).await
}

const DAILY_BUDGETS: [Budgeted; 2] = [Budgeted::TokensPerDay, Budgeted::CostPerDay];
const TURN_BUDGETS: [Budgeted; 3] = [Budgeted::TokensPerDay, Budgeted::CostPerDay, Budgeted::Turns];

/// One budget of a tenant, with the used amount.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetLine {
    pub budget: Budgeted,
    pub used: f64,
    /// `None`: unlimited.
    pub limit: Option<f64>,
    /// True if usage has reached the warning share.
    pub warned: bool,
}

/// The budgets of all tenants, as known to this node.
pub struct Budgets {
    settings: BudgetSettings,
    meters: Arc<ModelMetrics>,
    clock: Arc<dyn Clock>,
    accounts: Mutex<BudgetAccounts>,
    /// Serialises readings of the ledger, so that the last reading to begin is also the last to end.
    reading: tokio::sync::Mutex<()>,
    /// Warnings that webhooks are yet to be told.
    warnings: Mutex<Vec<(TenantId, BudgetWarning)>>,
}

/// A reservation for one more stored row, released on drop unless marked as stored.
#[must_use]
pub struct BudgetReservation {
    budgets: Arc<Budgets>,
    tenant: TenantId,
    /// `None`: no limit, and no count.
    budget: Option<Budgeted>,
    /// The player whose share the turn counts for.
    player: Option<PlayerId>,
}

impl BudgetReservation {
    pub fn mark_stored(mut self) {
        (self.budget, self.player) = (None, None);
    }
}

impl Drop for BudgetReservation {
    fn drop(&mut self) {
        if let Some(budget) = self.budget {
            self.budgets.update_accounts(&self.tenant, |accounts| {
                if let Some(count) = accounts
                    .by_tenant
                    .get_mut(&self.tenant)
                    .and_then(|account| account.stored_count_mut(budget))
                {
                    *count = count.saturating_sub(1);
                }
            });
        }
        if let Some(player) = &self.player {
            self.budgets.release_player_turn(&self.tenant, player);
        }
    }
}

impl Budgets {
    /// Creates budgets without any usage.
    #[must_use]
    pub fn new(settings: BudgetSettings, meters: Arc<ModelMetrics>, clock: Arc<dyn Clock>) -> Self {
        let day = clock.now().date_naive();
        Self {
            settings,
            meters,
            clock,
            accounts: Mutex::new(BudgetAccounts {
                day,
                by_tenant: HashMap::new(),
            }),
            reading: tokio::sync::Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    /// Takes the warnings since the last call. After a crash, the stored sums lead to the same warnings again.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<(TenantId, BudgetWarning)> {
        std::mem::take(&mut *self.warnings.lock())
    }

    /// Gives warnings back that could not be stored.
    pub fn return_warnings(&self, warnings: Vec<(TenantId, BudgetWarning)>) {
        let mut pending = self.warnings.lock();
        let room = MAX_WARNINGS.saturating_sub(pending.len());
        pending.extend(warnings.into_iter().take(room));
    }

    /// Records the usage of one call of `tenant`, for the share of `player` too.
    pub(super) fn record_spending(
        &self,
        tenant: &TenantId,
        player: Option<&PlayerId>,
        day: NaiveDate,
        model: &str,
        usage: Usage,
    ) {
        let tokens = f64::from(usage.prompt_tokens) + f64::from(usage.completion_tokens);
        let cost = self.meters.usage_cost(model, usage).unwrap_or_default();
        debug_assert!(cost.is_finite() && cost >= 0.0, "a call never costs less than nothing");
        self.update_accounts(tenant, |accounts| {
            if day < accounts.day {
                return;
            }
            let account = accounts.accounts_on_day(day).entry(tenant.clone()).or_default();
            account.tokens += tokens;
            account.cost += cost;
            if let Some(player) = player {
                let share = account.players.entry(player.clone()).or_default();
                share.tokens += tokens;
                share.cost += cost;
            }
        });
    }

    /// Checks whether the tenant may call models today.
    ///
    /// # Errors
    /// [`OverBudget`]: not before tomorrow (UTC).
    pub fn check_daily_budget(&self, tenant: &TenantId) -> Result<(), OverBudget> {
        self.check_budgets(tenant, &DAILY_BUDGETS)
    }

    /// Checks a single call as [`Self::check_daily_budget`] does. Calls inside [`run_admitted`] are always allowed.
    pub(super) fn check_call(&self, tenant: &TenantId) -> Result<(), OverBudget> {
        match ADMITTED_WORK.try_with(|()| ()) {
            Ok(()) => Ok(()),
            Err(_) => self.check_daily_budget(tenant),
        }
    }

    /// True if a job may call models. A part of the daily budget is reserved for turns. `false` is not counted as a
    /// refusal.
    #[must_use]
    pub fn can_run_jobs(&self, tenant: &TenantId) -> bool {
        self.first_exhausted(tenant, &DAILY_BUDGETS, JOBS_BUDGET_SHARE)
            .is_none()
    }

    /// Checks whether a turn of `player` may begin, without asking the ledger. `None`: a turn among NPCs.
    ///
    /// # Errors
    /// As for [`Self::reserve_turn`].
    pub fn check_turn(&self, tenant: &TenantId, player: Option<&PlayerId>) -> Result<(), OverBudget> {
        self.check_budgets(tenant, &TURN_BUDGETS)?;
        player.map_or(Ok(()), |player| self.check_player_share(tenant, player, &TURN_BUDGETS))
    }

    /// Reserves one more turn of `player`, which may call models and be stored. `None`: a turn among NPCs.
    ///
    /// # Errors
    /// [`OverBudget`] if model calls or storage are over the tenant's budget or the player's share. A failed count in
    /// the ledger is no error: the count is repeated later.
    pub async fn reserve_turn(
        self: &Arc<Self>,
        ledger: &Ledger,
        scope: &TenantScope,
        player: Option<&PlayerId>,
    ) -> Result<BudgetReservation, OverBudget> {
        self.check_daily_budget(scope.tenant())?;
        if let Some(player) = player {
            self.refresh_player(ledger, scope, player).await;
            self.check_player_share(scope.tenant(), player, &DAILY_BUDGETS)?;
        }
        let mut place = self.reserve_place(ledger, scope, Budgeted::Turns).await?;
        if let Some(player) = player {
            place.player = self.reserve_player_turn(scope.tenant(), player)?;
        }
        Ok(place)
    }

    /// Reserves one more dialogue. `player` is the player of a session.
    ///
    /// # Errors
    /// [`OverBudget`] if the tenant or the player has reached the limit of stored dialogues.
    pub async fn reserve_dialogue(
        self: &Arc<Self>,
        ledger: &Ledger,
        scope: &TenantScope,
        player: Option<&PlayerId>,
    ) -> Result<BudgetReservation, OverBudget> {
        let place = self.reserve_place(ledger, scope, Budgeted::Dialogues).await?;
        if let Some(player) = player {
            self.check_dialogues_of_player(ledger, scope, player).await?;
        }
        Ok(place)
    }

    #[cfg(test)]
    fn set_own(&self, tenant: &TenantId, own_budget: Option<TenantBudget>) {
        self.accounts
            .lock()
            .by_tenant
            .entry(tenant.clone())
            .or_default()
            .own_budget = own_budget;
    }

    /// Reads the budgets of tenants, and today's usage of all nodes, from the ledger.
    ///
    /// # Errors
    /// If the ledger does not answer.
    pub async fn refresh_from_ledger(&self, ledger: &Ledger) -> StoreResult<()> {
        let _reading = self.reading.lock().await;
        let own_budgets: HashMap<_, _> = ledger.tenants.list_tenant_budgets().await?.into_iter().collect();
        {
            let mut accounts = self.accounts.lock();
            for (tenant, account) in &mut accounts.by_tenant {
                let new_budget = own_budgets.get(tenant).copied();
                if account.own_budget != new_budget {
                    // With a new limit, the stored rows may have to be counted further.
                    (account.own_budget, account.stored) = (new_budget, None);
                }
            }
            for (tenant, own_budget) in &own_budgets {
                accounts.by_tenant.entry(tenant.clone()).or_default().own_budget = Some(*own_budget);
            }
        }
        if self.has_daily_limits(own_budgets.values()) {
            let today = self.clock.now().date_naive();
            let rows = ledger.usage.list_usage_of_day(today).await?;
            self.merge_daily_usage(today, rows);
        }
        Ok(())
    }

    /// Recounts the stored rows of tenants whose count is old and who added rows since.
    pub async fn recount_stored(&self, ledger: &Ledger) {
        for scope in self.tenants_to_recount() {
            if let Err(error) = self.count_stored(ledger, &scope).await {
                tracing::warn!(tenant = %scope.tenant(), %error, "what is stored of a tenant could not be counted");
            }
        }
    }

    /// Returns the budgets of a tenant with their usage. Stored rows are counted up to their limit, at most once a
    /// minute.
    ///
    /// # Errors
    /// If the ledger does not answer.
    pub async fn budget_lines(&self, ledger: &Ledger, scope: &TenantScope) -> StoreResult<Vec<BudgetLine>> {
        let today = self.clock.now().date_naive();
        let rows = ledger.usage.list_usage_between(scope, today, today).await?;
        let rows = rows.into_iter().map(|row| DailyModelUsage {
            tenant: scope.tenant().clone(),
            model: row.model,
            prompt_tokens: row.prompt_tokens,
            cached_tokens: row.cached_tokens,
            completion_tokens: row.completion_tokens,
        });
        self.merge_daily_usage(today, rows.collect());
        if self.needs_recount(scope.tenant()) {
            self.count_stored(ledger, scope).await?;
        }
        let authored = ledger.usage.load_authored_size(scope).await?;
        let mut accounts = self.accounts.lock();
        let account = accounts
            .accounts_on_day(today)
            .entry(scope.tenant().clone())
            .or_default();
        let line = |budget| {
            let used = match budget {
                Budgeted::Worlds => as_f64(authored.worlds),
                Budgeted::AuthoredBytes => as_f64(authored.bytes),
                other => account.used_amount(other),
            };
            let limit = self.settings.limit_for(account.own_budget.as_ref(), budget);
            BudgetLine {
                budget,
                used,
                limit,
                warned: limit.is_some_and(|limit| used >= limit * self.settings.warn_at),
            }
        };
        Ok(Budgeted::ALL.map(line).to_vec())
    }

    /// Returns the start of the next day (UTC).
    #[must_use]
    pub fn next_day_start(&self) -> DateTime<Utc> {
        let tomorrow = self.clock.now().date_naive() + Days::new(1);
        tomorrow.and_time(NaiveTime::MIN).and_utc()
    }

    /// Returns how far what people write of a tenant may grow. The ledger checks it.
    #[must_use]
    pub fn authored_limits(&self, tenant: &TenantId) -> AuthoredLimits {
        let limit = |budget| self.limit_for(tenant, budget).map(whole_limit);
        AuthoredLimits {
            worlds: limit(Budgeted::Worlds),
            bytes: limit(Budgeted::AuthoredBytes),
        }
    }

    fn limit_for(&self, tenant: &TenantId, budget: Budgeted) -> Option<f64> {
        let accounts = self.accounts.lock();
        let own_budget = accounts
            .by_tenant
            .get(tenant)
            .and_then(|account| account.own_budget.as_ref());
        self.settings.limit_for(own_budget, budget)
    }

    /// Returns the first of these budgets with at least this share used.
    fn first_exhausted(&self, tenant: &TenantId, budgets: &[Budgeted], share: f64) -> Option<Budgeted> {
        let today = self.clock.now().date_naive();
        let mut accounts = self.accounts.lock();
        let account = accounts.accounts_on_day(today).get_mut(tenant)?;
        let spent = budgets.iter().copied().find(|budget| {
            let limit = self.settings.limit_for(account.own_budget.as_ref(), *budget);
            limit.is_some_and(|limit| account.used_amount(*budget) >= limit * share)
        })?;
        if let Some(counted) = &mut account.stored {
            counted.touched = true;
        }
        Some(spent)
    }

    /// # Errors
    /// [`OverBudget`], which the metrics count.
    fn check_budgets(&self, tenant: &TenantId, budgets: &[Budgeted]) -> Result<(), OverBudget> {
        match self.first_exhausted(tenant, budgets, 1.0) {
            Some(budget) => Err(self.over_budget_error(budget)),
            None => Ok(()),
        }
    }

    fn over_budget_error(&self, budget: Budgeted) -> OverBudget {
        self.meters.record_over_budget(budget);
        OverBudget {
            owner: "tenant",
            budget,
            retry_after: self.retry_after(budget),
        }
    }

    /// Returns the time until a budget may have room again.
    fn retry_after(&self, budget: Budgeted) -> Duration {
        if budget.is_daily() {
            (self.next_day_start() - self.clock.now()).to_std().unwrap_or_default()
        } else {
            STORED_RETRY_AFTER
        }
    }

    async fn reserve_place(
        self: &Arc<Self>,
        ledger: &Ledger,
        scope: &TenantScope,
        budget: Budgeted,
    ) -> Result<BudgetReservation, OverBudget> {
        let tenant = scope.tenant();
        let mut place = BudgetReservation {
            budgets: Arc::clone(self),
            tenant: tenant.clone(),
            budget: None,
            player: None,
        };
        if self.limit_for(tenant, budget).is_none() {
            return Ok(place);
        }
        let is_unknown = || {
            let accounts = self.accounts.lock();
            accounts
                .by_tenant
                .get(tenant)
                .is_none_or(|account| account.stored.is_none())
        };
        if is_unknown() {
            // Counted once: a second count would miss the reservations made since the first.
            let _reading = self.reading.lock().await;
            if is_unknown()
                && let Err(error) = self.count_stored(ledger, scope).await
            {
                tracing::warn!(%tenant, %error, "what is stored of a tenant could not be counted");
            }
        }
        self.update_accounts(tenant, |accounts| {
            let Some(account) = accounts.by_tenant.get_mut(tenant) else {
                return Ok(());
            };
            let limit = self.settings.limit_for(account.own_budget.as_ref(), budget);
            let is_over = limit.is_some_and(|limit| account.used_amount(budget) >= limit);
            match account.stored_count_mut(budget) {
                Some(_) if is_over => Err(()),
                Some(count) => {
                    *count += 1;
                    place.budget = Some(budget);
                    Ok(())
                }
                None => Ok(()),
            }
        })
        .map_err(|()| self.over_budget_error(budget))?;
        Ok(place)
    }

    /// Counts the stored rows of a tenant, up to its limits.
    async fn count_stored(&self, ledger: &Ledger, scope: &TenantScope) -> StoreResult<()> {
        let own_budget = self
            .accounts
            .lock()
            .by_tenant
            .get(scope.tenant())
            .and_then(|account| account.own_budget);
        let limit_of = |budget| self.settings.limit_for(own_budget.as_ref(), budget);
        // Both limits are whole numbers far below 2^63.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and positive"
        )]
        let up_to = |budget| limit_of(budget).map_or(0, |limit| limit as u64);
        let at_most = StoredAmounts {
            dialogues: up_to(Budgeted::Dialogues),
            turns: up_to(Budgeted::Turns),
        };
        if at_most == StoredAmounts::default() {
            return Ok(());
        }
        let stored = ledger.usage.count_stored(scope, at_most).await?;
        let counted = StoredCount {
            stored,
            counted_at: self.clock.monotonic_now(),
            touched: false,
        };
        self.update_accounts(scope.tenant(), |accounts| {
            accounts.by_tenant.entry(scope.tenant().clone()).or_default().stored = Some(counted);
        });
        Ok(())
    }

    fn tenants_to_recount(&self) -> Vec<TenantScope> {
        let now = self.clock.monotonic_now();
        let accounts = self.accounts.lock();
        let due = accounts.by_tenant.iter().filter(|(_, account)| {
            let counted = account.stored.filter(|counted| counted.touched);
            counted.is_some_and(|counted| counted.is_old(now))
        });
        due.map(|(tenant, _)| TenantScope::new(tenant.clone())).collect()
    }

    /// True if the tenant has no count, or an old one.
    fn needs_recount(&self, tenant: &TenantId) -> bool {
        let now = self.clock.monotonic_now();
        let accounts = self.accounts.lock();
        let counted = accounts.by_tenant.get(tenant).and_then(|account| account.stored);
        counted.is_none_or(|counted| counted.is_old(now))
    }

    /// True if any tenant has a daily limit.
    fn has_daily_limits<'a>(&self, own_budgets: impl Iterator<Item = &'a TenantBudget>) -> bool {
        let has_limit = |own_budget| {
            DAILY_BUDGETS
                .iter()
                .any(|budget| self.settings.limit_for(own_budget, *budget).is_some())
        };
        has_limit(None) || own_budgets.map(Some).any(has_limit)
    }

    /// Merges today's usage from the ledger. Amounts never decrease, because recent calls of this node may be missing
    /// there.
    fn merge_daily_usage(&self, today: NaiveDate, rows: Vec<DailyModelUsage>) {
        let mut sums = HashMap::<TenantId, (f64, f64)>::new();
        for row in rows {
            let (tokens, cost) = self.amounts_of(&row);
            let sum = sums.entry(row.tenant).or_default();
            *sum = (sum.0 + tokens, sum.1 + cost);
        }
        for (tenant, (tokens, cost)) in sums {
            self.update_accounts(&tenant, |accounts| {
                if today < accounts.day {
                    return;
                }
                let account = accounts.accounts_on_day(today).entry(tenant.clone()).or_default();
                account.tokens = account.tokens.max(tokens);
                account.cost = account.cost.max(cost);
            });
        }
    }

    /// Returns the tokens and the cost of a row.
    fn amounts_of(&self, row: &DailyModelUsage) -> (f64, f64) {
        let prompt = row.prompt_tokens;
        let cached = row.cached_tokens;
        let completion = row.completion_tokens;
        let cost = self.meters.cost_of(&row.model, prompt, cached, completion);
        (as_f64(prompt) + as_f64(completion), cost.unwrap_or_default())
    }

    /// Changes a tenant's accounts, and logs budgets that thereby come near their limit.
    fn update_accounts<T>(&self, tenant: &TenantId, change: impl FnOnce(&mut BudgetAccounts) -> T) -> T {
        let mut accounts = self.accounts.lock();
        let levels = |accounts: &BudgetAccounts| {
            let account = accounts.by_tenant.get(tenant);
            let own_budget = account.and_then(|account| account.own_budget.as_ref());
            Budgeted::ALL.map(|budget| {
                let used = account.map_or(0.0, |account| account.used_amount(budget));
                let limit = self.settings.limit_for(own_budget, budget);
                let level = match limit {
                    Some(limit) if used >= limit => 2,
                    Some(limit) if used >= limit * self.settings.warn_at => 1,
                    _ => 0,
                };
                (level, used, limit.unwrap_or_default())
            })
        };
        let levels_before = levels(&accounts);
        let changed = change(&mut accounts);
        let levels_after = levels(&accounts);
        drop(accounts);
        let rises = levels_before.into_iter().zip(levels_after).zip(Budgeted::ALL);
        for (((before, ..), (after, used, limit)), budget) in rises {
            let name = budget.as_str();
            if after > before {
                let warning = BudgetWarning {
                    budget,
                    spent: after == 2,
                    used,
                    limit,
                    reached_at: self.clock.now(),
                };
                self.return_warnings(vec![(tenant.clone(), warning)]);
            }
            match after {
                2 if before < 2 => tracing::warn!(%tenant, budget = name, "a tenant has used up a budget"),
                1 if before < 1 => tracing::warn!(%tenant, budget = name, "a tenant has used most of a budget"),
                _ => {}
            }
        }
        changed
    }
}
