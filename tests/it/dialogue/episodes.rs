//! Episodes: the line about a turn as it is stored.

use colloquy::{
    ids::TurnId,
    memory::episode::Episode,
    ports::{ledger::episodes::EpisodePair, llm::Task},
};
use serde_json::json;

use super::Stage;
use crate::support::run;

/// Returns the standing episode of a turn with the player `p1`, if the turn has one.
pub(super) async fn stored_episodes(stage: &Stage, turn: TurnId) -> Vec<Episode> {
    let player = "p1".parse().unwrap();
    let pair = EpisodePair {
        world: &stage.world.id,
        npc: &stage.npc.id,
        player: &player,
    };
    let episodes = &stage.services.ledger.episodes;
    episodes
        .load_standing_episodes(&stage.scope, pair, &[turn])
        .await
        .unwrap()
}

#[test]
fn relative_days_of_an_episode_are_stored_as_dates() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let episode = json!({ "text": "The player said that Anna left yesterday.", "importance": 4 });
        let learned = json!({ "facts": [], "episode": episode });
        stage.llm.queue_text(Task::Extraction, learned.to_string());
        let committed = talk.say_line("Do you know that Anna left yesterday?").await;
        for job in &committed.jobs {
            stage.run_job(job).await.unwrap();
        }
        let episodes = stored_episodes(&stage, committed.turn.id).await;
        let texts: Vec<&str> = episodes.iter().map(|episode| episode.text.as_str()).collect();
        // The clock of the test starts on 2026-03-01.
        assert_eq!(texts, ["The player said that Anna left on 2026-02-28."]);
    });
}
