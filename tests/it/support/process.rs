//! What befalls a process from outside, by its id.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::eventually;

/// Sends a signal by its name, as `TERM`. `false`: there is no such process any more.
pub fn signal(name: &str, process: u32) -> bool {
    let told = Command::new("kill")
        .args([&format!("-{name}"), &process.to_string()])
        .stderr(Stdio::null())
        .status();
    told.unwrap().success()
}

/// Has it stand still until [`thaw`]: the system accepts connections for it, and nothing is answered. Returns once all of
/// it does: on a busy machine one thread may run on for a while before another has taken the signal.
///
/// # Panics
/// If it does not stop, or there is none.
pub async fn freeze(process: u32) {
    assert!(signal("STOP", process));
    eventually("a process to stop", || async { is_frozen(process).then_some(()) }).await;
}

/// Lets it go on where it was.
///
/// # Panics
/// If there is none.
pub fn thaw(process: u32) {
    assert!(signal("CONT", process));
}

fn is_frozen(process: u32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    // One that has ended meanwhile runs no more.
    threads.all(|thread| stat(&thread.path()).is_none_or(|stat| stat[0] == "T"))
}

/// Those that it started and that have not ended.
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

/// The words behind the name in a process' or thread's `stat`: first its state, second its parent.
fn stat(of: &Path) -> Option<Vec<String>> {
    let stat = fs::read_to_string(of.join("stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    Some(behind.split_whitespace().map(str::to_owned).collect())
}
