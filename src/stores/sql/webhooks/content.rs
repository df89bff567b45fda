//! What the ledger knows of the objects of events. Texts are read when a message is sent, and are never copied to a
//! message.

use serde_json::{Map, Value, json};

use super::super::{
    actions,
    context::{Connection, Row},
    rows::Columns,
    statements::fetch_optional,
};
use colloquy_core::ids::TenantId;
use colloquy_ports::{
    StoreResult,
    ledger::webhooks::{DueMessage, WebhookEventType},
};

const TURN: &str = "SELECT npc, player, status, player_text, reply_text FROM turns WHERE tenant = $1 AND id = $2";
/// By the cause, for the index.
const CHANGE: &str = "SELECT change FROM state_events WHERE tenant = $1 AND cause_id = $2 AND id = $3";
const FINDING: &str = "SELECT text FROM curation_findings WHERE tenant = $1 AND id = $2";
const FACT: &str = "SELECT view_content FROM facts WHERE tenant = $1 AND id = $2";

/// Returns the fields that the object of a message adds to the data. Empty if the object is no longer stored.
pub(super) async fn load_content(
    connection: &mut Connection,
    tenant: &TenantId,
    message: &DueMessage,
    include_text: bool,
) -> StoreResult<Map<String, Value>> {
    let object = &message.object;
    match message.event {
        WebhookEventType::TurnCommitted => {
            let row = fetch_optional!(connection, TURN; tenant, object).await?;
            row.map_or_else(|| Ok(Map::new()), |row| turn_content(&row, include_text))
        }
        WebhookEventType::ActionRequested | WebhookEventType::ActionUndone => {
            let row = fetch_optional!(connection, actions::ACTION_BY_ID; tenant, object).await?;
            row.map_or_else(|| Ok(Map::new()), |row| action_content(&row, include_text))
        }
        WebhookEventType::StateChanged => {
            let cause = message.data.get("cause_id").and_then(Value::as_str).unwrap_or_default();
            let row = fetch_optional!(connection, CHANGE; tenant, cause, object).await?;
            row.map_or_else(|| Ok(Map::new()), |row| change_content(&row, include_text))
        }
        WebhookEventType::FindingMade if include_text => {
            let row = fetch_optional!(connection, FINDING; tenant, object).await?;
            row.map_or_else(|| Ok(Map::new()), |row| text_content(&row, "text"))
        }
        WebhookEventType::FactFlagged if include_text => flag_content(connection, tenant, message).await,
        _ => Ok(Map::new()),
    }
}

fn fields(fields: Value) -> Map<String, Value> {
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn turn_content(row: &Row, include_text: bool) -> StoreResult<Map<String, Value>> {
    let mut columns = Columns::new(row);
    let (npc, player, status): (&str, Option<&str>, &str) = (columns.next()?, columns.next()?, columns.next()?);
    let mut content = fields(json!({"npc_id": npc, "player_id": player, "status": status}));
    if include_text {
        let (line, reply): (&str, &str) = (columns.next()?, columns.next()?);
        content.insert("player_text".to_owned(), json!(line));
        content.insert("reply_text".to_owned(), json!(reply));
    }
    Ok(content)
}

fn action_content(row: &Row, include_text: bool) -> StoreResult<Map<String, Value>> {
    let action = actions::read_action(&mut Columns::new(row))?.request;
    let mut content = fields(json!({
        "turn_id": action.turn,
        "turn": action.number,
        "npc_id": action.npc,
        "player_id": action.player,
        "name": action.name,
        "expires_at": action.expires_at,
    }));
    if include_text {
        content.insert("arguments".to_owned(), Value::Object(action.arguments));
    }
    Ok(content)
}

/// The sort of a change, and with texts the whole change.
fn change_content(row: &Row, include_text: bool) -> StoreResult<Map<String, Value>> {
    let change: Value = Columns::new(row).json()?;
    let mut content = fields(json!({"change_type": change.get("change")}));
    if include_text {
        content.insert("change".to_owned(), change);
    }
    Ok(content)
}

fn text_content(row: &Row, name: &str) -> StoreResult<Map<String, Value>> {
    let text: &str = Columns::new(row).next()?;
    Ok(Map::from_iter([(name.to_owned(), json!(text))]))
}

/// The fact, and the statement that contradicts the fact.
async fn flag_content(
    connection: &mut Connection,
    tenant: &TenantId,
    message: &DueMessage,
) -> StoreResult<Map<String, Value>> {
    let id = |name: &str| message.data.get(name).and_then(Value::as_str);
    let mut content = Map::new();
    for (name, fact) in [("text", id("fact_id")), ("statement_text", id("statement_id"))] {
        let Some(fact) = fact else { continue };
        if let Some(row) = fetch_optional!(connection, FACT; tenant, fact).await? {
            content.extend(text_content(&row, name)?);
        }
    }
    Ok(content)
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn objects_of_events_are_found_by_index() {
            for statement in [TURN, FINDING, FACT] {
                assert_searches(statement, &["(tenant=? AND id=?)"]).await;
            }
            assert_searches(CHANGE, &["state_events_by_cause (tenant=? AND cause_id=?)"]).await;
        }
    }
}
