//! Signals to a process, by its id.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::eventually;

/// Sends a signal by name, such as `TERM`. Returns `false` if the process is gone.
pub fn signal(name: &str, process: u32) -> bool {
    let told = Command::new("kill")
        .args([&format!("-{name}"), &process.to_string()])
        .stderr(Stdio::null())
        .status();
    told.unwrap().success()
}

/// Freezes a process until [`thaw`]: the system accepts its connections, without answers. Returns once all threads are
/// stopped; on a busy machine, some threads run on for a while.
///
/// # Panics
/// If the process does not stop or does not exist.
pub async fn freeze(process: u32) {
    assert!(signal("STOP", process));
    eventually("a process to stop", || async { is_frozen(process).then_some(()) }).await;
}

/// Lets a frozen process continue.
///
/// # Panics
/// If the process does not exist.
pub fn thaw(process: u32) {
    assert!(signal("CONT", process));
}

fn is_frozen(process: u32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    // A thread that ended meanwhile counts as frozen.
    threads.all(|thread| stat(&thread.path()).is_none_or(|stat| stat[0] == "T"))
}

/// Returns the running child processes of `parent`.
pub fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let of: u32 = stat(&entry.path())?[1].parse().ok()?;
            (of == parent).then_some(process)
        })
        .collect()
}

/// Returns the words after the name in the `stat` of a process or thread: state, parent, and so on.
fn stat(of: &Path) -> Option<Vec<String>> {
    let stat = fs::read_to_string(of.join("stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    Some(behind.split_whitespace().map(str::to_owned).collect())
}
