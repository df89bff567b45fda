//! The share of one player in the budgets of its tenant. A single player cannot use up what is meant for all.
//!
//! The calls of a player's sessions count for the share, and so do the jobs after its turns. Jobs of admitted turns are
//! never refused for the share.

use std::{sync::Arc, time::Duration};

use super::{
    Budgets, DAILY_BUDGETS, TURN_BUDGETS,
    settings::{BudgetSettings, as_f64, whole_limit},
};
use colloquy_core::{
    ids::{PlayerId, TenantId},
    scope::TenantScope,
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        Ledger,
        priority::with_deferred_priority,
        usage::{Budgeted, OverBudget, TenantBudget},
    },
};

/// The least share of stored rows, so that a small budget leaves a player a session worth the name.
const MIN_PLAYER_ROWS: f64 = 10.0;
/// How long the usage of a player by all nodes counts as known. Meanwhile this node adds its own calls and turns.
const PLAYER_MAX_AGE: Duration = Duration::from_mins(1);

/// How old the last reading of a player's usage is.
enum PlayerReading {
    /// The usage was not read today.
    Unknown,
    Recent,
    Old,
}

impl BudgetSettings {
    /// Returns the limit for each player of a tenant with the budget `own_budget`; `None` if unlimited.
    pub(super) fn player_limit_for(&self, own_budget: Option<&TenantBudget>, budget: Budgeted) -> Option<f64> {
        let limit = self.limit_for(own_budget, budget).filter(|_| self.player_share < 1.0)?;
        let share = limit * self.player_share;
        match budget {
            Budgeted::TokensPerDay | Budgeted::CostPerDay => Some(share),
            Budgeted::Dialogues | Budgeted::Turns => Some(share.floor().max(MIN_PLAYER_ROWS)),
            // A player writes no worlds.
            Budgeted::Worlds | Budgeted::AuthoredBytes => None,
        }
    }
}

impl Budgets {
    /// True if the calls of single players are counted: a daily budget limits the share of a player.
    pub(in crate::models) fn counts_players(&self, tenant: &TenantId) -> bool {
        let limit = |budget| self.player_limit(tenant, budget);
        DAILY_BUDGETS.into_iter().any(|budget| limit(budget).is_some())
    }

    /// Checks that a player may make NPCs go on or stop: it has a part of its share left, as the ledger knows it.
    ///
    /// # Errors
    /// [`OverBudget`] of the player.
    pub async fn check_share_of(
        self: &Arc<Self>,
        ledger: &Ledger,
        scope: &TenantScope,
        player: &PlayerId,
    ) -> Result<(), OverBudget> {
        self.refresh_player(ledger, scope, player).await;
        self.check_player_share(scope.tenant(), player, &TURN_BUDGETS)
    }

    /// Checks that a player has a part of its share left of each of these budgets, as known to this node.
    ///
    /// # Errors
    /// [`OverBudget`] of the player.
    pub(super) fn check_player_share(
        &self,
        tenant: &TenantId,
        player: &PlayerId,
        budgets: &[Budgeted],
    ) -> Result<(), OverBudget> {
        let today = self.clock.now().date_naive();
        let exhausted = {
            let mut accounts = self.accounts.lock();
            let account = accounts.accounts_on_day(today).get(tenant);
            account.and_then(|account| {
                let share = account.players.get(player)?;
                budgets.iter().copied().find(|budget| {
                    let limit = self.settings.player_limit_for(account.own_budget.as_ref(), *budget);
                    limit.is_some_and(|limit| share.used_amount(*budget) >= limit)
                })
            })
        };
        exhausted.map_or(Ok(()), |budget| Err(self.over_share_error(budget)))
    }

    /// Counts one more stored turn of a player. Returns the player if its turns are limited.
    ///
    /// # Errors
    /// [`OverBudget`] of the player.
    pub(super) fn reserve_player_turn(
        &self,
        tenant: &TenantId,
        player: &PlayerId,
    ) -> Result<Option<PlayerId>, OverBudget> {
        let Some(limit) = self.player_limit(tenant, Budgeted::Turns) else {
            return Ok(None);
        };
        let mut accounts = self.accounts.lock();
        let account = accounts.by_tenant.entry(tenant.clone()).or_default();
        let share = account.players.entry(player.clone()).or_default();
        if as_f64(share.turns) >= limit {
            drop(accounts);
            return Err(self.over_share_error(Budgeted::Turns));
        }
        share.turns += 1;
        share.begun_turns += 1;
        Ok(Some(player.clone()))
    }

    /// Takes back the count of a turn that was not stored.
    pub(super) fn release_player_turn(&self, tenant: &TenantId, player: &PlayerId) {
        let mut accounts = self.accounts.lock();
        let account = accounts.by_tenant.get_mut(tenant);
        if let Some(share) = account.and_then(|account| account.players.get_mut(player)) {
            share.turns = share.turns.saturating_sub(1);
            share.begun_turns = share.begun_turns.saturating_sub(1);
        }
    }

    /// Reads the usage of a player by all nodes, if a share is limited and the last reading is old. Only the first reading
    /// of a day is awaited. Until a later one has come, the last known usage counts, with the calls of this node since.
    pub(super) async fn refresh_player(self: &Arc<Self>, ledger: &Ledger, scope: &TenantScope, player: &PlayerId) {
        let tenant = scope.tenant();
        if self.player_limit(tenant, Budgeted::Turns).is_none() && !self.counts_players(tenant) {
            return;
        }
        match self.begin_player_reading(tenant, player) {
            PlayerReading::Recent => {}
            PlayerReading::Unknown => self.read_player(ledger, scope, player).await,
            PlayerReading::Old => {
                let budgets = Arc::clone(self);
                let ledger = ledger.clone();
                let scope = scope.clone();
                let player = player.clone();
                let reading = async move { budgets.read_player(&ledger, &scope, &player).await };
                tokio::spawn(with_deferred_priority(reading));
            }
        }
    }

    /// Returns how old the last reading is. An old one is marked as recent, so that a single turn repeats it.
    fn begin_player_reading(&self, tenant: &TenantId, player: &PlayerId) -> PlayerReading {
        let now = self.clock.monotonic_now();
        let today = self.clock.now().date_naive();
        let mut accounts = self.accounts.lock();
        let account = accounts.accounts_on_day(today).get_mut(tenant);
        let share = account.and_then(|account| account.players.get_mut(player));
        match share.and_then(|share| share.read_at.as_mut()) {
            None => PlayerReading::Unknown,
            Some(read_at) if now.saturating_duration_since(*read_at) < PLAYER_MAX_AGE => PlayerReading::Recent,
            Some(read_at) => {
                *read_at = now;
                PlayerReading::Old
            }
        }
    }

    async fn read_player(&self, ledger: &Ledger, scope: &TenantScope, player: &PlayerId) {
        let tenant = scope.tenant();
        if let Err(error) = self.try_read_player(ledger, scope, player).await {
            tracing::warn!(%tenant, %error, "the usage of a player could not be read");
        }
    }

    /// Reads today's usage of a player, and counts its turns up to the limit. Amounts of a day never decrease, because
    /// recent calls of this node may be missing in the ledger. For the same reason, turns that begin meanwhile are added
    /// to the count.
    async fn try_read_player(&self, ledger: &Ledger, scope: &TenantScope, player: &PlayerId) -> StoreResult<()> {
        let tenant = scope.tenant();
        let today = self.clock.now().date_naive();
        let begun_before = self.begun_turns(tenant, player);
        let rows = ledger.usage.list_player_usage(scope, player, today).await?;
        let (tokens, cost) = rows
            .iter()
            .map(|row| self.amounts_of(row))
            .fold((0.0, 0.0), |sum, row| {
                let (tokens, cost): (f64, f64) = sum;
                (tokens + row.0, cost + row.1)
            });
        let counted = match self.player_limit(tenant, Budgeted::Turns) {
            Some(limit) => Some(ledger.usage.count_turns_of(scope, player, whole_limit(limit)).await?),
            None => None,
        };
        let read_at = Some(self.clock.monotonic_now());
        self.update_accounts(tenant, |accounts| {
            let account = accounts.accounts_on_day(today).entry(tenant.clone()).or_default();
            let share = account.players.entry(player.clone()).or_default();
            share.tokens = share.tokens.max(tokens);
            share.cost = share.cost.max(cost);
            let begun_since = share.begun_turns.saturating_sub(begun_before);
            share.turns = counted.map_or(share.turns, |counted| counted + begun_since);
            share.read_at = read_at;
        });
        Ok(())
    }

    /// Returns how many turns of a player this node has begun.
    fn begun_turns(&self, tenant: &TenantId, player: &PlayerId) -> u64 {
        let accounts = self.accounts.lock();
        let account = accounts.by_tenant.get(tenant);
        let share = account.and_then(|account| account.players.get(player));
        share.map_or(0, |share| share.begun_turns)
    }

    /// Checks that a player may store one more session.
    ///
    /// # Errors
    /// [`OverBudget`] of the player. A failed count is no error.
    pub(super) async fn check_dialogues_of_player(
        &self,
        ledger: &Ledger,
        scope: &TenantScope,
        player: &PlayerId,
    ) -> Result<(), OverBudget> {
        let Some(limit) = self.player_limit(scope.tenant(), Budgeted::Dialogues) else {
            return Ok(());
        };
        let max_sessions = whole_limit(limit);
        match ledger.usage.count_sessions_of(scope, player, max_sessions).await {
            Ok(sessions) if sessions >= max_sessions => Err(self.over_share_error(Budgeted::Dialogues)),
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "the sessions of a player could not be counted");
                Ok(())
            }
        }
    }

    fn player_limit(&self, tenant: &TenantId, budget: Budgeted) -> Option<f64> {
        let accounts = self.accounts.lock();
        let own_budget = accounts
            .by_tenant
            .get(tenant)
            .and_then(|account| account.own_budget.as_ref());
        self.settings.player_limit_for(own_budget, budget)
    }

    fn over_share_error(&self, budget: Budgeted) -> OverBudget {
        self.meters.record_over_budget(budget);
        OverBudget {
            owner: "player",
            budget,
            retry_after: self.retry_after(budget),
        }
    }
}
