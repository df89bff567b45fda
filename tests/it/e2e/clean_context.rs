//! Models that judge the same dialogue do not influence each other: no call sees what another task concluded.

use colloquy::mock_llm::{self, MockOptions};
use serde_json::json;

use super::fresh;
use crate::support::run;

/// What the curation model finds and notes.
const FOUND: &str = "Rowan is two people at once.";
const NOTED: &str = "Keep an eye on Rowan.";
/// What the extraction model concludes from every line.
const EXTRACTED: &str = "The player spoke of matter";

#[test]
fn judge_extraction_and_curation_see_no_conclusions_of_each_other() {
    run(async {
        let curation = json!({
            "findings": [{"about": "", "kind": "contradiction", "text": FOUND, "turns": [1], "decision": "open", "reason": "r"}],
            "edits": [{"edit": "append", "text": NOTED, "by": ""}],
            "done": true,
        });
        let options = MockOptions {
            curation: curation.to_string(),
            verdict: "contradicts".to_owned(),
            facts_per_turn: 1.0,
            ..MockOptions::default()
        };
        let mock = mock_llm::start_on_thread(options).unwrap();
        let env = [("COLLOQUY__CURATION__EVERY_TURNS", "2")];
        let server = fresh(&env).with_mock(&mock.base_url()).start();
        let backend = server.backend();
        let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"});
        let session = backend.post("/v1/sessions", &body).await;
        let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
        for line in [
            "I love plums.",
            "Good day.",
            "I hate plums.",
            "Good day.",
            "I love plums.",
            "Good day.",
        ] {
            backend.post(&turns, &json!({ "text": line })).await;
            backend.idle().await;
        }
        let sent = |task: &str| -> Vec<String> {
            let requests = mock.requests_of(task);
            requests.iter().map(|request| request["messages"].to_string()).collect()
        };
        let (extraction, judge, curation) = (sent("extraction"), sent("judge"), sent("curation"));
        assert!(
            extraction.len() >= 6 && curation.len() >= 3,
            "{} {}",
            extraction.len(),
            curation.len()
        );
        // The texts do reach the prompts that need them. Otherwise this test would prove nothing.
        assert!(
            curation
                .iter()
                .any(|prompt| prompt.contains(FOUND) && prompt.contains(NOTED))
        );
        assert!(judge.iter().any(|prompt| prompt.contains(EXTRACTED)), "{judge:?}");
        for prompt in extraction.iter().chain(&judge).chain(&sent("intent")) {
            assert!(!prompt.contains(FOUND) && !prompt.contains(NOTED), "{prompt}");
        }
        // The NPC is reminded of what is open. It judges nothing.
        let replies = sent("reply");
        assert!(replies.iter().any(|prompt| prompt.contains(FOUND)), "{replies:?}");
        // The curation model reads what was said. Of what was extracted, it reads the facts that stand, as facts, and no
        // verdict.
        for prompt in &curation {
            assert!(prompt.contains(" plums."), "{prompt}");
            assert!(
                !prompt.contains("verdict") && !prompt.contains("was judged"),
                "{prompt}"
            );
            let extracted = prompt.split("\\n").filter(|line| line.contains(EXTRACTED));
            for line in extracted {
                assert!(line.starts_with("<fact turn="), "{line}");
            }
        }
        assert!(curation.iter().any(|prompt| prompt.contains(EXTRACTED)), "{curation:?}");
        // The judge sees statements, and no verdict on earlier pairs.
        for prompt in &judge {
            assert!(
                !prompt.contains("</verdict>") && !prompt.contains("was judged"),
                "{prompt}"
            );
        }
    });
}
