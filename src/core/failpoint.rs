//! Named points at which a test can kill the process, to check the state on disk.
//!
//! Active only with the cargo feature `failpoints`; otherwise [`failpoint!`] compiles to nothing. The process ends by
//! `abort`, as under kill -9: no buffer is flushed and no destructor runs.

/// All points. A test iterates over the list, and a misspelt point does not compile.
#[cfg(feature = "failpoints")]
pub const POINTS: &[&str] = &[
    // A turn.
    "turn.said",
    "turn.head",
    "turn.written",
    "turn.durable",
    "turn.buffered",
    "turn.told",
    // Facts of a turn. Reconciling a memory also passes `facts.lifted` and the points after it.
    "facts.extracted",
    "facts.passed",
    "facts.inserted",
    "facts.lifted",
    "facts.ended",
    "facts.folded",
    "facts.durable",
    // A summary.
    "summary.made",
    "summary.written",
    "summary.durable",
    // A curation pass.
    "consolidation.made",
    "consolidation.inserted",
    "consolidation.written",
    "consolidation.durable",
    "pass.made",
    "pass.written",
    "pass.durable",
    // A rewind.
    "rewind.noted",
    "rewind.planned",
    "rewind.begun",
    "rewind.unsaid",
    "rewind.unchecked",
    "rewind.jobs",
    "rewind.said_again",
    "rewind.put_back",
    "rewind.cached",
    "rewind.replaced",
    "rewind.head",
    "rewind.audited",
    "rewind.durable",
    "rewind.truncated",
    "rewind.followed",
    "rewind.told",
    // A player pauses an NPC conversation, or joins it.
    "conversation.paused",
    "join.placed",
    "join.made",
    // Restoring a save. `restore.head`, `restore.moved` and `restore.followed` concern the first dialogue.
    "restore.fenced",
    "restore.head",
    "restore.moved",
    "restore.all_moved",
    "restore.audited",
    "restore.durable",
    "restore.followed",
    "restore.told",
    // Reconciling a memory.
    "settle.marked",
    "settle.unmarked",
    "settle.durable",
    // The outbox.
    "outbox.read",
    "outbox.indexed",
    "outbox.done",
];

/// Kills the process here if the test that started the process asked for this point.
#[cfg(feature = "failpoints")]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        const {
            assert!(
                $crate::failpoint::is_listed($crate::failpoint::POINTS, $name),
                "a point that is not in POINTS"
            )
        };
        $crate::failpoint::fail::fail_point!($name);
    };
}

/// Nothing, in a build without the feature `failpoints`.
#[cfg(not(feature = "failpoints"))]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {};
}

#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub use fail;

/// The environment variable with the name of the point.
#[cfg(feature = "failpoints")]
pub const DIE_AT_ENV: &str = "COLLOQUY_DIE_AT";

/// Arms the point in [`DIE_AT_ENV`]: the process dies the first time it passes the point.
///
/// # Errors
/// If the point does not exist.
#[cfg(feature = "failpoints")]
pub fn arm_from_env() -> anyhow::Result<()> {
    let Ok(point) = std::env::var(DIE_AT_ENV) else {
        return Ok(());
    };
    anyhow::ensure!(
        POINTS.contains(&point.as_str()),
        "{DIE_AT_ENV}: there is no point {point}"
    );
    fail::cfg_callback(point, || std::process::abort()).map_err(anyhow::Error::msg)
}

#[cfg(feature = "failpoints")]
#[doc(hidden)]
#[must_use]
pub const fn is_listed(names: &[&str], name: &str) -> bool {
    let mut index = 0;
    while index < names.len() {
        if bytes_equal(names[index].as_bytes(), name.as_bytes()) {
            return true;
        }
        index += 1;
    }
    false
}

#[cfg(feature = "failpoints")]
const fn bytes_equal(bytes: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < bytes.len() && index < other.len() && bytes[index] == other[index] {
        index += 1;
    }
    index == bytes.len() && index == other.len()
}
