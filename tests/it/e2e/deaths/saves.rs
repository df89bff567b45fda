//! Deaths during a restore.

use serde_json::{Value, json};

use super::{After, Before, CrashAction, PreparedDialogue, assert_deaths_at_all_points, data, wait_until_idle};
use crate::{e2e::scenarios::put, support::run};

pub(super) const DEEDS: &[&CrashAction] = &[&RESTORE];

/// The restore rewinds a session and a conversation, and closes another session.
const RESTORE: CrashAction = CrashAction {
    path: "/v1/worlds/vale/saves/$d:restore",
    body: || json!({"key": "deed"}),
    points: &[
        ("restore.fenced", Before),
        ("rewind.unsaid", Before),
        ("restore.head", Before),
        ("restore.moved", Before),
        ("restore.all_moved", Before),
        ("restore.audited", Before),
        ("restore.durable", After),
        ("restore.followed", After),
        ("restore.told", After),
        ("settle.durable", After),
        ("outbox.indexed", After),
    ],
    inside: false,
};

/// Prepares a world with a clock, a save and later turns.
async fn prepare_save() -> PreparedDialogue {
    let data = data();
    let server = data.spawn();
    let rest = server.backend();
    let opened = async |player: &str| {
        let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": player});
        let made = rest.post("/v1/sessions", &body).await;
        format!("/v1/sessions/{}/turns", made["id"].as_str().unwrap())
    };
    let said = async |path: &str, text: &str| {
        let body = if text.is_empty() {
            json!({})
        } else {
            json!({"text": text})
        };
        rest.post(path, &body).await;
        wait_until_idle(&data).await;
    };
    let clock = json!({"start": "0007-05-01 12:00"});
    let world = json!({"name": "The Vale", "language": "en", "settings": {"clock": clock}});
    put(&rest, "/v1/worlds/vale", &world).await;
    let first = opened("p1").await;
    said(&first, "I like grapes.").await;
    said(&first, "Let's go to the old mill.").await;
    let body = json!({"world_id": "vale", "npc_ids": ["mira", "ergen"], "topic": "grapes", "auto": false});
    let made = rest.post("/v1/npc-conversations", &body).await;
    let step = format!("/v1/npc-conversations/{}:step", made["id"].as_str().unwrap());
    said(&step, "").await;
    let save = rest.post("/v1/worlds/vale/saves", &json!({"name": "here"})).await;
    let passed = json!({"events": [{"type": "time_passed", "days": 2}]});
    rest.post("/v1/worlds/vale/events", &passed).await;
    said(&first, "I don't like grapes anymore. Let's go to the market.").await;
    said(&step, "").await;
    let second = opened("p2").await;
    said(&second, "I like plums.").await;
    server.stop();
    PreparedDialogue {
        data,
        dialogue: save["id"].as_str().unwrap().to_owned(),
        goes_on: vec![(first, json!({"text": "I like pears."})), (step, json!({}))],
    }
}

#[test]
fn death_during_a_restore_leaves_every_dialogue_before_or_after_it() {
    run(async {
        let [before, after] = assert_deaths_at_all_points(&prepare_save().await, &RESTORE).await;
        let times = [&before, &after].map(|seen| &seen["clock"]["time"]);
        assert_eq!(times, ["0007-05-03 12:00", "0007-05-01 12:00"]);
        let heads = |seen: &Value| {
            let head = |dialogue: &Value| {
                (
                    dialogue["view"]["head_turn"].clone(),
                    dialogue["view"]["status"].clone(),
                )
            };
            let kinds = ["sessions", "npc-conversations"].map(|kind| seen[kind].as_array().unwrap());
            kinds.map(|kind| kind.iter().map(head).collect::<Vec<_>>())
        };
        let at = |head: u32, status: &str| (json!(head), json!(status));
        let stood = [vec![at(1, "open"), at(3, "open")], vec![at(2, "open")]];
        assert_eq!(heads(&before), stood);
        let stands = [vec![at(0, "closed"), at(2, "open")], vec![at(1, "open")]];
        assert_eq!(heads(&after), stands);
    });
}
