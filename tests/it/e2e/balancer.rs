//! The requests that the balancers of `docker/haproxy` and `docker/nginx` forward.

use std::{
    cell::RefCell,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use colloquy::http::errors::{Code, ProblemBody};

use crate::support::{eventually, run};

/// Starts a node that answers every request, so that any refusal comes from the balancer.
fn start_node() -> u16 {
    counting_node(&Arc::default())
}

/// Starts a node that counts requests starting with `POST`. It answers an upgrade with the received headers.
fn counting_node(posts: &Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let posts = Arc::clone(posts);
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let posts = Arc::clone(&posts);
            thread::spawn(move || {
                let mut request = Vec::new();
                let mut some = [0; 1_024];
                while !request.windows(4).any(|four| four == b"\r\n\r\n") {
                    match client.read(&mut some) {
                        Ok(read) if read > 0 => request.extend_from_slice(&some[..read]),
                        _ => return,
                    }
                }
                let head = String::from_utf8_lossy(&request).to_lowercase();
                if head.starts_with("post") {
                    posts.fetch_add(1, Ordering::SeqCst);
                }
                if head.contains("\r\nupgrade: websocket\r\n") && head.contains("\r\nconnection: upgrade\r\n") {
                    let switching = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
                    let _ = client.write_all(format!("{switching}{head}").as_bytes());
                    return;
                }
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            });
        }
    });
    port
}

/// Returns the status of `path`, sent without normalisation.
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

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// On Debian, HAProxy is in a folder only on root's path.
fn haproxy() -> Command {
    let of_debian = Path::new("/usr/sbin/haproxy");
    Command::new(if of_debian.exists() {
        of_debian
    } else {
        Path::new("haproxy")
    })
}

/// Starts HAProxy with the shipped configuration on a free port, with its nodes on `nodes`.
///
/// # Panics
/// If HAProxy is not installed. `scripts/test.sh` installs it.
fn balancer(nodes: [u16; 3]) -> (u16, KillOnDrop, tempfile::TempDir) {
    let is_there = haproxy().arg("-v").stdout(Stdio::null()).status();
    assert!(
        is_there.is_ok_and(|status| status.success()),
        "haproxy is not installed (Debian: apt-get install haproxy)"
    );
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = folder.path().join("haproxy.cfg");
    // Uses a free port, and fewer descriptors than an ordinary user's limit.
    let text = shipped_config().replace("bind :8080", &format!("bind 127.0.0.1:{port}"));
    let text = text.replace("maxconn 50000", "maxconn 200");
    // Uses shorter timeouts and lower limits.
    let text = text.replace("timeout http-request 10s", "timeout http-request 1s");
    let text = text.replace(
        "sc0_conn_cur gt 1000",
        &format!("sc0_conn_cur gt {CONNECTIONS_PER_ADDRESS}"),
    );
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
    let running = KillOnDrop(haproxy().arg("-db").spawn().unwrap());
    (port, running, folder)
}

/// The number of connections per address allowed in the tests.
const CONNECTIONS_PER_ADDRESS: usize = 8;

/// Starts nginx, like [`balancer`].
///
/// # Panics
/// If nginx is not installed. `scripts/test.sh` installs it.
fn nginx(nodes: [u16; 3]) -> (u16, KillOnDrop, tempfile::TempDir) {
    let of_debian = Path::new("/usr/sbin/nginx");
    let program = if of_debian.exists() {
        of_debian
    } else {
        Path::new("nginx")
    };
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = folder.path().join("nginx.conf");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/nginx/nginx.conf");
    let mut text = std::fs::read_to_string(file).unwrap();
    let mut replace = |old: &str, new: &str| {
        assert!(text.contains(old), "nginx.conf has no {old}");
        text = text.replace(old, new);
    };
    replace("listen 8080;", &format!("listen 127.0.0.1:{port};"));
    replace("/tmp/", &format!("{}/", folder.path().display()));
    replace("worker_processes auto;", "worker_processes 1;");
    replace("worker_rlimit_nofile 131072;", "");
    replace("worker_connections 50000;", "worker_connections 200;");
    replace("body_timeout 10s;", "body_timeout 1s;");
    replace("addresses 1000;", &format!("addresses {CONNECTIONS_PER_ADDRESS};"));
    for (node, port) in (7..).zip(nodes) {
        replace(&format!("10.0.0.{node}:8080"), &format!("127.0.0.1:{port}"));
    }
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    command.arg("-p").arg(folder.path()).arg("-c").arg(&config);
    command.args(["-e", "stderr", "-g", "daemon off; master_process off;"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let running = command.spawn();
    let running = running.expect("nginx is not installed (Debian: apt-get install nginx-light)");
    (port, KillOnDrop(running), folder)
}

fn shipped_config() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/haproxy/haproxy.cfg");
    std::fs::read_to_string(file).unwrap()
}

fn free_port() -> u16 {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    free.local_addr().unwrap().port()
}

/// Without a ready node, a client gets the same answer as from a server without stores.
#[test]
fn balancer_reports_when_no_node_is_ready() {
    let text = shipped_config();
    let problem = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("http-error status 503 "));
    let problem = problem.expect("no body for 503");
    let (begin, end) = (problem.find('{').unwrap(), problem.rfind('}').unwrap());
    let problem: serde_json::Value = serde_json::from_str(&problem[begin..=end]).unwrap();
    let code = Code::StoreUnavailable;
    assert_eq!(problem["code"], code.as_str());
    assert_eq!(problem["type"], "about:blank");
    assert_eq!(
        (&problem["title"], &problem["status"]),
        (&code.title().into(), &503.into())
    );
    let body: ProblemBody = serde_json::from_value(problem.clone()).unwrap();
    assert!(body.detail.contains("try again"));
    let away = || [free_port(), free_port(), free_port()];
    for (port, _running, _folder) in [balancer(away()), nginx(away())] {
        assert_reports_no_ready_node(port, &problem);
    }
}

fn assert_reports_no_ready_node(port: u16, problem: &serde_json::Value) {
    run(async {
        let answer = eventually("the balancer to answer", || async {
            answer(port, "/v1/worlds").filter(|answer| answer.starts_with("HTTP/1.1 503"))
        })
        .await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_lowercase();
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        assert!(head.contains("retry-after: 1"), "{head}");
        // Some balancers send the body in chunks.
        let body = &body[body.find('{').unwrap()..=body.rfind('}').unwrap()];
        assert_eq!(&serde_json::from_str::<serde_json::Value>(body).unwrap(), problem);
    });
}

fn wait_until_forwarding(port: u16) {
    run(async {
        eventually("the balancer to let something through", || async {
            (status(port, "/readyz") == Some(200)).then_some(())
        })
        .await;
    });
}

#[test]
fn balancer_hides_private_routes() {
    let nodes = || [start_node(), start_node(), start_node()];
    for (port, _running, _folder) in [balancer(nodes()), nginx(nodes())] {
        wait_until_forwarding(port);
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
    }
}

/// A slow request body ends at the balancer and costs no node.
#[test]
fn balancer_buffers_slow_request_bodies() {
    let posts = Arc::default();
    let nodes = || [0; 3].map(|_| counting_node(&posts));
    for (port, _running, _folder) in [balancer(nodes()), nginx(nodes())] {
        wait_until_forwarding(port);
        let mut slow = TcpStream::connect(("127.0.0.1", port)).unwrap();
        slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        slow.write_all(b"POST /v1/sessions HTTP/1.1\r\nhost: players\r\ncontent-length: 10\r\n\r\n{")
            .unwrap();
        let mut answer = String::new();
        let _ = slow.read_to_string(&mut answer);
        // HAProxy answers, and nginx closes the connection.
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 408") || answer.starts_with("HTTP/1.0 408"),
            "{answer}"
        );
        assert_eq!(posts.load(Ordering::SeqCst), 0);

        let mut whole = TcpStream::connect(("127.0.0.1", port)).unwrap();
        whole
            .write_all(
                b"POST /v1/sessions HTTP/1.1\r\nhost: players\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}",
            )
            .unwrap();
        let mut answer = String::new();
        whole.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(posts.swap(0, Ordering::SeqCst), 1);
    }
}

/// One address has a limited number of connections. Closed connections become available again.
#[test]
fn balancer_limits_connections_per_address() {
    let nodes = || [start_node(), start_node(), start_node()];
    for (port, _running, _folder) in [balancer(nodes()), nginx(nodes())] {
        wait_until_forwarding(port);
        let hold = || {
            let mut held = TcpStream::connect(("127.0.0.1", port)).unwrap();
            // nginx counts a connection from its first request. A refused connection does not count.
            let _ = held.write_all(b"POST /v1/sessions HTTP/1.1\r\nhost: players\r\ncontent-length: 10\r\n\r\n{");
            held
        };
        let open: RefCell<Vec<TcpStream>> = RefCell::new((0..CONNECTIONS_PER_ADDRESS).map(|_| hold()).collect());
        run(async {
            eventually("one more to be refused", || {
                // Some connections may be refused while closed ones still count.
                open.borrow_mut().push(hold());
                async move { matches!(status(port, "/readyz"), None | Some(429)).then_some(()) }
            })
            .await;
            open.borrow_mut().clear();
            eventually("the address to be let in again", || async {
                (status(port, "/readyz") == Some(200)).then_some(())
            })
            .await;
        });
    }
}

/// A socket is upgraded. The balancer strips the header that nodes use to trust each other.
#[test]
fn balancer_forwards_sockets_and_strips_forward_tokens() {
    let nodes = || [start_node(), start_node(), start_node()];
    for (port, _running, _folder) in [balancer(nodes()), nginx(nodes())] {
        wait_until_forwarding(port);
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request = "GET /v1/ws HTTP/1.1\r\nhost: players\r\nconnection: Upgrade\r\nupgrade: websocket\r\n";
        socket
            .write_all(format!("{request}sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\nx-colloquy-hop: forged\r\nx-forwarded-for: 1.2.3.4\r\n\r\n").as_bytes())
            .unwrap();
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        assert!(answer.contains("get /v1/ws"), "{answer}");
        assert!(!answer.contains("forged"), "{answer}");
        // A client cannot set its own address either.
        assert!(answer.contains("\r\nx-forwarded-for: 127.0.0.1\r\n"), "{answer}");
    }
}
