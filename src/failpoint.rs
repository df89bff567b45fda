//! Named points at which a test makes the process die, to see what is left on disk.
//!
//! Only with the cargo feature `failpoints`; otherwise [`failpoint!`] compiles to nothing. The process
//! ends by `abort`, as under kill -9: nothing is flushed, no destructor runs.

/// Every point there is, so that a test can walk over all of them and a misspelt one does not compile.
#[cfg(feature = "failpoints")]
pub const POINTS: &[&str] = &[
    // A turn.
    "turn.said",
    "turn.head",
    "turn.written",
    "turn.durable",
    "turn.buffered",
    "turn.told",
    // What it taught. `facts.lifted` and those after it are passed by settling, too.
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
    // A move of the head.
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
    // Whoever cuts in between NPCs, and joins them.
    "conversation.paused",
    "join.placed",
    "join.made",
    // A save that is loaded. Of `restore.head`, `restore.moved` and `restore.followed` the first dialogue's.
    "restore.fenced",
    "restore.head",
    "restore.moved",
    "restore.all_moved",
    "restore.audited",
    "restore.durable",
    "restore.followed",
    "restore.told",
    // Settling a memory.
    "settle.marked",
    "settle.unmarked",
    "settle.durable",
    // The outbox.
    "outbox.read",
    "outbox.indexed",
    "outbox.done",
];

/// Dies here if the test that started the process asked for it.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        {
            const { assert!($crate::failpoint::is_known($name), "a point that is not in POINTS") };
            fail::fail_point!($name);
        }
    };
}

/// The environment variable that names the point to die at.
#[cfg(feature = "failpoints")]
pub const DIE_AT_ENV: &str = "COLLOQUY_DIE_AT";

/// Lets the process die the first time it passes the point that [`DIE_AT_ENV`] names.
///
/// # Errors
/// If there is no such point.
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
pub(crate) const fn is_known(name: &str) -> bool {
    let mut at = 0;
    while at < POINTS.len() {
        if bytes_equal(POINTS[at].as_bytes(), name.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

#[cfg(feature = "failpoints")]
const fn bytes_equal(left: &[u8], right: &[u8]) -> bool {
    let mut at = 0;
    while at < left.len() && at < right.len() && left[at] == right[at] {
        at += 1;
    }
    at == left.len() && at == right.len()
}
