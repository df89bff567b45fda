use std::time::Duration;

use colloquy::{
    ids::NodeId,
    ports::{
        clock::{Clock as _, SystemClock},
        ledger::{
            dialogues::{Claim, CommitOutcome, DialogueOptions},
            jobs::JobKind,
            nodes::{Beat, LiveNode},
        },
    },
};

use super::{Subject, fixture::Fixture};

const LEASE: chrono::Duration = chrono::Duration::seconds(6);

/// A node as it is now, for the length of its lease.
fn a_node<S: Subject>(f: &Fixture<S>, id: NodeId, url: &str) -> LiveNode {
    LiveNode {
        id,
        url: url.to_owned(),
        until: f.now() + LEASE,
    }
}

pub async fn a_node_lives_as_long_as_it_says_so<S: Subject>(f: &Fixture<S>) {
    let nodes = &f.ledger().nodes;
    let apart = nodes.time().await.unwrap() - SystemClock.now();
    assert!(
        apart.abs() < chrono::Duration::minutes(1),
        "its clock is this machine's: {apart}"
    );
    let (one, two) = (a_node(f, f.node, "http://one"), a_node(f, f.id(), "http://two"));
    nodes.join(&one, f.now()).await.unwrap();
    nodes.join(&two, f.now()).await.unwrap();
    let mut all = vec![one.clone(), two.clone()];
    all.sort_by_key(|node| node.id.to_string());
    assert_eq!(nodes.live(f.now()).await.unwrap(), all);

    f.clock.advance(Duration::from_secs(5));
    let one = a_node(f, f.node, "http://one");
    assert_eq!(nodes.beat(&one, f.now()).await.unwrap(), Beat::Kept);
    f.clock.advance(Duration::from_secs(1));
    assert_eq!(nodes.live(f.now()).await.unwrap(), std::slice::from_ref(&one));
    let two = a_node(f, two.id, "http://two");
    assert_eq!(nodes.beat(&two, f.now()).await.unwrap(), Beat::WasDead);
    assert_eq!(nodes.beat(&two, f.now()).await.unwrap(), Beat::Kept);
    assert_eq!(nodes.live(f.now()).await.unwrap().len(), 2);

    nodes.leave(two.id, f.now()).await.unwrap();
    assert_eq!(nodes.live(f.now()).await.unwrap(), [one]);
    // Another process at the same place: the one before cannot be there.
    let next = a_node(f, f.id(), "http://one");
    nodes.join(&next, f.now()).await.unwrap();
    assert_eq!(nodes.live(f.now()).await.unwrap(), [next]);
}

pub async fn what_a_dead_node_owns_is_anybodys<S: Subject>(f: &Fixture<S>) {
    let (nodes, dialogues) = (&f.ledger().nodes, &f.ledger().dialogues);
    nodes.join(&a_node(f, f.node, "http://one"), f.now()).await.unwrap();
    // For half a minute, if the node lives.
    let open = f.open().await;
    let id = open.dialogue.id;
    assert_eq!(nodes.owned(f.node).await.unwrap(), [(f.scope.tenant().clone(), id)]);
    let rival: NodeId = f.id();
    let steal = || async {
        let until = f.now() + chrono::Duration::seconds(30);
        dialogues.claim(&f.scope, id, rival, f.now(), until).await.unwrap()
    };
    f.clock.advance(Duration::from_secs(5));
    assert!(matches!(steal().await, Claim::OwnedBy { node, .. } if node == f.node));
    f.clock.advance(Duration::from_secs(1));
    let Claim::Owned(taken) = steal().await else {
        panic!("its owner is dead")
    };
    assert_eq!((taken.epoch, taken.taken_from), (open.epoch + 1, Some(f.node)));
    // The dead one wakes, and may write nothing.
    let commit = f.a_commit(&open, 1, None);
    assert_eq!(
        dialogues.commit_turn(&f.scope, &commit).await.unwrap(),
        CommitOutcome::Fenced
    );
    assert_eq!(
        nodes.beat(&a_node(f, f.node, "http://one"), f.now()).await.unwrap(),
        Beat::WasDead
    );
    assert!(nodes.owned(f.node).await.unwrap().is_empty());
    let until = f.now() + chrono::Duration::seconds(30);
    let back = dialogues.claim(&f.scope, id, f.node, f.now(), until).await.unwrap();
    assert!(matches!(back, Claim::OwnedBy { node, .. } if node == rival));
}

/// As after an outage, in which nobody could renew anything.
pub async fn what_a_node_that_lives_owns_stays_its_own<S: Subject>(f: &Fixture<S>) {
    let (nodes, dialogues) = (&f.ledger().nodes, &f.ledger().dialogues);
    nodes.join(&a_node(f, f.node, "http://one"), f.now()).await.unwrap();
    let id = f.open().await.dialogue.id;
    f.clock.advance(Duration::from_hours(1));
    let steal = async || {
        let (rival, until) = (f.id(), f.now() + chrono::Duration::seconds(30));
        dialogues.claim(&f.scope, id, rival, f.now(), until).await.unwrap()
    };
    nodes.join(&a_node(f, f.node, "http://one"), f.now()).await.unwrap();
    assert!(matches!(steal().await, Claim::OwnedBy { node, .. } if node == f.node));
    f.clock.advance(Duration::from_secs(6));
    assert!(matches!(steal().await, Claim::Owned(_)));
}

/// After an outage a node asks who was dead before it, of what others did since.
pub async fn what_a_node_that_left_owns_is_anybodys_at_once<S: Subject>(f: &Fixture<S>) {
    let (nodes, dialogues) = (&f.ledger().nodes, &f.ledger().dialogues);
    for lives_for in [1, 9] {
        let before = f.now();
        nodes.join(&a_node(f, f.node, "http://one"), f.now()).await.unwrap();
        let open = f.open().await;
        // The second time its lease has run out by then.
        f.clock.advance(Duration::from_secs(lives_for));
        nodes.leave(f.node, f.now()).await.unwrap();
        assert!(nodes.live(f.now()).await.unwrap().is_empty());
        let (rival, until) = (f.id(), f.now() + chrono::Duration::seconds(30));
        let claim = dialogues.claim(&f.scope, open.dialogue.id, rival, before, until);
        assert!(matches!(claim.await.unwrap(), Claim::Owned(_)));
        let dead = nodes.dead(before).await.unwrap();
        assert_eq!(dead.iter().map(|dead| dead.id).collect::<Vec<_>>(), [f.node]);
    }
}

pub async fn a_dead_node_is_buried_once<S: Subject>(f: &Fixture<S>) {
    let (nodes, jobs) = (&f.ledger().nodes, &f.ledger().jobs);
    nodes.join(&a_node(f, f.node, "http://one"), f.now()).await.unwrap();
    let (_, fence) = f.a_fence(JobKind::ExtractFacts).await;
    let talk = async |auto: bool, paused: bool| {
        let mut dialogue = f.a_dialogue();
        dialogue.id = f.ids.dialogue(colloquy::ids::DialogueKind::NpcConversation);
        dialogue.player = None;
        dialogue.options = DialogueOptions {
            auto,
            paused,
            ..DialogueOptions::default()
        };
        f.ledger().dialogues.create(&f.scope, &dialogue).await.unwrap();
        f.claim(dialogue.id).await;
        dialogue.id
    };
    let pacing = talk(true, false).await;
    talk(true, true).await;
    talk(false, false).await;
    let ended = talk(true, false).await;
    let epoch = f.claim(ended).await.epoch;
    f.close(ended, epoch).await;

    assert!(nodes.dead(f.now()).await.unwrap().is_empty());
    assert!(!nodes.bury(f.node, f.now()).await.unwrap(), "it lives");
    f.clock.advance(Duration::from_secs(6));
    let dead = nodes.dead(f.now()).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(
        (dead[0].id, &dead[0].pacing[..]),
        (f.node, &[(f.scope.tenant().clone(), pacing)][..])
    );
    let (rival, until): (NodeId, _) = (f.id(), f.now() + chrono::Duration::seconds(60));
    let lease = async || jobs.lease(&f.scope, rival, f.now(), until, 9).await.unwrap();
    assert!(lease().await.is_empty());
    assert!(nodes.bury(f.node, f.now()).await.unwrap());
    assert!(!nodes.bury(f.node, f.now()).await.unwrap(), "another was faster");
    assert!(nodes.dead(f.now()).await.unwrap().is_empty());
    assert_eq!(lease().await[0].id, fence.job);
    // One that comes back can die again.
    nodes.beat(&a_node(f, f.node, "http://one"), f.now()).await.unwrap();
    f.clock.advance(Duration::from_secs(6));
    assert_eq!(nodes.dead(f.now()).await.unwrap().len(), 1);
}
