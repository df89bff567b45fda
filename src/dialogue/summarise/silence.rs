//! Summaries and curation passes after a silence: the curator looks for dialogues in which nothing was said for a while,
//! or that have ended.
//!
//! Turns, cuts and rewinds mark their dialogue in the ledger, so a look needs no actor of the dialogue. A look takes the
//! mark away, or moves the mark to the last turn. Of several nodes, only one can do that to a mark, and queues the job.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{
    jobs::{load_input, unqueued_job},
    settings::DialogueSettings,
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::summary::{self, SummaryRules};
use colloquy_ports::{
    StoreResult,
    clock::IdSource,
    ledger::{
        Ledger,
        curator::{SilenceCheck, SilenceOutcome, SilentHead},
        jobs::JobKind,
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
    pub has_more: bool,
}

/// Returns the last mark that a look checks. Without summaries after a silence, only the ends of dialogues are looked for,
/// which have the earliest mark: the settings of a dialogue may have passes, whatever the configuration has.
#[must_use]
pub fn last_mark_to_check(rules: &SummaryRules, now: DateTime<Utc>) -> DateTime<Utc> {
    rules.after_silence.map_or(DateTime::UNIX_EPOCH, |after| now - after)
}

/// Queues the summaries and curation passes that a silence, or the end of a dialogue, has made due. `settings` are those of
/// the configuration; whether a dialogue has passes is read from the settings of its tiers.
///
/// # Errors
/// The store's. Dialogues without a check stay marked for the next look.
pub async fn queue_jobs_after_silence(
    ledger: &Ledger,
    ids: &IdSource,
    settings: &DialogueSettings,
    scope: &TenantScope,
    now: DateTime<Utc>,
) -> StoreResult<SilenceReport> {
    let until = last_mark_to_check(&settings.summaries.rules(), now);
    let checks = ledger.curator.list_silence_checks(scope, until, MAX_CHECKS).await?;
    let is_full = checks.len() == MAX_CHECKS as usize;
    let mut report = SilenceReport::default();
    for check in checks {
        let outcome = check_silence(ledger, ids, settings, scope, &check, now).await?;
        if !ledger.curator.settle_silence_check(scope, &check, outcome).await? {
            continue;
        }
        // Marks that could not be settled are the same in the next look.
        report.has_more = is_full;
        if let SilenceOutcome::Queue { summary, pass } = outcome {
            report.queued += usize::from(summary.is_some()) + usize::from(pass.is_some());
        }
    }
    Ok(report)
}

async fn check_silence(
    ledger: &Ledger,
    ids: &IdSource,
    settings: &DialogueSettings,
    scope: &TenantScope,
    check: &SilenceCheck,
    now: DateTime<Utc>,
) -> StoreResult<SilenceOutcome> {
    let Some(head) = &check.head else {
        return Ok(SilenceOutcome::Nothing);
    };
    let silence = if check.is_closed {
        Duration::MAX
    } else {
        (now - head.committed_at).to_std().unwrap_or_default()
    };
    // No tier sets the rules after a silence.
    let rules = settings.summaries.rules();
    if rules.after_silence.is_some_and(|after| silence < after) {
        return Ok(SilenceOutcome::CheckFrom(head.committed_at));
    }
    let unsummarised = head.number.saturating_sub(check.summarised_through);
    let summarise = check.is_read_again && summary::is_due_after_silence(&rules, unsummarised, silence);
    let unread = head.number.saturating_sub(check.curated_through);
    // A few turns of a session that has ended are shown to the next pass of the same player and NPCs.
    let curate = unread >= settings.curation.min_turns.max(1)
        && has_passes(ledger, ids, settings, scope, check, head, now).await?;
    if summarise || curate {
        Ok(SilenceOutcome::Queue {
            summary: summarise.then(|| ids.next_id()),
            pass: curate.then(|| ids.next_id()),
        })
    } else {
        Ok(SilenceOutcome::Nothing)
    }
}

/// True if the settings of the dialogue's tiers have curation passes, as the job of a pass reads them.
async fn has_passes(
    ledger: &Ledger,
    ids: &IdSource,
    settings: &DialogueSettings,
    scope: &TenantScope,
    check: &SilenceCheck,
    head: &SilentHead,
    now: DateTime<Utc>,
) -> StoreResult<bool> {
    let kind = JobKind::Curate;
    let job = unqueued_job(ids, kind, check.dialogue, head.turn, head.text_version, now);
    let input = load_input(ledger, scope, &job).await?;
    let tuned = input.and_then(|(job_input, _)| settings.tuned_by(&job_input.world.settings));
    Ok(tuned.as_ref().unwrap_or(settings).curation.is_on())
}
