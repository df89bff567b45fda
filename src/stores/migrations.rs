//! The schema history of the ledger: the files of `migrations/`, compiled in. `sqlx::migrate!` would do the same, but
//! its macro makes the compiler build sqlx and all its dependencies a second time.

use std::sync::LazyLock;

use sqlx::{
    SqlSafeStr as _,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};

use colloquy_ports::StoreError;

/// The migration files of both engines, oldest first. A new migration adds a line below.
macro_rules! histories {
    ($($file:literal)*) => {
        pub(super) static SQLITE: LazyLock<Migrator> =
            LazyLock::new(|| build_migrator(&[$(($file, include_str!(concat!("../../migrations/sqlite/", $file, ".sql")))),*]));
        #[cfg(feature = "postgres")]
        pub(super) static POSTGRES: LazyLock<Migrator> =
            LazyLock::new(|| build_migrator(&[$(($file, include_str!(concat!("../../migrations/postgres/", $file, ".sql")))),*]));
    };
}

histories! {
    "0001_ledger"
    "0003_endings"
    "0004_locks"
    "0005_replaced"
    "0006_self_told"
    "0007_names"
    "0008_job_calls"
    "0009_taken_out"
    "0010_names_known"
    "0011_locked_standing"
    "0012_taken_out_by_knower"
    "0013_outbox_of_tenant"
    "0014_locked_promises"
    "0015_keys"
    "0016_write_probe"
    "0017_budgets"
    "0018_unused_tables"
    "0019_curator"
    "0020_lore"
    "0021_actions"
    "0022_episodes"
    "0023_game_time"
    "0024_scenario_secrets"
    "0025_open_actions"
    "0026_curation"
    "0027_directives"
    "0028_flag_decisions"
    "0029_insights"
    "0030_npc_usage"
    "0031_tenant_settings"
    "0032_consolidation"
    "0033_player_usage"
    "0034_authored_sizes"
    "0036_insight_sources"
    "0038_ended_promises"
    "0040_done_actions"
    "0046_corrected_words"
    "0047_waiting_actions"
    "0048_waiting_episodes"
    "0049_webhooks"
    "0050_chat_models"
    "0051_chat_keys"
}

/// Builds a migrator from files named `<version>_<description>`, each with its SQL text.
fn build_migrator(files: &[(&'static str, &'static str)]) -> Migrator {
    let migration = |(file, sql): &(&'static str, &'static str)| {
        let (version, description) = file.split_once('_').unwrap_or((file, ""));
        // A name without a number becomes version 0, which the test below does not find in the folder.
        let version = version.parse().unwrap_or_default();
        // sqlx derives the description from a file's name in the same way.
        let description = description.replace('_', " ");
        Migration::new(
            version,
            description.into(),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        )
    };
    Migrator::with_migrations(files.iter().map(migration).collect())
}

/// Returns the latest version known to this program.
pub(super) fn latest_version(history: &Migrator) -> i64 {
    history
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or_default()
}

/// The version of a migration whose text differed in another build, with the same resulting schema.
pub(super) const REWORDED_VERSION: i64 = 11;
/// Replaces the other build's checksum (`$2`) with this program's checksum (`$1`). The program then accepts the
/// database.
pub(super) const ADOPT_REWORDED: &str =
    "UPDATE _sqlx_migrations SET checksum = $1 WHERE version = 11 AND checksum = $2";

/// Returns the bind values of [`ADOPT_REWORDED`]: this program's checksum and the other build's checksum.
pub(super) fn reworded_checksums(history: &Migrator) -> [Vec<u8>; 2] {
    const OTHER_CHECKSUM_HEX: &str =
        "aef5fd952adfb927dc5d5a87e6fd95ab4dc1d81bbe0897400b4b8893698849061b53ea0c0fe9a47aa2b5d44a9ffaeca0";
    let migration = history.iter().find(|migration| migration.version == REWORDED_VERSION);
    let other_checksum = (0..OTHER_CHECKSUM_HEX.len()).step_by(2);
    let other_checksum =
        other_checksum.filter_map(|index| u8::from_str_radix(&OTHER_CHECKSUM_HEX[index..index + 2], 16).ok());
    [
        migration
            .map(|migration| migration.checksum.to_vec())
            .unwrap_or_default(),
        other_checksum.collect(),
    ]
}

/// Explains why `database` was not migrated.
pub(super) fn migration_error(database: &str, error: &MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(version) => StoreError::Rejected(format!(
            "the database {database} was written by a newer version of this program (migration {version}): \
             run that version, or restore a backup from before the upgrade"
        )),
        MigrateError::VersionMismatch(version) => StoreError::Rejected(format!(
            "migration {version} of the database {database} differs from the one this program carries: \
             it was written by another build"
        )),
        other => StoreError::Unavailable(format!("cannot migrate the database {database}: {other}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;

    #[tokio::test]
    async fn compiled_migrations_match_the_migration_folders() {
        for (engine, history) in [("sqlite", &SQLITE), ("postgres", &POSTGRES)] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../migrations")
                .join(engine);
            let files = Migrator::new(folder.as_path()).await.unwrap();
            let told = |history: &Migrator| -> Vec<_> {
                let told = |m: &Migration| (m.version, m.description.to_string(), m.checksum.to_vec(), m.no_tx);
                history.iter().map(told).collect()
            };
            assert_eq!(told(history), told(&files), "{engine}");
        }
    }

    #[test]
    fn landed_migrations_are_unchanged() {
        let pinned = include_str!("../../migrations/checksums.txt");
        let pinned: Vec<&str> = pinned.lines().filter(|line| !line.starts_with('#')).collect();
        let mut carried = Vec::new();
        for (engine, history) in [("sqlite", &SQLITE), ("postgres", &POSTGRES)] {
            for migration in history.iter() {
                let name = format!("{:04}_{}", migration.version, migration.description.replace(' ', "_"));
                let checksum = migration
                    .checksum
                    .iter()
                    .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
                carried.push(format!("{name} {engine} {checksum}"));
            }
        }
        for line in &pinned {
            let file = line.rsplit_once(' ').unwrap().0;
            assert!(
                carried.iter().any(|carried| carried == line),
                "the migration {file} was edited or removed: databases that have it would not open. \
                 Put it back as it was, and write what is to change as a new migration"
            );
        }
        for line in &carried {
            assert!(
                pinned.contains(&line.as_str()),
                "a new migration: add this line to migrations/checksums.txt when it is as it shall stay\n{line}"
            );
        }
    }
}
