//! What the balancer of `docker/haproxy` lets through.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

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
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: players\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where there is no HAProxy, only what it would be told is looked at.
#[test]
fn what_is_not_public_stays_inside() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/haproxy/haproxy.cfg");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("deny deny_status 404 if !public or climbs"));
    let is_there = Command::new("haproxy").arg("-v").stdout(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        println!("haproxy is not installed");
        return;
    }
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let port = {
            let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            free.local_addr().unwrap().port()
        };
        let config = folder.path().join("haproxy.cfg");
        // A port of its own, and no more descriptors than anybody may have.
        let text = text.replace("bind :8080", &format!("bind 127.0.0.1:{port}"));
        let text = text.replace("maxconn 50000", "maxconn 200");
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-f").arg(&config).arg("-db");
        for node in 1..=3 {
            command.env(format!("NODE_{node}"), format!("127.0.0.1:{}", a_node()));
        }
        let _haproxy = Killed(command.stdout(Stdio::null()).spawn().unwrap());
        eventually("the balancer to let something through", || async {
            (status(port, "/readyz") == Some(200)).then_some(())
        })
        .await;
        for public in [
            "/",
            "/v1/ws",
            "/v1/sessions?limit=1",
            "/v1/sessions/ses_1:rewind",
            "/openai/v1/models",
            "/docs/",
            "/openapi.json",
        ] {
            assert_eq!(status(port, public), Some(200), "{public}");
        }
        for inside in [
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
