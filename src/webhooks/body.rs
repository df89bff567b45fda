//! The body of a message.

use chrono::SecondsFormat;
use serde_json::{Map, Value, json};

use colloquy_ports::ledger::webhooks::{DueMessage, WebhookEventType};

/// Returns the body of a message as JSON: the type, the time of the event, and the data. `content` is what the ledger
/// knows of the object.
pub(crate) fn render_body(message: &DueMessage, content: Map<String, Value>) -> String {
    let mut data = Map::new();
    if let Some(world) = &message.world {
        data.insert("world_id".to_owned(), json!(world));
    }
    if let Some(dialogue) = message.dialogue {
        data.insert("dialogue_id".to_owned(), json!(dialogue));
        data.insert("dialogue_kind".to_owned(), json!(dialogue.kind()));
    }
    if let Some(name) = object_field(message.event) {
        data.insert(name.to_owned(), json!(message.object));
    }
    data.extend(message.data.clone());
    data.extend(content);
    let timestamp = message.occurred_at.to_rfc3339_opts(SecondsFormat::Micros, true);
    json!({"type": message.event.as_str(), "timestamp": timestamp, "data": data}).to_string()
}

/// The field with the id of the object.
const fn object_field(event: WebhookEventType) -> Option<&'static str> {
    match event {
        WebhookEventType::TurnCommitted => Some("turn_id"),
        WebhookEventType::TurnTakenBack => Some("rewind_id"),
        WebhookEventType::ActionRequested | WebhookEventType::ActionUndone => Some("action_id"),
        WebhookEventType::StateChanged => Some("change_id"),
        WebhookEventType::FindingMade => Some("finding_id"),
        WebhookEventType::FactFlagged => Some("fact_id"),
        WebhookEventType::BudgetWarning => Some("budget"),
        // The dialogue is the object.
        WebhookEventType::ConversationEnded | WebhookEventType::Test => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::DateTime;
    use colloquy_core::ids::{MessageId, WebhookId};

    use super::*;

    #[test]
    fn body_has_type_time_and_ids() {
        let data = json!({"turn": 3, "reinstated": false});
        let message = DueMessage {
            seq: 9,
            id: MessageId::from_u128(1),
            webhook: WebhookId::from_u128(1),
            event: WebhookEventType::TurnCommitted,
            occurred_at: DateTime::from_timestamp(1_800_000_000, 5_000).unwrap(),
            world: Some("vale".parse().unwrap()),
            dialogue: Some("ses_01K7J9Z9W8V7T6S5R4Q3P2N1M0".parse().unwrap()),
            object: "turn_01K7J9Z9W8V7T6S5R4Q3P2N1M0".to_owned(),
            data: data.as_object().unwrap().clone(),
            attempts: 0,
        };
        let content = Map::from_iter([("player_text".to_owned(), json!("Hello."))]);
        let body: Value = serde_json::from_str(&render_body(&message, content)).unwrap();
        assert_eq!(
            body,
            json!({
                "type": "turn.committed",
                "timestamp": "2027-01-15T08:00:00.000005Z",
                "data": {
                    "world_id": "vale",
                    "dialogue_id": "ses_01K7J9Z9W8V7T6S5R4Q3P2N1M0",
                    "dialogue_kind": "session",
                    "turn_id": "turn_01K7J9Z9W8V7T6S5R4Q3P2N1M0",
                    "turn": 3,
                    "reinstated": false,
                    "player_text": "Hello.",
                },
            })
        );
    }
}
