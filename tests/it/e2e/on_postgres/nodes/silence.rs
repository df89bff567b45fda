//! A summary after a silence, with a curator of the tenant on every node.

use serde_json::Value;

use super::{NodeCluster, eventually_after_outage};
use crate::support::run;

#[test]
fn silent_session_is_summarised_once_and_every_node_tells_of_it() {
    run(async {
        let quick = [
            ("COLLOQUY__SUMMARIES__AFTER_SILENCE_S", "1"),
            ("COLLOQUY__SUMMARIES__MIN_TURNS", "1"),
            ("COLLOQUY__ACTORS__SWEEP_S", "1"),
        ];
        let nodes = NodeCluster::start(2, &quick).await;
        let (session, _) = nodes.session(0).await;
        let rests = [0, 1].map(|at| nodes.servers[at].backend());
        let path = format!("/v1/sessions/{session}/summaries");
        let summaries = eventually_after_outage("the summary", || async {
            let kept = rests[1].get(&path).await["items"].clone();
            kept[0].is_object().then_some(kept)
        })
        .await;
        assert_eq!(
            (&summaries[0]["from_turn"], &summaries[0]["to_turn"]),
            (&1.into(), &1.into())
        );
        let views = eventually_after_outage("the end of the jobs", || async {
            let views = [rests[0].get("/v1/curator").await, rests[1].get("/v1/curator").await];
            let counts = ["waiting", "running", "delayed"];
            let idle = |view: &Value| {
                let queue = view["queue"].as_array().unwrap();
                queue.iter().all(|kind| counts.iter().all(|count| kind[count] == 0))
            };
            views.iter().all(idle).then_some(views)
        })
        .await;
        let passes = views[0]["last_passes"].as_array().unwrap();
        let written: Vec<_> = passes.iter().filter(|pass| pass["kind"] == "summarise").collect();
        assert_eq!(written.len(), 1, "{passes:?}");
        for part in ["queue", "last_passes", "failures", "summaries"] {
            assert_eq!(views[0][part], views[1][part], "{part}");
        }
        assert_ne!(views[0]["this_node"]["node_id"], views[1]["this_node"]["node_id"]);
    });
}
