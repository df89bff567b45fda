//! The limits of a tenant's curation in a day, and a player's share of them.

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};

use crate::{Services, jobs::JobError, models::tallied_usage};
use colloquy_core::{ids::PlayerId, scope::TenantScope};
use colloquy_ports::{StoreResult, ledger::curation::PlayerPasses, llm::Task};

/// One player's share of the tenant's calls of a day: a tenth.
const PLAYER_SHARE: u64 = 10;

/// The tenant's calls and tokens of curation today, before the job.
pub(crate) struct CurationBudget {
    calls: u64,
    tokens: u64,
    /// The passes over sessions of the player of the job. `None`: the job reads no session.
    player: Option<PlayerPasses>,
}

impl CurationBudget {
    /// Reads the usage as far as it is written; zero without a limit.
    pub(crate) async fn load(services: &Services, scope: &TenantScope) -> StoreResult<Self> {
        let settings = &services.settings.curation;
        if settings.calls_per_day == 0 && settings.tokens_per_day == 0 {
            return Ok(Self {
                calls: 0,
                tokens: 0,
                player: None,
            });
        }
        let today = services.clock.now().date_naive();
        let used = services.ledger.usage.list_usage_between(scope, today, today).await?;
        let of_curation = used.iter().filter(|row| row.task == Task::Curation.as_str());
        let (calls, tokens) = of_curation.fold((0, 0), |(calls, tokens), row| {
            (calls + row.calls, tokens + row.prompt_tokens + row.completion_tokens)
        });
        Ok(Self {
            calls,
            tokens,
            player: None,
        })
    }

    /// Reads also what the player of a pass has used.
    pub(super) async fn load_for_pass(
        services: &Services,
        scope: &TenantScope,
        player: Option<&PlayerId>,
    ) -> StoreResult<Self> {
        let mut budget = Self::load(services, scope).await?;
        if let Some(player) = player {
            let store = &services.ledger.curation;
            budget.player = Some(store.count_player_passes(scope, player, services.clock.now()).await?);
        }
        Ok(budget)
    }

    /// Compares the passes of the player with the limit of an hour, and with the player's share of a day.
    ///
    /// # Errors
    /// As [`check`](Self::check), or the time until one more pass fits into an hour.
    pub(super) fn check_player(&self, services: &Services) -> Result<(), JobError> {
        let settings = &services.settings.curation;
        let now = services.clock.now();
        let Some(player) = self.player else { return Ok(()) };
        let max_passes = settings.player_passes_per_hour;
        if max_passes > 0 && player.last_hour >= max_passes {
            let first_at = player.first_at.unwrap_or(now);
            let retry_after = (first_at + TimeDelta::hours(1) - now).to_std().unwrap_or_default();
            return Err(JobError::OverCurationBudget { retry_after });
        }
        let share = settings.calls_per_day.div_ceil(PLAYER_SHARE);
        if share > 0 && player.answers_today >= share {
            return Err(over_budget_of_today(now));
        }
        Ok(())
    }

    /// Compares the tenant's curation of today, with the calls of this job, with its limits.
    ///
    /// # Errors
    /// [`JobError::OverCurationBudget`] with the time until the next day (UTC).
    pub(crate) fn check(&self, services: &Services) -> Result<(), JobError> {
        let settings = &services.settings.curation;
        let (job_calls, job_tokens) = tallied_usage().into_iter().fold((0, 0), |(calls, tokens), tallied| {
            let usage = tallied.usage;
            let call_tokens = u64::from(usage.prompt_tokens) + u64::from(usage.completion_tokens);
            (calls + u64::from(tallied.calls), tokens + call_tokens)
        });
        let calls = self.calls + job_calls;
        let tokens = self.tokens + job_tokens;
        let is_over = |used: u64, limit: u64| limit > 0 && used >= limit;
        if is_over(calls, settings.calls_per_day) || is_over(tokens, settings.tokens_per_day) {
            return Err(over_budget_of_today(services.clock.now()));
        }
        Ok(())
    }
}

/// Returns the error with the time until the next day (UTC).
fn over_budget_of_today(now: DateTime<Utc>) -> JobError {
    let tomorrow = (now.date_naive() + TimeDelta::days(1))
        .and_time(NaiveTime::MIN)
        .and_utc();
    let retry_after = (tomorrow - now).to_std().unwrap_or_default();
    JobError::OverCurationBudget { retry_after }
}
