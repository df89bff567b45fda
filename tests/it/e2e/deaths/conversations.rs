//! Deaths in an NPC conversation: during a line, an interrupt, a resume, or a join.

use serde_json::{Value, json};

use super::{
    After, Before, Begun, CrashAction, PreparedDialogue, act_over_socket, assert_deaths_at_all_points, data,
    perform_action, wait_until_idle,
};
use crate::support::{TestServer, run};

pub(super) const DEEDS: &[&CrashAction] = &[&LINE, &CUT, &PAUSE, &RESUME, &INTERRUPTING_LINE];

/// The next line. Other NPCs learn from the line, and a summary becomes due.
const LINE: CrashAction = CrashAction {
    path: "/v1/npc-conversations/$d:step",
    body: || json!({}),
    points: &[
        ("turn.said", Before),
        ("turn.durable", After),
        ("turn.buffered", After),
        ("turn.told", After),
        ("facts.extracted", After),
        ("facts.folded", After),
        ("facts.durable", After),
        ("summary.made", After),
        ("summary.durable", After),
        ("outbox.indexed", After),
    ],
    inside: false,
};

/// Cuts a line where the player stopped listening. Later lines, with the session joined there, are unsaid, and the
/// conversation pauses.
const CUT: CrashAction = CrashAction {
    path: "/v1/npc-conversations/$d:interrupt",
    body: || json!({"turn": 2, "heard_chars": 12, "key": "deed"}),
    points: &[
        ("rewind.planned", Before),
        ("rewind.head", Before),
        ("rewind.audited", Before),
        ("rewind.durable", After),
        ("rewind.truncated", After),
        ("rewind.followed", After),
        ("rewind.told", After),
        ("facts.extracted", After),
        ("outbox.indexed", After),
    ],
    inside: true,
};

/// Pauses the conversation at its last line. The key is stored after the pause.
const PAUSE: CrashAction = CrashAction {
    path: "/v1/npc-conversations/$d:interrupt",
    body: || json!({"turn": 5, "key": "deed"}),
    points: &[("conversation.paused", Begun), ("rewind.noted", After)],
    inside: false,
};

/// Resumes the cut line and continues.
const RESUME: CrashAction = CrashAction {
    path: "/v1/npc-conversations/$d:resume",
    body: || json!({}),
    points: &[
        ("rewind.planned", Before),
        ("rewind.audited", Before),
        ("rewind.durable", After),
        ("rewind.followed", After),
        ("rewind.told", After),
    ],
    inside: false,
};

/// A player interrupts with a line. The three steps run in order, and never twice.
const INTERRUPTING_LINE: CrashAction = CrashAction {
    path: "ws:npc_conversation.interrupt",
    body: || json!({"turn": 1, "key": "deed", "text": "Wait, what were you two just talking about?"}),
    points: &[
        ("rewind.planned", Before),
        ("rewind.audited", Before),
        ("rewind.durable", Begun),
        ("rewind.told", Begun),
        ("join.placed", Begun),
        ("join.made", Begun),
        ("turn.said", Begun),
        ("turn.durable", After),
        ("turn.told", After),
    ],
    inside: false,
};

/// Interrupts over a socket; see [`act_over_socket`].
pub(super) async fn interrupt_with_line(server: &TestServer, dialogue: &str, mut message: Value) -> Option<u16> {
    message["type"] = "npc_conversation.interrupt".into();
    message["conversation_id"] = dialogue.into();
    act_over_socket(server, &message, |_| None).await
}

/// Prepares five lines about a person whom one of two NPCs knows well. A player joins after the third line.
async fn prepare_conversation() -> PreparedDialogue {
    let data = data();
    let server = data.spawn();
    let rest = server.backend();
    for (what, word) in [
        ("Hanna likes plums.", "plums"),
        ("Hanna hates grapes.", "grapes"),
        ("Hanna lives in Harbour Town.", "Harbour Town"),
        ("Hanna works at the old mill.", "mill"),
        ("Hanna is afraid of dogs.", "dogs"),
    ] {
        let fact = json!({"subject": "Hanna", "predicate": "about", "object": word, "content": what,
            "keywords": ["Hanna", word], "kind": "preference", "importance": 6});
        rest.post("/v1/worlds/vale/npcs/mira/facts", &fact).await;
    }
    let body = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "topic": "Hanna", "auto": false, "open": true, "interrupters": "all"});
    let made = rest.post("/v1/npc-conversations", &body).await;
    let dialogue = made["id"].as_str().unwrap().to_owned();
    let of_it = |what: &str| format!("/v1/npc-conversations/{dialogue}:{what}");
    for line in 1..=5 {
        rest.post(&of_it("step"), &json!({})).await;
        wait_until_idle(&data).await;
        if line == 3 {
            let joined = rest.post(&of_it("join"), &json!({"player_id": "p2"})).await;
            let turns = format!("/v1/sessions/{}/turns", joined["id"].as_str().unwrap());
            rest.post(&turns, &json!({"text": "I like figs."})).await;
            rest.post(&of_it("resume"), &json!({})).await;
            wait_until_idle(&data).await;
        }
    }
    let view = rest.get(&format!("/v1/npc-conversations/{dialogue}")).await;
    assert_eq!(view["status"], "open", "they have said all they know: {view}");
    server.stop();
    let steps = (of_it("step"), json!({}));
    PreparedDialogue {
        data,
        dialogue,
        goes_on: vec![steps],
    }
}

#[test]
fn death_during_a_line_leaves_the_state_before_or_after_it() {
    run(async {
        let [before, after] = assert_deaths_at_all_points(&prepare_conversation().await, &LINE).await;
        let learned = |seen: &Value| seen["facts"].as_array().unwrap().len();
        assert!(
            learned(&before) < learned(&after),
            "nothing was learned: {} {}",
            after["npc-conversations"],
            after["facts"]
        );
    });
}

#[test]
fn death_during_an_interrupt_leaves_the_state_before_or_after_it() {
    run(async {
        let [before, after] = assert_deaths_at_all_points(&prepare_conversation().await, &CUT).await;
        let stands = |seen: &Value| {
            let talk = &seen["npc-conversations"][0];
            (talk["view"]["status"].clone(), talk["view"]["head_turn"].clone())
        };
        assert_eq!(stands(&before), (json!("open"), json!(5)));
        assert_eq!(stands(&after), (json!("paused"), json!(2)));
        assert_eq!(before["sessions"][0]["view"]["status"], "open");
        assert_eq!(after["sessions"][0]["view"]["status"], "closed");
    });
}

#[test]
fn death_during_a_pause_leaves_the_conversation_paused_or_not() {
    run(async {
        assert_deaths_at_all_points(&prepare_conversation().await, &PAUSE).await;
    });
}

#[test]
fn death_during_a_line_resume_leaves_the_state_before_or_after_it() {
    run(async {
        let prepared = prepare_conversation().await;
        let server = prepared.data.spawn();
        perform_action(&server, &prepared.dialogue, &CUT).await.unwrap();
        wait_until_idle(&prepared.data).await;
        server.stop();
        let [before, after] = assert_deaths_at_all_points(&prepared, &RESUME).await;
        let status = |seen: &Value| seen["npc-conversations"][0]["view"]["status"].clone();
        assert_eq!((status(&before), status(&after)), (json!("paused"), json!("open")));
    });
}

#[test]
fn death_during_an_interrupting_line_loses_nothing_done_and_repeats_nothing() {
    run(async {
        let [before, after] = assert_deaths_at_all_points(&prepare_conversation().await, &INTERRUPTING_LINE).await;
        let sessions = |seen: &Value| seen["sessions"].as_array().unwrap().len();
        assert_eq!(sessions(&before) + 1, sessions(&after));
    });
}
