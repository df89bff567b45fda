use std::time::Duration;

use colloquy::{
    ids::NodeId,
    ports::{
        clock::{Clock as _, SystemClock},
        ledger::{
            dialogues::{CommitOutcome, DialogueOptions, OwnershipClaim},
            jobs::JobKind,
            nodes::{HeartbeatOutcome, LiveNode},
        },
    },
};

use super::{LedgerSubject, fixture::Fixture};

const LEASE: chrono::Duration = chrono::Duration::seconds(6);

/// Returns the node's current registration, valid for the length of its lease.
fn live_node<S: LedgerSubject>(f: &Fixture<S>, id: NodeId, url: &str) -> LiveNode {
    LiveNode {
        id,
        url: url.to_owned(),
        until: f.now() + LEASE,
    }
}

pub async fn node_lives_as_long_as_its_heartbeat_says<S: LedgerSubject>(f: &Fixture<S>) {
    let nodes = &f.ledger().nodes;
    let apart = nodes.ledger_time().await.unwrap() - SystemClock.now();
    assert!(
        apart.abs() < chrono::Duration::minutes(1),
        "its clock is this machine's: {apart}"
    );
    let (one, two) = (live_node(f, f.node, "http://one"), live_node(f, f.id(), "http://two"));
    nodes.register_node(&one, f.now()).await.unwrap();
    nodes.register_node(&two, f.now()).await.unwrap();
    let mut all = vec![one.clone(), two.clone()];
    all.sort_by_key(|node| node.id.to_string());
    assert_eq!(nodes.list_live_nodes(f.now()).await.unwrap(), all);

    f.clock.advance(Duration::from_secs(5));
    let one = live_node(f, f.node, "http://one");
    assert_eq!(
        nodes.record_heartbeat(&one, f.now()).await.unwrap(),
        HeartbeatOutcome::StillAlive
    );
    f.clock.advance(Duration::from_secs(1));
    assert_eq!(
        nodes.list_live_nodes(f.now()).await.unwrap(),
        std::slice::from_ref(&one)
    );
    let two = live_node(f, two.id, "http://two");
    assert_eq!(
        nodes.record_heartbeat(&two, f.now()).await.unwrap(),
        HeartbeatOutcome::WasDead
    );
    assert_eq!(
        nodes.record_heartbeat(&two, f.now()).await.unwrap(),
        HeartbeatOutcome::StillAlive
    );
    assert_eq!(nodes.list_live_nodes(f.now()).await.unwrap().len(), 2);

    nodes.deregister_node(two.id, f.now()).await.unwrap();
    assert_eq!(nodes.list_live_nodes(f.now()).await.unwrap(), [one]);
    // Another process registers at the same address, so the previous process cannot be there.
    let next = live_node(f, f.id(), "http://one");
    nodes.register_node(&next, f.now()).await.unwrap();
    assert_eq!(nodes.list_live_nodes(f.now()).await.unwrap(), [next]);
}

pub async fn dialogues_of_a_dead_node_may_be_claimed_by_any_node<S: LedgerSubject>(f: &Fixture<S>) {
    let (nodes, dialogues) = (&f.ledger().nodes, &f.ledger().dialogues);
    nodes
        .register_node(&live_node(f, f.node, "http://one"), f.now())
        .await
        .unwrap();
    // The ownership lasts 30 seconds, if the node lives.
    let open = f.open_dialogue().await;
    let id = open.dialogue.id;
    assert_eq!(
        nodes.list_owned_dialogues(f.node).await.unwrap(),
        [(f.scope.tenant().clone(), id)]
    );
    let rival: NodeId = f.id();
    let steal = || async {
        let until = f.now() + chrono::Duration::seconds(30);
        dialogues
            .claim_ownership(&f.scope, id, rival, f.now(), until)
            .await
            .unwrap()
    };
    f.clock.advance(Duration::from_secs(5));
    assert!(matches!(steal().await, OwnershipClaim::OwnedBy { node, .. } if node == f.node));
    f.clock.advance(Duration::from_secs(1));
    let OwnershipClaim::Owned(taken) = steal().await else {
        panic!("its owner is dead")
    };
    assert_eq!((taken.epoch, taken.taken_from), (open.epoch + 1, Some(f.node)));
    // The dead node wakes and may write nothing.
    let commit = f.sample_commit(&open, 1, None);
    assert_eq!(
        f.ledger().turns.commit_turn(&f.scope, &commit).await.unwrap(),
        CommitOutcome::Fenced
    );
    assert_eq!(
        nodes
            .record_heartbeat(&live_node(f, f.node, "http://one"), f.now())
            .await
            .unwrap(),
        HeartbeatOutcome::WasDead
    );
    assert!(nodes.list_owned_dialogues(f.node).await.unwrap().is_empty());
    let until = f.now() + chrono::Duration::seconds(30);
    let back = dialogues
        .claim_ownership(&f.scope, id, f.node, f.now(), until)
        .await
        .unwrap();
    assert!(matches!(back, OwnershipClaim::OwnedBy { node, .. } if node == rival));
}

/// The situation after an outage, when no node could renew its leases.
pub async fn dialogues_of_a_living_node_stay_its_own<S: LedgerSubject>(f: &Fixture<S>) {
    let (nodes, dialogues) = (&f.ledger().nodes, &f.ledger().dialogues);
    nodes
        .register_node(&live_node(f, f.node, "http://one"), f.now())
        .await
        .unwrap();
    let id = f.open_dialogue().await.dialogue.id;
    f.clock.advance(Duration::from_hours(1));
    let steal = async || {
        let (rival, until) = (f.id(), f.now() + chrono::Duration::seconds(30));
        dialogues
            .claim_ownership(&f.scope, id, rival, f.now(), until)
            .await
            .unwrap()
    };
    nodes
        .register_node(&live_node(f, f.node, "http://one"), f.now())
        .await
        .unwrap();
    assert!(matches!(steal().await, OwnershipClaim::OwnedBy { node, .. } if node == f.node));
    f.clock.advance(Duration::from_secs(6));
    assert!(matches!(steal().await, OwnershipClaim::Owned(_)));
}

/// After an outage, nodes must see who was dead before the outage, from the changes of other nodes.
pub async fn dialogues_of_a_departed_node_may_be_claimed_at_once<S: LedgerSubject>(f: &Fixture<S>) {
    let (nodes, dialogues) = (&f.ledger().nodes, &f.ledger().dialogues);
    for lives_for in [1, 9] {
        let before = f.now();
        nodes
            .register_node(&live_node(f, f.node, "http://one"), f.now())
            .await
            .unwrap();
        let open = f.open_dialogue().await;
        // In the second run, the node's lease has expired by then.
        f.clock.advance(Duration::from_secs(lives_for));
        nodes.deregister_node(f.node, f.now()).await.unwrap();
        assert!(nodes.list_live_nodes(f.now()).await.unwrap().is_empty());
        let (rival, until) = (f.id(), f.now() + chrono::Duration::seconds(30));
        let claim = dialogues.claim_ownership(&f.scope, open.dialogue.id, rival, before, until);
        assert!(matches!(claim.await.unwrap(), OwnershipClaim::Owned(_)));
        let dead = nodes.list_dead_nodes(before).await.unwrap();
        assert_eq!(dead.iter().map(|dead| dead.id).collect::<Vec<_>>(), [f.node]);
    }
}

pub async fn dead_node_is_removed_once<S: LedgerSubject>(f: &Fixture<S>) {
    let (nodes, jobs) = (&f.ledger().nodes, &f.ledger().jobs);
    nodes
        .register_node(&live_node(f, f.node, "http://one"), f.now())
        .await
        .unwrap();
    let (_, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    let talk = async |auto: bool, paused: bool| {
        let mut dialogue = f.sample_dialogue();
        dialogue.id = f.ids.next_dialogue_id(colloquy::ids::DialogueKind::NpcConversation);
        dialogue.player = None;
        dialogue.options = DialogueOptions {
            auto,
            paused,
            ..DialogueOptions::default()
        };
        f.ledger().dialogues.create_dialogue(&f.scope, &dialogue).await.unwrap();
        f.claim_dialogue(dialogue.id).await;
        dialogue.id
    };
    let pacing = talk(true, false).await;
    talk(true, true).await;
    talk(false, false).await;
    let ended = talk(true, false).await;
    let epoch = f.claim_dialogue(ended).await.epoch;
    f.close_dialogue(ended, epoch).await;

    assert!(nodes.list_dead_nodes(f.now()).await.unwrap().is_empty());
    assert!(!nodes.release_dead_node(f.node, f.now()).await.unwrap(), "it lives");
    f.clock.advance(Duration::from_secs(6));
    let dead = nodes.list_dead_nodes(f.now()).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(
        (dead[0].id, &dead[0].auto_conversations[..]),
        (f.node, &[(f.scope.tenant().clone(), pacing)][..])
    );
    let (rival, until): (NodeId, _) = (f.id(), f.now() + chrono::Duration::seconds(60));
    let lease = async || jobs.lease_due_jobs(&f.scope, rival, f.now(), until, 9).await.unwrap();
    assert!(lease().await.is_empty());
    assert!(nodes.release_dead_node(f.node, f.now()).await.unwrap());
    assert!(
        !nodes.release_dead_node(f.node, f.now()).await.unwrap(),
        "another was faster"
    );
    assert!(nodes.list_dead_nodes(f.now()).await.unwrap().is_empty());
    assert_eq!(lease().await[0].id, fence.job);
    // A node that returns can die again.
    nodes
        .record_heartbeat(&live_node(f, f.node, "http://one"), f.now())
        .await
        .unwrap();
    f.clock.advance(Duration::from_secs(6));
    assert_eq!(nodes.list_dead_nodes(f.now()).await.unwrap().len(), 1);
}
