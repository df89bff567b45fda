//! The locks a rewind waits for on Postgres, where many writers work at once.

use std::time::Duration;

use colloquy::{
    ids::{NpcId, WorldId},
    memory::{disclosure::audience::Knower, fact::NewFact},
    ports::ledger::{
        facts::ReconcileOutcome,
        priority::{in_background, with_interactive_priority, with_urgent_priority},
        rewinds::RewindCommitResult,
    },
    tenancy::TenantScope,
};
use futures_util::future::join_all;
use sqlx::Connection as _;

use super::{
    fixture::Fixture,
    postgres::{PostgresSubject, lock_world_memory, set_tenant},
    rewind_fixtures::dialogue_with_turns,
};
use crate::support::eventually;

/// Waits until `many` queries are blocked by other queries in the database.
async fn wait_for_blocked_queries(f: &Fixture<PostgresSubject>, many: i64) {
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("many to wait for each other", || async {
        let mut watching = f.subject.database.connect().await;
        let now: i64 = sqlx::query_scalar(waits).fetch_one(&mut watching).await.unwrap();
        (now >= many).then_some(())
    })
    .await;
}

/// One job learns for the NPC that hears the dialogue, and one for another NPC. A person writes a fact.
#[tokio::test]
async fn rewind_locks_only_the_memories_of_listeners() {
    let f = Fixture::<PostgresSubject>::new().await;
    let (moved, same, other) = (
        dialogue_with_turns(&f, 2).await,
        dialogue_with_turns(&f, 1).await,
        dialogue_with_turns(&f, 1).await,
    );
    moved.learn_fact(&f, 2, "The bridge is out.", &[]).await;
    let shared = same.fact_plan(&f, 1, "The mill burned down.", &[]).await;
    let mut apart = other.fact_plan(&f, 1, "The well is dry.", &[]).await;
    let stranger: NpcId = "stranger".parse().unwrap();
    apart.npcs = vec![stranger.clone()];
    apart.expected_memory_seq = 0;
    apart.facts[0].audience.knowers = [Knower::Npc(stranger)].into();
    let mut holding = f.subject.database.connect().await;
    set_tenant(&mut holding, "studio").await;
    let mut held = holding.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM dialogues WHERE id = $1 FOR UPDATE")
        .bind(moved.id().to_string())
        .execute(&mut *held)
        .await
        .unwrap();
    let facts = &f.ledger().facts;
    let move_to = moved.rewind_request_to(&f, Some(moved.turn(1)));
    let moving = f.ledger().rewinds.commit_rewind(&f.scope, &move_to);
    let others = async {
        wait_for_blocked_queries(&f, 1).await;
        let written = facts.commit_reconciliation(&f.scope, &apart).await.unwrap();
        assert_eq!(written, ReconcileOutcome::Committed, "another NPC's memory");
        let (fact, edit) = (f.sample_fact("A person's."), f.audit_edit("fact.create"));
        let learning = facts.commit_reconciliation(&f.scope, &shared);
        let creating = async {
            // The job queues before the edit.
            wait_for_blocked_queries(&f, 2).await;
            facts.create_fact(&f.scope, &fact, false, &edit).await
        };
        let releasing = async {
            wait_for_blocked_queries(&f, 2).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(
                facts.load_fact(&f.scope, fact.id).await.unwrap(),
                None,
                "all of the world's memory"
            );
            held.commit().await.unwrap();
        };
        let (learned, created, ()) = tokio::join!(learning, creating, releasing);
        assert_eq!(learned.unwrap(), ReconcileOutcome::MemoryMoved, "the same NPC's memory");
        created.unwrap();
    };
    let (outcome, ()) = tokio::join!(moving, others);
    assert!(matches!(outcome.unwrap(), RewindCommitResult::Done(rewound) if rewound.rolled_back.facts == 1));
}

/// Another node holds the memories of two worlds. Jobs of both worlds wait for the locks.
#[tokio::test]
async fn background_work_leaves_connections_to_interactive_work() {
    let f = Fixture::<PostgresSubject>::new().await;
    let mut worlds = Vec::new();
    let mut other = f.subject.database.connect().await;
    let mut held = other.begin().await.unwrap();
    for name in [f.world.as_str(), "second", "third"] {
        let world = f.put_world(name).await.id;
        if name != "third" {
            lock_world_memory(&f, &mut held, &world).await;
        }
        worlds.push(world);
    }
    let facts = &f.ledger().facts;
    let learn = async |world: &WorldId| {
        let edit = f.audit_edit("fact.create");
        let fact = NewFact {
            world: world.clone(),
            ..f.sample_fact("The bridge is out.")
        };
        facts.create_fact(&f.scope, &fact, false, &edit).await.map(drop)
    };
    let jobs = in_background(async {
        // One world has more writes than connections. The writes take no room from other worlds.
        let (one, another) = (&worlds[0], &worlds[1]);
        tokio::join!(learn(one), learn(one), learn(one), learn(another))
    });
    let others = async {
        wait_for_blocked_queries(&f, 2).await;
        let mut read = Box::pin(in_background(facts.memory_position(&f.scope, &worlds[2], &[])));
        let soon = tokio::time::timeout(Duration::from_millis(100), read.as_mut()).await;
        assert!(
            soon.is_err(),
            "there are two connections for those that nobody waits for"
        );
        // Interactive calls have the remaining connections.
        learn(&worlds[2]).await.unwrap();
        in_background(with_interactive_priority(learn(&worlds[2])))
            .await
            .unwrap();
        held.rollback().await.unwrap();
        read.await.unwrap();
    };
    let ((first, second, third, fourth), ()) = tokio::join!(jobs, others);
    for learned in [first, second, third, fourth] {
        learned.unwrap();
    }
}

/// A connection has prepared plans for its previous kind of work.
#[tokio::test]
async fn connection_is_given_to_the_same_kind_of_work() {
    let f = Fixture::<PostgresSubject>::new().await;
    let world = f.put_world("vale").await.id;
    let facts = &f.ledger().facts;
    let read = async |scope: &TenantScope| {
        facts.memory_position(scope, &world, &[]).await.unwrap();
    };
    let mut watching = f.subject.database.connect().await;
    let mut last = async || -> i32 {
        let newest = "SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
            ORDER BY query_start DESC LIMIT 1";
        sqlx::query_scalar(newest).fetch_one(&mut watching).await.unwrap()
    };
    let mut each = async |scope: &TenantScope| {
        read(scope).await;
        let usual = last().await;
        in_background(read(scope)).await;
        let background = last().await;
        with_urgent_priority(read(scope)).await;
        [usual, background, last().await]
    };
    let [usual, background, first] = each(&f.scope).await;
    assert!(usual != background && usual != first && background != first);
    assert_eq!(each(&f.scope).await, [usual, background, first]);
    // Rewinds keep their connection out of four while another connection is free, for every tenant.
    join_all((0..3).map(|_| read(&f.scope))).await;
    assert_eq!(each(&f.scope).await[2], first);
    let other = TenantScope::new("other".parse().unwrap());
    assert_eq!(each(&other).await[2], first);
}

/// A job is writing a summary of turns up to an unsaid turn. The summary evicts an older summary.
#[tokio::test]
async fn rows_written_by_a_job_during_a_rewind_are_lifted_with_its_turn() {
    let f = Fixture::<PostgresSubject>::new().await;
    let mut told = dialogue_with_turns(&f, 2).await;
    let (first, second) = (told.turn(1), told.turn(2));
    let mut connection = f.subject.database.connect().await;
    set_tenant(&mut connection, "studio").await;
    let mut job = connection.begin().await.unwrap();
    for statement in [
        "UPDATE jobs SET status = 'done' WHERE turn = $1",
        "INSERT INTO summary_changes (tenant, summary, change, by_summary, cause_kind, cause_id, at)
            VALUES ('studio', 'sum_older', 'evict', 'sum_newer', 'turn', $1, 0)",
        "INSERT INTO summary_changes (tenant, summary, change, by_summary, cause_kind, cause_id, at)
            VALUES ('studio', 'sum_other', 'fade', 'sum_newer', 'turn', $1, 0)",
    ] {
        let written = sqlx::query(statement).bind(second.to_string()).execute(&mut *job).await;
        assert_eq!(written.unwrap().rows_affected(), 1);
    }
    let landing = async {
        wait_for_blocked_queries(&f, 1).await;
        job.commit().await.unwrap();
    };
    let (rewound, ()) = tokio::join!(told.rewind_to(&f, Some(first)), landing);
    assert_eq!(rewound.removed, [2]);
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM summary_changes WHERE lifted_at IS NULL")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(left, 0, "nothing of the summary stands");
}
