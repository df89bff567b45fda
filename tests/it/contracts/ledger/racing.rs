//! What a rewind on Postgres waits for: there is more than one writer there.

use std::time::Duration;

use sqlx::Connection as _;

use super::{
    fixture::Fixture,
    postgres::{PostgresSubject, set_tenant},
    told::told,
};

/// A summary of the turns up to one that is taken back is just being written, and pushes an older one out.
#[tokio::test]
async fn what_a_job_writes_while_its_turn_is_taken_back_is_lifted_with_it() {
    let f = Fixture::<PostgresSubject>::new().await;
    let mut told = told(&f, 2).await;
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
        let mut watching = f.subject.database.connect().await;
        let waits = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while sqlx::query_scalar::<_, i64>(waits)
            .fetch_one(&mut watching)
            .await
            .unwrap()
            == 0
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        job.commit().await.unwrap();
    };
    let (rewound, ()) = tokio::join!(told.back(&f, Some(first)), landing);
    assert_eq!(rewound.removed, [2]);
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM summary_changes WHERE lifted_at IS NULL")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(left, 0, "nothing of the summary stands");
}
