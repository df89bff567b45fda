//! Where a reply may move a character in a world whose places are linked.

use std::{collections::BTreeMap, time::Duration};

use colloquy::{
    memory::{authored::WorldSettings, state::StateChange},
    ports::llm::Task,
};

use super::{Stage, TestDialogue};
use crate::support::run;

/// Says a line whose reply moves the player to a place. True if the player moved.
async fn is_moved(talk: &mut TestDialogue<'_>, to: &str) -> bool {
    let reply = format!("On.\n```state\n{{\"location\": \"{to}\", \"location_moved\": true}}\n```");
    talk.stage.llm.queue_text(Task::Reply, reply);
    let state = talk.say_line("Shall we go on?").await.state;
    let is_move = |change: &StateChange| matches!(change, StateChange::Location { .. });
    state.iter().any(is_move)
}

#[test]
fn place_that_no_prompt_names_limits_no_move() {
    run(async {
        for (days, is_same, moves) in [(0, false, false), (3, false, true), (3, true, false)] {
            let settings = WorldSettings {
                adjacent: Some(BTreeMap::from([("Mill".to_owned(), vec!["Inn".to_owned()])])),
                ..WorldSettings::default()
            };
            let stage = Stage::prepare_with(|_| {}, settings).await;
            let mut first = stage.session("p1").await;
            assert!(is_moved(&mut first, "Mill").await);
            stage.clock.advance(Duration::from_hours(24 * days));
            let mut later = if is_same { first } else { stage.session("p1").await };
            assert_eq!(is_moved(&mut later, "Harbour").await, moves, "after {days} days");
            let context = stage.llm.last_context();
            assert_eq!(context.contains(" at: Mill"), !moves, "{context}");
        }
    });
}
