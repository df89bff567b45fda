//! What follows from an attempt: the next attempt, the end of the message, or the end of the webhook.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::settings::WebhookSettings;
use colloquy_ports::{
    ledger::webhooks::{AfterAttempt, DisabledReason, DueMessage, Webhook},
    webhook_sender::{SendError, WebhookAnswer},
};

/// The longest time that a receiver may ask for with `Retry-After`.
const LONGEST_RETRY_AFTER: Duration = Duration::from_hours(24);
const GONE: u16 = 410;

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub delivered: bool,
    pub status: Option<u16>,
    /// Why the attempt failed, for the tenant's administrator; empty after a success.
    pub detail: String,
    pub after: AfterAttempt,
    pub disable: Option<DisabledReason>,
}

/// Decides what follows from an attempt. `random` is in [0, 1).
pub(crate) fn judge_attempt(
    settings: &WebhookSettings,
    webhook: &Webhook,
    message: &DueMessage,
    answered: &Result<WebhookAnswer, SendError>,
    now: DateTime<Utc>,
    random: f64,
) -> Verdict {
    let status = answered.as_ref().ok().map(|answer| answer.status);
    let detail = match answered {
        Ok(answer) if is_success(answer.status) => {
            return Verdict {
                delivered: true,
                status,
                detail: String::new(),
                after: AfterAttempt::Delivered,
                disable: None,
            };
        }
        Ok(answer) if (300..400).contains(&answer.status) => "redirects are not followed".to_owned(),
        Ok(answer) => format!("answered {}", answer.status),
        Err(error) => error.to_string(),
    };
    let retry_after = answered.as_ref().ok().and_then(|answer| answer.retry_after.as_deref());
    let retry_after = retry_after
        .and_then(|text| parse_retry_after(text, now))
        .unwrap_or_default();
    let disable = if status == Some(GONE) {
        Some(DisabledReason::Gone)
    } else if fails_too_long(settings, webhook, now) {
        Some(DisabledReason::Failing)
    } else {
        None
    };
    let after = match next_delay(settings, message.attempts, random) {
        Some(delay) => AfterAttempt::RetryAt(now + delay.max(retry_after)),
        // The messages of a disabled webhook wait for a person.
        None if disable.is_some() => AfterAttempt::RetryAt(now),
        None => AfterAttempt::GiveUp,
    };
    Verdict {
        delivered: false,
        status,
        detail,
        after,
        disable,
    }
}

const fn is_success(status: u16) -> bool {
    matches!(status, 200..=299)
}

/// Returns the delay after the next failure, if a further attempt follows. A fifth more or less, so that messages that
/// failed together are not sent together.
fn next_delay(settings: &WebhookSettings, failed: u32, random: f64) -> Option<Duration> {
    let delay = settings.retry_delays_ms.get(failed as usize)?;
    Some(Duration::from_millis(*delay).mul_f64(0.8 + 0.4 * random))
}

fn fails_too_long(settings: &WebhookSettings, webhook: &Webhook, now: DateTime<Utc>) -> bool {
    let longest = TimeDelta::hours(i64::from(settings.disable_after_h));
    !longest.is_zero() && webhook.failing_since.is_some_and(|since| now - since >= longest)
}

/// Parses `Retry-After`: seconds, or a date.
fn parse_retry_after(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    let text = text.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => (DateTime::parse_from_rfc2822(text).ok()?.to_utc() - now)
            .to_std()
            .ok()?,
    };
    Some(wait.min(LONGEST_RETRY_AFTER))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use colloquy_core::ids::{MessageId, WebhookId};
    use colloquy_ports::ledger::webhooks::{SignatureKind, SigningKey, SigningKeys, WebhookEventType};

    use super::*;

    fn webhook(failing_since: Option<DateTime<Utc>>) -> Webhook {
        Webhook {
            id: WebhookId::from_u128(1),
            url: "https://game.example/hook".to_owned(),
            description: String::new(),
            types: BTreeSet::new(),
            worlds: BTreeSet::new(),
            include_text: false,
            signature: SignatureKind::Hmac,
            keys: SigningKeys {
                current: SigningKey::new("whsec_".to_owned()),
                previous: Vec::new(),
            },
            disabled: None,
            disabled_at: None,
            failing_since,
            version: 1,
            created_at: now(),
            updated_at: now(),
        }
    }

    fn message(attempts: u32) -> DueMessage {
        DueMessage {
            seq: 1,
            id: MessageId::from_u128(1),
            webhook: WebhookId::from_u128(1),
            event: WebhookEventType::TurnCommitted,
            occurred_at: now(),
            world: None,
            dialogue: None,
            object: String::new(),
            data: serde_json::Map::new(),
            attempts,
        }
    }

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn judge(status: u16, retry_after: Option<&str>, attempts: u32, since: Option<DateTime<Utc>>) -> Verdict {
        let answer = WebhookAnswer {
            status,
            retry_after: retry_after.map(str::to_owned),
        };
        let settings = WebhookSettings::for_tests();
        judge_attempt(&settings, &webhook(since), &message(attempts), &Ok(answer), now(), 0.5)
    }

    #[test]
    fn attempt_ends_with_any_2xx() {
        let verdict = judge(204, None, 1, Some(now()));
        assert!(verdict.delivered && verdict.detail.is_empty());
        assert_eq!(verdict.after, AfterAttempt::Delivered);
        assert_eq!(verdict.disable, None);
    }

    #[test]
    fn failures_are_retried_with_the_delays_of_the_settings() {
        let retry_at = |seconds| AfterAttempt::RetryAt(now() + Duration::from_secs(seconds));
        assert_eq!(judge(500, None, 0, None).after, retry_at(1));
        assert_eq!(judge(302, None, 1, None).after, retry_at(60));
        assert_eq!(judge(500, None, 2, None).after, AfterAttempt::GiveUp);
        assert_eq!(judge(503, Some("30"), 0, None).after, retry_at(30));
        // Not earlier than the settings say, and not later than in a day.
        assert_eq!(judge(503, Some("30"), 1, None).after, retry_at(60));
        assert_eq!(judge(503, Some("9999999"), 0, None).after, retry_at(24 * 3600));
        let date = (now() + Duration::from_secs(40)).to_rfc2822();
        assert_eq!(judge(429, Some(&date), 0, None).after, retry_at(40));
    }

    #[test]
    fn jitter_is_a_fifth() {
        let settings = WebhookSettings::for_tests();
        assert_eq!(next_delay(&settings, 1, 0.0), Some(Duration::from_secs(48)));
        assert!(next_delay(&settings, 1, 0.999).unwrap() < Duration::from_secs(72));
    }

    #[test]
    fn webhook_that_is_gone_or_fails_for_days_is_disabled() {
        assert_eq!(judge(410, None, 0, None).disable, Some(DisabledReason::Gone));
        let since = |hours| Some(now() - TimeDelta::hours(hours));
        assert_eq!(judge(500, None, 0, since(119)).disable, None);
        let last = judge(500, None, 2, since(120));
        assert_eq!(last.disable, Some(DisabledReason::Failing));
        assert_eq!(last.after, AfterAttempt::RetryAt(now()), "the message waits");
    }
}
