//! The contract of the buffer port.

#![allow(clippy::unwrap_used)]

use chrono::DateTime;
use std::{any::Any, sync::Arc, time::Duration};

use colloquy::{
    adapters::{
        in_process::buffers::{BufferLimits, InProcessBuffers},
        redis::{RedisOptions, buffers::RedisBuffers},
    },
    ids::{DialogueId, DialogueKind, TurnId},
    ports::{
        StoreError,
        buffer::{BufferHead, BufferSnapshot, BufferStore, BufferedTurn},
        clock::{IdSource, SystemClock},
    },
    tenancy::TenantScope,
};

use crate::support::{RedisCluster, RedisServer, eventually, eventually_after_outage};

/// A buffer store under test. Buffers expire after one second.
struct BufferSubject {
    buffers: Box<dyn BufferStore>,
    ids: IdSource,
    /// The store's process, if the store runs outside the test.
    _server: Option<Box<dyn Any + Send + Sync>>,
}

const TTL: Duration = Duration::from_secs(1);

/// Generates the suite for the listed adapters, one line per adapter.
macro_rules! adapters {
    ($($name:ident: $subject:expr;)+) => {$(
        mod $name {
            use super::*;
            adapters!(@cases $subject, [
                replaced_buffer_is_loaded,
                append_requires_the_current_head_and_advances_it,
                append_drops_turns_beyond_the_limit,
                concurrent_appends_to_one_head_have_one_winner,
                truncation_requires_another_head_and_ends_at_the_turn,
                buffers_are_separate_by_tenant_and_dialogue,
                unused_buffer_expires_and_a_used_buffer_does_not,
            ]);
        }
    )+};
    (@cases $subject:expr, [$($case:ident,)+]) => {$(
        #[tokio::test]
        async fn $case() {
            super::$case(&$subject.await).await;
        }
    )+};
}

adapters! {
    in_process: in_process();
    redis: redis();
    redis_cluster: redis_cluster();
}

#[expect(clippy::unused_async, reason = "adapters over a network need it")]
async fn in_process() -> BufferSubject {
    let limits = BufferLimits {
        ttl: TTL,
        ..BufferLimits::default()
    };
    BufferSubject {
        buffers: Box::new(InProcessBuffers::new(limits)),
        ids: IdSource::from_thread_rng(Arc::new(SystemClock)),
        _server: None,
    }
}

async fn redis() -> BufferSubject {
    let server = RedisServer::start().await;
    subject_on(&options(server.url(), false), TTL, server).await
}

async fn redis_cluster() -> BufferSubject {
    let cluster = RedisCluster::start().await;
    subject_on(&options(cluster.url(), true), TTL, cluster).await
}

async fn subject_on(options: &RedisOptions, ttl: Duration, server: impl Any + Send + Sync) -> BufferSubject {
    let buffers = RedisBuffers::new(options, ttl).unwrap();
    buffers.ping().await.unwrap();
    BufferSubject {
        buffers: Box::new(buffers),
        ids: IdSource::from_thread_rng(Arc::new(SystemClock)),
        _server: Some(Box::new(server)),
    }
}

fn options(url: String, cluster: bool) -> RedisOptions {
    RedisOptions {
        url,
        cluster,
        timeout: Duration::from_secs(10),
    }
}

fn scope(tenant: &str) -> TenantScope {
    TenantScope::new(tenant.parse().unwrap())
}

impl BufferSubject {
    fn dialogue(&self) -> DialogueId {
        self.ids.next_dialogue_id(DialogueKind::Session)
    }
    fn turn(&self, number: u32) -> BufferedTurn {
        BufferedTurn {
            id: self.ids.next_id(),
            number,
            player_text: format!("line {number}: 포도 🍇"),
            npc: "mira".parse().unwrap(),
            reply_text: "\"yes\"\n".repeat(3),
            committed_at: Some(DateTime::UNIX_EPOCH + Duration::from_millis(number.into())),
        }
    }
    /// Stores and returns a buffer of turns `1..=last` in epoch 3.
    async fn filled_snapshot(&self, dialogue: DialogueId, last: u32) -> BufferSnapshot {
        let turns: Vec<_> = (1..=last).map(|number| self.turn(number)).collect();
        let snapshot = BufferSnapshot {
            head: buffer_head(3, turns.last().map(|turn| turn.id)),
            turns,
        };
        self.buffers
            .replace_buffer(&scope("a"), dialogue, &snapshot)
            .await
            .unwrap();
        snapshot
    }
    async fn load(&self, dialogue: DialogueId) -> Option<BufferSnapshot> {
        self.buffers.load_buffer(&scope("a"), dialogue).await.unwrap()
    }
}

fn buffer_head(epoch: u64, turn: Option<TurnId>) -> BufferHead {
    BufferHead { epoch, turn }
}

async fn replaced_buffer_is_loaded(subject: &BufferSubject) {
    let dialogue = subject.dialogue();
    assert_eq!(subject.load(dialogue).await, None);
    subject.filled_snapshot(dialogue, 3).await;
    let second = subject.filled_snapshot(dialogue, 2).await;
    assert_eq!(subject.load(dialogue).await, Some(second));
    let empty = subject.filled_snapshot(dialogue, 0).await;
    assert_eq!(subject.load(dialogue).await, Some(empty));
    subject.buffers.remove_buffer(&scope("a"), dialogue).await.unwrap();
    assert_eq!(subject.load(dialogue).await, None);
    subject.buffers.remove_buffer(&scope("a"), dialogue).await.unwrap();
}

async fn append_requires_the_current_head_and_advances_it(subject: &BufferSubject) {
    let dialogue = subject.dialogue();
    let (first, scope) = (subject.turn(1), scope("a"));
    let append = async |expected, turn: &BufferedTurn| {
        let appended = subject.buffers.append_turn(&scope, dialogue, expected, turn, 1).await;
        appended.unwrap()
    };
    assert!(!append(buffer_head(3, None), &first).await, "there is no buffer");
    subject.filled_snapshot(dialogue, 0).await;
    assert!(!append(buffer_head(2, None), &first).await, "another epoch");
    assert!(!append(buffer_head(3, Some(first.id)), &first).await, "another head");
    assert!(append(buffer_head(3, None), &first).await);
    let second = subject.turn(2);
    assert!(!append(buffer_head(3, None), &second).await, "the head has moved");
    assert!(append(buffer_head(3, Some(first.id)), &second).await);
    let expected = BufferSnapshot {
        head: buffer_head(3, Some(second.id)),
        turns: vec![first, second],
    };
    assert_eq!(subject.load(dialogue).await, Some(expected));
}

async fn append_drops_turns_beyond_the_limit(subject: &BufferSubject) {
    let dialogue = subject.dialogue();
    let filled = subject.filled_snapshot(dialogue, 5).await;
    let turn = subject.turn(6);
    assert!(
        subject
            .buffers
            .append_turn(&scope("a"), dialogue, filled.head, &turn, 4)
            .await
            .unwrap()
    );
    let kept: Vec<u32> = subject
        .load(dialogue)
        .await
        .unwrap()
        .turns
        .iter()
        .map(|turn| turn.number)
        .collect();
    assert_eq!(kept, [4, 5, 6]);
}

async fn concurrent_appends_to_one_head_have_one_winner(subject: &BufferSubject) {
    let dialogue = subject.dialogue();
    let filled = subject.filled_snapshot(dialogue, 1).await;
    let turns: Vec<_> = (0..16).map(|_| subject.turn(2)).collect();
    let scope = scope("a");
    let appends = turns
        .iter()
        .map(|turn| subject.buffers.append_turn(&scope, dialogue, filled.head, turn, 1));
    let appended = futures_util::future::join_all(appends).await;
    assert_eq!(
        appended
            .into_iter()
            .filter(|appended| *appended.as_ref().unwrap())
            .count(),
        1
    );
    assert_eq!(subject.load(dialogue).await.unwrap().turns.len(), 2);
}

async fn truncation_requires_another_head_and_ends_at_the_turn(subject: &BufferSubject) {
    let dialogue = subject.dialogue();
    let truncate = async |expected, last, head| {
        subject
            .buffers
            .truncate_buffer(&scope("a"), dialogue, expected, last, head)
            .await
            .unwrap()
    };
    let none = buffer_head(3, None);
    assert!(!truncate(none, 1, buffer_head(4, None)).await, "there is no buffer");
    let filled = subject.filled_snapshot(dialogue, 5).await;
    let (second, fifth) = (Some(filled.turns[1].id), Some(filled.turns[4].id));
    assert_eq!(filled.head, buffer_head(3, fifth));
    // A buffer from before another rewind must not be made to look current.
    for other in [
        buffer_head(2, fifth),
        buffer_head(4, fifth),
        buffer_head(3, second),
        none,
    ] {
        assert!(!truncate(other, 2, buffer_head(9, second)).await, "{other:?}");
    }
    assert_eq!(subject.load(dialogue).await.unwrap(), filled);
    assert!(truncate(filled.head, 2, buffer_head(4, second)).await);
    let left = subject.load(dialogue).await.unwrap();
    assert_eq!(left.turns, filled.turns[..2]);
    assert_eq!(left.head, buffer_head(4, second));
    assert!(
        truncate(left.head, u32::MAX, buffer_head(5, second)).await,
        "nothing to drop is no failure"
    );
    assert_eq!(subject.load(dialogue).await.unwrap().turns, left.turns);
    assert!(truncate(buffer_head(5, second), 0, buffer_head(6, None)).await);
    let empty = subject.load(dialogue).await.unwrap();
    assert_eq!((empty.head, empty.turns.len()), (buffer_head(6, None), 0));
}

async fn buffers_are_separate_by_tenant_and_dialogue(subject: &BufferSubject) {
    let (dialogue, other) = (subject.dialogue(), subject.dialogue());
    let filled = subject.filled_snapshot(dialogue, 2).await;
    let foreign = scope("b");
    assert_eq!(subject.buffers.load_buffer(&foreign, dialogue).await.unwrap(), None);
    assert!(
        !subject
            .buffers
            .truncate_buffer(&foreign, dialogue, filled.head, 1, buffer_head(9, None))
            .await
            .unwrap()
    );
    let turn = subject.turn(3);
    assert!(
        !subject
            .buffers
            .append_turn(&foreign, dialogue, filled.head, &turn, 1)
            .await
            .unwrap()
    );
    subject.buffers.remove_buffer(&foreign, dialogue).await.unwrap();
    assert_eq!(subject.load(other).await, None);
    assert_eq!(subject.load(dialogue).await, Some(filled));
}

async fn unused_buffer_expires_and_a_used_buffer_does_not(subject: &BufferSubject) {
    let (used, unused) = (subject.dialogue(), subject.dialogue());
    subject.filled_snapshot(used, 1).await;
    subject.filled_snapshot(unused, 1).await;
    // Uses real time, because a test cannot move the clock of another process.
    let step = TTL / 5;
    for _ in 0..8 {
        tokio::time::sleep(step).await;
        assert!(subject.load(used).await.is_some());
    }
    assert_eq!(subject.load(unused).await, None);
}

/// Without Redis, calls fail quickly with an error. Once Redis is back, the client uses Redis again, and Redis is
/// empty.
#[tokio::test]
async fn redis_outage_is_reported_and_recovery_starts_empty() {
    let mut server = RedisServer::start().await;
    let buffers = RedisBuffers::new(&options(server.url(), false), Duration::from_mins(1)).unwrap();
    let subject = BufferSubject {
        buffers: Box::new(buffers.clone()),
        ids: IdSource::from_thread_rng(Arc::new(SystemClock)),
        _server: None,
    };
    let dialogue = subject.dialogue();
    let filled = subject.filled_snapshot(dialogue, 2).await;
    server.kill();
    for _ in 0..20 {
        let gone = buffers.load_buffer(&scope("a"), dialogue).await.unwrap_err();
        assert!(matches!(gone, StoreError::Unavailable(_)), "{gone}");
    }
    server.restart().await;
    eventually("redis is used again", async || buffers.ping().await.ok()).await;
    assert_eq!(subject.load(dialogue).await, None);
    buffers.replace_buffer(&scope("a"), dialogue, &filled).await.unwrap();
    assert_eq!(subject.load(dialogue).await, Some(filled));
}

/// Nodes that share Redis see the same buffer.
#[tokio::test]
async fn buffer_written_by_one_node_is_read_by_another() {
    let server = RedisServer::start().await;
    let node = || RedisBuffers::new(&options(server.url(), false), Duration::from_mins(1)).unwrap();
    let subject = BufferSubject {
        buffers: Box::new(node()),
        ids: IdSource::from_thread_rng(Arc::new(SystemClock)),
        _server: None,
    };
    let dialogue = subject.dialogue();
    let filled = subject.filled_snapshot(dialogue, 3).await;
    assert_eq!(node().load_buffer(&scope("a"), dialogue).await.unwrap(), Some(filled));
}

/// Buffers are spread over the nodes of a cluster. The client still finds them after their slots have moved.
#[tokio::test]
async fn redis_cluster_slots_are_followed_when_moved() {
    let cluster = Arc::new(RedisCluster::start().await);
    let a_while = Duration::from_mins(1);
    let subject = subject_on(&options(cluster.url(), true), a_while, cluster.clone()).await;
    let mut all = Vec::new();
    for _ in 0..32 {
        let dialogue = subject.dialogue();
        all.push((dialogue, subject.filled_snapshot(dialogue, 2).await));
    }
    let sizes = cluster.sizes().await;
    assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
    assert_eq!((sizes.iter().sum::<u64>(), cluster.moved_redirects().await), (32, 0));
    // The client calls the old node of a moved slot and follows the redirect to the new node.
    let (tenant, nowhere) = (scope("a"), buffer_head(1, None));
    for call in 0..5 {
        let mut dialogue = subject.dialogue();
        while !cluster.move_slot_of(&format!("a:d:{{{dialogue}}}:buffer")).await {
            dialogue = subject.dialogue();
        }
        let before = cluster.moved_redirects().await;
        let (buffers, turn) = (&subject.buffers, subject.turn(1));
        match call {
            0 => assert_eq!(subject.load(dialogue).await, None),
            1 => assert!(!buffers.append_turn(&tenant, dialogue, nowhere, &turn, 1).await.unwrap()),
            2 => assert!(
                !buffers
                    .truncate_buffer(&tenant, dialogue, nowhere, 1, nowhere)
                    .await
                    .unwrap()
            ),
            3 => buffers.remove_buffer(&tenant, dialogue).await.unwrap(),
            _ => {
                let filled = subject.filled_snapshot(dialogue, 2).await;
                assert!(
                    buffers
                        .append_turn(&tenant, dialogue, filled.head, &subject.turn(3), 1)
                        .await
                        .unwrap()
                );
                assert_eq!(subject.load(dialogue).await.unwrap().turns.len(), 3);
            }
        }
        assert!(cluster.moved_redirects().await > before, "call {call} was not sent on");
    }
    for (dialogue, filled) in all {
        assert_eq!(subject.load(dialogue).await, Some(filled));
    }
}

/// The cluster node at the configured address dies. Calls for its slots fail until its replica takes over.
#[tokio::test]
async fn redis_cluster_continues_with_the_replica_of_a_dead_node() {
    let mut cluster = RedisCluster::start_replicated().await;
    let buffers = RedisBuffers::new(&options(cluster.url(), true), Duration::from_mins(1)).unwrap();
    let subject = BufferSubject {
        buffers: Box::new(buffers.clone()),
        ids: IdSource::from_thread_rng(Arc::new(SystemClock)),
        _server: None,
    };
    let (mut lost, mut others) = (Vec::new(), Vec::new());
    for _ in 0..32 {
        let dialogue = subject.dialogue();
        let filled = subject.filled_snapshot(dialogue, 2).await;
        match cluster.owner_of(&format!("a:d:{{{dialogue}}}:buffer")).await {
            0 => lost.push((dialogue, filled)),
            _ => others.push((dialogue, filled)),
        }
    }
    assert!(!lost.is_empty() && !others.is_empty());
    cluster.kill_master(0).await;
    let tenant = scope("a");
    eventually_after_outage("what the node had is found again", async || {
        for (dialogue, filled) in &lost {
            match buffers.load_buffer(&tenant, *dialogue).await {
                Ok(found) => assert_eq!(found.as_ref(), Some(filled)),
                Err(StoreError::Unavailable(_)) => return None,
                Err(other) => panic!("{other}"),
            }
        }
        Some(())
    })
    .await;
    cluster.wait_for_takeover(0).await;
    for (dialogue, filled) in lost.into_iter().chain(others) {
        assert_eq!(subject.load(dialogue).await, Some(filled.clone()));
        let turn = subject.turn(3);
        assert!(
            buffers
                .append_turn(&tenant, dialogue, filled.head, &turn, 1)
                .await
                .unwrap()
        );
    }
}

#[tokio::test]
async fn invalid_redis_address_is_rejected_without_showing_its_password() {
    for url in [
        "redis://:hunter2@",
        "http://user:hunter2@127.0.0.1:1",
        "redis://user:hunter2@host:port",
    ] {
        let options = RedisOptions {
            url: url.to_owned(),
            cluster: false,
            timeout: TTL,
        };
        let error = RedisBuffers::new(&options, TTL).err().map(|error| error.to_string());
        assert!(
            error.as_ref().is_some_and(|error| !error.contains("hunter2")),
            "{url}: {error:?}"
        );
    }
}
