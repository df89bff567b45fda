//! The double as a separate process that tests can kill. The process is this test binary, running one test.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use super::QdrantDouble;

/// The variable with the process's port.
const PORT: &str = "COLLOQUY_TEST_QDRANT_PORT";
/// The output once the process listens.
const LISTENS: &str = "the double listens";

/// A double in a separate process, without a disk.
pub struct QdrantProcess {
    child: Child,
    port: u16,
}

impl QdrantProcess {
    pub fn start() -> Self {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        Self::start_at(port)
    }

    fn start_at(port: u16) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "support::qdrant::process::qdrant_double_runs_as_a_process",
                "--ignored",
                "--nocapture",
            ])
            .env(PORT, port.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        assert!(lines.any(|line| line.contains(LISTENS)), "the double did not start");
        // Reading the remaining output prevents the process from blocking.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts another, empty process at the same address.
    pub fn restart(&mut self) {
        self.kill();
        *self = Self::start_at(self.port);
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for QdrantProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
#[ignore = "it is a process of other tests"]
fn qdrant_double_runs_as_a_process() {
    let port = std::env::var(PORT).expect("started by another test").parse().unwrap();
    let _double = QdrantDouble::start_at(port, None);
    println!("{LISTENS}");
    loop {
        std::thread::park();
    }
}
