//! What tenants may use: tokens and money of a day (UTC), and how many dialogues and turns are stored.
//!
//! What was let in is paid for to its end ([`let_in`]): no turn breaks off between two of its calls.
//!
//! Every call and every stored turn of this node is counted here. What other nodes count, and what was counted before a
//! start, is read from the ledger now and then ([`Budgets::refresh`]). So a budget can be exceeded by what is under way, and
//! by what other nodes add between two readings.

mod settings;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use parking_lot::Mutex;

pub use self::settings::BudgetSettings;
use self::settings::{as_f64, whole};
use super::meters::ModelMeters;
use crate::{
    ids::{PlayerId, TenantId},
    memory::turn::Usage,
    ports::{
        StoreResult,
        clock::Clock,
        ledger::{
            Ledger,
            usage::{Budgeted, ModelDay, OverBudget, Stored, TenantBudget},
        },
    },
    tenancy::TenantScope,
};

/// How old a count of stored rows may be while more is stored, or refused. In between, what this node stores is added.
const COUNTED_FOR: Duration = Duration::from_mins(1);
/// Nothing that is stored goes by itself within minutes: whoever is refused need not ask again soon.
const STORED_AGAIN: Duration = Duration::from_hours(1);
/// The share of a budget of a day that jobs may use: the rest is for turns.
const OF_JOBS: f64 = 0.9;
/// One player may have this part of its tenant's dialogues, so that none shuts all others out; and so many in any case.
const PLAYERS_PART: u64 = 10;
const PLAYERS_LEAST: u64 = 10;

tokio::task_local! {
    static LET_IN: ();
}

/// Does `work`, which was let in: its calls are made even if the budget of the day is used up meanwhile.
pub async fn let_in<F: Future>(work: F) -> F::Output {
    LET_IN.scope((), work).await
}

const OF_A_DAY: [Budgeted; 2] = [Budgeted::TokensPerDay, Budgeted::CostPerDay];

/// One budget of a tenant, and how far it is used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetLine {
    pub of: Budgeted,
    pub used: f64,
    /// `None`: any amount.
    pub limit: Option<f64>,
    /// It is used up to the share that is warned at, or beyond.
    pub warned: bool,
}

/// The budgets of all tenants, as this node knows them.
pub struct Budgets {
    settings: BudgetSettings,
    meters: Arc<ModelMeters>,
    clock: Arc<dyn Clock>,
    accounts: Mutex<Accounts>,
    /// One reading of the ledger at a time, so that the last to begin is the last to end.
    reading: tokio::sync::Mutex<()>,
}

/// A place for one more stored row, given back unless it is kept.
#[must_use]
pub struct Reserved {
    budgets: Arc<Budgets>,
    tenant: TenantId,
    /// `None`: there is no limit, and nothing is counted.
    of: Option<Budgeted>,
}

impl Reserved {
    /// The row was stored.
    pub fn keep(mut self) {
        self.of = None;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(of) = self.of {
            self.budgets.change(&self.tenant, |accounts| {
                if let Some(count) = accounts
                    .of
                    .get_mut(&self.tenant)
                    .and_then(|account| account.count_of(of))
                {
                    *count = count.saturating_sub(1);
                }
            });
        }
    }
}

struct Accounts {
    day: NaiveDate,
    of: HashMap<TenantId, Account>,
}

#[derive(Default)]
struct Account {
    own: Option<TenantBudget>,
    tokens: f64,
    cost: f64,
    stored: Option<Counted>,
}

#[derive(Clone, Copy)]
struct Counted {
    stored: Stored,
    at: Instant,
    /// More was stored since, or refused.
    touched: bool,
}

impl Counted {
    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= COUNTED_FOR
    }
}

impl Account {
    /// What is stored of it; `None`: it was not counted.
    fn count_of(&mut self, of: Budgeted) -> Option<&mut u64> {
        let counted = self.stored.as_mut()?;
        counted.touched = true;
        match of {
            Budgeted::Dialogues => Some(&mut counted.stored.dialogues),
            Budgeted::Turns => Some(&mut counted.stored.turns),
            Budgeted::TokensPerDay | Budgeted::CostPerDay => None,
        }
    }
    fn used(&self, of: Budgeted) -> f64 {
        let stored = self.stored.map(|counted| counted.stored).unwrap_or_default();
        match of {
            Budgeted::TokensPerDay => self.tokens,
            Budgeted::CostPerDay => self.cost,
            Budgeted::Dialogues => as_f64(stored.dialogues),
            Budgeted::Turns => as_f64(stored.turns),
        }
    }
}

impl Accounts {
    /// Those of `day`: what was used of another is no longer counted.
    fn on(&mut self, day: NaiveDate) -> &mut HashMap<TenantId, Account> {
        if day > self.day {
            self.day = day;
            for account in self.of.values_mut() {
                (account.tokens, account.cost) = (0.0, 0.0);
            }
        }
        &mut self.of
    }
}

impl Budgets {
    /// Nothing is known yet of what is used.
    #[must_use]
    pub fn new(settings: BudgetSettings, meters: Arc<ModelMeters>, clock: Arc<dyn Clock>) -> Self {
        let day = clock.now().date_naive();
        Self {
            settings,
            meters,
            clock,
            accounts: Mutex::new(Accounts {
                day,
                of: HashMap::new(),
            }),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// A call of `tenant` used this.
    pub(super) fn spend(&self, tenant: &TenantId, day: NaiveDate, model: &str, usage: Usage) {
        let tokens = f64::from(usage.prompt_tokens) + f64::from(usage.completion_tokens);
        let cost = self.meters.cost(model, usage).unwrap_or_default();
        self.change(tenant, |accounts| {
            if day < accounts.day {
                return;
            }
            let account = accounts.on(day).entry(tenant.clone()).or_default();
            account.tokens += tokens;
            account.cost += cost;
        });
    }

    /// Whether the tenant may call models today.
    ///
    /// # Errors
    /// [`OverBudget`]: not before tomorrow (UTC).
    pub fn check_day(&self, tenant: &TenantId) -> Result<(), OverBudget> {
        self.check(tenant, &OF_A_DAY)
    }

    /// As [`Self::check_day`], for a single call: one of work that was [`let_in`] may be made.
    pub(super) fn check_call(&self, tenant: &TenantId) -> Result<(), OverBudget> {
        match LET_IN.try_with(|()| ()) {
            Ok(()) => Ok(()),
            Err(_) => self.check_day(tenant),
        }
    }

    /// Whether a job may call models: a part of the day's budget is kept for turns. Counts as no refusal.
    #[must_use]
    pub fn may_do_jobs(&self, tenant: &TenantId) -> bool {
        self.spent(tenant, &OF_A_DAY, OF_JOBS).is_none()
    }

    /// Whether a turn may begin, as far as is known without asking the ledger.
    ///
    /// # Errors
    /// As for [`Self::turn`].
    pub fn check_turn(&self, tenant: &TenantId) -> Result<(), OverBudget> {
        self.check(tenant, &[Budgeted::TokensPerDay, Budgeted::CostPerDay, Budgeted::Turns])
    }

    /// A place for one more turn: models may be called, and it may be stored.
    ///
    /// # Errors
    /// [`OverBudget`]: one of the two may not. That the ledger could not count is no reason: it is counted later.
    pub async fn turn(self: &Arc<Self>, ledger: &Ledger, scope: &TenantScope) -> Result<Reserved, OverBudget> {
        self.check_day(scope.tenant())?;
        self.reserve(ledger, scope, Budgeted::Turns).await
    }

    /// A place for one more dialogue. `player`: whose session it is.
    ///
    /// # Errors
    /// [`OverBudget`]: the tenant may store no more, or the player has its part of them.
    pub async fn dialogue(
        self: &Arc<Self>,
        ledger: &Ledger,
        scope: &TenantScope,
        player: Option<&PlayerId>,
    ) -> Result<Reserved, OverBudget> {
        let place = self.reserve(ledger, scope, Budgeted::Dialogues).await?;
        if let (Some(player), Some(limit)) = (player, self.limit(scope.tenant(), Budgeted::Dialogues)) {
            let most = (whole(limit) / PLAYERS_PART).max(PLAYERS_LEAST);
            match ledger.usage.sessions_of(scope, player, most).await {
                Ok(has) if has >= most => {
                    self.meters.over_budget(Budgeted::Dialogues);
                    return Err(OverBudget {
                        whose: "player",
                        of: Budgeted::Dialogues,
                        retry_after: STORED_AGAIN,
                    });
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "the sessions of a player could not be counted"),
            }
        }
        Ok(place)
    }

    #[cfg(test)]
    fn set_own(&self, tenant: &TenantId, own: Option<TenantBudget>) {
        self.accounts.lock().of.entry(tenant.clone()).or_default().own = own;
    }

    /// Reads from the ledger what is known there: budgets of tenants, and what all nodes used today.
    ///
    /// # Errors
    /// The ledger could not answer.
    pub async fn refresh(&self, ledger: &Ledger) -> StoreResult<()> {
        let _one = self.reading.lock().await;
        let own: HashMap<_, _> = ledger.tenants.with_budgets().await?.into_iter().collect();
        {
            let mut accounts = self.accounts.lock();
            for (tenant, account) in &mut accounts.of {
                let now = own.get(tenant).copied();
                if account.own != now {
                    // Another limit may want to be counted up to.
                    (account.own, account.stored) = (now, None);
                }
            }
            for (tenant, own) in &own {
                accounts.of.entry(tenant.clone()).or_default().own = Some(*own);
            }
        }
        if self.limits_days(own.values()) {
            let today = self.clock.now().date_naive();
            let rows = ledger.usage.of_day(today).await?;
            self.keep_day(today, rows);
        }
        Ok(())
    }

    /// Counts anew what is stored of tenants that were counted a while ago and stored more since.
    pub async fn count_again(&self, ledger: &Ledger) {
        for scope in self.to_count_again() {
            if let Err(error) = self.count(ledger, &scope).await {
                tracing::warn!(tenant = %scope.tenant(), %error, "what is stored of a tenant could not be counted");
            }
        }
    }

    /// The budgets of a tenant, with what is used of them. What is stored is counted up to its limit, and at most once a minute.
    ///
    /// # Errors
    /// The ledger could not answer.
    pub async fn lines(&self, ledger: &Ledger, scope: &TenantScope) -> StoreResult<Vec<BudgetLine>> {
        let today = self.clock.now().date_naive();
        let rows = ledger.usage.between(scope, today, today).await?;
        let rows = rows.into_iter().map(|row| ModelDay {
            tenant: scope.tenant().clone(),
            model: row.model,
            prompt_tokens: row.prompt_tokens,
            cached_tokens: row.cached_tokens,
            completion_tokens: row.completion_tokens,
        });
        self.keep_day(today, rows.collect());
        if self.is_due(scope.tenant()) {
            self.count(ledger, scope).await?;
        }
        let mut accounts = self.accounts.lock();
        let account = accounts.on(today).entry(scope.tenant().clone()).or_default();
        let line = |of| {
            let (used, limit) = (account.used(of), self.settings.limit(account.own.as_ref(), of));
            BudgetLine {
                of,
                used,
                limit,
                warned: limit.is_some_and(|limit| used >= limit * self.settings.warn_at),
            }
        };
        Ok(Budgeted::ALL.map(line).to_vec())
    }

    /// When the next day begins (UTC).
    #[must_use]
    pub fn tomorrow(&self) -> DateTime<Utc> {
        let tomorrow = self.clock.now().date_naive() + Days::new(1);
        tomorrow.and_time(NaiveTime::MIN).and_utc()
    }

    fn limit(&self, tenant: &TenantId, of: Budgeted) -> Option<f64> {
        let accounts = self.accounts.lock();
        let own = accounts.of.get(tenant).and_then(|account| account.own.as_ref());
        self.settings.limit(own, of)
    }

    /// The first of these budgets of which the tenant has used this share.
    fn spent(&self, tenant: &TenantId, all: &[Budgeted], share: f64) -> Option<Budgeted> {
        let today = self.clock.now().date_naive();
        let mut accounts = self.accounts.lock();
        let account = accounts.on(today).get_mut(tenant)?;
        let spent = all.iter().copied().find(|of| {
            let limit = self.settings.limit(account.own.as_ref(), *of);
            limit.is_some_and(|limit| account.used(*of) >= limit * share)
        })?;
        if let Some(counted) = &mut account.stored {
            counted.touched = true;
        }
        Some(spent)
    }

    /// # Errors
    /// [`OverBudget`], which is counted.
    fn check(&self, tenant: &TenantId, all: &[Budgeted]) -> Result<(), OverBudget> {
        match self.spent(tenant, all, 1.0) {
            Some(of) => Err(self.refused(of)),
            None => Ok(()),
        }
    }

    fn refused(&self, of: Budgeted) -> OverBudget {
        self.meters.over_budget(of);
        OverBudget {
            whose: "tenant",
            of,
            retry_after: if of.is_of_a_day() {
                (self.tomorrow() - self.clock.now()).to_std().unwrap_or_default()
            } else {
                STORED_AGAIN
            },
        }
    }

    async fn reserve(
        self: &Arc<Self>,
        ledger: &Ledger,
        scope: &TenantScope,
        of: Budgeted,
    ) -> Result<Reserved, OverBudget> {
        let tenant = scope.tenant();
        let mut place = Reserved {
            budgets: Arc::clone(self),
            tenant: tenant.clone(),
            of: None,
        };
        if self.limit(tenant, of).is_none() {
            return Ok(place);
        }
        let is_unknown = || {
            let accounts = self.accounts.lock();
            accounts.of.get(tenant).is_none_or(|account| account.stored.is_none())
        };
        if is_unknown() {
            // Once: another count would not have what was reserved since.
            let _one = self.reading.lock().await;
            if is_unknown()
                && let Err(error) = self.count(ledger, scope).await
            {
                tracing::warn!(%tenant, %error, "what is stored of a tenant could not be counted");
            }
        }
        self.change(tenant, |accounts| {
            let Some(account) = accounts.of.get_mut(tenant) else {
                return Ok(());
            };
            let limit = self.settings.limit(account.own.as_ref(), of);
            let is_over = limit.is_some_and(|limit| account.used(of) >= limit);
            match account.count_of(of) {
                Some(_) if is_over => Err(()),
                Some(count) => {
                    *count += 1;
                    place.of = Some(of);
                    Ok(())
                }
                None => Ok(()),
            }
        })
        .map_err(|()| self.refused(of))?;
        Ok(place)
    }

    /// Counts what is stored of a tenant, up to its limits and no further.
    async fn count(&self, ledger: &Ledger, scope: &TenantScope) -> StoreResult<()> {
        let own = self
            .accounts
            .lock()
            .of
            .get(scope.tenant())
            .and_then(|account| account.own);
        let most = |of| self.settings.limit(own.as_ref(), of);
        // Both limits are whole numbers, and far below 2^63.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and positive"
        )]
        let up_to = |of| most(of).map_or(0, |limit| limit as u64);
        let at_most = Stored {
            dialogues: up_to(Budgeted::Dialogues),
            turns: up_to(Budgeted::Turns),
        };
        if at_most == Stored::default() {
            return Ok(());
        }
        let stored = ledger.usage.stored(scope, at_most).await?;
        let counted = Counted {
            stored,
            at: self.clock.instant(),
            touched: false,
        };
        self.change(scope.tenant(), |accounts| {
            accounts.of.entry(scope.tenant().clone()).or_default().stored = Some(counted);
        });
        Ok(())
    }

    fn to_count_again(&self) -> Vec<TenantScope> {
        let now = self.clock.instant();
        let accounts = self.accounts.lock();
        let due = accounts.of.iter().filter(|(_, account)| {
            let counted = account.stored.filter(|counted| counted.touched);
            counted.is_some_and(|counted| counted.is_old(now))
        });
        due.map(|(tenant, _)| TenantScope::new(tenant.clone())).collect()
    }

    /// Whether it was not counted, or a while ago.
    fn is_due(&self, tenant: &TenantId) -> bool {
        let now = self.clock.instant();
        let accounts = self.accounts.lock();
        let counted = accounts.of.get(tenant).and_then(|account| account.stored);
        counted.is_none_or(|counted| counted.is_old(now))
    }

    /// Whether any tenant may use only so much of a day.
    fn limits_days<'a>(&self, own: impl Iterator<Item = &'a TenantBudget>) -> bool {
        let limits = |own| OF_A_DAY.iter().any(|of| self.settings.limit(own, *of).is_some());
        limits(None) || own.map(Some).any(limits)
    }

    /// What the ledger has of today. Some calls of this node may not be in it yet, so nothing becomes less.
    fn keep_day(&self, today: NaiveDate, rows: Vec<ModelDay>) {
        let mut sums = HashMap::<TenantId, (f64, f64)>::new();
        for row in rows {
            let (tokens, cost) = sums.entry(row.tenant).or_default();
            *tokens += as_f64(row.prompt_tokens) + as_f64(row.completion_tokens);
            let (prompt, cached, completion) = (row.prompt_tokens, row.cached_tokens, row.completion_tokens);
            *cost += self
                .meters
                .cost_of(&row.model, prompt, cached, completion)
                .unwrap_or_default();
        }
        for (tenant, (tokens, cost)) in sums {
            self.change(&tenant, |accounts| {
                if today < accounts.day {
                    return;
                }
                let account = accounts.on(today).entry(tenant.clone()).or_default();
                account.tokens = account.tokens.max(tokens);
                account.cost = account.cost.max(cost);
            });
        }
    }

    /// Changes what is counted of a tenant, and logs what has come near its limit by that.
    fn change<T>(&self, tenant: &TenantId, change: impl FnOnce(&mut Accounts) -> T) -> T {
        let mut accounts = self.accounts.lock();
        let near = |accounts: &Accounts| {
            let account = accounts.of.get(tenant);
            let own = account.and_then(|account| account.own.as_ref());
            Budgeted::ALL.map(|of| {
                let used = account.map_or(0.0, |account| account.used(of));
                match self.settings.limit(own, of) {
                    Some(limit) if used >= limit => 2,
                    Some(limit) if used >= limit * self.settings.warn_at => 1,
                    _ => 0,
                }
            })
        };
        let before = near(&accounts);
        let changed = change(&mut accounts);
        let after = near(&accounts);
        drop(accounts);
        for ((before, after), of) in before.into_iter().zip(after).zip(Budgeted::ALL) {
            let budget = of.as_str();
            match after {
                2 if before < 2 => tracing::warn!(%tenant, budget, "a tenant has used up a budget"),
                1 if before < 1 => tracing::warn!(%tenant, budget, "a tenant has used most of a budget"),
                _ => {}
            }
        }
        changed
    }
}
