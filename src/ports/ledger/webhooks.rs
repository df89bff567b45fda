//! Webhooks: addresses of a tenant's backend, and the messages that tell them of events.
//!
//! The store writes a message for each enabled webhook in the transaction of what the message tells. A dialogue's messages
//! for a webhook form a *queue*: only the oldest message of a queue is claimed, so the order is kept.

use std::{collections::BTreeSet, fmt};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::{EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;

use super::{audit::Edit, authored::DeleteOutcome};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{AttemptId, DialogueId, MessageId, NodeId, TenantId, WebhookId, WorldId},
    scope::TenantScope,
};

/// Names of the values of a type, from the derives of `strum`.
macro_rules! stored_names {
    ($($kind:ty),+) => {$(
        impl $kind {
            /// The name on the wire and in the ledger.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                self.into_str()
            }
            /// The inverse of [`Self::as_str`].
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )+};
}

stored_names!(WebhookEventType, SignatureKind, DisabledReason, MessageStatus);

/// The sort of an event.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    IntoStaticStr,
    EnumString,
    VariantArray,
)]
#[strum(const_into_str)]
pub enum WebhookEventType {
    /// A turn of a session or a line of an NPC conversation was committed, or stands again.
    #[serde(rename = "turn.committed")]
    #[strum(serialize = "turn.committed")]
    TurnCommitted,
    /// Turns were taken back. All that names them as its cause goes with them.
    #[serde(rename = "turn.taken_back")]
    #[strum(serialize = "turn.taken_back")]
    TurnTakenBack,
    /// An NPC asked the backend for an action, or the action's turn stands again.
    #[serde(rename = "action.requested")]
    #[strum(serialize = "action.requested")]
    ActionRequested,
    /// The turn that asked for an action was taken back.
    #[serde(rename = "action.undone")]
    #[strum(serialize = "action.undone")]
    ActionUndone,
    /// A change of world state was written, taken back, or stands again.
    #[serde(rename = "state.changed")]
    #[strum(serialize = "state.changed")]
    StateChanged,
    /// A curation pass made a finding.
    #[serde(rename = "finding.made")]
    #[strum(serialize = "finding.made")]
    FindingMade,
    /// A fact was contradicted, or has personal data.
    #[serde(rename = "fact.flagged")]
    #[strum(serialize = "fact.flagged")]
    FactFlagged,
    /// A budget of the tenant reached its warning (`budgets.warn_at`), or its limit.
    #[serde(rename = "budget.warning")]
    #[strum(serialize = "budget.warning")]
    BudgetWarning,
    /// A session was closed, or an NPC conversation has ended.
    #[serde(rename = "conversation.ended")]
    #[strum(serialize = "conversation.ended")]
    ConversationEnded,
    /// A test, on request.
    #[serde(rename = "webhook.test")]
    #[strum(serialize = "webhook.test")]
    Test,
}

impl WebhookEventType {
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The type that takes events of this type back. A webhook that gets this type gets the other type too.
    #[must_use]
    pub const fn retraction(self) -> Option<Self> {
        match self {
            Self::TurnCommitted => Some(Self::TurnTakenBack),
            Self::ActionRequested => Some(Self::ActionUndone),
            _ => None,
        }
    }
}

/// How messages are signed.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    ToSchema,
    IntoStaticStr,
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum SignatureKind {
    /// HMAC-SHA256 with a secret that both sides know (`v1`).
    #[default]
    Hmac,
    /// Ed25519: the server signs with a private key, and the backend verifies with the public key (`v1a`).
    Ed25519,
}

impl SignatureKind {
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// A signing key in its text form: `whsec_…` or `whsk_…`. Does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(String);

impl SigningKey {
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }
    /// The text form. Only for signatures, for the ledger, and for the answer to the request that made the key.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

/// The keys of a webhook. After a rotation, messages have a signature of each key until the old key expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningKeys {
    pub current: SigningKey,
    /// The keys before rotations with their expiries, newest first. A repeated rotation leaves the key that the backend
    /// has.
    pub previous: Vec<(SigningKey, DateTime<Utc>)>,
}

impl SigningKeys {
    /// The most old keys.
    pub const MAX_PREVIOUS: usize = 4;

    /// The keys that sign at `now`: the current key first.
    pub fn valid_at(&self, now: DateTime<Utc>) -> impl Iterator<Item = &SigningKey> {
        let previous = self.previous.iter().filter(move |(_, until)| *until > now);
        std::iter::once(&self.current).chain(previous.map(|(key, _)| key))
    }

    /// Replaces the current key, which signs until `until`. Drops expired keys, and the oldest beyond the most.
    pub fn rotate(&mut self, key: SigningKey, now: DateTime<Utc>, until: DateTime<Utc>) {
        debug_assert!(until >= now, "a replaced key does not end in the past");
        let previous = std::mem::replace(&mut self.current, key);
        self.previous.retain(|(_, until)| *until > now);
        self.previous.insert(0, (previous, until));
        self.previous.truncate(Self::MAX_PREVIOUS);
    }
}

/// The reason why a webhook gets no messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoStaticStr, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum DisabledReason {
    /// A person disabled the webhook.
    ByHand,
    /// The address answered `410 Gone`.
    Gone,
    /// All attempts failed for days (`webhooks.disable_after_h`).
    Failing,
}

/// An address that is told of events.
#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    pub id: WebhookId,
    pub url: String,
    pub description: String,
    /// The types of events; empty: all. Has the retraction of each type.
    pub types: BTreeSet<WebhookEventType>,
    /// Only events of these worlds; empty: all events of the tenant.
    pub worlds: BTreeSet<WorldId>,
    /// Messages have texts: lines, replies, arguments, values, findings and facts.
    pub include_text: bool,
    pub signature: SignatureKind,
    pub keys: SigningKeys,
    /// Why the webhook is disabled; `None`: enabled.
    pub disabled: Option<DisabledReason>,
    pub disabled_at: Option<DateTime<Utc>>,
    /// The first failure since the last success.
    pub failing_since: Option<DateTime<Utc>>,
    /// Counts edits, from 1. Ignored in a webhook passed to the store.
    pub version: u32,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A change of a webhook. `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WebhookChange {
    pub url: Option<String>,
    pub description: Option<String>,
    pub types: Option<BTreeSet<WebhookEventType>>,
    pub worlds: Option<BTreeSet<WorldId>>,
    pub include_text: Option<bool>,
    /// True enables a webhook: its waiting messages are due at once. False disables it by hand.
    pub enabled: Option<bool>,
    /// A new key, and the expiry of the present key.
    pub rotation: Option<(SigningKey, DateTime<Utc>)>,
}

/// The outcome of a conditional change.
#[derive(Debug, Clone, PartialEq)]
pub enum WebhookEditOutcome {
    /// The webhook after the change.
    Done(Box<Webhook>),
    NotFound,
    /// `if_version` differs from the stored version.
    VersionMismatch {
        stored: u32,
    },
}

/// The state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoStaticStr, EnumString)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum MessageStatus {
    /// Waits for an attempt, also behind an earlier message of its queue.
    Pending,
    Delivered,
    /// All attempts failed.
    Failed,
}

/// A claimed message.
#[derive(Debug, Clone, PartialEq)]
pub struct DueMessage {
    /// The message's place in the order of writes.
    pub seq: i64,
    pub id: MessageId,
    pub webhook: WebhookId,
    pub event: WebhookEventType,
    /// The time of the event.
    pub occurred_at: DateTime<Utc>,
    pub world: Option<WorldId>,
    pub dialogue: Option<DialogueId>,
    /// The id of the turn, the action or another object of the event.
    pub object: String,
    /// What the event says beside its world, dialogue and object: ids, keys and numbers.
    pub data: Map<String, Value>,
    /// Failed attempts so far.
    pub attempts: u32,
}

/// Claimed messages, with the webhook as it was then.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedMessages {
    pub webhook: Webhook,
    /// At most one of a queue.
    pub messages: Vec<DueMessage>,
    /// True: further messages may be due.
    pub has_more: bool,
}

/// Which messages to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageClaim {
    pub webhook: WebhookId,
    pub node: NodeId,
    pub now: DateTime<Utc>,
    /// The end of the lease. Afterwards any node may claim the messages.
    pub until: DateTime<Utc>,
    /// At most as many messages.
    pub limit: u32,
}

/// An attempt to deliver a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    pub id: AttemptId,
    pub webhook: WebhookId,
    pub message: MessageId,
    pub event: WebhookEventType,
    /// From 1.
    pub number: u32,
    pub sent_at: DateTime<Utc>,
    pub duration_ms: u64,
    pub delivered: bool,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// Why the attempt failed; empty after a success. Never the body of the answer.
    pub detail: String,
}

/// What follows from an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterAttempt {
    Delivered,
    /// The next attempt.
    RetryAt(DateTime<Utc>),
    /// There is no further attempt.
    GiveUp,
}

/// An attempt with its consequences.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRecord {
    pub attempt: Attempt,
    /// The message's [`DueMessage::seq`].
    pub seq: i64,
    pub node: NodeId,
    pub after: AfterAttempt,
    /// Disables the webhook. Its messages wait until a person enables it.
    pub disable: Option<DisabledReason>,
    /// The time of the record: the next message of the queue is due then.
    pub now: DateTime<Utc>,
}

/// Which messages are sent again, in their old order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    /// One message.
    Message(MessageId),
    /// The messages of events since a time.
    Since(DateTime<Utc>),
    /// A message, and the later ones.
    From(MessageId),
}

/// A warning about a budget.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetWarning {
    pub budget: super::usage::Budgeted,
    /// True: the limit is reached. False: the warning share is reached.
    pub spent: bool,
    pub used: f64,
    pub limit: f64,
    pub reached_at: DateTime<Utc>,
}

/// Messages of all tenants that wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WebhookBacklog {
    /// Messages that wait for enabled webhooks.
    pub messages: u64,
    /// The time of the oldest event among them.
    pub oldest: Option<DateTime<Utc>>,
}

/// Webhooks and tenants from which a node claims no further messages for now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BusyOwners {
    pub webhooks: Vec<WebhookId>,
    /// None of their webhooks is claimed from.
    pub tenants: Vec<TenantId>,
}

/// Webhooks, with their messages and attempts.
#[async_trait]
pub trait WebhookStore: Send + Sync {
    /// Adds a webhook, unless the tenant has `max_webhooks` of them: then returns `false`.
    async fn create_webhook(
        &self,
        scope: &TenantScope,
        webhook: &Webhook,
        max_webhooks: u32,
        edit: &Edit,
    ) -> StoreResult<bool>;
    async fn load_webhook(&self, scope: &TenantScope, id: WebhookId) -> StoreResult<Option<Webhook>>;
    /// Returns webhooks, by id.
    async fn list_webhooks(&self, scope: &TenantScope, page: &PageRequest) -> StoreResult<Page<Webhook>>;
    async fn change_webhook(
        &self,
        scope: &TenantScope,
        id: WebhookId,
        change: &WebhookChange,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<WebhookEditOutcome>;
    /// Deletes a webhook with its messages and attempts.
    async fn delete_webhook(
        &self,
        scope: &TenantScope,
        id: WebhookId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome>;

    /// Returns enabled webhooks of all enabled tenants with a due message, at most `limit`, except those of `busy`.
    async fn list_due_webhooks(
        &self,
        now: DateTime<Utc>,
        busy: &BusyOwners,
        limit: u32,
    ) -> StoreResult<Vec<(TenantScope, WebhookId)>>;
    /// Claims the oldest message of each due queue. `None`: the webhook is disabled or deleted.
    async fn claim_messages(&self, scope: &TenantScope, claim: &MessageClaim) -> StoreResult<Option<ClaimedMessages>>;
    /// Returns what the ledger knows of the object of a message: with texts if `include_text`. Empty if the object is
    /// no longer stored.
    async fn load_message_content(
        &self,
        scope: &TenantScope,
        message: &DueMessage,
        include_text: bool,
    ) -> StoreResult<Map<String, Value>>;
    /// Stores an attempt with its consequences. The message itself changes only if the node still has the lease.
    async fn record_attempt(&self, scope: &TenantScope, record: &AttemptRecord) -> StoreResult<()>;
    /// Makes all messages due that the node has claimed.
    async fn release_message_leases(&self, node: NodeId, now: DateTime<Utc>) -> StoreResult<()>;

    /// Returns attempts of a webhook, newest first.
    async fn list_attempts(&self, scope: &TenantScope, id: WebhookId, page: &PageRequest)
    -> StoreResult<Page<Attempt>>;
    /// Makes messages of a webhook due again, with all attempts ahead; returns their number. `None`: there is no such
    /// webhook or message.
    async fn replay_messages(
        &self,
        scope: &TenantScope,
        id: WebhookId,
        replay: &Replay,
        now: DateTime<Utc>,
        edit: &Edit,
    ) -> StoreResult<Option<u64>>;
    /// Writes a test message for an enabled webhook. `None`: there is no such webhook, or the webhook is disabled.
    async fn queue_test_message(
        &self,
        scope: &TenantScope,
        id: WebhookId,
        edit: &Edit,
    ) -> StoreResult<Option<MessageId>>;
    /// Writes messages about budgets. A budget is told once a day at each level; repetitions are no messages.
    async fn queue_budget_warnings(&self, scope: &TenantScope, warnings: &[BudgetWarning]) -> StoreResult<()>;
    /// Returns the backlog of all tenants.
    async fn load_webhook_backlog(&self) -> StoreResult<WebhookBacklog>;
}
