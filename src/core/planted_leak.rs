//! Named leaks that a test can plant, to check that other tests find a secret where the secret must not be.
//!
//! Only with the cargo feature `failpoints`; otherwise [`planted_leak!`](crate::planted_leak!) is the constant `false`.

#[cfg(feature = "failpoints")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// All leaks. A test plants each one, and a misspelt name does not compile.
#[cfg(feature = "failpoints")]
pub const LEAKS: &[&str] = &[
    // Authored content.
    "scenario.locked",
    "lore.locked",
    "lore.guarded",
    // Facts.
    "locks.hearers",
    "facts.locks",
    "facts.audience",
    "recall.rarity",
    // What else an NPC knows of players.
    "state.relationships",
    "episodes.removed",
    // Turns that were taken back, and lists.
    "facts.unsaid",
    "sessions.cursor",
];

/// The index of the planted leak in [`LEAKS`], plus one; 0: none.
#[cfg(feature = "failpoints")]
static PLANTED: AtomicUsize = AtomicUsize::new(0);

/// Plants one leak in the process in place of an earlier leak, or none.
///
/// # Panics
/// If the leak is not in [`LEAKS`].
#[cfg(feature = "failpoints")]
pub fn plant_leak(name: Option<&str>) {
    let index = |name| {
        let index = LEAKS.iter().position(|leak| *leak == name);
        index.unwrap_or_else(|| panic!("there is no leak {name}")) + 1
    };
    PLANTED.store(name.map_or(0, index), Ordering::SeqCst);
}

#[cfg(feature = "failpoints")]
#[doc(hidden)]
#[must_use]
pub fn is_planted(name: &str) -> bool {
    let planted = PLANTED.load(Ordering::Relaxed);
    planted > 0 && LEAKS[planted - 1] == name
}

/// True if a test has planted this leak.
#[cfg(feature = "failpoints")]
#[macro_export]
macro_rules! planted_leak {
    ($name:literal) => {{
        const {
            assert!(
                $crate::failpoint::is_listed($crate::planted_leak::LEAKS, $name),
                "a leak that is not in LEAKS"
            )
        };
        $crate::planted_leak::is_planted($name)
    }};
}

/// Always `false`, in a build without the feature `failpoints`.
#[cfg(not(feature = "failpoints"))]
#[macro_export]
macro_rules! planted_leak {
    ($name:literal) => {
        false
    };
}
