//! The events of webhooks. The transaction of what an event tells writes a message for each webhook that asks for the
//! event. A tenant without webhooks gets no row, and no trip: the insert is a part of the statement.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::super::{
    context::Connection,
    rows::{to_json, to_micros},
    statements::execute,
};
use colloquy_core::ids::{ActionId, DialogueId, MessageId, StateEventId, TenantId, TurnId, WorldId};
use colloquy_memory::{curation::Finding, turn::Turn};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::{
        actions::NewAction, dialogues::TurnCommit, rewinds::RewindCommit, state::NewStateChange,
        webhooks::WebhookEventType,
    },
};

/// Inserts messages for the rows of [`event_rows_json`], bound as `$rows`, in their order. `$when` is empty, or a further
/// condition. The tenant is `$1`. A repeated event is no second message.
macro_rules! insert_messages {
    ($rows:literal) => {
        insert_messages!($rows, "")
    };
    ($rows:literal, $when:expr) => {
        concat!(
            "INSERT INTO webhook_messages (tenant, webhook, id, type, world, dialogue, queue, object, data, at, status,
                attempts, due_at)
             SELECT $1, w.id, v.value ->> 5, v.value ->> 0, COALESCE(v.value ->> 2, d.world), v.value ->> 1,
                v.value ->> 3, v.value ->> 4, v.value ->> 6, CAST(v.value ->> 7 AS BIGINT), 'pending', 0,
                CAST(v.value ->> 7 AS BIGINT)
             FROM webhooks w",
            by_index!("webhooks_enabled"),
            " CROSS JOIN ",
            json_arrays_table!($rows),
            " v LEFT JOIN dialogues d ON d.tenant = $1 AND d.id = ",
            row_key!("v", 1),
            " WHERE w.tenant = $1 AND w.disabled IS NULL AND (w.types = '[]' OR ",
            has_text!("w.types", "(v.value ->> 0)"),
            ") AND (w.worlds = '[]' OR ",
            has_text!("w.worlds", "COALESCE(v.value ->> 2, d.world)"),
            ")",
            $when,
            " ORDER BY v.key, w.id ON CONFLICT (tenant, webhook, id) DO NOTHING"
        )
    };
}
pub(in super::super) use insert_messages;

pub(super) const INSERT_MESSAGES: &str = insert_messages!("$2");

/// The turns of an event about turns taken back.
const TURNS_PER_EVENT: usize = 200;
/// The queue of events without a dialogue and without a world.
const TENANT_QUEUE: &str = "tenant";

/// An event for webhooks.
#[derive(Clone)]
pub(in super::super) struct Event {
    kind: WebhookEventType,
    /// The events of a dialogue are delivered in order.
    dialogue: Option<DialogueId>,
    /// `None`: the world of the dialogue.
    world: Option<WorldId>,
    /// The id of the turn, the action or another object.
    object: String,
    /// Tells events about the same object apart: the id of a rewind, or empty.
    cause: String,
    /// Ids, keys and numbers. Texts are read from the ledger when the message is sent.
    data: Value,
    occurred_at: DateTime<Utc>,
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass ids and texts alike")]
impl Event {
    /// Returns an event of a dialogue, in the dialogue's world.
    pub(in super::super) fn in_dialogue(
        kind: WebhookEventType,
        dialogue: DialogueId,
        object: impl ToString,
        data: Value,
        moment: DateTime<Utc>,
    ) -> Self {
        Self {
            kind,
            dialogue: Some(dialogue),
            world: None,
            object: object.to_string(),
            cause: String::new(),
            data,
            occurred_at: moment,
        }
    }

    /// Returns an event of a world.
    pub(in super::super) fn in_world(
        kind: WebhookEventType,
        world: &WorldId,
        object: impl ToString,
        data: Value,
        moment: DateTime<Utc>,
    ) -> Self {
        Self {
            kind,
            dialogue: None,
            world: Some(world.clone()),
            object: object.to_string(),
            cause: String::new(),
            data,
            occurred_at: moment,
        }
    }

    /// Returns an event of the tenant.
    pub(super) fn in_tenant(kind: WebhookEventType, object: impl ToString, data: Value, moment: DateTime<Utc>) -> Self {
        Self {
            kind,
            dialogue: None,
            world: None,
            object: object.to_string(),
            cause: String::new(),
            data,
            occurred_at: moment,
        }
    }

    /// The same event, in a world.
    pub(in super::super) fn with_world(mut self, world: &WorldId) -> Self {
        self.world = Some(world.clone());
        self
    }

    /// The same event, apart from other events about the object.
    pub(in super::super) fn caused_by(mut self, cause: impl ToString) -> Self {
        self.cause = cause.to_string();
        self
    }

    fn queue(&self) -> String {
        match (self.dialogue, &self.world) {
            (Some(dialogue), _) => dialogue.to_string(),
            (None, Some(world)) => world.to_string(),
            (None, None) => TENANT_QUEUE.to_owned(),
        }
    }

    /// The id of the message. The id sorts by time, and is the same if the transaction runs again.
    pub(super) fn message_id(&self) -> MessageId {
        /// The random part of a ULID.
        const RANDOM_BITS: u128 = (1 << 80) - 1;
        let digest: [u8; 32] = Sha256::new()
            .chain_update(self.kind.as_str())
            .chain_update([0])
            .chain_update(&self.object)
            .chain_update([0])
            .chain_update(&self.cause)
            .finalize()
            .into();
        let mixed = (digest.iter().take(16)).fold(0_u128, |bits, byte| (bits << 8) | u128::from(*byte));
        let millis = u64::try_from(self.occurred_at.timestamp_millis()).unwrap_or_default();
        MessageId::from_u128((u128::from(millis) << 80) | (mixed & RANDOM_BITS))
    }
}

/// Returns events as a single JSON bind for [`insert_messages!`].
pub(in super::super) fn event_rows_json(events: &[Event]) -> StoreResult<String> {
    let mut rows = Vec::with_capacity(events.len());
    for event in events {
        rows.push(json!([
            event.kind.as_str(),
            event.dialogue,
            event.world,
            event.queue(),
            event.object,
            event.message_id(),
            to_json(&event.data)?,
            to_micros(event.occurred_at),
        ]));
    }
    serde_json::to_string(&rows).map_err(|error| StoreError::Rejected(error.to_string()))
}

/// Writes the messages of events, in the transaction of what they tell. Without events, nothing is sent.
pub(in super::super) async fn write_events(
    connection: &mut Connection,
    tenant: &TenantId,
    events: &[Event],
) -> StoreResult<()> {
    if events.is_empty() {
        return Ok(());
    }
    execute!(connection, INSERT_MESSAGES; tenant, event_rows_json(events)?)
        .await
        .map(drop)
}

/// Returns the events of a commit: the turn, then its actions, then its changes of state.
pub(in super::super) fn events_of_commit(commit: &TurnCommit) -> Vec<Event> {
    let turn = turn_event(&commit.turn, commit.replacing, commit.turn.committed_at);
    let actions = commit.actions.iter().map(action_event);
    std::iter::once(turn)
        .chain(actions)
        .chain(events_of_changes(&commit.state))
        .collect()
}

fn turn_event(turn: &Turn, replaces: Option<TurnId>, moment: DateTime<Utc>) -> Event {
    let data = json!({
        "turn": turn.number,
        "npc_id": turn.npc,
        "player_id": turn.player,
        "status": turn.status,
        "replaces": replaces,
        "reinstated": false,
    });
    Event::in_dialogue(WebhookEventType::TurnCommitted, turn.dialogue, turn.id, data, moment)
}

fn action_event(action: &NewAction) -> Event {
    let data = json!({
        "turn_id": action.turn,
        "turn": action.number,
        "npc_id": action.npc,
        "player_id": action.player,
        "name": action.name,
        "expires_at": action.expires_at,
        "reinstated": false,
    });
    let kind = WebhookEventType::ActionRequested;
    Event::in_dialogue(kind, action.dialogue, action.id, data, action.requested_at).with_world(&action.world)
}

/// Returns the events of new changes of state.
pub(in super::super) fn events_of_changes(changes: &[NewStateChange]) -> impl Iterator<Item = Event> {
    changes.iter().map(|new| {
        let data = json!({"cause_id": new.cause.to_columns().1, "undone": false, "reinstated": false});
        let kind = WebhookEventType::StateChanged;
        match new.dialogue {
            Some(dialogue) => Event::in_dialogue(kind, dialogue, new.id, data, new.changed_at).with_world(&new.world),
            None => Event::in_world(kind, &new.world, new.id, data, new.changed_at),
        }
    })
}

/// Returns the event of a new finding. `cause` is the last turn that its pass read.
pub(in super::super) fn finding_event(finding: &Finding, cause: TurnId) -> Event {
    let data = json!({"kind": finding.kind.as_str(), "turns": finding.turns, "turn_id": cause});
    let kind = WebhookEventType::FindingMade;
    Event::in_dialogue(kind, finding.dialogue, finding.id, data, finding.found_at).with_world(&finding.world)
}

/// Returns the event of a dialogue's end.
pub(in super::super) fn end_event(dialogue: DialogueId, reason: &'static str, moment: DateTime<Utc>) -> Event {
    let data = json!({"reason": reason});
    // A restored save may reopen a dialogue, which then may end again.
    let cause = to_micros(moment);
    Event::in_dialogue(WebhookEventType::ConversationEnded, dialogue, dialogue, data, moment).caused_by(cause)
}

/// What a rewind changes.
#[derive(Default)]
pub(in super::super) struct RewoundObjects {
    /// The removed turns with their numbers.
    pub removed: Vec<(TurnId, u32)>,
    /// The reinstated turns with their numbers.
    pub reinstated: Vec<(TurnId, u32)>,
    pub undone_actions: Vec<ActionId>,
    /// Changes of state, each with its cause.
    pub undone_changes: Vec<(StateEventId, String)>,
    pub again_actions: Vec<ActionId>,
    pub again_changes: Vec<(StateEventId, String)>,
    /// The dialogues that the rewind closed.
    pub closed: Vec<DialogueId>,
}

/// Returns the events of a rewind: retractions first, then what stands again.
pub(in super::super) fn events_of_rewind(commit: &RewindCommit, changed: RewoundObjects) -> Vec<Event> {
    let event = |kind, object: String, data| {
        Event::in_dialogue(kind, commit.dialogue, object, data, commit.rewound_at)
            .with_world(&commit.world)
            .caused_by(commit.id)
    };
    let mut events = Vec::new();
    let RewoundObjects {
        mut removed,
        mut reinstated,
        ..
    } = changed;
    removed.sort_unstable_by_key(|(_, number)| *number);
    reinstated.sort_unstable_by_key(|(_, number)| *number);
    for (part, turns) in removed.chunks(TURNS_PER_EVENT).enumerate() {
        let turns: Vec<Value> = (turns.iter())
            .map(|(turn, number)| json!({"turn_id": turn, "turn": number}))
            .collect();
        let retraction = event(
            WebhookEventType::TurnTakenBack,
            commit.id.to_string(),
            json!({ "turns": turns }),
        );
        events.push(retraction.caused_by(format!("{}/{part}", commit.id)));
    }
    let state = |(change, cause): &(StateEventId, String), undone: bool| {
        let data = json!({"cause_id": cause, "undone": undone, "reinstated": !undone});
        event(WebhookEventType::StateChanged, change.to_string(), data)
    };
    let undone = changed.undone_actions.iter();
    events.extend(undone.map(|action| event(WebhookEventType::ActionUndone, action.to_string(), json!({}))));
    events.extend(changed.undone_changes.iter().map(|change| state(change, true)));
    events.extend(reinstated.iter().map(|(turn, number)| {
        let data = json!({"turn": number, "reinstated": true});
        event(WebhookEventType::TurnCommitted, turn.to_string(), data)
    }));
    events.extend(changed.again_actions.iter().map(|action| {
        let data = json!({"reinstated": true});
        event(WebhookEventType::ActionRequested, action.to_string(), data)
    }));
    events.extend(changed.again_changes.iter().map(|change| state(change, false)));
    if let Some(replacement) = &commit.replacement {
        events.push(
            turn_event(&replacement.turn, Some(replacement.replaced_turn), commit.rewound_at).with_world(&commit.world),
        );
    }
    let closed = changed.closed.into_iter();
    events.extend(closed.map(|dialogue| end_event(dialogue, "rewound", commit.rewound_at).with_world(&commit.world)));
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use colloquy_core::ids::DialogueKind;

    fn some_event(object: &str, by: &str) -> Event {
        let dialogue = DialogueId::new(DialogueKind::Session, ulid::Ulid::from_parts(1, 2));
        let at = DateTime::from_timestamp_millis(1_800_000_000_000).unwrap_or_default();
        Event::in_dialogue(WebhookEventType::TurnCommitted, dialogue, object, json!({}), at).caused_by(by)
    }

    #[test]
    fn message_ids_depend_on_the_event_alone() {
        let id = some_event("turn_1", "").message_id();
        assert_eq!(id, some_event("turn_1", "").message_id());
        assert_ne!(id, some_event("turn_2", "").message_id());
        assert_ne!(id, some_event("turn_1", "rew_1").message_id());
        assert_eq!(id.made_at().timestamp_millis(), 1_800_000_000_000);
        assert!(id.to_string().starts_with("msg_"));
    }

    #[test]
    fn events_become_rows_without_texts() -> StoreResult<()> {
        let rows: Value = serde_json::from_str(&event_rows_json(&[some_event("turn_1", "")])?).unwrap_or_default();
        assert_eq!(rows[0][0], "turn.committed");
        assert_eq!(rows[0][1], rows[0][3], "a dialogue is a queue");
        assert_eq!(rows[0][4], "turn_1");
        Ok(())
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod plan_tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn messages_are_written_by_index() {
            let indexes = ["webhooks_enabled (tenant=?)", "SEARCH d USING INDEX sqlite_autoindex_dialogues_1"];
            assert_searches(INSERT_MESSAGES, &indexes).await;
        }
    }
}
