//! The last meeting of an NPC and a player.

use colloquy::{
    memory::{
        disclosure::locks::{DisclosureLock, DisclosureLocks},
        progress::Progress,
        scenario::Scenario,
    },
    ports::ledger::{
        jobs::{JobFence, JobKind},
        rewinds::{RewindCommit, RewindOrigin},
        scenarios::Embedding,
    },
};

use super::{LedgerSubject, fixture::Fixture, summaries::landing_summary};

pub async fn returning_player_has_a_last_meeting<S: LedgerSubject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let now = f.open_dialogue().await;
    let met = async || {
        let of = (&f.world, &f.npc, &f.player);
        let found = dialogues
            .find_last_meeting(&f.scope, of.0, of.1, of.2, now.dialogue.id, true)
            .await;
        found
            .unwrap()
            .map(|meeting| (meeting.last_turn_at, meeting.summary.map(|recap| recap.text)))
    };
    // The current session does not count, nor does a session without turns.
    f.commit_turn(&f.sample_commit(&now, 1, None)).await;
    f.open_dialogue().await;
    assert_eq!(met().await, None);
    f.advance_clock();
    let earlier = f.open_dialogue().await;
    f.advance_clock();
    let said = f.sample_commit(&earlier, 1, None);
    f.commit_turn(&said).await;
    let first = Some((said.turn.committed_at, None));
    assert_eq!(met().await, first);
    // Another session, with a summary.
    f.advance_clock();
    let (later, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let summary = landing_summary(f, fence, later, (1, 1));
    assert!(f.ledger().summaries.commit_summary(&f.scope, &summary).await.unwrap());
    let (at, text) = met().await.unwrap();
    assert!(at > said.turn.committed_at, "the newest session");
    assert_eq!(text, Some(summary.summary.text));
    // Other players, NPCs and worlds have no meeting.
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
            .find_last_meeting(scope, world, npc, player, now.dialogue.id, true)
            .await;
        assert_eq!(found.unwrap(), None);
    }
    // Unsaid turns do not count.
    let rewind = RewindCommit {
        id: f.id(),
        rewound_at: f.now(),
        dialogue: later,
        world: f.world.clone(),
        epoch: 1,
        origin: RewindOrigin::Request,
        to: None,
        replacement: None,
        replacing: None,
        paused: None,
        held_until: None,
        key: None,
        other_keys: Vec::new(),
        seq: 100,
        edits: vec![f.audit_edit("session.rewind")],
    };
    f.ledger().rewinds.commit_rewind(&f.scope, &rewind).await.unwrap();
    assert_eq!(met().await, first);

    // A later session without a summary hides no earlier summary. The summary keeps its own age.
    f.advance_clock();
    let (dialogue, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let mut open = landing_summary(f, fence, dialogue, (1, 1));
    "They spoke of salt.".clone_into(&mut open.summary.text);
    assert!(f.ledger().summaries.commit_summary(&f.scope, &open).await.unwrap());
    f.advance_clock();
    let newest = f.open_dialogue().await;
    f.advance_clock();
    let said = f.sample_commit(&newest, 1, None);
    f.commit_turn(&said).await;
    let text = Some("They spoke of salt.".to_owned());
    assert_eq!(met().await, Some((said.turn.committed_at, text.clone())));
    let found = dialogues.find_last_meeting(&f.scope, &f.world, &f.npc, &f.player, now.dialogue.id, true);
    let found = found.await.unwrap().unwrap();
    assert_eq!(found.since, newest.dialogue.created_at);
    assert_eq!(
        found.earlier_summary_at(|at| at.timestamp() / 86_400),
        Some(open.summary.created_at)
    );
}

pub async fn earlier_session_summary_replaces_a_locked_one<S: LedgerSubject>(f: &Fixture<S>) {
    let now = f.open_dialogue().await;
    create_session_with_summary(f, "They spoke of rain.", true).await;
    f.advance_clock();
    let open = f.open_dialogue().await;
    let well = DisclosureLock::Scenario {
        npc: f.npc.clone(),
        scenario: "well".parse().unwrap(),
    };
    let (mut head, mut committed_at) = (None, None);
    for (number, locks, text) in [
        (1, DisclosureLocks::default(), "They spoke of salt."),
        (2, DisclosureLocks::default(), ""),
        (3, DisclosureLocks::from_iter([well]), "She told of the well."),
    ] {
        f.advance_clock();
        let mut told = f.sample_commit(&open, number, head);
        told.checkpoint.locks = Some(locks);
        let job = f.sample_job(&told, JobKind::Summarise);
        let fence = JobFence {
            job: job.id,
            turn: told.turn.id,
            text_version: told.turn.text_version,
        };
        told.jobs.push(job);
        f.commit_turn(&told).await;
        let mut summary = landing_summary(f, fence, open.dialogue.id, (number, number));
        text.clone_into(&mut summary.summary.text);
        assert!(f.ledger().summaries.commit_summary(&f.scope, &summary).await.unwrap());
        (head, committed_at) = (Some(told.turn.id), Some(told.turn.committed_at));
    }
    let dialogues = &f.ledger().dialogues;
    for (unlocked, text, locks) in [
        (true, "They spoke of salt.", ""),
        (false, "She told of the well.", "scenario:mira/well"),
    ] {
        let found = dialogues.find_last_meeting(&f.scope, &f.world, &f.npc, &f.player, now.dialogue.id, unlocked);
        let meeting = found.await.unwrap().unwrap();
        assert_eq!(Some(meeting.last_turn_at), committed_at);
        let recap = meeting.summary.unwrap();
        assert_eq!((recap.text.as_str(), recap.locks.to_string().as_str()), (text, locks));
    }
}

/// Creates a session with a summary of `text`. `is_known` means the locks are known to be empty.
async fn create_session_with_summary<S: LedgerSubject>(f: &Fixture<S>, text: &str, is_known: bool) {
    f.advance_clock();
    let open = f.open_dialogue().await;
    let mut told = f.sample_commit(&open, 1, None);
    told.checkpoint.locks = is_known.then(DisclosureLocks::default);
    let job = f.sample_job(&told, JobKind::Summarise);
    let fence = JobFence {
        job: job.id,
        turn: told.turn.id,
        text_version: told.turn.text_version,
    };
    told.jobs.push(job);
    f.commit_turn(&told).await;
    let mut summary = landing_summary(f, fence, open.dialogue.id, (1, 1));
    text.clone_into(&mut summary.summary.text);
    assert!(f.ledger().summaries.commit_summary(&f.scope, &summary).await.unwrap());
}

pub async fn meeting_summary_that_rests_on_a_lock_is_hidden<S: LedgerSubject>(f: &Fixture<S>) {
    let now = f.open_dialogue().await;
    let met = async || {
        let dialogues = &f.ledger().dialogues;
        let found = dialogues.find_last_meeting(&f.scope, &f.world, &f.npc, &f.player, now.dialogue.id, true);
        found.await.unwrap().unwrap().summary.map(|recap| recap.text)
    };
    create_session_with_summary(f, "They spoke of salt.", false).await;
    let scenario = Scenario {
        world: f.world.clone(),
        npc: f.npc.clone(),
        id: "well".parse().unwrap(),
        title: "The well".to_owned(),
        content: "It was long ago.".to_owned(),
        keywords: vec![],
        synonyms: vec![],
        required_progress: Progress::new(0).unwrap(),
        when: vec![],
        tell: None,
        version: 0,
        updated_at: f.now(),
    };
    f.put_world(f.world.as_str()).await;
    let (npc, edit) = (f.sample_npc(f.world.as_str(), f.npc.as_str()), f.audit_edit("npc.put"));
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
        let (scenarios, edit) = (&f.ledger().scenarios, f.audit_edit("scenario.put"));
        scenarios
            .put_scenario(&f.scope, &scenario, &embedding, None, &edit)
            .await
            .unwrap();
        met().await
    };
    // Unknown locks matter only if the NPC has scenarios to keep back.
    assert_eq!(put(0).await.as_deref(), Some("They spoke of salt."));
    assert_eq!(put(2).await, None);
    create_session_with_summary(f, "They spoke of rain.", true).await;
    assert_eq!(met().await.as_deref(), Some("They spoke of rain."));
}
