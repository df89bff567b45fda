//! The curator's looks for silent dialogues.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use chrono::{DateTime, Utc};
use futures_util::FutureExt;

use super::Curator;
use crate::node::Node;
use colloquy_core::scope::TenantScope;
use colloquy_dialogue::summarise::{last_mark_to_check, queue_jobs_after_silence};
use colloquy_ports::{StoreResult, ledger::priority::in_background};

/// The longest pause between two looks of a curator.
const LONGEST_LOOK_PAUSE: Duration = Duration::from_mins(1);

/// When the curator looks again.
pub(super) enum SilenceWatch {
    At(Instant),
    Looking,
}

impl SilenceWatch {
    pub fn due_at(instant: Instant) -> Self {
        Self::At(instant)
    }

    pub fn is_looking(&self) -> bool {
        matches!(self, Self::Looking)
    }

    /// Returns the time until the next look.
    pub fn wait_from(&self, now: Instant) -> Duration {
        match self {
            Self::At(next) => next.saturating_duration_since(now),
            Self::Looking => Duration::ZERO,
        }
    }
}

/// Returns the last mark that a look checks, unless the tenant's jobs have to wait: summaries and passes call a model.
fn last_watched_mark(node: &Node, scope: &TenantScope) -> Option<DateTime<Utc>> {
    let settings = &node.ports.settings;
    let has_to_wait = node.is_disabled(scope) || node.is_over_job_budget(scope);
    (!has_to_wait).then(|| last_mark_to_check(&settings.summaries.rules(), node.ports.clock.now()))
}

/// True if a curator would find a dialogue to check.
pub(crate) async fn has_silent_dialogues(node: &Node, scope: &TenantScope) -> StoreResult<bool> {
    let Some(until) = last_watched_mark(node, scope) else {
        return Ok(false);
    };
    let checks = node.ports.ledger.curator.list_silence_checks(scope, until, 1).await?;
    Ok(!checks.is_empty())
}

impl Curator {
    /// Looks for dialogues that were silent for long enough, if a look is due. Their summaries and curation passes become jobs.
    pub(super) fn look_for_silence(&mut self, ctx: &mut Context<Self>) {
        let now = self.node.ports.clock.monotonic_now();
        if last_watched_mark(&self.node, &self.scope).is_none() {
            return;
        }
        if self.draining.is_some() || self.silence.is_looking() || !self.silence.wait_from(now).is_zero() {
            return;
        }
        self.silence = SilenceWatch::Looking;
        let node = Arc::clone(&self.node);
        let scope = self.scope.clone();
        let look = async move {
            let ports = &node.ports;
            let now = node.ports.clock.now();
            let look = queue_jobs_after_silence(&ports.ledger, &ports.ids, &ports.settings, &scope, now);
            AssertUnwindSafe(in_background(look)).catch_unwind().await
        };
        ctx.spawn(look.into_actor(self).map(move |looked, curator, ctx| {
            let now = curator.node.ports.clock.monotonic_now();
            let tenant = curator.scope.tenant();
            let after = curator.node.ports.settings.summaries.rules().after_silence;
            let mut pause = LONGEST_LOOK_PAUSE.min(after.unwrap_or(LONGEST_LOOK_PAUSE));
            match looked {
                Ok(Ok(report)) => {
                    if report.has_more {
                        pause = Duration::ZERO;
                    }
                    if report.queued > 0 {
                        tracing::debug!(%tenant, queued = report.queued, "jobs are due after a silence");
                    }
                }
                Ok(Err(error)) => tracing::warn!(%tenant, %error, "silent dialogues could not be looked for"),
                Err(_panic) => tracing::error!(%tenant, "looking for silent dialogues panicked"),
            }
            curator.silence = SilenceWatch::At(now + pause);
            curator.lease_jobs(ctx);
        }));
    }
}
