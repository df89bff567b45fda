//! A node that is unreachable at its own `node.url` does not join the cluster.

use std::{net::SocketAddr, process::Stdio};

use tokio::{io::copy_bidirectional, net::TcpListener, net::TcpStream};

use super::{NodeCluster, say};
use crate::support::{ServerData, run};

const URL: &str = "COLLOQUY__NODE__URL";

/// Returns the error of a server that stops by itself.
async fn startup_error(data: &ServerData) -> String {
    let mut command = data.command();
    command.arg("serve").stdout(Stdio::null()).stderr(Stdio::piped());
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
    let ended = ended.await.unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    said
}

/// Forwards connections to the nodes in turn.
async fn start_balancer(nodes: [SocketAddr; 2]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for node in nodes.into_iter().cycle() {
            let (mut client, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(node).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    address
}

#[test]
fn node_unreachable_at_its_own_url_does_not_join() {
    run(async {
        let nodes = NodeCluster::start(1, &[]).await;
        let there = &nodes.servers[0];
        let (session, _) = nodes.session(0).await;
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = free.local_addr().unwrap();
        drop(free);
        let listen = own.to_string();
        let balancer = start_balancer([own, there.address]).await;
        for (url, why) in [
            ("http://127.0.0.1:1".to_owned(), "no connection can be opened"),
            (format!("http://{}", there.address), "another server answers there: 40"),
            (format!("http://{balancer}"), "another server answers there: 40"),
        ] {
            let wrong = nodes
                .data
                .with_own_folder()
                .with(&[(URL, &url), ("COLLOQUY__SERVER__LISTEN", &listen)]);
            let said = startup_error(&wrong).await;
            let named = format!("not reached at its node.url ({url})");
            assert!(said.contains(&named) && said.contains(why), "{said}");
        }
        assert_eq!(nodes.data.count("SELECT count(*) FROM nodes").await, 1);
        // The existing node does not count as dead.
        say(&there.backend(), &session, "k2", "Still there?").await;
        let url = format!("http://{own}");
        let right = nodes
            .data
            .with_own_folder()
            .with(&[(URL, &url), ("COLLOQUY__SERVER__LISTEN", &listen)]);
        let joined = right.spawn();
        say(&joined.backend(), &session, "k3", "And you?").await;
        assert_eq!(nodes.data.count("SELECT count(*) FROM nodes").await, 2);
    });
}
