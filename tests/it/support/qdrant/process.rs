//! The double as a process of its own, to be killed. It is this very program, running one test.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use super::QdrantDouble;

/// Tells the process where to listen.
const PORT: &str = "COLLOQUY_TEST_QDRANT_PORT";
/// What it says once it does.
const LISTENS: &str = "the double listens";

/// A double in a process of its own, without a disk.
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
        // Whatever else it prints must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Another one at the same address, which knows nothing.
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
