//! `/metrics` at a separate address, with hashed tenant names.

use std::net::TcpListener;

use colloquy::tenancy::Role;
use reqwest::StatusCode;

use crate::support::{RestClient, ServerData, run};

#[test]
fn metrics_are_served_only_at_their_own_address() {
    run(async {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let listen = free.to_string();
        let server = ServerData::new(&[
            ("COLLOQUY__TELEMETRY__METRICS_LISTEN", listen.as_str()),
            ("COLLOQUY__TELEMETRY__HASH_TENANTS", "true"),
        ])
        .start();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "I like grapes.").await;

        assert_eq!(server.backend().status("/metrics").await, StatusCode::NOT_FOUND);
        let scraper = RestClient::new(free, String::new());
        let text = scraper.text("/metrics").await;
        assert!(text.contains("colloquy_turns_total"), "{text}");
        // The first digits of the SHA-256 of `demo`.
        assert!(text.contains("tenant=\"2a97516c354b\""), "{text}");
        assert!(!text.contains("tenant=\"demo\""), "{text}");
        // The address serves no other path, for any token.
        let admin = RestClient::new(free, server.token("demo", Role::Admin, None));
        for path in ["/v1/worlds", "/healthz", "/readyz", "/docs"] {
            let refused = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
            assert!(refused.contains(&admin.status(path).await), "{path}");
        }
        server.stop();
        assert!(
            std::net::TcpStream::connect(free).is_err(),
            "it has stopped with the server"
        );
    });
}
