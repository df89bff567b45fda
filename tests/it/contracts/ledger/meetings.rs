//! When an NPC and a player talked with each other.

use colloquy::{
    memory::{
        locks::{Lock, Locks},
        progress::Progress,
        scenario::Scenario,
    },
    ports::ledger::{
        jobs::{JobFence, JobKind},
        rewinds::Rewind,
        scenarios::Embedding,
    },
};

use super::{Subject, fixture::Fixture, summaries::landing};

pub async fn a_player_who_comes_again_was_met_before<S: Subject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let now = f.open().await;
    let met = async || {
        let of = (&f.world, &f.npc, &f.player);
        let found = dialogues
            .last_meeting(&f.scope, of.0, of.1, of.2, now.dialogue.id, true)
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
        let found = dialogues
            .last_meeting(scope, world, npc, player, now.dialogue.id, true)
            .await;
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

    // A later session without a summary hides none, and what there is has its own age.
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
    let found = dialogues.last_meeting(&f.scope, &f.world, &f.npc, &f.player, now.dialogue.id, true);
    let found = found.await.unwrap().unwrap();
    assert_eq!(found.since, newest.dialogue.created_at);
    assert_eq!(found.summed_up_before(), Some(open.summary.created_at));
}

pub async fn an_earlier_summary_of_a_session_stands_in_for_one_that_is_locked<S: Subject>(f: &Fixture<S>) {
    let now = f.open().await;
    a_session_with_a_summary(f, "They spoke of rain.", true).await;
    f.tick();
    let open = f.open().await;
    let well = Lock::Scenario {
        npc: f.npc.clone(),
        scenario: "well".parse().unwrap(),
    };
    let (mut head, mut committed_at) = (None, None);
    for (number, locks, text) in [
        (1, Locks::default(), "They spoke of salt."),
        (2, Locks::default(), ""),
        (3, Locks::from_iter([well]), "She told of the well."),
    ] {
        f.tick();
        let mut told = f.a_commit(&open, number, head);
        told.checkpoint.locks = Some(locks);
        let job = f.a_job(&told, JobKind::Summarise);
        let fence = JobFence {
            job: job.id,
            turn: told.turn.id,
            text_version: told.turn.text_version,
        };
        told.jobs.push(job);
        f.commit(&told).await;
        let mut summary = landing(f, fence, open.dialogue.id, (number, number));
        text.clone_into(&mut summary.summary.text);
        assert!(f.ledger().summaries.commit(&f.scope, &summary).await.unwrap());
        (head, committed_at) = (Some(told.turn.id), Some(told.turn.committed_at));
    }
    let dialogues = &f.ledger().dialogues;
    for (unlocked, text, locks) in [
        (true, "They spoke of salt.", ""),
        (false, "She told of the well.", "scenario:mira/well"),
    ] {
        let found = dialogues.last_meeting(&f.scope, &f.world, &f.npc, &f.player, now.dialogue.id, unlocked);
        let meeting = found.await.unwrap().unwrap();
        assert_eq!(Some(meeting.at), committed_at);
        let recap = meeting.summary.unwrap();
        assert_eq!((recap.text.as_str(), recap.locks.to_string().as_str()), (text, locks));
    }
}

/// A session with a summary of these words; whether it is known that it rests on nothing that is locked.
async fn a_session_with_a_summary<S: Subject>(f: &Fixture<S>, text: &str, is_known: bool) {
    f.tick();
    let open = f.open().await;
    let mut told = f.a_commit(&open, 1, None);
    told.checkpoint.locks = is_known.then(Locks::default);
    let job = f.a_job(&told, JobKind::Summarise);
    let fence = JobFence {
        job: job.id,
        turn: told.turn.id,
        text_version: told.turn.text_version,
    };
    told.jobs.push(job);
    f.commit(&told).await;
    let mut summary = landing(f, fence, open.dialogue.id, (1, 1));
    text.clone_into(&mut summary.summary.text);
    assert!(f.ledger().summaries.commit(&f.scope, &summary).await.unwrap());
}

pub async fn of_what_a_summary_rests_on_nobody_may_know<S: Subject>(f: &Fixture<S>) {
    let now = f.open().await;
    let met = async || {
        let dialogues = &f.ledger().dialogues;
        let found = dialogues.last_meeting(&f.scope, &f.world, &f.npc, &f.player, now.dialogue.id, true);
        found.await.unwrap().unwrap().summary.map(|recap| recap.text)
    };
    a_session_with_a_summary(f, "They spoke of salt.", false).await;
    let scenario = Scenario {
        world: f.world.clone(),
        npc: f.npc.clone(),
        id: "well".parse().unwrap(),
        title: "The well".to_owned(),
        content: "It was long ago.".to_owned(),
        keywords: vec![],
        synonyms: vec![],
        required_progress: Progress::new(0).unwrap(),
        version: 0,
        updated_at: f.now(),
    };
    f.put_world(f.world.as_str()).await;
    let (npc, edit) = (f.an_npc(f.world.as_str(), f.npc.as_str()), f.edit("npc.put"));
    f.ledger().authored.put_npc(&f.scope, &npc, None, &edit).await.unwrap();
    let put = async |required| {
        let scenario = Scenario {
            required_progress: Progress::new(required).unwrap(),
            ..scenario.clone()
        };
        let embedding = Embedding {
            model: "angles".to_owned(),
            vector: vec![1.0, 0.0, 0.0],
        };
        let (scenarios, edit) = (&f.ledger().scenarios, f.edit("scenario.put"));
        scenarios
            .put(&f.scope, &scenario, &embedding, None, &edit)
            .await
            .unwrap();
        met().await
    };
    // That matters once the NPC has something to keep back.
    assert_eq!(put(0).await.as_deref(), Some("They spoke of salt."));
    assert_eq!(put(2).await, None);
    a_session_with_a_summary(f, "They spoke of rain.", true).await;
    assert_eq!(met().await.as_deref(), Some("They spoke of rain."));
}
