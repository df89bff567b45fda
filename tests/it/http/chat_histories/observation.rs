//! What a world shows over REST when all jobs are done.

use colloquy::{
    ports::{
        PageRequest,
        ledger::jobs::{JobRow, JobStatus},
    },
    tenancy::TenantScope,
};
use serde_json::{Value, json};

use super::program::{NPC, PLAYER, World};
use crate::{http::harness::HttpTestServer, support::eventually};

/// The observable state of a world, as lines of a few parts.
#[derive(Debug)]
pub struct Observation {
    parts: Vec<(&'static str, Vec<String>)>,
}

impl Observation {
    /// Returns the differing lines of the first part that differs.
    pub fn compare_with(&self, ought: &Self) -> Result<(), String> {
        for ((name, is), (_, ought)) in self.parts.iter().zip(&ought.parts) {
            if is != ought {
                let missing = ought.iter().filter(|line| !is.contains(line));
                let surplus = is.iter().filter(|line| !ought.contains(line));
                let missing: Vec<String> = missing.map(|line| format!("- {line}")).collect();
                let surplus: Vec<String> = surplus.map(|line| format!("+ {line}")).collect();
                return Err(format!(
                    "{name} differ (- as it ought to be, + as it is)\n{}\n{}",
                    missing.join("\n"),
                    surplus.join("\n")
                ));
            }
        }
        Ok(())
    }
}

/// Returns some fields of each item, as sorted lines.
fn lines_of(page: &Value, fields: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let values = fields.iter().map(|field| item[*field].to_string());
            values.collect::<Vec<_>>().join(" | ")
        })
        .collect();
    lines.sort();
    lines
}

/// Plays the last reply of each session to its end, and waits until all jobs are done and all memories are reconciled.
pub async fn finish_jobs(server: &HttpTestServer, sessions: &[(&World, &str)]) {
    let scope = TenantScope::new("acme".parse().unwrap());
    for (world, session) in sessions {
        let head = u32::try_from(world.turns(session).await.len()).unwrap();
        let id = session.parse().unwrap();
        server.state.sessions.mark_played(&scope, id, head).await.unwrap();
    }
    let page = PageRequest {
        limit: 200,
        after: None,
    };
    let jobs = &server.state.services.ledger.jobs;
    eventually("all jobs are done", async || {
        let pending = jobs.list_jobs(&scope, Some(JobStatus::Pending), &page).await.unwrap();
        let is_of_sessions = |job: &JobRow| sessions.iter().any(|(_, id)| job.dialogue.to_string() == *id);
        (!pending.items.iter().any(is_of_sessions)).then_some(())
    })
    .await;
    // Meanwhile, what a rewind changed in a memory is reconciled by the curator.
    let rewinds = &server.state.services.ledger.rewinds;
    eventually("no memory waits for the curator", async || {
        let memories = rewinds.list_dirty_memories(&scope, 1).await.unwrap();
        memories.is_empty().then_some(())
    })
    .await;
    let dead = jobs.list_jobs(&scope, Some(JobStatus::Dead), &page).await.unwrap();
    assert!(dead.items.is_empty(), "a job failed");
}

pub async fn observe(world: &World, session: &str) -> Observation {
    let turns = world.turns(session).await;
    let (client, id) = (&world.client, &world.id);
    let facts = format!("/v1/worlds/{id}/npcs/{NPC}/facts?limit=200");
    let facts = client.get(&facts).await;
    let episodes = format!("/v1/worlds/{id}/npcs/{NPC}/episodes?player_id={PLAYER}&limit=200");
    let episodes = client.get(&episodes).await;
    let state = client.get(&format!("/v1/worlds/{id}/state")).await;
    let mut items: Vec<String> = state
        .to_string()
        .split('"')
        .filter(|text| text.starts_with("key-"))
        .map(str::to_owned)
        .collect();
    items.sort();
    let context = json!({"text": "What do you know of the pears?"});
    let context = client.post(&format!("/v1/sessions/{session}/context"), &context).await;
    let prompt = context["messages"].as_array().unwrap().iter();
    let prompt = prompt.flat_map(|message| message["content"].as_str().unwrap().lines());
    // A reply that was cut ends in a dash. In the replay, the heard words are the whole reply.
    let comparable = |line: &str| {
        line.replace(id.as_str(), "WORLD")
            .replace("\u{2014}.", "")
            .replace('\u{2014}', "")
    };
    Observation {
        parts: vec![
            ("turns", turns.iter().map(|turn| format!("{turn:?}")).collect()),
            (
                "facts",
                lines_of(
                    &facts,
                    &[
                        "subject",
                        "content",
                        "keywords",
                        "importance",
                        "kind",
                        "pinned",
                        "private_to",
                        "replaced_by",
                    ],
                ),
            ),
            ("episodes", lines_of(&episodes, &["number", "text", "importance"])),
            ("items", items),
            ("prompts", prompt.map(comparable).collect()),
        ],
    }
}
