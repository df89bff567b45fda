//! Saved histories, which run first every time. They failed once, and are saved automatically, or show cases that are
//! rare in random histories.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use super::{
    HistoryProperty,
    history::Op,
    history_text::{read_history, write_history},
};

/// Returns the folder with the histories of one property.
fn failure_folder(property: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/replay/regressions");
    PathBuf::from(root).join(property)
}

/// Turns a panic during a history into a failure.
pub fn catch_panic(holds: HistoryProperty, history: &[Op]) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| holds(history))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("it panicked: {}", text.unwrap_or("without a word")))
    })
}

/// Runs all saved histories of a property.
///
/// # Panics
/// With the differences and the file name, for all failing histories.
pub fn retry_saved(property: &str, holds: HistoryProperty) {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(failure_folder(property))
        .unwrap_or_else(|why| panic!("{}: {why}", failure_folder(property).display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "history"))
        .collect();
    paths.sort();
    let failures: Vec<String> = paths
        .iter()
        .filter_map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            let history = read_history(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            let why = catch_panic(holds, &history).err()?;
            Some(format!("{}\n{why}\n{text}", path.display()))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Saves a failed history, and returns a message with reason and path.
pub fn save_failure(property: &str, history: &[Op], why: &str) -> String {
    let remarks = format!("Failed, and is to be given a name that says what was wrong.\n{why}");
    let text = write_history(&remarks, history);
    let mut hasher = DefaultHasher::new();
    write_history("", history).hash(&mut hasher);
    let path = failure_folder(property).join(format!("{:016x}.history", hasher.finish()));
    match std::fs::write(&path, &text) {
        Ok(()) => format!("kept as {}\n{text}", path.display()),
        Err(failed) => format!("{} could not be written: {failed}\n{text}", path.display()),
    }
}
