//! The limits of a tenant's curation in a day.

use chrono::{NaiveTime, TimeDelta};

use crate::{Services, jobs::JobError, models::tallied_usage};
use colloquy_core::scope::TenantScope;
use colloquy_ports::{StoreResult, llm::Task};

/// The tenant's calls and tokens of curation today, before the job.
pub(crate) struct CurationBudget {
    calls: u64,
    tokens: u64,
}

impl CurationBudget {
    /// Reads the usage as far as it is written; zero without a limit.
    pub(crate) async fn load(services: &Services, scope: &TenantScope) -> StoreResult<Self> {
        let settings = &services.settings.curation;
        if settings.calls_per_day == 0 && settings.tokens_per_day == 0 {
            return Ok(Self { calls: 0, tokens: 0 });
        }
        let today = services.clock.now().date_naive();
        let used = services.ledger.usage.list_usage_between(scope, today, today).await?;
        let of_curation = used.iter().filter(|row| row.task == Task::Curation.as_str());
        let (calls, tokens) = of_curation.fold((0, 0), |(calls, tokens), row| {
            (calls + row.calls, tokens + row.prompt_tokens + row.completion_tokens)
        });
        Ok(Self { calls, tokens })
    }

    /// Compares the tenant's curation of today, with the calls of this job, with its limits.
    ///
    /// # Errors
    /// [`JobError::OverCurationBudget`] with the time until the next day (UTC).
    pub(crate) fn check(&self, services: &Services) -> Result<(), JobError> {
        let settings = &services.settings.curation;
        let of_job = tallied_usage().into_iter().fold((0, 0), |(calls, tokens), tallied| {
            let usage = tallied.usage;
            let more = u64::from(usage.prompt_tokens) + u64::from(usage.completion_tokens);
            (calls + u64::from(tallied.calls), tokens + more)
        });
        let (calls, tokens) = (self.calls + of_job.0, self.tokens + of_job.1);
        let is_over = |used: u64, limit: u64| limit > 0 && used >= limit;
        if is_over(calls, settings.calls_per_day) || is_over(tokens, settings.tokens_per_day) {
            let now = services.clock.now();
            let tomorrow = (now.date_naive() + TimeDelta::days(1))
                .and_time(NaiveTime::MIN)
                .and_utc();
            let retry_after = (tomorrow - now).to_std().unwrap_or_default();
            return Err(JobError::OverCurationBudget { retry_after });
        }
        Ok(())
    }
}
