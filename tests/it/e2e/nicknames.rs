//! Lines that address an NPC by a nickname or a title.

use serde_json::json;

use super::npc_conversation::with_mock;
use crate::support::run;

#[test]
fn line_addresses_an_npc_by_a_nickname_that_nobody_else_there_has() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        for (npc, subject, nickname) in [
            ("mira", "Mira", "Matron"),
            ("mira", "Mira", "Doctor"),
            ("ergen", "에르겐", "Doctor"),
        ] {
            let fact = json!({"subject": subject, "predicate": "be nicknamed", "object": nickname,
                "content": format!("{subject} is nicknamed {nickname}."), "kind": "personal_info"});
            backend.post(&format!("/v1/worlds/vale/npcs/{npc}/facts"), &fact).await;
        }
        let body = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "player_id": "p1"});
        let session = backend.post("/v1/sessions", &body).await;
        let said = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
        for (line, npc) in [
            ("에르겐, good evening.", "ergen"),
            ("Matron, how is the ward?", "mira"),
            ("I see.", "mira"),
            ("에르겐, is it true?", "ergen"),
            ("I heard of it from the matron.", "ergen"),
            ("Doctor, is it true?", "ergen"),
        ] {
            let answer = backend.post(&said, &json!({"text": line})).await;
            assert_eq!(answer["npc_id"], npc, "{line}: {answer}");
        }
    });
}
