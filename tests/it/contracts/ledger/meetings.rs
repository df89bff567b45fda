//! When an NPC and a player talked with each other.

use colloquy::{
    memory::locks::{Lock, Locks},
    ports::ledger::{
        jobs::{JobFence, JobKind},
        rewinds::Rewind,
    },
};

use super::{Subject, fixture::Fixture, summaries::landing};

pub async fn a_player_who_comes_again_was_met_before<S: Subject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let now = f.open().await;
    let met = async || {
        let of = (&f.world, &f.npc, &f.player);
        let found = dialogues
            .last_meeting(&f.scope, of.0, of.1, of.2, now.dialogue.id)
            .await;
        found
            .unwrap()
            .map(|meeting| (meeting.at, meeting.summary.map(|recap| recap.text)))
    };
    // Of this session nothing counts, nor of one in which nothing was said.
    f.commit(&f.a_commit(&now, 1, None)).await;
    f.open().await;
    assert_eq!(met().await, None);
    f.tick();
    let earlier = f.open().await;
    f.tick();
    let said = f.a_commit(&earlier, 1, None);
    f.commit(&said).await;
    let first = Some((said.turn.committed_at, None));
    assert_eq!(met().await, first);
    // Another session, of which there is a summary.
    f.tick();
    let (later, fence) = f.a_fence(JobKind::Summarise).await;
    let summary = landing(f, fence, later, (1, 1));
    assert!(f.ledger().summaries.commit(&f.scope, &summary).await.unwrap());
    let (at, text) = met().await.unwrap();
    assert!(at > said.turn.committed_at, "the newest session");
    assert_eq!(text, Some(summary.summary.text));
    // Not of others, nor elsewhere.
    let (stranger, other_npc, elsewhere) = (
        "nobody".parse().unwrap(),
        "nobody".parse().unwrap(),
        "elsewhere".parse().unwrap(),
    );
    for (scope, world, npc, player) in [
        (&f.scope, &f.world, &f.npc, &stranger),
        (&f.scope, &f.world, &other_npc, &f.player),
        (&f.scope, &elsewhere, &f.npc, &f.player),
        (&f.other, &f.world, &f.npc, &f.player),
    ] {
        let found = dialogues.last_meeting(scope, world, npc, player, now.dialogue.id).await;
        assert_eq!(found.unwrap(), None);
    }
    // What is taken back never was.
    let rewind = Rewind {
        id: f.id(),
        dialogue: later,
        world: f.world.clone(),
        epoch: 1,
        closed_too: false,
        to: None,
        replacement: None,
        replacing: None,
        paused: None,
        key: None,
        also: Vec::new(),
        unless_joined: None,
        others: Vec::new(),
        seq: 100,
        edit: f.edit("session.rewind"),
    };
    f.ledger().rewinds.rewind(&f.scope, &rewind).await.unwrap();
    assert_eq!(met().await, first);

    // A later session without a summary hides none.
    f.tick();
    let (dialogue, fence) = f.a_fence(JobKind::Summarise).await;
    let mut open = landing(f, fence, dialogue, (1, 1));
    "They spoke of salt.".clone_into(&mut open.summary.text);
    assert!(f.ledger().summaries.commit(&f.scope, &open).await.unwrap());
    f.tick();
    let newest = f.open().await;
    f.tick();
    let said = f.a_commit(&newest, 1, None);
    f.commit(&said).await;
    let text = Some("They spoke of salt.".to_owned());
    assert_eq!(met().await, Some((said.turn.committed_at, text.clone())));
    // One that rests on what not every player may hear of stands in no prompt.
    f.tick();
    let secretive = f.open().await;
    f.tick();
    let mut told = f.a_commit(&secretive, 1, None);
    told.checkpoint.locks = Locks::from_iter([Lock::Scenario {
        npc: f.npc.clone(),
        scenario: "well".parse().unwrap(),
    }]);
    let job = f.a_job(&told, JobKind::Summarise);
    let fence = JobFence {
        job: job.id,
        turn: told.turn.id,
        text_version: told.turn.text_version,
    };
    told.jobs.push(job);
    f.commit(&told).await;
    let mut secret = landing(f, fence, secretive.dialogue.id, (1, 1));
    "She told of the well.".clone_into(&mut secret.summary.text);
    assert!(f.ledger().summaries.commit(&f.scope, &secret).await.unwrap());
    assert_eq!(met().await, Some((told.turn.committed_at, text)));
}
