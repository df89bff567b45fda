//! Summaries and curation passes after a silence: the curator looks for dialogues in which nothing was said for a while,
//! or that have ended.
//!
//! Turns, cuts and rewinds mark their dialogue in the ledger, so a look needs no actor of the dialogue. A look takes the
//! mark away, or moves the mark to the last turn. Of several nodes, only one can do that to a mark, and queues the job.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::settings::CurationSettings;
use colloquy_core::scope::TenantScope;
use colloquy_memory::summary::{self, SummaryRules};
use colloquy_ports::{
    StoreResult,
    clock::IdSource,
    ledger::{
        Ledger,
        curator::{SilenceCheck, SilenceOutcome},
    },
};

/// Dialogues checked in one look.
const MAX_CHECKS: u32 = 32;

/// The result of a look for silent dialogues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SilenceReport {
    /// Summaries and curation passes that the look has queued.
    pub queued: usize,
    /// True if more dialogues may be due.
    pub more: bool,
}

/// Returns the last mark that a look checks. `None`: there is nothing to look for. Without summaries after a silence, only
/// the ends of dialogues are looked for, which have the earliest mark.
#[must_use]
pub fn last_mark_to_check(
    rules: &SummaryRules,
    curation: &CurationSettings,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let ends = curation.is_on().then_some(DateTime::UNIX_EPOCH);
    rules.after_silence.map(|after| now - after).or(ends)
}

/// Queues the summaries and curation passes that a silence, or the end of a dialogue, has made due.
///
/// # Errors
/// The store's. Dialogues without a check stay marked for the next look.
pub async fn queue_jobs_after_silence(
    ledger: &Ledger,
    ids: &IdSource,
    (rules, curation): (&SummaryRules, &CurationSettings),
    scope: &TenantScope,
    now: DateTime<Utc>,
) -> StoreResult<SilenceReport> {
    let Some(until) = last_mark_to_check(rules, curation, now) else {
        return Ok(SilenceReport::default());
    };
    let checks = ledger.curator.list_silence_checks(scope, until, MAX_CHECKS).await?;
    let is_full = checks.len() == MAX_CHECKS as usize;
    let mut report = SilenceReport::default();
    for check in checks {
        let outcome = check_silence((rules, curation), &check, now, ids);
        if !ledger.curator.settle_silence_check(scope, &check, outcome).await? {
            continue;
        }
        // Marks that could not be settled are the same in the next look.
        report.more = is_full;
        if let SilenceOutcome::Queue { summary, pass } = outcome {
            report.queued += usize::from(summary.is_some()) + usize::from(pass.is_some());
        }
    }
    Ok(report)
}

fn check_silence(
    (rules, curation): (&SummaryRules, &CurationSettings),
    check: &SilenceCheck,
    now: DateTime<Utc>,
    ids: &IdSource,
) -> SilenceOutcome {
    let Some(head) = &check.head else {
        return SilenceOutcome::Nothing;
    };
    let silence = if check.is_closed {
        Duration::MAX
    } else {
        (now - head.committed_at).to_std().unwrap_or_default()
    };
    if rules.after_silence.is_some_and(|after| silence < after) {
        return SilenceOutcome::CheckFrom(head.committed_at);
    }
    let unsummarised = head.number.saturating_sub(check.summarised_through);
    let summarise = check.is_read_again && summary::is_due_after_silence(rules, unsummarised, silence);
    let unread = head.number.saturating_sub(check.curated_through);
    // No later turn of an ended dialogue makes a pass due.
    let worth_a_pass = if check.is_closed { 1 } else { curation.min_turns };
    let curate = curation.is_on() && unread >= worth_a_pass;
    if summarise || curate {
        SilenceOutcome::Queue {
            summary: summarise.then(|| ids.next_id()),
            pass: curate.then(|| ids.next_id()),
        }
    } else {
        SilenceOutcome::Nothing
    }
}
