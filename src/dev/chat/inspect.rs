//! `/trace` and `/facts`: a designer's questions, answered over REST.

use std::{fmt::Write, time::Duration};

use anyhow::bail;
use serde_json::Value;

use super::{rest::RestClient, session::Session};
use colloquy_core::ids::{PlayerId, WorldId};

/// How often, and at which interval, `/facts` looks whether the last turn has been learned from.
const LEARNING_LOOKS: usize = 60;
const LEARNING_INTERVAL: Duration = Duration::from_millis(50);

/// Explains the last reply from its trace.
pub(super) async fn describe_last_turn(rest_client: &RestClient, session: &Session) -> anyhow::Result<String> {
    Ok(render_trace(
        session.head_turn,
        &load_trace(rest_client, session).await?,
    ))
}

async fn load_trace(rest_client: &RestClient, session: &Session) -> anyhow::Result<Value> {
    if session.head_turn == 0 {
        bail!("nothing was said yet");
    }
    let path = format!("/v1/sessions/{}/turns/{}/trace", session.id, session.head_turn);
    rest_client.get_json(&path, &[]).await
}

/// Waits a moment until the NPCs have learned from the last turn. `false`: they are still learning.
async fn wait_until_learned(rest_client: &RestClient, session: &Session) -> anyhow::Result<bool> {
    if session.head_turn == 0 {
        return Ok(true);
    }
    for _ in 0..LEARNING_LOOKS {
        let trace = load_trace(rest_client, session).await?;
        if array_or_empty(&trace["jobs"])
            .iter()
            .all(|job| job["status"] != "pending")
        {
            return Ok(true);
        }
        tokio::time::sleep(LEARNING_INTERVAL).await;
    }
    Ok(false)
}

/// Lists the memories of the session's NPCs. With a query, lists the facts that a search for it finds.
pub(super) async fn describe_facts(
    rest_client: &RestClient,
    session: &Session,
    world: &WorldId,
    player: &PlayerId,
    query: &str,
) -> anyhow::Result<String> {
    let mut text = String::new();
    if !wait_until_learned(rest_client, session).await? {
        text.push_str("(still learning from the last turn)\n");
    }
    // Facts that other players told the NPC in private are excluded.
    let mut params = vec![("limit", "20"), ("player_id", player.as_str())];
    if !query.is_empty() {
        params.push(("q", query));
    }
    for npc in &session.npcs {
        let page = rest_client
            .get_json(&format!("/v1/worlds/{world}/npcs/{npc}/facts"), &params)
            .await?;
        if session.npcs.len() > 1 {
            let _ = writeln!(text, "{npc}:");
        }
        let items = array_or_empty(&page["items"]);
        if items.is_empty() {
            text.push_str("(nothing)\n");
        }
        for item in items {
            render_fact(&mut text, item);
        }
    }
    Ok(text)
}

fn render_fact(text: &mut String, item: &Value) {
    // A search result contains the fact and its score; a plain list contains facts.
    let fact = item.get("fact").unwrap_or(item);
    let score = item["score"]["total"]
        .as_f64()
        .map(|s| format!("{s:.2}  "))
        .unwrap_or_default();
    let validity_note = if fact["invalid_at"].is_null() {
        ""
    } else {
        "  (no longer)"
    };
    let _ = writeln!(
        text,
        "{score}{}  [{}, importance {}, said by {}]{validity_note}",
        text_or_dash(&fact["content"]),
        text_or_dash(&fact["kind"]),
        fact["importance"],
        text_or_dash(&fact["speaker"]),
    );
}

fn render_trace(turn: u64, trace: &Value) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "turn {turn}: intent {} (by {}), searched for: {}",
        text_or_dash(&trace["intent"]),
        text_or_dash(&trace["intent_source"]),
        text_or_dash(&trace["query"]),
    );
    for candidate in array_or_empty(&trace["candidates"]) {
        let score = &candidate["score"];
        let part = |name: &str| score[name].as_f64().unwrap_or_default();
        let _ = writeln!(
            text,
            "  {:.2} = recency {:.2}, importance {:.2}, relevance {:.2}, keyword {:.2}  {}: {}",
            part("total"),
            part("recency"),
            part("importance"),
            part("relevance"),
            part("keyword"),
            text_or_dash(&candidate["fate"]),
            text_or_dash(&candidate["content"]),
        );
    }
    let sections: Vec<String> = array_or_empty(&trace["sections"])
        .iter()
        .map(|s| format!("{} {}/{}", text_or_dash(&s["name"]), s["tokens"], s["budget"]))
        .collect();
    let _ = writeln!(
        text,
        "  prompt: {} tokens ({})",
        trace["prompt_tokens"],
        sections.join(", ")
    );
    for call in array_or_empty(&trace["calls"]) {
        let offline = if call["offline"] == true { ", offline" } else { "" };
        let _ = writeln!(
            text,
            "  {}: {}{offline}, {:.1} ms",
            text_or_dash(&call["task"]),
            text_or_dash(&call["model"]),
            call["millis"].as_f64().unwrap_or_default(),
        );
    }
    for note in array_or_empty(&trace["notes"]) {
        let _ = writeln!(text, "  note: {}", text_or_dash(note));
    }
    let _ = writeln!(
        text,
        "  added by the server: {:.2} ms",
        trace["timings"]["added"].as_f64().unwrap_or_default()
    );
    text
}

pub(super) fn array_or_empty(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_or_dash(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}
