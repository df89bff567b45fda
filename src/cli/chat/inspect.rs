//! `/trace` and `/facts`: a designer's questions, answered over REST.

use std::fmt::Write;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{
    adapters::openai::install_crypto,
    ids::{NpcId, PlayerId, WorldId},
};

/// Client of the REST API in the role of the game's backend.
pub(super) struct Inspector {
    http: reqwest::Client,
    base: String,
    /// The backend token; `None` if only a player's token was given.
    backend: Option<String>,
    world: WorldId,
    npc: NpcId,
    player: PlayerId,
    session: String,
    /// The number of the last turn.
    pub turn: Option<u64>,
}

impl Inspector {
    pub(super) fn new(
        base: String,
        backend: Option<String>,
        (world, npc, player): (WorldId, NpcId, PlayerId),
        session: String,
    ) -> anyhow::Result<Self> {
        install_crypto();
        Ok(Self {
            http: reqwest::Client::builder().build()?,
            base,
            backend,
            world,
            npc,
            player,
            session,
            turn: None,
        })
    }

    /// Explains the last reply from its trace.
    pub(super) async fn describe_last_turn(&self) -> anyhow::Result<String> {
        let turn = self.turn.context("nothing was said yet")?;
        let trace = self
            .get_json(&format!("/v1/sessions/{}/turns/{turn}/trace", self.session), &[])
            .await?;
        Ok(render_trace(turn, &trace))
    }

    /// Lists the NPC's memories. With a query, lists the facts that a search for it finds.
    pub(super) async fn describe_facts(&self, query: String) -> anyhow::Result<String> {
        // Facts that other players told the NPC in private are excluded.
        let mut params = vec![("limit", "20"), ("player_id", self.player.as_str())];
        if !query.is_empty() {
            params.push(("q", query.as_str()));
        }
        let path = format!("/v1/worlds/{}/npcs/{}/facts", self.world, self.npc);
        let page = self.get_json(&path, &params).await?;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        if items.is_empty() {
            return Ok("(nothing)".into());
        }
        let mut text = String::new();
        for item in &items {
            // A search result contains the fact and its score; a plain list contains facts.
            let fact = item.get("fact").unwrap_or(item);
            let score = item["score"]["total"]
                .as_f64()
                .map(|s| format!("{s:.2}  "))
                .unwrap_or_default();
            let ended = if fact["invalid_at"].is_null() {
                ""
            } else {
                "  (no longer)"
            };
            let _ = writeln!(
                text,
                "{score}{}  [{}, importance {}, said by {}]{ended}",
                fact["content"].as_str().unwrap_or_default(),
                fact["kind"].as_str().unwrap_or_default(),
                fact["importance"],
                fact["speaker"].as_str().unwrap_or_default(),
            );
        }
        Ok(text)
    }

    async fn get_json(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        let Some(token) = &self.backend else {
            bail!("this needs a backend token, and only a player's was given");
        };
        let mut url = reqwest::Url::parse(&format!("{}{path}", self.base))?;
        url.query_pairs_mut().extend_pairs(query);
        let response = self.http.get(url).bearer_auth(token).send().await?;
        let status = response.status();
        let body: Value = response.json().await.unwrap_or_default();
        if !status.is_success() {
            bail!("{status}: {}", body["detail"].as_str().unwrap_or_default());
        }
        Ok(body)
    }
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

fn array_or_empty(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_or_dash(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}
