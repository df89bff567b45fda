//! Webhooks on the wire.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use colloquy_core::ids::{AttemptId, MessageId, WebhookId, WorldId};
use colloquy_ports::ledger::webhooks::{Attempt, DisabledReason, Replay, SignatureKind, Webhook, WebhookEventType};
use colloquy_webhooks::keys;

/// The most worlds that a webhook names.
const MAX_WORLDS: usize = 100;

/// A webhook.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookView {
    #[schema(value_type = String)]
    pub(super) id: WebhookId,
    pub(super) url: String,
    pub(super) description: String,
    /// The types of events; empty: all.
    pub(super) types: BTreeSet<WebhookEventType>,
    /// Only events of these worlds; empty: all events of the tenant.
    #[schema(value_type = Vec<String>)]
    pub(super) world_ids: BTreeSet<WorldId>,
    /// Messages have texts: lines, replies, arguments, values, findings and facts.
    pub(super) include_text: bool,
    pub(super) signature: SignatureKind,
    /// The keys that verify signatures of the kind `ed25519` (`whpk_…`): the current key, and after a rotation the keys
    /// before. Empty for `hmac`.
    pub(super) public_keys: Vec<String>,
    /// The end of the last old key after a rotation.
    pub(super) old_key_until: Option<DateTime<Utc>>,
    pub(super) enabled: bool,
    /// Why the webhook is disabled.
    pub(super) disabled_reason: Option<DisabledReason>,
    pub(super) disabled_at: Option<DateTime<Utc>>,
    /// The first failure since the last success.
    pub(super) failing_since: Option<DateTime<Utc>>,
    /// The `ETag`, as a number.
    pub(super) version: u32,
    pub(super) created_at: DateTime<Utc>,
    pub(super) updated_at: DateTime<Utc>,
}

impl WebhookView {
    pub(super) fn new(webhook: Webhook, now: DateTime<Utc>) -> Self {
        let old_key_ends = webhook.keys.previous.iter().map(|(_, until)| *until);
        Self {
            public_keys: webhook.keys.valid_at(now).filter_map(keys::public_key).collect(),
            old_key_until: old_key_ends.max().filter(|until| *until > now),
            id: webhook.id,
            url: webhook.url,
            description: webhook.description,
            types: webhook.types,
            world_ids: webhook.worlds,
            include_text: webhook.include_text,
            signature: webhook.signature,
            enabled: webhook.disabled.is_none(),
            disabled_reason: webhook.disabled,
            disabled_at: webhook.disabled_at,
            failing_since: webhook.failing_since,
            version: webhook.version,
            created_at: webhook.created_at,
            updated_at: webhook.updated_at,
        }
    }
}

/// A webhook with its new key.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookWithKeyView {
    #[serde(flatten)]
    pub(super) webhook: WebhookView,
    /// The new secret of the kind `hmac` (`whsec_…`). No other answer shows the secret. `null` for `ed25519`.
    pub(super) secret: Option<String>,
}

impl WebhookWithKeyView {
    pub(super) fn new(webhook: Webhook, now: DateTime<Utc>) -> Self {
        let is_shared = webhook.signature == SignatureKind::Hmac;
        Self {
            secret: is_shared.then(|| webhook.keys.current.expose().to_owned()),
            webhook: WebhookView::new(webhook, now),
        }
    }
}

/// A new webhook.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct WebhookBody {
    /// Begins with `https://`. The host must be public, unless the operator permits it.
    #[garde(length(min = 1, max = 2048))]
    #[schema(min_length = 1, max_length = 2048)]
    pub(super) url: String,
    /// For people.
    #[serde(default)]
    #[garde(length(chars, max = 200))]
    #[schema(max_length = 200)]
    pub(super) description: String,
    /// The types of events; empty: all. `turn.committed` brings `turn.taken_back`, and `action.requested` brings
    /// `action.undone`.
    #[serde(default)]
    pub(super) types: BTreeSet<WebhookEventType>,
    /// Only events of these worlds. Empty: all events of the tenant.
    #[serde(default)]
    #[garde(length(max = MAX_WORLDS))]
    #[schema(value_type = Vec<String>, max_items = 100)]
    pub(super) world_ids: BTreeSet<WorldId>,
    /// True: messages have texts. Default: ids, keys and numbers alone.
    #[serde(default)]
    pub(super) include_text: bool,
    /// Default `hmac`.
    #[serde(default)]
    pub(super) signature: SignatureKind,
    /// Default true.
    pub(super) enabled: Option<bool>,
}

/// Changes of a webhook; omitted fields stay unchanged.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct WebhookPatchBody {
    #[garde(inner(length(min = 1, max = 2048)))]
    #[schema(min_length = 1, max_length = 2048)]
    pub(super) url: Option<String>,
    #[garde(inner(length(chars, max = 200)))]
    #[schema(max_length = 200)]
    pub(super) description: Option<String>,
    pub(super) types: Option<BTreeSet<WebhookEventType>>,
    #[garde(inner(length(max = MAX_WORLDS)))]
    #[schema(value_type = Option<Vec<String>>, max_items = 100)]
    pub(super) world_ids: Option<BTreeSet<WorldId>>,
    pub(super) include_text: Option<bool>,
    /// True: messages that wait are sent at once. False: no messages are written from now on.
    pub(super) enabled: Option<bool>,
}

/// Which messages are sent again. One of the fields is needed.
#[derive(Debug, Default, Serialize, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayBody {
    /// A single message.
    #[schema(value_type = Option<String>)]
    pub(super) message_id: Option<MessageId>,
    /// A message and all later ones.
    #[schema(value_type = Option<String>)]
    pub(super) from_message_id: Option<MessageId>,
    /// All messages of events since this time.
    pub(super) since: Option<DateTime<Utc>>,
}

impl ReplayBody {
    pub(super) fn selection(&self) -> Option<Replay> {
        match (self.message_id, self.from_message_id, self.since) {
            (Some(id), None, None) => Some(Replay::Message(id)),
            (None, Some(id), None) => Some(Replay::From(id)),
            (None, None, Some(since)) => Some(Replay::Since(since)),
            _ => None,
        }
    }
}

/// The result of a replay.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReplayView {
    /// Messages that are sent again.
    pub(super) messages: u64,
}

/// A queued test.
#[derive(Debug, Serialize, ToSchema)]
pub struct TestView {
    #[schema(value_type = String)]
    pub(super) message_id: MessageId,
}

/// An attempt to deliver a message.
#[derive(Debug, Serialize, ToSchema)]
pub struct AttemptView {
    #[schema(value_type = String)]
    pub(super) id: AttemptId,
    /// The header `webhook-id` of the message.
    #[schema(value_type = String)]
    pub(super) message_id: MessageId,
    #[serde(rename = "type")]
    pub(super) event: WebhookEventType,
    /// Counts the attempts of the message, from 1. A replay begins anew.
    pub(super) number: u32,
    #[serde(rename = "at")]
    pub(super) attempted_at: DateTime<Utc>,
    pub(super) duration_ms: u64,
    pub(super) delivered: bool,
    /// The HTTP status, if there was an answer.
    pub(super) status: Option<u16>,
    /// Why the attempt failed.
    pub(super) detail: Option<String>,
}

impl From<Attempt> for AttemptView {
    fn from(attempt: Attempt) -> Self {
        Self {
            id: attempt.id,
            message_id: attempt.message,
            event: attempt.event,
            number: attempt.number,
            attempted_at: attempt.sent_at,
            duration_ms: attempt.duration_ms,
            delivered: attempt.delivered,
            status: attempt.status,
            detail: Some(attempt.detail).filter(|detail| !detail.is_empty()),
        }
    }
}
