//! What the balancer of `docker/haproxy` lets through.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use colloquy::http::errors::{Code, ProblemBody};

use crate::support::{eventually, run};

/// Answers every request, so that what is refused was refused by the balancer.
fn a_node() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut request = Vec::new();
                let mut some = [0; 1_024];
                while !request.windows(4).any(|four| four == b"\r\n\r\n") {
                    match client.read(&mut some) {
                        Ok(read) if read > 0 => request.extend_from_slice(&some[..read]),
                        _ => return,
                    }
                }
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            });
        }
    });
    port
}

/// The status of a path that is sent as it is written here.
fn status(port: u16, path: &str) -> Option<u16> {
    answer(port, path)?.split(' ').nth(1)?.parse().ok()
}

fn answer(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: players\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Debian's is where only root looks.
fn haproxy() -> Command {
    let of_debian = Path::new("/usr/sbin/haproxy");
    Command::new(if of_debian.exists() {
        of_debian
    } else {
        Path::new("haproxy")
    })
}

/// HAProxy with the shipped configuration on a port of its own, and its nodes on `nodes`.
///
/// # Panics
/// If it is not installed: `scripts/test.sh` installs it.
fn balancer(nodes: [u16; 3]) -> (u16, Killed, tempfile::TempDir) {
    let is_there = haproxy().arg("-v").stdout(Stdio::null()).status();
    assert!(
        is_there.is_ok_and(|status| status.success()),
        "haproxy is not installed (Debian: apt-get install haproxy)"
    );
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = folder.path().join("haproxy.cfg");
    // A port of its own, and no more descriptors than anybody may have.
    let text = shipped().replace("bind :8080", &format!("bind 127.0.0.1:{port}"));
    let text = text.replace("maxconn 50000", "maxconn 200");
    std::fs::write(&config, text).unwrap();
    let haproxy = || {
        let mut command = haproxy();
        for (node, port) in (1..).zip(nodes) {
            command.env(format!("NODE_{node}"), format!("127.0.0.1:{port}"));
        }
        command.arg("-f").arg(&config).stdout(Stdio::null());
        command
    };
    let checked = haproxy().arg("-c").status().unwrap();
    assert!(checked.success(), "haproxy refuses its configuration");
    let running = Killed(haproxy().arg("-db").spawn().unwrap());
    (port, running, folder)
}

fn shipped() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/haproxy/haproxy.cfg");
    std::fs::read_to_string(file).unwrap()
}

fn free_port() -> u16 {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    free.local_addr().unwrap().port()
}

/// With no node to ask, a client is told what a server would tell it whose stores are away.
#[test]
fn where_no_node_is_ready_the_balancer_says_so() {
    let text = shipped();
    let problem = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("http-error status 503 "));
    let problem = problem.expect("no body for 503");
    let (begin, end) = (problem.find('{').unwrap(), problem.rfind('}').unwrap());
    let problem: serde_json::Value = serde_json::from_str(&problem[begin..=end]).unwrap();
    let code = Code::StoreUnavailable;
    assert_eq!(problem["code"], code.as_str());
    assert_eq!(problem["type"], format!("about:blank#{}", code.as_str()));
    assert_eq!(
        (&problem["title"], &problem["status"]),
        (&code.title().into(), &503.into())
    );
    let body: ProblemBody = serde_json::from_value(problem.clone()).unwrap();
    assert!(body.detail.contains("try again"));
    let (port, _haproxy, _folder) = balancer([free_port(), free_port(), free_port()]);
    run(async {
        let answer = eventually("the balancer to answer", || async {
            answer(port, "/v1/worlds").filter(|answer| answer.starts_with("HTTP/1.1 503"))
        })
        .await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_lowercase();
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        assert!(head.contains("retry-after: 1"), "{head}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap(), problem);
    });
}

#[test]
fn what_is_not_public_stays_inside() {
    let (port, _haproxy, _folder) = balancer([a_node(), a_node(), a_node()]);
    run(async {
        eventually("the balancer to let something through", || async {
            (status(port, "/readyz") == Some(200)).then_some(())
        })
        .await;
        for public in [
            "/",
            "/v1/ws",
            "/v1/sessions?limit=1",
            "/v1/sessions/ses_1:rewind",
            "/docs/",
            "/openapi.json",
        ] {
            assert_eq!(status(port, public), Some(200), "{public}");
        }
        for inside in [
            "/openai/v1/models",
            "/metrics",
            "/%6Detrics",
            "/%6d%65trics",
            "//metrics",
            "/metrics/",
            "/metrics?x=/v1/",
            "/internal/v1/notices",
            "/v1/../metrics",
            "/v1/%2e%2e/metrics",
            "/v1/..%2Finternal/v1/notices",
        ] {
            assert_eq!(status(port, inside), Some(404), "{inside}");
        }
    });
}
