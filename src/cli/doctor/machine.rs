//! The machine and the stores: the data folder, the ledger, Redis, Qdrant, the clock, and the limits.

use std::{path::Path, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::{Instant, timeout};

use super::report::Check;
use crate::{
    app::{
        descriptors::{DescriptorRoom, descriptor_room},
        store_probes,
    },
    config::Config,
};
use colloquy_ports::{
    StoreResult,
    clock::{Clock as _, SystemClock},
};

/// A clock before this moment was never set: 2025-01-01.
const EARLIEST: DateTime<Utc> = DateTime::from_timestamp(1_735_689_600, 0).expect("a valid time");
/// Asks the stores. `dimensions`: the length of the embedder's vectors, 0 if unknown.
pub(super) async fn ask_stores(config: &Config, limit: Duration, dimensions: usize) -> Vec<Check> {
    let mut checks = vec![check_folder(&config.data_dir), check_ledger(config, limit).await];
    let redis = bounded(limit, store_probes::ping_buffers(config)).await;
    checks.extend(judge_service("buffers", "Redis", "buffer.url", &redis));
    let qdrant = bounded(limit, store_probes::ping_index(config, dimensions)).await;
    checks.extend(judge_service("index", "Qdrant", "vectors.url", &qdrant));
    checks.push(check_clock(config, limit).await);
    checks
}

/// Runs a question within the limit. `Err`: the fault in words.
async fn bounded<T>(limit: Duration, request: impl Future<Output = StoreResult<T>>) -> Result<T, String> {
    match timeout(limit, request).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

/// Whether a server can write into the data folder, or make the folder.
fn check_folder(folder: &Path) -> Check {
    let existing = folder.ancestors().find(|path| path.exists());
    let nearest = match existing {
        Some(path) if path.as_os_str().is_empty() => Path::new("."),
        Some(path) => path,
        None => Path::new("."),
    };
    match tempfile::tempfile_in(nearest) {
        Ok(_) => Check::ok("data folder", format!("{} can be written", folder.display())),
        Err(error) => Check::fail(
            "data folder",
            format!("{} cannot be written: {error}", nearest.display()),
        )
        .advise("Give the folder to the server's user, or set data_dir."),
    }
}

async fn check_ledger(config: &Config, limit: Duration) -> Check {
    let name = config.ledger_name();
    if store_probes::ledger_file(config).is_some_and(|file| !file.exists()) {
        return Check::ok("ledger", format!("{name} does not exist yet; the first start makes it"));
    }
    let started_at = Instant::now();
    let answer = bounded(limit, store_probes::read_ledger(config)).await;
    judge_ledger(&name, &answer, started_at.elapsed())
}

fn judge_ledger(name: &str, answer: &Result<(), String>, elapsed: Duration) -> Check {
    match answer {
        Ok(()) => Check::ok(
            "ledger",
            format!(
                "{name} answers, connection included, in {:.0} ms",
                elapsed.as_secs_f64() * 1e3
            ),
        ),
        Err(error) => Check::fail("ledger", format!("{name}: {error}"))
            .advise("Check ledger.url and the database's user. `colloquy migrate` updates a schema."),
    }
}

/// Judges a store that is a service. `Ok(false)`: the store is embedded.
fn judge_service(check: &'static str, store: &str, key: &str, answer: &Result<bool, String>) -> Option<Check> {
    match answer {
        Ok(false) => None,
        Ok(true) => Some(Check::ok(check, format!("{store} answers"))),
        Err(error) => Some(
            Check::warn(check, format!("{store}: {error}"))
                .advise(format!("The server starts without it, and is slower. Check {key}.")),
        ),
    }
}

async fn check_clock(config: &Config, limit: Duration) -> Check {
    let now = SystemClock.now();
    let started_at = Instant::now();
    let database_time = bounded(limit, store_probes::ledger_time(config)).await.ok().flatten();
    let elapsed = started_at.elapsed();
    judge_clock(now, database_time, elapsed, Duration::from_millis(config.node.lease_ms))
}

/// Compares this clock with the ledger's, which was read within `elapsed` after `now`.
fn judge_clock(now: DateTime<Utc>, database_time: Option<DateTime<Utc>>, elapsed: Duration, lease: Duration) -> Check {
    if now < EARLIEST {
        return Check::fail("clock", format!("it is {now} here"))
            .advise("Set the machine's clock: memories would be dated wrongly, and tokens refused.");
    }
    let Some(database_time) = database_time else {
        return Check::ok("clock", format!("it is {} UTC here", now.format("%Y-%m-%d %H:%M:%S")));
    };
    let halfway = TimeDelta::from_std(elapsed / 2).unwrap_or_default();
    let apart = (database_time - (now + halfway))
        .abs()
        .to_std()
        .unwrap_or(Duration::MAX);
    let finding = format!("{:.2} s apart from the database's clock", apart.as_secs_f64());
    if apart > lease / 3 + elapsed / 2 {
        return Check::fail("clock", finding).advise("Synchronise the clocks of both machines (NTP).");
    }
    Check::ok("clock", finding)
}

/// The limits of the machine and of the settings.
pub(super) fn check_limits(config: &Config) -> Vec<Check> {
    let mut checks: Vec<Check> = descriptor_room(config)
        .as_ref()
        .map(judge_descriptors)
        .into_iter()
        .collect();
    checks.push(judge_player_limit(
        config.limits.player_turns_per_min,
        config.auth.needs_secret(),
    ));
    checks
}

fn judge_descriptors(room: &DescriptorRoom) -> Check {
    let finding = format!(
        "room for {} connections within {} descriptors, where {} are allowed",
        room.room, room.limit, room.allowed_connections
    );
    if room.room >= room.allowed_connections {
        return Check::ok("descriptors", finding);
    }
    Check::warn("descriptors", finding)
        .advise("Raise the hard limit (ulimit -Hn) for that many sockets, or lower socket.max_open.")
}

/// A server on loopback has a secret of its own, and players who are its developers.
fn judge_player_limit(lines_per_min: u32, is_local: bool) -> Check {
    let name = "player limit";
    match lines_per_min {
        0 if is_local => Check::ok(name, "players may say any number of lines"),
        0 => Check::warn(
            name,
            "players may say any number of lines, and each costs a call of the model",
        )
        .change("limits.player_turns_per_min", 20),
        lines => Check::ok(
            name,
            format!("a player may say {lines} lines a minute (limits.player_turns_per_min); further lines get 429"),
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::report::Verdict, *};

    const LEASE: Duration = Duration::from_secs(6);

    #[test]
    fn clock_is_compared_with_the_ledger() {
        let now = EARLIEST + TimeDelta::days(900);
        let judge = |database_time, elapsed| judge_clock(now, database_time, elapsed, LEASE).verdict;
        assert_eq!(judge(None, Duration::ZERO), Verdict::Ok);
        assert_eq!(judge(Some(now + TimeDelta::seconds(1)), Duration::ZERO), Verdict::Ok);
        assert_eq!(judge(Some(now + TimeDelta::seconds(30)), Duration::ZERO), Verdict::Fail);
        // Within half the round trip the difference is unknown.
        assert_eq!(
            judge(Some(now + TimeDelta::seconds(4)), Duration::from_secs(8)),
            Verdict::Ok
        );
        let unset = judge_clock(DateTime::UNIX_EPOCH, None, Duration::ZERO, LEASE);
        assert_eq!(unset.verdict, Verdict::Fail);
    }

    #[test]
    fn folder_that_does_not_exist_is_made_by_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("deep/data");
        assert_eq!(check_folder(&folder).verdict, Verdict::Ok);
        assert!(!folder.exists());
    }

    #[test]
    fn stores_that_do_not_answer_are_named_with_their_setting() {
        assert_eq!(judge_service("buffers", "Redis", "buffer.url", &Ok(false)), None);
        let check = judge_service("buffers", "Redis", "buffer.url", &Err("refused".into())).unwrap();
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.advice.contains("buffer.url"), "{check}");
        let failed = judge_ledger("postgres://db/x", &Err("no route".into()), Duration::ZERO);
        assert_eq!(failed.verdict, Verdict::Fail);
        assert!(
            failed.finding.contains("postgres://db/x") && failed.advice.contains("ledger.url"),
            "{failed}"
        );
        assert_eq!(judge_ledger("x", &Ok(()), Duration::ZERO).verdict, Verdict::Ok);
    }

    #[test]
    fn limits_are_told() {
        let room = |room| DescriptorRoom {
            limit: 1_024,
            room,
            allowed_connections: 500,
        };
        assert_eq!(judge_descriptors(&room(500)).verdict, Verdict::Ok);
        assert_eq!(judge_descriptors(&room(499)).verdict, Verdict::Warn);
        assert!(
            judge_player_limit(20, true)
                .finding
                .contains("limits.player_turns_per_min")
        );
        assert_eq!(judge_player_limit(0, true).verdict, Verdict::Ok);
        assert_eq!(judge_player_limit(0, false).changes[0].value, 20);
    }
}
